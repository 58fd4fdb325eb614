"""Emit C for fused groups from a file's functions alone.

A kernel is a C function that walks along rows (the last loop), in stages: a stage is one loop over
the row, and a reduction is read in a later stage. Sizes, outer loops, broadcasting and tasks are
described by tables and done by the runtime of ``ort.py``. A group without such a description raises
``NotEmitted``, and its body runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import onnx

from gehost_linalg.affine import Const, Dim, Expr, dims_of, evaluate
from gehost_linalg.generic import (
    INDEX,
    PARALLEL,
    Arg,
    Generic,
    Literal,
    Opaque,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Size,
    Value,
)
from gehost_linalg.groups.body import Body
from gehost_linalg.groups.derive import DerivedGroup
from gehost_linalg.interpret import Broadcast, Part, Split
from gehost_linalg.kernels import math_c, ort

MOST_LOOPS, MOST_VIEWS, MOST_SIZES, MOST_TERMS = 12, 64, 256, 3
"""Bounds of the tables in ``ort.RUNTIME``."""


class NotEmitted(Exception):  # noqa: N818 - the body computes the node, which is no error
    """Why a group has no kernel."""


class _Type(NamedTuple):
    c: str
    onnx: int
    bytes: int


_TYPES: Mapping[str, _Type] = {
    "f32": _Type("float", onnx.TensorProto.FLOAT, 4),
    "f64": _Type("double", onnx.TensorProto.DOUBLE, 8),
    "i1": _Type("uint8_t", onnx.TensorProto.BOOL, 1),
    "i32": _Type("int32_t", onnx.TensorProto.INT32, 4),
    "i64": _Type("int64_t", onnx.TensorProto.INT64, 8),
}


def _type(dtype: str) -> _Type:
    if dtype not in _TYPES:
        raise NotEmitted(f"element type {dtype}")
    return _TYPES[dtype]


# -- inputs and steps of a group -------------------------------------------------------------------


class Read(NamedTuple):
    """How one axis of a value is read: the sum of ``loop * scale``, and ``offset``.

    Attributes:
        terms: (loop, scale) pairs; several where a Reshape splits the axis.
        maybe_broadcast: the axis may also have size 1.
        whole: the axis has the size of its only loop.
    """

    terms: tuple[tuple[int, int], ...]
    offset: int
    maybe_broadcast: bool
    whole: bool

    @classmethod
    def along(cls, loop: int) -> Read:
        """The whole axis, element by element."""
        return cls(((loop, 1),), 0, maybe_broadcast=False, whole=True)

    @property
    def loop(self) -> int | None:
        """The only loop."""
        return self.terms[0][0] if len(self.terms) == 1 else None


class Edge(NamedTuple):
    """A value as a step reads it."""

    value: Value
    axes: tuple[Read, ...]


@dataclass(eq=False)
class Step:
    """One operation of a group.

    Attributes:
        result: the value that it computes.
        extents: the sizes of the group's loops as this step walks them; the last is the row.
        edges: the payload's arguments, or the pieces of a concatenation.
        payload: None for a concatenation.
        reduces: the scalar operation that accumulates, "" for none.
        start: the initial value of the accumulator.
        per_row: the result is one number per row.
        in_double: the sum is taken in double, as ONNX Runtime does for this operator.
    """

    result: Value
    extents: tuple[Size, ...]
    edges: list[Edge | Literal]
    payload: Payload | None
    reduces: str = ""
    start: Literal | None = None
    per_row: bool = False
    in_double: bool = False


def _read(expr: Expr, *, maybe_broadcast: bool) -> Read:
    if isinstance(expr, Dim):
        return Read.along(expr.index)._replace(maybe_broadcast=maybe_broadcast)
    if isinstance(expr, Const):
        if maybe_broadcast and expr.value:
            raise NotEmitted(f"place {expr.value} of an axis that may be broadcast is read")
        return Read((), expr.value, maybe_broadcast=False, whole=False)
    offset, terms = _linear(expr)
    is_split = len(terms) > 1  # SPLIT checks the size of the axis before any part is read
    if (
        re.search("mod|div", str(expr))
        or len(terms) > MOST_TERMS
        or (maybe_broadcast and not is_split)
    ):
        raise NotEmitted(f"an operand is read at {expr}")
    return Read(terms, offset, maybe_broadcast, whole=False)


def _linear(expr: Expr) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The constant of an expression, and its loops with their factors."""
    loops = sorted(dims_of(expr))
    point = [0] * (max(loops, default=-1) + 1)
    offset = evaluate(expr, point)
    terms: list[tuple[int, int]] = []
    for loop in loops:
        point[loop] = 1
        terms.append((loop, evaluate(expr, point) - offset))
        point[loop] = 0
    return offset, tuple(terms)


def _order(edge: Edge | Literal, outer: int) -> tuple[int, ...] | None:
    """The permuted loops by which a value's outer axes are read whole."""
    if not isinstance(edge, Edge) or not all(read.whole for read in edge.axes[:outer]):
        return None
    loops = tuple([read.loop for read in edge.axes[:outer] if read.loop is not None])
    if loops == tuple(range(outer)) or sorted(loops) != list(range(outer)):
        return None
    last = edge.axes[outer].loop if len(edge.axes) > outer else None
    return loops if last in {None, outer} else None


def _reads_index(step: Step) -> bool:
    """Whether a step reads the value of a loop."""
    return step.payload is not None and any(op.name == INDEX for op in step.payload.ops)


_COPY = Payload((), (Arg(0),))


def _sizes_along(op: Generic, loop: int) -> list[Size]:
    """The sizes of all operands' axes along a loop."""
    sizes = [
        value.shape[axis]
        for _, value, axis, result, _ in op.axes()
        if result == Dim(loop) and value.shape is not None
    ]
    if not sizes or None in sizes:
        raise NotEmitted("a size that nothing gives")
    return sizes


