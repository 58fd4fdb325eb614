"""Judge the outputs of a second model row by row, by the original's own rounding errors.

A row is a line along the last axis, of at least eight elements; its error is the largest distance
to the precise run. It may be ``k`` times the original's error, in this row or in the median row,
and a unit in the last place of float32. A wrong epsilon, mask or head is far outside; another
order of sums is inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gehost.verify.difference import OutputDifference, as_wide, compare_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Outputs = Mapping[str, Array]


_SHORTEST = 8
"""Elements of a row, if there are as many: the error of a single element may be none by luck."""


class Rule(NamedTuple):
    """How much less precise a second model may be."""

    name: str
    k: float
    rows: float
    """The share of rows that must be within the bound."""
    floor: float = 2.0**-23
    """What is always allowed, relatively to the largest number of the row: another last place."""


SAME_FUNCTION = Rule("same function", 8, 1.0)
"""For runs that do not round to half."""
SMALL_MODELS = Rule("same function", 8, 1.0, floor=2.0**-20)
"""The same for models of a few nodes and numbers, which may be exact by luck."""
NOT_LESS_PRECISE = Rule("not less precise", 4, 0.9)
"""For runs that do, where single roundings fall either way."""


class Yardstick(NamedTuple):
    """What the original's numbers of one feed are measured by."""

    precise: Outputs
    runs: Sequence[Outputs]
    """Of the original: its error is that of the worst."""


def judge_outputs(
    expected: Outputs,
    actual: Outputs,
    yardstick: Yardstick,
    rule: Rule,
    *,
    feed: int,
    steps: Mapping[str, float],
) -> list[OutputDifference]:
    """Compare the outputs of two runs, which have the same names, types and shapes.

    Args:
        expected: of the original.
        actual: of the second model.
        yardstick: of the same feed.
        rule: for floats; others must be equal.
        feed: its number.
        steps: of quantized outputs, which may be off by one.
    """
    results: list[OutputDifference] = []
    for name, a in expected.items():
        blank, b = OutputDifference(name, feed, equal=False), actual[name]
        precise = yardstick.precise.get(name)
        if precise is None or precise.shape != a.shape or not is_judged(a):
            results.append(_within_a_step(compare_arrays(a, b, blank, None, None), steps))
            continue
        runs = [run[name] for run in yardstick.runs if run[name].shape == a.shape]
        difference = _judge(blank, a, b, precise, [a, *runs], rule)
        results.append(_within_a_step(difference, steps))
    return results


def is_judged(array: Array) -> bool:
    """Whether the rule applies to an output; float16 comes from a device."""
    return array.dtype.name in ("float16", "float32", "float64")


def _judge(
    blank: OutputDifference, a: Array, b: Array, precise: Array, runs: Sequence[Array], rule: Rule
) -> OutputDifference:
    """Return ``blank`` with the verdict on one output filled in."""
    exact = compare_arrays(a, b, blank, 0.0, 0.0)
    if exact.equal or exact.reason:
        return dataclasses.replace(exact, rule=rule.name)
    bounds = _bounds(precise, runs, rule)
    wide, other, target = (_rows(as_wide(array)) for array in (a, b, precise))
    # where the precise run has no number, the original itself is the target
    target = np.where(np.isfinite(target), target, wide)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(other - target)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    error = np.where(same, 0.0, np.where(np.isfinite(other), error, np.inf))
    error = np.where(np.isnan(error), np.inf, error)
    inside = (error <= bounds[:, None]).all(axis=1)
    new = ~np.isfinite(other) & np.isfinite(target) & np.isfinite(wide)
    equal = float(inside.mean()) >= rule.rows and not bool(new.any())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error > 0, error / bounds[:, None], 0.0)
    row, column = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    place = int(row) * ratio.shape[1] + int(column)
    return dataclasses.replace(
        exact,
        equal=equal,
        rule=rule.name,
        error=float(error[row, column]),
        bound=float(bounds[row]),
        rows_outside=float(1 - inside.mean()),
        index=_index(place, a.shape),
        a=float(wide[row, column]),
        b=float(other[row, column]),
        max_abs=float(np.abs(other[row, column] - wide[row, column])),
    )


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices of an element by its place in memory."""
    results: list[int] = []
    for size in reversed(shape):
        place, index = divmod(place, size)
        results.insert(0, index)
    return tuple(results)


def _bounds(precise: Array, runs: Sequence[Array], rule: Rule) -> NDArray[np.float64]:
    """Return the allowed error of each row."""
    target = _rows(as_wide(precise))
    own = np.zeros(len(target))
    for run in runs:
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(_rows(as_wide(run)) - target)
        own = np.maximum(own, np.where(np.isfinite(error), error, 0.0).max(axis=1))
    largest = np.where(np.isfinite(target), np.abs(target), 0.0).max(axis=1)
    return rule.k * np.maximum(own, np.median(own)) + rule.floor * largest


def _rows(array: Array) -> Array:
    """Return the rows of an output: its last axis, with those before it while it is short."""
    length = 1
    for size in reversed(array.shape):
        if length >= _SHORTEST:
            break
        length *= size
    return array.reshape(-1, length)


def _within_a_step(result: OutputDifference, steps: Mapping[str, float]) -> OutputDifference:
    step = steps.get(result.output)
    if result.equal or result.reason or step is None or result.max_abs > step:
        return result
    return dataclasses.replace(result, equal=True, rule="one quantization step")
