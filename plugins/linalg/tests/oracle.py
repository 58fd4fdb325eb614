"""``iree-base-compiler`` as the reference for fusion: run in process, read back, compared Generic by Generic."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gehost_linalg.affine import Binary, Const, Dim, Expr, binary
from gehost_linalg.generic import INDEX, Arg, Generic, Literal, Payload, Ref, Res
from gehost_linalg.mlir import Function, parse

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

    def fused(self, text: str) -> str:
        with self._context:
            module = self._ir.Module.parse(text)
            self._pass_manager.parse("builtin.module(linalg-fuse-elementwise-ops)").run(
                module.operation
            )
            return str(module)

    def fused_functions(self, text: str) -> list[Function]:
        return parse(self.fused(text))


def signature(op: Generic) -> tuple[Any, ...]:
    """What must be equal: maps in order, iterator types, payload operations in order, the set of indices."""
    units = {loop for loop, size in enumerate(op.extents()) if size == 1}
    payload = op.payload.live()
    indices = frozenset(
        str(_distributed(each)) for each in payload.indices if not _is_unit(each, units)
    )
    return tuple(map(str, op.maps)), op.iterators, _payload(payload, units), indices


def _distributed(expr: Expr) -> Expr:
    """``d0 * 2 + 2`` for ``(d0 + 1) * 2``, as ``affine.apply`` folds it."""
    if not isinstance(expr, Binary):
        return expr
    lhs, rhs = _distributed(expr.lhs), _distributed(expr.rhs)
    if expr.op != "*" or not isinstance(lhs, Binary) or lhs.op != "+":
        return binary(expr.op, lhs, rhs)
    return binary("+", *[_distributed(binary("*", each, rhs)) for each in (lhs.lhs, lhs.rhs)])


def _is_unit(expr: object, units: set[int]) -> bool:
    """MLIR makes a constant of the index of a loop of size 1."""
    return isinstance(expr, Dim) and expr.index in units


def _payload(payload: Payload, units: set[int]) -> tuple[Any, ...]:
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
                return f"index {_distributed(op.attribute)}"
            return f"r{places[ref.index]}"
        return f"literal {float(ref.value)}" if isinstance(ref, Literal) else "outside"

    listed: list[tuple[Any, ...]] = []
    for place, op in enumerate(payload.ops):
        if op.name == INDEX:
            if _is_unit(op.attribute, units):
                folded[place] = Literal(0, "index")
            continue
        source = op.operands[0]
        source = folded.get(source.index, source) if isinstance(source, Res) else source
        if op.name in {"arith.index_cast", "arith.sitofp"} and isinstance(source, Literal):
            folded[place] = source  # MLIR casts constants at once
            continue
        places[place] = len(listed)
        operands = [shown(ref) for ref in op.operands]
        listed.append(
            (op.name, tuple(sorted(operands) if op.name in COMMUTATIVE else operands), op.dtype)
        )
    return (*listed, tuple(map(shown, payload.yields)))


def signatures(function: Function) -> Counter[tuple[Any, ...]]:
    return Counter(signature(op) for op in function.ops if isinstance(op, Generic))


__all__ = ["Binary", "Const", "Dim", "Iree", "signature", "signatures"]
