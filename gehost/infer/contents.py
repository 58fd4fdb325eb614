"""What is known of the elements of small integer tensors: shapes that a model computes, partly
numbers, partly symbols.

ONNX's own inference gives up on ``Reshape(x, Concat(Shape(x)[:2], [4, 8]))`` once a size has no
name: not even the rank is left. Walking back from the shape keeps what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

from gehost.ir.graph import Node, Value
from gehost.ir.types import DataType, Dim, TensorType, ValueType, closer

Elements: TypeAlias = tuple[Dim, ...]
"""Elements of a vector, or of a scalar as one; a symbol is the size of that name, None is
unknown.
"""

_Operation: TypeAlias = Callable[[Dim, Dim], Dim]

_MOST = 64
_DEPTH = 32
REFINED = frozenset({"Reshape", "Expand", "ConstantOfShape"})
"""Operators of whose result a computed shape may tell more than inference does."""
_PASSED_ON = frozenset({"Identity", "Cast", "Squeeze", "Unsqueeze", "Flatten"})
_INTEGERS = frozenset({DataType.INT64, DataType.INT32})


class Contents:
    """Elements of the integer tensors of one model, found when asked for."""

    def __init__(self) -> None:
        self._known: dict[Value, Elements | None] = {}
        self._unknown: dict[Value, Elements | None] = {}
        """What the present walk did not find; the next one may."""
        self._edits: tuple[int, object] = (0, None)
        """As of which edits of the model ``_known`` is."""

    def of(self, value: Value | None, depth: int = _DEPTH) -> Elements | None:
        """The elements of an integer vector or scalar; None where not even their number is
        known.
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
            found = _unknown_elements(value)
        is_known = found is not None and any(dim is not None for dim in found)
        (self._known if is_known else self._unknown)[value] = found
        return found

    def _find(self, value: Value, depth: int) -> Elements | None:
        if value.is_constant:
            array = value.array
            if array is None or array.ndim > 1 or array.size > _MOST or array.dtype.kind != "i":
                return None
            return tuple(int(element) for element in array.reshape(-1))
        node = value.producer
        if node is None:
            return None
        if node.op == "Shape":
            return _shape(node)
        if node.op == "Size":
            source = node.input(0)
            return (
                (source.type.size,)
                if source is not None and isinstance(source.type, TensorType)
                else None
            )
        if node.op in _ARITHMETIC:
            return _computed(
                _ARITHMETIC[node.op],
                self.of(node.input(0), depth - 1),
                self.of(node.input(1), depth - 1),
            )
        first = self.of(node.input(0), depth - 1) if node.op != "Concat" else None
        if node.op in _PASSED_ON:
            if value.rank not in (0, 1) or first is None:
                return None
            return (
                first
                if value.dtype == DataType.INT64
                else tuple([_whole(dim) if isinstance(dim, int) else dim for dim in first])
            )
        if node.op == "Concat":
            return self._joined(node, depth)
        if node.op == "Gather" and first is not None:
            return _gather(node, first, self.of(node.input(1), depth - 1))
        if node.op == "Slice" and first is not None:
            bounds = [
                self.of(node.input(slot), depth - 1) if node.input(slot) is not None else None
                for slot in range(1, 5)
            ]
            return _slice(node, first, bounds)
        if node.op == "Reshape":
            return first if value.rank in (0, 1) else None
        return None

    def _joined(self, node: Node, depth: int) -> Elements | None:
        joined: list[Dim] = []
        for part in node.inputs:
            elements = self.of(part, depth - 1)
            if elements is None or len(joined) + len(elements) > _MOST:
                return None
            joined.extend(elements)
        return tuple(joined)


def _computed(
    operation: _Operation, left: Elements | None, right: Elements | None
) -> Elements | None:
    """Numbers that a model computes from numbers; a name goes through what changes nothing."""
    if (
        left is None
        or right is None
        or (len(left) != len(right) and 1 not in (len(left), len(right)))
    ):
        return None
    count = max(len(left), len(right)) if left and right else 0
    pairs = zip(
        left * count if len(left) == 1 else left,
        right * count if len(right) == 1 else right,
        strict=False,
    )
    return tuple([operation(one, other) for one, other in pairs])


