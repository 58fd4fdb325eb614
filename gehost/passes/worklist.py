"""The order in which a rule visits its candidates."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from gehost.ir.graph import Graph, Node
from gehost.pattern.matcher import CompiledPattern


class Worklist:
    """Candidates in topological order; new ones may join, removed ones are skipped."""

    def __init__(self, graph: Graph, compiled: CompiledPattern) -> None:
        self._graph = graph
        self._compiled = compiled
        found, self._complete = compiled.candidates(graph)
        self._initial = iter(found)
        self._known = set(found)
        self._added: list[tuple[int, int, Node]] = []
        self._serial = 0
        self._renumbered = graph.model.renumbered

    def add(self, node: Node) -> None:
        self._known.add(node)
        self._serial += 1
        heapq.heappush(self._added, (node.order, self._serial, node))

    def extend(self, made: Sequence[Node], at: Node, *, rewired: bool) -> None:
        """Add candidates that a rewrite at ``at`` made possible.

        It created the nodes ``made``, and may have ``rewired`` existing ones.
        """
        if rewired and not self._complete:
            self._complete = True
            found = [
                node
                for node in self._graph.nodes_of(*self._compiled.anchor_ops)
                if node.order > at.order
            ]
        elif self._complete:
            found = [node for node in made if node.op in self._compiled.anchor_ops]
        else:
            found = [node for new in made for node in self._compiled.reached_from(new)]
        for node in found:
            if node not in self._known:
                self.add(node)

    def __iter__(self) -> Iterator[Node]:
        pending = next(self._initial, None)
        while pending is not None or self._added:
            if self._renumbered != self._graph.model.renumbered:
                self._added = [(node.order, serial, node) for _, serial, node in self._added]
                heapq.heapify(self._added)
                self._renumbered = self._graph.model.renumbered
            if pending is None or (self._added and self._added[0][0] < pending.order):
                node = heapq.heappop(self._added)[2]
            else:
                node, pending = pending, next(self._initial, None)
            if node.in_graph:
                yield node


class BottomUp:
    """The initial candidates in reverse topological order.

    New nodes are visited by another run.
    """

    def __init__(self, graph: Graph, compiled: CompiledPattern) -> None:
        self._found, _ = compiled.candidates(graph)

    def add(self, node: Node) -> None:
        del node

    def extend(self, made: Sequence[Node], at: Node, *, rewired: bool) -> None:
        del made, at, rewired

    def __iter__(self) -> Iterator[Node]:
        for node in reversed(self._found):
            if node.in_graph:
                yield node
