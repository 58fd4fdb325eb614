"""Assembly of payloads: the block of a ``linalg.generic`` and its scalar operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gehost import quoting
from gehost_linalg.affine import AffineMap, Binary, Const, Dim, Expr, substitute
from gehost_linalg.generic import (
    INDEX,
    Arg,
    Literal,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Value,
)
from gehost_linalg.mlir.literals import has_elements, read_constant
from gehost_linalg.mlir.opaque import check_known, end_of_statement, result_types, template_of
from gehost_linalg.mlir.reader import Reader
from gehost_linalg.mlir.scalars import Scalar, element_of, read_scalar, scalar_of_parts
from gehost_linalg.mlir.types import TypeReader
from gehost_linalg.operations import OPERATIONS
from gehost_mlir.source import NAME, OPERATION, SSA, STRING

_LABEL = re.compile(rf"\^{NAME}(?![A-Za-z0-9_$.-])")


class _Names:
    """The values that a payload names: its arguments and results, and those outside."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._outside = reader.values
        self._refs: dict[str, Ref] = {}
        self._dtypes: dict[str, str] = {}

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

    def _known(self, ssa: str) -> Ref | None:
        cached = self._refs.get(ssa)
        if cached is None and ssa in self._outside:
            outside = self._outside[ssa]
            return (outside.splat if outside.is_scalar else None) or outside
        return cached


class PayloadReader(_Names):
    """The block of a ``linalg.generic``."""

    def __init__(
        self,
        reader: Reader,
        ins: Sequence[Value],
        outs: Sequence[Value],
    ) -> None:
        super().__init__(reader)
        self._types = [value.dtype for value in (*ins, *outs)]
        self._ops: list[ScalarOp] = []
        self._guessed: dict[str, int] = {}
        """Results of unknown operations, by the number of the operation."""
        self._has_apply = False

    def read(self) -> Payload:
        """Read from the label to the closing brace."""
        reader = self._reader
        if self._types or reader.peek("^"):
            reader.take(_LABEL, "the payload's block, ^bb0(…)")
            self.arguments()
            reader.expect(":")
        return self.body()

    def arguments(self) -> None:
        """``(%in: f32, %out: f32)``."""
        reader = self._reader
        reader.listed("(", ")", self._argument)
        count = len(self._refs)
        if count < len(self._types):
            raise reader.error(f"the payload has {count} arguments for {len(self._types)} operands")

    def body(self) -> Payload:
        """The operations, to the closing brace."""
        reader = self._reader
        while not (reader.accept("linalg.yield") or reader.peek('"linalg.yield"')):
            self._operation()
        if reader.match(STRING):
            yields = reader.listed("(", ")", self._ref)
            reader.expect(":")
            reader.expect("(")
            self._yielded(yields, first="")
            for literal in (")", "->", "(", ")"):
                reader.expect(literal)
        else:
            yields = list[tuple[Ref, str]]()
            while reader.accept(",") if yields else reader.peek("%"):
                yields.append(self._ref())
            self._yielded(yields)
        reader.expect("}")
        payload = Payload(tuple(self._ops), tuple([ref for ref, _ in yields]))
        # affine.apply was read as an index of its own: those that it takes are not needed
        return payload.live() if self._has_apply else payload

    def _yielded(self, yields: Sequence[tuple[Ref, str]], first: str = ":") -> None:
        reader = self._reader
        for place, (ref, dtype) in enumerate(yields):
            if place or first:
                reader.expect("," if place else first)
            start = reader.skip()
            declared = reader.dtype()
            if declared != dtype:
                if ref not in [Res(item) for item in self._guessed.values()]:
                    raise reader.error(f"yield {place} is {dtype}, not {declared}", start)
                assert isinstance(ref, Res)
                self._ops[ref.index] = self._ops[ref.index]._replace(dtype=declared)

    def _argument(self) -> None:
        reader, count = self._reader, len(self._refs)
        start = reader.skip()
        ssa = reader.take(SSA, "an argument")
        reader.expect(":")
        dtype = reader.dtype()
        expected = self._types[count] if count < len(self._types) else "no further argument"
        if dtype != expected:
            raise reader.error(
                f"argument {count} of the payload is {dtype}, its operand has {expected}", start
            )
        self._set(ssa, Arg(count), dtype, start)

    def _operation(self) -> None:
        reader = self._reader
        start = reader.skip()
        names = [reader.take(SSA, "an operation of the payload, or linalg.yield")]
        if reader.accept(":"):
            count = reader.integer("the number of results")
            names = [f"{names[0]}#{item}" for item in range(min(count, 64))]
        while reader.accept(","):
            names.append(reader.take(SSA, "a result"))
        reader.expect("=")
        at = reader.skip()
        quoted = reader.match(STRING)
        name = (
            reader.take(OPERATION, "an operation")
            if quoted is None
            else quoting.text_of_mlir(quoted)
        )
        behind = reader.position
        if name == "arith.constant":
            inside = reader if quoted is None else self._value_in_generic_form()
            if has_elements(inside):
                literal = read_constant(inside, names[0]).splat
                if literal is None:
                    raise reader.error("a constant of the payload must be a scalar", at)
                self._set(names[0], literal, literal.dtype, start)
                return
            reader.position = behind
        if quoted is not None:
            result = self._in_generic_form(name, at, names)
        elif name == INDEX:
            loop = reader.integer("the number of a loop")
            self._typed("index")
            result = [ScalarOp(INDEX, (), "index", Dim(loop))]
        elif name == "affine.apply":
            result = [self._index(_read_apply(reader, self._expr))]
        elif name in OPERATIONS:
            result = _results(name, read_scalar(reader, name, at, self._ref))
        else:
            check_known(reader, name, at)
            reader.position = behind
            result = [self._as_text(name, names)]
        if len(result) != len(names):
            raise reader.error(f"{name} has {len(result)} results, {len(names)} are named", start)
        for ssa, op in zip(names, result, strict=True):
            self._ops.append(op)
            self._set(ssa, Res(len(self._ops) - 1), op.dtype, start)

    def _value_in_generic_form(self) -> TypeReader:
        """Read a constant behind its name; return a reader of its value."""
        reader = self._reader
        start = reader.skip()
        reader.expect("(")
        reader.expect(")")
        text = reader.dictionary().get("value", "")
        for literal in (":", "(", ")", "->"):
            reader.expect(literal)
        reader.dtype()
        return reader.part(text, start)

    def _in_generic_form(self, name: str, at: int, names: list[str]) -> list[ScalarOp]:
        reader = self._reader
        if name not in {INDEX, "affine.apply", *OPERATIONS}:
            return [self._as_text(quoting.mlir_string(name), names)]
        operands = reader.listed("(", ")", self._ref)
        attributes = reader.dictionary() if reader.has_properties() else {}
        if reader.peek("{"):
            attributes |= reader.dictionary()
        reader.expect(":")
        reader.listed("(", ")", reader.dtype)
        reader.expect("->")
        results = [type_.type_text for type_ in reader.result_types(names)]
        if name == INDEX:
            loop = reader.part(attributes.get("dim", ""), at).integer("the number of a loop")
            return [ScalarOp(INDEX, (), "index", Dim(loop))]
        if name in OPERATIONS:
            return _results(name, scalar_of_parts(reader, name, at, operands, attributes, results))
        map_, _ = reader.part(attributes.get("map", ""), at).any_map()
        values = [_expr_of(ref, self._ops, reader, at) for ref, _ in operands]
        return [self._index(_applied(reader, map_, values, at))]

    def _as_text(self, name: str, names: list[str]) -> ScalarOp:
        """An operation that is carried through."""
        reader = self._reader
        begin = reader.position
        end = end_of_statement(reader, is_generic=name.startswith('"'))
        template, refs = template_of(reader, begin, end, self._known)
        results = result_types(reader, begin, end, names)
        if len(results) != 1:
            raise reader.error(f"{name} of a payload has one result", begin)
        dtype = results[0].type_text
        if results[0] in reader.guessed:
            reader.guessed.discard(results[0])
            dtype = _RESULTS[name](dtype) if name in _RESULTS else dtype
            self._guessed[names[0]] = len(self._ops)
        reader.position = end
        return ScalarOp(name, tuple(refs), dtype, template)

    def _typed(self, dtype: str) -> None:
        self._reader.expect(":")
        self._reader.expect(dtype)

    def _index(self, expr: Expr) -> ScalarOp:
        """An ``affine.apply``, which becomes the index of its expression."""
        self._has_apply = True
        return ScalarOp(INDEX, (), "index", expr)

    def _expr(self) -> Expr:
        at = self._reader.skip()
        return _expr_of(self._ref()[0], self._ops, self._reader, at)


