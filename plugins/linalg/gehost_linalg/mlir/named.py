"""Named operations of linalg whose loops are known: products, element-wise ones, movement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gehost_linalg.affine import AffineMap, Dim
from gehost_linalg.generic import (
    PARALLEL,
    REDUCTION,
    Arg,
    Generic,
    Named,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Value,
)
from gehost_linalg.mlir.function import Parts, Statement
from gehost_linalg.mlir.generics import (
    add_verified,
    generic_of_parts,
    maps_of,
    payload_lines,
    segments,
)
from gehost_linalg.mlir.payload import PayloadReader
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.reader import KeptAsText, Make, Reader
from gehost_linalg.mlir.scalars import flags_of
from gehost_linalg.mlir.tensors import make_fill
from gehost_linalg.operations import FLOATS, OPERATIONS, is_float, is_integer
from gehost_mlir.attributes import integers, shown
from gehost_mlir.source import ALIAS, OPERATION, balanced

_PRODUCTS: Mapping[str, tuple[str, str, str]] = {
    "matmul": ("mk", "kn", "mn"),
    "matmul_transpose_a": ("km", "kn", "mn"),
    "matmul_transpose_b": ("mk", "nk", "mn"),
    "batch_matmul": ("bmk", "bkn", "bmn"),
    "batch_matmul_transpose_a": ("bkm", "bkn", "bmn"),
    "batch_matmul_transpose_b": ("bmk", "bnk", "bmn"),
    "batch_reduce_matmul": ("bmk", "bkn", "mn"),
    "matvec": ("mk", "k", "m"),
    "vecmat": ("k", "kn", "n"),
    "batch_matvec": ("bmk", "bk", "bm"),
    "batch_vecmat": ("bk", "bkn", "bn"),
    "dot": ("k", "k", ""),
    "mmt4d": ("mkij", "nklj", "mnil"),
    "batch_mmt4d": ("bmkij", "bnklj", "bmnil"),
}
"""The axes of two factors and the product; j is the inner part of k."""
_LOOPS = "bmnkilj"
"""The order of loops."""
_BINARY = {
    "add": ("arith.addf", "arith.addi"),
    "sub": ("arith.subf", "arith.subi"),
    "mul": ("arith.mulf", "arith.muli"),
    "div": ("arith.divf", "arith.divsi"),
    "div_unsigned": ("", "arith.divui"),
    "max": ("arith.maximumf", "arith.maxsi"),
    "max_signed": ("arith.maximumf", "arith.maxsi"),
    "max_unsigned": ("", "arith.maxui"),
    "min": ("arith.minimumf", "arith.minsi"),
    "min_signed": ("arith.minimumf", "arith.minsi"),
    "min_unsigned": ("", "arith.minui"),
    "powf": ("math.powf", ""),
}
_UNARY = {
    "exp": "math.exp", "log": "math.log", "abs": "math.absf", "ceil": "math.ceil",
    "floor": "math.floor", "negf": "arith.negf", "round": "math.round", "sqrt": "math.sqrt",
    "rsqrt": "math.rsqrt", "tanh": "math.tanh", "erf": "math.erf",
}  # fmt: skip
_OTHERS = ("square", "reciprocal", "select", "copy")
_BODIES = ("reduce", "map")
_MOVES = ("transpose", "broadcast")
_WRITTEN_OTHERWISE = {
    "operandSegmentSizes", "operand_segment_sizes", "indexing_maps",
    "linalg.memoized_indexing_maps",
}  # fmt: skip

NAMED = tuple(
    f"linalg.{name}"
    for name in (
        *_PRODUCTS, "contract", "elementwise", *_BINARY, *_UNARY, *_OTHERS, *_BODIES, *_MOVES,
    )
)  # fmt: skip
"""The operations that this file reads; any other of linalg is carried through as text."""

Loops: TypeAlias = tuple[list[AffineMap], list[str]]
"""Indexing maps and iterator types."""


def read_named(reader: Reader, statement: Statement) -> list[Value]:
    """``linalg.matmul ins(…) outs(…) -> type``, or another of these."""
    begin = reader.skip()
    word = statement.name.removeprefix("linalg.")
    shorthand = _shorthand(reader) if word in _BODIES and reader.peek("{") else None
    maps, attributes = _before(reader)
    ins, outs = reader.listed_operands("ins"), reader.listed_operands("outs")
    for name in ("permutation", "dimensions"):
        if reader.accept(name):
            reader.expect("=")
            items = reader.listed("[", "]", lambda: reader.integer("an axis"))
            attributes[name] = f"array<i64: {', '.join(map(str, items))}>"
    body = None
    if word in _BODIES and shorthand is None:
        inside = PayloadReader(reader, ins, _outs_of_block(reader, word, ins, outs))
        inside.arguments()
        reader.expect("{")
        body = inside.body()
    elif shorthand is not None:
        body = _body_of(shorthand, ins, outs, is_reduction=word == "reduce")
    if reader.peek("{"):
        attributes |= reader.dictionary()
    results = (
        reader.result_types(statement.results) if reader.accept("->") else _like(statement, outs)
    )
    if [name.type_text for name in results] != [name.type_text for name in outs]:
        raise reader.error(f"{statement.name} returns tensors of the types of its outs", begin)
    loops = _loops(word, ins, outs, maps, attributes)
    payload = body or _payload(word, ins, outs, attributes)
    if len(results) != len(statement.results):
        raise reader.error(f"{statement.name} has {len(results)} results", begin)
    if loops is None or payload is None:
        end = reader.position
        reader.position = begin
        text = reader.as_text(statement, begin)
        reader.position = end
        return _retyped(text, results)
    spelling = _spelling(word, maps, attributes, has_body=word in _BODIES)
    return _add(reader, statement, (ins, outs, results), loops, payload, spelling)


def named_of_parts(
    reader: Reader, statement: Statement, operands: list[Value], attributes: dict[str, str]
) -> Make:
    """The same in generic form, whose region is stepped over where the name says what it is.

    Raises:
        KeptAsText: its loops are not known here.
    """
    if statement.name == "linalg.generic":
        return generic_of_parts(reader, statement, operands, attributes)
    at = reader.skip()
    word = statement.name.removeprefix("linalg.")
    if statement.name != "linalg.fill" and statement.name not in NAMED:
        raise KeptAsText(f"{statement.name} is carried through", reader.text, at)
    outs_of_name = {"map": 1, "broadcast": 1, "transpose": 1, "reduce": len(operands) // 2}
    ins, outs = segments(reader, operands, attributes, at, outs_of_name.get(word, 0))
    body = None
    if word in _BODIES:
        reader.expect("(")
        reader.expect("{")
        body = PayloadReader(reader, ins, _outs_of_block(reader, word, ins, outs)).read()
        reader.expect(")")
    else:
        reader.position = balanced(reader.text, at)
    maps = maps_of(reader, attributes, at) if "indexing_maps" in attributes else []
    payload = body or (_payload(word, ins, outs, attributes) if word != "fill" else None)
    loops = _loops(word, ins, outs, maps, attributes)
    if word != "fill" and (loops is None or payload is None):
        raise KeptAsText(f"{statement.name} is carried through", reader.text, at)

    def make(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
        if loops is None or payload is None:
            return make_fill(reader, statement, ins, outs, at)
        rest = {name: text for name, text in attributes.items() if name not in _WRITTEN_OTHERWISE}
        spelling = _spelling(word, maps, rest, has_body=word in _BODIES)
        return _add(reader, statement, (ins, outs, parts.results), loops, payload, spelling)

    return make


def _add(
    reader: Reader,
    statement: Statement,
    values: tuple[list[Value], list[Value], list[Value]],
    loops: Loops,
    payload: Payload,
    spelling: Named,
) -> list[Value]:
    ins, outs, result = map(tuple, values)
    maps, iterators = loops
    op = Generic(ins, outs, tuple(maps), tuple(iterators), payload, result, named=spelling)
    return add_verified(reader, statement, op)


def _like(statement: Statement, outs: Sequence[Value]) -> list[Value]:
    names = [*statement.results, *["%result"] * len(outs)]
    return [
        Value(name[1:], out.dtype, out.shape)
        for name, out in zip(names, outs, strict=False)
        if not out.is_scalar
    ]


def _retyped(read: list[Value], results: list[Value]) -> list[Value]:
    for value, other in zip(read, results, strict=True):
        value.dtype, value.shape = other.dtype, other.shape
    return read


# -- what stands around the operands


def _before(reader: Reader) -> tuple[list[AffineMap], dict[str, str]]:
    maps: list[AffineMap] = []
    attributes: dict[str, str] = {}
    while True:
        if reader.accept("indexing_maps"):
            reader.expect("=")
            maps = reader.listed("[", "]", reader.map)
        elif reader.peek("<") or reader.accept("kind"):  # LLVM before 24 writes kind=#…<add>
            if reader.accept("="):
                reader.take(ALIAS, "#linalg.elementwise_kind")
            reader.expect("<")
            attributes["kind"] = f"<{reader.take(OPERATION, 'a kind of operation')}>"
            reader.expect(">")
        elif reader.peek("{"):
            attributes |= reader.dictionary()
        else:
            return maps, attributes


def _shorthand(reader: Reader) -> tuple[str, str]:
    """``{ arith.addf }`` or ``{ arith.addf {overflowFlags = …} }``: the operation and flags."""
    reader.expect("{")
    name = reader.take(OPERATION, "an operation")
    if name not in OPERATIONS:
        raise reader.error(f"{name} is not supported in short form; write the block")
    flags = flags_of(reader.dictionary()) if reader.peek("{") else ""
    reader.expect("}")
    return name, flags


def _outs_of_block(
    reader: Reader, word: str, ins: Sequence[Value], outs: Sequence[Value]
) -> Sequence[Value]:
    """The outs that the block has an argument for; before 2025 that of a map has none."""
    if word == "reduce":
        return outs
    start = reader.skip()
    if reader.peek("^"):
        start = reader.text.find("(", start)
    elif not reader.peek("("):  # a block without arguments
        return []
    end = balanced(reader.text, start)
    return outs if reader.text.count("%", start, end) > len(ins) else []


def _body_of(
    shorthand: tuple[str, str], ins: Sequence[Value], outs: Sequence[Value], *, is_reduction: bool
) -> Payload | None:
    name, flags = shorthand
    row = OPERATIONS[name]
    refs = [Arg(len(ins)), Arg(0)] if is_reduction else [Arg(place) for place in range(len(ins))]
    if row.operands != len(refs) or row.form != "plain" or len(outs) != 1:
        return None
    return Payload((ScalarOp(name, tuple(refs), outs[0].dtype, None, flags),), (Res(0),))


def _spelling(
    word: str, maps: Sequence[AffineMap], attributes: Mapping[str, str], *, has_body: bool
) -> Named:
    rest = dict(attributes)
    before, after = "", ""
    if "kind" in rest:
        before += f" <{_kind(rest.pop('kind'))}>"
    if maps and not _is_default(word, maps):
        before += f" indexing_maps = [{', '.join(map(str, maps))}]"
    for name in ("permutation", "dimensions"):
        if name in rest:
            after = f" {name} = {integers(rest.pop(name))}"
    if rest and not has_body and word not in _MOVES:
        before += f" {shown(rest)}"
    return Named(f"linalg.{word}", before, after, has_body)


def _is_default(word: str, maps: Sequence[AffineMap]) -> bool:
    return (word in _PRODUCTS and list(maps) == _product(word)[0]) or (
        word == "elementwise" and all(map_.is_identity for map_ in maps)
    )


# -- their loops and payloads


def _kind(text: str) -> str:
    """``add`` of ``#linalg.elementwise_kind<add>`` or ``<add>``."""
    return text.rpartition("<")[2].rstrip("> ")


