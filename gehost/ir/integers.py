"""Elements of small integer tensors: numbers, sizes, or unknown.

``Reshape(x, Concat(Shape(x)[:2], [4, 8]))``: one unknown size makes ONNX's inference lose even the
rank. Following the shape back to its inputs keeps the known elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from gehost.ir.node import GRAPH_KINDS
from gehost.ir.types import DataType, TensorType
from gehost.sizes import Dim, Scope
from gehost.sizes.lengths import END, product
from gehost.sizes.values import ELEMENTWISE, elementwise

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.node import Node, Value

Integers: TypeAlias = "np.ndarray[Any, Any]"
"""An array of numbers, sizes and None."""

_MOST = 64
_DEPTH = 32
_BITS: Mapping[DataType | None, int] = MappingProxyType(
    {DataType.INT64: 64, DataType.INT32: 32, DataType.BOOL: 2}
)
_FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE})
_EXACT = 1 << 24
"""Integers below it are exact in float32."""
_AXES_AS_INPUT = 18
"""The first opset in which the axes of ``ReduceProd`` are an input."""


class IntegersOfModel:
    """Elements of the integer tensors of one model, computed on demand."""

    def __init__(self) -> None:
        self._known: dict[Value, Integers | None] = {}
        self._unknown: dict[Value, Integers | None] = {}
        """Values without result in the current walk; the next one may find one."""
        self._edits: tuple[int, object] = (0, None)
        """The model's last edit when ``_known`` was filled."""

    def forget(self) -> None:
        """Clear the cache, when types it depends on are undone."""
        self._known.clear()

    def of(self, value: Value | None, depth: int = _DEPTH) -> Integers | None:
        """Return the elements of an integer tensor; None if their number is unknown."""
        if value is None or depth == 0 or (value.dtype is not None and value.dtype not in _BITS):
            return None
        if depth == _DEPTH:
            self._unknown.clear()
            mark, edit = value.graph.model.journal.last
            if mark != self._edits[0] or edit is not self._edits[1]:
                self._known.clear()
                self._edits = mark, edit
        for cache in (self._known, self._unknown):
            if value in cache:
                return cache[value]
        array = _Walk(self, value, depth).elements()
        if array is not None and array.size > _MOST:
            array = None
        if array is None:
            shape = [dim for dim in value.shape or () if isinstance(dim, int)]
            if len(shape) == value.rank and math.prod(shape) <= _MOST:
                array = np.full(shape, None, object)
            self._unknown[value] = array
            return array
        is_known = _listed(array).count(None) < array.size
        (self._known if is_known else self._unknown)[value] = array
        return array

    def vector(self, value: Value | None) -> tuple[Dim, ...] | None:
        """Return the elements of a scalar or vector."""
        array = self.of(value)
        return None if array is None or array.ndim > 1 else tuple(_listed(array))


