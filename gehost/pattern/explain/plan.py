"""In which order the traced matcher places the operators of a pattern, and what it asks of each
node again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gehost.pattern.bind_op import no_more_inputs
from gehost.pattern.matcher import Link
from gehost.pattern.source import ANY, OpPattern, SourcePattern, TensorPattern

Steps: TypeAlias = Sequence[tuple[OpPattern, Link]]
"""Operators, each with what leads to it."""

Beginning: TypeAlias = tuple[str, int, bool, str, int]
"""The operator that is placed first, how many inputs it has and whether they may swap; what
makes one, and as which output.
"""


class Step:
    """An operator of a plan, and what is asked for each node again and again.

    Attributes:
        asks: whether its parameters have to be anything.
        outputs: the slot of each output, its tensor, and whether it must be there.
        count: how many inputs the operator has.
        maker: the operator that comes next, where that makes an operand; which one is ``made``.
    """

    def __init__(
        self,
        op: OpPattern,
        link: Link,
        following: tuple[OpPattern, Link] | None,
        needed: frozenset[int],
    ) -> None:
        self.op = op
        self.link = link
        self.asks = bool(op.constraints) or op.exact_attributes is not None
        self.outputs = [
            (tensor.slot, tensor.index, tensor.index in needed) for tensor in op.outputs
        ]
        self.count = len(op.inputs)
        self.no_more = no_more_inputs(op, self.count)
        self.made: Link = None
        if (
            following is not None
            and following[1] is not None
            and following[1].producer == following[0].index
        ):
            self.maker, self.made = following

    def slots_of_made(self) -> Sequence[int]:
        """The inputs that are tried for ``made`` before anything else that is asked of a node
        can go wrong; else none.
        """
        op, made = self.op, self.made
        if made is None or self.asks or len(op.outputs) != 1:
            return ()
        if op.commutative:
            comes_first = op.inputs[0] is made or (
                op.inputs[1] is made and self.count == 2 and _takes_any(op.inputs[0])
            )
            return range(self.count - 1, -1, -1) if comes_first else ()
        is_alone = (
            op.inputs[0] is made
            and all(map(_takes_any, op.inputs))
            and len(set(op.inputs)) == self.count
        )
        return (0,) if is_alone else ()


def _takes_any(tensor: TensorPattern | None) -> bool:
    """Whether any tensor may be there, as far as that is told without its producer."""
    return (
        tensor is not None
        and (tensor.constant, tensor.dtype, tensor.rank, tensor.shape) == (None,) * 4
    )


class Plan:
    """The order in which a variant's operators are placed."""

    def __init__(self, source: SourcePattern, steps: Steps) -> None:
        self.source = source
        after = [*steps[1:], None]
        self.steps = [
            Step(op, link, next_one, source.needed)
            for (op, link), next_one in zip(steps, after, strict=True)
        ]
        self.first_slots = self.steps[0].slots_of_made()
        first = self.steps[0]
        self.beginning: Beginning | None = None
        """Where it has ``first_slots``; the same for plans of which those are told alike."""
        if self.first_slots and first.made is not None:
            self.beginning = (
                first.op.label,
                first.count,
                first.op.commutative,
                first.maker.label,
                first.made.slot,
            )


def steps_from(source: SourcePattern, root: OpPattern) -> Steps:
    """All operators, ``root`` first, each after a tensor that leads to it: to who makes it,
    rather than to who reads it.
    """
    plan: list[tuple[OpPattern, Link]] = [(root, None)]
    while len(plan) < len(source.ops):
        placed = {op.index for op, _ in plan}
        touched = [
            t for op, _ in plan for t in (*op.inputs, *op.outputs) if t is not None and t is not ANY
        ]
        known = {tensor.index for tensor in touched if tensor.constant is None}
        makers = [
            (source.ops[t.producer], t)
            for t in touched
            if t.producer is not None and t.producer not in placed
        ]
        waiting = [op for op in source.ops if op.index not in placed]
        readers = [
            (op, t) for op in waiting for t in op.inputs if t is not None and t.index in known
        ]
        # a placeholder may have any number of readers
        readers.sort(key=lambda reading: reading[1].is_input)
        plan.append(next(iter([*makers, *readers]), (waiting[0], None)))
    return plan