class Steps:
    """The operations of a group as steps over the same loops.

    Attributes:
        loops: how many, the row included.
        made_by: the step of each value.
    """

    def __init__(self, group: DerivedGroup, body: Body) -> None:
        self.group = group
        self.body = body
        self.inputs = {value: number for number, value in enumerate(group.inputs)}
        self.sums: dict[str, tuple[Size, ...]] = {}
        self.rules = dict(group.rules)
        ranks = [
            op.loops if isinstance(op, Generic) else op.results[0].rank or 0 for op in group.ops
        ]
        self.loops = max(1, *ranks)
        if self.loops > MOST_LOOPS:
            raise NotEmitted(f"{self.loops} loops")
        for value in (*group.inputs, *group.outputs):
            if (value.rank or 0) > MOST_LOOPS:
                raise NotEmitted(f"a tensor of rank {value.rank}")
        self.made_by: dict[Value, Step] = {}
        self._through: dict[Value, Edge] = {}
        for op in group.ops:
            step = self._generic(op) if isinstance(op, Generic) else self._opaque(op)
            self.made_by[step.result] = step
        self._follow_readers()

    def _follow_readers(self) -> None:
        """Walk a step's outer loops in the order of all its readers.

        A sum before a Transpose is taken row by row of the transposed tensor.
        """
        readers: dict[Value, list[tuple[Step, int]]] = {}
        for step in self.made_by.values():
            for place, edge in enumerate(step.edges):
                if isinstance(edge, Edge):
                    readers.setdefault(edge.value, []).append((step, place))
        for step in reversed(self.made_by.values()):
            found = readers.get(step.result, [])
            orders = {_order(reader.edges[place], self.loops - 1) for reader, place in found}
            order = orders.pop() if len(orders) == 1 else None
            if order is None or step.result in self.group.outputs or _reads_index(step):
                continue
            loops = (*order, self.loops - 1)
            step.extents = tuple([step.extents[loops.index(at)] for at in range(self.loops)])
            for place, edge in enumerate(step.edges):
                if isinstance(edge, Edge):
                    axes = [
                        read._replace(terms=tuple([(loops[at], by) for at, by in read.terms]))
                        for read in edge.axes
                    ]
                    step.edges[place] = Edge(edge.value, tuple(axes))
            for reader, place in found:
                edge = reader.edges[place]
                assert isinstance(edge, Edge)
                outer = [edge.axes[order.index(at)] for at in range(self.loops - 1)]
                reader.edges[place] = Edge(edge.value, (*outer, *edge.axes[self.loops - 1 :]))

    def _generic(self, op: Generic) -> Step:
        if len(op.results) != 1:
            raise NotEmitted("an operation with several results")
        if op.loops not in {self.loops, self.loops - 1}:
            raise NotEmitted(f"loops over {op.loops} axes among {self.loops}")
        extents = self._extents(op)
        edges = [self._edge(op, index) for index in range(len(op.ins))]
        reduced = [loop for loop, kind in enumerate(op.iterators) if kind != PARALLEL]
        if reduced and reduced != [self.loops - 1]:
            raise NotEmitted(f"a reduction along axis {reduced[0]} of {self.loops}")
        step = Step(op.results[0], extents, edges, op.payload)
        step.per_row = bool(reduced) or extents[-1] == 1
        if reduced:
            self._note_reduction(step, op)
        elif len(op.ins) in op.payload.reads:
            raise NotEmitted("an operation that updates its result")
        if not reduced and [str(each) for each in op.out_map(0).results] != [
            f"d{loop}" for loop in range(op.loops)
        ]:
            raise NotEmitted(f"a result is written at {op.out_map(0)}")
        source = edges[0] if len(edges) == 1 and not op.payload.ops and not reduced else None
        if isinstance(source, Edge) and not any(each.maybe_broadcast for each in source.axes):
            self._through[step.result] = source
        return step

    def _extents(self, op: Generic) -> tuple[Size, ...]:
        """The sizes of the loops; a missing row has size 1."""
        found = op.extents()
        for axis, each in enumerate(op.out_map(0).results):
            shape = op.results[0].shape
            if isinstance(each, Dim) and found[each.index] is None and shape is not None:
                found[each.index] = shape[axis]
        for loop, size in enumerate(found):
            if size is None:  # all operands may broadcast
                found[loop] = name = f"{op.results[0].name}_loop{loop}"
                self.rules[name] = Broadcast(tuple(_sizes_along(op, loop)))
        return (*found, *[1] * (self.loops - op.loops))

    def _note_reduction(self, step: Step, op: Generic) -> None:
        place, result = len(op.ins), op.payload.yields[0]
        last = op.payload.ops[result.index] if isinstance(result, Res) else None
        fill = op.outs[0].fill
        if (
            last is None
            or last.name not in _REDUCTIONS
            or Arg(place) not in last.operands
            or not isinstance(fill, Literal)
        ):
            raise NotEmitted("a reduction that is not a sum, product, maximum or minimum")
        if step.result.dtype not in {"f32", "f64"}:
            raise NotEmitted(f"a reduction of {step.result.dtype}")
        rest = [ref for each in op.payload.ops if each is not last for ref in each.operands]
        element = last.operands[1] if last.operands[0] == Arg(place) else last.operands[0]
        if Arg(place) in rest or element == Arg(place):
            raise NotEmitted("a reduction that reads its result twice")
        step.reduces, step.start = last.name, fill
        nodes: list[str] = [self.body.nodes[int(origin)].op for origin in op.origins]
        step.in_double = last.name == "arith.addf" and "LayerNormalization" in nodes
        step.payload = Payload(op.payload.ops, (element,)).live()

    def _edge(self, op: Generic, index: int) -> Edge | Literal:
        value, axes = op.ins[index], op.maybe_broadcast_axes[index]
        if value.constant is not None:
            literal = value.splat
            if literal is None:
                raise NotEmitted(f"{value.name} is a constant of several values")
            return literal
        results = op.maps[index].results
        read = [_read(each, maybe_broadcast=axis in axes) for axis, each in enumerate(results)]
        return self._seen_through(Edge(value, tuple(read)))

    def _seen_through(self, edge: Edge) -> Edge:
        """The edge that reads the sources of copies instead."""
        while edge.value in self._through:
            source = self._through[edge.value]
            axes: list[Read] = []
            for inner in source.axes:
                outer = [edge.axes[loop] for loop, _ in inner.terms]
                if not inner.whole and any(each.maybe_broadcast for each in outer):
                    return edge
                terms: list[tuple[int, int]] = []
                offset = inner.offset
                for (_, scale), each in zip(inner.terms, outer, strict=True):
                    terms += [(loop, scale * by) for loop, by in each.terms]
                    offset += scale * each.offset
                if len({loop for loop, _ in terms}) < len(terms) or len(terms) > MOST_TERMS:
                    return edge
                maybe_broadcast = any(each.maybe_broadcast for each in outer)
                whole = inner.whole and all(each.whole for each in outer)
                axes.append(Read(tuple(terms), offset, maybe_broadcast, whole))
            edge = Edge(source.value, tuple(axes))
        if edge.value not in self.inputs and edge.value not in self.made_by:
            raise NotEmitted(f"{edge.value.name} has no value")
        return edge

    def _opaque(self, op: Opaque) -> Step:
        result, rank = op.results[0], op.results[0].rank or 0
        if rank != self.loops or op.name not in {"tensor.extract_slice", "tensor.concat"}:
            raise NotEmitted(f"{op.name} of {rank} axes among {self.loops}")
        shape: tuple[Size, ...] = tuple(result.shape or ())
        if op.name == "tensor.extract_slice":
            begins = [int(each) for each in str(op.attribute).split(",")]
            given = op.operands[0].shape or ()
            axes = [
                Read.along(axis)
                if size is not None and size == whole
                else Read(((axis, 1),), begin, maybe_broadcast=False, whole=False)
                for axis, (begin, size, whole) in enumerate(zip(begins, shape, given, strict=True))
            ]
            edge = self._seen_through(Edge(op.operands[0], tuple(axes)))
            self._through[result] = edge
            return Step(result, shape, [edge], _COPY, per_row=shape[-1] == 1)
        if op.attribute != rank - 1:
            raise NotEmitted(f"a concatenation along axis {op.attribute} of {rank}")
        identity = tuple(map(Read.along, range(rank)))
        pieces: list[Edge] = []
        for number, value in enumerate(op.operands):
            if value.constant is not None and value.splat is None:
                raise NotEmitted(f"{value.name} is a constant of several values")
            source = value.splat or self._seen_through(Edge(value, identity))
            size = (value.shape or (None,))[-1]
            piece = Value(f"{result.name}_piece{number}", result.dtype, (*shape[:-1], size))
            self.made_by[piece] = Step(
                piece, (*shape[:-1], size), [source], _COPY, per_row=size == 1
            )
            pieces.append(Edge(piece, identity))
        step = Step(result, shape, list(pieces), None)
        if isinstance(shape[-1], str) and not shape[-1].isdecimal():
            self.sums[shape[-1]] = tuple([self.made_by[edge.value].extents[-1] for edge in pieces])
        return step


