"""Assembly of payloads: the block of a ``linalg.generic`` and its scalar operations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gehost_linalg.affine import Binary, Const, Dim, Expr, substitute
from gehost_linalg.generic import (
    DTYPES,
    INDEX,
    Arg,
    Literal,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Value,
)
from gehost_linalg.mlir.literals import read_constant
from gehost_linalg.mlir.reader import Reader
from gehost_linalg.mlir.types import NAME, OPERATION, SSA
from gehost_linalg.operations import OPERATIONS, PREDICATES, casts, takes

_LABEL = re.compile(rf"\^{NAME}(?![A-Za-z0-9_$.-])")


def scalar_text(op: ScalarOp, operands: str, types: Sequence[str]) -> str:
    """A scalar operation, without its result."""
    form = OPERATIONS[op.name].form
    if form == "compare":
        return f"{op.name} {op.attribute}, {operands} : {types[0]}"
    if form == "cast":
        return f"{op.name} {operands} : {types[0]} to {op.dtype}"
    return f"{op.name} {operands} : {op.dtype}"


class PayloadReader:
    """The block of a ``linalg.generic``."""

    def __init__(
        self,
        reader: Reader,
        ins: Sequence[Value],
        outs: Sequence[Value],
    ) -> None:
        self._reader = reader
        self._outside = reader.values
        self._types = [value.dtype for value in (*ins, *outs)]
        self._refs: dict[str, Ref] = {}
        self._dtypes: dict[str, str] = {}
        self._ops: list[ScalarOp] = []
        self._has_apply = False

    def read(self) -> Payload:
        reader = self._reader
        reader.take(_LABEL, "the payload's block, ^bb0(…)")
        reader.listed("(", ")", self._argument)
        count = len(self._refs)
        if count < len(self._types):
            raise reader.error(f"the payload has {count} arguments for {len(self._types)} operands")
        reader.expect(":")
        while not reader.accept("linalg.yield"):
            self._operation()
        yields: list[tuple[Ref, str]] = []
        while reader.accept(",") if yields else reader.peek("%"):
            yields.append(self._ref())
        for place, (_, dtype) in enumerate(yields):
            reader.expect("," if place else ":")
            reader.expect(dtype)
        reader.expect("}")
        payload = Payload(tuple(self._ops), tuple([ref for ref, _ in yields]))
        # affine.apply was read as an index of its own: those that it takes are not needed
        return payload.live() if self._has_apply else payload

    def _argument(self) -> None:
        reader, count = self._reader, len(self._refs)
        start = reader.skip()
        ssa = reader.take(SSA, "an argument")
        reader.expect(":")
        dtype = reader.take(OPERATION, "an element type")
        wanted = self._types[count] if count < len(self._types) else "no further argument"
        if dtype != wanted:
            raise reader.error(
                f"argument {count} of the payload is {dtype}, its operand has {wanted}", start
            )
        self._set(ssa, Arg(count), dtype, start)

    def _set(self, ssa: str, ref: Ref, dtype: str, start: int) -> None:
        if ssa in self._refs or ssa in self._outside:
            raise self._reader.error(f"{ssa} is defined twice", start)
        self._refs[ssa], self._dtypes[ssa] = ref, dtype

    def _ref(self) -> tuple[Ref, str]:
        reader = self._reader
        start = reader.skip()
        ssa = reader.take(SSA, "a value")
        if ssa in self._refs:
            return self._refs[ssa], self._dtypes[ssa]
        outside = self._outside.get(ssa)
        if outside is None:
            raise reader.error(f"{ssa} is not defined above", start)
        if not outside.is_scalar:
            raise reader.error(f"{ssa} is a tensor; a payload computes with scalars", start)
        return outside.splat or outside, outside.dtype

    def _operation(self) -> None:
        reader = self._reader
        start = reader.skip()
        ssa = reader.take(SSA, "an operation of the payload, or linalg.yield")
        reader.expect("=")
        at = reader.skip()
        name = reader.take(OPERATION, "an operation")
        if name == "arith.constant":
            literal = read_constant(reader, ssa).splat
            if literal is None:
                raise reader.error("a constant of the payload must be a scalar", at)
            self._set(ssa, literal, literal.dtype, start)
            return
        if name == INDEX:
            loop = reader.integer("the number of a loop")
            self._typed("index")
            op = ScalarOp(INDEX, (), "index", Dim(loop))
        elif name == "affine.apply":
            op = self._apply()
        else:
            op = self._scalar(name, at)
        self._ops.append(op)
        self._set(ssa, Res(len(self._ops) - 1), op.dtype, start)

    def _typed(self, dtype: str) -> None:
        self._reader.expect(":")
        self._reader.expect(dtype)

    def _apply(self) -> ScalarOp:
        """An expression over indices, which becomes the index of that expression."""
        reader = self._reader
        self._has_apply = True
        start = reader.skip()
        map_, symbols = reader.any_map()
        dims = reader.listed("(", ")", self._expr)
        others = reader.listed("[", "]", self._expr) if reader.peek("[") else []
        given = len(dims) + len(others)
        if (given, len(others), len(map_.results)) != (map_.dims, symbols, 1):
            raise reader.error(f"affine.apply of {map_} with {given} indices", start)
        return ScalarOp(INDEX, (), "index", substitute(map_.results[0], [*dims, *others]))

    def _expr(self) -> Expr:
        reader = self._reader
        at = reader.skip()
        ref, _ = self._ref()
        op = self._ops[ref.index] if isinstance(ref, Res) else None
        if isinstance(ref, Literal):
            return Const(int(ref.value))
        if op is not None and isinstance(op.attribute, Dim | Const | Binary):
            return op.attribute
        raise reader.error("affine.apply takes indices of loops", at)

    def _scalar(self, name: str, at: int) -> ScalarOp:
        reader = self._reader
        predicate = None
        operation = OPERATIONS.get(name)
        form = operation.form if operation is not None else "plain"
        if form == "compare":
            start = reader.skip()
            predicate = reader.take(OPERATION, "a predicate")
            if predicate not in PREDICATES[name]:
                known = ", ".join(sorted(PREDICATES[name]))
                raise reader.error(f"{name} has the predicates {known}", start)
            reader.expect(",")
        if operation is None:
            raise reader.error(f"operation {name} is not supported in a payload", at)
        refs: list[tuple[Ref, str]] = []
        for place in range(operation.operands):
            if place:
                reader.expect(",")
            refs.append(self._ref())
        reader.expect(":")
        start = reader.skip()
        dtype = reader.take(OPERATION, "an element type")
        if form == "select" and reader.accept(","):
            dtype = reader.take(OPERATION, "an element type")
        wanted = dtype
        if form == "cast":
            reader.expect("to")
            dtype = reader.take(OPERATION, "an element type")
        if dtype not in DTYPES:
            raise reader.error(
                f"element type {dtype} is not supported; use one of {', '.join(DTYPES)}", start
            )
        types = ["i1", wanted, wanted] if form == "select" else [wanted] * operation.operands
        given = [each for _, each in refs]
        if given != types:
            raise reader.error(f"{name} of {', '.join(given)}, its type is {wanted}", at)
        if form == "cast" and not casts(name, wanted, dtype):
            raise reader.error(f"{name} does not take {wanted} to {dtype}", at)
        if form != "cast" and not takes(name, dtype):
            raise reader.error(f"{name} does not compute with {dtype}", at)
        made = "i1" if form == "compare" else dtype
        return ScalarOp(name, tuple([ref for ref, _ in refs]), made, predicate)
