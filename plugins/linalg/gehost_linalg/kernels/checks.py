"""What no loop can compute: checked in a schedule, before any text exists."""

from __future__ import annotations

import re

from gehost import Refused
from gehost_linalg.affine import Expr
from gehost_linalg.generic import INDEX, Literal, ScalarOp, Value, expr_of
from gehost_linalg.kernels.schedule import Schedule, dtype_of
from gehost_linalg.kernels.steps import Edge, Step, check_type
from gehost_linalg.operations import OPERATIONS, PREDICATES


def check(schedule: Schedule) -> None:
    """Raise ``Refused`` for what a step reads, computes or writes."""
    for step in schedule.order:
        for edge in step.edges:
            _check_read(schedule, edge, step)
        _check_payload(step)
        check_type(step.result.dtype)
        _check_output(schedule, step)


def _check_read(schedule: Schedule, edge: Edge | Literal, step: Step) -> None:
    if not isinstance(edge, Edge):
        return
    check_type(edge.value.dtype)
    if step.payload is None or edge.value in schedule.steps.inputs:
        return
    result = schedule.steps.made_by[edge.value]
    _check_outer(schedule, edge, result, step)
    if result.per_row:
        return
    if not schedule.along_row(edge, step):
        raise Refused("not-emitted", "one element of a computed row is read")
    if not edge.axes[-1].whole:
        _check_part(schedule, edge, result, step)
    elif schedule.sizes.key(result.extents[-1]) != schedule.sizes.key(step.extents[-1]) and not (
        edge.axes[-1].maybe_broadcast
    ):
        raise Refused("not-emitted", f"{edge.value.name} is read in part along the row")


def _check_outer(schedule: Schedule, edge: Edge, result: Step, step: Step) -> None:
    """Check that a computed value is read at its own outer indices."""
    loops = schedule.steps.loops
    if any(len(read.terms) > 1 for read in edge.axes):
        raise Refused(
            "not-emitted", f"{edge.value.name} is computed over an axis that is split later"
        )
    for axis, read in enumerate(edge.axes[: loops - 1]):
        own = schedule.sizes.key(result.extents[axis])
        if not read.terms and read.offset == 0 and own == 1:
            continue
        if read.loop != axis or not read.whole:
            raise Refused(
                "not-emitted", f"{edge.value.name} is computed in one order and read in another"
            )
        if not read.maybe_broadcast and own != schedule.sizes.key(step.extents[axis]):
            raise Refused("not-emitted", f"{edge.value.name} is read in part along axis {axis}")
    if (
        len(edge.axes) == loops
        and not result.per_row
        and edge.axes[-1].loop not in {None, loops - 1}
    ):
        raise Refused(
            "not-emitted", f"{edge.value.name} is computed in one order and read in another"
        )


def _check_part(schedule: Schedule, edge: Edge, result: Step, step: Step) -> None:
    """Check that a computed row is read within its size, which is known or what is cut."""
    last = edge.axes[-1]
    scale = last.terms[0][1]
    own, row = schedule.sizes.key(result.extents[-1]), schedule.sizes.key(step.extents[-1])
    if isinstance(own, int) and isinstance(row, int):
        ends = (last.offset, last.offset + scale * (row - 1)) if row else ()
        is_inside = all(0 <= end < own for end in ends)
    else:
        cut = ("part", own, last.offset, scale)
        is_inside = isinstance(row, tuple) and (*row[:3], row[-1]) == cut
    if not is_inside:
        raise Refused("not-emitted", f"part of {edge.value.name} is read, whose size is not known")


def _check_output(schedule: Schedule, step: Step) -> None:
    if step.result not in schedule.outputs:
        return
    rank, loops = step.result.rank or 0, schedule.steps.loops
    if rank not in {loops, loops - 1} or (rank < loops and not step.per_row):
        raise Refused("not-emitted", f"an output of rank {rank} from {loops} loops")


def _check_payload(step: Step) -> None:
    """Check that each scalar operation has its C."""
    payload = step.payload
    if payload is None:
        return
    for ref in payload.refs:
        if isinstance(ref, Value) and ref.kind != "extent":
            raise Refused("not-emitted", f"scalar {ref.name}")
    for op in payload.ops:
        if op.name == INDEX:
            _check_index(expr_of(op))
        else:
            _check_operation(op, dtype_of(op.operands[0], step, payload))


def _check_index(expr: Expr) -> None:
    if re.search("mod|div", str(expr)):
        raise Refused("not-emitted", f"an index of {expr}")


def _check_operation(op: ScalarOp, source: str) -> None:
    operation = OPERATIONS.get(op.name)
    if operation is None:
        raise Refused("not-emitted", f"{op.name}, of which only the text is known")
    if op.flags:
        raise Refused("not-emitted", f"{op.name} with {op.flags}")
    if operation.form == "compare":
        if not PREDICATES[op.name].get(str(op.attribute)):
            raise Refused("not-emitted", f"comparison {op.attribute}")
        return
    if not operation.c or (operation.c_types and op.dtype not in operation.c_types):
        if operation.types == "integer" and operation.c and operation.form == "plain":
            raise Refused("not-emitted", f"arithmetic of {op.dtype}")
        raise Refused("not-emitted", f"{op.name} from {source} to {op.dtype}")
    check_type(op.dtype)
