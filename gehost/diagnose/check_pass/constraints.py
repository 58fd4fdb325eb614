"""Constraints between shapes, lists and attributes of an operator's inputs.

Inference does not check them all. Source: the operators' descriptions in ONNX. Most instances
satisfy them, as a draw of independent shapes hardly ever does; the other draws show cases that the
descriptions leave out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gehost.diagnose.check_pass.candidates import one_of
from gehost.ir.types import Dim

_Shape = tuple[Dim, ...]
_HIDDEN: Final = 3
"""The size of a recurrent operator's state."""
_Rule = Callable[[np.random.Generator, _Shape], _Shape]

RANKS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "AveragePool": (3, 4, 4, 4, 5),
        "BatchNormalization": (2, 3, 4, 4, 4),
        "Conv": (3, 4, 4, 4, 5),
        "DeformConv": (4,),
        "DequantizeLinear": (2, 3, 4),
        "ConvTranspose": (3, 4, 4, 4),
        "DepthToSpace": (4,),
        "Gemm": (2,),
        "GlobalAveragePool": (3, 4, 4),
        "GlobalMaxPool": (3, 4, 4),
        "GroupNormalization": (3, 4, 4),
        "InstanceNormalization": (3, 4, 4),
        "GRU": (3,),
        "LRN": (3, 4, 4),
        "LSTM": (3,),
        "MaxPool": (3, 4, 4, 4, 5),
        "QLinearConv": (3, 4, 4),
        "RNN": (3,),
        "ReverseSequence": (2, 3, 4),
        "ScatterND": (2, 3, 4),
        "SpaceToDepth": (4,),
    }
)
"""Ranks of the first input; repeated ones are more frequent in models."""


def _channels(_rng: np.random.Generator, shape: _Shape) -> _Shape:
    return shape[1:2]


def _conv_weights(rng: np.random.Generator, shape: _Shape) -> _Shape:
    """Return the shape of a Conv's weights: [M, C / group, …]."""
    channels = shape[1]
    parts: list[Dim] = [channels, channels, channels]
    if isinstance(channels, int):
        parts += [channels // groups for groups in (2, channels) if not channels % groups]
    part = one_of(rng, parts)
    groups = channels // part if isinstance(channels, int) and isinstance(part, int) else 1
    return (groups * int(rng.integers(1, 4)), part, *_spatial(rng, shape))


def _spatial(rng: np.random.Generator, shape: _Shape) -> list[int]:
    sizes = [size if isinstance(size, int) else 3 for size in shape[2:]]
    return [int(rng.integers(1, min(3, max(size, 1)) + 1)) for size in sizes]


def _cell(gates: int, slot: int, _rng: np.random.Generator, shape: _Shape) -> _Shape:
    """Return the shape of a recurrent operator's weights, of one direction."""
    return (1, gates * _HIDDEN, shape[2] if slot == 1 else _HIDDEN)


def _one(_rng: np.random.Generator, _shape: _Shape) -> _Shape:
    return ()


def _axis_or_one(rng: np.random.Generator, shape: _Shape) -> _Shape:
    """Return the shape of scales for each index of an axis, or of one for all."""
    return one_of(rng, [(), shape[1:2], shape[1:2]])


def _last(_rng: np.random.Generator, shape: _Shape) -> _Shape:
    return shape[-1:]


_BESIDE_FIRST: Final[Mapping[tuple[str, int], _Rule]] = MappingProxyType(
    {
        **{("BatchNormalization", slot): _channels for slot in range(1, 5)},
        **{("InstanceNormalization", slot): _channels for slot in (1, 2)},
        **{("GroupNormalization", slot): _channels for slot in (1, 2)},
        **{("LayerNormalization", slot): _last for slot in (1, 2)},
        ("RMSNormalization", 1): _last,
        ("Conv", 1): _conv_weights,
        **{("DequantizeLinear", slot): _axis_or_one for slot in (1, 2)},
        **{("QuantizeLinear", slot): _axis_or_one for slot in (1, 2)},
        **{("QLinearConv", slot): _one for slot in (1, 2, 4, 5, 6, 7)},
        ("QLinearConv", 3): _conv_weights,
        ("DeformConv", 1): lambda _, shape: (2, shape[1], 1, 1),
        ("DeformConv", 2): lambda _, shape: (shape[0], 2, *shape[2:]),
        ("ReverseSequence", 1): lambda _, shape: shape[1:2],
        ("ScatterND", 1): lambda _, _shape: (2, 1),
        ("ScatterND", 2): lambda _, shape: (2, *shape[1:]),
        **{
            (op, slot): functools.partial(_cell, gates, slot)
            for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1))
            for slot in (1, 2)
        },
        # [C, M / group, …]
        ("ConvTranspose", 1): lambda rng, shape: (
            shape[1],
            int(rng.integers(1, 5)),
            *_spatial(rng, shape),
        ),
    }
)
"""(operator, slot) → rule for an input's shape, from that of the first input."""


