"""Lengths of results: right whatever the sizes are, and equal where the operands are."""

from __future__ import annotations

import random

import pytest

from gehost.sizes import Answer, Dim, Scope, Size
from gehost.sizes.lengths import broadcast, counted, part, product, reshaped, size_or_none

END = 1 << 62


@pytest.fixture
def scope() -> Scope:
    return Scope()


def test_parts_are_as_python_has_them() -> None:
    r = random.Random(1)
    for _ in range(2000):
        scope, n = Scope(), r.randrange(9)
        start, end = (r.choice([*range(-12, 12), END, -END]) for _ in range(2))
        step = r.choice([1, 1, 2, 3, -1, -2])
        if step < 0 and not -n <= start < n:
            continue  # runtimes differ
        scope.assume(f"s >= {n}")
        scope.assume(f"s <= {n}") if r.random() < 0.5 else None
        size = scope.symbol("s") if r.random() < 0.5 else n
        length = part(scope, size, start, end, step)
        expected = len(range(n)[start : None if step < 0 and end <= -END else end : step])
        assert length is not None
        assert scope.equal(length, expected) is not Answer.NO
        assert not isinstance(size, int) or isinstance(length, Size) or length == expected


def test_equal_cuts_have_equal_lengths(scope: Scope) -> None:
    s, past, new = (scope.symbol(name) for name in ("s", "past", "new"))
    n = scope.keyed("element", least=float("-inf"))
    half = s // 2
    assert part(scope, s, 0, half) is half
    assert part(scope, s, half, END) is s - half
    assert part(scope, s, -4096, END) is scope.min(s, 4096)
    assert part(scope, s, scope.max(0, s - 4096), END) is scope.min(4096, s)
    assert part(scope, past + new, past, END) is new
    assert part(scope, s, -s, END) is s  # also of none
    assert part(scope, s, -past, END) is scope.either(scope.min(past, s), s)
    assert part(scope, s, -s, END, 2) is (s + 1) // 2
    assert part(scope, s, 0, END, 2) is (s + 1) // 2
    assert part(scope, s, -1, -END, -1) is s
    assert part(scope, s, 0, n) is part(scope, s, 0, n)
    assert part(scope, s, 0, n) is not part(scope, past, 0, n)
    assert part(scope, s, 0, n - 3) is not part(scope, s, 0, n)
    assert part(scope, s, 0, None) is None
    assert part(scope, s, 0, 4, None) is None


def test_reshapes_split_and_merge_products(scope: Scope) -> None:
    scope.assume("w >= 1")
    b, s, h, w = (scope.symbol(name) for name in ("b", "s", "h", "w"))

    def result(source: list[Dim], *target: Dim) -> tuple[Dim, ...]:
        return reshaped(scope, target, source, allow_zero=False)

    merged = result([b, s, 768], -1, 768)
    assert merged == (b * s, 768)
    assert result(list(merged), b, -1, 12, 64) == (b, s, 12, 64)
    assert result([b, s, 12, 64], 0, 0, -1) == (b, s, 768)
    beside_64 = scope.either(s, 64)  # where s is 0, the 64 is copied
    assert result([b * h, s, 64], b, -1, s, 64)[1] is (h * s) // beside_64
    padded = scope.ceildiv(s, w) * w
    assert result([b, padded, 64], b, -1, w, 64)[1] is scope.ceildiv(s, w)
    assert result([b, None, 12], 0, -1, 2) == (b, None, 2)
    assert result([b, s], s, -1) == (scope.either(s, b), result([b, s], s, -1)[1])
    assert result([2, 3], 0, 0, 0, -1) == (2, 3, None, None)
    assert result([b, 5], -1, 2)[0] is (5 * b) // 2


def test_reshapes_hold_on_numbers() -> None:
    import numpy as np

    r = random.Random(3)
    for _ in range(300):
        scope = Scope()
        names = ["b", "s", "t"]
        numbers = {name: r.choice([0, 1, 2, 3, 4]) for name in names}
        source = [r.choice(names) for _ in range(r.randrange(1, 4))]
        target = [r.choice([*names, "-1", "0", "2"]) for _ in range(r.randrange(1, 4))]
        at = [numbers.get(text, 0) for text in source]
        to = [numbers[text] if text in numbers else int(text) for text in target]
        copied = [at[k] if n == 0 and k < len(at) else n for k, n in enumerate(to)]
        try:
            expected = np.zeros(at).reshape(copied).shape
        except ValueError:
            continue
        if target.count("-1") > 1 or (0 in to[len(at) :]) or 0 in [*at, *copied]:
            continue
        dims = reshaped(
            scope,
            [scope.parse(text) if text in names else int(text) for text in target],
            [scope.symbol(text) for text in source],
            allow_zero=False,
        )
        fixed = Scope()
        for name, number in numbers.items():
            fixed.assume(f"{name} == {number}")
        for dim, number in zip(dims, expected, strict=True):
            if isinstance(dim, Size) and "?" not in str(dim):
                assert fixed.parse(str(dim)) == number, (source, target, dims)
            elif isinstance(dim, int):
                assert dim == number


def test_broadcasts_of_shapes(scope: Scope) -> None:
    a, b = scope.symbol("a"), scope.symbol("b")
    assert broadcast(scope, [[a, 1], [b, 3, 4]]) == (b, scope.broadcast(a, 3), 4)
    assert broadcast(scope, [[a], [b]]) == (scope.broadcast(a, b),)
    assert broadcast(scope, [[None], [4]]) == (4,)
    assert broadcast(scope, [[None], [1]]) == (None,)
    assert broadcast(scope, [[None], [a]]) == (None,)
    assert broadcast(scope, []) == ()


def test_ranges_and_products(scope: Scope) -> None:
    a, b = scope.symbol("a"), scope.symbol("b")
    assert counted(scope, 0, a, 1) is a
    assert counted(scope, a, a + b, 1) is b
    assert counted(scope, 0, a, 2) is scope.ceildiv(a, 2)
    assert counted(scope, a, 0, -1) is a
    assert counted(scope, 0, a, b) is None
    assert counted(scope, None, a, 1) is None
    assert product(scope, [a, 2, b]) is 2 * a * b
    assert product(scope, [a, None]) is None
    assert size_or_none(scope, a - b) is None
    assert size_or_none(scope, a) is a
