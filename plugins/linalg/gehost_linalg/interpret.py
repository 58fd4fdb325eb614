"""Interpreter of Generics, the reference for all results.

It runs the loop nest point by point with numpy scalars.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gehost_linalg.affine import Dim, evaluate
from gehost_linalg.generic import (
    INDEX,
    Arg,
    Generic,
    Literal,
    Op,
    Opaque,
    Ref,
    Res,
    Size,
    Value,
    expr_of,
)
from gehost_linalg.operations import NUMPY, compute
from gehost_linalg.reshape import COLLAPSE, EXPAND, axes_of

Array: TypeAlias = "np.ndarray[Any, Any]"


class Part(NamedTuple):
    """The size of a slice of an axis, as Python slices."""

    whole: Size
    start: int
    end: int
    step: int


class Split(NamedTuple):
    """The number of parts that an axis is split into; it fits no other ``number``."""

    whole: Size
    of: int
    number: int | None


class Broadcast(NamedTuple):
    """The size that several operands broadcast to.

    It is that of the operands whose size is not 1.
    """

    sizes: tuple[Size, ...]


Rule: TypeAlias = Part | Split | Broadcast
"""How a size is computed from others."""


def size_of(
    size: Size, sizes: Mapping[str, int], rules: Mapping[str, Rule] | None = None
) -> int | None:
    """The number of a size, by its name or from others."""
    if not isinstance(size, str):
        return size
    if size.isdecimal() or size in sizes:
        return int(size) if size.isdecimal() else sizes[size]
    rule = (rules or {}).get(size)
    if rule is None:
        return None
    if isinstance(rule, Part | Split):
        whole = size_of(rule.whole, sizes, rules)
        if whole is None:
            return None
        if isinstance(rule, Split):
            return whole // rule.of
        return len(range(*slice(rule.start, rule.end, rule.step).indices(whole)))
    results = [size_of(item, sizes, rules) for item in rule.sizes]
    if None in results:
        return None
    return next((item for item in results if item != 1), 1)


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of an element type."""
    return np.dtype(NUMPY[dtype])


def extents_of(op: Generic, shapes: Sequence[Sequence[int | None]]) -> list[int]:
    """The size of each loop, from the operands' actual shapes.

    Args:
        op: the Generic.
        shapes: of its operands; an axis whose stride is decided now may have size 1. None is
            unknown.

    Raises:
        ValueError: the sizes do not agree, or one is unknown.
    """
    results: list[int | None] = [None] * op.loops
    unsure: list[int | None] = [None] * op.loops
    for position, _, axis, result, maybe_broadcast in op.axes():
        if not isinstance(result, Dim):
            continue
        size, dim = shapes[position][axis], result.index
        if size is None:
            continue
        entry = unsure if maybe_broadcast else results
        if maybe_broadcast and (size == 1 and entry[dim] is not None):
            continue
        if entry[dim] in {None, size} or (maybe_broadcast and entry[dim] == 1):
            entry[dim] = size
        else:
            raise ValueError(f"{op.name}: loop d{dim} has sizes {entry[dim]} and {size}")
    sizes: list[int] = []
    for dim, (sure, other) in enumerate(zip(results, unsure, strict=True)):
        size = sure if sure is not None else other
        if size is None or (other not in {None, 1, size}):
            raise ValueError(f"{op.name}: loop d{dim} has sizes {sure} and {other}")
        sizes.append(size)
    return sizes


