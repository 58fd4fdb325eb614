"""Operators whose elements depend on their place, by ``linalg.index``."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gehost import DataType, Refused
from gehost_linalg.affine import Const, Dim, Expr
from gehost_linalg.generic import Arg, Literal, Ref, Size
from gehost_linalg.lower.elementwise import cast_scalar, number
from gehost_linalg.lower.nodes import (
    FLOAT_DTYPES,
    MLIR_DTYPES,
    Lowering,
    OnnxOp,
    Scalars,
)


def _identity(rank: int) -> list[Expr]:
    return [Dim(loop) for loop in range(rank)]


def _trilu(op: OnnxOp) -> None:
    """Keep the elements on one side of a diagonal.

    Upper: column - row ≥ k; lower: column - row ≤ k.
    """
    x, out, shape = op.input(0), op.single_output(), op.shape()
    if len(shape) < 2:
        raise Refused("not-lowered", f"Trilu of rank {len(shape)}")
    k = 0
    if op.optional(1) is not None:
        if 1 not in op.constants:
            raise Refused("not-lowered", "Trilu with a diagonal that is computed")
        k = int(op.constants[1].reshape(-1)[0])
    s = Scalars()
    distance = s.add("arith.subi", s.index(len(shape) - 1), s.index(len(shape) - 2), dtype="i64")
    predicate = "sge" if int(op.attributes.get("upper", 1)) else "sle"
    retained = s.add("arith.cmpi", distance, Literal(k, "i64"), dtype="i1", attribute=predicate)
    zero = Literal(False, "i1") if x.dtype == "i1" else number(0, x.dtype)  # noqa: FBT003
    result = s.add("arith.select", retained, Arg(0), zero, dtype=x.dtype)
    op.assign_type(out, shape, x.dtype)
    op.generic(
        [(x, _identity(len(shape)))], out, _identity(len(shape)), len(shape), s.payload(result)
    )


def _eye_like(op: OnnxOp) -> None:
    x, out, shape = op.input(0), op.single_output(), op.shape()
    if len(shape) != 2:
        raise Refused("not-lowered", f"EyeLike of rank {len(shape)}")
    dtype = x.dtype
    if "dtype" in op.attributes:
        dtype = MLIR_DTYPES.get(DataType(int(op.attributes["dtype"])), "")
    if not dtype:
        raise Refused("dtype", "EyeLike")
    s = Scalars()
    distance = s.add("arith.subi", s.index(1), s.index(0), dtype="i64")
    k = Literal(int(op.attributes.get("k", 0)), "i64")
    on = s.add("arith.cmpi", distance, k, dtype="i1", attribute="eq")
    op.assign_type(out, shape, dtype)
    op.generic(
        [(x, _identity(2))], out, _identity(2), 2, s.payload(cast_scalar(s, on, "i1", dtype))
    )


def _one_hot(op: OnnxOp) -> None:
    """On where the new axis's index is the element, else off.

    Negative elements count from the end.
    """
    indices, out, shape = op.input(0), op.single_output(), op.shape()
    depth, values = op.parameter(1, "depth"), op.input(2)
    if depth is None or len(depth) != 1 or indices.dtype not in {"i32", "i64"} or values.rank != 1:
        raise Refused("not-lowered", "OneHot with a depth that is computed, or of other types")
    rank = len(shape) + 1
    axis = op.axes([int(op.attributes.get("axis", -1))], rank)[0]
    s = Scalars()
    expected: Ref = cast_scalar(s, Arg(0), indices.dtype, "i64")
    negative = s.add("arith.cmpi", expected, Literal(0, "i64"), dtype="i1", attribute="slt")
    wrapped = s.add("arith.addi", expected, Literal(depth[0], "i64"), dtype="i64")
    expected = s.add("arith.select", negative, wrapped, expected, dtype="i64")
    hit = s.add("arith.cmpi", s.index(axis), expected, dtype="i1", attribute="eq")
    result = s.add("arith.select", hit, Arg(2), Arg(1), dtype=values.dtype)
    sizes: list[Size] = [*shape[:axis], depth[0] if depth[0] == 1 else str(depth[0]), *shape[axis:]]
    op.assign_type(out, sizes, values.dtype)
    read: list[Expr] = [Dim(loop) for loop in range(rank) if loop != axis]
    ins = [(indices, read), (values, [Const(0)]), (values, [Const(1)])]
    op.generic(ins, out, _identity(rank), rank, s.payload(result))


def _range(op: OnnxOp) -> None:
    """Start + index · delta, where all three are constant."""
    start, delta, out = op.input(0), op.input(2), op.single_output()
    if not {0, 1, 2} <= set(op.constants):
        raise Refused("not-lowered", "Range of computed numbers")
    first, limit, step = (op.constants[place].reshape(-1)[0].item() for place in range(3))
    count = max(0, math.ceil((limit - first) / step)) if step else 0
    dtype, s = start.dtype, Scalars()
    place = cast_scalar(s, s.index(0), "i64", dtype)
    times, plus = (
        ("arith.mulf", "arith.addf") if dtype in FLOAT_DTYPES else ("arith.muli", "arith.addi")
    )
    result = s.add(plus, Arg(0), s.add(times, place, Arg(1), dtype=dtype), dtype=dtype)
    op.assign_type(out, [count if count == 1 else str(count)], dtype)
    op.generic([(start, []), (delta, [])], out, _identity(1), 1, s.payload(result))


LOWERINGS: Mapping[str, Lowering] = {
    "Trilu": _trilu,
    "EyeLike": _eye_like,
    "OneHot": _one_hot,
    "Range": _range,
}