# -- sizes -----------------------------------------------------------------------------------------

Key = Any
"""Identity of a size; sizes with one key are equal for all inputs."""


class Sizes:
    """The table of sizes, which are computed when a node runs."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.rows: list[str] = []
        self._numbers: dict[Key, int] = {}
        self._axes: dict[str, tuple[int, int]] = {}
        for value, number in steps.inputs.items():
            for axis, size in enumerate(value.shape or ()):
                if isinstance(size, str):
                    self._axes.setdefault(size, (number, axis))
        for size, rule in steps.rules.items():
            if isinstance(rule, Split):  # it is checked, also where the number is known
                self.number(size)

    def key(self, size: Size) -> Key:
        """The key of a size, made of the sizes behind it."""
        if size is None:
            raise NotEmitted("a size that nothing gives")
        if isinstance(size, int) or size.isdecimal():
            return int(size)
        if size in self._axes:
            return self._axes[size]
        if size in self.steps.sums:
            return ("sum", tuple([self.key(each) for each in self.steps.sums[size]]))
        rule = self.steps.rules.get(size)
        if isinstance(rule, Part):
            return ("part", self.key(rule.whole), rule.start, rule.end, rule.step)
        if isinstance(rule, Split):
            return ("split", self.key(rule.whole), rule.number or 0, rule.of)
        if not isinstance(rule, Broadcast):
            raise NotEmitted(f"size {size}, which nothing gives")
        leaves: set[Key] = set()
        for each in rule.sizes:
            key = self.key(each)
            leaves |= key if isinstance(key, frozenset) else {key}
        leaves.discard(1)
        return next(iter(leaves), 1) if len(leaves) < 2 else frozenset(leaves)

    def number(self, size: Size) -> int:
        """The place of a size in the table."""
        return self._place(self.key(size))

    def _place(self, key: Key) -> int:
        if key in self._numbers:
            return self._numbers[key]
        if isinstance(key, int):
            row = f"{{NUMBER, 0, 0, {key}, 0, 0}}"
        elif isinstance(key, frozenset):
            row = self._folded("BROADCAST", sorted(cast("frozenset[Key]", key), key=repr))
        elif key[0] == "sum":
            row = self._folded("SUM", key[1])
        elif key[0] == "part":
            least = -(2**63)
            start, end, step = (max(least + 1, min(each, -least - 1)) for each in key[2:])
            row = f"{{PART, {self._place(key[1])}, 0, {start}, {end}, {step}}}"
        elif key[0] == "split":
            row = f"{{SPLIT, {self._place(key[1])}, 0, {key[3]}, {key[2]}, 0}}"
        else:
            row = f"{{AXIS, {key[0]}, {key[1]}, 0, 0, 0}}"
        self.rows.append(row)
        if len(self.rows) > MOST_SIZES:
            raise NotEmitted(f"more than {MOST_SIZES} sizes")
        self._numbers[key] = len(self.rows) - 1
        return self._numbers[key]

    def _folded(self, kind: str, keys: Sequence[Key]) -> str:
        at = self._place(keys[0])
        for key in keys[1:-1]:
            self.rows.append(f"{{{kind}, {at}, {self._place(key)}, 0, 0, 0}}")
            at = len(self.rows) - 1
        if len(keys) == 1:
            return f"{{PART, {at}, 0, 0, INT64_MAX, 1}}"
        return f"{{{kind}, {at}, {self._place(keys[-1])}, 0, 0, 0}}"


# -- scalar operations -----------------------------------------------------------------------------

_REDUCTIONS = {
    "arith.addf": "+",
    "arith.mulf": "*",
    "arith.maximumf": "max",
    "arith.minimumf": "min",
}

_INFIX = {
    "arith.addf": "+", "arith.subf": "-", "arith.mulf": "*", "arith.divf": "/",
    "arith.andi": "&", "arith.ori": "|", "arith.xori": "^",
}  # fmt: skip
_INTEGER = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.divsi": "div",
    "arith.remsi": "rem", "arith.maxsi": "max", "arith.minsi": "min", "math.absi": "abs",
}  # fmt: skip
_LIBM = {
    "absf": "fabs", "ceil": "ceil", "floor": "floor", "roundeven": "rint", "trunc": "trunc",
    "sqrt": "sqrt", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1",
    "erf": "erf", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh",
    "acosh": "acosh", "atanh": "atanh",
}  # fmt: skip
"""C's functions by MLIR's names; ``math_c`` has some of them for f32."""

_ROUNDING = {
    "math.floor", "math.ceil", "math.roundeven", "math.trunc", "arith.remf", "arith.fptosi",
    "arith.cmpf",
}  # fmt: skip
"""Operations whose result an ulp of an operand may change by a whole number, or a truth value."""

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def literal(value: float, dtype: str) -> str:
    """A constant in C, with all its digits."""
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


class Scalar(NamedTuple):
    """A scalar in C.

    Attributes:
        varies: along the row.
        short: a name or a constant, which may be repeated.
        wide: a double that stands for an f32.
    """

    text: str
    varies: bool
    short: bool
    wide: bool = False


def _operation(
    op: ScalarOp, given: Sequence[Scalar], dtypes: Sequence[str], needs: dict[str, None]
) -> str:
    """One scalar operation as an expression."""
    name, dtype = op.name, op.dtype
    texts = [each.text for each in given]
    kind = name.partition(".")[2]
    if name in _INFIX:
        return f"({texts[0]} {_INFIX[name]} {texts[1]})"
    if name in _INTEGER:
        return f"{_INTEGER[name]}_{_integer(dtype)}({', '.join(texts)})"
    if name in {"arith.maximumf", "arith.minimumf"}:
        return f"{kind[:3]}_{dtype}({', '.join(texts)})"
    if name == "arith.negf":
        return f"(-{texts[0]})"
    if name == "arith.select":
        return f"({texts[0]} ? {texts[1]} : {texts[2]})"
    if name in {"arith.cmpf", "arith.cmpi"}:
        return _comparison(name, str(op.attribute), texts)
    if name == "math.powf":
        return f"pow_{dtype}({texts[0]}, {texts[1]})"
    if name == "arith.remf":
        return f"{'fmodf' if dtype == 'f32' else 'fmod'}({texts[0]}, {texts[1]})"
    if name.startswith("math.") and kind in _LIBM and dtype in {"f32", "f64"}:
        if f"{kind}_{dtype}" in math_c.FUNCTIONS:
            needs[f"{kind}_{dtype}"] = None
            return f"{kind}_{dtype}({texts[0]})"
        return f"{_LIBM[kind]}{'f' if dtype == 'f32' else ''}({texts[0]})"
    return _cast(name, texts[0], dtypes[0], dtype)


def _integer(dtype: str) -> str:
    if dtype not in {"i32", "i64"}:
        raise NotEmitted(f"arithmetic of {dtype}")
    return dtype


def _comparison(name: str, predicate: str, texts: Sequence[str]) -> str:
    if name == "arith.cmpi":
        if predicate.startswith("u") and predicate not in {"ult", "ule", "ugt", "uge"}:
            raise NotEmitted(f"comparison {predicate}")
        relation = predicate if predicate in {"eq", "ne"} else predicate[1:]
        return f"({texts[0]} {_COMPARE[relation]} {texts[1]})"
    if predicate == "uno":
        return f"({texts[0]} != {texts[0]} || {texts[1]} != {texts[1]})"
    if predicate[:1] == "o" and predicate[1:] in _COMPARE and predicate != "one":
        return f"({texts[0]} {_COMPARE[predicate[1:]]} {texts[1]})"
    if predicate == "une":
        return f"({texts[0]} != {texts[1]})"
    raise NotEmitted(f"comparison {predicate}")


def _cast(name: str, text: str, source: str, target: str) -> str:
    if name == "arith.fptosi" and target in {"i32", "i64"}:
        return f"to_{target}({text})"
    if name in {
        "arith.extf",
        "arith.truncf",
        "arith.sitofp",
        "arith.uitofp",
        "arith.extui",
        "arith.extsi",
        "arith.trunci",
    }:
        return f"({_type(target).c}){text}"
    if name == "arith.index_cast" and target == "i64":
        return text
    raise NotEmitted(f"{name} from {source} to {target}")


# -- one C function --------------------------------------------------------------------------------


@dataclass(eq=False)
class Stage:
    """One loop over rows of a size (by number, -1: no loop), with the lines before and after it."""

    row: int
    before: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])
    clauses: list[str] = field(default_factory=list[str])


class Rows:
    """The C function of some outputs along a row, and its tables.

    Attributes:
        views: the operands, each with its number.
        flat: any piece of a row can be computed on its own.
        ordered: the indices of outer loops are read.
    """

    def __init__(
        self, steps: Steps, sizes: Sizes, outputs: Sequence[Value], needs: dict[str, None]
    ) -> None:
        self.steps = steps
        self.sizes = sizes
        self.outputs = list(dict.fromkeys(outputs))
        self.needs = needs
        self.loops = steps.loops
        self.views: dict[str, int] = {}
        self.flat, self.ordered = True, False
        self.order = self._needed()
        self.readers: dict[Value, list[tuple[Step, Edge]]] = {}
        for step in self.order:
            for edge in step.edges:
                if isinstance(edge, Edge):
                    self.readers.setdefault(edge.value, []).append((step, edge))
        self.stages = [Stage(-1)]
        self.stage_of: dict[Value, int] = {}
        self.widths: dict[int, None] = {}
        for step in self.order:
            self._schedule(step)
        self._declared: list[str] = []
        self._lengths: dict[int, None] = {}
        self._names = 0
        self._buffers: list[str] = []
        self._within = self._places_in_concatenations()
        self._padded = self._padded_stages()
        self._summed = self._behind_sums()
        self._rounds = any(
            op.name in _ROUNDING for step in self.order if step.payload for op in step.payload.ops
        )
        self._scalar: dict[Value, Scalar] = {}
        self._stored: dict[Value, str] = {}
        self._widened: dict[tuple[Value, int], str] = {}
        for step in self.order:
            self._emit(step)
        self.flat = self.flat and len(self.widths) == 1

    @property
    def outer(self) -> list[int]:
        """The sizes of the outer loops, by number: those of its outputs."""
        return [
            self.sizes.number(size) for size in self.steps.made_by[self.outputs[0]].extents[:-1]
        ]

    def _needed(self) -> list[Step]:
        wanted = set(self.outputs)
        for step in reversed(self.steps.made_by.values()):
            if step.result in wanted:
                wanted |= {edge.value for edge in step.edges if isinstance(edge, Edge)}
        return [step for value, step in self.steps.made_by.items() if value in wanted]

    # -- which loop computes what

    def _schedule(self, step: Step) -> None:
        made = [
            edge
            for edge in step.edges
            if isinstance(edge, Edge) and edge.value in self.steps.made_by
        ]
        if step.payload is None or (step.per_row and not step.reduces):
            self.stage_of[step.result] = max(
                [self.stage_of[edge.value] for edge in made], default=0
            )
            if step.payload is None:
                self.widths[self.sizes.number(step.extents[-1])] = None
            return
        row, earliest = self.sizes.number(step.extents[-1]), 1
        self.widths[row] = None
        for edge in made:
            stage = self.stage_of[edge.value]
            source = self.steps.made_by[edge.value]
            same = (
                source.payload is not None
                and not source.per_row
                and edge.axes[-1].whole
                and self.stages[stage].row == row
            )
            earliest = max(earliest, stage if same else stage + 1)
        for number in range(earliest, len(self.stages)):
            if self.stages[number].row == row:
                self.stage_of[step.result] = number
                return
        self.stages.append(Stage(row))
        self.stage_of[step.result] = len(self.stages) - 1

    def _places_in_concatenations(self) -> dict[Value, tuple[Step, str]]:
        """The concatenation and offset of each piece, and of moved rows."""
        found: dict[Value, tuple[Step, str]] = {}
        for step in self.order:
            if step.payload is not None:
                continue
            self.flat = False
            offset: list[str] = []
            ones = 0
            for edge in step.edges:
                assert isinstance(edge, Edge)
                piece = self.steps.made_by[edge.value]
                place = [*offset, str(ones)] if ones else offset
                found[edge.value] = (step, " + ".join(place))
                source = piece.edges[0]
                if isinstance(source, Edge) and self._is_moved(source, piece):
                    found[source.value] = found.pop(edge.value)
                    self._stored_by_source(edge.value)
                if piece.per_row:
                    ones += 1
                else:
                    offset.append(self._length(self.sizes.number(piece.extents[-1])))
        return found

    def _stored_by_source(self, piece: Value) -> None:
        self.order = [step for step in self.order if step.result is not piece]

    def _is_moved(self, source: Edge, piece: Step) -> bool:
        """Whether a computed row goes into a concatenation and nowhere else."""
        made = self.steps.made_by.get(source.value)
        return (
            made is not None and made.payload is not None
            and not made.per_row and not piece.per_row
            and source.value not in self.outputs and len(self.readers[source.value]) == 1
            and source.axes[-1].whole
            and self._same_sizes(made, piece)
        )  # fmt: skip

    def _same_sizes(self, one: Step, other: Step) -> bool:
        pairs = zip(one.extents, other.extents, strict=True)
        return all(self.sizes.key(a) == self.sizes.key(b) for a, b in pairs)

    def _padded_stages(self) -> set[int]:
        """The stages that may walk a short row up to a whole vector.

        They have the row of the first reduction, write no output, and read elements of which a
        vector can be read in part, which excludes bytes.
        """
        first = next((step for step in self.order if step.reduces), None)
        if first is None:
            return set()
        row = self.stages[self.stage_of[first.result]].row
        found = {number for number, stage in enumerate(self.stages) if stage.row == row}
        for step in self.order:
            reads_bytes = any(
                isinstance(edge, Edge) and _type(edge.value.dtype).bytes == 1 for edge in step.edges
            )
            is_written = step.result in self._within or step.result in self.outputs
            if reads_bytes or (is_written and not step.per_row):
                found.discard(self.stage_of[step.result])
        return found

    def _behind_sums(self) -> set[Value]:
        """The sums, and what is computed from them."""
        found: set[Value] = set()
        for step in self.order:
            reads = any(isinstance(edge, Edge) and edge.value in found for edge in step.edges)
            if reads or step.reduces == "arith.addf":
                found.add(step.result)
        return found

    # -- operands

    def _element(self, text: str, step: Step) -> str:
        """An element of a row that ends where its tensor may end."""
        number = self.stage_of[step.result]
        return (
            f"IN({self._length(self.stages[number].row)}, {text})"
            if number in self._padded
            else text
        )

    def _length(self, size: int) -> str:
        self._lengths[size] = None
        return f"n{size}"

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _declare(self, text: str) -> None:
        if text not in self._declared:
            self._declared.append(text)

    def _view(self, edge: Edge, extents: Sequence[Size], tensor: int, *, along_row: bool) -> int:
        axes: list[str] = []
        for axis, read in enumerate(edge.axes):
            dropped = not read.terms and (edge.value.shape or ())[axis] == 1
            fits = "EQUAL" if read.whole or dropped else "INSIDE"
            fits = f"{fits} | OR_ONE" if read.maybe_broadcast else fits
            terms = ", ".join(f"{{{loop}, {scale}}}" for loop, scale in read.terms) or "{0, 0}"
            axes.append(f"{{{{{terms}}}, {read.offset}, {fits}}}")
        numbers = ", ".join(str(self.sizes.number(each)) for each in extents)
        head = f"{tensor}, {len(edge.axes)}, {_type(edge.value.dtype).bytes}, {int(along_row)}"
        listed = ", ".join(axes) or "{{{0, 0}}, 0, EQUAL}"
        text = f"{{{head}, (const short[]){{{numbers}}}, (const Axis[]){{{listed}}}}}"
        if len(self.views) == MOST_VIEWS:
            raise NotEmitted(f"more than {MOST_VIEWS} operands")
        return self.views.setdefault(text, len(self.views))

    def _operand(self, edge: Edge | Literal, step: Step) -> Scalar:
        """The element that an edge reads at place ``i`` of the row."""
        if isinstance(edge, Literal):
            return Scalar(literal(edge.value, edge.dtype), varies=False, short=True)
        loops = {loop for each in edge.axes for loop, _ in each.terms}
        along_row = step.extents[-1] != 1 and self.loops - 1 in loops
        c = _type(edge.value.dtype).c
        if edge.value in self.steps.inputs:
            view = self._view(
                edge, step.extents, self.steps.inputs[edge.value], along_row=along_row
            )
            self._declare(f"{'ROW' if along_row else 'ONE'}(const {c}, x{view}, {view})")
            text = self._element(f"x{view}[i]", step) if along_row else f"x{view}"
            return Scalar(text, along_row, short=True)
        made = self.steps.made_by[edge.value]
        self._check_outer(edge, made, step)
        if made.per_row:
            return self._scalar[edge.value]
        if not along_row:
            raise NotEmitted("one element of a computed row is read")
        if (
            made.payload is not None
            and self.stage_of[edge.value] == self.stage_of[step.result]
            and edge.axes[-1].whole
        ):
            return self._scalar[edge.value]
        return Scalar(self._stored_at(edge, made, step), varies=True, short=True)

    def _check_outer(self, edge: Edge, made: Step, step: Step) -> None:
        """Check that a computed value is read at its own outer indices."""
        if any(len(read.terms) > 1 for read in edge.axes):
            raise NotEmitted(f"{edge.value.name} is computed over an axis that is split later")
        for axis, read in enumerate(edge.axes[: self.loops - 1]):
            own = self.sizes.key(made.extents[axis])
            if not read.terms and read.offset == 0 and own == 1:
                continue
            if read.loop != axis or not read.whole:
                raise NotEmitted(f"{edge.value.name} is computed in one order and read in another")
            if not read.maybe_broadcast and own != self.sizes.key(step.extents[axis]):
                raise NotEmitted(f"{edge.value.name} is read in part along axis {axis}")
        if (
            len(edge.axes) == self.loops
            and not made.per_row
            and edge.axes[-1].loop not in {None, self.loops - 1}
        ):
            raise NotEmitted(f"{edge.value.name} is computed in one order and read in another")

    def _stored_at(self, edge: Edge, made: Step, step: Step) -> str:
        """An element of a row that an earlier stage stored."""
        last, number = edge.axes[-1], self.stage_of[step.result]
        stored, own = self._stored[edge.value], self.sizes.number(made.extents[-1])
        row = self.stages[number].row
        if not last.whole:
            self.flat = False
            self._check_part(edge, made, step)
            scale = last.terms[0][1]
            place = "i" if scale == 1 else f"i * {scale}"
            offset = f" + {last.offset}" if last.offset else ""
            return self._element(f"{stored}[{place}{offset}]", step)
        if own == row:
            text = f"{stored}[i]"
            return text if stored in self._buffers else self._element(text, step)
        if not last.maybe_broadcast:
            raise NotEmitted(f"{edge.value.name} is read in part along the row")
        if (edge.value, number) not in self._widened:
            dtype, name = edge.value.dtype, self._name("w")
            given = f"{stored}, {self._length(own)}, {self._length(row)}, {self._buffer(dtype)}"
            self.stages[number].before.append(
                f"const {_type(dtype).c} *const {name} = wide_{dtype}({given});"
            )
            self._widened[edge.value, number] = name
        return self._element(f"{self._widened[edge.value, number]}[i]", step)

    def _check_part(self, edge: Edge, made: Step, step: Step) -> None:
        """Check that a computed row is read within its size, which is known or what is cut."""
        last = edge.axes[-1]
        scale = last.terms[0][1]
        own, row = self.sizes.key(made.extents[-1]), self.sizes.key(step.extents[-1])
        if isinstance(own, int) and isinstance(row, int):
            ends = (last.offset, last.offset + scale * (row - 1)) if row else ()
            is_inside = all(0 <= end < own for end in ends)
        else:
            cut = ("part", own, last.offset, scale)
            is_inside = isinstance(row, tuple) and (*row[:3], row[-1]) == cut
        if not is_inside:
            raise NotEmitted(f"part of {edge.value.name} is read, whose size is not known")

    def _buffer(self, dtype: str) -> str:
        name = f"b{len(self._buffers)}"
        self._declare(f"BUFFER({_type(dtype).c}, {name}, {len(self._buffers)})")
        self._buffers.append(name)
        return name

    def _output(self, step: Step) -> str:
        value, rank = step.result, step.result.rank or 0
        if rank not in {self.loops, self.loops - 1} or (rank < self.loops and not step.per_row):
            raise NotEmitted(f"an output of rank {rank} from {self.loops} loops")
        axes = [Read.along(axis) for axis in range(rank)]
        if step.per_row and rank == self.loops:
            axes[-1] = Read((), 0, maybe_broadcast=False, whole=False)
        extents = (*step.extents[:-1], 1) if step.per_row else step.extents
        tensor = len(self.steps.inputs) + self.steps.group.outputs.index(value)
        view = self._view(Edge(value, tuple(axes)), extents, tensor, along_row=not step.per_row)
        self._declare(f"ROW({_type(value.dtype).c}, y{view}, {view})")
        return f"y{view}"

    # -- statements

    def _emit(self, step: Step) -> None:
        if step.payload is None:
            self._storage(step)
            return
        stage = self.stages[self.stage_of[step.result]]
        if step.per_row and not step.reduces:
            self._finish_scalar(step, self._payload(step, stage.after, stage.after), stage.after)
        elif step.reduces:
            self.flat = False
            self._accumulate(step, stage, self._payload(step, stage.before, stage.body))
        else:
            self._finish_row(step, stage, self._payload(step, stage.before, stage.body))

    def _storage(self, step: Step) -> str:
        """Where a concatenation is put together."""
        if step.result not in self._stored:
            is_output = step.result in self.outputs
            self._stored[step.result] = (
                self._output(step) if is_output else self._buffer(step.result.dtype)
            )
        return self._stored[step.result]

    def _place(self, value: Value) -> str:
        step, offset = self._within[value]
        return f"({self._storage(step)} + {offset})" if offset else self._storage(step)

    def _finish_scalar(self, step: Step, result: Scalar, lines: list[str]) -> None:
        kept = step.result in self._within or step.result in self.outputs
        if not result.short and (kept or len(self.readers.get(step.result, ())) > 1):
            name = self._name("s")
            lines.append(f"const {_type(step.result.dtype).c} {name} = {_bare(result.text)};")
            result = Scalar(name, varies=False, short=True)
        self._scalar[step.result] = result
        if step.result in self._within:
            storage, offset = self._within[step.result]
            lines.append(f"{self._storage(storage)}[{offset or 0}] = {result.text};")
        if step.result in self.outputs:
            self.flat = False
            lines.append(f"{self._output(step)}[0] = {result.text};")

    def _finish_row(self, step: Step, stage: Stage, result: Scalar) -> None:
        value, number = step.result, self.stage_of[step.result]
        stored = ""
        if value in self.outputs:
            stored = self._output(step)
        elif value in self._within:
            stored = self._place(value)
        elif any(
            self._reads_stored(reader, edge, number) for reader, edge in self.readers.get(value, ())
        ):
            stored = self._buffer(value.dtype)
        read_here = sum(
            not self._reads_stored(reader, edge, number)
            for reader, edge in self.readers.get(value, ())
        )
        if not result.short and (read_here and (stored or read_here > 1)):
            name = self._name("t")
            stage.body.append(f"const {_type(value.dtype).c} {name} = {_bare(result.text)};")
            result = Scalar(name, varies=True, short=True)
        self._scalar[value] = Scalar(result.text, varies=True, short=result.short)
        if stored:
            self._stored[value] = stored
            stage.body.append(f"{stored}[i] = {_bare(result.text)};")

    def _reads_stored(self, reader: Step, edge: Edge, number: int) -> bool:
        if reader.payload is None:
            return False
        return self.stage_of[reader.result] != number or not edge.axes[-1].whole

    def _accumulate(self, step: Step, stage: Stage, element: Scalar) -> None:
        """Sums and products in any order; maxima and minima keep a NaN."""
        c, sign, name = _type(step.result.dtype).c, _REDUCTIONS[step.reduces], self._name("s")
        assert step.start is not None
        wide = "double" if step.in_double else c
        is_padded = self.stage_of[step.result] in self._padded
        live = f"if (LIVE({self._length(stage.row)})) " * is_padded
        stage.before.append(f"{wide} {name} = {literal(step.start.value, step.start.dtype)};")
        stage.clauses.append(f"reduction({sign}:{name})")
        if sign in {"+", "*"}:
            stage.body.append(f"{live}{name} {sign}= {_bare(element.text)};")
            result = name
        else:
            if not element.short:
                stage.body.append(f"const {c} e{name} = {_bare(element.text)};")
                element = Scalar(f"e{name}", varies=True, short=True)
            stage.before.append(f"int nan_{name} = 0;")
            stage.clauses.append(f"reduction(|:nan_{name})")
            compare = ">" if sign == "max" else "<"
            stage.body.append(
                f"{live}{name} = {element.text} {compare} {name} ? {element.text} : {name};"
            )
            stage.body.append(f"{live}nan_{name} |= {element.text} != {element.text};")
            result = self._name("s")
            stage.after.append(f"const {c} {result} = nan_{name} ? ({c})NAN : {name};")
        self._finish_scalar(
            step, Scalar(result, varies=False, short=True, wide=wide != c), stage.after
        )

    def _payload(self, step: Step, fixed: list[str], varying: list[str]) -> Scalar:
        """The payload's operations as statements, before the loop or in it."""
        payload = step.payload
        assert payload is not None
        args = [self._operand(edge, step) for edge in step.edges]
        uses: dict[int, int] = {}
        for ref in (*[ref for op in payload.ops for ref in op.operands], *payload.yields):
            if isinstance(ref, Res):
                uses[ref.index] = uses.get(ref.index, 0) + 1
        made: list[Scalar] = []

        def named(given: Scalar, dtype: str, lines: list[str]) -> Scalar:
            name = self._name("t" if given.varies else "s")
            lines.append(f"const {_type(dtype).c} {name} = {_bare(given.text)};")
            return given._replace(text=name, short=True)

        def before_the_row(given: Scalar, dtype: str) -> Scalar:
            """The value as the row reads it: computed once, before the loop."""
            return given if given.short or given.varies else named(given, dtype, fixed)

        def scalar(ref: Ref) -> Scalar:
            if isinstance(ref, Arg):
                return args[ref.index]
            if isinstance(ref, Res):
                return made[ref.index]
            if isinstance(ref, Literal):
                return Scalar(literal(ref.value, ref.dtype), varies=False, short=True)
            if ref.kind != "extent":
                raise NotEmitted(f"scalar {ref.name}")
            return Scalar(
                f"(int64_t)w->size[{self.sizes.number(ref.name)}]", varies=False, short=True
            )

        for place, op in enumerate(payload.ops):
            given = [scalar(ref) for ref in op.operands]
            dtypes = [_dtype_of(ref, step, payload) for ref in op.operands]
            if op.name == INDEX:
                made.append(self._index(op, step))
                continue
            is_by_one = op.name == "arith.divf" and given[0].varies and not given[1].varies
            if is_by_one and self._multiplies(place, step):
                inverse = f"({literal(1, op.dtype)} / {given[1].text})"
                given[1] = given[1]._replace(text=inverse, short=False)
                op = op._replace(name="arith.mulf")
            varies = any(each.varies for each in given)
            wide = any(each.wide for each in given)
            if varies:  # a loop in double would be slower
                given = [before_the_row(each, dtypes[at]) for at, each in enumerate(given)]
                given = [
                    each._replace(text=f"(float){each.text}") if each.wide else each
                    for each in given
                ]
            result = Scalar(_operation(op, given, dtypes, self.needs), varies, short=False)
            rounded = wide and not varies  # to float, by its name
            if rounded or uses.get(place, 0) > 1 or len(result.text) > 90:
                result = named(result, op.dtype, varying if varies else fixed)
            made.append(result)
        result = scalar(payload.yields[0])
        if step.per_row and not step.reduces:
            return result
        return before_the_row(result, _dtype_of(payload.yields[0], step, payload))

    def _multiplies(self, place: int, step: Step) -> bool:
        """Whether a quotient may be the product with its divisor's reciprocal, computed once a row.

        The product is up to an ulp off, which nothing may round: the divisor is a constant and only
        functions that do not enlarge an ulp read the quotient, or it is a root, whose reciprocal is
        no denormal, behind a sum, and no operation of the kernel rounds. (A sum may be exact.)
        """
        payload = step.payload
        assert payload is not None
        divisor = self._source(payload.ops[place].operands[1], step)
        if not isinstance(divisor, Literal):
            sums = any(isinstance(edge, Edge) and edge.value in self._summed for edge in step.edges)
            is_by_root = divisor is not None and divisor.name == "math.sqrt"
            return is_by_root and sums and not self._rounds
        readers = {each.name for each in payload.ops if Res(place) in each.operands}
        return (
            2.0**-60 < abs(divisor.value) < 2.0**60
            and Res(place) not in payload.yields
            and readers <= {"math.erf", "math.tanh"}
        )

    def _source(self, ref: Ref, step: Step) -> ScalarOp | Literal | None:
        """The constant, or the operation of this or another step, that gives a scalar."""
        if isinstance(ref, Literal):
            return ref
        if isinstance(ref, Res):
            return step.payload.ops[ref.index] if step.payload else None
        if not isinstance(ref, Arg):
            return None
        edge = step.edges[ref.index]
        if isinstance(edge, Literal):
            return edge
        made = self.steps.made_by.get(edge.value)
        if made is None or made.payload is None or made.reduces:
            return None
        return self._source(made.payload.yields[0], made)

    def _index(self, op: ScalarOp, step: Step) -> Scalar:
        """The value of a loop; 0 along a size of 1."""
        if isinstance(op.attribute, str | None):
            raise NotEmitted("an index without a loop")
        self.ordered, self.flat = True, False
        loops = sorted(dims_of(op.attribute))
        terms = [str(evaluate(op.attribute, [0] * self.loops))]
        for loop in loops:
            read = _read_index(op.attribute, loop, self.loops)
            inner = " + r" if loop == self.loops - 2 else ""
            at = "i" if loop == self.loops - 1 else f"(w->at[{loop}]{inner})"
            size = self.sizes.number(step.extents[loop])
            terms.append(f"{read} * (w->size[{size}] == 1 ? 0 : (int64_t){at})")
        return Scalar(f"({' + '.join(terms)})", varies=self.loops - 1 in loops, short=True)

    # -- text

    def function(self, name: str) -> list[str]:
        """The lines of the C function."""
        lines = [f"static void {name}(const Rows *w) {{"]
        if self._padded:
            lines = [f"FN void {name}_rows(const Rows *w, const int padded) {{"]
        lengths = [
            f"n{size} = {'w->n' if self.flat else f'w->size[{size}]'}"
            for size in self._used_lengths()
        ]
        if lengths:
            lines.append(f"  const size_t {', '.join(lengths)};")
        lines.append("  for (size_t r = 0; r < w->count; r++) {")
        lines += [f"    {each}" for each in _packed(self._declared)]
        for number, stage in enumerate(self.stages):
            lines += [f"    {each}" for each in stage.before]
            if stage.body:
                lines.append(f"    #pragma omp simd {' '.join(stage.clauses)}".rstrip())
                block = len(stage.body) > 1
                end = f"PADDED(n{stage.row})" if number in self._padded else f"n{stage.row}"
                lines.append(f"    for (size_t i = 0; i < {end}; i++){' {' * block}")
                lines += [f"      {each}" for each in stage.body]
                lines += ["    }"] * block
            lines += [f"    {each}" for each in stage.after]
        rows = [self.stages[number].row for number in self._padded]
        return [*lines, "  }", f"}} SHORT_OR_LONG({name}, {rows[0]})" if rows else "}"]

    def _used_lengths(self) -> list[int]:
        return sorted({**self._lengths, **{stage.row: None for stage in self.stages if stage.body}})

    def table(self, name: str) -> str:
        """Its entry among the parts of a kernel."""
        outer = ", ".join(map(str, self.outer)) or "0"
        widths = ", ".join(map(str, self.widths)) or "0"
        counts = (
            len(self.views),
            len(self._buffers),
            len(self.widths),
            int(self.flat),
            int(self.ordered),
        )
        numbers = f"(const short[]){{{widths}}}, (const short[]){{{outer}}}"
        return f"{{{', '.join(map(str, counts))}, {name}_view, {numbers}, {name}}}"

    def view_lines(self, name: str) -> list[str]:
        views = list(self.views)
        return [
            f"static const View {name}_view[] = {{",
            *[f"  {view}," for view in views[:-1]],
            f"  {views[-1]}}};",
        ]


