"""A group's operations as steps over the same loops: what each reads, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import onnx

from gehost import Refused
from gehost_linalg.affine import Const, Dim, Expr, dims_of, evaluate
from gehost_linalg.generic import (
    INDEX,
    PARALLEL,
    Arg,
    Generic,
    Literal,
    Opaque,
    Payload,
    Res,
    Size,
    Value,
)
from gehost_linalg.groups.body import Body
from gehost_linalg.groups.derive import DerivedGroup
from gehost_linalg.interpret import Broadcast
from gehost_linalg.operations import OPERATIONS

MOST_LOOPS, MOST_VIEWS, MOST_SIZES, MOST_TERMS = 12, 64, 256, 3
"""Bounds of the tables in ``ort.RUNTIME``."""


class Element(NamedTuple):
    """An element type of kernels: ONNX's number and the size in bytes."""

    onnx: int
    bytes: int


ELEMENTS: Mapping[str, Element] = {
    "f32": Element(onnx.TensorProto.FLOAT, 4),
    "f64": Element(onnx.TensorProto.DOUBLE, 8),
    "i1": Element(onnx.TensorProto.BOOL, 1),
    "i32": Element(onnx.TensorProto.INT32, 4),
    "i64": Element(onnx.TensorProto.INT64, 8),
}


def check_type(dtype: str) -> None:
    """Raise ``Refused`` for an element type without kernels."""
    if dtype not in ELEMENTS:
        raise Refused("not-emitted", f"element type {dtype}")


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
            raise Refused(
                "not-emitted", f"place {expr.value} of an axis that may be broadcast is read"
            )
        return Read((), expr.value, maybe_broadcast=False, whole=False)
    offset, terms = _linear(expr)
    is_split = len(terms) > 1  # SPLIT checks the size of the axis before any part is read
    if (
        re.search("mod|div", str(expr))
        or len(terms) > MOST_TERMS
        or (maybe_broadcast and not is_split)
    ):
        raise Refused("not-emitted", f"an operand is read at {expr}")
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
        raise Refused("not-emitted", "a size is unknown")
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
            raise Refused("not-emitted", f"{self.loops} loops")
        for value in (*group.inputs, *group.outputs):
            if (value.rank or 0) > MOST_LOOPS:
                raise Refused("not-emitted", f"a tensor of rank {value.rank}")
        self.made_by: dict[Value, Step] = {}
        self._through: dict[Value, Edge] = {}
        for op in group.ops:
            step = self._generic(op) if isinstance(op, Generic) else self._opaque(op)
            self.made_by[step.result] = step
        _follow_readers(self)

    def _generic(self, op: Generic) -> Step:
        if len(op.results) != 1:
            raise Refused("not-emitted", "an operation with several results")
        if op.loops not in {self.loops, self.loops - 1}:
            raise Refused("not-emitted", f"loops over {op.loops} axes among {self.loops}")
        extents = self._extents(op)
        edges = [self._edge(op, index) for index in range(len(op.ins))]
        reduced = [loop for loop, kind in enumerate(op.iterators) if kind != PARALLEL]
        if reduced and reduced != [self.loops - 1]:
            raise Refused("not-emitted", f"a reduction along axis {reduced[0]} of {self.loops}")
        step = Step(op.results[0], extents, edges, op.payload)
        step.per_row = bool(reduced) or extents[-1] == 1
        if reduced:
            self._note_reduction(step, op)
        elif len(op.ins) in op.payload.reads:
            raise Refused("not-emitted", "an operation that updates its result")
        if not reduced and [str(result) for result in op.out_map(0).results] != [
            f"d{loop}" for loop in range(op.loops)
        ]:
            raise Refused("not-emitted", f"a result is written at {op.out_map(0)}")
        source = edges[0] if len(edges) == 1 and not op.payload.ops and not reduced else None
        if isinstance(source, Edge) and not any(result.maybe_broadcast for result in source.axes):
            self._through[step.result] = source
        return step

    def _extents(self, op: Generic) -> tuple[Size, ...]:
        """The sizes of the loops; a missing row has size 1."""
        result = op.extents()
        for axis, item in enumerate(op.out_map(0).results):
            shape = op.results[0].shape
            if isinstance(item, Dim) and result[item.index] is None and shape is not None:
                result[item.index] = shape[axis]
        for loop, size in enumerate(result):
            if size is None:  # all operands may broadcast
                result[loop] = name = f"{op.results[0].name}_loop{loop}"
                self.rules[name] = Broadcast(tuple(_sizes_along(op, loop)))
        return (*result, *[1] * (self.loops - op.loops))

    def _note_reduction(self, step: Step, op: Generic) -> None:
        place, result = len(op.ins), op.payload.yields[0]
        last = op.payload.ops[result.index] if isinstance(result, Res) else None
        fill = op.outs[0].fill
        if (
            last is None
            or last.name == INDEX
            or not OPERATIONS[last.name].reduces
            or Arg(place) not in last.operands
            or not isinstance(fill, Literal)
        ):
            raise Refused(
                "not-emitted", "a reduction that is not a sum, product, maximum or minimum"
            )
        if step.result.dtype not in {"f32", "f64"}:
            raise Refused("not-emitted", f"a reduction of {step.result.dtype}")
        rest = [ref for item in op.payload.ops if item is not last for ref in item.operands]
        element = last.operands[1] if last.operands[0] == Arg(place) else last.operands[0]
        if Arg(place) in rest or element == Arg(place):
            raise Refused("not-emitted", "a reduction that reads its result twice")
        step.reduces, step.start = last.name, fill
        nodes: list[str] = [self.body.nodes[int(origin)].op for origin in op.origins]
        step.in_double = last.name == "arith.addf" and "LayerNormalization" in nodes
        step.payload = Payload(op.payload.ops, (element,)).live()

    def _edge(self, op: Generic, index: int) -> Edge | Literal:
        value, axes = op.ins[index], op.maybe_broadcast_axes[index]
        if value.constant is not None:
            literal = value.splat
            if literal is None:
                raise Refused("not-emitted", f"{value.name} is a constant of several values")
            return literal
        results = op.maps[index].results
        read = [_read(result, maybe_broadcast=axis in axes) for axis, result in enumerate(results)]
        return self._seen_through(Edge(value, tuple(read)))

    def _seen_through(self, edge: Edge) -> Edge:
        """The edge that reads the sources of copies instead."""
        while edge.value in self._through:
            source = self._through[edge.value]
            axes: list[Read] = []
            for inner in source.axes:
                outer = [edge.axes[loop] for loop, _ in inner.terms]
                if not inner.whole and any(item.maybe_broadcast for item in outer):
                    return edge
                terms: list[tuple[int, int]] = []
                offset = inner.offset
                for (_, scale), item in zip(inner.terms, outer, strict=True):
                    terms += [(loop, scale * by) for loop, by in item.terms]
                    offset += scale * item.offset
                if len({loop for loop, _ in terms}) < len(terms) or len(terms) > MOST_TERMS:
                    return edge
                maybe_broadcast = any(item.maybe_broadcast for item in outer)
                whole = inner.whole and all(item.whole for item in outer)
                axes.append(Read(tuple(terms), offset, maybe_broadcast, whole))
            edge = Edge(source.value, tuple(axes))
        if edge.value not in self.inputs and edge.value not in self.made_by:
            raise Refused("not-emitted", f"{edge.value.name} has no value")
        return edge

    def _opaque(self, op: Opaque) -> Step:
        result, rank = op.results[0], op.results[0].rank or 0
        if rank != self.loops or op.name not in {"tensor.extract_slice", "tensor.concat"}:
            raise Refused("not-emitted", f"{op.name} of {rank} axes among {self.loops}")
        shape: tuple[Size, ...] = tuple(result.shape or ())
        if op.name == "tensor.extract_slice":
            begins = [int(part) for part in str(op.attribute).split(",")]
            argument = op.operands[0].shape or ()
            axes = [
                Read.along(axis)
                if size is not None and size == whole
                else Read(((axis, 1),), begin, maybe_broadcast=False, whole=False)
                for axis, (begin, size, whole) in enumerate(
                    zip(begins, shape, argument, strict=True)
                )
            ]
            edge = self._seen_through(Edge(op.operands[0], tuple(axes)))
            self._through[result] = edge
            return Step(result, shape, [edge], _COPY, per_row=shape[-1] == 1)
        if op.attribute != rank - 1:
            raise Refused("not-emitted", f"a concatenation along axis {op.attribute} of {rank}")
        identity = tuple(map(Read.along, range(rank)))
        pieces: list[Edge] = []
        for number, value in enumerate(op.operands):
            if value.constant is not None and value.splat is None:
                raise Refused("not-emitted", f"{value.name} is a constant of several values")
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


