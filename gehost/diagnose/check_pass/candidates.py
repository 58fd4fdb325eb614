"""Candidates of a search: shapes beside known ones, types, numbers, attributes.

A seeded generator chooses among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx

from gehost.ir.types import DataType, Dim

_T = TypeVar("_T")
_KIND = onnx.AttributeProto
Kind: TypeAlias = onnx.AttributeProto.AttributeType

DTYPES: dict[DataType, int] = {
    DataType.FLOAT: 8,
    DataType.FLOAT16: 2,
    DataType.DOUBLE: 2,
    DataType.INT64: 1,
    DataType.INT32: 1,
    DataType.UINT8: 1,
    DataType.BOOL: 1,
}
"""Weights of the element types that are tried; all engines compute in these."""
INDEX_TYPES = frozenset({DataType.INT64, DataType.INT32})
"""The element types of shapes, axes and indices."""
SIZES: tuple[tuple[Dim, ...], ...] = ((3, 4, 5, 2), ("N", 3, 4, 2), (3,), (4, 2, 6), (2,), (3,))
"""Sets of sizes; an instance draws from one of them. If all sizes are equal, no shape distinguishes
the axes.
"""
RANKS: dict[int, int] = {0: 1, 1: 2, 2: 5, 3: 6, 4: 5, 5: 1}
_FLAGS = frozenset(
    [
        "keepdims",
        "ceil_mode",
        "transA",
        "transB",
        "exclusive",
        "reverse",
        "noop_with_empty_axes",
        "spatial",
        "training_mode",
        "largest",
        "sorted",
    ]
).union(["allowzero", "count_include_pad", "select_last_index", "is_causal"])
_NOT_VARIED = frozenset({"num_outputs", "round_mode", "saturate"})
"""Attributes that engines trust: if they do not fit the node, ONNX's inference aborts, or the
kernel's result is undefined.
"""
_TEXTS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "coordinate_transformation_mode": (
        *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    ),
    "direction": ("forward", "reverse", "bidirectional"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
    "reduction": ("none", "add", "mul", "max", "min"),
}
_TEXTS_OF: dict[tuple[str, str], tuple[str, ...]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("GridSample", "mode"): ("linear", "bilinear", "nearest", "cubic", "bicubic"),
    ("NegativeLogLikelihoodLoss", "reduction"): ("none", "sum", "mean"),
    ("Pad", "mode"): ("constant", "reflect", "edge"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("SoftmaxCrossEntropyLoss", "reduction"): ("none", "sum", "mean"),
    ("Upsample", "mode"): ("nearest", "linear"),
}
"""Values of attributes that are texts, in all versions.

By name, and by operator where names mean several things.
"""
_FLOATS = (0.5, 1.0, 2.0, 1e-5, 1e-3, 0.0, -1.0)
_FLOATS_OF = {
    "epsilon": (1e-5, 1e-3, 0.5),
    "scale": (0.5, 1.0, 2.0),
    "low": (0.0, -1.0),
    "high": (1.0, 2.0),
}
"""Values that keep roots away from negative numbers, and ONNX Runtime from ending the process:
random operators need a scale above 0, and low below high.
"""
_MOST_PERMUTATIONS = 24


def pick(rng: np.random.Generator, weighted: dict[_T, int]) -> _T:
    """Return one of the keys, with a probability proportional to its weight."""
    weights = np.array(list(weighted.values()), dtype=np.float64)
    return list(weighted)[rng.choice(len(weights), p=weights / weights.sum())]


def one_of(rng: np.random.Generator, choices: Sequence[_T]) -> _T:
    return choices[int(rng.integers(len(choices)))]


def fresh_shape(
    rng: np.random.Generator, sizes: Sequence[Dim], rank: int | None = None
) -> tuple[Dim, ...]:
    """Return a shape of these sizes.

    Only the first axis may be a symbol.
    """
    count = pick(rng, RANKS) if rank is None else rank
    numbers = [size for size in sizes if isinstance(size, int)]
    return tuple(one_of(rng, sizes if axis == 0 else numbers) for axis in range(count))


def shape_beside(
    rng: np.random.Generator, shapes: Sequence[tuple[Dim, ...]], sizes: Sequence[Dim]
) -> tuple[Dim, ...]:
    """Return a shape that an operator may accept beside ``shapes``.

    Operands of one operator often have the same shape, broadcast, are multiplied (the last axis of
    one is the last but one of the other), are the weights of a convolution (the second axes agree),
    or hold one number for each index of an axis or for each channel ([C, 1, 1]).
    """
    shape = one_of(rng, shapes) if shapes else ()
    if not shape or rng.random() < 0.1:
        return fresh_shape(rng, sizes)
    new = one_of(rng, [size for size in sizes if isinstance(size, int)])
    ways: list[tuple[Dim, ...]] = [
        shape,
        shape,
        shape[-1:],
        shape[-1:],
        shape[int(rng.integers(len(shape))) :],
        tuple(1 if rng.random() < 0.5 else size for size in shape),
        (),
        shape[:1],
        shape[:1],
        shape[:1],
        shape[1:2],
        (shape[-1], new),
        (shape[-1], new),
        (*shape[:-2], shape[-1], new),
        (new, *shape[-2:-1]),
        (new, shape[-1]),
        tuple([shape[int(axis)] for axis in rng.permutation(len(shape))]),
    ]
    if len(shape) > 2:
        kernel = [int(rng.integers(1, 4))] * (len(shape) - 2)
        part = shape[1]
        if isinstance(part, int):  # or its part in one of several equal groups
            parts = (part // groups for groups in (2, 3, 4) if not part % groups)
            part = one_of(rng, [part, *parts])
        ways += [(new, part, *kernel)] * 4
        channels = (shape[1], *[1] * (len(shape) - 2))
        ways += [channels, channels, (1, *channels)]
    return one_of(rng, ways)


def numbers(
    rng: np.random.Generator, dtype: DataType, shape: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Return distinct numbers for a weight.

    They are small if the dtype is an integer.
    """
    if dtype is DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return np.asarray(rng.standard_normal(shape)).astype(dtype.numpy)
    return np.asarray(rng.integers(0, 4, shape)).astype(dtype.numpy)


