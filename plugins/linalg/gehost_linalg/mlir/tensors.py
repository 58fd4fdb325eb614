"""Assembly of the operations on tensors: read and printed side by side."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import cast

from gehost_linalg.generic import (
    GenericError,
    Literal,
    Opaque,
    ScalarOp,
    Size,
    Template,
    Value,
    is_known,
)
from gehost_linalg.mlir.carried import read_any_slice
from gehost_linalg.mlir.function import Parts, Statement
from gehost_linalg.mlir.literals import has_elements, read_constant
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.reader import Reader
from gehost_linalg.mlir.scalars import Scalar, read_scalar, scalar_of_parts, scalar_text
from gehost_linalg.reshape import COLLAPSE, EXPAND, axes_of


def _types(values: tuple[Value, ...]) -> str:
    return ", ".join([value.type_text for value in values])


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


def constant(reader: Reader, statement: Statement) -> list[Value]:
    """``arith.constant 1.0 : f32``."""
    begin = reader.position
    if has_elements(reader):
        return [read_constant(reader, statement.results[0] if statement.results else "")]
    result = reader.as_text(statement, begin)
    reader.guessed.difference_update(result)  # the type behind a constant is its own
    return result


def constant_of_parts(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    """``"arith.constant"() <{value = 1.0 : f32}>``."""
    text = parts.attributes.get("value", "")
    inside = reader.part(text, statement.start)
    if has_elements(inside):
        return [read_constant(inside, statement.results[0] if statement.results else "")]
    reader.ops.append(Opaque("arith.constant", (), tuple(parts.results), Template((f" {text}",))))
    return parts.results


def read_empty(reader: Reader, statement: Statement) -> list[Value]:
    sizes = reader.listed("(", ")", reader.index)
    reader.expect(":")
    start = reader.skip()
    return [make_empty(reader, reader.type(statement.result("")), sizes, start)]


def make_empty(reader: Reader, value: Value, sizes: list[Value], start: int) -> Value:
    if value.shape is None or value.is_scalar:
        raise reader.error(f"tensor.empty makes a tensor with a rank, not {value.type_text}", start)
    unknown = sum(size is None for size in value.shape)
    if unknown != len(sizes):
        raise reader.error(f"{value.type_text} needs {unknown} sizes, got {len(sizes)}", start)
    value.kind, value.sizes = "empty", tuple(sizes)
    return value


def read_dim(reader: Reader, statement: Statement) -> list[Value]:
    source = reader.use()
    reader.expect(",")
    start = reader.skip()
    number = reader.index()
    reader.expect(":")
    reader.check_type(source)
    return make_dim(reader, statement, source, number, start)


def make_dim(
    reader: Reader, statement: Statement, source: Value, number: Value, start: int
) -> list[Value]:
    if number.constant is None:
        result = Value(statement.result("dim"), "index", kind="scalar")
        text = Template((" ", 0, ", ", 1, f" : {source.type_text}"))
        reader.ops.append(
            Opaque("tensor.dim of a computed axis", (source, number), (result,), text)
        )
        return [result]
    axis = int(number.constant.reshape(-1)[0])
    if source.rank is not None and not 0 <= axis < source.rank:
        raise reader.error(f"axis {axis} of {source!r}", start)
    result = Value(statement.result("dim"), "index", kind="scalar")
    reader.ops.append(Opaque("tensor.dim", (source,), (result,), axis))
    return [result]


def print_dim(printer: Printer, op: Opaque) -> None:
    """The size of an axis."""
    source, result = printer.value(op.operands[0]), printer.name(op.results[0])
    number = printer.constant(Literal(op.axis, "index"))
    printer.lines.append(f"  {result} = tensor.dim {source}, {number} : {op.operands[0].type_text}")


def read_fill(reader: Reader, statement: Statement) -> list[Value]:
    start = reader.skip()
    ins, outs = reader.listed_operands("ins"), reader.listed_operands("outs")
    reader.expect("->")
    if len(outs) == 1:
        reader.check_type(outs[0])
    return make_fill(reader, statement, ins, outs, start)


def make_fill(
    reader: Reader, statement: Statement, ins: list[Value], outs: list[Value], start: int
) -> list[Value]:
    if len(ins) != 1 or len(outs) != 1:
        raise reader.error("linalg.fill takes one scalar and one tensor", start)
    scalar, out = ins[0], outs[0]
    if not scalar.is_scalar or scalar.dtype != out.dtype:
        raise reader.error(f"linalg.fill of {out.type_text} with {scalar.type_text}", start)
    fill = scalar.splat or scalar
    name = statement.result("fill")
    sizes = out.sizes
    if out.kind == "tensor" and None in (out.shape or ()):
        sizes = tuple(_sizes_of(reader, out))
    return [Value(name, out.dtype, out.shape, kind="fill", fill=fill, sizes=sizes)]


def _sizes_of(reader: Reader, value: Value) -> Iterator[Value]:
    for axis, size in enumerate(value.shape or ()):
        if size is None:
            result = Value(f"{value.name}_dim{axis}", "index", kind="scalar")
            reader.ops.append(Opaque("tensor.dim", (value,), (result,), axis))
            yield result


def read_cast(reader: Reader, statement: Statement) -> list[Value]:
    """The same tensor with more or fewer sizes in its type."""
    source = reader.use()
    reader.expect(":")
    reader.check_type(source)
    reader.expect("to")
    start = reader.skip()
    return make_cast(reader, source, reader.type(statement.result("cast")), start)


def make_cast(reader: Reader, source: Value, result: Value, start: int) -> list[Value]:
    if not _agree(source, result):
        raise reader.error(f"{source.type_text} is not cast to {result.type_text}", start)
    reader.ops.append(Opaque("tensor.cast", (source,), (result,)))
    return [result]


def print_cast(printer: Printer, op: Opaque) -> None:
    """The same tensor with another type."""
    source = printer.value(op.operands[0])
    types = f"{op.operands[0].type_text} to {op.results[0].type_text}"
    printer.lines.append(f"  {printer.name(op.results[0])} = tensor.cast {source} : {types}")


def read_reshape(reader: Reader, statement: Statement) -> list[Value]:
    """Axes that are split or merged, group by group."""
    source = reader.use()
    start = reader.skip()
    groups = reader.listed(
        "[", "]", lambda: reader.listed("[", "]", lambda: reader.integer("an axis"))
    )
    arguments: list[int | Value] = []
    if statement.name == EXPAND:
        reader.expect("output_shape")
        arguments = reader.sizes()
    reader.expect(":")
    reader.check_type(source)
    reader.expect("into")
    at = reader.skip()
    result = reader.type(statement.result("reshaped"))
    return make_reshape(reader, statement, source, result, (groups, arguments), (start, at))


def make_reshape(
    reader: Reader,
    statement: Statement,
    source: Value,
    result: Value,
    lists: tuple[list[list[int]], list[int | Value]],
    places: tuple[int, int],
) -> list[Value]:
    """Split or merge groups of axes; ``lists`` are these and the sizes of split axes."""
    (groups, argument), (start, at) = lists, places
    few, many = (source, result) if statement.name == EXPAND else (result, source)
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
        raise reader.error(
            f"{groups} does not give each axis of {many.type_text} to one of {few.type_text}",
            start,
        )
    for group, whole in zip(groups, few.shape or (), strict=True):
        parts: list[Size] = [size for axis, size in enumerate(many.shape or ()) if axis in group]
        if (None in parts) != (whole is None):
            raise reader.error(f"a size is unknown at one side of {groups} alone", at)
        if None not in parts and prod([int(size or 0) for size in parts]) != whole:
            raise reader.error(f"sizes {parts} do not make {whole}", at)
    declared = [item if isinstance(item, int) else None for item in argument]
    computed = [item for item in argument if isinstance(item, Value)]
    if source.dtype != result.dtype or (
        statement.name == EXPAND and declared != list(result.shape or ())
    ):
        raise reader.error(
            f"sizes {declared} of {source.type_text} do not make {result.type_text}", at
        )
    many_unknown = any(
        [(many.shape or ())[axis] for axis in group].count(None) > 1 for group in groups
    )
    if statement.name == EXPAND and many_unknown:  # the sizes are no quotients of the whole
        sizes: list[str | int] = [f" {groups} output_shape ["]
        numbers = iter(range(1, len(computed) + 1))
        for place, item in enumerate(argument):
            sizes += [", " * bool(place), str(item) if isinstance(item, int) else next(numbers)]
        text = Template((" ", 0, *sizes, f"] : {source.type_text} into {result.type_text}"))
        reader.ops.append(Opaque(f"{EXPAND} of any sizes", (source, *computed), (result,), text))
        return [result]
    reader.ops.append(Opaque(statement.name, (source,), (result,), str(groups)))
    return [result]


def print_collapse(printer: Printer, op: Opaque) -> None:
    """Axes that are merged."""
    source, result = printer.value(op.operands[0]), printer.name(op.results[0])
    for axis, group in enumerate(axes_of(op)):
        if not is_known((op.results[0].shape or ())[axis]):
            printer.sizes.merged[op.results[0], axis] = (op.operands[0], group)
    types = f"{op.operands[0].type_text} into {op.results[0].type_text}"
    printer.lines.append(f"  {result} = {COLLAPSE} {source} {op.attribute} : {types}")


def print_expand(printer: Printer, op: Opaque) -> None:
    """Axes that are split."""
    source, result = printer.value(op.operands[0]), printer.name(op.results[0])
    sizes = ", ".join(_split_sizes(printer, op))
    types = f"{op.operands[0].type_text} into {op.results[0].type_text}"
    printer.lines.append(
        f"  {result} = {EXPAND} {source} {op.attribute} output_shape [{sizes}] : {types}"
    )


def _split_sizes(printer: Printer, op: Opaque) -> Iterator[str]:
    """The sizes of a split axis; an unknown one is a quotient."""
    source, shape = op.operands[0], op.results[0].shape or ()
    if not axes_of(op):  # of rank 0
        yield from map(str, shape)
    for axis, group in enumerate(axes_of(op)):
        unknown = [item for item in group if not is_known(shape[item])]
        if len(unknown) > 1:
            raise GenericError(f"{op.name} {op.attribute}: two sizes of a group are unknown")
        entries = [int(shape[item] or 0) for item in group if item not in unknown]
        for item in group:
            if item not in unknown:
                yield str(shape[item])
                continue
            size = printer.sizes.dim(source, axis)
            if prod(entries) != 1:
                size = printer.sizes.index_op("divsi", size, prod(entries))
            printer.sizes.known[op.results[0], item] = size
            yield size


def read_scalar_op(reader: Reader, statement: Statement) -> list[Value]:
    """``arith.minsi %a, %b : index``: a scalar operation outside of a payload, or on tensors."""

    def use() -> tuple[Value, str]:
        value = reader.use()
        return value, value.type_text

    scalar = read_scalar(reader, statement.name, reader.position, use)
    results = [reader.part(text, statement.start).type("") for text in scalar.results]
    return _add_scalar(reader, statement, scalar, results)


def scalar_op_of_parts(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    """The same in generic form."""
    operands = [(value, value.type_text) for value in parts.operands]
    results = [value.type_text for value in parts.results]
    scalar = scalar_of_parts(
        reader, statement.name, statement.start, operands, parts.attributes, results
    )
    return _add_scalar(reader, statement, scalar, parts.results)


def _add_scalar(
    reader: Reader, statement: Statement, scalar: Scalar[Value], results: list[Value]
) -> list[Value]:
    for value, name in zip(results, (*statement.results, *["%size"] * len(results)), strict=False):
        value.name = name[1:]
    attribute = ScalarOp(statement.name, (), results[0].dtype, scalar.attribute, scalar.flags)
    reader.ops.append(Opaque(statement.name, tuple(scalar.operands), tuple(results), attribute))
    return results


def print_scalar_op(printer: Printer, op: Opaque) -> None:
    """A scalar operation outside of a payload."""
    operands = [printer.value(value) for value in op.operands]
    types, results = ([value.type_text for value in item] for item in (op.operands, op.results))
    attribute = op.attribute if isinstance(op.attribute, ScalarOp) else ScalarOp("", (), "")
    text = scalar_text(op.name, operands, types, results, attribute.attribute, attribute.flags)
    names = ", ".join([printer.name(value) for value in op.results])
    printer.lines.append(f"  {names} = {text}")


def read_extract_slice(reader: Reader, statement: Statement) -> list[Value]:
    """Its operands are the source and the sizes that are not known."""
    source = reader.use()
    start = reader.skip()
    begins, sizes, steps = reader.sizes(), reader.sizes(), reader.sizes()
    reader.expect(":")
    reader.check_type(source)
    reader.expect("to")
    at = reader.skip()
    result = reader.type(statement.result("part"))
    return make_extract_slice(reader, source, (begins, sizes, steps), result, (start, at))


def make_extract_slice(
    reader: Reader,
    source: Value,
    lists: tuple[list[int | Value], list[int | Value], list[int | Value]],
    result: Value,
    places: tuple[int, int],
) -> list[Value]:
    """A part of a tensor; ``lists`` are offsets, sizes and steps."""
    (begins, sizes, steps), (start, at) = lists, places
    offsets = [step for step in begins if isinstance(step, int)]
    if offsets != begins or any(step != 1 for step in steps) or len(sizes) != result.rank:
        return read_any_slice(reader, source, (begins, sizes, steps), result, start)
    if {len(begins), len(sizes), len(steps)} != {source.rank}:
        raise reader.error(f"a part of {source.type_text} has {source.rank} of each list", start)
    declared = [step if isinstance(step, int) else None for step in sizes]
    if list(result.shape or ()) != declared or result.dtype != source.dtype:
        raise reader.error(
            f"sizes {declared} of {source.type_text} do not make {result.type_text}", at
        )
    for begin, size, whole in zip(offsets, declared, source.shape or (), strict=True):
        if isinstance(whole, int) and begin + (size or 0) > whole:
            raise reader.error(f"{size} from {begin} is beyond {source.type_text}", start)
    unknown = tuple(step for step in sizes if isinstance(step, Value))
    reader.ops.append(
        Opaque("tensor.extract_slice", (source, *unknown), (result,), ",".join(map(str, offsets)))
    )
    return [result]


def print_extract_slice(printer: Printer, op: Opaque) -> None:
    """A part of a tensor, with its sizes."""
    source, value = op.operands[0], op.results[0]
    read = printer.value(source)
    argument = iter(op.operands[1:])  # of a text that was read
    sizes: list[str] = []
    for axis, size in enumerate(value.shape or ()):
        if is_known(size):
            sizes.append(str(size))
            continue
        declared = next(argument, None)
        sizes.append(
            printer.value(declared) if declared else printer.sizes.of_axis(value, axis, None)
        )
        printer.sizes.known[value, axis] = sizes[-1]
    begins = str(op.attribute).split(",")
    places = f"[{', '.join(begins)}] [{', '.join(sizes)}] [{', '.join('1' for _ in begins)}]"
    types = f"{source.type_text} to {value.type_text}"
    printer.lines.append(f"  {printer.name(value)} = tensor.extract_slice {read}{places} : {types}")


def read_concat(reader: Reader, statement: Statement) -> list[Value]:
    reader.expect("dim")
    reader.expect("(")
    axis = reader.integer("an axis")
    reader.expect(")")
    operands = [reader.use()]
    while reader.accept(","):
        operands.append(reader.use())
    reader.expect(":")
    reader.expect("(")
    reader.check_types(operands)
    reader.expect(")")
    reader.expect("->")
    at = reader.skip()
    return make_concat(reader, operands, axis, reader.type(statement.result("concat")), at)


def make_concat(
    reader: Reader, operands: list[Value], axis: int, result: Value, at: int
) -> list[Value]:
    rank = result.rank or 0
    if axis >= rank or not all(_agree(operand, result, but=axis) for operand in operands):
        raise reader.error(f"these operands do not make {result.type_text} along {axis}", at)
    lengths = [cast("tuple[Size, ...]", operand.shape)[axis] for operand in operands]
    whole = cast("tuple[Size, ...]", result.shape)[axis]
    entries = [size for size in lengths if isinstance(size, int)]
    if len(entries) == len(lengths) and whole not in {None, sum(entries)}:
        raise reader.error(f"sizes {entries} do not make {whole}", at)
    reader.ops.append(Opaque("tensor.concat", tuple(operands), (result,), axis))
    return [result]


def print_concat(printer: Printer, op: Opaque) -> None:
    """``tensor.concat dim(1) %a, %b``."""
    operands = ", ".join([printer.value(value) for value in op.operands])
    printer.lines.append(
        f"  {printer.name(op.results[0])} = tensor.concat dim({op.attribute}) {operands} : "
        f"({_types(op.operands)}) -> {op.results[0].type_text}"
    )