def _loops(
    word: str,
    ins: Sequence[Value],
    outs: Sequence[Value],
    maps: list[AffineMap],
    attributes: Mapping[str, str],
) -> Loops | None:
    ranks = [out.rank for out in (*ins, *outs)]
    if word == "fill" or len(outs) < 1 or None in ranks:
        return None
    # without indexing_maps a product has the loops of its name; with them, or as contract, theirs
    if word in _PRODUCTS and not maps:
        return _product(word)
    if word in _PRODUCTS or word == "contract":
        return (maps, _kinds(maps)) if maps else None
    rank = ranks[len(ins)] or 0
    identity = AffineMap(rank, [Dim(loop) for loop in range(rank)])
    parallel = [PARALLEL] * rank
    if word in _MOVES:
        key = "permutation" if word == "transpose" else "dimensions"
        axes = integers(attributes.get(key, ""))
        if word == "broadcast":
            read = [Dim(loop) for loop in range(rank) if loop not in axes]
        elif sorted(axes) != list(range(rank)):
            return None
        else:
            read = [Dim(axes.index(axis)) for axis in range(rank)]
        return [AffineMap(rank, read), identity], parallel
    if word == "reduce":
        axes = integers(attributes.get("dimensions", ""))
        loops = ranks[0] or 0
        whole = AffineMap(loops, [Dim(loop) for loop in range(loops)])
        part = AffineMap(loops, [Dim(loop) for loop in range(loops) if loop not in axes])
        kinds = [REDUCTION if loop in axes else PARALLEL for loop in range(loops)]
        return [whole] * len(ins) + [part] * len(outs), kinds
    # its maps may broadcast and transpose; loops are counted by the last, the result's
    if word == "elementwise" and maps:
        return maps, [PARALLEL] * maps[-1].dims
    # a scalar operand has no axes to map
    if any(out.is_scalar for out in ins):
        return None
    return [identity] * len(ranks), parallel


