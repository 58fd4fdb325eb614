"""Assembly of operations that fusion only carries through: named ones of linalg, parts, padding."""

from __future__ import annotations

import re

from gehost_linalg.generic import Opaque, Value
from gehost_linalg.mlir.function import Statement
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.reader import Reader
from gehost_linalg.mlir.types import ALIAS

STRIDED = "tensor.extract_slice of any form"
"""A part with steps, fewer axes or computed offsets, which no group contains."""

_POOLS = [
    "pooling_nhwc_sum", "pooling_nhwc_max", "pooling_nhwc_max_unsigned", "pooling_nhwc_min",
    "pooling_nhwc_min_unsigned", "pooling_nwc_sum", "pooling_nwc_max", "pooling_nwc_max_unsigned",
    "pooling_nwc_min", "pooling_nwc_min_unsigned", "pooling_ndhwc_sum", "pooling_ndhwc_max",
    "pooling_ndhwc_min", "pooling_nchw_sum", "pooling_nchw_max", "pooling_ncw_sum",
    "pooling_ncw_max",
]  # fmt: skip
_CONVOLUTIONS = [
    "conv_1d", "conv_2d", "conv_3d", "conv_1d_nwc_wcf", "conv_1d_ncw_fcw", "conv_2d_nhwc_hwcf",
    "conv_2d_nhwc_fhwc", "conv_2d_nhwc_hwcf_q", "conv_2d_nhwc_fhwc_q", "conv_2d_nchw_fchw",
    "conv_2d_nchw_fchw_q", "conv_2d_ngchw_fgchw", "conv_2d_ngchw_gfchw", "conv_2d_nhwgc_gfhwc",
    "conv_3d_ndhwc_dhwcf", "conv_3d_ncdhw_fcdhw", "depthwise_conv_1d_nwc_wc",
    "depthwise_conv_1d_nwc_wcm", "depthwise_conv_1d_ncw_cw", "depthwise_conv_2d_nhwc_hwc",
    "depthwise_conv_2d_nhwc_hwcm", "depthwise_conv_2d_nchw_chw", "depthwise_conv_3d_ndhwc_dhwc",
    "depthwise_conv_3d_ndhwc_dhwcm", "depthwise_conv_3d_ncdhw_cdhw", "conv_2d_ngchw_gfchw_q",
    "conv_2d_nhwgc_gfhwc_q", "conv_3d_ndhwc_dhwcf_q", "depthwise_conv_2d_nhwc_hwc_q",
    "depthwise_conv_2d_nhwc_hwcm_q",
]  # fmt: skip
_PRODUCTS = [
    "matmul", "batch_matmul", "batch_reduce_matmul", "matvec", "vecmat", "batch_matvec",
    "batch_vecmat", "dot", "mmt4d", "batch_mmt4d", "contract", "quantized_matmul",
    "quantized_batch_matmul", "copy",
]  # fmt: skip
_OLDER = [  # of LLVM before linalg.elementwise and maps of products
    "matmul_transpose_a", "matmul_transpose_b", "batch_matmul_transpose_a",
    "batch_matmul_transpose_b",
    "add", "sub", "mul", "div", "div_unsigned", "max", "min", "powf", "exp", "log", "abs",
    "ceil", "floor", "negf", "reciprocal", "round", "sqrt", "rsqrt", "square", "tanh", "erf",
    "select",
]  # fmt: skip
STRUCTURED = tuple(f"linalg.{name}" for name in (*_PRODUCTS, *_CONVOLUTIONS, *_POOLS, *_OLDER))
"""The named operations of linalg that are written ``ins(…) outs(…) -> type``."""


def read_structured(reader: Reader, statement: Statement) -> list[Value]:
    """Read a named operation of linalg.

    Its maps and attributes stay a text in which aliases of maps are written out.
    """
    start = reader.skip()
    if reader.accept("indexing_maps"):
        reader.expect("=")
        reader.listed("[", "]", reader.map)
    text = reader.text[start : reader.position]
    if reader.peek("{"):
        text = f"{text} {reader.braces()}".strip()
    ins, outs = reader.listed_operands("ins"), reader.listed_operands("outs")
    made = reader.result_types(statement.results) if reader.accept("->") else []
    if [each.type_text for each in made] != [each.type_text for each in outs]:
        raise reader.error(f"{statement.name} returns tensors of the types of its outs", start)
    text = re.sub(ALIAS, lambda found: _written_out(reader, found.group()), text)
    reader.ops.append(Opaque(statement.name, (*ins, *outs), tuple(made), text))
    return made


def _written_out(reader: Reader, alias: str) -> str:
    map_, symbols = reader.maps.get(alias, (None, 0))
    return alias if map_ is None or symbols else str(map_)


def print_structured(printer: Printer, op: Opaque) -> None:
    """Its outs have the types of its results."""
    count = len(op.operands) - len(op.results)
    names = [printer.value(value) for value in op.operands]
    types = [value.type_text for value in op.operands]
    listed = [
        f" {word}({', '.join(names[part])} : {', '.join(types[part])})"
        for word, part in (("ins", slice(count)), ("outs", slice(count, None)))
        if names[part]
    ]
    made = ", ".join([value.type_text for value in op.results])
    made = f"({made})" if len(op.results) > 1 else made
    attribute = f" {op.attribute}" if op.attribute else ""
    printer.lines.append(
        f"  {_results(printer, op)}{op.name}{attribute}{''.join(listed)} -> {made}"
    )


