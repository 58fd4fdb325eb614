"""MLIR text of Generics: printed, and the same subset read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy as np

from gehost import printable, quoting
from gehost_linalg.affine import (
    AffineMap,
    Binary,
    Const,
    Dim,
    Expr,
    dims_of,
    parse_map,
    substitute,
)
from gehost_linalg.generic import (
    DTYPES,
    INDEX,
    Arg,
    Generic,
    GenericError,
    Literal,
    Op,
    Opaque,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Size,
    Value,
    dtype_of,
    is_known,
    verify,
)
from gehost_linalg.interpret import Broadcast, Part, Rule, Split, numpy_dtype
from gehost_linalg.reshape import COLLAPSE, EXPAND, axes_of
from gehost_linalg.scanner import Scanner

CASTS = frozenset(
    f"arith.{name}"
    for name in (
        "extf", "truncf", "sitofp", "uitofp", "fptosi", "fptoui", "extsi", "extui", "trunci",
        "index_cast", "bitcast",
    )
)  # fmt: skip
"""Operations whose type is written ``from to to``."""

BINARY = frozenset(
    f"arith.{name}"
    for name in (
        "addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf", "maxnumf", "minnumf",
        "addi", "subi", "muli", "divsi", "divui", "floordivsi", "remsi", "remui",
        "maxsi", "minsi", "maxui", "minui",
        "andi", "ori", "xori", "shli", "shrsi", "shrui",
    )
) | {"math.powf", "math.atan2", "math.copysign"}  # fmt: skip

UNARY = frozenset({"arith.negf"}) | frozenset(
    f"math.{name}"
    for name in (
        "absf", "absi", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos",
        "cosh", "erf", "exp", "exp2", "expm1", "floor", "log", "log10", "log1p", "log2", "round",
        "roundeven", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    )
)  # fmt: skip

SELECT = "arith.select"

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
INDEX_TYPE = "index"
ORDERED = ("eq", "gt", "ge", "lt", "le", "ne")
PREDICATES = {
    "arith.cmpf": {"ord", "uno", *[f"{kind}{each}" for kind in "ou" for each in ORDERED]},
    "arith.cmpi": {"eq", "ne", *[f"{kind}{each}" for kind in "su" for each in ORDERED[1:5]]},
}
COMPARISONS = frozenset(PREDICATES)


@dataclass(eq=False)
class Function:
    """A ``func.func``: arguments, operations in order, and outputs."""

    name: str
    arguments: list[Value]
    ops: list[Op]
    outputs: list[Value]
    notes: dict[Op, list[str]] = field(default_factory=dict[Op, list[str]])
    """Comments above operations."""
    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    """Sizes that are computed from others, by name."""


# -- printing
# --------------------------------------------------------------------------------------------------


def print_function(function: Function) -> str:
    """One ``func.func`` with a ``linalg.generic`` for each Generic."""
    return _Printer(function).text()


def print_generic(op: Generic, name: str = "generic") -> str:
    """A Generic as a function of its operands."""
    arguments = [
        value
        for value in dict.fromkeys(op.operands)
        if value.kind in {"tensor", "scalar"} and value.constant is None
    ]
    read = dict.fromkeys([*arguments, *op.scalars])
    return print_function(Function(name, list(read), [op], list(op.results)))


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*|[0-9]+")


class _Printer:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._names: dict[Value, str] = {}
        self._used: set[str] = set()
        self._lines: list[str] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._sizes: dict[tuple[Value, int] | str, str] = {}
        """The sizes of axes, and sizes by their names."""
        self._roots: dict[tuple[Value, int], tuple[Value, int]] = {}
        """For an axis of a result, that of another tensor of its size."""
        self._merged: dict[tuple[Value, int], tuple[Value, list[int]]] = {}
        """For an axis of a collapsed tensor, the axes that it merges."""

    def text(self) -> str:
        function = self._function
        arguments = ", ".join(
            f"{self._name(value)}: {value.type_text}" for value in function.arguments
        )
        for op in function.ops:
            notes = [line for note in function.notes.get(op, ()) for line in note.splitlines()]
            self._lines += [f"  // {printable(line)}" for line in notes]
            if isinstance(op, Generic):
                self._generic(op)
            else:
                self._opaque(op)
        outputs = [self._value(value, None) for value in function.outputs]
        types = ", ".join(value.type_text for value in function.outputs)
        result = "" if not outputs else f" -> {types}" if len(outputs) == 1 else f" -> ({types})"
        self._lines.append(f"  return {', '.join(outputs)} : {types}" if outputs else "  return")
        head = f"func.func @{_symbol(function.name)}({arguments}){result} {{"
        return "\n".join([head, *self._lines, "}"]) + "\n"

    def _fresh(self, stem: str) -> str:
        stem = (
            stem
            if _PLAIN.fullmatch(stem) and not stem.isdecimal()
            else "v_" + re.sub(r"[^A-Za-z0-9_]", "_", stem)
        )
        name, count = stem, 0
        while name in self._used:
            count += 1
            name = f"{stem}_{count}"
        self._used.add(name)
        return f"%{name}"

    def _name(self, value: Value) -> str:
        if value not in self._names:
            self._names[value] = self._fresh(value.name)
        return self._names[value]

    def _constant(
        self, literal: Literal, shape: tuple[Size, ...] | None = None, text: str = ""
    ) -> str:
        type_text = literal.dtype if shape is None else Value("", literal.dtype, shape).type_text
        shown = text or literal_text(literal)
        key = (shown, type_text)
        if key not in self._constants:
            name = self._constants[key] = self._fresh("cst" if literal.dtype in FLOATS else "c")
            content = shown if shape is None else f"dense<{shown}>"
            typed = "" if content in {"true", "false"} else f" : {type_text}"
            self._lines.append(f"  {name} = arith.constant {content}{typed}")
        return self._constants[key]

    def _value(self, value: Value, op: Generic | None) -> str:
        """The name of an operand.

        Constants, empties and fills are defined at their first use.
        """
        if value in self._names:
            return self._names[value]
        if value.kind == "extent":
            named = self._named_size(value.name)
            if named is None:
                raise GenericError(f"nothing gives the size {value.name}")
            return named
        if value.kind in {"empty", "fill"}:
            unknown = [axis for axis, size in enumerate(value.shape or ()) if not is_known(size)]
            sizes = self._dynamic(value, unknown, op)
            empty = self._fresh(value.name) if value.kind == "empty" else self._fresh("empty")
            self._lines.append(f"  {empty} = tensor.empty({', '.join(sizes)}) : {value.type_text}")
            if value.kind == "empty":
                self._names[value] = empty
                return empty
            assert value.fill is not None
            scalar = (
                self._constant(value.fill)
                if isinstance(value.fill, Literal)
                else self._value(value.fill, None)
            )
            name = self._names[value] = self._fresh(value.name)
            tensor = value.type_text
            types = f"ins({scalar} : {value.dtype}) outs({empty} : {tensor}) -> {tensor}"
            self._lines.append(f"  {name} = linalg.fill {types}")
            return name
        if value.constant is not None:
            elements = value.constant.reshape(-1)
            if value.is_scalar:
                return self._constant(Literal(elements[0].item(), value.dtype))
            splat = value.splat
            text = "" if splat is not None else _dense(value.constant, value.dtype)
            name = self._constant(splat or Literal(0, value.dtype), value.shape, text)
            self._names[value] = name
            return name
        return self._name(value)

    def _dynamic(self, value: Value, unknown: Sequence[int], op: Generic | None) -> list[str]:
        """The unknown sizes of an empty or filled tensor, in order."""
        if value.sizes:
            sizes = [self._value(size, None) for size in value.sizes]
        else:
            sizes = [self._size(value, axis, op) for axis in unknown]
        self._sizes.update({(value, axis): size for axis, size in zip(unknown, sizes, strict=True)})
        return sizes

    def _size(self, value: Value, axis: int, op: Generic | None) -> str:
        """The size of an axis, by name or from an operand.

        The same loop walks along that operand.
        """
        size = None if value.shape is None else value.shape[axis]
        named = self._named_size(size) if isinstance(size, str) else None
        if named is not None:
            return named
        if op is not None and value in op.operands:
            wanted = op.maps[op.operands.index(value)].results[axis]
            found = [
                (maybe_broadcast, other, at)
                for _, other, at, result, maybe_broadcast in op.axes()
                if result == wanted
                and other.kind == "tensor"
                and other.constant is None
                and other is not value
            ]
            if isinstance(wanted, Dim) and found:
                _, other, at = min(found, key=lambda each: each[0])
                return self._dim(other, at)
        raise GenericError(f"nothing gives the size of axis {axis} of {value!r}")

    def _dim(self, value: Value, axis: int) -> str:
        """The size of an axis of a tensor."""
        value, axis = self._roots.get((value, axis), (value, axis))
        if (value, axis) in self._merged:
            source, group = self._merged.pop((value, axis))
            self._sizes[value, axis] = self._product(source, group)
        if (value, axis) not in self._sizes:
            source, number = self._value(value, None), self._constant(Literal(axis, "index"))
            name = self._sizes[value, axis] = self._fresh("dim")
            self._lines.append(f"  {name} = tensor.dim {source}, {number} : {value.type_text}")
        return self._sizes[value, axis]

    def _product(self, value: Value, axes: Sequence[int]) -> str:
        """The size of merged axes, of which one is not known."""
        shape = value.shape or ()
        first, *others = [self._dim(value, axis) for axis in axes if not is_known(shape[axis])]
        known = prod([int(shape[axis] or 0) for axis in axes if is_known(shape[axis])])
        for other in others:
            first = self._index_op("muli", first, other)
        return self._index_op("muli", first, known) if known != 1 else first

    def _named_size(self, size: str) -> str | None:
        """A size by its name, from a tensor or computed.

        Arguments come first, then results, then parts and broadcasts of other sizes.
        """
        if size.isdecimal():
            return self._constant(Literal(int(size), "index"))
        for value in self._names:  # arguments come first
            if value.kind == "tensor" and value.shape is not None and size in value.shape:
                return self._dim(value, value.shape.index(size))
        part = self._function.rules.get(size)
        if isinstance(part, Broadcast):  # the text is that of equal sizes
            return next(filter(None, [self._named_size(str(each)) for each in part.sizes]), None)
        if part is None or part.whole is None or (isinstance(part, Part) and part.end < 0):
            return None
        whole = self._named_size(str(part.whole))
        if whole is None:
            return None
        if size not in self._sizes and isinstance(part, Split):
            self._sizes[size] = self._index_op("divsi", whole, part.of)
        elif size not in self._sizes and isinstance(part, Part):
            made = self._index_op("minsi", whole, part.end) if part.end < 2**31 else whole
            if part.start != part.step - 1:
                made = self._index_op("subi", made, part.start - part.step + 1)
            if part.start >= part.step:  # it may begin behind the end
                made = self._index_op("maxsi", made, 0)
            self._sizes[size] = self._index_op("divsi", made, part.step) if part.step > 1 else made
        return self._sizes[size]

    def _index_op(self, name: str, operand: str, other: str | int) -> str:
        if isinstance(other, int):
            other = self._constant(Literal(other, "index"))
        made = self._fresh("size")
        self._lines.append(f"  {made} = arith.{name} {operand}, {other} : index")
        return made

    def _opaque(self, op: Opaque) -> None:
        operands = [self._value(value, None) for value in op.operands]
        results = ", ".join(
            self._name(value) for value in op.results if op.name != "tensor.extract_slice"
        )
        given = ", ".join(v.type_text for v in op.operands)
        made = ", ".join(v.type_text for v in op.results)
        if op.name == "tensor.concat":
            self._lines.append(
                f"  {results} = tensor.concat dim({op.attribute}) {', '.join(operands)} : "
                f"({given}) -> {made}"
            )
        elif op.name == "tensor.extract_slice":
            self._extract_slice(op)
        elif op.name == COLLAPSE:
            for axis, group in enumerate(axes_of(op)):
                if not is_known((op.results[0].shape or ())[axis]):
                    self._merged[op.results[0], axis] = (op.operands[0], group)
            self._lines.append(
                f"  {results} = {COLLAPSE} {operands[0]} {op.attribute} : {given} into {made}"
            )
        elif op.name == EXPAND:
            sizes = ", ".join(self._split_sizes(op))
            self._lines.append(
                f"  {results} = {EXPAND} {operands[0]} {op.attribute} output_shape [{sizes}] : "
                f"{given} into {made}"
            )
        elif op.name == "tensor.cast":
            self._lines.append(f"  {results} = tensor.cast {operands[0]} : {given} to {made}")
        elif op.name == "tensor.dim":
            number = self._constant(Literal(int(op.attribute), "index"))
            self._lines.append(f"  {results} = tensor.dim {operands[0]}, {number} : {given}")
        else:
            equals = f"{results} = " if results else ""
            attribute = f" {op.attribute}" if op.attribute else ""
            self._lines.append(
                f"  {equals}{quoting.mlir_string(op.name)}({', '.join(operands)}){attribute}"
                f" : ({given}) -> ({made})"
            )

    def _split_sizes(self, op: Opaque) -> Iterator[str]:
        """The sizes of a split axis; an unknown one is a quotient."""
        source, shape = op.operands[0], op.results[0].shape or ()
        if not axes_of(op):  # of rank 0
            yield from map(str, shape)
        for axis, group in enumerate(axes_of(op)):
            unknown = [each for each in group if not is_known(shape[each])]
            if len(unknown) > 1:
                raise GenericError(f"{op.name} {op.attribute}: two sizes of a group are unknown")
            known = [int(shape[each] or 0) for each in group if each not in unknown]
            for each in group:
                if each not in unknown:
                    yield str(shape[each])
                    continue
                size = self._dim(source, axis)
                if prod(known) != 1:
                    size = self._index_op("divsi", size, prod(known))
                self._sizes[op.results[0], each] = size
                yield size

    def _extract_slice(self, op: Opaque) -> None:
        source, value = op.operands[0], op.results[0]
        read = self._value(source, None)
        given = iter(op.operands[1:])  # of a text that was read
        sizes: list[str] = []
        for axis, size in enumerate(value.shape or ()):
            if is_known(size):
                sizes.append(str(size))
                continue
            stated = next(given, None)
            sizes.append(self._value(stated, None) if stated else self._size(value, axis, None))
            self._sizes[value, axis] = sizes[-1]
        begins = str(op.attribute).split(",")
        places = f"[{', '.join(begins)}] [{', '.join(sizes)}] [{', '.join('1' for _ in begins)}]"
        types = f"{source.type_text} to {value.type_text}"
        self._lines.append(f"  {self._name(value)} = tensor.extract_slice {read}{places} : {types}")

    def _generic(self, op: Generic) -> None:
        ins = [self._value(value, op) for value in op.ins]
        outs = [self._value(value, op) for value in op.outs]
        for each in op.payload.ops:  # constants go before the operation
            for ref in each.operands:
                self._outside(ref)
        for ref in op.payload.yields:
            self._outside(ref)
        results = [self._name(op.results[0])] if len(op.results) == 1 else []
        if len(op.results) > 1:
            results = [self._fresh(op.results[0].name.partition("#")[0])]
            self._names.update(
                {value: f"{results[0]}#{place}" for place, value in enumerate(op.results)}
            )
        maps = ", ".join(map(str, op.maps))
        kinds = ", ".join(f'"{kind}"' for kind in op.iterators)
        attributes = f"{{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
        many = f":{len(op.results)}" if len(op.results) > 1 else ""
        equals = f"{results[0]}{many} = " if results else ""
        self._lines.append(
            f"  {equals}linalg.generic "
            f"{attributes}{_typed('ins', ins, op.ins)}{_typed('outs', outs, op.outs)} {{"
        )
        self._lines += [f"  {line}" for line in self._payload(op)]
        types = ", ".join(value.type_text for value in op.results)
        made = f" -> ({types})" if len(op.results) > 1 else f" -> {types}" if results else ""
        self._lines.append(f"  }}{made}")
        self._note_roots(op)

    def _note_roots(self, op: Generic) -> None:
        """Take the sizes of a result from its out.

        Reading them would be another use of the result.
        """
        for out, result in zip(op.outs, op.results, strict=True):
            for axis in range(len(result.shape or ())):
                self._roots[result, axis] = self._roots.get((out, axis), (out, axis))

    def _outside(self, ref: Ref) -> str | None:
        if isinstance(ref, Literal):
            return self._constant(ref)
        return self._value(ref, None) if isinstance(ref, Value) else None

    def _payload(self, op: Generic) -> Iterator[str]:
        names = [
            self._fresh("in" if index < len(op.ins) else "out") for index in range(len(op.operands))
        ]
        arguments = [
            f"{name}: {value.dtype}" for name, value in zip(names, op.operands, strict=True)
        ]
        yield f"^bb0({', '.join(arguments)}):"
        made: list[str] = []

        def shown(ref: Ref) -> str:
            outside = self._outside(ref)
            if outside is not None:
                return outside
            return names[ref.index] if isinstance(ref, Arg) else made[cast("Res", ref).index]

        for each in op.payload.ops:
            if each.name == INDEX:
                yield from self._index(each, made)
                continue
            operands = ", ".join(map(shown, each.operands))
            types = [dtype_of(op, ref) for ref in each.operands]
            made.append(self._fresh("r"))
            yield f"  {made[-1]} = {_operation(each, operands, types)}"
        types = ", ".join(value.dtype for value in op.outs)
        yield f"  linalg.yield {', '.join(map(shown, op.payload.yields))} : {types}"

    def _index(self, op: ScalarOp, made: list[str]) -> Iterator[str]:
        """A loop's index, or ``affine.apply`` of several."""
        expr = cast("Expr", op.attribute)
        name = self._fresh("i")
        if isinstance(expr, Dim):
            yield f"  {name} = linalg.index {expr.index} : index"
            made.append(name)
            return
        loops = sorted(dims_of(expr))
        indices: list[str] = []
        for loop in loops:
            indices.append(self._fresh("i"))
            yield f"  {indices[-1]} = linalg.index {loop} : index"
        places: list[Expr] = [
            Dim(loops.index(loop)) if loop in loops else Const(0)
            for loop in range(max(loops, default=-1) + 1)
        ]
        map_ = AffineMap(len(loops), [substitute(expr, places)])
        yield f"  {name} = affine.apply {map_}({', '.join(indices)})"
        made.append(name)