def _product(word: str) -> Loops:
    axes = _PRODUCTS[word]
    loops = [letter for letter in _LOOPS if letter in "".join(axes)]
    if word in {"mmt4d", "batch_mmt4d"}:
        loops = [letter for letter in "bmnkilj" if letter in loops]
    maps = [AffineMap(len(loops), [Dim(loops.index(item)) for item in part]) for part in axes]
    return maps, _kinds(maps)


def _kinds(maps: Sequence[AffineMap]) -> list[str]:
    """A loop that is none of the result's is a reduction."""
    return [PARALLEL if loop in maps[-1].loops else REDUCTION for loop in range(maps[-1].dims)]


def _payload(
    word: str, ins: Sequence[Value], outs: Sequence[Value], attributes: Mapping[str, str]
) -> Payload | None:
    """The scalar operations of a name; None where the types have none here."""
    dtype = outs[0].dtype if outs else ""
    if not (is_float(dtype) or is_integer(dtype)) or len(outs) != 1:
        return None
    if word in _MOVES:
        return Payload((), (Arg(0),))
    if word == "elementwise":
        word = _kind(attributes.get("kind", ""))
    ops: list[ScalarOp] = []
    unsigned = "cast_unsigned" in attributes.get("cast", "")

    def cast(place: int) -> Ref | None:
        name = _cast(ins[place].dtype, dtype, unsigned=unsigned)
        if not name:
            return Arg(place) if name == "" else None
        ops.append(ScalarOp(name, (Arg(place),), dtype))
        return Res(len(ops) - 1)

    def add(name: str, *operands: Ref) -> Payload | None:
        if not name:
            return None
        ops.append(ScalarOp(name, operands, dtype))
        return Payload(tuple(ops), (Res(len(ops) - 1),))

    if word == "select":
        return add("arith.select", Arg(0), Arg(1), Arg(2)) if len(ins) == 3 else None
    # operands become the result's type first, as MLIR's named operations cast them
    count = 1 if word in {*_UNARY, "copy", "square", "reciprocal"} else 2
    operands = [cast(place) for place in range(count)] if len(ins) == count else []
    factors = [operand for operand in operands if operand is not None]
    if len(factors) != count:
        return None
    place = 0 if is_float(dtype) else 1
    if word == "copy":
        return Payload(tuple(ops), (factors[0],))
    if word == "square":
        return add(_BINARY["mul"][place], factors[0], factors[0])
    if word in _UNARY:
        return add(_UNARY[word] if is_float(dtype) else "", *factors)
    if word in _BINARY:
        return add(_BINARY[word][place], *factors)
    if word in _PRODUCTS or word == "contract":
        multiply, sum_ = (
            ("arith.andi", "arith.ori")
            # over booleans a product is `and`, a sum `or`
            if dtype == "i1"
            else (_BINARY["mul"][place], _BINARY["add"][place])
        )
        if add(multiply, *factors) is not None:
            return add(sum_, Arg(len(ins)), Res(len(ops) - 1))
    return None