def numbers_like(
    rng: np.random.Generator, array: np.ndarray[tuple[int, ...], Any]
) -> list[np.ndarray[Any, Any]]:
    """Return other constants for the same place: inverse, negated, scaled, random, 1 / n."""
    if array.dtype.kind not in "fiu":
        return [array]
    wide: np.ndarray[Any, Any] = array.astype(np.float64)
    with np.errstate(all="ignore"):
        inverse: np.ndarray[Any, Any] = np.reciprocal(wide)
    arrays: list[Any] = [
        -wide,
        2 * wide,
        wide / 2,
        wide * wide,
        rng.standard_normal(array.shape),
        np.abs(wide) + 1,
        np.full_like(wide, 1 / rng.integers(2, 7)),
    ]
    if np.all(np.isfinite(inverse)):
        arrays += [inverse, inverse]
    return [np.asarray(entry) for entry in arrays]


def attribute_values(
    rng: np.random.Generator,
    name: str,
    kind: Kind,
    default: Any,
    rank: int | None,
    current: Any = None,
    *,
    op: str = "",
) -> list[Any]:
    """Return values for an attribute of an operator.

    The operator's first input has ``rank`` dimensions.

    Args:
        rng: chooses if there are too many.
        name: of the attribute, which implies its meaning.
        kind: its type; only numbers, lists of numbers and texts have values.
        default: of the schema; None if there is none.
        current: its current value; a list is varied with the same length.
        op: the type of the operator.
    """
    dims = rank or 0
    if name in _NOT_VARIED:
        return []
    if kind == _KIND.INT:
        return _int_values(name, default, dims)
    if kind == _KIND.FLOAT:
        return list(
            dict.fromkeys([*([] if default is None else [default]), *_FLOATS_OF.get(name, _FLOATS)])
        )
    if kind == _KIND.STRING:
        return list(_TEXTS_OF.get((op, name)) or _TEXTS.get(name, ()))
    if kind == _KIND.INTS:
        # Pad's have all axes, those of a window only the spatial ones
        return _int_lists(rng, name, dims + 2 if op == "Pad" else dims, current)
    if kind == _KIND.FLOATS:
        return [[value * 2 for value in current]] if current else [[1.0], [0.5, 2.0]]
    return []


def _int_values(name: str, default: Any, rank: int) -> list[int]:
    if name == "axis":
        return list(range(-rank, rank))
    if name == "to":
        return [int(dtype) for dtype in DTYPES]
    if name == "stash_type":
        return [int(DataType.FLOAT), int(DataType.DOUBLE)]
    if name == "group":
        return [1, 2, 3, 4]
    if name in ("blocksize", "num_groups"):
        return [1, 2, 4]
    if name in _FLAGS or name.startswith("transpose_"):
        return [0, 1]
    return list(dict.fromkeys([*([] if default is None else [default]), 0, 1]))


def _int_lists(rng: np.random.Generator, name: str, rank: int, default: Any) -> list[list[int]]:
    spatial = max(rank - 2, 0)
    if name == "perm":
        if rank <= 4:
            return [list(order) for order in itertools.permutations(range(rank))]
        return [[int(axis) for axis in rng.permutation(rank)] for _ in range(_MOST_PERMUTATIONS)]
    if name == "axes":
        choices = [[-1], [0], [1], [-2, -1], [0, 1], [0, -1], list(range(rank))]
        return [axes for axes in choices if axes and all(-rank <= axis < rank for axis in axes)]
    if name == "pads":
        return [[0] * spatial * 2, [1] * spatial * 2, [1] * spatial + [0] * spatial]
    if name in ("strides", "dilations", "kernel_shape"):
        return [[size] * spatial for size in (1, 2, 3)]
    if default:
        return [[value + 1 for value in default], list(reversed(default))]
    return [[1], [0], [2, 1]]