class _Walk:
    """Computes the elements of one value from those of its producer's inputs."""

    def __init__(self, integers: IntegersOfModel, value: Value, depth: int) -> None:
        self._integers = integers
        self._value = value
        self._depth = depth
        self._scope: Scope = value.graph.model.sizes

    def _of(self, value: Value | None) -> Integers | None:
        return self._integers.of(value, self._depth - 1)

    def _read(self, node: Node, slot: int) -> Integers:
        """The elements of an operand; a ``ValueError`` if their number is unknown."""
        array = self._of(node.input(slot))
        if array is None:
            raise ValueError
        return array

    def _vector(self, value: Value | None) -> list[Dim] | None:
        """The elements of a vector or scalar that an operator reads."""
        array = self._of(value)
        return None if array is None or array.ndim > 1 else _listed(array)

    def elements(self) -> Integers | None:
        value, node = self._value, self._value.producer
        if value.is_constant:
            return _constant(value, "ib")
        if node is None:
            return None
        if node.op in ("Shape", "Size"):
            return self._shape(node)
        function = _Walk.elementwise if node.op in ELEMENTWISE else _FUNCTIONS.get(node.op)
        try:
            return None if function is None else function(self, node)
        except (IndexError, TypeError, ValueError):  # unknown, or axes or shapes that do not fit
            return None

    def _shape(self, node: Node) -> Integers | None:
        source = node.input(0)
        shape = None if source is None else source.shape
        if shape is None:
            return None
        if node.op == "Size":
            return _array([product(self._scope, self._scope.parse_all(shape))], ())
        part = shape[node.attrs.get("start", 0) : node.attrs.get("end")]
        return _array(self._scope.parse_all(part))

    def chosen(self, node: Node) -> Integers | None:
        """If: a result of the branch that sizes decide."""
        branch = taken_branch(node)
        return None if branch is None else self._of(branch.outputs[self._value.index])

    def elementwise(self, node: Node) -> Integers | None:
        rows = np.broadcast_arrays(*[self._read(node, slot) for slot in range(len(node.inputs))])
        if rows[0].size > _MOST or (node.op == "Mod" and node.attrs.get("fmod", 0)):
            return None
        bits = _BITS.get(self._value.dtype, 32)
        if self._value.dtype is DataType.BOOL:
            bits = 8  # holds 0 and 1
        results = [
            elementwise(self._scope, node.op, row, bits=bits)
            for row in zip(*map(_listed, rows), strict=True)
        ]
        return _array(results, rows[0].shape)

    def cast(self, node: Node) -> Integers | None:
        source, value = node.input(0), self._value
        array = self._of(source)
        if array is None and source is not None and source.dtype in _FLOATS:
            array = _constant(source, "f")
        if array is None or value.dtype not in _BITS:
            return None
        elements = _listed(array)
        if value.dtype is DataType.BOOL and (source is None or source.dtype is not DataType.BOOL):
            elements = [int(x != 0) if isinstance(x, int) else None for x in elements]
        elif value.dtype is not DataType.INT64:
            elements = [None if isinstance(x, int) and not _fits(x) else x for x in elements]
        return _array(elements, array.shape)

    def reshaped(self, node: Node) -> Integers | None:
        shape = self._value.shape
        if shape is None:
            return None
        return self._read(node, 0).reshape([dim if isinstance(dim, int) else -1 for dim in shape])

    def identity(self, node: Node) -> Integers | None:
        return self._read(node, 0)

    def transposed(self, node: Node) -> Integers | None:
        return self._read(node, 0).transpose(node.attrs.get("perm"))

    def concatenated(self, node: Node) -> Integers | None:
        arrays = [self._read(node, slot) for slot in range(len(node.inputs))]
        return np.concatenate(arrays, node.attrs.get("axis", 0))

    def expanded(self, node: Node) -> Integers | None:
        array = self._read(node, 0)
        shape = np.broadcast_shapes(array.shape, _numbers(self._vector(node.input(1))))
        return np.broadcast_to(array, shape)

    def tiled(self, node: Node) -> Integers | None:
        array, repeats = self._read(node, 0), _numbers(self._vector(node.input(1)))
        return np.tile(array, repeats) if math.prod(repeats) * array.size <= _MOST else None

    def gathered(self, node: Node) -> Integers | None:
        array, indices, axis = self._read(node, 0), self._read(node, 1), node.attrs.get("axis", 0)
        count = array.shape[axis]
        # an unknown index takes from behind the end, where nothing is known
        more = np.full_like(np.take(array, [0] * min(count, 1), axis), None)
        places = [
            i % count if isinstance(i, int) and -count <= i < count else count
            for i in _listed(indices)
        ]
        wanted = np.array(places, np.int64).reshape(indices.shape)
        return np.asarray(np.take(np.append(array, more, axis), wanted, axis), object)

    def split(self, node: Node) -> Integers | None:
        sizes = _numbers(node.attrs.get("split") or self._vector(node.input(1)))
        ends, axis = np.cumsum(sizes)[:-1], node.attrs.get("axis", 0)
        return np.split(self._read(node, 0), ends, axis)[self._value.index]

    def sliced(self, node: Node) -> Integers | None:
        array, cuts = self._read(node, 0), cuts_of(node, self._vector)
        if cuts is None:
            return None
        parts = [slice(None)] * array.ndim
        for cut in cuts:
            if not all(isinstance(entry, int) for entry in cut):
                return None
            start, end, axis, step = cut
            if step < 0 and not -array.shape[axis] <= start < array.shape[axis]:
                return None  # runtimes differ
            parts[axis] = slice(start, None if step < 0 and end <= -END else end, step)
        return array[tuple(parts)]

    def filled(self, node: Node) -> Integers | None:
        shape, filler = _numbers(self._vector(node.input(0))), node.attrs.get("value")
        if math.prod(shape) > _MOST or not isinstance(filler, np.ndarray):
            return None
        element = cast("np.ndarray[Any, Any]", filler)
        return np.full(shape, int(element.item()), object) if element.dtype.kind in "ib" else None

    def ranged(self, node: Node) -> Integers | None:
        ends = [_numbers(self._vector(node.input(slot)), least=None) for slot in range(3)]
        elements = range(*[end for (end,) in ends])
        return _array(list(elements[: _MOST + 1]))  # too many are dropped

    def multiplied(self, node: Node) -> Integers | None:
        """Return the product of all elements, None if axes may be empty."""
        if (node.graph.model.opset() or 0) >= _AXES_AS_INPUT:
            if node.input(1) is not None or node.attrs.get("noop_with_empty_axes", 0):
                return None
        elif list(node.attrs.get("axes") or [0]) not in ([0], [-1]):
            return None
        array, value = self._read(node, 0), self._value
        if array.ndim > 1 or value.rank not in (0, 1) or value.dtype is not DataType.INT64:
            return None
        return _array([product(self._scope, _listed(array))], (1,) * value.rank)


