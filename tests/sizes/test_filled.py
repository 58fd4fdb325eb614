"""Sizes in runs in which no tensor is empty."""

from __future__ import annotations

import pytest

from gehost.sizes import Scope, lengths


@pytest.fixture
def scope() -> Scope:
    return Scope()


def test_copied_sizes_are_those_of_entries(scope: Scope) -> None:
    s, t = scope.symbol("s"), scope.symbol("t")
    copied = scope.either(s, 64)
    assert copied is not s
    assert scope.filled(copied) is s
    assert scope.filled(2 * copied + t) is 2 * s + t
    assert scope.filled(scope.min(copied, t)) is scope.min(s, t)
    assert scope.filled((copied + 1) // 2) is (s + 1) // 2
    assert scope.filled(scope.broadcast(copied, t)) is scope.broadcast(s, t)
    assert scope.filled(7) == 7


def test_reshape_keeps_the_elements(scope: Scope) -> None:
    b, s = scope.symbol("b"), scope.symbol("s")
    least = scope.min(8, s)
    assert scope.filled(least) is least
    shape = lengths.reshaped(scope, [b, least, 2, 4], [b, s, 8], allow_zero=False)
    assert [scope.filled(size) if size is not None else None for size in shape] == [b, s, 2, 4]
    assert scope.filled(least + 1) is s + 1
    assert least is not s  # in an empty batch they may differ


def test_no_fact_from_a_product_that_differs_otherwise(scope: Scope) -> None:
    b, s, t = (scope.symbol(name) for name in "bst")
    least = scope.min(s, t)
    lengths.reshaped(scope, [b, least, 8], [b, 3 * s, 8], allow_zero=False)
    assert scope.filled(least) is least
