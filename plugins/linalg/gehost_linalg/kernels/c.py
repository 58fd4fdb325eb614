"""Writes the C of kernels from their loops; no other file writes C for a group."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import onnx

from gehost_linalg.groups.body import Body
from gehost_linalg.kernels import math_c, ort
from gehost_linalg.kernels.loops import (
    Accumulate,
    Buffer,
    Constant,
    Declare,
    Extent,
    Index,
    Inside,
    Line,
    Load,
    Memory,
    Name,
    Narrow,
    Nest,
    Op,
    Output,
    Scalar,
    Store,
    Stored,
    View,
    Widen,
)
from gehost_linalg.kernels.sizes import SizeRow
from gehost_linalg.operations import OPERATIONS, PREDICATES

_TYPES = {"f32": "float", "f64": "double", "i1": "uint8_t", "i32": "int32_t", "i64": "int64_t"}
_LONGEST = 90
"""Of an expression; a longer one has a name."""


class Kernel(NamedTuple):
    """The C of one group.

    Attributes:
        name: ``<Kernel>_<hash>``.
        symbol: its name in C.
        lines: its comment, tables and functions.
        needs: functions of ``math_c`` that it calls.
    """

    name: str
    symbol: str
    lines: Sequence[str]
    needs: Sequence[str]


@dataclass(frozen=True)
class Plan:
    """A kernel before it is text.

    Attributes:
        name: of the node.
        number: of the kernel in its file.
        body: for the comment.
        types: of inputs and outputs, as ONNX numbers them.
        ranks: of the same.
        shapes: of the outputs, by the numbers of sizes.
        sizes: how they are computed.
        loops: how many, the row included.
        parts: the functions; the first is taken where its outputs have equal sizes.
    """

    name: str
    number: int
    body: Body
    types: Sequence[int]
    ranks: Sequence[int]
    shapes: Sequence[Sequence[int]]
    sizes: Sequence[SizeRow]
    loops: int
    parts: Sequence[Nest]


# -- scalars


def literal(value: float, dtype: str) -> str:
    """A constant in C, with all its digits."""
    # 0.0 and -0.0 are one key
    return _literal(value, dtype) if value else _literal.__wrapped__(value, dtype)


@lru_cache(maxsize=4096)
def _literal(value: float, dtype: str) -> str:
    if dtype in {"f32", "f64"}:
        number = float(np.float32(value)) if dtype == "f32" else float(value)
        if math.isnan(number):
            return "NAN" if dtype == "f32" else "(double)NAN"
        if math.isinf(number):
            return ("-" if number < 0 else "") + (
                "INFINITY" if dtype == "f32" else "(double)INFINITY"
            )
        with np.errstate(over="ignore"):
            text = str(np.float32(number)) if dtype == "f32" else repr(number)
        text = text if re.search("[.en]", text) else f"{text}.0"
        return (
            f"({text}f)"
            if dtype == "f32" and text[0] == "-"
            else f"{text}f"
            if dtype == "f32"
            else f"({text})"
        )
    if dtype == "i1":
        return "1" if value else "0"
    number = int(value)
    if number == (-(2**31) if dtype == "i32" else -(2**63)):  # C has no such literal
        return "INT32_MIN" if dtype == "i32" else "INT64_MIN"
    return str(number) if dtype == "i32" else f"INT64_C({number})"


class Text(NamedTuple):
    """An expression; a short one, a name or a constant, may be repeated."""

    text: str
    short: bool


def _expression(op: Op, texts: Sequence[str], needs: dict[str, None]) -> str:
    """One scalar operation, by its row of the table."""
    text, own = template(op.name, op.dtype, op.attribute)
    if own:
        needs[own] = None
    return text.format(*texts)


@lru_cache(maxsize=4096)
def template(name: str, dtype: str, attribute: str) -> tuple[str, str]:
    """An operation's C for a type, and the function of our own that it calls."""
    own = f"{name.partition('.')[2]}_{dtype}"
    if own in math_c.FUNCTIONS:
        return f"{own}({{0}})", own
    operation = OPERATIONS[name]
    text = operation.c or PREDICATES[name][attribute]
    operands = [f"{{{place}}}" for place in range(operation.operands)]
    suffix = "f" if dtype == "f32" else ""
    return text.format(*operands, t=dtype, f=suffix, c=_TYPES[dtype]), ""


# -- one C function


@dataclass(eq=False)
class _Stage:
    """The lines before a loop, in it, and behind it."""

    before: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])
    clauses: list[str] = field(default_factory=list[str])


