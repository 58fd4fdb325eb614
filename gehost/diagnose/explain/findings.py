"""The outcome at each candidate of a pass, as data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Outcome(StrEnum):
    """The outcome for one node, the most important first."""

    REWRITTEN = "rewritten"
    REFUSED = "refused"
    """It matched; ``MeetRequirements`` or the proof of the replacement refused it."""
    TAKEN = "taken"
    """It, or a node that its match needed, is in another match of the same pass."""
    LEFT = "left"
    """It matched, but the pass ended before its turn."""
    MISSED = "near miss"
    GONE = "gone"
    """It is not in the graph when the pass runs."""


class Finding(NamedTuple):
    """The outcome for one node at one pattern of the pass.

    Attributes:
        outcome: in a word.
        reason: in full, with names of nodes and tensors.
        node: its label; "" for a statement about the whole model.
        op: the node's operator.
        graph: the name of the nested body that holds it; "" for the root graph.
        pattern: the pattern's position among those of the pass; None if no pattern is known.
        pattern_op: the pattern's operator that found no node, or, if all did, the one that the
            reason is about; "" if it is about none.
        origin: ``file:line`` of that operator, or of the pass.
        depth: number of the pattern's operators that found their nodes.
        size: number of the pattern's operators.
        closeness: of a near miss, its distance to one more operator; of those of equal depth, the
            highest is the nearest.
        variant: the name of the pattern; "" if no pattern is known.
        key: of the refusal or of the near miss, which does not change; else "".
        advice: how to resolve a refusal, if more is known than the reason.
    """

    outcome: Outcome
    reason: str
    node: str = ""
    op: str = ""
    graph: str = ""
    pattern: int | None = None
    pattern_op: str = ""
    origin: str = ""
    depth: int = 0
    size: int = 0
    closeness: int = 0
    variant: str = ""
    key: str = ""
    advice: tuple[str, ...] = ()

    @property
    def is_shallow(self) -> bool:
        """Whether a miss found less than half of the pattern's operators."""
        return self.outcome is Outcome.MISSED and bool(self.node) and 2 * self.depth < self.size

    @property
    def cause(self) -> str:
        """The reason without names; findings are grouped by it."""
        return re.sub(r'"[^"]*"', "…", self.reason)


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one cause."""

    cause: str
    findings: Sequence[Finding]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    def as_dict(self) -> dict[str, Any]:
        first = self.first._asdict()
        del first["node"], first["op"], first["graph"]
        return {
            "cause": self.cause,
            "count": len(self.findings),
            **first,
            "nodes": [finding.node for finding in self.findings],
        }


@dataclass
class Explanation:
    """The outcome of one pass on one model.

    Attributes:
        status: as in the report of a compile.
        message: why the pass does not apply or failed, or which of its patterns do not apply.
        notes: about the pass as a whole.
        variants: the names of the pass's patterns that were tried, in order.
    """

    model: str
    pass_name: str
    vendor: str
    stage: str
    kind: str
    origin: str
    node: str | None = None
    status: str = ""
    message: str = ""
    notes: list[str] = field(default_factory=list[str])
    variants: list[str] = field(default_factory=list[str])
    findings: list[Finding] = field(default_factory=list[Finding])

    def counts(self) -> dict[str, int]:
        """Nodes by outcome."""
        counted = Counter(finding.outcome for finding in self._nearest() if finding.node)
        return {outcome.value: counted[outcome] for outcome in Outcome if counted[outcome]}

    def _nearest(self) -> list[Finding]:
        """Return each node's best result (nearest miss) over all patterns."""
        nearest: dict[Any, Finding] = {}
        for place, finding in enumerate(self.findings):
            key = (finding.graph, finding.node, finding.op) if finding.node else place
            earlier = nearest.get(key)
            if earlier is None or _rank(finding) < _rank(earlier):
                nearest[key] = finding
        return list(nearest.values())

    def groups(self) -> list[Group]:
        """Group the findings by cause: rewritten nodes first, then the nearest misses.

        Each node is listed once, under its best result; a requested one under all its results.
        """
        grouped: dict[Any, list[Finding]] = {}
        for finding in self._nearest() if self.node is None else self.findings:
            place = (
                (finding.pattern, finding.pattern_op, finding.origin, finding.depth)
                if finding.node
                else ()
            )
            key = (finding.outcome, *place, finding.cause)
            grouped.setdefault(key, []).append(finding)
        order = list(Outcome)
        groups = [Group(key[-1], findings) for key, findings in grouped.items()]
        return sorted(
            groups, key=lambda g: (order.index(g.first.outcome), -g.first.depth, -len(g.findings))
        )

    def near_and_shallow(self) -> tuple[list[Group], list[Group]]:
        """Split ``groups``: the shallow misses apart, where there is anything else."""
        groups = self.groups()
        near = [group for group in groups if self.node or not group.first.is_shallow]
        if not near:
            deepest = max((group.first.depth for group in groups), default=0)
            near = [group for group in groups if group.first.depth == deepest]
        return near, [group for group in groups if group not in near]

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON data."""
        findings = [finding._asdict() for finding in self.findings]
        return {
            **vars(self),
            "notes": list(self.notes),
            "findings": findings,
            "counts": self.counts(),
            "groups": [group.as_dict() for group in self.groups()],
        }


_IMPORTANCE = {outcome: place for place, outcome in enumerate(Outcome)}


def _rank(finding: Finding) -> tuple[int, int, int]:
    """Return a key that is lower for a more informative result of a node."""
    return _IMPORTANCE[finding.outcome], -finding.depth, -finding.closeness