def _read_index(expr: Expr, loop: int, loops: int) -> int:
    """The factor of a loop in the expression of an index."""
    if re.search("mod|div", str(expr)):
        raise NotEmitted(f"an index of {expr}")
    point = [0] * loops
    at_zero = evaluate(expr, point)
    point[loop] = 1
    return evaluate(expr, point) - at_zero


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


def _dtype_of(ref: Ref, step: Step, payload: Payload) -> str:
    if isinstance(ref, Arg):
        edge = step.edges[ref.index]
        return edge.dtype if isinstance(edge, Literal) else edge.value.dtype
    return payload.ops[ref.index].dtype if isinstance(ref, Res) else ref.dtype


# -- kernels ---------------------------------------------------------------------------------------


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


def emit(group: DerivedGroup, body: Body, number: int) -> Kernel:
    """The kernel of a group.

    Args:
        group: as ``derive`` gives it; its name is that of the node.
        body: for the comment.
        number: of the kernel in its file.

    Raises:
        NotEmitted: with the reason; the body computes the node then.
    """
    if not re.fullmatch(r"\w+", group.name, re.ASCII):
        raise NotEmitted("a name that is none in C")
    steps = Steps(group, body)
    sizes = Sizes(steps)
    for value in group.outputs:
        if value not in steps.made_by:
            raise NotEmitted(f"output {value.name} is no result")
    needs: dict[str, None] = {}
    parts = [Rows(steps, sizes, outputs, needs) for outputs in _partition(steps, sizes)]
    tensors = [*group.inputs, *group.outputs]
    if len(tensors) > MOST_VIEWS:
        raise NotEmitted(f"{len(tensors)} inputs and outputs")
    shapes = [[sizes.number(size) for size in value.shape or ()] for value in group.outputs]
    name = f"k{number}"
    lines = _comment(group.name, body)
    for place, part in enumerate(parts):
        lines += part.view_lines(f"{name}_{place}")
        lines += part.function(f"{name}_{place}")
    listed = ", ".join(part.table(f"{name}_{place}") for place, part in enumerate(parts))
    lines.append(f"static const Part {name}_part[] = {{{listed}}};")
    rows = ", ".join(sizes.rows) or "{NUMBER, 0, 0, 0, 0, 0}"
    lines.append(f"static const Size {name}_size[] = {{{rows}}};")
    types = ", ".join(str(_type(value.dtype).onnx) for value in tensors)
    ranks = ", ".join(str(value.rank or 0) for value in tensors)
    stated = ", ".join(
        f"(const short[]){{{', '.join(map(str, shape)) or '0'}}}" for shape in shapes
    )
    counts = (
        f"{len(group.inputs)}, {len(group.outputs)}, {steps.loops}, {len(sizes.rows)}, {len(parts)}"
    )
    lines.append(
        f'static const Kernel {name} = {{"{group.name}", {counts}, '
        f"(const int[]){{{types}}}, (const int[]){{{ranks}}}, "
        f"{name}_size, (const short *const[]){{{stated}}}, {name}_part}};"
    )
    return Kernel(group.name, name, lines, list(needs))