def _symbol(name: str) -> str:
    return (
        name
        if _PLAIN.fullmatch(name) and not name.isdecimal()
        else '"' + re.sub(r'[^ -~]|["\\]', "_", name) + '"'
    )


def _typed(word: str, names: Sequence[str], values: Sequence[Value]) -> str:
    return (
        f" {word}({', '.join(names)} : {', '.join(value.type_text for value in values)})"
        if values
        else ""
    )


def _operation(op: ScalarOp, operands: str, types: Sequence[str]) -> str:
    if op.name in COMPARISONS:
        return f"{op.name} {op.attribute}, {operands} : {types[0]}"
    if op.name in CASTS:
        return f"{op.name} {operands} : {types[0]} to {op.dtype}"
    return f"{op.name} {operands} : {op.dtype}"


_WIDTHS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_DIGITS_OF = {"f16": 4, "bf16": 4, "f32": 8, "f64": 16}
"""Hexadecimal."""


def literal_text(literal: Literal) -> str:
    """A constant as MLIR writes it; infinities and NaNs by their bits."""
    value, dtype = literal.value, literal.dtype
    if dtype == "i1":
        return "true" if value else "false"
    if dtype not in FLOATS:
        return str(int(value))
    if np.isfinite(value):
        mantissa, e, exponent = repr(float(value)).partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"
    wide = np.asarray(value, np.float32 if dtype == "bf16" else _WIDTHS[dtype])
    bits = int.from_bytes(wide.tobytes(), "little")
    if dtype == "bf16":
        bits >>= 16
    return f"0x{bits:0{_DIGITS_OF[dtype]}X}"