class _Function:
    """The C function of a nest."""

    def __init__(self, nest: Nest, needs: dict[str, None]) -> None:
        self._nest = nest
        self._needs = needs
        self._stages = [_Stage() for _ in nest.rows]
        self._texts: dict[Scalar, Text] = {}
        self._widened: dict[Widen, str] = {}
        self._declared: dict[str, None] = {}
        self._lengths = dict.fromkeys(nest.lengths)
        self._names = 0
        for line in nest.lines:
            self._line(line)

    def _line(self, line: Line) -> None:
        stage = self._stages[line.stage]
        lines: list[str] = getattr(stage, line.part)
        match line.item:
            case Op() as op:
                texts = [self._text(operand).text for operand in op.operands]
                text = _expression(op, texts, self._needs)
                short = op.is_named or (len(text) > _LONGEST and not op.is_whole)
                text = self._define(text, op.dtype, lines, varies=op.varies) if short else text
                self._texts[op] = Text(text, short)
            case Load() | Stored() as read:
                self._texts[read] = Text(self._read(read), short=True)
            case Declare(memory):
                number = memory.number if isinstance(memory, Buffer) else memory.view
                kind = "BUFFER" if isinstance(memory, Buffer) else "ROW"
                c, name = _TYPES[memory.dtype], self._memory(memory)
                self._declare(f"{kind}({c}, {name}, {number})")
            case Widen() as widen:
                dtype = widen.buffer.dtype
                name = self._widened[widen] = self._name("w")
                lengths = f"{self._length(widen.own)}, {self._length(widen.row)}"
                call = (
                    f"wide_{dtype}({self._memory(widen.source)}, {lengths}, b{widen.buffer.number})"
                )
                lines.append(f"const {_TYPES[dtype]} *const {name} = {call};")
            case Store(memory, value, along_row):
                text = self._text(value).text
                if along_row:
                    lines.append(f"{self._memory(memory)}[i] = {_bare(text)};")
                elif isinstance(memory, Inside):
                    place = self._place(memory)
                    lines.append(f"{self._memory(memory.whole)}[{place}] = {text};")
                else:
                    lines.append(f"{self._memory(memory)}[0] = {text};")
            case Accumulate() as total:
                self._texts[total] = Text(self._accumulate(total, stage), short=True)
            case Name(value, dtype, varies) as name:
                entry = self._text(value)
                text = (
                    entry.text
                    if entry.short
                    else self._define(entry.text, dtype, lines, varies=varies)
                )
                self._texts[name] = Text(text, short=True)
            case _:
                raise TypeError(line.item)

    def _define(self, text: str, dtype: str, lines: list[str], *, varies: bool) -> str:
        name = self._name("t" if varies else "s")
        lines.append(f"const {_TYPES[dtype]} {name} = {_bare(text)};")
        return name

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _declare(self, text: str) -> None:
        self._declared[text] = None

    def _length(self, size: int) -> str:
        self._lengths[size] = None
        return f"n{size}"

    # -- memory

    def _memory(self, memory: Memory) -> str:
        match memory:
            case Output(view, _):
                return f"y{view}"
            case Buffer(number, _):
                return f"b{number}"
            case Inside(whole, _, _):
                return f"({self._memory(whole)} + {self._place(memory)})"
            case Widen():
                return self._widened[memory]

    def _place(self, inside: Inside) -> str:
        places = [f"n{size}" for size in inside.lengths]
        return " + ".join([*places, str(inside.ones)] if inside.ones else places)

    def _read(self, read: Load | Stored) -> str:
        if isinstance(read, Load):
            view, kind = read.view, "ROW" if read.along_row else "ONE"
            self._declare(f"{kind}(const {_TYPES[read.dtype]}, x{view}, {view})")
            text = f"x{view}[i]" if read.along_row else f"x{view}"
        else:
            place = "i" if read.scale == 1 else f"i * {read.scale}"
            offset = f" + {read.offset}" if read.offset else ""
            text = f"{self._memory(read.memory)}[{place}{offset}]"
        # the row may end where its tensor ends
        return text if read.masked is None else f"IN({self._length(read.masked)}, {text})"

    # -- scalars

    def _text(self, scalar: Scalar) -> Text:
        match scalar:
            case Constant(value, dtype):
                return Text(literal(value, dtype), short=True)
            case Extent(size):
                return Text(f"(int64_t)w->size[{size}]", short=True)
            case Index():
                return Text(_index(scalar), short=True)
            case Narrow(value):
                entry = self._text(value)
                return Text(f"(float){entry.text}", entry.short)
            case _:
                return self._texts[scalar]

    def _accumulate(self, total: Accumulate, stage: _Stage) -> str:
        """The lines of a reduction; returns the name of its result."""
        element = self._text(total.element)
        c, sign, name = _TYPES[total.dtype], total.sign, self._name("s")
        live = f"if (LIVE({self._length(total.row)})) " if total.is_masked else ""
        start = literal(total.start.value, total.start.dtype)
        stage.before.append(f"{'double' if total.is_wide else c} {name} = {start};")
        stage.clauses.append(f"reduction({sign}:{name})")
        if sign in {"+", "*"}:
            stage.body.append(f"{live}{name} {sign}= {_bare(element.text)};")
            return name
        x = element.text
        if not element.short:
            stage.body.append(f"const {c} e{name} = {_bare(x)};")
            x = f"e{name}"
        stage.before.append(f"int nan_{name} = 0;")
        stage.clauses.append(f"reduction(|:nan_{name})")
        compare = ">" if sign == "max" else "<"
        stage.body.append(f"{live}{name} = {x} {compare} {name} ? {x} : {name};")
        stage.body.append(f"{live}nan_{name} |= {x} != {x};")
        result = self._name("s")
        stage.after.append(f"const {c} {result} = nan_{name} ? ({c})NAN : {name};")
        return result

    # -- text

    def lines(self, name: str) -> list[str]:
        """The lines of the C function."""
        nest = self._nest
        head = f"static void {name}(const Rows *w) {{"
        if nest.padded:
            head = f"FN void {name}_rows(const Rows *w, const int padded) {{"
        lines = [head]
        stages = list(zip(nest.rows, self._stages, strict=True))
        sizes = {*self._lengths, *[row for row, stage in stages if stage.body]}
        lengths = [
            f"n{size} = {'w->n' if nest.flat else f'w->size[{size}]'}" for size in sorted(sizes)
        ]
        if lengths:
            lines.append(f"  const size_t {', '.join(lengths)};")
        lines.append("  for (size_t r = 0; r < w->count; r++) {")
        lines += [f"    {item}" for item in _packed(list(self._declared))]
        for number, (row, stage) in enumerate(stages):
            lines += [f"    {item}" for item in stage.before]
            if stage.body:
                lines.append(f"    #pragma omp simd {' '.join(stage.clauses)}".rstrip())
                block = len(stage.body) > 1
                end = f"PADDED(n{row})" if number in nest.padded else f"n{row}"
                lines.append(f"    for (size_t i = 0; i < {end}; i++){' {' * block}")
                lines += [f"      {item}" for item in stage.body]
                lines += ["    }"] * block
            lines += [f"    {item}" for item in stage.after]
        if not nest.padded:
            return [*lines, "  }", "}"]
        row = nest.rows[next(iter(nest.padded))]
        return [*lines, "  }", f"}} SHORT_OR_LONG({name}, {row})"]


