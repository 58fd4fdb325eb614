"""Elements of small integer tensors: numbers, named sizes, or unknown.

``Reshape(x, Concat(Shape(x)[:2], [4, 8]))``: one unknown size makes ONNX's inference lose even the
rank. Following the shape back to its inputs keeps the known elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from gehost.ir.sizes import is_positive, least, minus, plus, product, quotient, times
from gehost.ir.types import DataType, Dim, TensorType

if TYPE_CHECKING:
    from gehost.ir.node import Node, Value

Elements: TypeAlias = tuple[Dim, ...]
"""Elements of a vector, or the one of a scalar; a text is a size, None is unknown."""

_Operation: TypeAlias = Callable[[Dim, Dim], Dim]

_MOST = 64
_DEPTH = 32
_PASSED_ON = frozenset(
    {"Identity", "Cast", "CastLike", "Flatten", "Reshape", "Squeeze", "Unsqueeze"}
)
_INTEGERS = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL})
_FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE})
_EXACT = 1 << 24
"""Integers below it are exact in float32."""
_AXES_AS_INPUT = 18
"""The first opset in which the axes of ``ReduceProd`` are an input."""


class ElementsOfModel:
    """Elements of the integer tensors of one model, computed on demand."""

    def __init__(self) -> None:
        self._known: dict[Value, Elements | None] = {}
        self._unknown: dict[Value, Elements | None] = {}
        """Values without result in the current walk; the next one may find one."""
        self._edits: tuple[int, object] = (0, None)
        """The model's last edit when ``_known`` was filled."""

    def forget(self) -> None:
        """Clear the cache, when types it depends on are undone."""
        self._known.clear()

    def of(self, value: Value | None, depth: int = _DEPTH) -> Elements | None:
        """Return the elements of an integer vector or scalar.

        Returns None if their number is unknown.
        """
        if (
            value is None
            or depth == 0
            or (value.dtype is not None and value.dtype not in _INTEGERS)
        ):
            return None
        if depth == _DEPTH:
            self._unknown.clear()
            mark, edit = value.graph.model.journal.last
            if mark != self._edits[0] or edit is not self._edits[1]:
                self._known.clear()
                self._edits = mark, edit
        for known in (self._known, self._unknown):
            if value in known:
                return known[value]
        found = self._find(value, depth)
        if found is None:
            shape = value.shape
            if shape is not None and len(shape) <= 1:
                count = shape[0] if shape else 1
                if isinstance(count, int) and count <= _MOST:
                    found = (None,) * count
        is_known = found is not None and any(dim is not None for dim in found)
        (self._known if is_known else self._unknown)[value] = found
        return found

    def _find(self, value: Value, depth: int) -> Elements | None:
        if value.is_constant:
            return _constant(value, "ib")
        node = value.producer
        if node is None:
            return None
        source = node.input(0)
        if node.op in ("Shape", "Size"):
            shape = None if source is None else source.shape
            if shape is None:
                return None
            if node.op == "Size":
                return (product(shape),)
            return shape[node.attrs.get("start", 0) : node.attrs.get("end")]
        if node.op == "Concat":
            joined: list[Dim] = []
            for part in node.inputs:
                elements = self.of(part, depth - 1)
                if elements is None or len(joined) + len(elements) > _MOST:
                    return None
                joined.extend(elements)
            return tuple(joined)
        first = self.of(source, depth - 1)
        if (
            first is None
            and node.op in ("Cast", "CastLike")
            and value.dtype in _INTEGERS
            and source is not None
            and source.dtype in _FLOATS
        ):
            first = _constant(source, "f")
        return None if first is None else self._from_first(node, value, first, depth)

    def _from_first(self, node: Node, value: Value, first: Elements, depth: int) -> Elements | None:
        """Return the elements of a result, given those of input 0."""
        if node.op in _PASSED_ON:
            if value.rank not in (0, 1):
                return None
            if value.dtype == DataType.INT64:
                return first
            return tuple([_whole(dim) if isinstance(dim, int) else dim for dim in first])
        if node.op in _ELEMENTWISE and len(node.inputs) == 2:
            pair = _broadcast(first, self.of(node.input(1), depth - 1))
            if pair is None:
                return None
            whole, sized = _ELEMENTWISE[node.op]
            operation = sized if value.dtype is DataType.INT64 else whole
            return tuple([operation(one, other) for one, other in zip(*pair, strict=True)])
        if node.op == "Expand":
            shape = self.of(node.input(1), depth - 1)
            if shape is None or len(shape) > 1 or len(first) != 1:
                return None
            count = shape[0] if shape else 1
            return first * count if isinstance(count, int) and 0 <= count <= _MOST else None
        if node.op == "Gather":
            indices = self.of(node.input(1), depth - 1)
            if indices is None or node.attrs.get("axis", 0) != 0:
                return None
            inside = range(-len(first), len(first))
            return tuple(
                [first[i] if isinstance(i, int) and i in inside else None for i in indices]
            )
        if node.op == "Slice":
            return _slice(
                node, first, [self.of(node.input(slot), depth - 1) for slot in range(1, 5)]
            )
        if node.op == "Where":
            chosen = [self.of(node.input(slot), depth - 1) for slot in (1, 2)]
            columns = _broadcast(first, *chosen)
            if columns is None:
                return None
            return tuple(
                [
                    a if a == b else None if test is None else a if test else b
                    for test, a, b in zip(*columns, strict=True)
                ]
            )
        if node.op == "ConstantOfShape":
            return _constant_of_shape(node, first)
        if node.op == "ReduceProd":
            return _reduce_prod(node, first, value)
        return None