def _dense(array: np.ndarray[Any, Any], dtype: str) -> str:
    if array.ndim == 0:
        return literal_text(Literal(array.item(), dtype))
    return f"[{', '.join(_dense(each, dtype) for each in array)}]"


# -- reading
# --------------------------------------------------------------------------------------------------

_NAME = r"([0-9]+|[A-Za-z_$.-][A-Za-z0-9_$.-]*)"
_SSA = re.compile(rf"%{_NAME}(#[0-9]+)?(?![A-Za-z0-9_$.-])")
_OPERATION = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
_ALIAS = re.compile(r"#[A-Za-z_][A-Za-z0-9_$.-]*")
_TENSOR = re.compile(r"(?:\*x|(?:(?:[0-9]+|\?)x)*)(?=[A-Za-z])")
_MOST_DIGITS = 66
"""Of an integer; 64 bits have fewer in any base."""
_SCALAR = re.compile(r"0x[0-9A-Fa-f]+|-?[0-9]+(\.[0-9]*([eE][+-]?[0-9]+)?)?|true|false")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LABEL = re.compile(rf"\^{_NAME}(?![A-Za-z0-9_$.-])")
_SYMBOL = re.compile(r'@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*")')


def parse(text: str) -> list[Function]:
    """The functions of an MLIR text.

    Raises:
        MlirError: it is malformed, or outside of the subset; the message names line and column.
    """
    return _Parser(text).functions()


