"""Record one pass while it runs: matches, misses, and the outcome."""

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
"""A local name, as the lookup of an enum member costs as much as a call, and there are many."""


class _Pattern:
    """A pattern of the pass: position, matcher, and whether candidates were seen."""

    def __init__(self, place: int, source: SourcePattern) -> None:
        self.place = place
        self.source = source
        self.tracer = ReferenceMatcher(source)
        self.size = len(source.ops)
        roots = [
            source.ops[leaf.producer]
            for leaf in source.leaves(source.tensors[source.outputs[0]])
            if leaf.producer is not None
        ]
        self.root = roots[0]
        self.root_ops = tuple(dict.fromkeys([op for op_pattern in roots for op in op_pattern.ops]))
        self.seen = False


class Account:
    """The outcome of each candidate of a pass.

    For each rule call ``start`` before it runs on a graph, ``rewritten`` and ``refused`` while
    it runs, and ``record_outcomes`` after it.

    Args:
        origin: source location of the pass.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._patterns: dict[SourcePattern, _Pattern] = {}
        self._at: _Pattern | None = None
        self._outcomes: list[Look] = []
        self._rewritten: dict[Node, str] = {}
        self._refused: dict[Node, list[tuple[str, str, tuple[str, ...]]]] = {}
        self._made: dict[Node, None] = {}
        self._taken: dict[Node, Node] = {}
        """Nodes of a replaced match → the producer of its output 0; includes earlier rules."""
        self._findings: list[tuple[Node, Finding]] = []

    @property
    def saw_rules(self) -> bool:
        return bool(self._patterns)

    def start(self, source: SourcePattern, graph: Graph, targets: Sequence[Node] | None) -> None:
        """Match the candidates of a rule that is about to run.

        Args:
            source: its pattern.
            graph: the graph it will run on.
            targets: nodes of the graph to explain, in any place of the pattern; None for all
                candidates for the producer of output 0.
        """
        at = self._at = self._patterns.get(source) or _Pattern(len(self._patterns), source)
        self._patterns[source] = at
        if targets is not None:
            at.seen = True
            here = [node for node in targets if node.graph is graph and node.in_graph]
            self._outcomes = [(node, at.tracer.around(node) or at.tracer.at(node)) for node in here]
            return
        roots = graph.nodes_of(*at.root_ops)
        at.seen = at.seen or bool(roots)
        self._outcomes = at.tracer.at_each(roots)
        if self._outcomes:
            return
        # else match around the operator nearest to output 0 that the graph has
        nearest = at.source if not at.source.has_choices else next(at.source.variants())
        for op, _ in nearest.order({}):
            by_op = [at.tracer.around_each(graph.nodes_of(name)) for name in op.ops]
            if any(by_op):
                self._outcomes = sorted(chain(*by_op), key=lambda outcome: outcome[0].order)
                return

    def rewritten(self, root: Node, rewrite: Rewrite) -> None:
        """Record a replaced match; ``root`` produced its output 0."""
        self._rewritten[root] = replacement(rewrite)
        self._taken.update((node, root) for node in rewrite.region.nodes if not node.in_graph)
        self._made.update(dict.fromkeys(rewrite.made))

    def refused(self, node: Node, key: str, reason: str, advice: tuple[str, ...] = ()) -> None:
        """A match at a node was refused, for a reason with this key."""
        self._refused.setdefault(node, []).append((key, reason, advice))

    def record_outcomes(self, targets: Sequence[Node] | None) -> None:
        """Record the outcome of each candidate after the rule has run."""
        nodes = {node for node, _ in self._outcomes}
        for node, outcome in self._outcomes:
            # a node that the match at another one took is listed only on request
            inside = self._taken.get(node, node) is not node and isinstance(outcome, MatchFailure)
            if targets is None and inside:
                continue
            if isinstance(outcome, MatchFailure):
                if not self._record_result(node, node):
                    self._add_miss(node, outcome)
            elif not self._record_result(node, outcome[0]):
                self._record_not_replaced(node, outcome)
        at = self._at
        # a pass without rules has no outcomes of the nodes inside of its regions
        inner = () if self.saw_rules else [node for node in targets or () if node in self._taken]
        for node in [
            *self._rewritten,
            *self._refused,
            *(node_ for node_ in self._made if node_.in_graph),
            *inner,
        ]:
            if node in nodes or not (targets is None or node in targets):
                continue
            nodes.add(node)
            if self._record_result(node, self._taken.get(node, node) if inner else node):
                continue
            # it became a candidate while the rule ran: it is new, or its producers changed
            if at is not None and node.op in at.root_ops and node.in_graph:
                again = at.tracer.at(node)
                if isinstance(again, MatchFailure):
                    self._add_miss(node, again)
        self._outcomes, self._rewritten, self._refused, self._made = [], {}, {}, {}

    @property
    def variants(self) -> list[str]:
        """The names of the patterns that were tried, in order."""
        return [pattern.source.name for pattern in self._patterns.values()]

    @property
    def missing(self) -> list[str]:
        """The root operators of the patterns that had no candidate."""
        unseen = [pattern for pattern in self._patterns.values() if not pattern.seen]
        return list(dict.fromkeys(op for pattern in unseen for op in pattern.root_ops))

    def findings(self) -> list[Finding]:
        """Return all findings except misses of nodes that another pattern matched.

        Each pattern without candidates has a finding, too.
        """
        results = [
            f for node, f in self._findings if f.outcome is not _MISSED or node not in self._taken
        ]
        for pattern in self._patterns.values():
            if pattern.seen:
                continue
            reason = (
                f"there was no {'|'.join(pattern.root_ops)}, which makes output 0, when pattern "
                f'"{pattern.source.name}" was tried'
            )
            results.append(
                Finding(
                    _MISSED,
                    reason,
                    pattern=pattern.place,
                    pattern_op=pattern.root.label,
                    origin=str(pattern.root.origin),
                    size=pattern.size,
                    variant=pattern.source.name,
                )
            )
        return results

    # findings of a node

    def add(
        self,
        node: Node,
        outcome: Outcome,
        reason: str,
        *,
        key: str = "",
        advice: tuple[str, ...] = (),
    ) -> None:
        """Record a finding that is not about an operator of the pattern."""
        at = self._at
        place, size, variant = (None, 0, "") if at is None else (at.place, at.size, at.source.name)
        finding = Finding(
            outcome,
            reason,
            node=node.label,
            op=node.op,
            graph=_body(node),
            pattern=place,
            origin=self._origin,
            depth=size,
            size=size,
            variant=variant,
            key=key,
            advice=advice,
        )
        self._findings.append((node, finding))

    def _add_miss(self, node: Node, miss: MatchFailure) -> None:
        assert self._at is not None
        label, origin = miss.pattern_node.label, str(miss.pattern_node.origin)
        finding = Finding(
            _MISSED,
            f"{miss.reason}, in {miss.part}" if miss.part else miss.reason,
            node=miss.label,
            op=node.op,
            graph=_body(node),
            pattern=self._at.place,
            pattern_op=label,
            origin=origin,
            depth=miss.depth,
            size=miss.size,
            closeness=miss.closeness,
            variant=self._at.source.name,
            key=miss.refusal.key,
        )
        self._findings.append((node, finding))

    def _record_result(self, node: Node, root: Node) -> bool:
        """Record the rule's result for a node, or ``root``'s match with it.

        Returns False if there is no result.
        """
        if node in self._rewritten:
            self.add(node, Outcome.REWRITTEN, self._rewritten[node])
        elif node in self._taken:
            by = self._taken[node]
            result = f", which {self._rewritten[by]}" if by in self._rewritten else ""
            if by is root:
                self.add(node, Outcome.REWRITTEN, f'in the match at "{by.label}"{result}')
            else:
                self.add(node, Outcome.TAKEN, f'was taken by the match at "{by.label}"{result}')
        elif root in self._refused:
            for key, reason, advice in dict.fromkeys(self._refused[root]):
                self.add(node, Outcome.REFUSED, reason, key=key, advice=advice)
        else:
            return False
        return True

    def _record_not_replaced(self, node: Node, nodes: Iterable[Node]) -> None:
        """Record a match that was neither replaced nor refused."""
        assert self._at is not None
        other_root = next((other for other in nodes if other in self._taken), None)
        if other_root is not None:
            by = self._taken[other_root]
            self.add(
                node,
                Outcome.TAKEN,
                f'needs {named(other_root)}, which was taken by the match at "{by.label}"',
            )
            return
        again = self._at.tracer.around(node)
        if isinstance(again, MatchFailure):
            again.reason += ", since a rewrite of this pass"
            self._add_miss(node, again)
        else:
            self.add(node, Outcome.LEFT, "matches, but the pass ended before its turn")


def _body(node: Node) -> str:
    return "" if node.graph.owner is None else node.graph.name
