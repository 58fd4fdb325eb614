"""Assembly of operations that fusion only carries through: named ones of linalg, parts, padding."""

from __future__ import annotations

import re

from gehost_linalg.generic import Opaque, Value
from gehost_linalg.mlir.function import Statement
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.reader import KeptAsText, Reader
from gehost_mlir.source import SSA, STRING

STRIDED = "tensor.extract_slice of any form"
"""A part with steps, fewer axes or computed offsets, which no group contains."""

# -- lists of numbers and computed sizes: [2, ?], with the computed ones as operands


def _read_lists(reader: Reader, count: int) -> tuple[str, list[Value]]:
    lists = [reader.sizes() for _ in range(count)]
    computed = [item for row in lists for item in row if isinstance(item, Value)]
    return " ".join(map(shown_list, lists)), computed


def shown_list(items: list[int | Value]) -> str:
    """``[2, ?]``: the computed ones are operands."""
    return f"[{', '.join('?' if isinstance(item, Value) else str(item) for item in items)}]"


def _lists(printer: Printer, op: Opaque, first: int) -> str:
    """The lists with the names of computed sizes, which are the operands from ``first``."""
    text = str(op.attribute)
    for value in op.operands[first:]:
        text = text.replace("?", printer.value(value), 1)
    return text


def read_any_slice(
    reader: Reader, source: Value, lists: tuple[list[int | Value], ...], result: Value, at: int
) -> list[Value]:
    """A part of any form; the list of its sizes without axes of size 1 is that of the result."""
    begins, sizes, steps = lists
    if not len(begins) == len(sizes) == len(steps) == (source.rank or 0):
        raise reader.error(f"a part of {source.type_text} has {source.rank} of each list", at)
    declared = [number if isinstance(number, int) else None for number in sizes]
    rest = iter(declared)
    shape = list(result.shape or ())
    retained = all(any(size == number for number in rest) for size in shape)
    dropped = sorted(map(str, declared)) != sorted(
        map(str, shape + [1] * (len(sizes) - len(shape)))
    )
    if result.dtype != source.dtype or result.is_scalar or not retained or dropped:
        raise reader.error(
            f"sizes {declared} of {source.type_text} do not make {result.type_text}", at
        )
    for begin, size, step, whole in zip(begins, sizes, steps, source.shape or (), strict=True):
        numbers = (begin, size, step, whole)
        if all(isinstance(number, int) for number in numbers):
            first, count, stride, end = [
                int(number) for number in numbers if isinstance(number, int)
            ]
            if count and first + (count - 1) * stride >= end:
                raise reader.error(f"{size} from {begin} is beyond {source.type_text}", at)
    computed = [number for row in lists for number in row if isinstance(number, Value)]
    text = " ".join(map(shown_list, lists))
    reader.ops.append(Opaque(STRIDED, (source, *computed), (result,), text))
    return [result]


def print_any_slice(printer: Printer, op: Opaque) -> None:
    """As ``tensor.extract_slice``."""
    source, value = op.operands[0], op.results[0]
    read, lists = printer.value(source), _lists(printer, op, 1)
    types = f"{source.type_text} to {value.type_text}"
    printer.lines.append(f"  {printer.name(value)} = tensor.extract_slice {read}{lists} : {types}")


def read_insert_slice(reader: Reader, statement: Statement) -> list[Value]:
    """``tensor.insert_slice %part into %whole[0] [2] [1] : type into type``."""
    part = reader.use()
    reader.expect("into")
    whole = reader.use()
    start = reader.skip()
    text, computed = _read_lists(reader, 3)
    reader.expect(":")
    reader.check_type(part)
    reader.expect("into")
    result = reader.check_type(whole)
    result.name = statement.result("inserted")
    return make_insert_slice(reader, (part, whole), (text, computed), result, start)


def make_insert_slice(
    reader: Reader,
    tensors: tuple[Value, Value],
    lists: tuple[str, list[Value]],
    result: Value,
    start: int,
) -> list[Value]:
    """``lists`` are offsets, sizes and steps as a text, and the computed ones."""
    (part, whole), (text, computed) = tensors, lists
    if part.is_scalar or whole.is_scalar or part.dtype != whole.dtype:
        raise reader.error(f"{part.type_text} is no part of {whole.type_text}", start)
    reader.ops.append(Opaque("tensor.insert_slice", (part, whole, *computed), (result,), text))
    return [result]


def print_insert_slice(printer: Printer, op: Opaque) -> None:
    """A tensor with a part replaced."""
    part, whole = [printer.value(value) for value in op.operands[:2]]
    lists = _lists(printer, op, 2)
    types = f"{op.operands[0].type_text} into {op.operands[1].type_text}"
    printer.lines.append(
        f"  {printer.name(op.results[0])} = {op.name} {part} into {whole}{lists} : {types}"
    )


def read_extract(reader: Reader, statement: Statement) -> list[Value]:
    """``tensor.extract %a[%i] : type``: one element as a scalar."""
    source = reader.use()
    start = reader.skip()
    places = reader.listed("[", "]", reader.index)
    reader.expect(":")
    reader.check_type(source)
    return make_extract(reader, statement, source, places, start)


