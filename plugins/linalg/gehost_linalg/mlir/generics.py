"""Assembly of ``linalg.generic``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from gehost_linalg.affine import AffineMap, Const, Dim, Expr, dims_of, substitute
from gehost_linalg.generic import (
    INDEX,
    Arg,
    Generic,
    GenericError,
    Literal,
    Ref,
    Res,
    ScalarOp,
    Value,
    dtype_of,
    verify,
)
from gehost_linalg.mlir.function import Statement
from gehost_linalg.mlir.payload import PayloadReader, scalar_text
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.reader import Reader
from gehost_linalg.mlir.types import OPERATION, STRING


def read_generic(reader: Reader, statement: Statement) -> list[Value]:
    maps, iterators = _attributes(reader)
    at = reader.skip()
    ins, outs = reader.listed_operands("ins"), reader.listed_operands("outs")
    if any(value.shape is None for value in (*ins, *outs)):
        raise reader.error("an operand has no rank", at)
    if reader.accept("attrs"):
        reader.expect("=")
        reader.braces()
    reader.expect("{")
    payload = PayloadReader(reader, ins, outs).read()
    made = reader.result_types(statement.results) if reader.accept("->") else []
    op = Generic(tuple(ins), tuple(outs), tuple(maps), tuple(iterators), payload, tuple(made))
    try:
        verify(op)
    except GenericError as error:
        raise reader.error(str(error), statement.start) from error
    reader.ops.append(op)
    return made


def _attributes(reader: Reader) -> tuple[list[AffineMap], list[str]]:
    reader.expect("{")
    maps: list[AffineMap] = []
    iterators: list[str] = []
    seen = set[str]()
    while not reader.accept("}"):
        if seen:
            reader.expect(",")
        start = reader.skip()
        name = reader.take(OPERATION, "an attribute")
        if name in seen:
            raise reader.error(f"{name} is given twice", start)
        seen.add(name)
        if name == "indexing_maps":
            reader.expect("=")
            maps = reader.listed("[", "]", reader.map)
        elif name == "iterator_types":
            reader.expect("=")
            iterators = reader.listed("[", "]", lambda: _iterator(reader))
        else:
            raise reader.error(f"attribute {name} is not supported")
    return maps, iterators


def _iterator(reader: Reader) -> str:
    return reader.take(STRING, 'an iterator type, "parallel" or "reduction"').strip('"')


def print_generic_op(printer: Printer, op: Generic) -> None:
    ins = [printer.value(value, op) for value in op.ins]
    outs = [printer.value(value, op) for value in op.outs]
    for each in op.payload.ops:  # constants go before the operation
        for ref in each.operands:
            _outside(printer, ref)
    for ref in op.payload.yields:
        _outside(printer, ref)
    results = [printer.name(op.results[0])] if len(op.results) == 1 else []
    if len(op.results) > 1:
        results = [printer.fresh(op.results[0].name.partition("#")[0])]
        printer.names.update(
            {value: f"{results[0]}#{place}" for place, value in enumerate(op.results)}
        )
    maps = ", ".join(map(str, op.maps))
    kinds = ", ".join(f'"{kind}"' for kind in op.iterators)
    attributes = f"{{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
    many = f":{len(op.results)}" if len(op.results) > 1 else ""
    equals = f"{results[0]}{many} = " if results else ""
    printer.lines.append(
        f"  {equals}linalg.generic "
        f"{attributes}{_typed('ins', ins, op.ins)}{_typed('outs', outs, op.outs)} {{"
    )
    printer.lines += [f"  {line}" for line in _payload(printer, op)]
    types = ", ".join(value.type_text for value in op.results)
    made = f" -> ({types})" if len(op.results) > 1 else f" -> {types}" if results else ""
    printer.lines.append(f"  }}{made}")
    _note_roots(printer, op)


def _note_roots(printer: Printer, op: Generic) -> None:
    """Take the sizes of a result from its out.

    Reading them would be another use of the result.
    """
    for out, result in zip(op.outs, op.results, strict=True):
        for axis in range(len(result.shape or ())):
            printer.sizes.roots[result, axis] = printer.sizes.roots.get((out, axis), (out, axis))


def _outside(printer: Printer, ref: Ref) -> str | None:
    if isinstance(ref, Literal):
        return printer.constant(ref)
    return printer.value(ref) if isinstance(ref, Value) else None


def _payload(printer: Printer, op: Generic) -> Iterator[str]:
    names = [
        printer.fresh("in" if index < len(op.ins) else "out") for index in range(len(op.operands))
    ]
    arguments = [f"{name}: {value.dtype}" for name, value in zip(names, op.operands, strict=True)]
    yield f"^bb0({', '.join(arguments)}):"
    made: list[str] = []

    def shown(ref: Ref) -> str:
        outside = _outside(printer, ref)
        if outside is not None:
            return outside
        return names[ref.index] if isinstance(ref, Arg) else made[cast("Res", ref).index]

    for each in op.payload.ops:
        if each.name == INDEX:
            yield from _index(printer, each, made)
            continue
        operands = ", ".join(map(shown, each.operands))
        types = [dtype_of(op, ref) for ref in each.operands]
        made.append(printer.fresh("r"))
        yield f"  {made[-1]} = {scalar_text(each, operands, types)}"
    types = ", ".join(value.dtype for value in op.outs)
    yield f"  linalg.yield {', '.join(map(shown, op.payload.yields))} : {types}"


def _index(printer: Printer, op: ScalarOp, made: list[str]) -> Iterator[str]:
    """A loop's index, or ``affine.apply`` of several."""
    expr = cast("Expr", op.attribute)
    name = printer.fresh("i")
    if isinstance(expr, Dim):
        yield f"  {name} = linalg.index {expr.index} : index"
        made.append(name)
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
    made.append(name)


def _typed(word: str, names: Sequence[str], values: Sequence[Value]) -> str:
    return (
        f" {word}({', '.join(names)} : {', '.join(value.type_text for value in values)})"
        if values
        else ""
    )
