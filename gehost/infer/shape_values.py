"""Refine inferred types by computed shapes and arithmetic on named sizes.

The arithmetic is sums, products and slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

import onnx

from gehost.ir.elements import Elements
from gehost.ir.graph import Node, Value
from gehost.ir.sizes import (
    is_positive,
    is_size,
    least,
    minus,
    or_another,
    or_copied,
    plus,
    product,
    quotient,
    settled_by,
    times,
    vanishes_with,
)
from gehost.ir.types import DataType, Dim, TensorType, ValueType, more_specific

_Shape: TypeAlias = tuple[Dim, ...]

REFINED = frozenset({"ConstantOfShape", "Expand", "Range", "Reshape", "Slice", "Tile"})
"""Operators whose result may depend on computed elements that ONNX's inference does not know."""
_BROADCAST = frozenset(
    {
        "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow",
        "Sub", "Sum", "Where", "Xor",
    }
)  # fmt: skip
_END = (1 << 31) - 1
"""From here on, an end means the end of the axis; no axis is longer."""


def refine(
    node: Node, types: Sequence[ValueType | None], inferred: ValueType | None
) -> ValueType | None:
    """Refine output 0's type from inputs' elements computed from shapes."""
    if node.op not in REFINED or is_complete(inferred):
        return inferred
    source = types[0] if types else None
    shape = _by_elements(node, source.shape if isinstance(source, TensorType) else None)
    if isinstance(inferred, TensorType):
        dtype = inferred.dtype
    elif node.op == "ConstantOfShape":
        dtype = DataType.FLOAT if "value" not in node.attrs else DataType.UNDEFINED
    else:
        dtype = source.dtype if isinstance(source, TensorType) else DataType.UNDEFINED
    if shape is None or not dtype:
        return inferred
    return merge_types(inferred, TensorType(dtype, shape))


