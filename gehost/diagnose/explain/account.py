"""Records one pass while it runs: matches and misses at each node, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from gehost.diagnose.explain.findings import Finding, Outcome
from gehost.diagnose.nodes import replacement
from gehost.ir.graph import Graph, Node
from gehost.passes.context import Rewrite
from gehost.pattern.explain.messages import named
from gehost.pattern.explain.reference_matcher import Look, MatchFailure, ReferenceMatcher
from gehost.pattern.source import SourcePattern

_MISSED = Outcome.MISSED
"""Looked up once: there are many, and a member of an enumeration costs as much as a call."""


class _Pattern:
    """A pattern of the pass: its place among them, its tracer, and whether a candidate for it
    was seen anywhere.
    """

    def __init__(self, place: int, source: SourcePattern) -> None:
        self.place = place
        self.source = source
        self.tracer = ReferenceMatcher(source)
        self.size = len(source.ops)
        anchors = [
            source.ops[leaf.producer]
            for leaf in source.leaves(source.tensors[source.outputs[0]])
            if leaf.producer is not None
        ]
        self.anchor = anchors[0]
        self.anchor_ops = tuple(dict.fromkeys([op for each in anchors for op in each.ops]))
        self.seen = False


class Account:
    """The outcome of each candidate of a pass.

    A rule is followed from ``look``, before it runs on a graph, to ``settle``, after it; in between
    ``rewritten`` and ``refused`` are called.

    Args:
        origin: of the pass.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._patterns: dict[SourcePattern, _Pattern] = {}
        self._at: _Pattern | None = None
        self._looks: list[Look] = []
        self._rewritten: dict[Node, str] = {}
        self._refused: dict[Node, list[tuple[str, tuple[str, ...]]]] = {}
        self._made: dict[Node, None] = {}
        self._taken: dict[Node, Node] = {}
        """Nodes that went into a match, and the one that made its output 0; also of rules that
        ran before.
        """
        self._findings: list[tuple[Node, Finding]] = []

    @property
    def saw_rules(self) -> bool:
        return bool(self._patterns)

    def look(self, source: SourcePattern, graph: Graph, targets: Sequence[Node] | None) -> None:
        """Look at the candidates of a rule that is about to run.

        Args:
            source: its pattern.
            graph: where it will run.
            targets: look at these nodes of the graph, in any place of the pattern; None
                for all that may make output 0.
        """
        at = self._at = self._patterns.get(source) or _Pattern(len(self._patterns), source)
        self._patterns[source] = at
        if targets is not None:
            at.seen = True
            here = [node for node in targets if node.graph is graph and node.in_graph]
            self._looks = [(node, at.tracer.around(node) or at.tracer.at(node)) for node in here]
            return
        anchors = graph.nodes_of(*at.anchor_ops)
        at.seen = at.seen or bool(anchors)
        self._looks = at.tracer.at_each(anchors) or self._look_inside(graph, at)

    def _look_inside(self, graph: Graph, at: _Pattern) -> list[Look]:
        """Where nothing can make output 0: how far the pattern comes from the operator nearest
        to it.
        """
        nearest = at.source if not at.source.has_choices else next(at.source.variants())
        for op, _ in nearest.order({}):
            by_op = [at.tracer.around_each(graph.nodes_of(name)) for name in op.ops]
            if any(by_op):
                return sorted(chain(*by_op), key=lambda look: look[0].order)
        return []

    def rewritten(self, anchor: Node, rewrite: Rewrite) -> None:
        """A match was replaced; ``anchor`` made its output 0."""
        self._rewritten[anchor] = replacement(rewrite)
        self._taken.update((node, anchor) for node in rewrite.region.nodes if not node.in_graph)
        self._made.update(dict.fromkeys(rewrite.made))

    def refused(self, node: Node, reason: str, advice: tuple[str, ...] = ()) -> None:
        """A match at a node was refused."""
        self._refused.setdefault(node, []).append((reason, advice))

    def settle(self, targets: Sequence[Node] | None) -> None:
        """Record the outcome of each candidate, now that the rule has run."""
        told = {node for node, _ in self._looks}
        for node, found in self._looks:
            inside = self._taken.get(node, node) is not node and isinstance(found, MatchFailure)
            # nodes inside a match are listed only on request
            if targets is not None or not inside:
                self._tell(node, found)
        for node in [
            *self._rewritten,
            *self._refused,
            *(made for made in self._made if made.in_graph),
        ]:
            if node not in told and (targets is None or node in targets):
                told.add(node)
                self._tell_late(node)
        self._looks, self._rewritten, self._refused, self._made = [], {}, {}, {}

    @property
    def variants(self) -> list[str]:
        """The names of the patterns that were tried, in order."""
        return [pattern.source.name for pattern in self._patterns.values()]

    def findings(self) -> list[Finding]:
        """All of them, without misses of nodes that another pattern found; and patterns for
        which there was no candidate.
        """
        found = [
            f for node, f in self._findings if f.outcome is not _MISSED or node not in self._taken
        ]
        return [
            *found,
            *(
                _without_candidates(pattern)
                for pattern in self._patterns.values()
                if not pattern.seen
            ),
        ]

    # -- findings of a node
    # ---------------------------------------------------------------------------------------

    def add(self, node: Node, outcome: Outcome, reason: str, advice: tuple[str, ...] = ()) -> None:
        """Note a finding where no operator of the pattern is to blame."""
        at = self._at
        place, size, variant = (None, 0, "") if at is None else (at.place, at.size, at.source.name)
        found = Finding(
            outcome,
            reason,
            node.label,
            node.op,
            _body(node),
            place,
            "",
            self._origin,
            size,
            size,
            variant=variant,
            advice=advice,
        )
        self._findings.append((node, found))

    def _add_miss(self, node: Node, miss: MatchFailure) -> None:
        assert self._at is not None
        label, origin = miss.pattern_node.label, str(miss.pattern_node.origin)
        found = Finding(
            _MISSED,
            f"{miss.reason}, in {miss.part}" if miss.part else miss.reason,
            miss.label,
            node.op,
            _body(node),
            self._at.place,
            label,
            origin,
            miss.depth,
            miss.size,
            miss.closeness,
            self._at.source.name,
        )
        self._findings.append((node, found))

    def _tell(self, node: Node, found: list[Node] | MatchFailure) -> None:
        if isinstance(found, MatchFailure):
            if not self._tell_done(node, node):
                self._add_miss(node, found)
        elif not self._tell_done(node, found[0]):
            self._tell_left(node, found)

    def _tell_done(self, node: Node, anchor: Node) -> bool:
        """Record the rule's result for a node, or for the match at ``anchor`` that holds it;
        False if there is none.
        """
        if node in self._rewritten:
            self.add(node, Outcome.REWRITTEN, self._rewritten[node])
        elif node in self._taken:
            by = self._taken[node]
            told = f", which {self._rewritten[by]}" if by in self._rewritten else ""
            if by is anchor:
                self.add(node, Outcome.REWRITTEN, f'in the match at "{by.label}"{told}')
            else:
                self.add(node, Outcome.TAKEN, f'was taken by the match at "{by.label}"{told}')
        elif anchor in self._refused:
            for reason, advice in dict.fromkeys(self._refused[anchor]):
                self.add(node, Outcome.REFUSED, reason, advice)
        else:
            return False
        return True

    def _tell_late(self, node: Node) -> None:
        """A node that was not looked at before the rule ran: it is new, or something in front of
        it changed.
        """
        if (
            self._tell_done(node, node)
            or self._at is None
            or node.op not in self._at.anchor_ops
            or not node.in_graph
        ):
            return
        found = self._at.tracer.at(node)
        if isinstance(found, MatchFailure):
            self._add_miss(node, found)

    def _tell_left(self, node: Node, found: Iterable[Node]) -> None:
        """A match that was neither replaced nor refused."""
        assert self._at is not None
        taken = next((other for other in found if other in self._taken), None)
        if taken is not None:
            by = self._taken[taken]
            self.add(
                node,
                Outcome.TAKEN,
                f'needs {named(taken)}, which was taken by the match at "{by.label}"',
            )
            return
        again = self._at.tracer.around(node)
        if isinstance(again, MatchFailure):
            again.reason += ", since a rewrite of this pass"
            self._add_miss(node, again)
        else:
            self.add(node, Outcome.LEFT, "matches, but the pass ended before its turn")


def _without_candidates(pattern: _Pattern) -> Finding:
    wanted = "|".join(pattern.anchor_ops)
    reason = (
        f'there was no {wanted}, which makes output 0, when pattern "{pattern.source.name}" '
        "was tried"
    )
    origin = str(pattern.anchor.origin)
    return Finding(
        Outcome.MISSED,
        reason,
        "",
        "",
        "",
        pattern.place,
        pattern.anchor.label,
        origin,
        0,
        pattern.size,
        variant=pattern.source.name,
    )


def _body(node: Node) -> str:
    return "" if node.graph.owner is None else node.graph.name
