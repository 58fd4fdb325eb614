"""Copies of graphs, nodes and values, for ``copy`` and ``pickle``.

The copy of a graph, node or value is the one at the same place in a copy of the whole model;
``copy.copy``, which copies no parts, gives the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gehost.ir.graph import Graph, Node, Value
    from gehost.ir.model import Model

Reduced: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments, as returned by ``__reduce__``."""


def reduced_graph(graph: Graph) -> Reduced:
    """Return a graph as its place in its model."""
    for place, other in enumerate(graph.model.graphs):
        if other is graph:
            return graph_at, (graph.model, place)
    raise TypeError(f"{graph!r} is no longer in its model; it cannot be copied")


def graph_at(model: Model, place: int) -> Graph:
    return next(islice(model.graphs, place, None))


def reduced_node(node: Node) -> Reduced:
    """Return a node as its place in its graph."""
    for place, other in enumerate(node.graph.nodes):
        if other is node:
            return node_at, (node.graph, place)
    raise TypeError(f"{node!r} is no longer in its graph; it cannot be copied")


def node_at(graph: Graph, place: int) -> Node:
    return next(islice(graph.nodes, place, None))


def reduced_value(value: Value) -> Reduced:
    """Return a value as its name in its graph."""
    if value.graph.values.get(value.name) is not value:
        raise TypeError(f"{value!r} is no longer in its graph; it cannot be copied")
    return value_at, (value.graph, value.name)


def value_at(graph: Graph, name: str) -> Value:
    return graph.values[name]
