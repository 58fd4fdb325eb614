"""Near misses, and those at the first operand that an operator is to make: most candidates fall
there, which takes no search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gehost.ir.graph import Node, Value
from gehost.pattern.explain.messages import join_mismatches, producer_problem
from gehost.pattern.explain.plan import Beginning, Plan
from gehost.pattern.source import OpPattern, TensorPattern

NOTHING: Final = 0
"""How near a try came to one more operator; of tries of one depth the closest is told. Here: no
node is there.
"""
OTHER: Final = 1
"""A node of another operator."""
CONDITION: Final = 2
"""A node of the operator, with other inputs, outputs or parameters."""


class MatchFailure:
    """The nearest miss of a pattern at one node.

    Attributes:
        reason: what was wanted, and what was there.
        label: what the node is called at which it was tried.
        pattern_node: the operator of the pattern that found no node, with its author's line in
            ``origin``.
        graph_node: the node that was not it; None where there was none to look at.
        depth: how many operators of the pattern had found their nodes.
        size: how many operators the pattern has.
        closeness: how near it came to one more operator; of misses of one depth the highest is
            the nearest.
    """

    __slots__ = ("closeness", "depth", "graph_node", "label", "pattern_node", "reason", "size")

    def __init__(
        self,
        reason: str,
        label: str,
        pattern_node: OpPattern,
        graph_node: Node | None,
        depth: int,
        size: int,
        closeness: int,
    ) -> None:
        self.reason = reason
        self.label = label
        self.pattern_node = pattern_node
        self.graph_node = graph_node
        self.depth = depth
        self.size = size
        self.closeness = closeness

    def of(self, plan: Plan) -> MatchFailure:
        """The same of another plan that begins alike."""
        size = len(plan.steps)
        return MatchFailure(
            self.reason,
            self.label,
            plan.steps[0].maker,
            self.graph_node,
            self.depth,
            size,
            self.closeness,
        )

    def __str__(self) -> str:
        return f"{self.pattern_node.origin}: {self.pattern_node.label}: {self.reason}"


class FirstMisses:
    """What is known of ``first_miss``: patterns that begin alike share it, as long as nobody
    edits the model.
    """

    def __init__(self) -> None:
        self._known: dict[Beginning, dict[Node, MatchFailure | None]] = {}
        self._edits: tuple[int, object] = (0, None)
        """As of which edits of the model that is."""

    def of(self, plan: Plan, nodes: Sequence[Node]) -> Mapping[Node, MatchFailure | None]:
        """``first_miss`` at nodes of one graph, of this plan or one that begins alike; maybe at
        others too.
        """
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


def first_miss(plan: Plan, node: Node) -> MatchFailure | None:
    """The nearest miss where no input comes from the operator that is placed second; None where it
    takes a search.

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
    tried = [
        (slot, producer_problem(step.maker, made.slot, value, node, slot, reading))
        for slot, value in slots
    ]
    return MatchFailure(
        join_mismatches(node, tried),
        node.label,
        step.maker,
        slots[0][1].producer,
        1,
        len(plan.steps),
        nearest,
    )


def wrong_producer(op: OpPattern, link: TensorPattern, value: Value) -> int | None:
    """How near what makes ``value`` comes to ``op``, which is to make it; None where it may
    stand for it.
    """
    node = value.producer
    if node is None:
        return NOTHING
    if node.op in op.ops:
        return None if value.index == link.slot else CONDITION
    return NOTHING if node.op == "Constant" else OTHER
