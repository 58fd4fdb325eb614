"""Facts about names, and where they come too late."""

from __future__ import annotations

import pytest

from gehost.errors import UsageError
from gehost.sizes import Answer, Scope

YES = Answer.YES


def test_facts_hold() -> None:
    scope = Scope()
    past, new = scope.symbol("past"), scope.symbol("new")
    for fact in (
        "total == past + new", "seq % 8 == 0", "seq >= 5", "batch == 4", "time <= 4096", "sizes>=1",
        "odd < 6", "odd > 2", "both % 4 == 0", "both % 6 == 0", "both <= 13", "both >= 12",
    ):  # fmt: skip
        scope.assume(fact)
    assert scope.symbol("total") is past + new
    assert scope.symbol("batch") == 4
    seq = scope.symbol("seq")
    assert scope.divides(8, seq) is YES
    assert scope.nonnegative(seq - 8) is YES
    assert scope.min(scope.symbol("time"), 4096) is scope.symbol("time")
    assert scope.nonnegative(scope.symbol("other") - 1) is YES
    assert scope.bounds(scope.symbol("odd")) == (3, 5)
    assert scope.symbol("both") == 12


def test_a_multiple_prints_as_its_name() -> None:
    scope = Scope()
    scope.assume("seq % 8 == 0")
    seq = scope.symbol("seq")
    assert str(seq) == "seq"
    assert scope.parse("seq") is seq
    assert scope.parse(str(seq + 1)) is seq + 1
    assert seq // 8 * 8 is seq


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("s >= 1", '"s" is in use'),
        ("s % 2 == 0", '"s" is in use'),
        ("t", "no fact"),
        ("t >= s", "no number"),
        ("t % 0 == 0", "multiple of 0"),
        ("t == 3", "another fact"),
        ("t >= 9", "no value"),
        ("u % 2 <= 0", "a remainder"),
    ],
)
def test_what_is_no_fact_is_refused(fact: str, message: str) -> None:
    scope = Scope()
    scope.symbol("s")
    scope.assume("t <= 8")
    with pytest.raises(UsageError, match=message):
        scope.assume(fact)


def test_a_multiple_is_written_by_its_name() -> None:
    scope = Scope()
    scope.assume_all(["total == past + seq", "past % 2 == 0", "seq >= 1"])
    total, past = scope.symbol("total"), scope.symbol("past")
    assert str(total) == "past + seq"
    assert str(2 * past * scope.symbol("seq")) == scope.written(2 * past * scope.symbol("seq"))
    assert scope.parse(str(past + 3)) is past + 3
    assert scope.divides(2, past + 4) is Answer.YES


EQUAL = (["a == b", "a == c"], ["a == b", "b == c"], ["a == b", "c == b"], ["b == a", "c == b"])


@pytest.mark.parametrize("facts", EQUAL, ids=" and ".join)
def test_equal_names_are_one_in_any_order(facts: list[str]) -> None:
    more = ["c <= 7", "total == b + n", "total == c + n", "n == k + 1", "b % 2 == 0"]
    for own in ([*facts, *more], [*more, *facts], [*facts, *more][::-1]):
        scope = Scope()
        scope.assume_all(own)
        a, b, c, total, k = map(scope.symbol, ("a", "b", "c", "total", "k"))
        assert a is b is c
        assert total is a + k + 1
        assert scope.bounds(b) == (0, 6)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (["a == b", "a <= 3", "b >= 4"], "no value"),
        (["a == a + 1"], "both sides"),
        (["a == b", "a == b + 1"], "both sides"),
        (["a == b + 1", "b == a + 1"], "in use"),
        (["a == n + 1", "a == n + 2"], "in use"),
        (["a == b", "b == 3", "a == 4"], "in use"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(facts: list[str], message: str) -> None:
    for own in (facts, facts[::-1]):
        with pytest.raises(UsageError, match=message):
            Scope().assume_all(own)


def test_equal_names_come_before_sizes() -> None:
    scope = Scope()
    scope.symbol("b")
    with pytest.raises(UsageError, match='"b" is in use'):
        scope.assume_all(["a == b"])
