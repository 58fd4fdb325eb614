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
            shape = _numbers(value.shape)
            if shape is not None and math.prod(shape) <= _MOST:
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

    def elements(self) -> Integers | None:
        value = self._value
        if value.is_constant:
            return _constant(value, "ib")
        node = value.producer
        if node is None:
            return None
        if node.op in ("Shape", "Size"):
            return self._shape(node)
        if node.op in ELEMENTWISE:
            return self._elementwise(node)
        function = _FUNCTIONS.get(node.op)
        if function is None:
            return None
        try:
            return function(self, node)
        except (IndexError, TypeError, ValueError):  # numpy: axes or shapes that do not fit
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

    def _elementwise(self, node: Node) -> Integers | None:
        arrays = [self._of(operand) for operand in node.inputs]
        constants = [array for array in arrays if array is not None]
        if not constants or len(constants) < len(arrays):
            return None
        rows: Sequence[Integers] = constants
        if any(array.shape != rows[0].shape for array in rows):
            try:
                rows = np.broadcast_arrays(*constants)
            except ValueError:
                return None
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
        if value.dtype is DataType.BOOL and (source is None or source.dtype is not DataType.BOOL):
            return _array([_truth(x) for x in _listed(array)], array.shape)
        if value.dtype is DataType.INT64:
            return array
        return _array([_whole(x) if isinstance(x, int) else x for x in _listed(array)], array.shape)

    def reshaped(self, node: Node) -> Integers | None:
        array, shape = self._of(node.input(0)), _numbers(self._value.shape)
        if array is None:
            return None
        if shape is not None:
            return array.reshape(shape)
        rank = self._value.rank
        return array.reshape(-1) if rank == 1 else array.reshape(()) if rank == 0 else None

    def identity(self, node: Node) -> Integers | None:
        return self._of(node.input(0))

    def transposed(self, node: Node) -> Integers | None:
        array = self._of(node.input(0))
        return None if array is None else array.transpose(node.attrs.get("perm"))

    def concatenated(self, node: Node) -> Integers | None:
        arrays = [self._of(part) for part in node.inputs]
        constants = [array for array in arrays if array is not None]
        if len(constants) < len(arrays) or sum(array.size for array in constants) > _MOST:
            return None
        return np.concatenate(constants, node.attrs.get("axis", 0))

    def expanded(self, node: Node) -> Integers | None:
        array, shape = self._of(node.input(0)), _numbers(self._integers_of(node, 1))
        if array is None or shape is None or math.prod(shape) > _MOST:
            return None
        return np.broadcast_to(array, np.broadcast_shapes(array.shape, shape))

    def tiled(self, node: Node) -> Integers | None:
        array, repeats = self._of(node.input(0)), _numbers(self._integers_of(node, 1))
        if array is None or repeats is None or math.prod(repeats) * array.size > _MOST:
            return None
        return np.tile(array, repeats)

    def gathered(self, node: Node) -> Integers | None:
        array, indices = self._of(node.input(0)), self._of(node.input(1))
        if array is None or indices is None or array.ndim == 0:
            return None
        axis = node.attrs.get("axis", 0)
        count = array.shape[axis]
        if array.ndim > 1 or axis not in (0, -1):
            places = [index for index in _listed(indices) if isinstance(index, int)]
            if len(places) < indices.size:
                return None
            return np.take(array, np.array(places, np.int64).reshape(indices.shape), axis)
        inside = range(-count, count)
        results = [
            array[i] if isinstance(i, int) and i in inside else None for i in _listed(indices)
        ]
        return _array(results, indices.shape)

    def split(self, node: Node) -> Integers | None:
        array, parts = self._of(node.input(0)), self._integers_of(node, 1)
        parts = node.attrs.get("split") if parts is None else parts
        sizes = _numbers(parts)
        if array is None or sizes is None:
            return None
        place = list(node.outputs).index(self._value)
        axis = node.attrs.get("axis", 0)
        return np.split(array, np.cumsum(sizes)[:-1], axis)[place]

    def sliced(self, node: Node) -> Integers | None:
        array = self._of(node.input(0))
        names = ("starts", "ends", "axes", "steps")
        bounds: list[Sequence[Any] | None] = [
            node.attrs.get(name) if node.input(slot) is None else self._integers_of(node, slot)
            for slot, name in enumerate(names, 1)
        ]
        if array is None or any(
            bounds[slot - 1] is None and (slot < 3 or node.input(slot) is not None)
            for slot in range(1, 5)
        ):
            return None
        starts, ends = bounds[0] or (), bounds[1] or ()
        axes, steps = bounds[2] or range(len(starts)), bounds[3] or [1] * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps):
            return None
        cut = [slice(None)] * array.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            if not all(isinstance(entry, int) for entry in (start, end, axis, step)):
                return None
            if step < 0 and not -array.shape[axis] <= start < array.shape[axis]:
                return None  # runtimes differ
            cut[axis] = slice(start, None if step < 0 and end <= -END else end, step)
        return array[tuple(cut)]

    def filled(self, node: Node) -> Integers | None:
        shape = _numbers(self._integers_of(node, 0))
        filler = node.attrs.get("value")
        if shape is None or math.prod(shape) > _MOST or not isinstance(filler, np.ndarray):
            return None
        element = cast("np.ndarray[Any, Any]", filler)
        if element.size != 1 or element.dtype.kind not in "ib":
            return None
        return _array([int(element.reshape(-1)[0])] * math.prod(shape), shape)

    def ranged(self, node: Node) -> Integers | None:
        ends = [self._integers_of(node, slot) for slot in range(3)]
        numbers = _numbers([end[0] if end and len(end) == 1 else None for end in ends], least=None)
        if numbers is None or numbers[2] == 0:
            return None
        elements = range(*numbers)
        return _array(list(elements)) if len(elements) <= _MOST else None

    def multiplied(self, node: Node) -> Integers | None:
        """Return the product of all elements, None if axes may be empty."""
        if (node.graph.model.opset() or 0) >= _AXES_AS_INPUT:
            if node.input(1) is not None or node.attrs.get("noop_with_empty_axes", 0):
                return None
        elif list(node.attrs.get("axes") or [0]) not in ([0], [-1]):
            return None
        array, value = self._of(node.input(0)), self._value
        if array is None or array.ndim > 1 or value.rank not in (0, 1):
            return None
        if value.dtype is not DataType.INT64:
            return None
        return _array([product(self._scope, _listed(array))], (1,) * value.rank)

    def _integers_of(self, node: Node, slot: int) -> tuple[Dim, ...] | None:
        """The elements of a vector or scalar that an operator reads."""
        array = self._of(node.input(slot))
        return None if array is None or array.ndim > 1 else tuple(_listed(array))


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


def _numbers(sizes: Sequence[object] | None, *, least: int | None = 0) -> tuple[int, ...] | None:
    """Return sizes that are all numbers, and at least ``least``."""
    if sizes is None:
        return None
    numbers = [size for size in sizes if isinstance(size, int) and (least is None or size >= least)]
    return tuple(numbers) if len(numbers) == len(sizes) else None


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


def _whole(number: int) -> Dim:
    """Return a result that fits 32 bits, else None (overflow)."""
    return number if -(1 << 31) <= number < 1 << 31 else None


def _truth(element: Dim) -> Dim:
    return int(element != 0) if isinstance(element, int) else None
