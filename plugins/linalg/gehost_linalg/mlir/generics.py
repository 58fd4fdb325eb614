"""Assembly of ``linalg.generic``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

from gehost_linalg.affine import AffineMap, Const, Dim, Expr, dims_of, substitute
from gehost_linalg.generic import (
    INDEX,
    Arg,
    Generic,
    GenericError,
    Ref,
    Res,
    ScalarOp,
    Template,
    Value,
    dtype_of,
    expr_of,
    verify,
)
from gehost_linalg.mlir.function import Parts, Statement
from gehost_linalg.mlir.opaque import template_text
from gehost_linalg.mlir.payload import PayloadReader
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.reader import Make, Reader
from gehost_linalg.mlir.scalars import scalar_text
from gehost_linalg.mlir.types import TypeReader
from gehost_linalg.operations import OPERATIONS
from gehost_mlir.attributes import integers
from gehost_mlir.attributes import value as attribute_value
from gehost_mlir.source import ALIAS, OPERATION, STRING


def read_generic(reader: Reader, statement: Statement) -> list[Value]:
    """``linalg.generic {…} ins(…) outs(…) {…} -> type``."""
    maps, iterators = _attributes(reader)
    at = reader.skip()
    ins, outs = reader.listed_operands("ins"), reader.listed_operands("outs")
    _check_ranked(reader, [*ins, *outs], at)
    if reader.accept("attrs"):
        reader.expect("=")
        reader.dictionary()
    reader.expect("{")
    payload = PayloadReader(reader, ins, outs).read()
    results = reader.result_types(statement.results) if reader.accept("->") else []
    op = Generic(tuple(ins), tuple(outs), tuple(maps), tuple(iterators), payload, tuple(results))
    return add_verified(reader, statement, op)


def _check_ranked(reader: Reader, values: Sequence[Value], at: int) -> None:
    if any(value.shape is None for value in values):
        raise reader.error("an operand has no rank", at)


def add_verified(reader: Reader, statement: Statement, op: Generic) -> list[Value]:
    """Add an operation to the function; its results."""
    try:
        verify(op)
    except GenericError as error:
        raise reader.error(str(error), statement.start) from error
    reader.ops.append(op)
    return list(op.results)


def generic_of_parts(
    reader: Reader, statement: Statement, operands: list[Value], attributes: dict[str, str]
) -> Make:
    """Read the region of the generic form; returns what makes the operation of it."""
    del statement
    at = reader.skip()
    ins, outs = segments(reader, operands, attributes, at)
    _check_ranked(reader, operands, at)
    maps = maps_of(reader, attributes, at)
    iterators = re.findall(r'[<"](\w+)[>"]', attributes.get("iterator_types", ""))
    reader.expect("(")
    reader.expect("{")
    payload = PayloadReader(reader, ins, outs).read()
    reader.expect(")")

    def make(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
        op = Generic(
            tuple(ins), tuple(outs), tuple(maps), tuple(iterators), payload, tuple(parts.results)
        )
        return add_verified(reader, statement, op)

    return make


def segments(
    reader: Reader, operands: list[Value], attributes: dict[str, str], at: int, outs: int = 0
) -> tuple[list[Value], list[Value]]:
    """The ins and the outs among the operands of a generic form.

    MLIR prints no sizes for an operation whose number of ``outs`` is known.
    """
    older = attributes.get("operand_segment_sizes", "")  # of LLVM before 17
    counts = integers(attributes.get("operandSegmentSizes", older))
    if not counts and outs:
        counts = [len(operands) - outs, outs]
    elif older.startswith("dense") and len(counts) == 1:  # dense<1> : vector<2xi32>
        counts *= 2
    if len(counts) != 2 or min(counts) < 0 or sum(counts) != len(operands):
        raise reader.error(f"operandSegmentSizes do not give {len(operands)} operands", at)
    return operands[: counts[0]], operands[counts[0] :]


def maps_of(reader: Reader, attributes: dict[str, str], at: int) -> list[AffineMap]:
    """The indexing maps of a generic form."""
    texts = reader.part(attributes.get("indexing_maps", "[]"), at)
    return texts.listed("[", "]", texts.map)


def _attributes(reader: Reader) -> tuple[list[AffineMap], list[str]]:
    if not reader.peek("{"):  # an alias of all of them, as older texts have
        start = reader.skip()
        alias = reader.take(ALIAS, "the indexing maps and iterator types")
        if alias not in reader.aliases:
            raise reader.error(f"{alias} is not defined", start)
        return _attributes_in(reader.part(reader.aliases[alias], start))
    return _attributes_in(reader)


def _attributes_in(reader: TypeReader) -> tuple[list[AffineMap], list[str]]:
    reader.expect("{")
    maps: list[AffineMap] = []
    iterators: list[str] = []
    visited = set[str]()
    while not reader.accept("}"):
        if visited:
            reader.expect(",")
        start = reader.skip()
        name = reader.take(OPERATION, "an attribute")
        if name in visited:
            raise reader.error(f"{name} is given twice", start)
        visited.add(name)
        if name == "indexing_maps":
            reader.expect("=")
            maps = reader.listed("[", "]", reader.map)
        elif name == "iterator_types":
            reader.expect("=")
            iterators = reader.listed("[", "]", lambda: _iterator(reader))
        elif name in {"doc", "library_call"}:  # notes, which mean nothing to fusion
            reader.expect("=")
            attribute_value(reader, reader.aliases)
        else:
            raise reader.error(f"attribute {name} is not supported")
    return maps, iterators


def _iterator(reader: TypeReader) -> str:
    if reader.accept("#linalg.iterator_type"):
        reader.expect("<")
        word = reader.take(OPERATION, "parallel or reduction")
        reader.expect(">")
        return word
    return reader.take(STRING, 'an iterator type, "parallel" or "reduction"').strip('"')


def print_generic_op(printer: Printer, op: Generic) -> None:
    ins = [printer.value(value, op) for value in op.ins]
    outs = [printer.value(value, op) for value in op.outs]
    for item in op.payload.ops:  # constants go before the operation
        for ref in item.operands:
            printer.outside(ref)
    for ref in op.payload.yields:
        printer.outside(ref)
    equals = printer.results(op.results)
    maps = ", ".join(map(str, op.maps))
    kinds = ", ".join(f'"{kind}"' for kind in op.iterators)
    attributes = f"{{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
    printer.lines.append(
        f"  {equals}linalg.generic "
        f"{attributes}{_typed('ins', ins, op.ins)}{_typed('outs', outs, op.outs)} {{"
    )
    printer.lines += [f"  {line}" for line in _payload(printer, op)]
    types = ", ".join(value.type_text for value in op.results)
    result = f" -> ({types})" if len(op.results) > 1 else f" -> {types}" if op.results else ""
    printer.lines.append(f"  }}{result}")
    _note_roots(printer, op)


def _note_roots(printer: Printer, op: Generic) -> None:
    """Take the sizes of a result from its out.

    Reading them would be another use of the result.
    """
    for out, result in zip(op.outs, op.results, strict=True):
        for axis in range(len(result.shape or ())):
            printer.sizes.roots[result, axis] = printer.sizes.roots.get((out, axis), (out, axis))


def _payload(printer: Printer, op: Generic) -> Iterator[str]:
    names = [
        printer.fresh("in" if index < len(op.ins) else "out") for index in range(len(op.operands))
    ]
    arguments = [f"{name}: {value.dtype}" for name, value in zip(names, op.operands, strict=True)]
    yield f"^bb0({', '.join(arguments)}):"
    yield from payload_lines(printer, op, names)


def payload_lines(printer: Printer, op: Generic, names: Sequence[str]) -> Iterator[str]:
    """The operations of a payload, with the names of its arguments."""
    created: list[str] = []

    def shown(ref: Ref) -> str:
        outside = printer.outside(ref)
        if outside is not None:
            return outside
        return names[ref.index] if isinstance(ref, Arg) else created[cast("Res", ref).index]

    pairs: dict[tuple[object, ...], list[str]] = {}
    for item in op.payload.ops:
        if item.name == INDEX:
            yield from _index(printer, item, created)
            continue
        operands = [shown(ref) for ref in item.operands]
        row = OPERATIONS.get(item.name)
        if row is None:
            created.append(printer.fresh("r"))
            assert isinstance(item.attribute, Template)
            text = template_text(item.attribute, operands, printer.fresh)
            yield f"  {created[-1]} = {item.name}{text}"
            continue
        types = [_type_of(op, ref) for ref in item.operands]
        if row.results == 1:
            created.append(printer.fresh("r"))
            text = scalar_text(item.name, operands, types, [item.dtype], item.attribute, item.flags)
            yield f"  {created[-1]} = {text}"
            continue
        key = (item.name, item.operands, item.flags)
        if key not in pairs:  # both results at once
            pairs[key] = [printer.fresh("r"), printer.fresh("r")]
            results = [types[0], types[0] if row.form == "pair" else "i1"]
            text = scalar_text(item.name, operands, types, results, None, item.flags)
            yield f"  {', '.join(pairs[key])} = {text}"
        created.append(pairs[key][int(str(item.attribute))])
    types = ", ".join(value.dtype for value in op.outs)
    listing = f" {', '.join(map(shown, op.payload.yields))} : {types}" if op.outs else ""
    yield f"  linalg.yield{listing}"


def _type_of(op: Generic, ref: Ref) -> str:
    return ref.type_text if isinstance(ref, Value) else dtype_of(op, ref)


def _index(printer: Printer, op: ScalarOp, results: list[str]) -> Iterator[str]:
    """A loop's index, or ``affine.apply`` of several."""
    expr = expr_of(op)
    name = printer.fresh("i")
    if isinstance(expr, Dim):
        yield f"  {name} = linalg.index {expr.index} : index"
        results.append(name)
        return
    loops = sorted(dims_of(expr))
    indices: list[str] = []
    for loop in loops:
        indices.append(printer.fresh("i"))
        yield f"  {indices[-1]} = linalg.index {loop} : index"
    places: list[Expr] = [
        Dim(loops.index(loop)) if loop in loops else Const(0)
        for loop in range(max(loops, default=-1) + 1)
    ]
    map_ = AffineMap(len(loops), [substitute(expr, places)])
    yield f"  {name} = affine.apply {map_}({', '.join(indices)})"
    results.append(name)


def _typed(word: str, names: Sequence[str], values: Sequence[Value]) -> str:
    return (
        f" {word}({', '.join(names)} : {', '.join(value.type_text for value in values)})"
        if values
        else ""
    )