def _sum(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return _whole(one + other)
    return one if other == 0 else other if one == 0 else None


def _difference(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return _whole(one - other)
    return one if other == 0 else None


def _product(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return _whole(one * other)
    return one if other == 1 else other if one == 1 else None


def _quotient(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return one // other if one >= 0 and other > 0 else None
    return one if other == 1 else None


def _whole(number: int) -> Dim:
    """A result that 32 bits hold, as some are computed in; what becomes of others is not told."""
    return number if -(1 << 31) <= number < 1 << 31 else None


_ARITHMETIC: Mapping[str, _Operation] = MappingProxyType(
    {"Add": _sum, "Div": _quotient, "Mul": _product, "Sub": _difference}
)


def _unknown_elements(value: Value) -> Elements | None:
    shape = value.shape
    if shape == ():
        return (None,)
    if shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= _MOST:
        return (None,) * shape[0]
    return None


def _shape(node: Node) -> Elements | None:
    source = node.input(0)
    shape = source.shape if source is not None else None
    if shape is None:
        return None
    end = node.attrs.get("end")
    return (
        shape[node.attrs.get("start", 0) : end]
        if end is not None
        else shape[node.attrs.get("start", 0) :]
    )


def _gather(node: Node, elements: Elements, indices: Elements | None) -> Elements | None:
    if node.attrs.get("axis", 0) != 0 or indices is None:
        return None
    return tuple(
        elements[i] if isinstance(i, int) and -len(elements) <= i < len(elements) else None
        for i in indices
    )


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


def refine(
    node: Node, types: Sequence[ValueType | None], inferred: ValueType | None, contents: Contents
) -> ValueType | None:
    """The type of output 0, where a computed shape tells more than inference did."""
    if node.op not in REFINED or is_complete(inferred):
        return inferred
    wanted = contents.of(node.input(0 if node.op == "ConstantOfShape" else 1))
    source = types[0] if types else None
    if wanted is None:
        return inferred
    shape: Elements | None
    if node.op == "Reshape":
        shape = _reshaped(wanted, source, allow_zero=bool(node.attrs.get("allowzero", 0)))
    else:
        # it will fail, or not run
        sizes = tuple([None if isinstance(dim, int) and dim < 0 else dim for dim in wanted])
        shape = sizes if node.op == "ConstantOfShape" else _expanded(sizes, source)
    dtype = inferred.dtype if isinstance(inferred, TensorType) else _result_dtype(node, source)
    if shape is None or not dtype:
        return inferred
    return merge_types(inferred, TensorType(dtype, shape))


def merge_types(first: ValueType | None, second: ValueType | None) -> ValueType | None:
    """What both say together; where they disagree ``first`` stands, but for a number beside a
    name.
    """
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return first if first is not None else second
    shape = first.shape
    if shape is None:
        shape = second.shape
    elif second.shape is not None and len(shape) == len(second.shape):
        shape = tuple([closer(a, b) for a, b in zip(shape, second.shape, strict=True)])
    return TensorType(first.dtype or second.dtype, shape)


def is_complete(known: ValueType | None) -> bool:
    """Whether all is known of a tensor: a number or a name for each size."""
    return isinstance(known, TensorType) and known.shape is not None and None not in known.shape


def _result_dtype(node: Node, source: ValueType | None) -> DataType:
    if node.op == "ConstantOfShape":
        return DataType.FLOAT if "value" not in node.attrs else DataType.UNDEFINED
    return source.dtype if isinstance(source, TensorType) else DataType.UNDEFINED


def _reshaped(wanted: Elements, source: ValueType | None, *, allow_zero: bool) -> Elements:
    shape = source.shape if isinstance(source, TensorType) else None
    zeros: set[int] = (
        set() if allow_zero else {place for place, dim in enumerate(wanted) if dim == 0}
    )
    dims, rest = (
        list(wanted),
        [dim for place, dim in enumerate(wanted) if dim != -1 and place not in zeros],
    )
    left = None if shape is None else list(shape)
    for place in sorted(zeros, reverse=True):
        if left is None or place >= len(left) or left[place] == 0:
            rest.append(None)
        dims[place] = left.pop(place) if left is not None and place < len(left) else None
    if -1 in dims:  # sizes that stay where they are need not be known for it
        dims[dims.index(-1)] = _left_over(left, rest)
    return tuple(dim if not isinstance(dim, int) or dim >= 0 else None for dim in dims)


def _left_over(shape: Sequence[Dim] | None, rest: list[Dim]) -> Dim:
    """The size that -1 stands for: what is left of the source's dimensions when those of the
    others are taken away.
    """
    if shape is None or None in shape or None in rest:
        return None
    left = list(shape)
    over: list[int] = []
    for dim in rest:
        if isinstance(dim, int):
            over.append(dim)
        elif dim in left:
            left.remove(dim)
        else:
            return None
    numbers = prod([dim for dim in left if isinstance(dim, int)])
    symbols = [dim for dim in left if isinstance(dim, str)]
    taken = prod(over)
    if not symbols:
        return numbers // taken if taken and numbers % taken == 0 else None
    return symbols[0] if len(symbols) == 1 and numbers == taken else None


def _expanded(wanted: Elements, source: ValueType | None) -> Elements | None:
    shape = source.shape if isinstance(source, TensorType) else None
    if shape is None:
        return None
    rank = max(len(shape), len(wanted))
    pairs = zip(
        (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(wanted)) + wanted, strict=True
    )
    return tuple(_broadcast(a, b) for a, b in pairs)


def _broadcast(left: Dim, right: Dim) -> Dim:
    if left == 1:
        return right
    if right in (1, left):
        return left
    if isinstance(left, int):
        return left
    return right if isinstance(right, int) else None
