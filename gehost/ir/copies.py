"""Copies of models, and of what is inside them, for ``copy`` and ``pickle``.

The copy of a graph, node or value is the one at the same place in a copy of the whole model;
``copy.copy``, which copies no parts, gives the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias

import onnx

from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.ir.types import ValueType

Reduced: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
_Types: TypeAlias = Sequence[dict[str, ValueType]]


def reduced_model(model: Model) -> Reduced:
    """A model as bytes, with the types that inference found.

    Raises:
        TypeError: it has edits that may still be undone: a pass is running.
    """
    if model.journal.is_pending:
        raise TypeError(f"{model}: cannot copy a model while a pass edits it")
    types = [
        {name: known for name, value in graph.values.items() if (known := value.type) is not None}
        for graph in model.graphs
    ]
    content = model.flush().SerializeToString()
    return model_of, (content, model.path, model.is_traced, types)


def model_of(content: bytes, path: str | None, is_traced: bool, types: _Types) -> Model:
    """A model from what ``reduced_model`` keeps."""
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    model = Model(proto, path=path, is_traced=is_traced)
    for graph, known in zip(model.graphs, types, strict=True):
        for name, stated in known.items():
            graph.values[name].stated = stated
    return model


def reduced_graph(graph: Graph) -> Reduced:
    """A graph as its place in its model; raises ``TypeError`` where it was removed."""
    for place, each in enumerate(graph.model.graphs):
        if each is graph:
            return graph_at, (graph.model, place)
    raise TypeError(f"{graph!r} is no longer in its model; it cannot be copied")


def graph_at(model: Model, place: int) -> Graph:
    return next(islice(model.graphs, place, None))


def reduced_node(node: Node) -> Reduced:
    """A node as its place in its graph; raises ``TypeError`` where it was removed."""
    for place, each in enumerate(node.graph.nodes):
        if each is node:
            return node_at, (node.graph, place)
    raise TypeError(f"{node!r} is no longer in its graph; it cannot be copied")


def node_at(graph: Graph, place: int) -> Node:
    return next(islice(graph.nodes, place, None))


def reduced_value(value: Value) -> Reduced:
    """A value as its name in its graph; raises ``TypeError`` where it was removed."""
    if value.graph.values.get(value.name) is not value:
        raise TypeError(f"{value!r} is no longer in its graph; it cannot be copied")
    return value_at, (value.graph, value.name)


def value_at(graph: Graph, name: str) -> Value:
    return graph.values[name]