def make_extract(
    reader: Reader, statement: Statement, source: Value, places: list[Value], start: int
) -> list[Value]:
    if source.is_scalar or len(places) != (source.rank or 0):
        raise reader.error(f"an element of {source.type_text} has {source.rank} indices", start)
    result = Value(statement.result("extracted"), source.dtype, kind="scalar")
    reader.ops.append(Opaque(statement.name, (source, *places), (result,)))
    return [result]


def print_extract(printer: Printer, op: Opaque) -> None:
    """One element."""
    source, *places = [printer.value(value) for value in op.operands]
    name, type_text = printer.name(op.results[0]), op.operands[0].type_text
    printer.lines.append(f"  {name} = {op.name} {source}[{', '.join(places)}] : {type_text}")


def read_pad(reader: Reader, statement: Statement) -> list[Value]:
    """``tensor.pad %a low[1] high[0] { ^bb0(…): tensor.yield %c : f32 } : type to type``.

    Of a border that is computed at each place, the text is kept.
    """
    begin = reader.position
    source = reader.use()
    nofold = reader.accept("nofold")
    reader.expect("low")
    low = reader.sizes()
    reader.expect("high")
    high = reader.sizes()
    reader.expect("{")
    _skip_block(reader)
    start = reader.skip()
    if not reader.accept("tensor.yield"):
        return reader.as_text(statement, begin)
    ssa = reader.take(SSA, "a value")
    if ssa not in reader.values:
        return reader.as_text(statement, begin)
    fill = reader.values[ssa]
    reader.expect(":")
    reader.check_type(fill)
    reader.expect("}")
    reader.expect(":")
    reader.check_type(source)
    reader.expect("to")
    result = reader.type(statement.result("padded"))
    return make_pad(reader, (source, fill), (low, high), result, start, nofold=nofold)


def make_pad(
    reader: Reader,
    values: tuple[Value, Value],
    lists: tuple[list[int | Value], list[int | Value]],
    result: Value,
    start: int,
    *,
    nofold: bool,
) -> list[Value]:
    """Add a border of one value."""
    (source, fill), (low, high) = values, lists
    if result.dtype != source.dtype or fill.type_text != source.dtype or result.rank != source.rank:
        raise reader.error(f"{source.type_text} is not padded to {result.type_text}", start)
    if not len(low) == len(high) == source.rank:
        raise reader.error(f"{source.type_text} is padded along {source.rank} axes", start)
    for before, size, after, whole in zip(
        low, source.shape or (), high, result.shape or (), strict=True
    ):
        numbers = [item for item in (before, size, after) if isinstance(item, int)]
        if len(numbers) == 3 and whole != sum(numbers):
            raise reader.error(f"{source.type_text} is not padded to {result.type_text}", start)
    computed = [item for item in (*low, *high) if isinstance(item, Value)]
    text = f"{'nofold ' if nofold else ''}low{shown_list(low)} high{shown_list(high)}"
    reader.ops.append(Opaque("tensor.pad", (source, fill, *computed), (result,), text))
    return [result]


def read_border(reader: Reader) -> Value:
    """``({ ^bb0(%i: index): "tensor.yield"(%c) : (f32) -> () })``.

    Raises:
        KeptAsText: the value is computed inside.
    """
    start = reader.skip()
    reader.expect("(")
    reader.expect("{")
    _skip_block(reader)
    word = reader.match(STRING)
    operands = reader.listed("(", ")", lambda: reader.take(SSA, "a value")) if word else []
    if word != '"tensor.yield"' or len(operands) != 1 or operands[0] not in reader.values:
        raise KeptAsText("a border that is computed", reader.text, start)
    fill = reader.values[operands[0]]
    reader.expect(":")
    reader.expect("(")
    reader.check_type(fill)
    for literal in (")", "->", "(", ")", "}", ")"):
        reader.expect(literal)
    return fill


def _skip_block(reader: Reader) -> None:
    """Step over the label of a block whose arguments nothing reads."""
    reader.take(re.compile(r"\^[A-Za-z0-9_$.-]+"), "the block, ^bb0(…)")
    reader.listed("(", ")", lambda: _argument(reader))
    reader.expect(":")


def _argument(reader: Reader) -> None:
    reader.take(re.compile(r"%[A-Za-z0-9_$.-]+"), "an argument")
    reader.expect(":")
    reader.dtype()


def print_pad(printer: Printer, op: Opaque) -> None:
    """A tensor with a border of one value."""
    source, fill = [printer.value(value) for value in op.operands[:2]]
    lists, rank = _lists(printer, op, 2), op.results[0].rank or 0
    block = ", ".join(f"{printer.fresh('at')}: index" for _ in range(rank))
    types = f"{op.operands[0].type_text} to {op.results[0].type_text}"
    printer.lines += [
        f"  {printer.name(op.results[0])} = {op.name} {source} {lists} {{",
        f"  ^bb0({block}):",
        f"    tensor.yield {fill} : {op.operands[1].type_text}",
        f"  }} : {types}",
    ]
