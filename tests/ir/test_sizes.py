"""Expressions of named sizes: one text for equal ones, and right whatever the names stand for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gehost.ir.sizes import (
    is_positive,
    is_size,
    least,
    minus,
    names_in,
    or_another,
    or_copied,
    plus,
    product,
    quotient,
    settled_by,
    times,
    vanishes_with,
)
from gehost.ir.types import Dim, is_invented

NAMES = ("batch", "s0", "?3", "h.1")


def value_of(size: Dim, sizes: dict[str, int]) -> int:
    """What a size is, by Python's own reading of the text."""
    if isinstance(size, int):
        return size
    text = str(size)
    for name in sorted(sizes, key=len, reverse=True):
        text = text.replace(name, f"({sizes[name]})")
    text = text.replace("or(", "either(")
    scope = {
        "div": lambda a, b: a // b,
        "either": lambda a, b: a or b,
        "min": min,
    }
    return int(eval(text, {"__builtins__": {}}, scope))


def draw(rng: random.Random, depth: int) -> tuple[Dim, Any]:
    """A size, and a function that computes it from those of the names."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.6:
            name = rng.choice(NAMES)
            return name, lambda sizes: sizes[name]
        number = rng.randrange(5)
        return number, lambda _: number
    (one, first), (other, second) = draw(rng, depth - 1), draw(rng, depth - 1)
    kind = rng.choice(["plus", "times", "minus", "quotient", "least", "or"])
    if kind == "plus":
        return plus(one, other), lambda s: first(s) + second(s)
    if kind == "minus":
        return minus(one, other), lambda s: first(s) - second(s)
    if kind == "times":
        return times(one, other), lambda s: first(s) * second(s)
    if kind == "least":
        return least(one, other), lambda s: min(first(s), second(s))
    if kind == "or":
        return or_copied(one, other), lambda s: next(filter(None, (first(s), second(s))), 0)
    return quotient(one, other), lambda s: first(s) // second(s)


def test_sizes_are_right_whatever_their_names_stand_for() -> None:
    rng = random.Random(5)
    checked = 0
    for _ in range(20000):
        size, compute = draw(rng, 3)
        for _ in range(4) if size is not None else ():
            sizes = {name: rng.choice([0, 1, 2, 3, 7]) for name in NAMES}
            try:
                expected = compute(sizes)
            except ZeroDivisionError:
                continue  # the node fails
            assert value_of(size, sizes) == expected, (size, sizes)
            assert not is_size(size) or expected >= 0
            assert not is_positive(size) or expected > 0
            checked += 1
    assert checked > 20000


def test_what_vanishes_is_0() -> None:
    rng = random.Random(6)
    found = 0
    while found < 300:
        (one, _), (other, _) = draw(rng, 2), draw(rng, 2)
        if not (is_size(one) and is_size(other) and vanishes_with(one, other)):
            continue
        for _ in range(6):
            sizes = {name: rng.choice([0, 1, 2]) for name in NAMES}
            try:
                if value_of(other, sizes) == 0:
                    assert value_of(one, sizes) == 0, (one, other, sizes)
                    found += 1
            except ZeroDivisionError:
                continue  # the node fails


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (plus("b", "a"), "a + b"),
        (plus("a", plus("b", -1)), "a + b - 1"),
        (minus(plus("a", "b"), "b"), "a"),
        (minus(3, "a"), "-a + 3"),
        (times(plus("a", 1), plus("a", -1)), "a*a - 1"),
        (product(["b", 12, 64, "a"]), "768*a*b"),
        (quotient(times("a", 768), 64), "12*a"),
        (quotient(times("a", 10), 64), "div(10*a, 64)"),
        (quotient(times("a", "b"), "b"), "a"),
        (quotient(minus("a", 5), 5), None),
        (least("a", 1024), "min(a, 1024)"),
        (least(plus("a", 2), "a"), "a"),
        (least("b", "a"), "min(a, b)"),
        (or_copied("a", "a"), "a"),
        (or_copied("a", times("a", 4)), "a"),
        (or_copied("a", 12), "or(a, 12)"),
        (or_copied(plus("a", 1), 12), "a + 1"),
        (or_copied("or(a, 12)", 64), "or(a, 12)"),
        (or_copied(0, "a"), "a"),
        (settled_by("min(a, 1024)", "a"), "a"),
        (settled_by("a", "or(a, 12)"), "a"),
        (settled_by("a", "or(a, b)"), "a"),
        (settled_by("b", "or(a, b)"), None),
        (or_another("a", 2, "a", "b", "b"), "or(a, ?2:a:b:b)"),
        (or_another("a", "a + b"), None),
        (or_another("a", "a:b", "b"), None),
        (settled_by("min(a, b)", "a"), None),
        (settled_by("min(a, 1024)", "b"), None),
        (plus("batch-size", 0), "batch-size"),
        (plus("batch-size", 1), None),
        (times("2", "a"), None),
        (plus("b + a", 1), None),
        (plus(None, 1), None),
        (times("a", 1 << 40), None),
        (product(["a"] * 9), None),
        (sorted(names_in("2*div(10*S, 64)*min(S, 1024) + ?3")), ["?3", "S", "S"]),
        (sorted(names_in("batch-size")), ["batch-size"]),
        (is_invented("2*?3"), True),
        (is_invented("a"), False),
    ],
)
def test_texts(found: Any, wanted: Any) -> None:
    """Texts of a file that are not in normal form are names in no expression."""
    assert found == wanted
