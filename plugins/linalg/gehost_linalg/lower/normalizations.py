"""Softmax and normalizations: reductions along the last axes, and their uses."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gehost import Refused
from gehost_linalg.generic import Arg, Value
from gehost_linalg.lower.elementwise import add, cast_scalar, div, mul, number, sub
from gehost_linalg.lower.nodes import FLOAT_DTYPES, Lowering, OnnxOp, Scalars
from gehost_linalg.lower.reductions import REDUCTIONS, Reduction, mapped, mean, reduce


def _float_input(op: OnnxOp) -> Value:
    x = op.input(0)
    if x.dtype not in FLOAT_DTYPES:
        raise Refused("not-lowered", f"{op.op} of {x.dtype}")
    return x


def _kept(x: Value, axes: list[int]) -> list[int | str | None]:
    return [1 if axis in axes else size for axis, size in enumerate(x.shape or ())]


def _softmax(op: OnnxOp) -> None:
    """max, exp(x - max), sum, quotient; LogSoftmax: (x - max) - log(sum)."""
    x, out = _float_input(op), op.single_output()
    dtype, shape = x.dtype, op.shape()
    axis = op.axes([int(op.attributes.get("axis", -1 if op.version >= 13 else 1))], len(shape))[0]
    axes = [axis] if op.version >= 13 else list(range(axis, len(shape)))
    if any(shape[item] in {0, "0"} for item in axes):
        raise Refused("not-lowered", f"{op.op} of an axis of size 0")
    top = op.temporary("max", dtype, _kept(x, axes))
    reduce(op, x, top, axes, REDUCTIONS["ReduceMax"])
    out.dtype = dtype
    s = Scalars()
    centred = sub(s, Arg(0), Arg(1), dtype)
    if op.op == "Softmax":
        powers = op.temporary("exp", dtype, shape)
        op.same_loops([x, top], powers, s.payload(s.add("math.exp", centred, dtype=dtype)))
        total = op.temporary("sum", dtype, _kept(x, axes))
        reduce(op, powers, total, axes, REDUCTIONS["ReduceSum"])
        # A product is faster; the sum is at least 1, so its reciprocal is exact enough.
        s = Scalars()
        part = mul(s, Arg(0), div(s, number(1, dtype), Arg(1), dtype), dtype)
        op.same_loops([powers, total], out, s.payload(part))
        return
    shifted = op.temporary("shifted", dtype, shape)
    op.same_loops([x, top], shifted, s.payload(centred))
    total = op.temporary("sum", dtype, _kept(x, axes))
    reduction = Reduction(
        "arith.addf", 0.0, before=lambda s, e, dtype: s.add("math.exp", e, dtype=dtype)
    )
    reduce(op, shifted, total, axes, reduction)
    s = Scalars()
    op.same_loops(
        [shifted, total],
        out,
        s.payload(sub(s, Arg(0), s.add("math.log", Arg(1), dtype=dtype), dtype)),
    )


def _stash(op: OnnxOp, x: Value) -> Value:
    """The input in the type of sums, float32 for half precision."""
    if x.dtype in {"f32", "f64"}:
        return x
    if int(op.attributes.get("stash_type", 1)) != 1:
        raise Refused("not-lowered", f"{op.op} with a stash_type of its own")
    wide = op.temporary("wide", "f32", x.shape or ())
    return mapped(op, x, wide, lambda s, value: cast_scalar(s, value, x.dtype, "f32"))


def _scaled(op: OnnxOp, x: Value, centred: Value, power: Value, *, bias: Value | None) -> None:
    """Centred / √(power + ε) · scale + bias."""
    out, scale, s = op.outputs[0], op.input(1), Scalars()
    assert out is not None
    wide, dtype = centred.dtype, x.dtype
    epsilon = number(float(np.float32(op.attributes.get("epsilon", 1e-5))), wide)
    root = s.add("math.sqrt", add(s, Arg(1), epsilon, wide), dtype=wide)
    result = mul(s, cast_scalar(s, div(s, Arg(0), root, wide), wide, dtype), Arg(2), dtype)
    ins = [centred, power, scale]
    if bias is not None:
        result = add(s, result, Arg(3), dtype)
        ins.append(bias)
    if any(value.dtype != dtype for value in ins[2:]):
        raise Refused("not-lowered", f"{op.op} of several element types")
    out.dtype = dtype
    op.same_loops(ins, out, s.payload(result))


def _row_axes(op: OnnxOp, default: int = -1) -> list[int]:
    rank = len(op.shape())
    first = op.axes([int(op.attributes.get("axis", default))], rank)[0]
    return list(range(first, rank))


def _layer_normalization(op: OnnxOp) -> None:
    """Mean · centre · mean of squares · scale."""
    x = _float_input(op)
    op.single_output()
    axes, shape = _row_axes(op), op.shape()
    wide = _stash(op, x)
    average = op.temporary("mean", wide.dtype, _kept(x, axes))
    mean(op, wide, average, axes, REDUCTIONS["ReduceSum"])
    s = Scalars()
    centred = op.temporary("centred", wide.dtype, shape)
    op.same_loops([wide, average], centred, s.payload(sub(s, Arg(0), Arg(1), wide.dtype)))
    variance = op.temporary("variance", wide.dtype, _kept(x, axes))
    mean(op, centred, variance, axes, REDUCTIONS["ReduceSumSquare"])
    _scaled(op, x, centred, variance, bias=op.optional(2))


def _rms_normalization(op: OnnxOp) -> None:
    """Mean of squares · scale."""
    x = _float_input(op)
    op.single_output()
    axes = _row_axes(op)
    wide = _stash(op, x)
    power = op.temporary("power", wide.dtype, _kept(x, axes))
    mean(op, wide, power, axes, REDUCTIONS["ReduceSumSquare"])
    _scaled(op, x, wide, power, bias=None)


def _log_sum_exp(op: OnnxOp) -> None:
    """log(Σ exp(x)), without the maximum, so that nothing overflows.

    The maximum is taken out where it is finite.
    """
    x, out, shape = _float_input(op), op.single_output(), op.shape()
    argument = op.parameter(1, "axes")
    if not argument and int(op.attributes.get("noop_with_empty_axes", 0)):
        raise Refused("not-lowered", f"{op.op} without axes")
    axes = sorted(op.axes(argument, len(shape))) if argument else list(range(len(shape)))
    if not int(op.attributes.get("keepdims", 1)) or any(shape[axis] in {0, "0"} for axis in axes):
        raise Refused("not-lowered", f"{op.op} that drops axes, or of an axis of size 0")
    dtype = out.dtype = x.dtype
    top = op.temporary("max", dtype, _kept(x, axes))
    reduce(op, x, top, axes, REDUCTIONS["ReduceMax"])
    s = Scalars()
    size = s.add("math.absf", Arg(0), dtype=dtype)
    infinite = s.add("arith.cmpf", size, number(math.inf, dtype), dtype="i1", attribute="oeq")
    finite = op.temporary("finite_max", dtype, _kept(x, axes))
    op.same_loops(
        [top],
        finite,
        s.payload(s.add("arith.select", infinite, number(0, dtype), Arg(0), dtype=dtype)),
    )
    s = Scalars()
    powers = op.temporary("exp", dtype, shape)
    grown = s.add("math.exp", sub(s, Arg(0), Arg(1), dtype), dtype=dtype)
    op.same_loops([x, finite], powers, s.payload(grown))
    total = op.temporary("sum", dtype, _kept(x, axes))
    reduce(op, powers, total, axes, REDUCTIONS["ReduceSum"])
    s = Scalars()
    op.same_loops(
        [total, finite],
        out,
        s.payload(add(s, s.add("math.log", Arg(0), dtype=dtype), Arg(1), dtype)),
    )


LOWERINGS: Mapping[str, Lowering] = {
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "ReduceLogSumExp": _log_sum_exp,
}
