"""Find nodes by users' names and follow them during a compile."""

from __future__ import annotations

from collections.abc import Iterable

from gehost.errors import UsageError
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.passes.context import Rewrite
from gehost.pattern.explain.messages import named
from gehost.spelling import nearest


def check_name(name: str) -> None:
    """Refuse an empty name, which all unnamed nodes have.

    Raises:
        UsageError: the name is empty.
    """
    if not name:
        raise UsageError(
            "a node's name cannot be empty; an unnamed node has the name of a tensor it produces"
        )


def nodes_named(model: Model, name: str) -> list[Node]:
    """Return nodes, or producers of tensors, of this name in all graphs."""
    by_name = [node for graph in model.graphs for node in graph.nodes if node.name == name]
    if by_name:
        return by_name
    values = (graph.values.get(name) for graph in model.graphs)
    return [value.producer for value in values if value is not None and value.producer is not None]


def near_names(model: Model, name: str) -> str:
    """Return a hint for an unknown node's name: the nearest names."""
    near = nearest(name, labels(model), 3)
    return (
        f"did you mean {' or '.join(near)}?"
        if near
        else "give the name of a node or of a tensor that it produces"
    )


def labels(model: Model) -> Iterable[str]:
    """Return all names of nodes and of their outputs."""
    labels_: dict[str, None] = {}
    for graph in model.graphs:
        for node in graph.nodes:
            labels_.update(
                dict.fromkeys(
                    [node.label, *(value.name for value in node.outputs if value is not None)]
                )
            )
    return labels_


class Whereabouts:
    """Watches nodes while passes run, to find the pass that removes them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._watched = list(nodes)
        self.fate = ""
        """The last removal, as a clause."""

    def rewritten(self, rewrite: Rewrite) -> None:
        """Record the watched nodes that a rewrite replaced."""
        gone = [node for node in self._watched if rewrite.region.holds(node) and not node.in_graph]
        if gone:
            self.fate = f"was replaced by {rewrite.record.name}: {replacement(rewrite)}"
            self._watched = [node for node in self._watched if node not in gone]

    def check(self, by: str) -> None:
        """Record watched nodes gone without a rewrite, after ``by`` ran."""
        here = [node for node in self._watched if node.in_graph]
        if len(here) < len(self._watched):
            self.fate = f"was removed by {by}"
            self._watched = here


def replacement(rewrite: Rewrite) -> str:
    """Describe the replacement of a match."""
    if rewrite.made:
        return f"became {', '.join(named(node) for node in rewrite.made)}"
    forwarded = next((value.name for value in rewrite.region.inputs if value is not None), "")
    return f'gave way to tensor "{forwarded}"'
