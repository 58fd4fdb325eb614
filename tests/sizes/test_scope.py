"""Sizes that are equal are one object, and what is asked of sizes."""

from __future__ import annotations

import pytest

from gehost.sizes import Answer, Known, Origin, Scope, Size

YES, NO, UNKNOWN = Answer


@pytest.fixture
def scope() -> Scope:
    return Scope()


def test_equal_forms_are_one_object(scope: Scope) -> None:
    s, t, w = (scope.symbol(name) for name in "stw")
    assert (s + t) * (s - t) is s * s - t * t
    assert (s + 1) // 2 is scope.ceildiv(s, 2) is s - s // 2
    assert scope.min(s, 4) is s - scope.max(0, s - 4)
    assert scope.max(s, t) is s + t - scope.min(t, s)
    assert ((s - 1) // 2 - 1) // 2 is (s - 3) // 4
    assert s + (w - s % w) % w is scope.ceildiv(s, w) * w
    assert (6 * s * t) // (4 * t) is (3 * s) // 2
    assert scope.min(scope.min(s, 1023) + 1, 1024) is scope.min(s + 1, 1024)


def test_numbers_stay_numbers(scope: Scope) -> None:
    s = scope.symbol("s")
    assert (s - s, s * 0, 0 // s, s % 1, scope.min(3, 2, 5)) == (0, 0, 0, 0, 2)
    assert (7 // s, 7 % s, 3 - s, -s) == (7 // s, 7 % s, -s + 3, -1 * s)
    assert scope.max(0, -1) == 0
    with pytest.raises(ZeroDivisionError):
        scope.floordiv(s, 0)


def test_division_needs_its_conditions(scope: Scope) -> None:
    s, t, w = (scope.symbol(name) for name in "stw")
    d = s - t  # may be negative: floor and ceiling are not turned, quotients not nested
    assert (s // d) // 2 is not s // (2 * d)
    assert scope.equal(t % d, 0) is UNKNOWN
    assert (s * d + 1) // d is s + 1 // d
    assert (s % w) // w == 0
    assert scope.ceildiv(s, 1) is s


def test_no_and_unknown_are_different(scope: Scope) -> None:
    scope.assume("w >= 1")
    s, t, w = (scope.symbol(name) for name in "stw")
    assert scope.equal(s, s + 1) is NO
    assert scope.equal(2 * s, 2 * t + 1) is NO
    assert scope.equal(s, t) is UNKNOWN
    assert scope.equal(w, 0) is NO
    assert scope.equal(s, 0) is UNKNOWN
    assert scope.broadcastable(s + 2, s + 3) is NO
    assert scope.broadcastable(s, 1) is YES
    assert scope.broadcastable(s, s + 1) is UNKNOWN
    assert scope.divides(8, scope.ceildiv(s, 64) * 64) is YES
    assert scope.divides(2, 2 * s + 1) is NO
    assert scope.divides(0, s) is UNKNOWN
    assert scope.nonnegative(s - t) is UNKNOWN
    assert scope.nonnegative(-1 - s) is NO
    assert scope.nonnegative(s - (s // 2) * 2) is YES
    with pytest.raises(TypeError, match=r"Answer\.YES"):
        bool(scope.equal(s, t))


def test_a_broadcast_is_no_max(scope: Scope) -> None:
    s, t = scope.symbol("s"), scope.symbol("t")
    assert scope.broadcast(0, 1) == 0
    assert scope.broadcast(1, s) is s
    assert scope.broadcast(s, 7) == 7
    assert scope.broadcast(scope.min(s, 4), s) is s
    assert scope.broadcast(scope.either(s, t), s) is s
    assert scope.broadcast(s, scope.broadcast(t, s)) is scope.broadcast(t, s)
    assert scope.broadcast(scope.min(s, t), s) is not s  # t may be 0


def test_either_is_the_first_where_the_second_vanishes_with_it(scope: Scope) -> None:
    s, t = scope.symbol("s"), scope.symbol("t")
    assert scope.either(s, s * t) is s
    assert scope.either(s, scope.min(s, t)) is s
    assert scope.either(scope.min(s, t), s * t) is scope.min(s, t)
    assert scope.either(scope.min(s, 8), s) is scope.min(s, 8)
    assert scope.either(scope.min(s, t), s) is not scope.min(s, t)
    assert scope.either(s + t, t) is s + t
    assert scope.either(0, t) is t
    assert scope.either(s + 1, t) is s + 1
    assert scope.either(t, s - t) is not t
    assert scope.either(s, 5 * t) is not s


def test_a_cut_off_keeps_equal_computations_equal(scope: Scope) -> None:
    s, t, w = (scope.symbol(name) for name in "stw")

    def long() -> Known:
        size = s
        for k in range(40):
            size = size * scope.max(t, size // (k + 2)) + w
        return size

    size = long()
    assert long() is size
    assert isinstance(size, Size)
    assert size.weight <= 64
    assert scope.parse(str(size)) is size


def test_bounds_of_huge_sizes_do_not_overflow(scope: Scope) -> None:
    scope.assume("s >= 4611686018427387904")
    size: Known = 1
    for _ in range(30):
        size = size * scope.symbol("s")
    assert scope.nonnegative(size - 1) is YES
    assert scope.bounds(size)[1] == float("inf")


def test_a_size_by_its_key_is_equal_for_equal_keys(scope: Scope) -> None:
    origin = Origin("mask", 1, 'NonZero "nz_7"')
    s = scope.symbol("s")
    size = scope.keyed(("NonZero", "mask"), origin=origin)
    assert scope.keyed(("NonZero", "mask")) is size
    assert scope.keyed(("NonZero", "other")) is not size
    assert scope.described(size) == 'the length of "mask" (axis 1, from NonZero "nz_7")'
    assert scope.described(size + s) == f"{size} + s, where {size} is {origin}"
    assert scope.described(None) == "an unknown size"
    assert scope.nonnegative(scope.keyed("element", least=float("-inf"))) is UNKNOWN


def test_shuffled_constructions_are_one_object(scope: Scope) -> None:
    a, b, c = (scope.symbol(name) for name in "abc")
    first = [scope.min(a + b, b + c, 4), scope.broadcast(a, b, c), (a + b + c) // 3]
    again = [scope.min(4, c + b, b + a), scope.broadcast(c, a, b), (c + (b + a)) // 3]
    assert [x is y for x, y in zip(first, again, strict=True)] == [True] * 3