def _cast(source: str, target: str, *, unsigned: bool) -> str | None:
    """The cast to the type of the result, "" for none."""
    if source == target:
        return ""
    if source in FLOATS and target in FLOATS:
        width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
        wider = width[source] < width[target]
        return "arith.extf" if wider else "arith.truncf" if width[source] > width[target] else None
    if not is_integer(source) or source == "index" or target == "index":
        return None
    if is_float(target):
        return "arith.uitofp" if unsigned else "arith.sitofp"
    if int(source.lstrip("sui")) > int(target.lstrip("sui")):
        return "arith.trunci"
    return "arith.extui" if unsigned else "arith.extsi"


# -- printed


def print_named(printer: Printer, op: Generic) -> None:
    """As it was read; a body is that of its payload."""
    assert op.named is not None
    names = [printer.value(value, op) for value in op.operands]
    for ref in op.payload.refs:  # constants go before the operation
        printer.outside(ref)
    types = [value.type_text for value in op.operands]
    count = len(op.ins)
    listing = "".join(
        f" {word}({', '.join(names[part])} : {', '.join(types[part])})"
        for word, part in (("ins", slice(count)), ("outs", slice(count, None)))
        if names[part]
    )
    line = (
        f"  {printer.results(op.results)}{op.named.name}{op.named.before}{listing}{op.named.after}"
    )
    kinds = [value.type_text for value in op.results]
    if op.named.has_body:
        arguments = [printer.fresh("in" if place < count else "out") for place in range(len(names))]
        block = ", ".join(
            f"{name}: {value.dtype}" for name, value in zip(arguments, op.operands, strict=True)
        )
        printer.lines.append(f"{line}")
        printer.lines.append(f"    ({block}) {{")
        printer.lines += [f"    {item}" for item in payload_lines(printer, op, arguments)]
        printer.lines.append("    }")
        return
    if op.named.after or not kinds:
        printer.lines.append(line)
        return
    result = f"({', '.join(kinds)})" if len(kinds) > 1 else kinds[0]
    printer.lines.append(f"{line} -> {result}")