def _partition(steps: Steps, sizes: Sizes) -> list[list[Value]]:
    """All outputs together; if sizes may differ, also those of equal sizes."""
    found: dict[tuple[Key, ...], list[Value]] = {}
    for value in dict.fromkeys(steps.group.outputs):
        found.setdefault(
            tuple([sizes.key(size) for size in steps.made_by[value].extents[:-1]]), []
        ).append(value)
    parts = list(found.values())
    return parts if len(parts) == 1 else [[value for part in parts for value in part], *parts]


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
        given = ", ".join(map(value, node.inputs))
        attributes = [onnx.AttributeProto.FromString(each) for each in node.attributes]
        stated = "".join(
            f" {each.name}={onnx.helper.get_attribute_value(each)!r:.40}" for each in attributes
        )
        lines.append(f"{', '.join(map(value, node.outputs))} = {node.op}({given}){stated}")
    return [f"/* {_escaped(name)}", *[f"   {_escaped(line)}" for line in lines], "*/"]


def _escaped(text: str) -> str:
    """Escape a model's text for a comment of C."""
    return re.sub(r"[^\w .,:=()\[\]'+-]", "_", text, flags=re.ASCII)


def source(kernels: Iterable[Kernel]) -> str:
    """One C file with all kernels; compiled twice, the second time with ``-DGEHOST_REGISTER``."""
    listed = list(kernels)
    wanted = dict.fromkeys(name for kernel in listed for name in kernel.needs)
    for name in list(wanted):
        wanted.update(dict.fromkeys(math_c.NEEDS.get(name, ())))
    functions = [text for name, text in math_c.FUNCTIONS.items() if name in wanted]
    names = " ".join(kernel.name for kernel in listed)
    symbols = ", ".join(f"&{kernel.symbol}" for kernel in listed)
    lines = [
        ort.HEADER,
        ort.DECLARATIONS,
        "#ifndef GEHOST_REGISTER",
        math_c.PRELUDE,
        *functions,
        math_c.COMMON,
        ort.RUNTIME,
        *["\n" + "\n".join(kernel.lines) for kernel in listed],
        f"\nconst Kernel *const gehost_kernel[] = {{{symbols}}};",
        f"const int gehost_kernels = {len(listed)};",
        f'const char gehost_names[] = "{ort.MARK}{names}";',
        ort.features_source(),
        "#else",
        ort.register_source(),
        "#endif",
    ]
    return "\n".join(lines)
