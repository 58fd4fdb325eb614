"""Near misses of a pattern, and their closeness."""

from __future__ import annotations

from typing import Final

from gehost.ir.graph import Node, Value
from gehost.pattern.fits import is_output
from gehost.pattern.source import OpPattern, TensorPattern
from gehost.refusal import Refusal

NOTHING: Final = 0
"""Closeness of an attempt to one more operator; this one: there is no node. Of attempts with equal
depth the closest is reported.
"""
OTHER: Final = 1
"""A node of another operator."""
CONDITION: Final = 2
"""A node of the operator, with other inputs, outputs or parameters."""


KINDS: Final = ("no node", "other operator", "condition")
"""The keys of near misses, by closeness."""


class MatchFailure:
    """The nearest miss of a pattern at one node.

    Attributes:
        reason: wanted and found.
        label: name of the node at which the pattern was tried.
        pattern_node: the operator of the pattern that found no node, with its author's line in
            ``origin``.
        graph_node: the node that did not fit; None if there was none.
        depth: number of the pattern's operators that had found their nodes.
        size: number of the pattern's operators.
        closeness: to one more operator; of misses of equal depth, the highest is the nearest.
        part: the optional part or alternative that ``pattern_node`` belongs to; "" for none.
    """

    __slots__ = (
        "closeness",
        "depth",
        "graph_node",
        "label",
        "part",
        "pattern_node",
        "reason",
        "size",
    )

    def __init__(
        self,
        reason: str,
        label: str,
        pattern_node: OpPattern,
        graph_node: Node | None,
        depth: int,
        size: int,
        closeness: int,
        part: str = "",
    ) -> None:
        self.reason = reason
        self.label = label
        self.pattern_node = pattern_node
        self.graph_node = graph_node
        self.depth = depth
        self.size = size
        self.closeness = closeness
        self.part = part

    @property
    def refusal(self) -> Refusal:
        """The miss as a refusal, with the kind of mismatch as its key."""
        op = self.pattern_node
        return Refusal(KINDS[self.closeness], self.reason, op.origin, op.label)

    def __str__(self) -> str:
        part = f" (in {self.part})" if self.part else ""
        return f"{self.pattern_node.origin}: {self.pattern_node.label}: {self.reason}{part}"


def wrong_producer(op: OpPattern, link: TensorPattern, value: Value) -> int | None:
    """Return how close ``value``'s producer is to ``op``, None if it fits."""
    node = value.producer
    if is_output(value, op.ops, link.slot):
        return None
    if node is None:
        return NOTHING
    if node.op in op.ops:
        return CONDITION
    return NOTHING if node.op == "Constant" else OTHER