def _constant(value: Value, kinds: str) -> Elements | None:
    """Return the elements of a small constant, if whole numbers.

    Args:
        value: any value.
        kinds: numpy's letters of the element types to read.
    """
    known = value.type
    if (
        not value.is_constant
        or not isinstance(known, TensorType)
        or known.shape is None
        or len(known.shape) > 1
        or (known.size or 0) > _MOST
    ):
        return None
    array = value.array
    if array is None or array.ndim > 1 or array.size > _MOST or array.dtype.kind not in kinds:
        return None
    if kinds == "f" and not all(float(x).is_integer() and abs(x) < _EXACT for x in array.flat):
        return None
    return tuple([int(element) for element in array.flat])


def _broadcast(*vectors: Elements | None) -> list[Elements] | None:
    """Repeat single elements to the length of the others.

    Returns None if a vector is unknown, or the lengths differ.
    """
    known = [vector for vector in vectors if vector is not None]
    lengths = {len(vector) for vector in known} - {1}
    if len(known) < len(vectors) or len(lengths) > 1:
        return None
    count = lengths.pop() if lengths else 1
    return [vector * count if len(vector) == 1 else vector for vector in known]


def _whole(number: int) -> Dim:
    """Return a result that fits 32 bits, else None (overflow)."""
    return number if -(1 << 31) <= number < 1 << 31 else None


def _of_numbers(operation: Callable[[int, int], int], neutral: int, *, either: bool) -> _Operation:
    """Return an operation on integers.

    A name stays if the other operand is ``neutral``.
    """

    def computed(one: Dim, other: Dim) -> Dim:
        if isinstance(one, int) and isinstance(other, int):
            return _whole(operation(one, other))
        if other == neutral:
            return one
        return other if either and one == neutral else None

    return computed


def _of_sizes(operation: _Operation, numbers: _Operation) -> _Operation:
    """Return the same operation, with expressions of names."""

    def computed(one: Dim, other: Dim) -> Dim:
        if isinstance(one, int) and isinstance(other, int):
            return numbers(one, other)
        return operation(one, other)

    return computed


def _quotient(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return one // other if one >= 0 and other > 0 else None
    return one if other == 1 else None


def _equal(one: Dim, other: Dim) -> Dim:
    if one is None or other is None:
        return None
    if one == other:
        return 1
    difference = minus(one, other)
    if isinstance(difference, int) or is_positive(difference) or is_positive(times(difference, -1)):
        return 0
    return None


_sum = _of_numbers(lambda one, other: one + other, 0, either=True)
_difference = _of_numbers(lambda one, other: one - other, 0, either=False)
_product = _of_numbers(lambda one, other: one * other, 1, either=True)

_ELEMENTWISE: Mapping[str, tuple[_Operation, _Operation]] = {
    "Add": (_sum, _of_sizes(plus, _sum)),
    "Div": (_quotient, _of_sizes(quotient, _quotient)),
    "Equal": (_equal, _equal),
    "Min": (least, least),
    "Mul": (_product, _of_sizes(times, _product)),
    "Sub": (_difference, _of_sizes(minus, _difference)),
}
"""Operator → operation for 32-bit integers, and for 64-bit ones, which hold products of sizes."""


def _constant_of_shape(node: Node, shape: Elements) -> Elements | None:
    if len(shape) > 1 or not all(isinstance(size, int) and 0 <= size <= _MOST for size in shape):
        return None
    found = node.attrs.get("value")
    if not isinstance(found, np.ndarray):
        return None
    filler = cast("np.ndarray[Any, Any]", found)
    if filler.size != 1 or filler.dtype.kind not in "ib":
        return None
    count = shape[0] if shape else 1
    assert isinstance(count, int)
    return (int(filler.reshape(-1)[0]),) * count


def _reduce_prod(node: Node, elements: Elements, value: Value) -> Elements | None:
    """Return the product of all elements, None if axes may be empty."""
    if (node.graph.model.opset() or 0) >= _AXES_AS_INPUT:
        if node.input(1) is not None or node.attrs.get("noop_with_empty_axes", 0):
            return None
    elif list(node.attrs.get("axes") or [0]) not in ([0], [-1]):
        return None
    return (product(elements),) if value.rank in (0, 1) and value.dtype is DataType.INT64 else None


def _slice(node: Node, elements: Elements, bounds: Sequence[Elements | None]) -> Elements | None:
    starts: Sequence[Any] | None
    ends: Sequence[Any] | None
    steps: Sequence[Any] | None
    if "starts" in node.attrs:
        starts, ends, steps = node.attrs["starts"], node.attrs["ends"], [1]
    else:
        starts, ends, steps = bounds[0], bounds[1], bounds[3] if node.input(4) is not None else (1,)
    if not starts or not ends or not steps or len(starts) != 1:
        return None
    start, end, step = starts[0], ends[0], steps[0]
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)) or step < 1:
        return None
    return elements[start:end:step]