def run_generic(
    op: Generic,
    arrays: Sequence[Array | None],
    scalars: Mapping[Value, Any],
    sizes: Mapping[str, int] | None = None,
) -> list[Array]:
    """Run a loop nest.

    Args:
        op: the Generic.
        arrays: its operands; None for an out whose size the loops give.
        scalars: values of the scalars that the payload takes from outside.
        sizes: by the names that shapes use.

    Raises:
        ValueError: the sizes do not agree, or a map leaves an operand.
    """
    count = len(op.ins)
    extents = extents_of(
        op, [_shape(op, position, array, sizes or {}) for position, array in enumerate(arrays)]
    )
    present = [_made(op, position, array, extents) for position, array in enumerate(arrays)]
    results = [np.array(array) for array in present[count:]]
    current = [*present[:count], *results]
    with np.errstate(all="ignore"):
        for point in np.ndindex(*extents):
            places = [
                tuple(
                    0
                    if axis in op.maybe_broadcast_axes[position] and array.shape[axis] == 1
                    else evaluate(result, point)
                    for axis, result in enumerate(op.maps[position].results)
                )
                for position, array in enumerate(current)
            ]
            loaded = [array[place] for array, place in zip(current, places, strict=True)]
            for out, value in enumerate(_evaluate(op, loaded, point, scalars)):
                results[out][places[count + out]] = value
    return results


def _shape(
    op: Generic, position: int, array: Array | None, sizes: Mapping[str, int]
) -> list[int | None]:
    """The sizes of an operand, None where only the loops give one."""
    if array is not None:
        return list(array.shape)
    value = op.operands[position]
    shape = value.shape or (None,) * len(op.maps[position].results)
    return [size_of(size, sizes) for size in shape]


def _made(op: Generic, position: int, array: Array | None, extents: Sequence[int]) -> Array:
    """An out that has no array of its own: empty, or filled."""
    value = op.operands[position]
    if array is not None:
        return array
    shape: list[int] = []
    for axis, result in enumerate(op.maps[position].results):
        size = value.shape[axis] if value.shape is not None else None
        entry = extents[result.index] if isinstance(result, Dim) else size_of(size, {})
        if entry is None:
            raise ValueError(f"{op.name}: the size of axis {axis} of {value!r} is not known")
        shape.append(entry)
    fill = value.fill.value if isinstance(value.fill, Literal) else 0
    return np.full(shape, fill, numpy_dtype(value.dtype))


def _evaluate(
    op: Generic, loaded: Sequence[Any], point: Sequence[int], scalars: Mapping[Value, Any]
) -> list[Any]:
    results: list[Any] = []

    def value_of(ref: Ref) -> Any:
        if isinstance(ref, Arg):
            return loaded[ref.index]
        if isinstance(ref, Res):
            return results[ref.index]
        return NUMPY[ref.dtype](ref.value) if isinstance(ref, Literal) else scalars[ref]

    for item in op.payload.ops:
        if item.name == INDEX:
            results.append(np.int64(evaluate(expr_of(item), point)))
        else:
            operands = [value_of(ref) for ref in item.operands]
            results.append(compute(item.name, operands, item.dtype, item.attribute, item.flags))
    return [value_of(ref) for ref in op.payload.yields]


def interpret(
    ops: Iterable[Op],
    inputs: Mapping[Value, Any],
    outputs: Iterable[Value],
    rules: Mapping[str, Part | Broadcast] | None = None,
) -> list[Array]:
    """Run operations in order.

    Args:
        ops: Generics, ``tensor.dim``, ``tensor.concat`` and ``tensor.extract_slice``.
        inputs: an array (a numpy scalar for a scalar) for each value that nothing makes.
        outputs: the values to return.
        rules: the sizes that are computed from others, by name.

    Raises:
        ValueError: sizes do not agree, or an operation cannot be interpreted.
    """
    values = _Values(rules or {})
    for value, array in inputs.items():
        values.note(value, array)
    for op in ops:
        if isinstance(op, Generic):
            scalars = {value: values.array_of(value)[()] for value in op.payload.captured}
            operands = [values.operand(value) for value in op.operands]
            results = run_generic(op, operands, scalars, values.sizes)
        else:
            operands = [values.array_of(value) for value in op.operands]
            results = [_opaque(op, operands, values.sizes)]
        for value, array in zip(op.results, results, strict=True):
            values.note(value, array)
    return [values.array_of(value) for value in outputs]


