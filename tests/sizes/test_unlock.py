"""The fact that makes two sizes one."""

from __future__ import annotations

import pytest

from gehost.sizes import Scope, fact_for

NAMES = ["t", "u", "past", "more", "s", "total"]
FACTS = {
    ("t", "u + 1"): "t == u + 1",
    ("2*t", "2*u"): "t == u",
    ("min(past + s, s + 3)", "past + s"): "past <= 3",
    ("past + s", "more + s"): "more == past",
    ("t", "broadcast(t, u + 1)"): "t == u + 1",
    ("total", "past + s"): "total == past + s",
    ("t", "2*t"): "",
    ("t", "t + 1"): "",
    ("past + s", "min(s + 3, more + s)"): "",
}


@pytest.mark.parametrize(("left", "right"), FACTS)
def test_it_makes_them_one(left: str, right: str) -> None:
    scope = Scope()
    scope.declare(NAMES)
    for one, other in ((left, right), (right, left)):
        fact = fact_for(scope, one, other)
        assert fact == FACTS[left, right]
        if fact:
            assumed = Scope()
            assumed.assume_all([fact])
            assumed.declare(NAMES)
            assert assumed.parse(left) == assumed.parse(right)


def test_a_name_of_inference_is_in_no_fact() -> None:
    scope = Scope()
    size = scope.keyed("computed")
    scope.declare(["t"])
    assert fact_for(scope, "t", str(size)) == ""


@pytest.mark.parametrize("name", ["batch size", 'a"b', "1x", "a==b", "x,y", "s<t", "", "sizes"])
def test_names_of_any_text_are_no_error(name: str) -> None:
    scope = Scope()
    scope.declare([name, "t"])
    fact = fact_for(scope, str(scope.symbol(name)), "t")
    if fact:
        Scope().assume_all([fact])
