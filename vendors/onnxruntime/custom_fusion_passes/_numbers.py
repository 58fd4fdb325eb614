"""Proving which numbers a mask may hold.

A tensor is followed as a few numbers that its elements are chosen from, or as the smallest and the
largest. Constants, comparisons and inputs of booleans begin; Where, Add, Sub and Mul combine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gehost import DataType

from ._types import FLOATS

if TYPE_CHECKING:
    from gehost import Node, Value

_MOST_VALUES = 200
"""Tensors that are looked at for one answer."""
_MOST = 8
"""Numbers that are followed one by one; of more, the smallest and the largest."""


@dataclass(frozen=True)
class Numbers:
    """The possible elements of a tensor, without NaN."""

    known: tuple[float, ...]
    """Sorted, at least one."""
    between: bool
    """Whether numbers between the first and the last may occur, too."""

    def may_be(self, number: float) -> bool:
        """Whether an element may have this value."""
        inside = self.known[0] <= number <= self.known[-1]
        return inside if self.between else number in self.known

    @classmethod
    def of(cls, results: set[float], *, between: bool = False) -> Numbers | None:
        """Collect numbers; None where one is NaN."""
        if not results or any(map(math.isnan, results)):
            return None
        entry = tuple(sorted(results))
        if between or len(entry) > _MOST:
            return cls((entry[0], entry[-1]), between=True)
        return cls(entry, between=False)


_Seen: TypeAlias = "dict[Value, Numbers | None]"

_TRUTH = Numbers((0.0, 1.0), between=False)
_TRUTHS = frozenset(
    (
        *("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN"),
        *("Less", "LessOrEqual", "Not", "Or", "Xor"),
    )
)
_MOVED = frozenset(
    (
        *("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
_FOLLOWED = FLOATS | {DataType.BOOL}
_WHOLE = frozenset((DataType.BOOL, DataType.INT32, DataType.INT64))
_COMBINED: dict[str, Callable[[np.float32, np.float32], np.float32]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Sub": lambda a, b: a - b,
}


def numbers(value: Value | None, visited: _Seen | None = None) -> Numbers | None:
    """Return a float or boolean tensor's possible elements, None if unknown.

    ``visited`` holds the answers for tensors below the same one.
    """
    if value is None:
        return None
    visited = {} if visited is None else visited
    if value not in visited:
        if len(visited) >= _MOST_VALUES:
            return None
        visited[value] = None
        visited[value] = _numbers(value, visited)
    return visited[value]


def _numbers(value: Value, visited: _Seen) -> Numbers | None:
    if value.is_constant:
        array = value.array
        if array is None or array.dtype == np.float64 or value.dtype not in _FOLLOWED:
            return None
        return Numbers.of({float(number) for number in np.unique(array.astype(np.float32))})
    node = value.producer
    if node is None:
        return _TRUTH if value.dtype == DataType.BOOL else None
    if node.op in _TRUTHS:
        return _TRUTH
    if node.op in _MOVED:
        return numbers(node.inputs[0], visited)
    if node.op == "Where":
        return _either(numbers(node.inputs[1], visited), numbers(node.inputs[2], visited))
    if node.op == "ScatterND" and node.attrs.get("reduction", "none") == "none":
        return _either(numbers(node.inputs[0], visited), numbers(node.inputs[2], visited))
    if node.op == "ConstantOfShape" and value.dtype in FLOATS:
        argument = node.attrs.get("value")
        return Numbers.of({0.0 if argument is None else float(np.asarray(argument).reshape(-1)[0])})
    if node.op == "Trilu":
        return _either(numbers(node.inputs[0], visited), Numbers((0.0,), between=False))
    if node.op in _COMBINED and value.dtype in FLOATS:
        return _combined(node, value.dtype, visited)
    if node.op != "Cast" or value.dtype not in FLOATS:
        return None
    content = numbers(node.inputs[0], visited)
    return content and Numbers.of(
        {rounded(number, value.dtype) for number in content.known}, between=content.between
    )


def rounded(number: float, dtype: DataType) -> float:
    """Return the number of a type that is nearest to one."""
    with np.errstate(over="ignore"):
        return float(np.float32(number).astype(dtype.numpy))


def _either(left: Numbers | None, right: Numbers | None) -> Numbers | None:
    if left is None or right is None:
        return None
    return Numbers.of({*left.known, *right.known}, between=left.between or right.between)


def _combined(node: Node, dtype: DataType, visited: _Seen) -> Numbers | None:
    """Each of the three is monotone in each operand, so the ends of a range suffice.

    A runtime may compute neighbouring nodes of a half type in float32 and round once.
    """
    left, right = numbers(node.inputs[0], visited), numbers(node.inputs[1], visited)
    if left is None or right is None:
        return None
    ends = (*left.known, *right.known)
    if node.op == "Mul" and (left.between or right.between) and any(map(math.isinf, ends)):
        return None  # 0 within a range makes NaN of infinity
    compute = _COMBINED[node.op]
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = product(map(np.float32, left.known), map(np.float32, right.known))
        results = {float(compute(a, b)) for a, b in pairs}
    results |= {rounded(number, dtype) for number in results}
    return Numbers.of(results, between=left.between or right.between)


FAR = 1e30
"""Of this magnitude, a float32 absorbs each score below 1e22."""
FAR_HALF = 6e4
"""Of this magnitude, a mask of float16 (which ends at 65504) excludes scores up to 3e4."""
NEAR = 256.0
"""Up to this magnitude, sums in another order differ by at most 3e-5; up to 1e4 it shows (5e-4)."""


def far(dtype: DataType | None) -> float:
    """Return the magnitude from which on a fill of a type excludes a position."""
    return FAR_HALF if dtype == DataType.FLOAT16 else FAR


def is_near(value: Value | None) -> bool:
    """Proven to hold only numbers up to ``NEAR``."""
    result = numbers(value)
    return result is not None and result.known[0] >= -NEAR and result.known[-1] <= NEAR


def is_zero_or_far_below(value: Value | None) -> bool:
    """Proven to hold only 0 and numbers that absorb whatever they are added to."""
    result = numbers(value)
    if value is None or result is None or result.between:
        return False
    return all(number == 0 or number <= -far(value.dtype) for number in result.known)


def is_near_or_far(value: Value | None) -> bool:
    """Proven to hold only numbers that are added to scores in any order."""
    if value is None:
        return False
    result, least = numbers(value), far(value.dtype)
    if result is not None:
        ends = result.known
        return is_near(value) or (
            not result.between and all(abs(one) <= NEAR or abs(one) >= least for one in ends)
        )
    node = value.producer
    if node is None:
        return False
    if node.op in _MOVED:
        return is_near_or_far(node.inputs[0])
    if node.op != "Mul":
        return False
    for slot in (0, 1):
        factor = node.inputs[slot]
        array = factor.array if factor is not None and factor.is_constant else None
        if array is not None and bool(np.all(np.abs(array) >= least)):
            return _is_whole(node.inputs[1 - slot])
    return False


def _is_whole(value: Value | None) -> bool:
    """Proven to hold only whole numbers: casts of integers, and sums of them."""
    if value is None:
        return False
    if value.is_constant:
        array = value.array
        return array is not None and bool(np.all(array == np.rint(array)))
    node = value.producer
    if node is None:
        return False
    if node.op == "Cast":
        source = node.inputs[0]
        return source is not None and source.dtype in _WHOLE
    if node.op in {"Add", "Mul", "Sub"}:
        return all(map(_is_whole, node.inputs))
    return node.op in _MOVED and _is_whole(node.inputs[0])