class _Parser(Scanner):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._maps: dict[str, tuple[AffineMap, int]] = {}
        self._known: dict[str, Value] = {}
        self._ops: list[Op] = []

    def functions(self) -> list[Function]:
        found: list[Function] = []
        closing = 0
        while not self.at_end():
            start = self.skip()
            alias = self.match(_ALIAS)
            if alias is not None:
                if alias in self._maps:
                    raise self.error(f"map {alias} is defined twice", start)
                self.expect("=")
                self._maps[alias] = self.any_map()
            elif self.accept("module"):
                self.match(_SYMBOL)
                self.expect("{")
                closing += 1
            elif closing and self.accept("}"):
                closing -= 1
            elif self.accept("func.func"):
                start = self.skip()
                made = self._function()
                if any(each.name == made.name for each in found):
                    raise self.error(f"function @{made.name} is defined twice", start)
                found.append(made)
            else:
                raise self.error(f"expected a function, found {self.shown()}")
        if closing:
            raise self.error("expected '}'")
        return found

    def map(self) -> AffineMap:
        """An indexing map, which has no symbols."""
        start = self.skip()
        map_, symbols = self.any_map()
        if symbols:
            raise self.error("an indexing map has no symbols", start)
        return map_

    def any_map(self) -> tuple[AffineMap, int]:
        """A map or its alias, with the number of its symbols, which are its last dims."""
        start = self.skip()
        alias = self.match(_ALIAS)
        if alias is None:
            if not self.peek("affine_map"):
                raise self.error(f"expected an affine_map, found {self.shown()}")
            return parse_map(self, symbols=True)
        if alias not in self._maps:
            raise self.error(f"map {alias} is not defined above", start)
        return self._maps[alias]

    def _function(self) -> Function:
        self._known, self._ops = {}, []
        for word in ("private", "public"):
            self.accept(word)
        name = self.take(_SYMBOL, "the function's name")[1:].strip('"')
        arguments = self.listed("(", ")", self._argument)
        declared = [each.type_text for each in self._results(())] if self.accept("->") else []
        self.expect("{")
        start = self.skip()
        while not (self.accept("return") or self.accept("func.return")):
            self._statement()
            start = self.skip()
        outputs = self._operands(until=("}",))
        returned = [each.type_text for each in outputs]
        if returned != declared:
            raise self.error(
                f"@{name} returns ({', '.join(returned)}), its type has ({', '.join(declared)})",
                start,
            )
        self.expect("}")
        return Function(name, arguments, self._ops, outputs)

    def _argument(self) -> Value:
        ssa = self.take(_SSA, "an argument")
        self.expect(":")
        return self._define(ssa, self._type(ssa[1:]))

    def _results(self, names: Sequence[str]) -> list[Value]:
        """One type, or several in brackets."""
        rest = iter(names)

        def read() -> Value:
            return self._type(next(rest, "%result")[1:])

        return self.listed("(", ")", read) if self.peek("(") else [read()]

    def _define(self, ssa: str, value: Value, start: int | None = None) -> Value:
        if ssa in self._known:
            raise self.error(f"{ssa} is defined twice", start)
        self._known[ssa] = value
        return value

    def _type(self, name: str) -> Value:
        """A tensor type or a scalar type, as a value of that type."""
        start = self.skip()
        if self.accept("tensor"):
            self.expect("<")
            at = self.skip()
            text = self.match(_TENSOR) or ""
            dtype = self._dtype()
            self.expect(">")
            if text.startswith("*"):
                return Value(name, dtype, None)
            sizes = text.split("x")[:-1]
            return Value(
                name, dtype, [None if each == "?" else self.bounded(each, at) for each in sizes]
            )
        if self.peek("memref") or self.peek("vector"):
            raise self.error(f"{self.shown()} is not supported: operands are tensors", start)
        if self.accept("!"):  # the type of another dialect, carried through
            return Value(name, "!" + self.take(_OPERATION, "a type"), kind="scalar")
        return Value(name, self._dtype(), kind="scalar")

    def _dtype(self) -> str:
        start = self.skip()
        dtype = self.take(_OPERATION, "an element type")
        if dtype not in DTYPES:
            raise self.error(
                f"element type {dtype} is not supported; use one of {', '.join(DTYPES)}", start
            )
        return dtype

    def _use(self) -> Value:
        start = self.skip()
        ssa = self.take(_SSA, "a value")
        if ssa not in self._known:
            raise self.error(f"{ssa} is not defined above", start)
        return self._known[ssa]

    def _operands(self, until: tuple[str, ...]) -> list[Value]:
        """``%a, %b : type, type``, or nothing."""
        if any(map(self.peek, until)):
            return []
        found = [self._use()]
        while self.accept(","):
            found.append(self._use())
        self.expect(":")
        self._check_types(found)
        return found

    def _check_types(self, values: Sequence[Value]) -> None:
        for place, value in enumerate(values):
            if place:
                self.expect(",")
            self._check_type(value)

    def _check_type(self, value: Value) -> Value:
        start = self.skip()
        stated = self._type(value.name)
        if stated.type_text != value.type_text:
            raise self.error(f"%{value.name} is {value.type_text}, not {stated.type_text}", start)
        return stated

    def _statement(self) -> None:
        start = self.skip()
        names: list[str] = []
        count = 1
        if self.peek("%"):
            names.append(self.take(_SSA, "a result"))
            if self.accept(":"):
                at = self.skip()
                count = self.integer("the number of results")
                if count > len(self.text):  # each has a type in the text
                    raise self.error(f"too many results: {count}", at)
            while self.accept(","):
                names.append(self.take(_SSA, "a result"))
            self.expect("=")
        results = [f"{names[0]}#{index}" for index in range(count)] if count > 1 else names
        at = self.skip()
        quoted = self.match(_STRING)
        name = (
            self.take(_OPERATION, "an operation")
            if quoted is None
            else quoting.text_of_mlir(quoted)
        )
        if quoted is not None:
            made = self._in_generic_form(name, results)
        elif name == "arith.constant":
            made = [self.arith_constant(results[0] if results else "")]
        elif name == "tensor.empty":
            made = [self._empty(results[0] if results else "")]
        elif name == "tensor.dim":
            made = self._dim(results)
        elif name == "linalg.fill":
            made = self._fill(results)
        elif name == "tensor.concat":
            made = self._concat(results)
        elif name == "tensor.extract_slice":
            made = self._part(results)
        elif name == "tensor.cast":
            made = self._cast(results)
        elif name in {EXPAND, COLLAPSE}:
            made = self._reshape(name, results)
        elif name in BINARY:
            made = self._of_sizes(name, results)
        elif name == "linalg.generic":
            made = self._generic(results, start)
        else:
            raise self.error(
                f'operation {name} is not supported; write it in generic form, "{name}"(…)', at
            )
        if len(made) != len(results):
            raise self.error(f"{name} has {len(made)} results, {len(results)} are named", start)
        for ssa, value in zip(results, made, strict=True):
            self._define(ssa, value, start)

    def _in_generic_form(self, name: str, results: Sequence[str]) -> list[Value]:
        operands = self.listed("(", ")", self._use)
        attribute = self._braces() if self.peek("{") or self.peek("<{") else ""
        self.expect(":")
        self.expect("(")
        self._check_types(operands)
        self.expect(")")
        self.expect("->")
        made = self._results(results)
        self._ops.append(Opaque(name, tuple(operands), tuple(made), attribute))
        return made

    def _braces(self) -> str:
        """A dictionary of attributes, as it is written."""
        start, depth = self.skip(), 0
        while self.position < len(self.text):
            letter = self.text[self.position]
            if letter == '"':
                self.take(_STRING, "a string")
                continue
            depth += (letter in "{<") - (letter in "}>")
            self.position += 1
            if depth == 0:
                return self.text[start : self.position]
        raise self.error("expected '}'", start)

    def _number(self, dtype: str, start: int) -> bool | int | float:
        shown = self.take(_SCALAR, "a number")
        if (shown in {"true", "false"}) and dtype == "i1":
            return shown == "true"
        if shown.startswith("0x") and dtype in FLOATS and len(shown) <= 2 + _DIGITS_OF[dtype]:
            return _from_bits(int(shown, 16), dtype)
        if dtype in FLOATS and "." in shown:
            return float(shown)
        if dtype in FLOATS or not re.fullmatch(r"-?[0-9]+|0x[0-9A-Fa-f]+", shown):
            raise self.error(f"{shown} is no {dtype}", start)
        base = 16 if shown.startswith("0x") else 10
        digits = int(shown, base) if len(shown) <= _MOST_DIGITS else 1 << 64
        bits = 64 if dtype == "index" else int(dtype[1:])
        if not -(1 << (bits - 1)) <= digits < 1 << bits:
            raise self.error(f"{shown[:_MOST_DIGITS]} does not fit {dtype}", start)
        if dtype == "i1":
            return bool(digits)
        return digits - (1 << bits) if digits >= 1 << (bits - 1) else digits

    def arith_constant(self, ssa: str) -> Value:
        """Its type stands behind it, and decides how its numbers are read."""
        start = self.skip()
        dense = self.accept("dense")
        if dense:
            self.expect("<")
        begin = self.position
        self._skip_numbers()
        end = self.position
        if dense:
            self.expect(">")
        if self.accept(":"):
            value = self._type(ssa[1:])
        else:
            if self.text[begin:end].strip() not in {"true", "false"}:
                raise self.error(f"expected ':' and a type, found {self.shown()}")
            value = Value(ssa[1:], "i1", kind="scalar")
        if (value.shape is None or not all(map(is_known, value.shape))) or dense == value.is_scalar:
            form = "dense<…> has a tensor type with known sizes; without it, a scalar type"
            raise self.error(f"{form}, not {value.type_text}", start)
        after, self.position = self.position, begin
        nested = self._nested(value.dtype, start)
        if self.skip() != end and self.position < end:
            raise self.error(f"expected a number, found {self.shown()}")
        self.position = after
        with np.errstate(over="ignore"):  # beyond the type: infinite, as MLIR reads it
            array = np.asarray(nested, numpy_dtype(value.dtype))
        shape = value.shape or ()
        if dense and array.size == 1 and array.ndim == 0:
            value.constant = array.reshape((1,) * len(shape))
        elif array.shape != shape:
            raise self.error(
                f"{array.size} elements of shape {array.shape} do not make {value.type_text}", start
            )
        else:
            value.constant = array
        return value

    def _skip_numbers(self) -> None:
        while self.match(_SCALAR) is not None or any(map(self.accept, ("[", "]", ","))):
            pass

    def _nested(self, dtype: str, start: int) -> Any:
        if not self.accept("["):
            return self._number(dtype, start)
        found: list[Any] = []
        while not self.accept("]"):
            if found:
                self.expect(",")
            found.append(self._nested(dtype, start))
        if len({np.shape(each) for each in found}) > 1:
            raise self.error("the elements of a constant are not nested evenly", start)
        return found

    def _index(self) -> Value:
        """A scalar of type ``index``."""
        start = self.skip()
        value = self._use()
        if value.type_text != "index":
            raise self.error(f"%{value.name} is {value.type_text}, not index", start)
        return value

    def _empty(self, ssa: str) -> Value:
        sizes = self.listed("(", ")", self._index)
        self.expect(":")
        start = self.skip()
        value = self._type(ssa[1:])
        if value.shape is None or value.is_scalar:
            raise self.error(
                f"tensor.empty makes a tensor with a rank, not {value.type_text}", start
            )
        unknown = sum(size is None for size in value.shape)
        if unknown != len(sizes):
            raise self.error(f"{value.type_text} needs {unknown} sizes, got {len(sizes)}", start)
        value.kind, value.sizes = "empty", tuple(sizes)
        return value

    def _dim(self, results: Sequence[str]) -> list[Value]:
        source = self._use()
        self.expect(",")
        start = self.skip()
        number = self._index()
        self.expect(":")
        self._check_type(source)
        if number.constant is None:
            raise self.error("the axis of tensor.dim must be a constant", start)
        axis = int(number.constant.reshape(-1)[0])
        if source.rank is not None and not 0 <= axis < source.rank:
            raise self.error(f"axis {axis} of {source!r}", start)
        made = Value(results[0][1:] if results else "dim", "index", kind="scalar")
        self._ops.append(Opaque("tensor.dim", (source,), (made,), axis))
        return [made]

    def _listed(self, word: str) -> list[Value]:
        """``ins(%a, %b : types)``, or nothing."""
        if not self.accept(word):
            return []
        self.expect("(")
        found = self._operands(until=(")",))
        self.expect(")")
        return found

    def _fill(self, results: Sequence[str]) -> list[Value]:
        start = self.skip()
        ins, outs = self._listed("ins"), self._listed("outs")
        self.expect("->")
        if len(ins) != 1 or len(outs) != 1:
            raise self.error("linalg.fill takes one scalar and one tensor", start)
        self._check_type(outs[0])
        scalar, out = ins[0], outs[0]
        if not scalar.is_scalar or scalar.dtype != out.dtype:
            raise self.error(f"linalg.fill of {out.type_text} with {scalar.type_text}", start)
        fill = scalar.splat or scalar
        name = results[0][1:] if results else "fill"
        sizes = out.sizes
        if out.kind == "tensor" and None in (out.shape or ()):
            sizes = tuple(self._sizes_of(out))
        return [Value(name, out.dtype, out.shape, kind="fill", fill=fill, sizes=sizes)]

    def _sizes_of(self, value: Value) -> Iterator[Value]:
        for axis, size in enumerate(value.shape or ()):
            if size is None:
                made = Value(f"{value.name}_dim{axis}", "index", kind="scalar")
                self._ops.append(Opaque("tensor.dim", (value,), (made,), axis))
                yield made

    def _cast(self, results: Sequence[str]) -> list[Value]:
        """The same tensor with more or fewer sizes in its type."""
        source = self._use()
        self.expect(":")
        self._check_type(source)
        self.expect("to")
        start = self.skip()
        made = self._type(results[0][1:] if results else "cast")
        if not _agree(source, made):
            raise self.error(f"{source.type_text} is not cast to {made.type_text}", start)
        self._ops.append(Opaque("tensor.cast", (source,), (made,)))
        return [made]

    def _reshape(self, name: str, results: Sequence[str]) -> list[Value]:
        """Axes that are split or merged, group by group."""
        source = self._use()
        start = self.skip()
        groups = self.listed("[", "]", lambda: self.listed("[", "]", self._axis))
        given: list[int | Value] = []
        if name == EXPAND:
            self.expect("output_shape")
            given = self._sizes()
        self.expect(":")
        self._check_type(source)
        self.expect("into")
        at = self.skip()
        made = self._type(results[0][1:] if results else "reshaped")
        few, many = (source, made) if name == EXPAND else (made, source)
        axes = [axis for group in groups for axis in group]
        # a tensor of rank 0 has no axis to give the other's axes to: these are all of size 1
        is_unit = few.rank == 0 and set(many.shape or ()) <= {1}
        if (
            axes != ([] if is_unit else list(range(many.rank or 0)))
            or len(groups) != few.rank
            or not all(groups)
            or few.is_scalar
            or many.is_scalar
        ):
            raise self.error(
                f"{groups} does not give each axis of {many.type_text} to one of {few.type_text}",
                start,
            )
        for group, whole in zip(groups, few.shape or (), strict=True):
            sizes: list[Size] = [
                size for axis, size in enumerate(many.shape or ()) if axis in group
            ]
            if (name == EXPAND and sizes.count(None) > 1) or (None in sizes) != (whole is None):
                raise self.error(
                    f"of a group of axes, at most one size may be unknown: {groups}", at
                )
            if None not in sizes and prod([int(size or 0) for size in sizes]) != whole:
                raise self.error(f"sizes {sizes} do not make {whole}", at)
        stated = [each if isinstance(each, int) else None for each in given]
        if source.dtype != made.dtype or (name == EXPAND and stated != list(made.shape or ())):
            raise self.error(
                f"sizes {stated} of {source.type_text} do not make {made.type_text}", at
            )
        self._ops.append(Opaque(name, (source,), (made,), str(groups)))
        return [made]

    def _axis(self) -> int:
        return self.integer("an axis")

    def _sizes(self) -> list[int | Value]:
        """``[2, %n]``."""
        return self.listed(
            "[", "]", lambda: self._index() if self.peek("%") else self.integer("a size")
        )

    def _of_sizes(self, name: str, results: Sequence[str]) -> list[Value]:
        """``arith.minsi %a, %b : index``: the size of a part, from other sizes."""
        a = self._use()
        self.expect(",")
        start = self.skip()
        b = self._use()
        self.expect(":")
        made = self._check_type(a)
        if b.type_text != made.type_text:
            raise self.error(f"%{b.name} is {b.type_text}, not {made.type_text}", start)
        if not a.is_scalar or not _computes(name, made.dtype):
            raise self.error(f"{name} of {made.type_text} is not supported here", start)
        made.name = results[0][1:] if results else "size"
        self._ops.append(Opaque(name, (a, b), (made,)))
        return [made]

    def _part(self, results: Sequence[str]) -> list[Value]:
        """Its operands are the source and the sizes that are not known."""
        source = self._use()
        start = self.skip()
        begins, sizes, steps = self._sizes(), self._sizes(), self._sizes()
        self.expect(":")
        self._check_type(source)
        self.expect("to")
        at = self.skip()
        made = self._type(results[0][1:] if results else "part")
        offsets = [each for each in begins if isinstance(each, int)]
        if offsets != begins or any(each != 1 for each in steps):
            raise self.error(
                "tensor.extract_slice is supported with constant offsets and strides of 1", start
            )
        if {len(begins), len(sizes), len(steps)} != {source.rank}:
            raise self.error(f"a part of {source.type_text} has {source.rank} of each list", start)
        stated = [each if isinstance(each, int) else None for each in sizes]
        if list(made.shape or ()) != stated or made.dtype != source.dtype:
            raise self.error(
                f"sizes {stated} of {source.type_text} do not make {made.type_text}", at
            )
        for begin, size, whole in zip(offsets, stated, source.shape or (), strict=True):
            if isinstance(whole, int) and begin + (size or 0) > whole:
                raise self.error(f"{size} from {begin} is beyond {source.type_text}", start)
        unknown = tuple(each for each in sizes if isinstance(each, Value))
        self._ops.append(
            Opaque("tensor.extract_slice", (source, *unknown), (made,), ",".join(map(str, offsets)))
        )
        return [made]

    def _concat(self, results: Sequence[str]) -> list[Value]:
        self.expect("dim")
        self.expect("(")
        axis = self._axis()
        self.expect(")")
        operands = [self._use()]
        while self.accept(","):
            operands.append(self._use())
        self.expect(":")
        self.expect("(")
        self._check_types(operands)
        self.expect(")")
        self.expect("->")
        at = self.skip()
        made = self._type(results[0][1:] if results else "concat")
        rank = made.rank or 0
        if axis >= rank or not all(_agree(each, made, but=axis) for each in operands):
            raise self.error(f"these operands do not make {made.type_text} along {axis}", at)
        lengths = [cast("tuple[Size, ...]", each.shape)[axis] for each in operands]
        whole = cast("tuple[Size, ...]", made.shape)[axis]
        known = [size for size in lengths if isinstance(size, int)]
        if len(known) == len(lengths) and whole not in {None, sum(known)}:
            raise self.error(f"sizes {known} do not make {whole}", at)
        self._ops.append(Opaque("tensor.concat", tuple(operands), (made,), axis))
        return [made]

    def _generic(self, names: Sequence[str], start: int) -> list[Value]:
        maps, iterators = self._attributes()
        at = self.skip()
        ins, outs = self._listed("ins"), self._listed("outs")
        if any(value.shape is None for value in (*ins, *outs)):
            raise self.error("an operand has no rank", at)
        if self.accept("attrs"):
            self.expect("=")
            self._braces()
        self.expect("{")
        payload = _PayloadParser(self, self._known, ins, outs).read()
        made = self._results(names) if self.accept("->") else []
        op = Generic(tuple(ins), tuple(outs), tuple(maps), tuple(iterators), payload, tuple(made))
        try:
            verify(op)
        except GenericError as error:
            raise self.error(str(error), start) from error
        self._ops.append(op)
        return made

    def _attributes(self) -> tuple[list[AffineMap], list[str]]:
        self.expect("{")
        maps: list[AffineMap] = []
        iterators: list[str] = []
        seen = set[str]()
        while not self.accept("}"):
            if seen:
                self.expect(",")
            start = self.skip()
            name = self.take(_OPERATION, "an attribute")
            if name in seen:
                raise self.error(f"{name} is given twice", start)
            seen.add(name)
            if name == "indexing_maps":
                self.expect("=")
                maps = self.listed("[", "]", self.map)
            elif name == "iterator_types":
                self.expect("=")
                iterators = self.listed("[", "]", self._iterator)
            else:
                raise self.error(f"attribute {name} is not supported")
        return maps, iterators

    def _iterator(self) -> str:
        return self.take(_STRING, 'an iterator type, "parallel" or "reduction"').strip('"')