def _results(printer: Printer, op: Opaque) -> str:
    """The names before an operation; several share one, with numbers."""
    if len(op.results) < 2:
        return f"{printer.name(op.results[0])} = " if op.results else ""
    name = printer.fresh(op.results[0].name.partition("#")[0])
    printer.names.update({value: f"{name}#{place}" for place, value in enumerate(op.results)})
    return f"{name}:{len(op.results)} = "


# -- lists of numbers and computed sizes: [2, ?], with the computed ones as operands


def _read_lists(reader: Reader, count: int) -> tuple[str, list[Value]]:
    lists = [reader.sizes() for _ in range(count)]
    computed = [each for listed in lists for each in listed if isinstance(each, Value)]
    return " ".join(map(_shown, lists)), computed


def _shown(listed: list[int | Value]) -> str:
    return f"[{', '.join('?' if isinstance(each, Value) else str(each) for each in listed)}]"


def _lists(printer: Printer, op: Opaque, first: int) -> str:
    """The lists with the names of computed sizes, which are the operands from ``first``."""
    text = str(op.attribute)
    for value in op.operands[first:]:
        text = text.replace("?", printer.value(value), 1)
    return text


def read_any_slice(
    reader: Reader, source: Value, lists: tuple[list[int | Value], ...], made: Value, at: int
) -> list[Value]:
    """A part of any form; the list of its sizes without axes of size 1 is that of the result."""
    begins, sizes, steps = lists
    if not len(begins) == len(sizes) == len(steps) == (source.rank or 0):
        raise reader.error(f"a part of {source.type_text} has {source.rank} of each list", at)
    declared = [each if isinstance(each, int) else None for each in sizes]
    rest = iter(declared)
    shape = list(made.shape or ())
    kept = all(any(size == each for each in rest) for size in shape)
    dropped = sorted(map(str, declared)) != sorted(
        map(str, shape + [1] * (len(sizes) - len(shape)))
    )
    if made.dtype != source.dtype or made.is_scalar or not kept or dropped:
        raise reader.error(
            f"sizes {declared} of {source.type_text} do not make {made.type_text}", at
        )
    for begin, size, step, whole in zip(begins, sizes, steps, source.shape or (), strict=True):
        numbers = (begin, size, step, whole)
        if all(isinstance(each, int) for each in numbers):
            first, count, stride, end = [int(each) for each in numbers if isinstance(each, int)]
            if count and first + (count - 1) * stride >= end:
                raise reader.error(f"{size} from {begin} is beyond {source.type_text}", at)
    computed = [each for listed in lists for each in listed if isinstance(each, Value)]
    text = " ".join(map(_shown, lists))
    reader.ops.append(Opaque(STRIDED, (source, *computed), (made,), text))
    return [made]


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
    made = reader.check_type(whole)
    made.name = statement.result("inserted")
    if part.is_scalar or whole.is_scalar or part.dtype != whole.dtype:
        raise reader.error(f"{part.type_text} is no part of {whole.type_text}", start)
    reader.ops.append(Opaque(statement.name, (part, whole, *computed), (made,), text))
    return [made]


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
    if source.is_scalar or len(places) != (source.rank or 0):
        raise reader.error(f"an element of {source.type_text} has {source.rank} indices", start)
    made = Value(statement.result("extracted"), source.dtype, kind="scalar")
    reader.ops.append(Opaque(statement.name, (source, *places), (made,)))
    return [made]


def print_extract(printer: Printer, op: Opaque) -> None:
    """One element."""
    source, *places = [printer.value(value) for value in op.operands]
    name, type_text = printer.name(op.results[0]), op.operands[0].type_text
    printer.lines.append(f"  {name} = {op.name} {source}[{', '.join(places)}] : {type_text}")


def read_pad(reader: Reader, statement: Statement) -> list[Value]:
    """``tensor.pad %a low[1] high[0] { ^bb0(…): tensor.yield %c : f32 } : type to type``."""
    source = reader.use()
    nofold = "nofold " if reader.accept("nofold") else ""
    reader.expect("low")
    low, first = _read_lists(reader, 1)
    reader.expect("high")
    high, second = _read_lists(reader, 1)
    reader.expect("{")
    _skip_block(reader)
    start = reader.skip()
    if not reader.accept("tensor.yield"):
        raise reader.error("tensor.pad is supported with one value from outside of its block")
    fill = reader.use()
    reader.expect(":")
    reader.check_type(fill)
    reader.expect("}")
    reader.expect(":")
    reader.check_type(source)
    reader.expect("to")
    made = reader.type(statement.result("padded"))
    if made.dtype != source.dtype or fill.type_text != source.dtype or made.rank != source.rank:
        raise reader.error(f"{source.type_text} is not padded to {made.type_text}", start)
    operands = (source, fill, *first, *second)
    reader.ops.append(Opaque(statement.name, operands, (made,), f"{nofold}low{low} high{high}"))
    return [made]


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