def _follow_readers(steps: Steps) -> None:
    """Walk a step's outer loops in the order of all its readers.

    A sum before a Transpose is taken row by row of the transposed tensor.
    """
    readers: dict[Value, list[tuple[Step, int]]] = {}
    for step in steps.made_by.values():
        for place, edge in enumerate(step.edges):
            if isinstance(edge, Edge):
                readers.setdefault(edge.value, []).append((step, place))
    for step in reversed(steps.made_by.values()):
        uses = readers.get(step.result, [])
        orders = {_order(reader.edges[place], steps.loops - 1) for reader, place in uses}
        order = orders.pop() if len(orders) == 1 else None
        if order is None or step.result in steps.group.outputs or _reads_index(step):
            continue
        loops = (*order, steps.loops - 1)
        step.extents = tuple([step.extents[loops.index(at)] for at in range(steps.loops)])
        for place, edge in enumerate(step.edges):
            if isinstance(edge, Edge):
                axes = [
                    read._replace(terms=tuple([(loops[at], by) for at, by in read.terms]))
                    for read in edge.axes
                ]
                step.edges[place] = Edge(edge.value, tuple(axes))
        for reader, place in uses:
            edge = reader.edges[place]
            assert isinstance(edge, Edge)
            outer = [edge.axes[order.index(at)] for at in range(steps.loops - 1)]
            reader.edges[place] = Edge(edge.value, (*outer, *edge.axes[steps.loops - 1 :]))