_SCALED: Final = ("DequantizeLinear", "QuantizeLinear")


def divisible(op: str, shape: _Shape) -> _Shape:
    """Return the shape of a first input with sizes that blocks or groups divide."""
    if op in ("DepthToSpace", "GroupNormalization") and len(shape) > 1:
        return (shape[0], 8, *shape[2:])
    if op == "SpaceToDepth":
        return (*shape[:2], *[4 for _ in shape[2:]])
    return shape


def wanted_shape(
    rng: np.random.Generator, op: str, slot: int, shapes: Sequence[_Shape | None]
) -> _Shape | None:
    """Return a shape for input ``slot`` of ``op``.

    It fits the known shapes; None if there is no rule.
    """
    first = shapes[0] if shapes else None
    if op == "Conv" and slot == 2 and len(shapes) > 1 and shapes[1]:
        return shapes[1][:1]
    if op in _SCALED and slot == 2 and len(shapes) > 1:
        return shapes[1]  # a zero point is like its scale
    rule = _BESIDE_FIRST.get((op, slot))
    if rule is None or first is None or len(first) < min(RANKS.get(op, (1,))):
        return None
    return rule(rng, first)


def wanted_list(
    rng: np.random.Generator, op: str, slot: int, shapes: Sequence[_Shape | None]
) -> tuple[int, ...] | None:
    """Return the elements of a list that ``op`` takes at ``slot``.

    They are a target shape, axes or repeats.

    None if the input is not such a list, or the first shape is not known.
    """
    first = shapes[0] if shapes else None
    if first is None or slot != 1:
        return None
    rank = len(first)
    if op == "Reshape":
        return _reshape_target(rng, first)
    if op == "Expand":
        sizes = [size if isinstance(size, int) else 1 for size in first]
        wide = [size if size != 1 else int(rng.integers(1, 4)) for size in sizes]
        return (*rng.integers(1, 4, int(rng.integers(2))).tolist(), *wide)
    if op == "Tile":
        return tuple(rng.integers(1, 3, rank).tolist())
    if op == "Squeeze":
        return tuple(axis for axis in range(rank) if first[axis] == 1)
    if op == "Unsqueeze":
        return (int(rng.integers(-rank - 1, rank + 1)),)
    if op.startswith("Reduce") and rank:
        several = rng.permutation(rank)[: one_of(rng, (1, 1, 2))]
        return tuple(int(axis) - one_of(rng, (0, rank)) for axis in several)
    return None


