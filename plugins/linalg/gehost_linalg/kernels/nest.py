"""The loops of a schedule: each step's loads, operations and stores, in order."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from gehost import Refused
from gehost_linalg.affine import Expr, dims_of, evaluate
from gehost_linalg.generic import INDEX, Arg, Literal, Ref, Res, Value, expr_of
from gehost_linalg.kernels.loops import (
    Accumulate,
    Axis,
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
    Part,
    Scalar,
    Store,
    Stored,
    View,
    Widen,
)
from gehost_linalg.kernels.quotients import Quotients
from gehost_linalg.kernels.schedule import Schedule, dtype_of
from gehost_linalg.kernels.steps import ELEMENTS, MOST_VIEWS, Edge, Read, Step
from gehost_linalg.operations import OPERATIONS


class Computed(NamedTuple):
    """A scalar; whether it varies along the row, and is a double that stands for a float."""

    scalar: Scalar
    varies: bool
    wide: bool = False


class Rows:
    """The rows of memory that a function reads and writes, and its lines.

    Attributes:
        lines: in the order in which they are computed.
        views: with their numbers.
        buffers: how many.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._steps, self._sizes = schedule.steps, schedule.sizes
        self.lines: list[Line] = []
        self.views: dict[View, int] = {}
        self.buffers = 0
        self._stored: dict[Value, Memory] = {}
        self._wholes: dict[Value, Output | Buffer] = {}

    def _add(self, step: Step, part: Part, item: Scalar | Declare | Store | Widen) -> None:
        self.lines.append(Line(self._schedule.stage_of[step.result], part, item))

    def _view(self, edge: Edge, step: Step, tensor: int, *, along_row: bool, one: bool) -> int:
        shape = edge.value.shape or ()
        axes = tuple(
            [
                Axis(
                    read.terms,
                    read.offset,
                    read.whole or (not read.terms and shape[axis] == 1),
                    read.maybe_broadcast,
                )
                for axis, read in enumerate(edge.axes)
            ]
        )
        extents = (*step.extents[:-1], 1) if one else step.extents
        sizes = tuple([self._sizes.number(extent) for extent in extents])
        view = View(tensor, ELEMENTS[edge.value.dtype].bytes, along_row, sizes, axes)
        if len(self.views) == MOST_VIEWS:
            raise Refused("not-emitted", f"more than {MOST_VIEWS} operands")
        return self.views.setdefault(view, len(self.views))

    def _buffer(self, step: Step, dtype: str) -> Buffer:
        buffer = Buffer(self.buffers, dtype)
        self.buffers += 1
        self._add(step, "before", Declare(buffer))
        return buffer

    def _output(self, step: Step) -> Output:
        value, rank, loops = step.result, step.result.rank or 0, self._steps.loops
        axes = [Read.along(axis) for axis in range(rank)]
        if step.per_row and rank == loops:
            axes[-1] = Read((), 0, maybe_broadcast=False, whole=False)
        tensor = len(self._steps.inputs) + self._steps.group.outputs.index(value)
        edge, row = Edge(value, tuple(axes)), not step.per_row
        view = self._view(edge, step, tensor, along_row=row, one=step.per_row)
        output = Output(view, value.dtype)
        self._add(step, "before", Declare(output))
        return output

    def _whole(self, step: Step) -> Output | Buffer:
        """Where a concatenation is put together."""
        if step.result not in self._wholes:
            is_output = step.result in self._schedule.outputs
            memory = self._output(step) if is_output else self._buffer(step, step.result.dtype)
            self._wholes[step.result] = self._stored[step.result] = memory
        return self._wholes[step.result]

    def _inside(self, value: Value) -> Memory:
        piece = self._schedule.pieces[value]
        whole = self._whole(piece.whole)
        return Inside(whole, piece.lengths, piece.ones) if piece.lengths or piece.ones else whole

    def _masked(self, step: Step) -> int | None:
        """The row that a padded loop may leave."""
        number = self._schedule.stage_of[step.result]
        return self._schedule.stages[number] if number in self._schedule.padded else None


