"""Instructions that move elements: broadcast, reshape, bitcast, transpose, slice, reverse,
concatenate, pad, iota.
"""

from __future__ import annotations

from gehost import Refused
from gehost_hlo.attributes import dimension, dimensions, integer, padding, slices
from gehost_hlo.context import Context, Translator, array_shape
from gehost_hlo.emit import Tensor, Value
from gehost_hlo.module import HloInstruction, Shape
from gehost_hlo.translate.bits import reinterpret
from gehost_hlo.translate.elementwise import tensors


def _broadcast(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    shape, axes = array_shape(i.shape), dimensions(i)
    is_valid = len(set(axes)) == len(axes) == x.rank and all(
        0 <= axis < shape.rank for axis in axes
    )
    if not is_valid or any(
        size != shape.dimensions[axis] for size, axis in zip(x.dims, axes, strict=True)
    ):
        raise Refused(
            "invalid",
            f"{list(x.dims)} cannot be broadcast to {list(shape.dimensions)} by "
            f"dimensions={{{','.join(map(str, axes))}}}",
        )
    return c.broadcast(x, shape.dimensions, axes)


def _reshape(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    shape = array_shape(i.shape)
    if x.size != shape.size:
        raise Refused(
            "invalid",
            f"{list(x.dims)} has {x.size} elements, {list(shape.dimensions)} has {shape.size}",
        )
    return c.reshape(x, shape.dimensions)


def _bitcast(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Return the same elements in memory.

    In both shapes they are taken in the order of the layouts.
    """
    (x,) = tensors(args, 1)
    shape = array_shape(i.shape)
    operand = i.operands[0]
    definition = operand.instruction or c.defined[operand.name]
    source = definition.shape or operand.shape or Shape(x.type, x.dims)
    if x.size != shape.size:
        raise Refused(
            "invalid",
            f"{list(x.dims)} has {x.size} elements, {list(shape.dimensions)} has {shape.size}",
        )
    before, after = _major_to_minor(source), _major_to_minor(shape)
    physical = c.transpose(reinterpret(c, x, shape.type), before)
    moved = c.reshape(physical, [shape.dimensions[axis] for axis in after])
    return c.transpose(moved, [after.index(axis) for axis in range(shape.rank)])


def _major_to_minor(shape: Shape) -> list[int]:
    if shape.layout is None or len(shape.layout.minor_to_major) != shape.rank:
        return list(range(shape.rank))
    return list(shape.layout.minor_to_major[::-1])


def move_scalar(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Translate a move inside a computation of single elements: a scalar stays in place."""
    (x,) = tensors(args, 1)
    shape = array_shape(i.shape)
    if shape.dimensions:
        raise Refused("unsupported", f"{i.opcode} to {shape} where single elements are computed")
    return reinterpret(c, x, shape.type)


def _transpose(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    permutation = dimensions(i)
    if sorted(permutation) != list(range(x.rank)):
        raise Refused(
            "invalid",
            f"dimensions={{{','.join(map(str, permutation))}}} is no permutation of {x.rank} "
            "dimensions",
        )
    return c.transpose(x, permutation)


def _slice(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    rows = slices(i)
    if len(rows) != x.rank or any(
        not 0 <= start <= limit <= size or stride < 1
        for (start, limit, stride), size in zip(rows, x.dims, strict=True)
    ):
        raise Refused("invalid", f"its slice does not fit {list(x.dims)}")
    return c.slice(x, rows)


def _reverse(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    (x,) = tensors(args, 1)
    axes = dimensions(i)
    if any(not 0 <= axis < x.rank for axis in axes):
        raise Refused("invalid", f"it reverses dimensions {axes} of {x.rank}")
    return c.reverse(x, axes)


def _concatenate(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    parts = tensors(args, max(1, len(args)))
    axis = dimension(i, parts[0].rank)
    if any(
        _but(part, axis) != _but(parts[0], axis) or part.type != parts[0].type for part in parts
    ):
        raise Refused("invalid", "its operands differ in more than the size along its dimension")
    return c.concat(parts, axis)


def _but(tensor: Tensor, axis: int) -> tuple[int, ...]:
    return tensor.dims[:axis] + tensor.dims[axis + 1 :]


def _pad(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    x, value = tensors(args, 2)
    rows = padding(i)
    if len(rows) != x.rank or value.dims != () or value.type != x.type:
        raise Refused("invalid", f"its padding or value does not fit {x.type}{list(x.dims)}")
    return c.pad(x, value, rows)


def _iota(c: Context, i: HloInstruction, _args: list[Value]) -> Value:
    shape = array_shape(i.shape)
    axis = integer(i, "iota_dimension")
    if not 0 <= axis < shape.rank:
        raise Refused("invalid", f"it has no dimension {axis}")
    return c.iota(shape.dimensions, axis, shape.type)


TABLE: dict[str, Translator] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "pad": _pad,
    "iota": _iota,
}

SCALAR_TABLE: dict[str, Translator] = dict.fromkeys(
    ("broadcast", "reshape", "bitcast", "transpose", "reverse"), move_scalar
)
"""Moves where a computation is applied to single elements."""
