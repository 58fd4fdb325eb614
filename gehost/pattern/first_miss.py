"""Misses at the first operand that an operator of the pattern is to make: most candidates fall there, and no search is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gehost.ir.graph import Node, Value
from gehost.pattern.rule import OpPattern, TensorPattern
from gehost.pattern.steps import Beginning, Plan
from gehost.pattern.wording import producer_problem, together

NOTHING: Final = 0
"""How near a try came to one more operator; of tries of one depth the closest is told. Here: no node is there."""
OTHER: Final = 1
"""A node of another operator."""
CONDITION: Final = 2
"""A node of the operator, with other inputs, outputs or parameters."""


class FirstMiss(NamedTuple):
    """What is told of such a miss, whatever pattern it is of."""

    reason: str
    label: str
    """Of the node."""
    producer: Node | None
    closeness: int


class FirstMisses:
    """Those that are known: patterns that begin alike share them, as long as nobody edits the model."""

    def __init__(self) -> None:
        self._known: dict[Beginning, dict[Node, FirstMiss | None]] = {}
        self._edits: tuple[int, object] = (0, None)
        """As of which edits of the model that is."""

    def of(self, plan: Plan, nodes: Sequence[Node]) -> Mapping[Node, FirstMiss | None]:
        """``first_miss`` at nodes of one graph, and maybe at others."""
        if plan.beginning is None:
            return {}
        mark, edit = nodes[0].graph.model.journal.last
        if mark != self._edits[0] or edit is not self._edits[1]:
            self._known.clear()
            self._edits = mark, edit
        known = self._known.setdefault(plan.beginning, {})
        for node in nodes:
            if node not in known:
                known[node] = first_miss(plan, node)
        return known


def first_miss(plan: Plan, node: Node) -> FirstMiss | None:
    """The nearest miss where no input comes from the operator that is placed second; None where it takes a search.

    A search would find the same, and take several times as long.
    """
    step, inputs = plan.steps[0], node.inputs
    made = step.made
    if not plan.first_slots or made is None or node.op not in step.op.ops or len(node.outputs) != 1:
        return None
    if len(inputs) != step.count or None in inputs or None in node.outputs:
        return None
    slots: list[tuple[int, Value]] = []
    nearest = -1
    for slot in plan.first_slots:
        value = inputs[slot]
        assert value is not None
        closeness = wrong_producer(step.maker, made, value)
        if closeness is None:
            return None
        if closeness > nearest:
            slots, nearest = [], closeness
        if closeness == nearest:
            slots.append((slot, value))
    reading = None if step.op.commutative else step.op
    tried = [(slot, producer_problem(step.maker, made.slot, value, node, slot, reading)) for slot, value in slots]
    return FirstMiss(together(node, tried), node.label, slots[0][1].producer, nearest)


def wrong_producer(op: OpPattern, link: TensorPattern, value: Value) -> int | None:
    """How near what makes ``value`` comes to ``op``, which is to make it; None where it may stand for it."""
    node = value.producer
    if node is None:
        return NOTHING
    if node.op in op.ops:
        return None if value.index == link.slot else CONDITION
    return NOTHING if node.op == "Constant" else OTHER