def _index(index: Index) -> str:
    terms = [str(index.start)]
    for factor, loop, size in index.terms:
        inner = " + r" if loop == index.loops - 2 else ""
        at = "i" if loop == index.loops - 1 else f"(w->at[{loop}]{inner})"
        terms.append(f"{factor} * (w->size[{size}] == 1 ? 0 : (int64_t){at})")
    return f"({' + '.join(terms)})"


def _packed(texts: Sequence[str]) -> list[str]:
    """Short declarations, several in a line of at most 96 characters."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) < 96:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return lines


def _bare(text: str) -> str:
    """An expression without the parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


# -- tables of a kernel


def write(plan: Plan) -> Kernel:
    """The C of a kernel: its comment, and for each part its views and function."""
    name, needs = f"k{plan.number}", dict[str, None]()
    functions = [_Function(nest, needs) for nest in plan.parts]
    lines = _comment(plan.name, plan.body)
    for place, (nest, function) in enumerate(zip(plan.parts, functions, strict=True)):
        lines += _view_lines(nest, f"{name}_{place}")
        lines += function.lines(f"{name}_{place}")
    listing = ", ".join(_part(nest, f"{name}_{place}") for place, nest in enumerate(plan.parts))
    lines.append(f"static const Part {name}_part[] = {{{listing}}};")
    rows = ", ".join(map(_size, plan.sizes)) or "{NUMBER, 0, 0, 0, 0, 0}"
    lines.append(f"static const Size {name}_size[] = {{{rows}}};")
    types, ranks = ", ".join(map(str, plan.types)), ", ".join(map(str, plan.ranks))
    shapes = ", ".join(_shorts(shape) for shape in plan.shapes)
    outputs = len(plan.shapes)
    inputs = len(plan.types) - outputs
    counts = f"{inputs}, {outputs}, {plan.loops}, {len(plan.sizes)}, {len(plan.parts)}"
    lines.append(
        f'static const Kernel {name} = {{"{plan.name}", {counts}, '
        f"(const int[]){{{types}}}, (const int[]){{{ranks}}}, "
        f"{name}_size, (const short *const[]){{{shapes}}}, {name}_part}};"
    )
    return Kernel(plan.name, name, lines, list(needs))


