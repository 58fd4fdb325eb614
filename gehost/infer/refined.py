"""Refine inferred types by computed shapes and by arithmetic on named sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import onnx

from gehost.ir.attributes import attribute_value
from gehost.ir.graph import Node, Value
from gehost.ir.integers import cuts_of
from gehost.ir.types import DataType, TensorType, ValueType, more_specific
from gehost.ir.types import Dim as Text
from gehost.sizes import Dim, Scope, lengths

_Shape: TypeAlias = Sequence[Dim]

REFINED = frozenset(
    {"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Resize", "Slice", "Tile"}
)
"""Operators whose result may depend on computed elements that ONNX's inference does not know."""
_AXES = frozenset(
    {
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Split", "Squeeze", "TopK",
        "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose result depends on integers, which are constants nearly always."""
MAY_READ_ELEMENTS = REFINED | _AXES
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_WINDOWS = _POOLS | {"Conv", "ConvTranspose"}
_EXACT = 1 << 24
"""Integers below it are exact in float32."""
_BROADCAST = frozenset(
    {
        "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow",
        "Sub", "Sum", "Where", "Xor",
    }
)  # fmt: skip
_SIZED = _BROADCAST | _WINDOWS | {"Concat", "Flatten"}


def refine(
    node: Node, types: Sequence[ValueType | None], inferred: ValueType | None
) -> ValueType | None:
    """Refine output 0's type, which is not complete, by elements computed from shapes."""
    scope = node.graph.model.sizes
    source = types[0] if types else None
    shape = _by_elements(scope, node, _parsed(scope, source))
    if isinstance(inferred, TensorType):
        dtype = inferred.dtype
    elif node.op == "ConstantOfShape":
        dtype = DataType.FLOAT if "value" not in node.attrs else DataType.UNDEFINED
    else:
        dtype = source.dtype if isinstance(source, TensorType) else DataType.UNDEFINED
    if shape is None or not dtype:
        return inferred
    return merge_types(inferred, TensorType(dtype, _written(shape)))


def reads_elements(node: Node) -> bool:
    """Whether more than types and constants may decide a node's result."""
    return node.op in REFINED or (
        node.op in _AXES and any(v is not None and not v.is_constant for v in node.inputs[1:])
    )


def computed_numbers(value: Value | None) -> np.ndarray[Any, Any] | None:
    """Return the elements of an integer tensor that is no constant, if all are numbers."""
    if value is None or value.is_constant or value.dtype is not DataType.INT64:
        return None
    array = value.graph.model.integers.of(value)
    if array is None or not all(isinstance(element, int) for element in array.flat):
        return None
    return array.astype(np.int64)


def refine_sizes(
    scope: Scope,
    op: str,
    proto: onnx.NodeProto,
    types: Sequence[ValueType | None],
    declared: Sequence[ValueType | None],
) -> Sequence[ValueType | None]:
    """Refine an ONNX node's inferred types by sums and products of names."""
    result = declared[0] if declared else None
    if (
        op not in _SIZED
        or not isinstance(result, TensorType)
        or result.shape is None
        or None not in result.shape
    ):
        return declared
    shapes: list[_Shape] = []
    for value_type in types:
        shape = _parsed(scope, value_type)
        if shape is None:
            return declared
        shapes.append(shape)
    sizes = _by_sizes(scope, op, proto, shapes, len(result.shape))
    if sizes is None:
        return declared
    refined = TensorType(DataType.UNDEFINED, _written(sizes))
    return [merge_types(result, refined), *declared[1:]]


def merge_types(first: ValueType | None, second: ValueType | None) -> ValueType | None:
    """Merge two statements about one type; if they contradict, ``first`` wins.

    A number wins over a name.
    """
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return first if first is not None else second
    shape = first.shape
    if shape is None:
        shape = second.shape
    elif second.shape is not None and len(shape) == len(second.shape):
        shape = tuple([more_specific(a, b) for a, b in zip(shape, second.shape, strict=True)])
    return TensorType(first.dtype or second.dtype, shape)


def is_complete(value_type: ValueType | None) -> bool:
    """Whether a tensor's dtype and each size (number or name) are known."""
    return (
        isinstance(value_type, TensorType)
        and bool(value_type.dtype)
        and value_type.shape is not None
        and None not in value_type.shape
    )


def _parsed(scope: Scope, value_type: ValueType | None) -> list[Dim] | None:
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return None
    return scope.parse_all(value_type.shape)


def _written(shape: _Shape) -> tuple[Text, ...]:
    return tuple([dim if dim is None or isinstance(dim, int) else str(dim) for dim in shape])


# by elements


def _by_elements(scope: Scope, node: Node, source: list[Dim] | None) -> _Shape | None:
    """Return a result's dimensions, as elements of its inputs decide them."""
    if node.op == "Range":
        return [_ranged(scope, [_bound(node.input(slot)) for slot in range(3)])]
    if node.op == "Slice":
        return None if source is None else _sliced(scope, node, source)
    if node.op == "Resize":
        return _resized(scope, node, source)
    if node.op == "Pad":
        return None if source is None else _padded(scope, node, source)
    target = _elements(node.input(0 if node.op == "ConstantOfShape" else 1))
    if target is None:
        return None
    if node.op == "Reshape":
        allow_zero = bool(node.attrs.get("allowzero", 0))
        return lengths.reshaped(scope, target, source, allow_zero=allow_zero)
    if node.op == "Tile":
        if source is None or len(source) != len(target):
            return None
        products = [lengths.product(scope, pair) for pair in zip(source, target, strict=True)]
        return [lengths.size_or_none(scope, size) for size in products]
    sizes = [lengths.size_or_none(scope, dim) for dim in target]
    if node.op == "ConstantOfShape":
        return sizes
    return None if source is None else lengths.broadcast(scope, [source, sizes])


def _bound(value: Value | None) -> Dim | float:
    """Return a bound of a ``Range``: a size, or a float that is constant or cast from a number."""
    elements = _elements(value)
    if elements is not None and len(elements) == 1:
        return elements[0]
    if value is None or value.dtype not in (DataType.FLOAT, DataType.DOUBLE):
        return None
    if value.is_constant and value.array is not None and value.array.size == 1:
        return float(value.array.reshape(()))
    node = value.producer
    source = _elements(node.input(0)) if node is not None and node.op == "Cast" else None
    number = source[0] if source is not None and len(source) == 1 else None
    return float(number) if isinstance(number, int) and abs(number) < _EXACT else None


def _ranged(scope: Scope, bounds: Sequence[Dim | float]) -> Dim:
    """Return the number of elements of a ``Range``."""
    sizes = [bound for bound in bounds if not isinstance(bound, float)]
    if len(sizes) == len(bounds):
        start, limit, delta = sizes
        return lengths.counted(scope, start, limit, delta)
    numbers = [bound for bound in bounds if isinstance(bound, float)]
    if len(numbers) < len(bounds) or not numbers[2] or not all(map(math.isfinite, numbers)):
        return None
    begin, end, step = map(Fraction, numbers)
    count = (end - begin) / step
    # runtimes round sums to float32 or float64
    is_exact = all(abs(8 * x) < _EXACT and (8 * x).denominator == 1 for x in (begin, end, step))
    return max(0, math.ceil(count)) if is_exact and (8 * count).denominator == 1 else None


def _resized(scope: Scope, node: Node, source: list[Dim] | None) -> _Shape | None:
    """Return the sizes that a ``Resize`` states for all axes, or makes with whole scales."""
    if node.attrs.get("axes") is not None:
        return None
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch":
        sizes = _elements(node.input(3))
        if sizes is not None:
            return sizes
    scales = node.input(2) if len(node.inputs) > 2 else node.input(1)
    array = None if scales is None or not scales.is_constant else scales.array
    is_crop = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if array is None or source is None or array.size != len(source) or is_crop:
        return None
    return [
        lengths.product(scope, [size, int(scale)]) if float(scale).is_integer() else None
        for size, scale in zip(source, array.ravel().tolist(), strict=True)
    ]


def _padded(scope: Scope, node: Node, source: list[Dim]) -> _Shape | None:
    """Return a ``Pad``'s dimensions; a negative pad takes away."""
    pads = node.attrs.get("pads")
    around: Sequence[Dim] | None = _elements(node.input(1)) if pads is None else pads
    axes: Sequence[Dim] | None = range(len(source))
    if node.input(3) is not None:
        axes = _elements(node.input(3))
    if not isinstance(around, Sequence) or axes is None or len(around) != 2 * len(axes):
        return None
    dims = list(source)
    for axis, before, after in zip(axes, around, around[len(axes) :], strict=False):
        if not isinstance(axis, int) or not -len(dims) <= axis < len(dims):
            return None
        dims[axis] = lengths.size_or_none(scope, lengths.total(scope, [dims[axis], before, after]))
    return dims


def _elements(value: Value | None) -> tuple[Dim, ...] | None:
    return None if value is None else value.graph.model.integers.vector(value)


def _sliced(scope: Scope, node: Node, source: list[Dim]) -> _Shape | None:
    """Return a ``Slice``'s dimensions."""
    cuts = cuts_of(node, _elements)
    if cuts is None:
        return None
    dims = list(source)
    for start, end, axis, step in cuts:
        if not isinstance(axis, int) or not -len(dims) <= axis < len(dims):
            return None
        dims[axis] = lengths.part(scope, dims[axis], start, end, step)
    return dims


# by sizes


def _by_sizes(
    scope: Scope, op: str, proto: onnx.NodeProto, shapes: Sequence[_Shape], rank: int
) -> _Shape | None:
    """Return a result's dimensions."""
    if op == "Flatten":
        axis = _integer(proto, "axis", 1)
        if not -len(shapes[0]) <= axis <= len(shapes[0]):
            return None
        return [lengths.product(scope, part) for part in (shapes[0][:axis], shapes[0][axis:])]
    if op == "Concat":
        axis = _integer(proto, "axis", 0)
        if not -rank <= axis < rank or any(len(shape) != rank for shape in shapes):
            return None
        dims: list[Dim] = [None] * rank
        dims[axis] = lengths.total(scope, [shape[axis] for shape in shapes])
        return dims
    if op in _WINDOWS:
        return _windows(scope, op, proto, shapes)
    return lengths.broadcast(scope, shapes)


def _windows(
    scope: Scope, op: str, proto: onnx.NodeProto, shapes: Sequence[_Shape]
) -> _Shape | None:
    """Return the dimensions of a convolution or pooling; None for those in doubt.

    Measured: ONNX Runtime and the reference have these lengths in every run that does not fail.
    """
    attributes = {entry.name: attribute_value(entry) for entry in proto.attribute}
    count, auto = len(shapes[0]) - 2, attributes.get("auto_pad", "NOTSET")
    weights = () if op in _POOLS else shapes[1][2:]
    kernel: Sequence[Dim] = attributes.get("kernel_shape") or weights
    dilations, strides = (attributes.get(name) or [1] * count for name in ("dilations", "strides"))
    pads = (attributes.get("pads") if auto == "NOTSET" else None) or [0] * (2 * count)
    more = attributes.get("output_padding") or [0] * count
    fields = (kernel, dilations, strides, more, pads)
    if not all(isinstance(numbers, Sequence) for numbers in fields) or [*map(len, fields)] != [
        count
    ] * 4 + [2 * count]:
        return None
    if attributes.get("ceil_mode") or (
        op in _POOLS and auto != "NOTSET" and (auto == "SAME_LOWER" or {*dilations} != {1})
    ):
        return None
    if op == "MaxPool" and any(pads) and {*dilations, *strides} == {1}:
        return None  # the reference pads in another order, or not at all
    result: list[Dim] = [None, None]
    for axis, size in enumerate(shapes[0][2:]):
        width, step = kernel[axis], strides[axis]
        if size is None or not isinstance(width, int) or step < 1:
            result.append(None)
            continue
        extent, around = dilations[axis] * (width - 1) + 1, pads[axis] + pads[count + axis]
        if op == "ConvTranspose":
            is_stated = auto == "NOTSET" and not attributes.get("output_shape")
            length = scope.add(scope.mul(scope.sub(size, 1), step), more[axis] + extent - around)
            result.append(scope.max(0, length) if is_stated else None)
        elif auto in ("SAME_LOWER", "SAME_UPPER"):
            result.append(scope.ceildiv(size, step))
        else:
            room = around - extent
            result.append(lengths.windows(scope, size, room, step, truncates=op in _POOLS))
    return result


def _integer(proto: onnx.NodeProto, name: str, default: int) -> int:
    return next((entry.i for entry in proto.attribute if entry.name == name), default)
