"""Proving that a mask is causal and nothing else.

A tensor is followed as two numbers: the one it holds where column ≤ row, and the one it holds
elsewhere. Comparisons of row and column numbers, Trilu and constant matrices begin with two
different ones; Not, And, Or, Equal, Where, Cast keep track of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gehost import DataType

from ._numbers import far
from ._shapes import Size, all_same, elements_of, shape_of
from ._types import FLOATS

if TYPE_CHECKING:
    from gehost import Node, Value


@dataclass(frozen=True)
class _Plane:
    """A tensor of two numbers over its last two axes of sizes ``dims`` (None: one number)."""

    low: float
    """Where column ≤ row."""
    high: float
    dims: tuple[Size, Size] | None


@dataclass(frozen=True)
class _Index:
    """The number of the row, or of the column, over so many."""

    is_row: bool
    count: Size


_Known = _Plane | _Index | None


def _both(a: float, b: float) -> bool:
    return bool(a) and bool(b)


def _any(a: float, b: float) -> bool:
    return bool(a) or bool(b)


def _chosen(condition: float, a: float, b: float) -> float:
    return a if condition else b


_ELEMENTWISE: dict[str, Callable[..., float]] = {
    "Add": operator.add,
    "And": _both,
    "Equal": operator.eq,
    "Mul": operator.mul,
    "Not": operator.not_,
    "Or": _any,
    "Sub": operator.sub,
    "Where": _chosen,
}
_COMPARED = {
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
}
_MOVED = frozenset(("Cast", "Expand", "Identity", "Reshape", "Slice", "Unsqueeze"))


def is_causal(mask: Value, rows: Size, columns: Size) -> bool:
    """Whether a mask provably excludes exactly the positions where column > row.

    Elsewhere it adds 0.
    """
    found = _Proof().of(mask)
    return (
        isinstance(found, _Plane)
        and all_same(found.dims, (rows, columns))
        and found.low == 0
        and found.high <= -far(mask.dtype)
    )


class _Proof:
    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, value: Value | None) -> _Known:
        if value is None:
            return None
        if value.name not in self._known:
            self._known[value.name] = self._found(value)
        return self._known[value.name]

    def _found(self, value: Value) -> _Known:
        if value.is_constant:
            return None if value.array is None else _constant(value.array)
        node = value.producer
        if node is None:
            return None
        if node.op == "Range":
            return self._range(node)
        if node.op == "Trilu":
            return self._triangle(node)
        if node.op in _COMPARED:
            return self._compared(node)
        if node.op in _ELEMENTWISE:
            return self._elementwise(_ELEMENTWISE[node.op], node.inputs)
        return self._moved(node) if node.op in _MOVED else None

    def _range(self, node: Node) -> _Known:
        dims = shape_of(node.outputs[0])
        start, _, step = (elements_of(one) for one in node.inputs)
        if dims is None or len(dims) != 1 or start != (0,) or step != (1,):
            return None
        return _Index(is_row=False, count=dims[0])

    def _triangle(self, node: Node) -> _Known:
        given, dims = self.of(node.inputs[0]), self._last_two(node.outputs[0])
        offset = 0
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            array = node.inputs[1].array
            offset = None if array is None else int(array.reshape(-1)[0])
        if not isinstance(given, _Plane) or given.dims is not None or dims is None:
            return None
        if node.attrs.get("upper", 1):
            return _Plane(0.0, given.high, dims) if offset == 1 else None
        return _Plane(given.low, 0.0, dims) if offset == 0 else None

    def _compared(self, node: Node) -> _Known:
        compare = _COMPARED[node.op]
        left, right = (self.of(one) for one in node.inputs)
        if isinstance(left, _Plane) and isinstance(right, _Plane):
            return self._elementwise(compare, node.inputs)
        if not isinstance(left, _Index) or not isinstance(right, _Index):
            return None
        row, column = (left, right) if left.is_row else (right, left)
        dims = self._last_two(node.outputs[0])
        if not row.is_row or column.is_row or not all_same(dims, (row.count, column.count)):
            return None
        # equal numbers decide like smaller columns, or like larger ones
        below, equal, above = (
            compare(*((a, b) if left.is_row else (b, a))) for a, b in ((1, 0), (0, 0), (0, 1))
        )
        return _Plane(float(below), float(above), dims) if equal == below else None

    def _elementwise(self, compute: Callable[..., float], inputs: Sequence[Value | None]) -> _Known:
        planes = [self.of(one) for one in inputs]
        known = [one for one in planes if isinstance(one, _Plane)]
        dims = {one.dims for one in known if one.dims is not None}
        if len(known) != len(planes) or len(dims) > 1:
            return None
        low, high = compute(*(one.low for one in known)), compute(*(one.high for one in known))
        return _Plane(float(low), float(high), dims.pop() if dims else None)

    def _moved(self, node: Node) -> _Known:
        """Return the result of an operator that keeps the last two axes."""
        given = self.of(node.inputs[0])
        before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
        if node.op == "Identity":
            return given
        if node.op == "Cast":
            return _cast(given, int(node.attrs.get("to", 0)))
        if isinstance(given, _Plane) and given.dims is None:
            return given
        if before is None or after is None or given is None:
            return None
        if node.op == "Slice":
            return self._cut(node, given)
        if isinstance(given, _Plane):
            same_places = all_same(after[-2:], given.dims) and all_same(before[-2:], given.dims)
            # other axes have size 1, or are repeated
            front = node.op == "Expand" or all(one == 1 for one in before[:-2])
            return given if same_places and front else None
        return self._moved_index(node, given, before, after)

    def _moved_index(
        self, node: Node, given: _Index, before: Sequence[Size], after: Sequence[Size]
    ) -> _Known:
        """Numbers stand in one axis, the last or the one before; other axes are repeated."""
        place = -2 if given.is_row else -1
        if node.op == "Expand":
            return given if all_same(after[place:][:1], (given.count,)) else None
        if any(one != 1 for axis, one in enumerate(before) if axis - len(before) != place):
            return None
        others = [axis - len(after) for axis, one in enumerate(after) if one != 1]
        if others not in ([-1], [-2]) or not all_same((after[others[0]],), (given.count,)):
            return None
        return _Index(is_row=others == [-2], count=given.count)

    def _cut(self, node: Node, given: _Plane | _Index) -> _Known:
        """The first rows and columns of a plane."""
        starts, axes = (elements_of(node.input(slot)) for slot in (1, 3))
        steps = [elements_of(one) for one in node.inputs[4:] if one is not None]
        dims = self._last_two(node.outputs[0])
        first = starts is not None and set(starts) == {0}
        if not isinstance(given, _Plane) or dims is None or not first or axes is None:
            return None
        if any(step is None or set(step) != {1} for step in steps):
            return None
        return _Plane(given.low, given.high, dims)

    def _last_two(self, value: Value | None) -> tuple[Size, Size] | None:
        dims = shape_of(value)
        return None if dims is None or len(dims) < 2 else (dims[-2], dims[-1])


_BOOL, _WHOLE, _REAL = (
    DataType.BOOL,
    (DataType.INT32, DataType.INT64),
    FLOATS | {DataType.DOUBLE},
)


def _cast(given: _Known, to: int) -> _Known:
    if isinstance(given, _Index):
        return given if to in _WHOLE else None
    if given is None:
        return given
    if to in _REAL:
        with np.errstate(over="ignore"):
            low, high = np.array([given.low, given.high]).astype(DataType(to).numpy).tolist()
        return _Plane(low, high, given.dims)
    if to == _BOOL:
        return _Plane(float(bool(given.low)), float(bool(given.high)), given.dims)
    whole = float(given.low).is_integer() and float(given.high).is_integer()
    return given if to in _WHOLE and whole else None


_COUNTED = ("bool", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def _constant(array: np.ndarray) -> _Known:
    if array.dtype.name not in _COUNTED or not array.size:
        return None  # smaller integers overflow in sums, and there is no minus in unsigned ones
    flat = array.reshape(-1)
    if bool(np.all(flat == flat[0])):
        return _Plane(float(flat[0]), float(flat[0]), None)
    if array.ndim < 2:
        counts = array.dtype.kind in "iu" and np.array_equal(flat, np.arange(flat.size))
        return _Index(is_row=False, count=flat.size) if counts else None
    rows, columns = array.shape[-2:]
    below = np.tri(rows, columns, dtype=bool)
    low, high = array[..., below], array[..., ~below]
    if not low.size or not high.size:
        return None
    numbers = float(low.reshape(-1)[0]), float(high.reshape(-1)[0])
    if not (bool(np.all(low == numbers[0])) and bool(np.all(high == numbers[1]))):
        return None
    return None if any(map(math.isnan, numbers)) else _Plane(*numbers, (rows, columns))