def refine_sizes(
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
        if not isinstance(known, TensorType) or known.shape is None:
            return stated
        shapes.append(known.shape)
    found = _by_sizes(op, proto, shapes, result.shape)
    return [TensorType(result.dtype, found), *stated[1:]]


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


# by elements


def _by_elements(node: Node, source: _Shape | None) -> _Shape | None:
    """Return a result's dimensions, as given by elements of its inputs."""
    if node.op == "Range":
        parts = [_elements(node.input(slot)) for slot in range(3)]
        start, limit, step = (
            part[0] if part is not None and len(part) == 1 else None for part in parts
        )
        return (_nonnegative(minus(limit, start)),) if step == 1 else None
    if node.op == "Slice":
        return None if source is None else _sliced(node, source)
    wanted = _elements(node.input(0 if node.op == "ConstantOfShape" else 1))
    if wanted is None:
        return None
    if node.op == "Reshape":
        return reshaped(wanted, source, allow_zero=bool(node.attrs.get("allowzero", 0)))
    if node.op == "Tile":
        if source is None or len(source) != len(wanted):
            return None
        return tuple([_nonnegative(times(a, b)) for a, b in zip(source, wanted, strict=True)])
    sizes = tuple([_nonnegative(dim) for dim in wanted])
    if node.op == "ConstantOfShape":
        return sizes
    if source is None:
        return None
    pairs = zip_longest(reversed(source), reversed(sizes), fillvalue=1)
    return tuple([_broadcast(a, b) for a, b in pairs][::-1])


def _elements(value: Value | None) -> Elements | None:
    return None if value is None else value.elements


def _nonnegative(dim: Dim) -> Dim:
    """Return a size; None if it may be negative.

    With a negative one the node would fail.
    """
    return dim if is_size(dim) else None


def reshaped(wanted: Elements, source: _Shape | None, *, allow_zero: bool) -> _Shape:
    """Return the result of ``Reshape`` to a target.

    It holds for every run in which it does not fail.
    """
    copied: list[Dim] = [
        # after the last one there is none to copy: a 0 fails
        None if source is None else source[place] if place < len(source) else entry or None
        for place, entry in enumerate(wanted)
    ]
    dims = [
        -1 if dim == -1 else dim if allow_zero else or_copied(dim, old)
        for dim, old in zip(wanted, copied, strict=True)
    ]
    if not allow_zero:
        dims = _without_copies(dims, wanted, source)
    if -1 in dims and dims.count(-1) == 1:
        place = dims.index(-1)
        rest = [*dims[:place], *dims[place + 1 :]]
        dims[place] = _left_over(source, rest, allow_zero=allow_zero)
    return tuple([_nonnegative(dim) for dim in dims])


def _without_copies(dims: list[Dim], wanted: Elements, source: _Shape | None) -> list[Dim]:
    """Use the entry, not the copied size, if it cannot be 0.

    If it were 0, the tensor would be empty; but the result, whose other sizes are not 0, would not
    be empty, so the node would fail.
    """
    doubtful = [
        place
        for place, (dim, entry) in enumerate(zip(dims, wanted, strict=True))
        if entry not in (dim, 0)
    ]
    if len(doubtful) != 1 or source is None:
        return dims
    (place,) = doubtful
    entry = wanted[place]
    others = [*dims[:place], *dims[place + 1 :]]
    if all(map(is_positive, others)) and any(vanishes_with(size, entry) for size in source):
        return [*dims[:place], entry, *dims[place + 1 :]]
    return dims


def _left_over(source: _Shape | None, rest: Sequence[Dim], *, allow_zero: bool) -> Dim:
    """Return the size of -1: the elements that the others leave.

    The divisor is not 0 if the node does not fail.

    With allowzero the other dimensions may have a 0: ONNX Runtime then leaves the zeros out of both
    products, so that ``[0, 0]`` by ``[-1, 0]`` is ``[1, 0]``.
    """
    if source is None or None in rest:
        return None
    left = list(source)
    over: list[Dim] = []
    for dim in rest:  # sizes that stay cancel out, even if unknown
        if isinstance(dim, str) and dim in left:
            left.remove(dim)
        else:
            over.append(dim)
    if None in left:
        return None
    total, part = product(left), product(over)
    size: Dim
    if isinstance(total, int) and isinstance(part, int):
        size = total // part if part > 0 and total % part == 0 else None
    else:
        size = quotient(total, part)
    if not allow_zero or all(map(is_positive, rest)):
        return size
    if not is_positive(part):
        return None
    return size if is_positive(total) else or_another(size, len(source), *source, *rest)


def _broadcast(left: Dim, right: Dim) -> Dim:
    if left == 1:
        return right
    if right in (1, left):
        return left
    if isinstance(left, int):
        return left
    if isinstance(right, int):
        return right
    return settled_by(left, right)


def _sliced(node: Node, source: _Shape) -> _Shape | None:
    """Return a ``Slice``'s dimensions, None where a step is not 1."""
    given: list[Sequence[Dim] | None] = []
    for slot, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        if node.input(slot) is not None:
            given.append(_elements(node.input(slot)))
        else:
            given.append(node.attrs.get(name))
    starts, ends, axes, steps = given
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
    dims: list[Dim] = list(source)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(axis, int) or not -len(dims) <= axis < len(dims):
            return None
        dims[axis] = _part_length(dims[axis], start, end) if step == 1 else None
    return tuple(dims)


def _part_length(size: Dim, start: Dim, end: Dim) -> Dim:
    """Return the length of an axis's part from ``start`` to ``end``."""
    if size is None or start is None or end is None:
        return None
    if isinstance(end, int) and end < 0:  # counts from the end of the axis
        end = minus(size, -end)
    if isinstance(start, int) and start < 0:
        start = minus(size, -start)
    if not is_size(start) or not is_size(end):
        return None
    end = size if isinstance(end, int) and end >= _END else least(size, end)
    length = end if start == 0 else minus(end, start)
    return length if is_size(length) else None


# by sizes


def _by_sizes(
    op: str, proto: onnx.NodeProto, shapes: Sequence[_Shape], result: _Shape
) -> tuple[Dim, ...]:
    """Return a result's dimensions, computing those that inference left open."""
    if op == "Flatten":
        axis = _integer(proto, "axis", 1)
        if not -len(shapes[0]) <= axis <= len(shapes[0]):
            return result
        parts = product(shapes[0][:axis]), product(shapes[0][axis:])
        return tuple([a if a is not None else b for a, b in zip(result, parts, strict=True)])
    rank = len(result)
    if op == "Concat":
        axis = _integer(proto, "axis", 0)
        if not -rank <= axis < rank or any(len(shape) != rank for shape in shapes):
            return result
        total: Dim = 0
        for shape in shapes:
            total = plus(total, shape[axis])
        dims = list(result)
        dims[axis] = more_specific(dims[axis], total)
        return tuple(dims)
    dims = list(result)
    for place, dim in enumerate(result):
        if dim is None:
            read = [shape[place - rank] for shape in shapes if len(shape) >= rank - place]
            found: Dim = 1
            for size in read:
                found = None if found is None or size is None else _broadcast(found, size)
            dims[place] = found
    return tuple(dims)


_SIZED = _BROADCAST | {"Concat", "Flatten"}


def _integer(proto: onnx.NodeProto, name: str, default: int) -> int:
    return next((entry.i for entry in proto.attribute if entry.name == name), default)