class _PayloadParser:
    """The block of a ``linalg.generic``."""

    def __init__(
        self,
        parser: _Parser,
        known: Mapping[str, Value],
        ins: Sequence[Value],
        outs: Sequence[Value],
    ) -> None:
        self._parser = parser
        self._outside = known
        self._types = [value.dtype for value in (*ins, *outs)]
        self._refs: dict[str, Ref] = {}
        self._dtypes: dict[str, str] = {}
        self._ops: list[ScalarOp] = []
        self._has_apply = False

    def read(self) -> Payload:
        parser = self._parser
        parser.take(_LABEL, "the payload's block, ^bb0(…)")
        parser.listed("(", ")", self._argument)
        count = len(self._refs)
        if count < len(self._types):
            raise parser.error(f"the payload has {count} arguments for {len(self._types)} operands")
        parser.expect(":")
        while not parser.accept("linalg.yield"):
            self._operation()
        yields: list[tuple[Ref, str]] = []
        while parser.accept(",") if yields else parser.peek("%"):
            yields.append(self._ref())
        for place, (_, dtype) in enumerate(yields):
            parser.expect("," if place else ":")
            parser.expect(dtype)
        parser.expect("}")
        payload = Payload(tuple(self._ops), tuple([ref for ref, _ in yields]))
        # affine.apply was read as an index of its own: those that it takes are not needed
        return payload.live() if self._has_apply else payload

    def _argument(self) -> None:
        parser, count = self._parser, len(self._refs)
        start = parser.skip()
        ssa = parser.take(_SSA, "an argument")
        parser.expect(":")
        dtype = parser.take(_OPERATION, "an element type")
        wanted = self._types[count] if count < len(self._types) else "no further argument"
        if dtype != wanted:
            raise parser.error(
                f"argument {count} of the payload is {dtype}, its operand has {wanted}", start
            )
        self._set(ssa, Arg(count), dtype, start)

    def _set(self, ssa: str, ref: Ref, dtype: str, start: int) -> None:
        if ssa in self._refs or ssa in self._outside:
            raise self._parser.error(f"{ssa} is defined twice", start)
        self._refs[ssa], self._dtypes[ssa] = ref, dtype

    def _ref(self) -> tuple[Ref, str]:
        parser = self._parser
        start = parser.skip()
        ssa = parser.take(_SSA, "a value")
        if ssa in self._refs:
            return self._refs[ssa], self._dtypes[ssa]
        outside = self._outside.get(ssa)
        if outside is None:
            raise parser.error(f"{ssa} is not defined above", start)
        if not outside.is_scalar:
            raise parser.error(f"{ssa} is a tensor; a payload computes with scalars", start)
        return outside.splat or outside, outside.dtype

    def _operation(self) -> None:
        parser = self._parser
        start = parser.skip()
        ssa = parser.take(_SSA, "an operation of the payload, or linalg.yield")
        parser.expect("=")
        at = parser.skip()
        name = parser.take(_OPERATION, "an operation")
        if name == "arith.constant":
            literal = parser.arith_constant(ssa).splat
            if literal is None:
                raise parser.error("a constant of the payload must be a scalar", at)
            self._set(ssa, literal, literal.dtype, start)
            return
        if name == INDEX:
            loop = parser.integer("the number of a loop")
            self._typed("index")
            op = ScalarOp(INDEX, (), "index", Dim(loop))
        elif name == "affine.apply":
            op = self._apply()
        else:
            op = self._scalar(name, at)
        self._ops.append(op)
        self._set(ssa, Res(len(self._ops) - 1), op.dtype, start)

    def _typed(self, dtype: str) -> None:
        self._parser.expect(":")
        self._parser.expect(dtype)

    def _apply(self) -> ScalarOp:
        """An expression over indices, which becomes the index of that expression."""
        parser = self._parser
        self._has_apply = True
        start = parser.skip()
        map_, symbols = parser.any_map()
        dims = parser.listed("(", ")", self._expr)
        others = parser.listed("[", "]", self._expr) if parser.peek("[") else []
        given = len(dims) + len(others)
        if (given, len(others), len(map_.results)) != (map_.dims, symbols, 1):
            raise parser.error(f"affine.apply of {map_} with {given} indices", start)
        return ScalarOp(INDEX, (), "index", substitute(map_.results[0], [*dims, *others]))

    def _expr(self) -> Expr:
        parser = self._parser
        at = parser.skip()
        ref, _ = self._ref()
        op = self._ops[ref.index] if isinstance(ref, Res) else None
        if isinstance(ref, Literal):
            return Const(int(ref.value))
        if op is not None and isinstance(op.attribute, Dim | Const | Binary):
            return op.attribute
        raise parser.error("affine.apply takes indices of loops", at)

    def _scalar(self, name: str, at: int) -> ScalarOp:
        parser = self._parser
        predicate = None
        if name in COMPARISONS:
            start = parser.skip()
            predicate = parser.take(_OPERATION, "a predicate")
            if predicate not in PREDICATES[name]:
                known = ", ".join(sorted(PREDICATES[name]))
                raise parser.error(f"{name} has the predicates {known}", start)
            parser.expect(",")
        count = 3 if name == SELECT else 2 if name in BINARY or name in COMPARISONS else 1
        if name != SELECT and not any(
            name in known for known in (BINARY, UNARY, CASTS, COMPARISONS)
        ):
            raise parser.error(f"operation {name} is not supported in a payload", at)
        refs: list[tuple[Ref, str]] = []
        for place in range(count):
            if place:
                parser.expect(",")
            refs.append(self._ref())
        parser.expect(":")
        start = parser.skip()
        dtype = parser.take(_OPERATION, "an element type")
        if name == SELECT and parser.accept(","):
            dtype = parser.take(_OPERATION, "an element type")
        wanted = dtype
        if name in CASTS:
            parser.expect("to")
            dtype = parser.take(_OPERATION, "an element type")
        if dtype not in DTYPES:
            raise parser.error(
                f"element type {dtype} is not supported; use one of {', '.join(DTYPES)}", start
            )
        types = [wanted] * count if name != SELECT else ["i1", wanted, wanted]
        given = [each for _, each in refs]
        if given != types:
            raise parser.error(f"{name} of {', '.join(given)}, its type is {wanted}", at)
        if name in CASTS and not _casts(name, wanted, dtype):
            raise parser.error(f"{name} does not take {wanted} to {dtype}", at)
        if name not in CASTS and name != SELECT and not _computes(name, dtype):
            raise parser.error(f"{name} does not compute with {dtype}", at)
        made = "i1" if name in COMPARISONS else dtype
        return ScalarOp(name, tuple([ref for ref, _ in refs]), made, predicate)


