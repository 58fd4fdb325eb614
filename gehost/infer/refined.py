"""Refine inferred types by computed shapes and by arithmetic on named sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx

from gehost.ir.graph import Node, Value
from gehost.ir.types import DataType, TensorType, ValueType, more_specific
from gehost.ir.types import Dim as Text
from gehost.sizes import Dim, Scope, lengths

_Shape: TypeAlias = Sequence[Dim]

REFINED = frozenset({"ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "Tile"})
"""Operators whose result may depend on computed elements that ONNX's inference does not know."""
_BROADCAST = frozenset(
    {
        "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow",
        "Sub", "Sum", "Where", "Xor",
    }
)  # fmt: skip
_SIZED = _BROADCAST | {"Concat", "Flatten"}


def refine(
    node: Node, types: Sequence[ValueType | None], inferred: ValueType | None
) -> ValueType | None:
    """Refine output 0's type from inputs' elements computed from shapes."""
    if node.op not in REFINED or is_complete(inferred):
        return inferred
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


def refine_sizes(
    scope: Scope,
    op: str,
    proto: onnx.NodeProto,
    types: Sequence[ValueType | None],
    stated: Sequence[ValueType | None],
) -> Sequence[ValueType | None]:
    """Refine an ONNX node's inferred types by sums and products of names."""
    result = stated[0] if stated else None
    if (
        op not in _SIZED
        or not isinstance(result, TensorType)
        or result.shape is None
        or None not in result.shape
    ):
        return stated
    shapes: list[_Shape] = []
    for known in types:
        shape = _parsed(scope, known)
        if shape is None:
            return stated
        shapes.append(shape)
    sizes = _by_sizes(scope, op, proto, shapes, len(result.shape))
    if sizes is None:
        return stated
    refined = TensorType(DataType.UNDEFINED, _written(sizes))
    return [merge_types(result, refined), *stated[1:]]


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


def is_complete(known: ValueType | None) -> bool:
    """Whether a tensor's dtype and each size (number or name) are known."""
    return (
        isinstance(known, TensorType)
        and bool(known.dtype)
        and known.shape is not None
        and None not in known.shape
    )


def _parsed(scope: Scope, known: ValueType | None) -> list[Dim] | None:
    if not isinstance(known, TensorType) or known.shape is None:
        return None
    return scope.parse_all(known.shape)


def _written(shape: _Shape) -> tuple[Text, ...]:
    return tuple([dim if dim is None or isinstance(dim, int) else str(dim) for dim in shape])


# by elements


def _by_elements(scope: Scope, node: Node, source: list[Dim] | None) -> _Shape | None:
    """Return a result's dimensions, as elements of its inputs decide them."""
    if node.op == "Range":
        bounds = [_elements(node.input(slot)) for slot in range(3)]
        start, limit, delta = [
            bound[0] if bound is not None and len(bound) == 1 else None for bound in bounds
        ]
        return [lengths.counted(scope, start, limit, delta)]
    if node.op == "Slice":
        return None if source is None else _sliced(scope, node, source)
    if node.op == "Resize":
        return _resized(node)
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


def _resized(node: Node) -> _Shape | None:
    """Return the sizes that a ``Resize`` is given for all axes."""
    stretched = node.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    whole = node.attrs.get("axes") is None
    return _elements(node.input(3)) if stretched and whole else None


def _elements(value: Value | None) -> tuple[Dim, ...] | None:
    return None if value is None else value.graph.model.integers.vector(value)


def _sliced(scope: Scope, node: Node, source: list[Dim]) -> _Shape | None:
    """Return a ``Slice``'s dimensions."""
    bounds: list[Sequence[Dim] | None] = []
    for slot, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        if node.input(slot) is not None:
            bounds.append(_elements(node.input(slot)))
        else:
            bounds.append(node.attrs.get(name))
    starts, ends, axes, steps = bounds
    if starts is None or ends is None or len(starts) != len(ends):
        return None
    if axes is None:
        if node.input(3) is not None:
            return None
        axes = range(len(starts))
    if steps is None:
        if node.input(4) is not None:
            return None
        steps = [1] * len(starts)
    if not len(starts) == len(axes) == len(steps):  # ONNX's inference lets it pass
        return None
    dims = list(source)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
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
    return lengths.broadcast(scope, shapes)


def _integer(proto: onnx.NodeProto, name: str, default: int) -> int:
    return next((entry.i for entry in proto.attribute if entry.name == name), default)
