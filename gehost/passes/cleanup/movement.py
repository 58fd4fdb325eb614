"""Kernels that move elements: exact for every element type.

Each takes a ``Call`` and returns the node's outputs. Invalid nodes are declined, so that the
runtime reports them. Source: the operators' definitions in ONNX, for the opsets from the number
beside each kernel in ``MOVEMENT``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from gehost.ir.constants import Array
from gehost.passes.cleanup.call import Call, DeclinedError, axis_of, whole_numbers

Kernel: TypeAlias = Callable[[Call], list[Array]]


def _reshape(call: Call) -> list[Array]:
    array, target = call.array(0), whole_numbers(call.array(1))
    if not call.attribute("allowzero", 0):
        target = [array.shape[i] if entry == 0 else entry for i, entry in enumerate(target)]
    if any(entry < -1 for entry in target):
        raise DeclinedError
    return [array.reshape(target)]


def _squeeze(call: Call) -> list[Array]:
    array, axes = call.array(0), call.integers("axes", 1, since=13)
    if axes == []:
        raise DeclinedError
    return [np.squeeze(array, None if axes is None else tuple(axes))]


def _unsqueeze(call: Call) -> list[Array]:
    axes = call.integers("axes", 1, since=13)
    if not axes:
        raise DeclinedError
    return [np.expand_dims(call.array(0), tuple(axes))]


def _flatten(call: Call) -> list[Array]:
    array, axis = call.array(0), call.integer("axis", 1)
    if not -array.ndim <= axis <= array.ndim:
        raise DeclinedError
    axis += array.ndim if axis < 0 else 0
    return [array.reshape(math.prod(array.shape[:axis]), math.prod(array.shape[axis:]))]


def _concat(call: Call) -> list[Array]:
    arrays, axis = call.same_type(), call.integer("axis")
    shapes = {len(array.shape) for array in arrays}
    if len(shapes) != 1:
        raise DeclinedError
    axis = axis_of(axis, arrays[0].ndim)
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    call.claim(shape, max(arrays, key=lambda array: array.size))
    return [np.concatenate(arrays, axis)]


def _gather(call: Call) -> list[Array]:
    array, indices = call.array(0), call.array(1)
    if indices.dtype.kind != "i":
        raise DeclinedError
    axis = axis_of(call.integer("axis", 0), array.ndim)
    call.claim((*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :]), array)
    return [np.take(array, indices, axis)]


def _slice(call: Call) -> list[Array]:
    array = call.array(0)
    starts, ends = call.integers("starts", 1, since=10), call.integers("ends", 2, since=10)
    axes, steps = call.integers("axes", 3, since=10), None
    if call.version >= 10:
        steps = call.integers("steps", 4, since=10)
    if starts is None or ends is None:
        raise DeclinedError
    axes = (
        list(range(len(starts))) if axes is None else [axis_of(axis, array.ndim) for axis in axes]
    )
    steps = [1] * len(starts) if steps is None else steps
    if (
        not len(starts) == len(ends) == len(axes) == len(steps) == len(set(axes))
        or max(axes, default=-1) >= array.ndim
    ):
        raise DeclinedError
    parts = [slice(None)] * array.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        parts[axis] = _part(start, end, step, array.shape[axis])
    return [array[tuple(parts)]]


def _part(start: int, end: int, step: int, size: int) -> slice:
    """Return the part of an axis that ``Slice`` takes.

    Negative ends count from the end of the axis; positions outside it are clipped.
    """
    start, end = (position + size if position < 0 else position for position in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    if step == 0 or size == 0:
        raise DeclinedError
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


def _split(call: Call) -> list[Array]:
    array, count = call.array(0), len(call.node.outputs)
    axis = axis_of(call.integer("axis", 0), array.ndim)
    size, sizes = array.shape[axis], call.integers("split", 1, since=13)
    if sizes is None:
        if call.version < 18 and size % count:
            raise DeclinedError
        if call.version >= 18 and call.integer("num_outputs") != count:
            raise DeclinedError
        part = -(-size // count)
        if part * (count - 1) > size:
            raise DeclinedError
        sizes = [min(part, size - part * i) for i in range(count)]
    if sum(sizes) != size or len(sizes) != count or min(sizes) < 0:
        raise DeclinedError
    ends: list[int] = np.cumsum(sizes).tolist()
    return np.split(array, ends[:-1], axis)


def _expand(call: Call) -> list[Array]:
    array, target = call.array(0), whole_numbers(call.array(1))
    if any(entry < 0 for entry in target):
        raise DeclinedError
    shape = np.broadcast_shapes(array.shape, tuple(target))
    call.claim(shape, array)
    return [np.broadcast_to(array, shape)]


def _tile(call: Call) -> list[Array]:
    array, repeats = call.array(0), whole_numbers(call.array(1))
    if len(repeats) != array.ndim:
        raise DeclinedError
    call.claim([dim * count for dim, count in zip(array.shape, repeats, strict=True)], array)
    return [np.tile(array, repeats)]


def _where(call: Call) -> list[Array]:
    condition, left, right = call.array(0), call.array(1), call.array(2)
    if condition.dtype != np.bool_ or left.dtype != right.dtype:
        raise DeclinedError
    shape = np.broadcast_shapes(condition.shape, left.shape, right.shape)
    call.claim(shape, left if left.size > right.size else right)
    return [np.where(condition, left, right)]


def _constant_of_shape(call: Call) -> list[Array]:
    shape = whole_numbers(call.array(0))
    filler: Array = np.asarray(call.attribute("value", np.zeros(1, np.float32)))
    if filler.size != 1:
        raise DeclinedError
    call.claim(shape, filler)
    return [np.broadcast_to(filler.reshape(()), shape)]


MOVEMENT: Mapping[str, tuple[int, Kernel]] = MappingProxyType(
    {
        "Concat": (4, _concat),
        "ConstantOfShape": (9, _constant_of_shape),
        "Expand": (8, _expand),
        "Flatten": (1, _flatten),
        "Gather": (1, _gather),
        "Reshape": (5, _reshape),
        "Slice": (1, _slice),
        "Split": (2, _split),
        "Squeeze": (1, _squeeze),
        "Tile": (6, _tile),
        "Transpose": (1, lambda call: [np.transpose(call.array(0), call.attribute("perm"))]),
        "Unsqueeze": (1, _unsqueeze),
        "Where": (9, _where),
    }
)
"""Operator → first opset whose definition the kernel follows, and the kernel."""