def _agree(a: Value, b: Value, but: int = -1) -> bool:
    """Whether two tensors may have one type, apart from the sizes of axis ``but``."""
    if a.is_scalar or b.is_scalar or a.dtype != b.dtype:
        return False
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        axis == but or None in {one, other} or one == other
        for axis, (one, other) in enumerate(zip(a.shape, b.shape, strict=True))
    )


def _computes(name: str, dtype: str) -> bool:
    """Whether an operation takes operands of an element type."""
    of_floats = name.endswith("f") if name.startswith("arith.") else name != "math.absi"
    return of_floats == (dtype in FLOATS)


def _casts(name: str, source: str, target: str) -> bool:
    """Whether a cast takes one element type to another."""
    floats = source in FLOATS, target in FLOATS
    bits = [64 if each == INDEX_TYPE else int(each.lstrip("bfi")) for each in (source, target)]
    if name == "arith.index_cast":
        return not any(floats) and (source == INDEX_TYPE) != (target == INDEX_TYPE)
    if INDEX_TYPE in {source, target}:
        return False
    wider = bits[0] < bits[1]
    return {
        "arith.extf": all(floats) and wider,
        "arith.truncf": all(floats) and bits[0] > bits[1],
        "arith.sitofp": floats == (False, True),
        "arith.uitofp": floats == (False, True),
        "arith.fptosi": floats == (True, False),
        "arith.fptoui": floats == (True, False),
        "arith.extsi": not any(floats) and wider,
        "arith.extui": not any(floats) and wider,
        "arith.trunci": not any(floats) and bits[0] > bits[1],
        "arith.bitcast": bits[0] == bits[1],
    }[name]


def _from_bits(bits: int, dtype: str) -> float:
    if dtype == "bf16":
        bits, dtype = bits << 16, "f32"
    size = {"f16": 2, "f32": 4, "f64": 8}[dtype]
    return float(np.frombuffer(bits.to_bytes(size, "little"), _WIDTHS[dtype])[0])