_FUNCTIONS: Mapping[str, Callable[[_Walk, Node], Integers | None]] = MappingProxyType(
    {
        "Cast": _Walk.cast,
        "CastLike": _Walk.cast,
        "Concat": _Walk.concatenated,
        "ConstantOfShape": _Walk.filled,
        "Expand": _Walk.expanded,
        "Flatten": _Walk.reshaped,
        "Gather": _Walk.gathered,
        "Identity": _Walk.identity,
        "If": _Walk.chosen,
        "Range": _Walk.ranged,
        "ReduceProd": _Walk.multiplied,
        "Reshape": _Walk.reshaped,
        "Slice": _Walk.sliced,
        "Split": _Walk.split,
        "Squeeze": _Walk.reshaped,
        "Tile": _Walk.tiled,
        "Transpose": _Walk.transposed,
        "Unsqueeze": _Walk.reshaped,
    }
)


def taken_branch(node: Node) -> Graph | None:
    """Return the branch that an ``If`` takes in every run, where its condition is computed."""
    condition = node.input(0)
    test = None if condition is None else condition.elements
    if node.op != "If" or not test or len(test) != 1 or not isinstance(test[0], int):
        return None
    names = [entry.name for entry in node.proto.attribute if entry.type in GRAPH_KINDS]
    branch_name = "then_branch" if test[0] else "else_branch"
    if branch_name not in names or len(names) != len(node.bodies):
        return None
    branch = node.bodies[names.index(branch_name)]
    return branch if len(branch.outputs) >= len(node.outputs) else None


def _listed(array: Integers) -> list[Dim]:
    return array.ravel().tolist()


def _array(elements: Sequence[Dim], shape: tuple[int, ...] | None = None) -> Integers:
    array = np.fromiter(elements, object, len(elements))
    return array if shape is None else array.reshape(shape)


def _numbers(sizes: Sequence[Any] | None, *, least: int | None = 0) -> tuple[int, ...]:
    """Return sizes, a ``ValueError`` if one is no number, or under ``least``."""
    if sizes is None or not all(
        isinstance(size, int) and (least is None or size >= least) for size in sizes
    ):
        raise ValueError
    return tuple(sizes)


def cuts_of(
    node: Node, read: Callable[[Value | None], Sequence[Dim] | None]
) -> list[tuple[Any, ...]] | None:
    """Return the start, end, axis and step of each cut of a ``Slice``.

    None if they are unknown, or are not equally many, which ONNX's inference lets pass.
    """
    columns: list[Sequence[Any]] = []
    for slot, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        value = node.input(slot)
        column = node.attrs.get(name) if value is None else read(value)
        if column is None and (slot < 3 or value is not None):
            return None
        if column is None:
            column = range(len(columns[0])) if slot == 3 else [1] * len(columns[0])
        columns.append(column)
    return list(zip(*columns, strict=True)) if len(set(map(len, columns))) == 1 else None


def _constant(value: Value, kinds: str) -> Integers | None:
    """Return the elements of a small constant, if whole numbers.

    Args:
        value: any value.
        kinds: numpy's letters of the element types to read.
    """
    value_type = value.type
    if (
        not value.is_constant
        or not isinstance(value_type, TensorType)
        or value_type.shape is None
        or (value_type.size or 0) > _MOST
    ):
        return None
    array = value.array
    if array is None or array.size > _MOST or array.dtype.kind not in kinds:
        return None
    if kinds == "f" and not all(float(x).is_integer() and abs(x) < _EXACT for x in array.flat):
        return None
    return (array if array.dtype == np.int64 else array.astype(np.int64)).astype(object)


def _fits(number: int) -> bool:
    """Whether 32 bits hold a number."""
    return -(1 << 31) <= number < 1 << 31