class Builder(Rows):
    """Writes the steps of a schedule as loops."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._quotients = Quotients(schedule)
        self._flat, self._ordered = schedule.flat, False
        self._results: dict[Value, Computed] = {}
        self._widened: dict[tuple[Value, int], Widen] = {}
        for step in schedule.order:
            self._step(step)

    def nest(self) -> Nest:
        """The function; the sizes of its outer loops are those of its outputs."""
        schedule = self._schedule
        outer = self._steps.made_by[schedule.outputs[0]].extents[:-1]
        return Nest(
            rows=tuple(schedule.stages),
            lines=tuple(self.lines),
            views=tuple(self.views),
            outer=tuple([self._sizes.number(size) for size in outer]),
            widths=tuple(schedule.widths),
            lengths=tuple(schedule.lengths),
            padded=frozenset(schedule.padded),
            buffers=self.buffers,
            flat=self._flat and len(schedule.widths) == 1,
            ordered=self._ordered,
        )

    def _operand(self, edge: Edge | Literal, step: Step) -> Computed:
        """The element that an edge reads at place ``i`` of the row."""
        schedule = self._schedule
        if isinstance(edge, Literal):
            return Computed(Constant(edge.value, edge.dtype), varies=False)
        along_row = schedule.along_row(edge, step)
        if edge.value in self._steps.inputs:
            tensor = self._steps.inputs[edge.value]
            view = self._view(edge, step, tensor, along_row=along_row, one=False)
            masked = self._masked(step) if along_row else None
            load = Load(view, edge.value.dtype, along_row, masked)
            self._add(step, "body", load)
            return Computed(load, along_row)
        result = self._steps.made_by[edge.value]
        same_stage = schedule.stage_of[edge.value] == schedule.stage_of[step.result]
        if result.per_row or (result.payload is not None and same_stage and edge.axes[-1].whole):
            return self._results[edge.value]
        stored = self._stored_at(edge, result, step)
        self._add(step, "body", stored)
        return Computed(stored, varies=True)

    def _stored_at(self, edge: Edge, result: Step, step: Step) -> Stored:
        """An element of a row that an earlier stage stored."""
        last, memory = edge.axes[-1], self._stored[edge.value]
        own = self._sizes.number(result.extents[-1])
        number = self._schedule.stage_of[step.result]
        row, masked = self._schedule.stages[number], self._masked(step)
        if not last.whole:
            self._flat = False
            return Stored(memory, last.terms[0][1], last.offset, masked)
        if own == row:  # a vector may be read beyond the row of a buffer
            return Stored(memory, 1, 0, None if isinstance(memory, Buffer) else masked)
        if (edge.value, number) not in self._widened:
            buffer = self._buffer(step, edge.value.dtype)
            widened = Widen(memory, own, row, buffer)
            self._add(step, "before", widened)
            self._widened[edge.value, number] = widened
        return Stored(self._widened[edge.value, number], 1, 0, masked)

    # -- statements

    def _step(self, step: Step) -> None:
        if step.payload is None:
            self._whole(step)
        elif step.per_row and not step.reduces:
            self._finish_scalar(step, self._payload(step, "after", "after"))
        elif step.reduces:
            self._flat = False
            self._accumulate(step, self._payload(step, "before", "body"))
        else:
            self._finish_row(step, self._payload(step, "before", "body"))

    def _finish_scalar(self, step: Step, result: Computed) -> None:
        schedule, value = self._schedule, step.result
        is_stored = value in schedule.pieces or value in schedule.outputs
        if is_stored or len(schedule.readers.get(value, ())) > 1:
            result = self._named(step, "after", result, value.dtype)
        self._results[value] = result
        if value in schedule.pieces:
            self._add(step, "after", Store(self._inside(value), result.scalar, along_row=False))
        if value in schedule.outputs:
            self._flat = False
            self._add(step, "after", Store(self._output(step), result.scalar, along_row=False))

    def _finish_row(self, step: Step, result: Computed) -> None:
        schedule, value = self._schedule, step.result
        number = schedule.stage_of[value]
        reads = [schedule.reads_stored(*item, number) for item in schedule.readers.get(value, ())]
        memory: Memory | None = None
        if value in schedule.outputs:
            memory = self._output(step)
        elif value in schedule.pieces:
            memory = self._inside(value)
        elif any(reads):
            memory = self._buffer(step, value.dtype)
        read_here = reads.count(False)
        if read_here and (memory is not None or read_here > 1):
            result = self._named(step, "body", result._replace(varies=True), value.dtype)
        self._results[value] = Computed(result.scalar, varies=True)
        if memory is not None:
            self._stored[value] = memory
            self._add(step, "body", Store(memory, result.scalar, along_row=True))

    def _accumulate(self, step: Step, element: Computed) -> None:
        """Sums and products in any order; maxima and minima keep a NaN."""
        number = self._schedule.stage_of[step.result]
        assert step.start is not None
        total = Accumulate(
            sign=OPERATIONS[step.reduces].reduces,
            element=element.scalar,
            start=Constant(step.start.value, step.start.dtype),
            dtype=step.result.dtype,
            is_wide=step.in_double,
            row=self._schedule.stages[number],
            is_masked=number in self._schedule.padded,
        )
        self._add(step, "body", total)
        is_wide = step.in_double and step.result.dtype != "f64"
        self._finish_scalar(step, Computed(total, varies=False, wide=is_wide))

    def _named(self, step: Step, part: Part, value: Computed, dtype: str) -> Computed:
        name = Name(value.scalar, dtype, value.varies)
        self._add(step, part, name)
        return value._replace(scalar=name)

    def _payload(self, step: Step, fixed: Part, varying: Part) -> Computed:
        """The payload's operations, before the loop or in it."""
        payload = step.payload
        assert payload is not None
        args = [self._operand(edge, step) for edge in step.edges]
        results: list[Computed] = []
        uses = Counter([ref.index for ref in payload.refs if isinstance(ref, Res)])

        def once(arguments: Computed, dtype: str) -> Computed:
            """The value as the row reads it: computed once, before the loop."""
            return arguments if arguments.varies else self._named(step, fixed, arguments, dtype)

        def scalar(ref: Ref) -> Computed:
            if isinstance(ref, Arg):
                return args[ref.index]
            if isinstance(ref, Res):
                return results[ref.index]
            if isinstance(ref, Literal):
                return Computed(Constant(ref.value, ref.dtype), varies=False)
            return Computed(Extent(self._sizes.number(ref.name)), varies=False)

        for place, op in enumerate(payload.ops):
            if op.name == INDEX:
                self._ordered, self._flat = True, False
                results.append(_index(expr_of(op), step, self._schedule))
                continue
            arguments = [scalar(ref) for ref in op.operands]
            is_by_one = op.name == "arith.divf" and arguments[0].varies and not arguments[1].varies
            if is_by_one and self._quotients.multiplies(place, step):
                one = Constant(1, op.dtype)
                operands = (one, arguments[1].scalar)
                inverse = Op("arith.divf", operands, op.dtype, is_whole=True)
                self._add(step, fixed, inverse)
                arguments[1] = arguments[1]._replace(scalar=inverse)
                op = op._replace(name="arith.mulf")
            varies = any(item.varies for item in arguments)
            wide = any(item.wide for item in arguments)
            if varies:  # a loop in double would be slower
                dtypes = [dtype_of(ref, step, payload) for ref in op.operands]
                arguments = [
                    once(item, dtype) for item, dtype in zip(arguments, dtypes, strict=True)
                ]
                arguments = [
                    Computed(Narrow(item.scalar), item.varies) if item.wide else item
                    for item in arguments
                ]
            rounded = wide and not varies  # to float, by its name
            is_named = rounded or uses[place] > 1
            operands = tuple([item.scalar for item in arguments])
            outcome = Op(op.name, operands, op.dtype, str(op.attribute), varies, is_named)
            self._add(step, varying if varies else fixed, outcome)
            results.append(Computed(outcome, varies))
        result = scalar(payload.yields[0])
        if step.per_row and not step.reduces:
            return result
        return once(result, dtype_of(payload.yields[0], step, payload))


def _index(expr: Expr, step: Step, schedule: Schedule) -> Computed:
    """The value of a loop; 0 along a size of 1."""
    loops = schedule.steps.loops
    terms = tuple(
        [
            (_factor(expr, loop, loops), loop, schedule.sizes.number(step.extents[loop]))
            for loop in sorted(dims_of(expr))
        ]
    )
    index = Index(evaluate(expr, [0] * loops), terms, loops)
    return Computed(index, varies=loops - 1 in dims_of(expr))


def _factor(expr: Expr, loop: int, loops: int) -> int:
    """The factor of a loop in the expression of an index."""
    point = [0] * loops
    at_zero = evaluate(expr, point)
    point[loop] = 1
    return evaluate(expr, point) - at_zero