class _Values:
    """The arrays of a run, and the sizes that they give to names."""

    def __init__(self, rules: Mapping[str, Part | Broadcast]) -> None:
        self._arrays: dict[Value, Any] = {}
        self._rules = rules
        self.sizes: dict[str, int] = {}

    def note(self, value: Value, array: Any) -> None:
        """Keep an array; its sizes name those of the shape, and those computed from them."""
        self._arrays[value] = array
        self.sizes.update(
            {
                name: size
                for name, size in zip(value.shape or (), np.shape(array), strict=False)
                if isinstance(name, str)
            }
        )
        for name in self._rules:
            result = size_of(name, self.sizes, self._rules)
            if result is not None:
                self.sizes.setdefault(name, result)

    def array_of(self, value: Value) -> Any:
        """The array of a value: of an input, a result, a size or a constant."""
        if value in self._arrays:
            return self._arrays[value]
        if value.kind == "extent" and value.name in self.sizes:
            return np.asarray(self.sizes[value.name])
        if value.constant is not None:
            shape = [size_of(size, self.sizes) or 0 for size in value.shape or ()]
            return np.broadcast_to(value.constant, shape).astype(numpy_dtype(value.dtype))
        raise ValueError(f"%{value.name} has no value")

    def operand(self, value: Value) -> Array | None:
        """None for an empty or a fill whose size the loops give."""
        if value in self._arrays or value.kind not in {"empty", "fill"}:
            return self.array_of(value)
        # tensor.empty(%n) has an argument for each size that its type leaves open
        argument = iter(value.sizes)
        shape = [
            size
            if size is not None
            else int(self.array_of(item))
            if (item := next(argument, None))
            else None
            for size in value.shape or ()
        ]
        numbers = [size_of(size, self.sizes) for size in shape]
        if any(size is None for size in numbers):
            return None
        fill = (
            0
            if value.fill is None
            else value.fill.value
            if isinstance(value.fill, Literal)
            else self.array_of(value.fill)
        )
        return np.full([size or 0 for size in numbers], fill, numpy_dtype(value.dtype))


def _opaque(op: Opaque, arrays: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    if op.name == "tensor.dim":
        return np.int64(arrays[0].shape[op.axis])
    if op.name == "tensor.concat":
        return np.concatenate(arrays, op.axis)
    if op.name == "tensor.extract_slice":
        begins = [int(part) for part in str(op.attribute).split(",")]
        lengths = [size_of(size, sizes) for size in op.results[0].shape or ()]
        if None in lengths:
            raise ValueError(f"{op.label}: the size of a part is not known")
        pairs = zip(begins, lengths, strict=True)
        return arrays[0][tuple([slice(begin, begin + (length or 0)) for begin, length in pairs])]
    if op.name == "tensor.reshape":  # as ONNX states it: 0 keeps a size, -1 is the rest
        target = [int(part) for part in str(op.attribute).split(",") if part]
        return arrays[0].reshape(
            [part or arrays[0].shape[axis] for axis, part in enumerate(target)]
        )
    if op.name in {EXPAND, COLLAPSE}:
        return _reshaped(op, arrays[0], sizes)
    raise ValueError(f"{op.label or op.name} cannot be interpreted")


def _reshaped(op: Opaque, array: Array, sizes: Mapping[str, int]) -> Array:
    """Split or merge groups of axes.

    One size of a split axis may be unknown.
    """
    groups = axes_of(op)
    if op.name == COLLAPSE:
        return array.reshape([math.prod([array.shape[axis] for axis in group]) for group in groups])
    shape = [size_of(size, sizes) for size in op.results[0].shape or ()]
    for whole, group in zip(array.shape, groups, strict=True):
        unknown = [axis for axis in group if shape[axis] is None]
        entry = math.prod([shape[axis] or 1 for axis in group if axis not in unknown])
        if len(unknown) == 1 and entry and whole % entry == 0:
            shape[unknown[0]] = whole // entry
        elif unknown or math.prod([shape[axis] or 0 for axis in group]) != whole:
            raise ValueError(
                f"{op.label or op.name}: an axis of size {whole} is split into {shape}"
            )
    return array.reshape([size or 0 for size in shape])
