"""Quotients that may be products with the reciprocal, which is computed once a row."""

from __future__ import annotations

from gehost_linalg.generic import INDEX, Arg, Literal, Ref, Res, ScalarOp, Value
from gehost_linalg.kernels.schedule import Schedule
from gehost_linalg.kernels.steps import Edge, Step
from gehost_linalg.operations import OPERATIONS


class Quotients:
    """Answers for one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._steps = schedule.steps
        self._summed = _behind_sums(schedule)
        self._is_stepped = any(
            op.name != INDEX and OPERATIONS[op.name].is_step
            for step in schedule.order
            if step.payload
            for op in step.payload.ops
        )

    def multiplies(self, place: int, step: Step) -> bool:
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
            return is_by_root and sums and not self._is_stepped
        readers = {op.name for op in payload.ops if Res(place) in op.operands}
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
        result = self._steps.made_by.get(edge.value)
        if result is None or result.payload is None or result.reduces:
            return None
        return self._source(result.payload.yields[0], result)


def _behind_sums(schedule: Schedule) -> set[Value]:
    """The sums, and what is computed from them."""
    behind: set[Value] = set()
    for step in schedule.order:
        reads = any(isinstance(edge, Edge) and edge.value in behind for edge in step.edges)
        if reads or step.reduces == "arith.addf":
            behind.add(step.result)
    return behind
