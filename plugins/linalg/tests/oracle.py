"""``iree-base-compiler`` as the reference for fusion: run in process, read back, compared Generic by Generic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from gehost_linalg.affine import Binary, Const, Dim, Expr, binary, substitute
from gehost_linalg.generic import INDEX, Arg, Generic, Literal, Payload, Ref, Res, ScalarOp, expr_of
from gehost_linalg.mlir import Function, parse
from gehost_linalg.operations import NUMPY, OPERATIONS, compute

COMMUTATIVE = {
    "arith.addf",
    "arith.mulf",
    "arith.maximumf",
    "arith.minimumf",
    "arith.addi",
    "arith.muli",
}


class Iree:
    """MLIR's own parser, verifier and fusion pass."""

    def __init__(self) -> None:
        from iree.compiler import ir, passmanager

        self._ir = ir
        self._context = ir.Context()
        self._pass_manager = passmanager.PassManager

    def verify(self, text: str) -> None:
        """Parse and verify; raises with MLIR's message."""
        with self._context:
            self._ir.Module.parse(text).operation.verify()

    def fused(self, text: str, passes: str = "linalg-fuse-elementwise-ops") -> str:
        with self._context:
            module = self._ir.Module.parse(text)
            self._pass_manager.parse(f"builtin.module({passes})").run(module.operation)
            return str(module)

    def fused_functions(self, text: str) -> list[Function]:
        return parse(self.fused(text))


def signature(op: Generic) -> tuple[Any, ...]:
    """What must be equal: maps in order, iterator types, payload operations in order, the set of indices."""
    units = {loop for loop, size in enumerate(op.extents()) if size == 1}
    payload = op.payload.live()
    places = [_without_units(index, units, op.loops) for index in payload.indices]
    indices = frozenset(
        str(_distributed(index)) for index in places if not isinstance(index, Const)
    )
    return tuple(map(str, op.maps)), op.iterators, _payload(payload, units, op.loops), indices


def _distributed(expr: Expr) -> Expr:
    """``d0 * 2 + 2`` for ``(d0 + 1) * 2``, as ``affine.apply`` folds it."""
    if not isinstance(expr, Binary):
        return expr
    lhs, rhs = _distributed(expr.lhs), _distributed(expr.rhs)
    if expr.op == "+":
        return _sum(expr)
    if expr.op != "*" or not isinstance(lhs, Binary) or lhs.op != "+":
        return binary(expr.op, lhs, rhs)
    return binary("+", *[_distributed(binary("*", item, rhs)) for item in (lhs.lhs, lhs.rhs)])


def _sum(expr: Expr) -> Expr:
    """The terms of a sum in one order."""

    def terms(item: Expr) -> list[Expr]:
        if isinstance(item, Binary) and item.op == "+":
            return [*terms(item.lhs), *terms(item.rhs)]
        return [_distributed(item)]

    first, *others = sorted(terms(expr), key=str)
    for other in others:
        first = Binary("+", first, other)
    return first


def _without_units(expr: Expr, units: set[int], loops: int) -> Expr:
    """MLIR makes a constant of the index of a loop of size 1."""
    return substitute(expr, [Const(0) if loop in units else Dim(loop) for loop in range(loops)])


def _payload(payload: Payload, units: set[int], loops: int) -> tuple[Any, ...]:
    places: dict[int, int] = {}

    folded: dict[int, Ref] = {}

    def shown(ref: Ref) -> str:
        if isinstance(ref, Arg):
            return f"arg{ref.index}"
        if isinstance(ref, Res):
            if ref.index in folded:
                return shown(folded[ref.index])
            op = payload.ops[ref.index]
            if op.name == INDEX:
                return f"index {_distributed(_without_units(expr_of(op), units, loops))}"
            return f"r{places[ref.index]}"
        return f"literal {float(ref.value):.5g}" if isinstance(ref, Literal) else "outside"

    items: list[tuple[Any, ...]] = []
    for place, op in enumerate(payload.ops):
        if op.name == INDEX:
            place_of = _without_units(expr_of(op), units, loops)
            if isinstance(place_of, Const):
                folded[place] = Literal(place_of.value, "index")
            continue
        read = [folded.get(ref.index, ref) if isinstance(ref, Res) else ref for ref in op.operands]
        simple = _simplified(op, read)
        if simple is not None:
            folded[place] = simple
            continue
        places[place] = len(items)
        operands = [shown(ref) for ref in op.operands]
        items.append(
            (
                op.name.strip('"'),
                tuple(sorted(operands) if op.name in COMMUTATIVE else operands),
                op.dtype,
            )
        )
    return (*items, tuple(map(shown, payload.yields)))


def _simplified(op: ScalarOp, operands: list[Ref]) -> Ref | None:
    """What MLIR's driver makes of an operation of constants, or with a neutral one."""
    literals = [ref for ref in operands if isinstance(ref, Literal)]
    if len(literals) == len(operands) and op.name in OPERATIONS and op.dtype in NUMPY:
        with np.errstate(all="ignore"):
            values = [NUMPY[ref.dtype](ref.value) for ref in literals]
            result = compute(op.name.strip('"'), values, op.dtype, op.attribute)
        return Literal(result.item(), op.dtype)
    if op.name == "arith.select" and isinstance(operands[0], Literal):
        return operands[1] if operands[0].value else operands[2]
    if op.name == "arith.mulf" and isinstance(operands[0], Literal):
        operands = [*reversed(operands)]
    if len(operands) == 2 and isinstance(operands[1], Literal):
        value = operands[1].value
        neutral = {
            "arith.mulf": 1,
            "arith.divf": 1,
            "arith.muli": 1,
            "arith.addi": 0,
            "arith.subi": 0,
            "arith.subf": 0,
        }
        if neutral.get(op.name) == value:
            return operands[0]
        if op.name == "arith.cmpi" and op.attribute == "ne" and value is False:
            return operands[0]
    return None


def signatures(function: Function) -> Counter[tuple[Any, ...]]:
    return Counter(
        signature(op) for op in function.ops if isinstance(op, Generic) and op.named is None
    )


__all__ = ["Binary", "Const", "Dim", "Iree", "signature", "signatures"]