def _shorts(numbers: Iterable[int]) -> str:
    return f"(const short[]){{{', '.join(map(str, numbers)) or '0'}}}"


def _size(row: SizeRow) -> str:
    end = "INT64_MAX" if row.b is None else row.b
    return f"{{{row.kind}, {row.first}, {row.second}, {row.a}, {end}, {row.c}}}"


def _part(nest: Nest, name: str) -> str:
    """Its entry among the parts of a kernel."""
    counts = (len(nest.views), nest.buffers, len(nest.widths), int(nest.flat), int(nest.ordered))
    numbers = f"{_shorts(nest.widths)}, {_shorts(nest.outer)}"
    return f"{{{', '.join(map(str, counts))}, {name}_view, {numbers}, {name}}}"


def _view_lines(nest: Nest, name: str) -> list[str]:
    views = list(map(_view, nest.views))
    return [
        f"static const View {name}_view[] = {{",
        *[f"  {view}," for view in views[:-1]],
        f"  {views[-1]}}};",
    ]


def _view(view: View) -> str:
    axes: list[str] = []
    for axis in view.axes:
        fits = "EQUAL" if axis.is_whole else "INSIDE"
        fits = f"{fits} | OR_ONE" if axis.maybe_one else fits
        terms = ", ".join(f"{{{loop}, {scale}}}" for loop, scale in axis.terms) or "{0, 0}"
        axes.append(f"{{{{{terms}}}, {axis.offset}, {fits}}}")
    head = f"{view.tensor}, {len(view.axes)}, {view.bytes}, {int(view.along_row)}"
    numbers = ", ".join(map(str, view.sizes))
    listing = ", ".join(axes) or "{{{0, 0}}, 0, EQUAL}"
    return f"{{{head}, (const short[]){{{numbers}}}, (const Axis[]){{{listing}}}}}"


def _comment(name: str, body: Body) -> list[str]:
    """The ONNX nodes of a kernel; inputs are x0, x1, …, results of nodes are v<number>."""

    def value(number: int | None) -> str:
        if number is None:
            return "-"
        return (
            f"x{number}"
            if number < body.inputs
            else f"c{number}"
            if number in body.constants
            else f"v{number}"
        )

    lines: list[str] = []
    for node in body.nodes:
        argument = ", ".join(map(value, node.inputs))
        attributes = [onnx.AttributeProto.FromString(attribute) for attribute in node.attributes]
        declared = "".join(
            f" {attribute.name}={onnx.helper.get_attribute_value(attribute)!r:.40}"
            for attribute in attributes
        )
        lines.append(f"{', '.join(map(value, node.outputs))} = {node.op}({argument}){declared}")
    return [f"/* {_escaped(name)}", *[f"   {_escaped(line)}" for line in lines], "*/"]


_UNSAFE = re.compile(r"[^\w .,:=()\[\]'+-]", re.ASCII)


def _escaped(text: str) -> str:
    """Escape a model's text for a comment of C."""
    return _UNSAFE.sub("_", text)


def source(kernels: Iterable[Kernel]) -> str:
    """One C file with all kernels; compiled twice, the second time with ``-DGEHOST_REGISTER``."""
    items = list(kernels)
    expected = dict.fromkeys(name for kernel in items for name in kernel.needs)
    for name in list(expected):
        expected.update(dict.fromkeys(math_c.NEEDS.get(name, ())))
    functions = [text for name, text in math_c.FUNCTIONS.items() if name in expected]
    names = " ".join(kernel.name for kernel in items)
    symbols = ", ".join(f"&{kernel.symbol}" for kernel in items)
    lines = [
        ort.HEADER,
        ort.DECLARATIONS,
        "#ifndef GEHOST_REGISTER",
        math_c.PRELUDE,
        *functions,
        math_c.COMMON,
        ort.RUNTIME,
        *["\n" + "\n".join(kernel.lines) for kernel in items],
        f"\nconst Kernel *const gehost_kernel[] = {{{symbols}}};",
        f"const int gehost_kernels = {len(items)};",
        f'const char gehost_names[] = "{ort.MARK}{names}";',
        ort.features_source(),
        "#else",
        ort.register_source(),
        "#endif",
    ]
    return "\n".join(lines)