def _reshape_target(rng: np.random.Generator, shape: _Shape) -> tuple[int, ...] | None:
    """Return a target shape with ``shape``'s elements, -1 for an unknown size."""
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    if sizes.count(-1) > 1 or 0 in sizes:
        return None
    place = int(rng.integers(len(sizes) + 1))
    way = int(rng.integers(5))
    if way == 0:  # another axis
        sizes.insert(place, 1)
    elif way == 1 and 0 < place < len(sizes):  # two axes as one
        pair = sizes[place - 1 : place + 1]
        sizes[place - 1 : place + 1] = [-1 if -1 in pair else pair[0] * pair[1]]
    elif way == 2 and place < len(sizes) and sizes[place] > 2 and not sizes[place] % 2:
        sizes[place : place + 1] = [2, sizes[place] // 2]
    elif way == 3:
        sizes = [sizes[int(axis)] for axis in rng.permutation(len(sizes))]
    if sizes and -1 not in sizes and rng.random() < 0.3:
        sizes[int(rng.integers(len(sizes)))] = -1
    return tuple(sizes)


def make_consistent(
    op: str, params: dict[str, Any], fixed: frozenset[str], shapes: Sequence[_Shape | None]
) -> None:
    """Make parameters that were drawn one by one consistent.

    They must fit the shapes and each other.

    Args:
        op: the operator.
        params: changed in place.
        fixed: those that the pattern constrains, which stay.
        shapes: of the inputs.
    """
    if op in ("BatchNormalization", "Dropout"):
        # with these it is another operator: computes statistics or draws numbers, has more outputs
        _drop(params, fixed, "training_mode", "spatial", "is_test")
    if "auto_pad" in params and "pads" in params and params["auto_pad"] != "NOTSET":
        _drop(params, fixed, "pads" if "pads" not in fixed else "auto_pad")
    weights = shapes[1] if len(shapes) > 1 else None
    if op in _SCALED:
        _drop(params, fixed, "block_size", "output_dtype", "precision")
        _fit_axis(params, fixed, shapes[0], weights)
    if op == "ReverseSequence":
        _fit_sequences(params, fixed, shapes[0], weights)
    if op in ("GRU", "LSTM", "RNN"):
        _drop(params, fixed, "direction", "hidden_size", "layout", "activation_alpha")
        _drop(params, fixed, "activation_beta")
    if op == "DeformConv":
        _drop(params, fixed, "pads", "strides", "kernel_shape", "group", "offset_group")
    if op == "QLinearConv":
        _drop(params, fixed, "kernel_shape", "group")
    if op not in ("Conv", "ConvTranspose") or weights is None or len(weights) < 3:
        return
    _drop(params, fixed, "kernel_shape")
    first = shapes[0]
    if op == "Conv" and first is not None and len(first) > 1 and "group" not in fixed:
        channels, part = first[1], weights[1]
        if isinstance(channels, int) and isinstance(part, int) and part and not channels % part:
            params["group"] = channels // part
    elif op == "ConvTranspose":
        _drop(params, fixed, "group", "output_shape", "output_padding")


def _fit_axis(
    params: dict[str, Any], fixed: frozenset[str], first: _Shape | None, scale: _Shape | None
) -> None:
    """Choose an axis of as many sizes as there are scales; it is free without."""
    if "axis" in fixed or first is None or scale is None or len(scale) != 1:
        return
    axis = params.get("axis", 1)
    if not -len(first) <= axis < len(first) or first[axis] != scale[0]:
        _drop(params, fixed, "axis")


def _fit_sequences(
    params: dict[str, Any], fixed: frozenset[str], first: _Shape | None, lengths: _Shape | None
) -> None:
    """Make the axes of a ReverseSequence the first two in either order, as the lengths allow."""
    if fixed.isdisjoint(("batch_axis", "time_axis")):
        drawn = params.keys() & {"batch_axis", "time_axis"}
        _drop(params, fixed, "batch_axis", "time_axis")
        if drawn and first and first[:1] == lengths:
            params |= {"batch_axis": 0, "time_axis": 1}


def _drop(params: dict[str, Any], fixed: frozenset[str], *names: str) -> None:
    for name in names:
        if name not in fixed:
            params.pop(name, None)


def is_positive(op: str, slot: int) -> bool:
    """Whether an input must not be negative: a variance, a scale."""
    scales = {"DequantizeLinear": (1,), "QuantizeLinear": (1,), "QLinearConv": (1, 4, 6)}
    return (op, slot) == ("BatchNormalization", 4) or slot in scales.get(op, ())
