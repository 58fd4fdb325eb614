"""The depth-first search for shardings without communication, for study: no command uses it.

It walks the graph of strategies (``strategy_graph``) and collects, for a start (tensor, dimension),
the dimensions that other tensors may have. A result of None means "nothing new below", not
"impossible". It is neither sound nor complete: a walk joins pairs of tensors without one strategy
that has them all, and the memo of visited states cuts walks that lead on. What it collects depends
on the order of the edges. ``propagation`` has the exact method.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

Node = tuple[str, int]
"""A tensor and a dimension, -1 for replicated."""

Found = dict[str, frozenset[int]]
"""Dimensions by tensor."""

_DEEPEST = 100_000


@dataclass
class DepthFirstSearch:
    """The search over one graph of strategies."""

    graph: nx.MultiGraph[Any]
    order: Sequence[tuple[Node, Node, int]] | None = None
    """Edges (with their key) in the order in which they are walked; the graph's own by default."""
    searches: int = 0
    """Starts so far."""
    _visited: set[frozenset[tuple[str, frozenset[int]]]] = field(default_factory=set, init=False)
    _edges: dict[Node, list[tuple[Node, tuple[tuple[int, int], ...]]]] = field(init=False)

    def __post_init__(self) -> None:
        self._edges = {node: [] for node in self.graph.nodes}
        for u, v, key in self.order or list(self.graph.edges(keys=True)):
            strategies = tuple(self.graph.edges[u, v, key]["strategies"])
            self._edges[u].append((v, strategies))
            self._edges[v].append((u, strategies))

    def search(self, start: Node, constraints: Mapping[str, frozenset[int]]) -> Found | None:
        """Collect the dimensions that are found from a start; None if there is nothing new.

        Args:
            start: a tensor and its dimension.
            constraints: dimensions that a tensor may have; tensors without an entry are free.
        """
        self._visited.clear()
        self.searches += 1
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _DEEPEST))
        try:
            return self._walk(start, {}, constraints, frozenset(), {})
        finally:
            sys.setrecursionlimit(limit)

    def _walk(
        self,
        node: Node,
        fixed: Found,
        constraints: Mapping[str, frozenset[int]],
        on_path: frozenset[str],
        chosen: dict[int, int],
    ) -> Found | None:
        tensor, dim = node
        if tensor in on_path:
            raise ValueError(f"{tensor} is on the path already")
        on_path |= {tensor}
        fixed = dict(fixed)
        fixed[tensor] = fixed.get(tensor, frozenset()) | {dim}
        state = frozenset(fixed.items())
        if state in self._visited:
            return None
        self._visited.add(state)
        succeeded: bool | None = None
        for neighbour, strategies in self._edges[node]:
            if (
                neighbour[0] in on_path
                or any(chosen.get(operator, row) != row for operator, row in strategies)
                or neighbour[1] not in constraints.get(neighbour[0], (neighbour[1],))
            ):
                continue
            below = self._walk(
                neighbour, fixed, constraints, on_path, {**dict(strategies), **chosen}
            )
            if below is None:
                succeeded = succeeded or False
            else:
                succeeded = True
                for name, dims in below.items():
                    fixed[name] = fixed.get(name, frozenset()) | dims
        return None if succeeded is False else fixed