def _read_apply(reader: Reader, read_expr: Callable[[], Expr]) -> Expr:
    """``affine_map<(d0)[s0] -> (d0 + s0)>(%i)[%j]``."""
    start = reader.skip()
    map_, symbols = reader.any_map()
    dims = reader.listed("(", ")", read_expr)
    others = reader.listed("[", "]", read_expr) if reader.peek("[") else []
    count = len(dims) + len(others)
    if (count, len(others)) != (map_.dims, symbols):
        raise reader.error(f"affine.apply of {map_} with {count} indices", start)
    return _applied(reader, map_, [*dims, *others], start)


def _applied(reader: Reader, map_: AffineMap, values: Sequence[Expr], start: int) -> Expr:
    if (len(values), len(map_.results)) != (map_.dims, 1):
        raise reader.error(f"affine.apply of {map_} with {len(values)} indices", start)
    return substitute(map_.results[0], list(values))


def _expr_of(ref: Ref, ops: Sequence[ScalarOp], reader: Reader, at: int) -> Expr:
    """The expression over loops that an index is."""
    op = ops[ref.index] if isinstance(ref, Res) else None
    if isinstance(ref, Literal):
        return Const(int(ref.value))
    if op is not None and isinstance(op.attribute, Dim | Const | Binary):
        return op.attribute
    raise reader.error("affine.apply takes indices of loops", at)


def _results(name: str, scalar: Scalar[Ref]) -> list[ScalarOp]:
    """An operation for each result."""
    operands = tuple(scalar.operands)
    if len(scalar.results) == 1:
        return [ScalarOp(name, operands, scalar.results[0], scalar.attribute, scalar.flags)]
    return [
        ScalarOp(name, operands, dtype, number, scalar.flags)
        for number, dtype in enumerate(scalar.results)
    ]


def _part_of_complex(dtype: str) -> str:
    return dtype.removeprefix("complex<").removesuffix(">")


def _truth(dtype: str) -> str:
    del dtype
    return "i1"


_RESULTS: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys(("complex.re", "complex.im", "complex.abs", "complex.angle"), _part_of_complex),
    **dict.fromkeys(("complex.eq", "complex.neq"), _truth),
    "tensor.extract": element_of,
}
"""The types of results of operations whose text ends with the type of an operand."""
