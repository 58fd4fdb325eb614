"""Random nodes of every operator: attributes, ranks and sizes, most of them valid.

A family of operators whose attributes and sizes depend on one another has a function of its own.
Every other operator is drawn from the schema, or is a node test of onnx with other sizes.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser

from gehost.ir.schemas import schema_at
from tools.backend import cases as backend
from tools.sizes.cases import Case, node_of

Array: TypeAlias = np.ndarray[Any, Any]
Drawn: TypeAlias = tuple[list[Any], dict[str, Any]] | tuple[list[Any], dict[str, Any], int]
"""Inputs, attributes, and the number of outputs where it is not one."""

FIRST_OPSET = 7
_DTYPES = {
    "float": np.float32, "int64": np.int64, "int32": np.int32, "double": np.float64,
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "float16": np.float16,
    "string": np.object_, "uint32": np.uint32, "uint64": np.uint64, "int16": np.int16,
    "uint16": np.uint16, "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
_WEIGHTS = dict(zip(_DTYPES, [14, 5, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1], strict=True))
INT64_MAX, INT64_MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


class Draw:
    """Random choices for one node.

    Attributes:
        op: the operator.
        opset: of its domain.
        constant: inputs that must be initializers; others are at random.
    """

    def __init__(self, op: str, opset: int, rng: random.Random) -> None:
        self.op, self.opset, self.rng = op, opset, rng
        self.constant: set[int] = set()

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def size(self) -> int:
        return self.rng.choice([0] * self.chance(0.03) + [1, 2, 3, 4, 5, 6, 7, 8])

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.rng.randint(least, most)))

    def sizes(self, count: int, low: int, high: int) -> list[int]:
        return [self.rng.randint(low, high) for _ in range(count)]

    def floats(self, *shape: int, dtype: Any = np.float32) -> Array:
        return np.random.default_rng(self.rng.randrange(1 << 30)).normal(size=shape).astype(dtype)

    def array(
        self, shape: Sequence[int], dtype: Any = np.float32, low: int = 0, high: int = 4
    ) -> Array:
        numbers = np.random.default_rng(self.rng.randrange(1 << 30))
        if np.dtype(dtype) == np.object_:
            return np.array(numbers.choice(["a", "bc", "d e"], size=tuple(shape)), dtype=object)
        if np.dtype(dtype) == np.bool_:
            return numbers.integers(0, 2, size=tuple(shape)).astype(np.bool_)
        if np.dtype(dtype).kind in "iu":
            return numbers.integers(low, max(high, low + 1), size=tuple(shape)).astype(dtype)
        return numbers.normal(size=tuple(shape)).astype(dtype)

    def axis(self, rank: int, *, past: int = 0) -> int:
        if rank + past == 0:
            return 0
        axis = self.rng.randrange(rank + past)
        return axis - rank - past if self.chance(0.3) and self.opset >= 11 else axis

    def axes(self, rank: int, least: int = 0) -> list[int]:
        count = self.rng.randint(min(least, rank), rank)
        chosen = self.rng.sample(range(rank), count)
        return [a - rank if self.chance(0.25) and self.opset >= 11 else a for a in chosen]

    def some(self, **choices: Sequence[Any]) -> dict[str, Any]:
        """Attributes, each with one of its choices or absent."""
        return {
            name: self.rng.choice(values) for name, values in choices.items() if self.chance(0.6)
        }

    def vector(self, slot: int, numbers: Sequence[int], dtype: Any = np.int64) -> Array:
        """A vector that is usually a constant, for ``slot``."""
        if self.chance(0.85):
            self.constant.add(slot)
        return np.array(numbers, dtype)

    def kind(self, variable: str) -> Any:
        """A dtype that the schema allows for a type variable."""
        return _DTYPES[self._kind_name(variable)]

    def _kind_name(self, variable: str) -> str:
        schema = _schema(self.op, self.opset)
        allowed = [variable]
        for constraint in schema.type_constraints:
            if constraint.type_param_str == variable:
                allowed = list(constraint.allowed_type_strs)
        names = [kind[7:-1] for kind in allowed if kind.startswith("tensor(")]
        names = [name for name in names if name in _DTYPES]
        if not names:
            raise LookupError(variable)
        return self.rng.choices(names, [_WEIGHTS[name] for name in names])[0]

    def broadcast(self, count: int) -> list[tuple[int, ...]]:
        """Shapes that broadcast together."""
        whole = self.shape(0, 4)
        return [
            tuple(
                1 if self.chance(0.2) else dim
                for dim in whole[self.rng.randint(0, len(whole)) if self.chance(0.4) else 0 :]
            )
            for _ in range(count)
        ]


def _schema(op: str, opset: int) -> onnx.defs.OpSchema:
    domain, _, name = op.rpartition("::")
    schema = schema_at(domain, name, opset)
    assert schema is not None
    return schema


FAMILIES: dict[str, Callable[[Draw], Drawn | None]] = {}


def draws(*ops: str) -> Callable[[Callable[[Draw], Drawn | None]], Callable[[Draw], Drawn | None]]:
    def register(function: Callable[[Draw], Drawn | None]) -> Callable[[Draw], Drawn | None]:
        FAMILIES.update(dict.fromkeys(ops, function))
        return function

    return register


# -- windows ------------------------------------------------------------------------------------


def _window(d: Draw, count: int, kernel: list[int], most: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if d.chance(0.75):
        results["strides"] = d.sizes(count, 1, 4)
    auto = d.chance(0.35)
    if auto:
        results["auto_pad"] = d.one("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if d.chance(0.1) or results.get("auto_pad", "NOTSET") == "NOTSET":
        if d.chance(0.6):
            results["pads"] = [d.rng.randint(0, min(most, max(k - 1, 0))) for k in kernel * 2]
        elif d.chance(0.1):
            results["pads"] = d.sizes(2 * count, 0, 3)
    return results


@draws("MaxPool", "AveragePool", "LpPool")
def _pool(d: Draw) -> Drawn:
    count = d.one(1, 1, 1, 2, 2, 3)
    kernel = d.sizes(count, 1, 4)
    results = {"kernel_shape": kernel, **_window(d, count, kernel, 3)}
    dilated = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[d.op]
    rounded = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[d.op]
    if d.opset >= rounded and d.chance(0.5):
        results["ceil_mode"] = d.one(0, 1, 1, 1)
    if d.opset >= dilated and d.chance(0.35):
        results["dilations"] = d.sizes(count, 1, 3)
    if d.op == "AveragePool" and d.chance(0.3):
        results["count_include_pad"] = d.one(0, 1)
    if d.op == "LpPool" and d.chance(0.3):
        results["p"] = d.one(1, 2, 3)
    if d.op == "MaxPool" and d.opset >= 8 and d.chance(0.2):
        results["storage_order"] = d.one(0, 1)
    if d.op == "LpPool":
        dtype = np.float32
    else:
        dtype = d.one(np.float32, np.float32, np.float32, np.float64)
    x = d.floats(d.one(1, 2), d.one(1, 3), *d.sizes(count, 1, 13), dtype=dtype)
    outputs = 2 if d.op == "MaxPool" and d.opset >= 8 and d.chance(0.2) else 1
    return [x], results, outputs


@draws("Conv", "ConvInteger", "QLinearConv")
def _conv(d: Draw) -> Drawn:
    count = d.one(1, 1, 2, 2, 3)
    kernel = d.sizes(count, 1, 4)
    group, inner, outer = d.one(1, 1, 2), d.one(1, 2), d.one(1, 3)
    result = _window(d, count, kernel, 3)
    if d.chance(0.5):
        result["kernel_shape"] = kernel
    if d.chance(0.35):
        result["dilations"] = d.sizes(count, 1, 3)
    if group > 1 or d.chance(0.3):
        result["group"] = group
    sizes = [d.rng.randint(0, 11) if d.chance(0.03) else d.rng.randint(2, 12) for _ in range(count)]
    x, w = (d.one(1, 2), group * inner, *sizes), (group * outer, inner, *kernel)
    if d.op == "Conv":
        dtype = d.one(np.float32, np.float32, np.float64)
        bias = [d.floats(group * outer, dtype=dtype)] if d.chance(0.4) else []
        return [d.floats(*x, dtype=dtype), d.floats(*w, dtype=dtype), *bias], result
    xs, ws = d.array(x, np.uint8), d.array(w, np.uint8)
    point, scale = np.array(1, np.uint8), np.array(0.5, np.float32)
    if d.op == "ConvInteger":
        return [xs, ws, *([point] if d.chance(0.5) else [])], result
    d.constant |= {1, 2, 3, 4, 5, 6, 7}
    return [xs, scale, point, ws, scale, point, scale, point], result


@draws("ConvTranspose")
def _conv_transpose(d: Draw) -> Drawn:
    count = d.one(1, 1, 2, 2, 3)
    kernel = d.sizes(count, 1, 4)
    group, inner, outer = d.one(1, 1, 2), d.one(1, 2), d.one(1, 3)
    result = _window(d, count, kernel, 2)
    if d.chance(0.5):
        result["kernel_shape"] = kernel
    if d.chance(0.3):
        result["dilations"] = d.sizes(count, 1, 3)
    if group > 1:
        result["group"] = group
    if d.chance(0.35):
        result["output_padding"] = d.sizes(count, 0, 2)
    if d.chance(0.2):
        result["output_shape"] = d.sizes(count, 4, 14)
        result.pop("pads", None)
    x = (d.one(1, 2), group * inner, *d.sizes(count, 1, 8))
    w = (group * inner, outer, *kernel)
    bias = [d.floats(group * outer)] if d.chance(0.3) else []
    return [d.floats(*x), d.floats(*w), *bias], result


@draws("DeformConv")
def _deform_conv(d: Draw) -> Drawn:
    kernel = d.sizes(2, 1, 3)
    results = {k: v for k, v in _window(d, 2, kernel, 2).items() if k != "auto_pad"}
    if d.chance(0.3):
        results["dilations"] = d.sizes(2, 1, 2)
    sizes = d.sizes(2, 4, 9)
    out = [
        (s + p + q - ((k - 1) * g + 1)) // t + 1
        for s, k, t, g, p, q in zip(
            sizes, kernel, results.get("strides", [1, 1]), results.get("dilations", [1, 1]),
            results.get("pads", [0] * 4)[:2], results.get("pads", [0] * 4)[2:], strict=True,
        )
    ]  # fmt: skip
    if min(out) < 1:
        out = [1, 1]
    return [
        d.floats(1, 2, *sizes),
        d.floats(3, 2, *kernel),
        d.floats(1, 2 * kernel[0] * kernel[1], *out),
    ], results


@draws("MaxUnpool")
def _unpool(d: Draw) -> Drawn:
    count = d.one(1, 2)
    kernel = d.sizes(count, 1, 3)
    results = {
        "kernel_shape": kernel,
        **{k: v for k, v in _window(d, count, kernel, 1).items() if k != "auto_pad"},
    }
    shape = (1, 1, *d.sizes(count, 1, 4))
    inputs: list[Any] = [
        d.floats(*shape),
        np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape),
    ]
    if d.chance(0.3):
        inputs.append(d.vector(2, [1, 1, *d.sizes(count, 6, 14)]))
    return inputs, results


@draws("MaxRoiPool")
def _roi_pool(d: Draw) -> Drawn:
    rois = np.array([[0, 0, 0, 3, 3]] * d.one(1, 2), np.float32)
    return [d.floats(1, 2, 6, 6), rois], {
        "pooled_shape": d.sizes(2, 1, 3),
        **d.some(spatial_scale=[1.0, 0.5]),
    }


@draws("RoiAlign")
def _roi_align(d: Draw) -> Drawn:
    count = d.one(1, 2, 3)
    rois = np.array([[0, 0, 3, 3]] * count, np.float32)
    result = d.some(
        output_height=[1, 2, 3], output_width=[1, 2, 3], sampling_ratio=[0, 2], mode=["avg", "max"]
    )
    return [d.floats(1, 2, 6, 6), rois, np.zeros(count, np.int64)], result


@draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(d: Draw) -> Drawn:
    return [d.floats(*[max(size, 1) for size in d.shape(2, 5)])], d.some(
        p=[1, 2]
    ) if d.op == "GlobalLpPool" else {}


# -- resizing -----------------------------------------------------------------------------------

_SCALES = (0.1, 0.2, 0.25, 0.3, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0, 1.1, 1.2, 1.25,
           4 / 3, 1.4, 1.5, 1.6, 5 / 3, 1.7, 1.75, 1.8, 1.9, 2.0, 2.1, 2.3, 2.5, 2.7, 3.0, 3.3)  # fmt: skip


def _scale(d: Draw, size: int) -> float:
    if d.chance(0.3):
        return d.rng.randint(1, 16) / max(size, 1)
    return d.rng.choice(_SCALES) if d.chance(0.8) else d.rng.uniform(0.15, 3.0)


def _scales(d: Draw, shape: Sequence[int]) -> list[float]:
    return [
        1.0 if place < 2 and d.chance(0.85) else _scale(d, size) for place, size in enumerate(shape)
    ]


@draws("Upsample")
def _upsample(d: Draw) -> Drawn:
    shape = (d.one(1, 2), d.one(1, 3), *d.sizes(d.one(1, 2, 2), 1, 12))
    mode = d.some(mode=["nearest", "linear"])
    scales = [max(scale, 1.0) if d.chance(0.95) else scale for scale in _scales(d, shape)]
    if d.opset < 9:
        return [d.floats(*shape)], {"scales": scales, **mode}
    return [d.floats(*shape), d.vector(1, scales, np.float32)], mode  # type: ignore[arg-type]


@draws("Resize")
def _resize(d: Draw) -> Drawn:
    shape = (d.one(1, 2), d.one(1, 3), *d.sizes(d.one(1, 2, 2, 3), 1, 12))
    x = d.floats(*shape)
    scales: list[Any] = _scales(d, shape)
    if d.opset < 11:
        return [x, d.vector(1, scales, np.float32)], d.some(mode=["nearest", "linear"])
    result = d.some(
        mode=["nearest", "linear", "cubic"],
        coordinate_transformation_mode=[
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "tf_crop_and_resize",
        ],
        nearest_mode=["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"],
    )
    crop = result.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    roi: Any = None
    if crop:
        low, high = [0.0] * len(shape), [1.0] * len(shape)
        if d.chance(0.8):
            low[-1], high[-1] = d.one(0.0, 0.1, 0.25), d.one(0.5, 0.7, 1.0)
        roi = d.vector(1, low + high, np.float32)  # type: ignore[arg-type]
    elif d.opset < 13:
        roi = d.vector(1, [], np.float32)
    chosen = list(range(len(shape)))
    if d.opset >= 18:
        if d.chance(0.25):
            chosen = sorted(d.rng.sample(chosen, d.rng.randint(1, len(chosen))))
            result["axes"] = chosen
            if roi is not None and crop:
                count = len(shape)
                entries = list(roi)
                roi = d.vector(
                    1,
                    [entries[a] for a in chosen] + [entries[count + a] for a in chosen],
                    np.float32,
                )
        result |= d.some(antialias=[0, 1]) if d.chance(0.2) else {}
    if d.chance(0.35):
        sizes = [shape[a] if a < 2 and d.chance(0.8) else d.rng.randint(1, 14) for a in chosen]
        if d.opset >= 18 and d.chance(0.5):
            result["keep_aspect_ratio_policy"] = d.one("stretch", "not_larger", "not_smaller")
            if "axes" not in result and d.chance(0.7):
                result["axes"] = chosen = list(range(2, len(shape)))
                sizes = d.sizes(len(chosen), 1, 14)
                roi = (
                    None
                    if not crop
                    else d.vector(1, [0.0] * len(chosen) + [1.0] * len(chosen), np.float32)
                )  # type: ignore[arg-type]
        empty = d.vector(2, [], np.float32) if d.opset < 13 else None
        return [x, roi, empty, d.vector(3, sizes)], result
    return [x, roi, d.vector(2, [scales[a] for a in chosen], np.float32)], result


@draws("GridSample")
def _grid_sample(d: Draw) -> Drawn:
    count = 2 if d.opset < 20 else d.one(2, 2, 3)
    batch = d.one(1, 2)
    return [
        d.floats(batch, 2, *d.sizes(count, 1, 5)),
        d.floats(batch, *d.sizes(count, 1, 5), count),
    ], d.some(align_corners=[0, 1])


@draws("AffineGrid")
def _affine_grid(d: Draw) -> Drawn:
    count, batch = d.one(2, 3), d.one(1, 2)
    return [
        d.floats(batch, count, count + 1),
        d.vector(1, [batch, 2, *d.sizes(count, 1, 5)]),
    ], d.some(align_corners=[0, 1])


# -- shapes -------------------------------------------------------------------------------------


@draws("Reshape")
def _reshape(d: Draw) -> Drawn:
    x = d.shape(0, 4)
    count = int(np.prod(x))
    target: list[int] = []
    rest = count
    while len(target) < 4 and d.chance(0.75):
        factor = d.rng.choice([n for n in range(1, max(rest, 1) + 1) if rest % n == 0] or [1])
        target.append(factor)
        rest //= factor
    target.append(rest)
    d.rng.shuffle(target)
    for place, dim in enumerate(target):
        if place < len(x) and dim == x[place] and d.chance(0.4):
            target[place] = 0
    if d.chance(0.5) and count:
        target[d.rng.randrange(len(target))] = -1
    result = d.some(allowzero=[0, 1]) if d.opset >= 14 and d.chance(0.5) else {}
    return [d.array(x, d.kind("T")), d.vector(1, target)], result


@draws("Expand")
def _expand(d: Draw) -> Drawn:
    one, other = d.broadcast(2)
    return [d.array(one, d.kind("T")), d.vector(1, other)], {}


@draws("Tile")
def _tile(d: Draw) -> Drawn:
    x = d.shape(1, 4)
    return [
        d.array(x, d.kind("T")),
        d.vector(1, d.sizes(len(x), 0 if d.chance(0.05) else 1, 3)),
    ], {}


@draws("ConstantOfShape")
def _constant_of_shape(d: Draw) -> Drawn:
    kind = d.one(np.float32, np.int64, np.bool_)
    result = {"value": onnx.numpy_helper.from_array(np.ones(1, kind))} if d.chance(0.6) else {}
    return [d.vector(0, d.shape(0, 4))], result


@draws("Squeeze")
def _squeeze(d: Draw) -> Drawn:
    x = [1 if d.chance(0.5) else d.size() for _ in range(d.rng.randint(0, 5))]
    ones = [place for place, dim in enumerate(x) if dim == 1]
    axes = [
        a - len(x) if d.chance(0.3) and d.opset >= 11 else a
        for a in d.rng.sample(ones, d.rng.randint(0, len(ones)))
    ]
    return _with_axes(d, d.array(x, d.kind("T")), axes if axes or d.chance(0.1) else None, 13)


@draws("Unsqueeze")
def _unsqueeze(d: Draw) -> Drawn:
    x = d.shape(0, 3)
    rank = len(x) + d.one(1, 1, 2)
    axes = d.rng.sample(range(rank), rank - len(x))
    axes = [a - rank if d.chance(0.3) and d.opset >= 11 else a for a in axes]
    return _with_axes(d, d.array(x, d.kind("T")), axes, 13)


def _with_axes(d: Draw, x: Any, axes: list[int] | None, since: int, **result: Any) -> Drawn:
    if axes is None:
        return [x], result
    return ([x, d.vector(1, axes)], result) if d.opset >= since else ([x], {**result, "axes": axes})


@draws("Flatten")
def _flatten(d: Draw) -> Drawn:
    x = d.shape(0 if d.opset >= 9 else 1, 4)
    low = -len(x) if d.opset >= 11 else 0
    return [d.array(x, d.kind("T"))], {"axis": d.rng.randint(low, len(x))} if d.chance(0.8) else {}


@draws("Transpose")
def _transpose(d: Draw) -> Drawn:
    x = d.shape(0, 4)
    return [d.array(x, d.kind("T"))], {
        "perm": d.rng.sample(range(len(x)), len(x))
    } if x and d.chance(0.7) else {}


@draws("Concat")
def _concat(d: Draw) -> Drawn:
    x, kind = list(d.shape(1, 4)), d.kind("T")
    axis = d.rng.randrange(len(x))
    parts = [
        d.array([*x[:axis], d.size(), *x[axis + 1 :]], kind) for _ in range(d.rng.randint(1, 3))
    ]
    return parts, {"axis": axis - len(x) if d.opset >= 11 and d.chance(0.3) else axis}


@draws("Split", "SplitToSequence")
def _split(d: Draw) -> Drawn:
    x = list(d.shape(1, 4))
    axis = d.rng.randrange(len(x))
    count = d.rng.randint(1, 4)
    x[axis] = d.rng.randint(count, 9)
    results: dict[str, Any] = (
        {"axis": axis - len(x) if d.opset >= 11 and d.chance(0.3) else axis}
        if axis or d.chance(0.7)
        else {}
    )
    array = d.array(x, np.float32 if d.chance(0.7) else d.kind("T"))
    if d.chance(0.5):
        cuts = sorted(d.rng.randint(0, x[axis]) for _ in range(count - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, x[axis]], strict=True)]
        if d.opset < 13:
            return [array], {**results, "split": sizes}, count
        return [array, d.vector(1, sizes)], results, count
    if d.opset >= 18:
        return [array], {**results, "num_outputs": count}, count
    if d.chance(0.8):
        x[axis] = count * d.one(1, 2, 3)
        array = d.array(x)
    return [array], results, count


def _bound(d: Draw, size: int) -> int:
    if d.chance(0.2):
        return d.one(
            INT64_MAX, INT64_MIN, INT64_MAX - 1, INT64_MIN + 1, 1 << 31, -(1 << 31), 1000, -1000
        )
    return d.rng.randint(-size - 3, size + 3)


@draws("Slice")
def _slice(d: Draw) -> Drawn:
    x = d.shape(1, 4)
    axes = d.axes(len(x), 1)
    starts, ends = ([_bound(d, x[axis]) for axis in axes] for _ in range(2))
    array = d.array(x, np.float32 if d.chance(0.6) else d.kind("T"))
    plain = sorted(axes) == list(range(len(axes))) and d.chance(0.5)
    if plain:
        axes = list(range(len(axes)))
    if d.opset < 10:
        return [array], {"starts": starts, "ends": ends, **({} if plain else {"axes": axes})}
    steps = [d.one(1, 1, 2, 3, -1, -1, -2, -3) for _ in axes]
    if d.chance(0.04):
        steps[0] = d.one(INT64_MAX, INT64_MIN, 100, -100)
    kind = np.int64 if d.chance(0.85) else np.int32
    clipped = [
        np.clip(part, np.iinfo(kind).min, np.iinfo(kind).max)
        for part in (starts, ends, axes, steps)
    ]
    vectors = [d.vector(place + 1, part, kind) for place, part in enumerate(clipped)]
    if plain:
        vectors[2] = None  # type: ignore[call-overload]
    if d.chance(0.3):
        vectors = vectors[: 2 if plain else 3]
    return [array, *vectors], {}


@draws("Pad")
def _pad(d: Draw) -> Drawn:
    x = d.shape(1, 4)
    mode = d.some(
        mode=["constant", "reflect", "edge", "wrap"]
        if d.opset >= 19
        else ["constant", "reflect", "edge"]
    )
    chosen = (
        sorted(d.rng.sample(range(len(x)), d.rng.randint(1, len(x))))
        if d.opset >= 18 and d.chance(0.3)
        else None
    )
    count = 2 * len(chosen if chosen is not None else x)
    pads = [d.rng.randint(-2, 3) if d.chance(0.2) else d.rng.randint(0, 2) for _ in range(count)]
    array = d.array(x, np.float32 if d.chance(0.8) else np.int64)
    if d.opset < 11:
        return [array.astype(np.float32)], {"pads": pads, **mode}
    inputs = [array, d.vector(1, pads)]
    if chosen is not None:
        named = [a - len(x) if d.chance(0.3) else a for a in chosen]
        return [*inputs, np.array(0, array.dtype), d.vector(3, named)], mode
    return [*inputs, *([np.array(0, array.dtype)] if d.chance(0.4) else [])], mode


@draws("Range")
def _range(d: Draw) -> Drawn:
    kind = d.one(np.float32, np.float32, np.float64, np.int64, np.int32, np.int16)
    if np.dtype(kind).kind == "i":
        numbers: list[Any] = [d.rng.randint(-9, 9), d.rng.randint(-9, 9), d.one(1, 2, 3, -1, -2, 7)]
    else:
        digits = d.one(1, 1, 2, 3, 6)
        numbers = [
            round(d.rng.uniform(-2, 2), digits),
            round(d.rng.uniform(-2, 4), digits),
            round(d.rng.uniform(0.05, 0.7) * d.one(1, 1, 1, -1), digits),
        ]
        if d.chance(0.4):
            numbers[1] = numbers[0] + numbers[2] * d.rng.randint(1, 20)
        if abs(numbers[2]) < 1e-3:
            numbers[2] = 0.1
    if d.chance(0.9):
        d.constant |= {0, 1, 2}
    return [np.array(number, kind) for number in numbers], {}


@draws("Shape")
def _shape(d: Draw) -> Drawn:
    results = {
        name: d.rng.randint(-6, 6) for name in ("start", "end") if d.opset >= 15 and d.chance(0.5)
    }
    return [d.array(d.shape(0, 4), d.kind("T"))], results


@draws(
    "Gather",
    "GatherElements",
    "GatherND",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "TensorScatter",
)
def _gather(d: Draw) -> Drawn | None:
    x = tuple(max(size, 1) for size in d.shape(1, 4))
    axis, kind = d.rng.randrange(len(x)), np.float32
    named = axis - len(x) if d.opset >= 11 and d.chance(0.3) else axis
    result = {"axis": named} if axis or d.chance(0.7) else {}
    if d.op == "Gather":
        return [d.array(x, kind), d.array(d.shape(0, 3), np.int64, 0, x[axis])], result
    if d.op in ("GatherElements", "Scatter", "ScatterElements"):
        part = [d.rng.randint(1, size) for size in x]
        indices = d.array(part, np.int64, 0, x[axis])
        if d.op == "GatherElements":
            return [d.array(x, kind), indices], result
        return [d.array(x, kind), indices, d.array(part, kind)], result
    if d.op == "TensorScatter":
        return None
    batch = (
        d.rng.randint(0, len(x) - 1)
        if d.op == "GatherND" and d.opset >= 12 and d.chance(0.4)
        else 0
    )
    depth = d.rng.randint(1, len(x) - batch)
    lead = (*x[:batch], *(max(size, 1) for size in d.shape(0, 2)))
    if not lead and d.chance(0.5):
        lead = (2,)
    indices = d.array((*lead, depth), np.int64, 0, min(x[batch : batch + depth]))
    if d.op == "GatherND":
        return [d.array(x, kind), indices], {"batch_dims": batch} if batch else {}
    return [d.array(x, kind), indices, d.array((*lead, *x[depth:]), kind)], {}


_SEQUENCES = frozenset({"ConcatFromSequence", "SequenceAt", "SequenceLength"})
"""Operators that read a sequence and give a tensor; the sequence is made in front of them."""


def _of_sequence(d: Draw) -> Case:
    x = d.shape(1, 3)
    axis = d.rng.randrange(len(x))
    parts: list[Any] = []
    for _ in range(d.rng.randint(1, 3)):
        other = [*x[:axis], d.size(), *x[axis + 1 :]] if d.chance(0.5) else x
        parts.append(d.array(other))
    attributes: dict[str, Any] = {}
    if d.op == "ConcatFromSequence":
        attributes = {"axis": d.rng.choice([axis, axis - len(x)]), **d.some(new_axis=[0, 0, 1])}
    names = [f"i{slot}" for slot in range(len(parts))]
    before = onnx.helper.make_node("SequenceConstruct", names, ["s"])
    read = ["s"]
    if d.op == "SequenceAt":
        read.append(f"i{len(parts)}")
        parts.append(d.vector(len(parts), [d.rng.randrange(len(parts))]).reshape(()))
    node = onnx.helper.make_node(d.op, read, ["o0"], **attributes)
    return Case(node, d.opset, parts, frozenset(d.constant), before=[before])


@draws("Compress")
def _compress(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 3))
    axis = d.rng.randrange(len(x))
    result = {"axis": axis} if d.chance(0.7) else {}
    count = x[axis] if result else int(np.prod(x))
    condition = d.array((d.rng.randint(1, count),), np.bool_)
    if d.chance(0.5):
        d.constant.add(1)
    return [d.array(x), condition], result


@draws("OneHot")
def _one_hot(d: Draw) -> Drawn:
    indices = d.array(d.shape(0, 3), np.int64)
    depth = d.vector(1, [d.rng.randint(1, 6)])
    if d.chance(0.5):
        depth = depth.reshape(())
    rank = indices.ndim
    return [indices, depth, d.floats(2)], {"axis": d.rng.randint(-rank - 1, rank)} if d.chance(
        0.6
    ) else {}


@draws("TopK")
def _top_k(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 4))
    axis = d.rng.randrange(len(x))
    results: dict[str, Any] = {"axis": axis - len(x) if d.chance(0.3) and d.opset >= 11 else axis}
    count = d.rng.randint(0 if d.chance(0.1) else 1, x[axis])
    if d.opset < 10:
        return [d.array(x)], {**results, "k": count}, 2
    if d.opset >= 11:
        results |= d.some(largest=[0, 1], sorted=[0, 1])
    return [d.array(x), d.vector(1, [count])], results, 2


@draws("Unique")
def _unique(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 3))
    return (
        [d.array(x, np.int64)],
        {**d.some(sorted=[0, 1]), **({"axis": d.axis(len(x))} if d.chance(0.5) else {})},
        d.rng.randint(1, 4),
    )


@draws("EyeLike")
def _eye_like(d: Draw) -> Drawn:
    return [d.floats(d.size(), d.size())], d.some(k=[0, 1, -1], dtype=[1, 7])


@draws("DepthToSpace", "SpaceToDepth")
def _depth(d: Draw) -> Drawn:
    block = d.rng.randint(1, 3)
    results = {"blocksize": block}
    if d.op == "DepthToSpace":
        x = (d.one(1, 2), block * block * d.one(1, 2), *d.sizes(2, 1, 4))
        return [d.floats(*x)], {**results, **(d.some(mode=["DCR", "CRD"]) if d.opset >= 11 else {})}
    return [
        d.floats(
            d.one(1, 2),
            d.one(1, 2),
            *[block * d.rng.randint(1, 3) + (1 if d.chance(0.05) else 0) for _ in range(2)],
        )
    ], results


@draws("ReverseSequence")
def _reverse(d: Draw) -> Drawn:
    x = d.sizes(d.one(2, 3), 1, 4)
    axis = d.one(0, 1)
    return [d.floats(*x), np.ones(x[1 - axis], np.int64)], {
        "time_axis": axis,
        "batch_axis": 1 - axis,
    }


@draws("CenterCropPad")
def _crop(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 4))
    axes = d.axes(len(x), 1) if d.chance(0.5) else None
    sizes = d.sizes(len(x if axes is None else axes), 1, 9)
    return [d.array(x), d.vector(1, sizes)], {} if axes is None else {"axes": axes}


@draws("Col2Im")
def _col2im(d: Draw) -> Drawn:
    count = d.one(1, 2)
    kernel, strides, dilations = d.sizes(count, 1, 3), d.sizes(count, 1, 2), d.sizes(count, 1, 2)
    image = d.sizes(count, 5, 9)
    pads = d.sizes(2 * count, 0, 1)
    blocks = [
        (i + p + q - g * (k - 1) - 1) // t + 1
        for i, k, t, g, p, q in zip(
            image, kernel, strides, dilations, pads[:count], pads[count:], strict=True
        )
    ]
    x = (d.one(1, 2), d.one(1, 2) * int(np.prod(kernel)), int(np.prod(blocks)))
    return [d.floats(*x), d.vector(1, image), d.vector(2, kernel)], {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
    }


# -- reductions ---------------------------------------------------------------------------------

_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
               "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")  # fmt: skip


@draws(*_REDUCTIONS)
def _reduce(d: Draw) -> Drawn:
    x = d.shape(0, 4)
    axes = None if d.chance(0.2) else d.axes(len(x), 0 if d.chance(0.1) else 1)
    result = d.some(keepdims=[0, 1])
    since = 13 if d.op == "ReduceSum" else 18
    if d.opset >= since and d.chance(0.3):
        result["noop_with_empty_axes"] = d.one(0, 1)
    return _with_axes(d, d.array(x), axes, since, **result)


@draws("ArgMax", "ArgMin")
def _arg(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(0, 4))
    result = d.some(keepdims=[0, 1])
    if d.opset >= 12:
        result |= d.some(select_last_index=[0, 1])
    return [d.array(x)], {**result, **({"axis": d.axis(len(x))} if d.chance(0.8) else {})}


@draws("CumSum", "CumProd")
def _cumulative(d: Draw) -> Drawn:
    x = d.shape(1, 3)
    return [d.array(x), d.vector(1, [d.axis(len(x))]).reshape(())], d.some(
        exclusive=[0, 1], reverse=[0, 1]
    )


@draws("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _softmax(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 4))
    return [d.array(x)], {"axis": d.axis(len(x))} if d.chance(0.7) else {}


# -- products -----------------------------------------------------------------------------------


def _matrices(d: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    m, k, n = d.sizes(3, 1, 4)
    one, other = d.broadcast(2)
    left, right = (*one[:2], m, k), (*other[:2], k, n)
    if d.chance(0.15):
        left = (k,)
    if d.chance(0.15):
        right = (k,)
    return left, right


@draws("MatMul", "MatMulInteger", "QLinearMatMul")
def _matmul(d: Draw) -> Drawn:
    left, right = _matrices(d)
    if d.op == "MatMul":
        kind = d.one(np.float32, np.float32, np.float64, np.int64)
        if d.opset < 9:
            kind = np.float32
        return [d.array(left, kind), d.array(right, kind)], {}
    a, b = d.array(left, np.uint8), d.array(right, np.uint8)
    if d.op == "MatMulInteger":
        return [a, b], {}
    scale, point = np.array(0.5, np.float32), np.array(1, np.uint8)
    d.constant |= {1, 2, 4, 5, 6, 7}
    return [a, scale, point, b, scale, point, scale, point], {}


@draws("Gemm")
def _gemm(d: Draw) -> Drawn:
    m, k, n = d.sizes(3, 1, 5)
    result = d.some(transA=[0, 1], transB=[0, 1], alpha=[0.5], beta=[2.0])
    a = (k, m) if result.get("transA") else (m, k)
    b = (n, k) if result.get("transB") else (k, n)
    c = d.one((m, n), (n,), (1, n), (m, 1), (), (1,), (1, 1))
    if d.chance(0.05):
        c = d.one((5, n), (2, m, n))
    absent = d.opset >= 11 and d.chance(0.3)
    return [d.floats(*a), d.floats(*b), *([] if absent else [d.floats(*c)])], result


@draws("Einsum")
def _einsum(d: Draw) -> Drawn:
    sizes = dict(zip("ijkl", d.sizes(4, 1, 4), strict=True))
    equation = d.one(
        "ij,jk->ik", "ij,jk", "ij->ji", "ii->i", "ij->", "ij", "i,j->ij", "bij,bjk->bik", "ij,ij->i", "ii",
        "...i,...i->...", "...ij,...jk->...ik", "...ii->...i", "i...->...", "...,...->...", "...ij,...jk", "ij...->j...",
        "i...,j...->ij...", " ij , jk -> ki", "ijk,ijl->kl", "iij->ij", "ji",
    )  # fmt: skip
    sizes["b"] = d.one(1, 3)
    dots = d.broadcast(2)
    arrays: list[Any] = []
    for place, term in enumerate(equation.replace(" ", "").split("->")[0].split(",")):
        shape: list[int] = []
        rest = term
        while rest:
            if rest.startswith("..."):
                shape += dots[place][:2]
                rest = rest[3:]
            else:
                shape.append(1 if d.chance(0.08) else sizes[rest[0]])
                rest = rest[1:]
        arrays.append(d.floats(*shape))
    return arrays, {"equation": equation}


@draws("Det")
def _det(d: Draw) -> Drawn:
    n = d.rng.randint(1, 3)
    return [d.floats(*d.shape(0, 2), n, n)], {}


# -- normalization, recurrence ------------------------------------------------------------------


@draws("BatchNormalization", "InstanceNormalization", "GroupNormalization")
def _batch_norm(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(2 if d.op == "BatchNormalization" else 3, 5))
    channels = x[1]
    if d.op == "InstanceNormalization":
        return [d.floats(*x), d.floats(channels), d.floats(channels)], {}
    if d.op == "GroupNormalization":
        groups = d.rng.choice([n for n in range(1, channels + 1) if channels % n == 0])
        width = channels if d.opset >= 21 else groups
        return [d.floats(*x), d.floats(width), d.floats(width)], {"num_groups": groups}
    vectors = [np.abs(d.floats(channels)) for _ in range(4)]
    if d.opset >= 14 and d.chance(0.3):
        return [d.floats(*x), *vectors], {"training_mode": 1}, 3
    return [d.floats(*x), *vectors], {"spatial": 1} if d.opset < 9 and d.chance(0.3) else {}


@draws("LayerNormalization", "RMSNormalization")
def _layer_norm(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 4))
    axis = d.rng.randrange(len(x))
    inside = (
        x[axis:]
        if d.chance(0.8)
        else tuple(1 if d.chance(0.5) else dim for dim in x[d.rng.randrange(len(x)) :])
    )
    results = {"axis": axis - len(x) if d.chance(0.5) else axis}
    if d.op == "RMSNormalization":
        return [d.floats(*x), d.floats(*inside)], results
    bias = [d.floats(*inside)] if d.chance(0.5) else []
    return [d.floats(*x), d.floats(*inside), *bias], results, d.one(1, 1, 3)


@draws("RNN", "GRU", "LSTM")
def _recurrent(d: Draw) -> Drawn:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.op]
    steps, batch, inner, hidden = d.sizes(4, 1, 4)
    direction = d.one("forward", "reverse", "bidirectional")
    both = 2 if direction == "bidirectional" else 1
    layout = d.one(0, 1) if d.opset >= 14 and d.chance(0.4) else 0
    results: dict[str, Any] = (
        {} if direction == "forward" and d.chance(0.5) else {"direction": direction}
    )
    if d.chance(0.8):
        results["hidden_size"] = hidden
    if layout:
        results["layout"] = 1
    x = (batch, steps, inner) if layout else (steps, batch, inner)
    inputs: list[Any] = [
        d.floats(*x),
        d.floats(both, gates * hidden, inner),
        d.floats(both, gates * hidden, hidden),
    ]
    if d.chance(0.4):
        inputs += [d.floats(both, 2 * gates * hidden), np.full(batch, steps, np.int32)]
        inputs.append(d.floats(*((batch, both, hidden) if layout else (both, batch, hidden))))
    return inputs, results, d.rng.randint(1, 3 if d.op == "LSTM" else 2)


# -- signals, losses, text ----------------------------------------------------------------------


@draws("DFT")
def _dft(d: Draw) -> Drawn:
    x = (*(max(size, 1) for size in d.shape(2, 3)), d.one(1, 1, 2))
    result = d.some(onesided=[0, 1], inverse=[0, 1])
    inputs: list[Any] = [
        d.floats(*x),
        d.vector(1, [d.rng.randint(1, 9)]).reshape(()) if d.chance(0.4) else None,
    ]
    axis = d.rng.randrange(len(x) - 1)
    if d.opset >= 20:
        inputs.append(
            d.vector(2, [axis - len(x) if d.chance(0.3) else axis]).reshape(())
            if d.chance(0.6)
            else None
        )
    elif d.chance(0.6):
        result["axis"] = axis
    while inputs[-1] is None:
        inputs.pop()
    return inputs, result


@draws("STFT")
def _stft(d: Draw) -> Drawn:
    frame, step = d.rng.randint(2, 9), d.rng.randint(1, 5)
    length = frame + d.rng.randint(0, 20)
    window = np.abs(d.floats(frame)) if d.chance(0.6) else None
    inputs: list[Any] = [
        d.floats(d.one(1, 2), length, d.one(1, 1, 2)),
        d.vector(1, [step]).reshape(()),
        window,
    ]
    if window is None or d.chance(0.5):
        inputs.append(d.vector(3, [frame]).reshape(()))
    return inputs, d.some(onesided=[0, 1])


@draws("MelWeightMatrix")
def _mel(d: Draw) -> Drawn:
    numbers = [
        d.vector(place, [number]).reshape(())
        for place, number in enumerate([d.rng.randint(1, 5), d.rng.randint(4, 17), 8192])
    ]
    return [*numbers, np.array(0.0, np.float32), np.array(4096.0, np.float32)], {}


@draws("BlackmanWindow", "HammingWindow", "HannWindow")
def _windows(d: Draw) -> Drawn:
    return [d.vector(0, [d.rng.randint(1, 12)]).reshape(())], d.some(periodic=[0, 1])


@draws("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(d: Draw) -> Drawn:
    batch, classes, rest = (
        d.rng.randint(1, 3),
        d.rng.randint(2, 4),
        d.sizes(d.rng.randint(0, 2), 1, 3),
    )
    result = d.some(reduction=["none", "mean", "sum"])
    inputs = [d.floats(batch, classes, *rest), d.array((batch, *rest), np.int64, 0, classes)]
    if d.chance(0.4):
        inputs.append(np.abs(d.floats(classes)))
    return inputs, result, d.one(1, 2) if d.op == "SoftmaxCrossEntropyLoss" else 1


@draws("StringSplit")
def _string_split(d: Draw) -> Drawn:
    return (
        [d.array(tuple(max(s, 1) for s in d.shape(0, 3)), np.object_)],
        d.some(delimiter=[" ", "b"], maxsplit=[1, 2]),
        2,
    )


@draws("StringNormalizer")
def _string_normalizer(d: Draw) -> Drawn:
    shape = d.one((4,), (1, 4), (1,), (1, 1))
    return [d.array(shape, np.object_)], {
        **d.some(case_change_action=["LOWER", "UPPER"]),
        **({"stopwords": ["a"]} if d.chance(0.6) else {}),
    }


@draws("TfIdfVectorizer")
def _tfidf(d: Draw) -> Drawn:
    x = d.one((5,), (2, 4), (1, 3))
    results = {
        "mode": d.one("TF", "IDF", "TFIDF"), "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0,
        "ngram_counts": [0, 2], "ngram_indexes": d.one([0, 1, 2], [0, 1, 5]), "pool_int64s": [1, 2, 1, 2],
    }  # fmt: skip
    return [d.array(x, np.int64)], results


@draws("NonMaxSuppression")
def _suppression(d: Draw) -> Drawn:
    count = d.rng.randint(1, 4)
    inputs: list[Any] = [np.abs(d.floats(1, count, 4)), np.abs(d.floats(1, d.one(1, 2), count))]
    if d.chance(0.7):
        inputs.append(d.vector(2, [d.rng.randint(0, 3)]))
    return inputs, {}


@draws("QuantizeLinear", "DequantizeLinear")
def _quantize(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 4))
    axis = d.rng.randrange(len(x))
    per_axis = d.opset >= 13 and d.chance(0.5)
    shape: tuple[int, ...] = (x[axis],) if per_axis else ()
    array = d.floats(*x) if d.op == "QuantizeLinear" else d.array(x, np.uint8)
    return [array, np.abs(d.floats(*shape)) + np.float32(0.1), np.ones(shape, np.uint8)], {
        "axis": axis
    } if per_axis else {}


@draws("RandomNormal", "RandomUniform")
def _random(d: Draw) -> Drawn:
    return [], {"shape": list(d.shape(1, 4)), **d.some(dtype=[1, 11], seed=[1.0])}


@draws("Multinomial")
def _multinomial(d: Draw) -> Drawn:
    return [d.floats(d.rng.randint(1, 3), d.rng.randint(1, 4))], d.some(
        sample_size=[1, 3], dtype=[6, 7]
    )


@draws("Cast")
def _cast(d: Draw) -> Drawn:
    return [d.array(d.shape(), d.one(np.float32, np.int64, np.bool_))], {
        "to": d.one(1, 6, 7, 9, 10, 11)
    }


@draws("BitCast")
def _bit_cast(d: Draw) -> Drawn:
    source = d.one(np.float32, np.int64, np.uint8, np.int32)
    return [d.array(d.shape(), source)], {"to": d.one(1, 6, 7, 2, 3, 11, 12)}


@draws("Attention")
def _attention(d: Draw) -> Drawn:
    batch, q_len, k_len, size, v_size = d.sizes(5, 1, 4)
    kv_heads = d.one(1, 2)
    heads = kv_heads * d.one(1, 2)
    flat = d.chance(0.4)

    def tensor(count: int, length: int, width: int) -> Array:
        return (
            d.floats(batch, length, count * width)
            if flat
            else d.floats(batch, count, length, width)
        )

    results: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv_heads} if flat else {}
    results |= d.some(is_causal=[0, 1], scale=[0.5])
    inputs: list[Any] = [
        tensor(heads, q_len, size),
        tensor(kv_heads, k_len, size),
        tensor(kv_heads, k_len, v_size),
    ]
    outputs = 1
    if d.chance(0.3):
        past = d.rng.randint(0, 3)
        inputs += [
            None,
            d.floats(batch, kv_heads, past, size),
            d.floats(batch, kv_heads, past, v_size),
        ]
        outputs = d.one(3, 4)
    elif d.chance(0.3):
        inputs.append(d.floats(q_len, k_len))
    return inputs, results, outputs


@draws("ai.onnx.ml::ArrayFeatureExtractor")
def _extractor(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 3))
    return [
        d.floats(*x),
        d.array(d.one((1,), (2,), (3,)) if d.chance(0.7) else (1, 2), np.int64, 0, x[-1]),
    ], {}


@draws("ai.onnx.ml::FeatureVectorizer")
def _vectorizer(d: Draw) -> Drawn:
    widths = d.sizes(d.rng.randint(1, 3), 1, 3)
    return [d.floats(2, width) for width in widths], {"inputdimensions": widths}


@draws("ai.onnx.ml::LinearRegressor")
def _linear(d: Draw) -> Drawn:
    targets, width = d.one(1, 2), d.rng.randint(1, 3)
    return [d.floats(d.rng.randint(1, 3), width)], {
        "coefficients": [0.5] * (targets * width),
        "targets": targets,
    }


@draws("ai.onnx.ml::LinearClassifier")
def _classifier(d: Draw) -> Drawn:
    classes, width = d.one(1, 2, 3), d.rng.randint(1, 3)
    return (
        [d.floats(d.rng.randint(1, 3), width)],
        {
            "coefficients": [0.5] * (classes * width),
            "intercepts": [0.1] * classes,
            "classlabels_ints": d.one(list(range(classes)), [0, 1]),
        },
        2,
    )


@draws("ai.onnx.ml::OneHotEncoder")
def _encoder(d: Draw) -> Drawn:
    return [d.array(d.shape(0, 3), np.int64)], {
        "cats_int64s": list(range(d.rng.randint(1, 4))),
        "zeros": 1,
    }


@draws("ai.onnx.ml::LabelEncoder")
def _labels(d: Draw) -> Drawn:
    return [d.array(d.shape(0, 3), np.int64)], {
        "keys_int64s": [0, 1, 2],
        "values_floats": [0.5, 1.5, 2.5],
    }


@draws("ai.onnx.ml::Imputer")
def _imputer(d: Draw) -> Drawn:
    x = d.shape(1, 3)
    return [d.floats(*x)], {
        "imputed_value_floats": [1.0] * d.one(1, x[-1] or 1),
        "replaced_value_float": 0.0,
    }


@draws("ai.onnx.ml::Scaler")
def _scaler(d: Draw) -> Drawn:
    x = d.shape(1, 3)
    return [d.floats(*x)], {
        "offset": [0.5] * d.one(1, x[-1] or 1),
        "scale": [2.0] * d.one(1, x[-1] or 1),
    }


# -- control flow -------------------------------------------------------------------------------


_STATE_BODIES = (
    "(int64 i, bool c, float[{dims}] s) => (bool c2, float[{dims}] t, float[] o) {{ c2 = Identity(c) t = Identity(s) o = Relu(s) }}",
    "(int64 i, bool c, float[{dims}] s) => (bool c2, float[{dims}] t, float[] o) {{ c2 = Identity(c) t = Concat<axis = 0>(s, s) o = ReduceSum(s) }}",
    "(int64 i, bool c, float[{dims}] s) => (bool c2, float[{dims}] t, float[] o) {{ c2 = Identity(c) t = Transpose(s) o = Shape(s) }}",
    "(int64 i, bool c, float[{dims}] s) => (bool c2, float[{dims}] t, float[] o) {{ c2 = Identity(c) a = ReduceSum(s) t = Add(s, a) o = Flatten(a) }}",
)


@draws("Loop")
def _loop(d: Draw) -> Drawn:
    x = tuple(max(size, 1) for size in d.shape(1, 2))
    dims = d.one(",".join(map(str, x)), ",".join("?" * len(x)), ",".join("NM"[: len(x)]))
    text = d.rng.choice(_STATE_BODIES).format(dims=dims).replace("float[] o", "o")
    body = onnx.parser.parse_graph(f"body {text.replace(', o)', ', float o)')}")
    for entry in body.output[2:]:
        entry.ClearField("type")
    count = d.vector(0, [d.rng.randint(0, 3)]).reshape(())
    return [count, np.array(True), d.floats(*x)], {"body": body}, 2


@draws("Scan")
def _scan(d: Draw) -> Drawn | None:
    if d.opset < 9:
        return None
    state, slices = d.sizes(d.one(1, 2), 1, 3), d.sizes(d.one(1, 2), 1, 3)
    length, named = d.rng.randint(1, 3), d.one(True, False)
    mine, theirs = (
        ",".join(map(str, dims) if named else "?" * len(dims)) for dims in (state, slices)
    )
    text = d.one(
        "t = Identity(s) o = Relu(x)",
        "t = Concat<axis = 0>(s, s) o = Identity(s)",
        "t = Transpose(s) o = Concat<axis = 0>(x, x)",
    )
    body = onnx.parser.parse_graph(
        f"body (float[{mine}] s, float[{theirs}] x) => (float[{mine}] t, float o) {{ {text} }}"
    )
    body.output[1].ClearField("type")
    results = {
        "body": body,
        "num_scan_inputs": 1,
        **d.some(scan_output_axes=[[0], [1]], scan_input_directions=[[0], [1]]),
    }
    return [d.floats(*state), d.floats(length, *slices)], results, 2


@draws("If")
def _if(d: Draw) -> Drawn:
    first = d.shape(0, 2)
    bodies = [
        onnx.helper.make_graph(
            [onnx.helper.make_node("ConstantOfShape", ["k"], ["y"])], name, [],
            [onnx.helper.make_tensor_value_info("y", 1, None)],
            [onnx.numpy_helper.from_array(np.array(shape, np.int64), "k")],
        )
        for name, shape in zip(("a", "b"), [first, d.one(first, d.shape(0, 2))], strict=True)
    ]  # fmt: skip
    return [d.array((), np.bool_)], dict(zip(("then_branch", "else_branch"), bodies, strict=True))


# -- by the schema, and by onnx's node tests ----------------------------------------------------

_BY_NAME: Mapping[str, Sequence[Any]] = {
    "axis": (-2, -1, 0, 1, 2), "keepdims": (0, 1), "alpha": (0.5, 1.0), "beta": (0.5, 2.0), "seed": (1.0,),
    "dtype": (1, 7, 11), "to": (1, 6, 7, 9), "upper": (0, 1), "detect_positive": (0, 1), "fmod": (0, 1),
    "direction": ("LEFT", "RIGHT"), "epsilon": (1e-3,), "size": (1, 3), "bias": (1.0,), "lambd": (0.5,),
    "approximate": ("none", "tanh"), "pattern": ("a.*",), "threshold": (0.5,), "norm": ("MAX", "L1", "L2"),
    "stash_type": (1,), "axes": ([0], [1], [0, 1], [-1]), "p": (1, 2), "cast_to": ("TO_FLOAT", "TO_INT64"),
}  # fmt: skip
_BROADCASTING = frozenset(
    ["Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
     "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "PRelu", "StringConcat", "Sub", "Sum", "Where", "Xor"]
)  # fmt: skip


def _by_schema(d: Draw) -> Drawn:
    schema = _schema(d.op, d.opset)
    count = d.rng.randint(schema.min_input, min(schema.max_input, max(schema.min_input, 3)))
    shapes = d.broadcast(count) if d.op in _BROADCASTING else [d.shape()] * count
    kinds: dict[str, Any] = {}
    arrays: list[Any] = []
    for slot in range(count):
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)]
        kind = (
            kinds.setdefault(formal.type_str, d.kind(formal.type_str))
            if formal.type_str not in kinds
            else kinds[formal.type_str]
        )
        shape = shapes[slot]
        if d.op in ("Clip", "Dropout", "Trilu") and slot:
            shape = ()
        arrays.append(d.array(shape, kind, 1, 5))
    results = {
        name: d.rng.choice(_BY_NAME[name])
        for name, entry in schema.attributes.items()
        if name in _BY_NAME and (entry.required or d.chance(0.4))
    }
    return (
        arrays,
        results,
        d.rng.randint(schema.min_output, min(schema.max_output, max(schema.min_output, 2))),
    )


@cache
def node_tests() -> Mapping[str, Sequence[tuple[onnx.NodeProto, list[Any]]]]:
    """Onnx's node tests of one node whose inputs are tensors, by operator.

    Making them takes seconds, so that they are kept in ``build`` for the next process.
    """
    retained = Path(f"build/sizes/node_tests.{onnx.__version__}.pickle")
    if retained.exists():
        return pickle.loads(retained.read_bytes())
    results: dict[str, list[tuple[onnx.NodeProto, list[Any]]]] = {}
    for name in backend.names():
        if not name.startswith("node/"):
            continue
        case = backend.load(name)
        nodes = case.model.graph.node
        if len(nodes) != 1 or not case.runs:
            continue
        node, feeds = nodes[0], case.runs[0].feeds
        arrays = [feeds.get(entry) if entry else None for entry in node.input]
        arguments = [array for array, entry in zip(arrays, node.input, strict=True) if entry]
        if all(isinstance(array, np.ndarray) for array in arguments):
            op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            results.setdefault(op, []).append((node, arrays))
    retained.parent.mkdir(parents=True, exist_ok=True)
    partial = retained.with_suffix(f".{os.getpid()}")
    partial.write_bytes(pickle.dumps(results))
    partial.rename(retained)
    return results


def _by_test(op: str, opset: int, rng: random.Random) -> Case:
    """A node test of onnx, in which sizes that are equal are changed together."""
    test, argument = rng.choice(node_tests()[op])
    node = onnx.NodeProto()
    node.CopyFrom(test)
    arrays = list(argument)
    if rng.random() < 0.7:
        sizes = {dim for array in arrays if array is not None for dim in array.shape}
        chosen = {dim: max(0, dim + rng.randint(-2, 3)) for dim in sizes if rng.random() < 0.4}
        arrays = [
            array
            if array is None
            or (array.dtype.kind in "iu" and array.ndim <= 1 and rng.random() < 0.7)
            else np.resize(array, [chosen.get(dim, dim) for dim in array.shape])
            for array in arrays
        ]
    for entry in node.attribute:
        if entry.type == onnx.AttributeProto.INT and rng.random() < 0.2:
            entry.i += rng.choice([-1, 1])
    node.input[:] = ["" if array is None else f"i{slot}" for slot, array in enumerate(arrays)]
    node.output[:] = [f"o{slot}" if entry else "" for slot, entry in enumerate(node.output)]
    constant = {
        slot
        for slot, array in enumerate(arrays)
        if array is not None and array.dtype.kind in "iu" and rng.random() < 0.5
    }
    return Case(node, opset, arrays, frozenset(constant))


# -- a case -------------------------------------------------------------------------------------

_TRIES = 4


def draw(op: str, opset: int, rng: random.Random) -> Case | None:
    """A case of an operator; None where its inputs are beyond what is drawn here."""
    tests = node_tests().get(op, ())
    family = FAMILIES.get(op)
    case = None
    if tests and rng.random() < (0.04 if family else 0.6):
        case = _by_test(op, opset, rng)
    if op in _SEQUENCES:
        case = _of_sequence(Draw(op, opset, rng))
    if case is None:
        d = Draw(op, opset, rng)
        try:
            drawing = family(d) if family else _by_schema(d)
        except LookupError:
            drawing = None
        if drawing is None:
            return _by_test(op, opset, rng) if tests else None
        arrays, attributes, *more = drawing
        domain, _, name = op.rpartition("::")
        entry = _schema(op, opset).attributes
        attributes = {key: value for key, value in attributes.items() if key in entry}
        node = node_of(name, arrays, attributes, more[0] if more else 1, domain)
        case = Case(
            node,
            opset,
            arrays,
            frozenset(
                slot for slot in d.constant if slot < len(arrays) and arrays[slot] is not None
            ),
        )
    _disturb(case, rng)
    _name_sizes(case, rng)
    return case


def _disturb(case: Case, rng: random.Random) -> None:
    """Now and then change a size that others may depend on: what runs all the same is a case."""
    if rng.random() < 0.93:
        return
    slots = [
        slot
        for slot, array in enumerate(case.arrays)
        if isinstance(array, np.ndarray) and array.ndim
    ]
    if slots:
        slot = rng.choice(slots)
        shape = list(case.arrays[slot].shape)
        shape[rng.randrange(len(shape))] = rng.choice([1, 2, 3])
        case.arrays[slot] = np.resize(case.arrays[slot], shape)


def _name_sizes(case: Case, rng: random.Random) -> None:
    """Declare sizes of inputs as symbols or unknown, in a part of the cases."""
    if rng.random() < 0.6:
        return
    by_size: dict[int, str] = {}
    for slot, array in enumerate(case.arrays):
        if not isinstance(array, np.ndarray) or slot in case.constant:
            continue
        dims: list[int | str | None] = []
        for place, size in enumerate(array.shape):
            kind = rng.random()
            if kind < 0.5:
                dims.append(size)
            elif kind < 0.9:
                dims.append(
                    by_size.setdefault(size, f"N{slot}_{place}")
                    if rng.random() < 0.7
                    else f"M{slot}_{place}"
                )
            else:
                dims.append(None)
        case.dims[slot] = tuple(dims)
