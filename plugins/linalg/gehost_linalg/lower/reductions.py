"""Reductions that fill with the neutral element and accumulate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gehost import Refused
from gehost_linalg.affine import Const, Dim, Expr
from gehost_linalg.generic import Arg, Literal, Ref, Size, Value, is_known
from gehost_linalg.lower.elementwise import div, mul, number
from gehost_linalg.lower.nodes import FLOAT_DTYPES, Lowering, OnnxOp, Scalars


@dataclass(frozen=True)
class Reduction:
    """The operation that accumulates, its neutral element, and the last step."""

    combine: str
    neutral: float
    before: Callable[[Scalars, Ref, str], Ref] | None = None
    after: Callable[[Scalars, Ref, str], Ref] | None = None


def _square(s: Scalars, x: Ref, dtype: str) -> Ref:
    return mul(s, x, x, dtype)


def _of(name: str) -> Callable[[Scalars, Ref, str], Ref]:
    return lambda s, x, dtype: s.add(name, x, dtype=dtype)


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction("arith.addf", 0.0),
    "ReduceMean": Reduction("arith.addf", 0.0),
    "ReduceProd": Reduction("arith.mulf", 1.0),
    "ReduceMax": Reduction("arith.maximumf", -math.inf),
    "ReduceMin": Reduction("arith.minimumf", math.inf),
    "ReduceSumSquare": Reduction("arith.addf", 0.0, before=_square),
    "ReduceL1": Reduction("arith.addf", 0.0, before=_of("math.absf")),
    "ReduceL2": Reduction("arith.addf", 0.0, before=_square, after=_of("math.sqrt")),
    "ReduceLogSum": Reduction("arith.addf", 0.0, after=_of("math.log")),
}


def reduce(
    op: OnnxOp,
    x: Value,
    out: Value,
    axes: Sequence[int],
    reduction: Reduction,
    *,
    keepdims: bool = True,
) -> Value:
    """Accumulate ``x`` along ``axes`` into ``out``."""
    shape, s = x.shape or (), Scalars()
    dtype = out.dtype = x.dtype
    retained = [axis for axis in range(len(shape)) if axis not in axes]
    out_map: list[Expr] = [
        Const(0) if axis in axes else Dim(axis)
        for axis in range(len(shape))
        if keepdims or axis not in axes
    ]
    sizes: list[Size] = [
        1 if axis in axes else shape[axis]
        for axis in range(len(shape))
        if keepdims or axis in retained
    ]
    op.assign_type(out, sizes)
    element: Ref = Arg(0) if reduction.before is None else reduction.before(s, Arg(0), dtype)
    payload = s.payload(s.add(reduction.combine, Arg(1), element, dtype=dtype))
    init = number(reduction.neutral, dtype)
    identity: list[Expr] = [Dim(loop) for loop in range(len(shape))]
    return op.generic([(x, identity)], out, out_map, len(shape), payload, reduced=axes, init=init)


def count(op: OnnxOp, s: Scalars, x: Value, axes: Sequence[int], dtype: str) -> Ref:
    """The number of elements along ``axes``, computed at run time.

    It is at least 1: the mean of no elements is 0, as in ONNX Runtime.
    """
    result: Ref | None = None
    shape = x.shape or ()
    for axis in axes:
        size = s.add("arith.index_cast", op.names.extent(shape[axis]), dtype="i64")
        result = size if result is None else s.add("arith.muli", result, size, dtype="i64")
    if result is not None and not all(is_known(shape[axis]) for axis in axes):
        result = s.add("arith.maxsi", result, Literal(1, "i64"), dtype="i64")
    return number(1, dtype) if result is None else s.add("arith.sitofp", result, dtype=dtype)


def mapped(op: OnnxOp, x: Value, out: Value, change: Callable[[Scalars, Ref], Ref]) -> Value:
    """Apply a scalar function to every element."""
    s = Scalars()
    return op.same_loops([x], out, s.payload(change(s, Arg(0))))


def mean(
    op: OnnxOp,
    x: Value,
    out: Value,
    axes: Sequence[int],
    reduction: Reduction,
    *,
    keepdims: bool = True,
) -> Value:
    """The sum along ``axes``, divided by their number of elements."""
    total = op.temporary(
        f"sum{len(op.made)}",
        x.dtype,
        (None,) * (len(x.shape or ()) if keepdims else len(x.shape or ()) - len(axes)),
    )
    reduce(op, x, total, axes, reduction, keepdims=keepdims)
    out.dtype = x.dtype
    return mapped(
        op, total, out, lambda s, value: div(s, value, count(op, s, x, axes, x.dtype), x.dtype)
    )


def _reduce(op: OnnxOp) -> None:
    x, out, shape = op.input(0), op.single_output(), op.shape()
    if x.dtype not in FLOAT_DTYPES:
        raise Refused("not-lowered", f"{op.op} of {x.dtype}")
    argument = op.parameter(1, "axes")
    if not argument and int(op.attributes.get("noop_with_empty_axes", 0)):
        raise Refused("not-lowered", f"{op.op} without axes")
    axes = sorted(op.axes(argument, len(shape))) if argument else list(range(len(shape)))
    empty = {"ReduceMax", "ReduceMin", "ReduceMean"}  # the result is not that of the loops
    if any(shape[axis] in {0, "0"} for axis in axes) and op.op in empty:
        raise Refused("not-lowered", f"{op.op} of an axis of size 0")
    keepdims = bool(int(op.attributes.get("keepdims", 1)))
    reduction = REDUCTIONS[op.op]
    if op.op == "ReduceMean":
        mean(op, x, out, axes, reduction, keepdims=keepdims)
        return
    if reduction.after is None:
        reduce(op, x, out, axes, reduction, keepdims=keepdims)
        return
    after = reduction.after
    total = op.temporary(
        "sum", x.dtype, (None,) * (len(shape) if keepdims else len(shape) - len(axes))
    )
    reduce(op, x, total, axes, reduction, keepdims=keepdims)
    out.dtype = x.dtype
    mapped(op, total, out, lambda s, value: after(s, value, x.dtype))


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(REDUCTIONS, _reduce)
