"""Bodies of operators in a model: nodes, names that they read, names that two of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import onnx

NodeList: TypeAlias = Any
"""A repeated field of nodes, which protobuf does not name."""


def node_lists(model: onnx.ModelProto) -> Iterator[NodeList]:
    """Yield the nodes of the graph, of each function, and of each body in them."""
    yield from lists_of(model.graph.node)
    for function in model.functions:
        yield from lists_of(function.node)


def lists_of(nodes: NodeList) -> Iterator[NodeList]:
    """Yield a list of nodes, and those of the bodies in it."""
    yield nodes
    for body in _bodies(nodes):
        yield from lists_of(body.node)


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and each body in it."""
    yield model.graph
    yield from bodies_in(model.graph.node)


def bodies_in(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of nodes, and those in them."""
    waiting = [*_bodies(nodes)]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting.extend(_bodies(graph.node))


def bodies_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node runs."""
    return [
        graph
        for entry in node.attribute
        for graph in ([entry.g] if entry.HasField("g") else entry.graphs)
    ]


def _bodies(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    return (graph for node in nodes for graph in bodies_of(node))


def captures(node: onnx.NodeProto) -> list[str]:
    """Return the values of the graphs around a node that its bodies read."""
    results: dict[str, None] = {}
    for graph in bodies_of(node):
        local = set(_defined(graph))
        read = [name for item in graph.node for name in (*item.input, *captures(item)) if name]
        read += [info.name for info in graph.output]
        results.update(dict.fromkeys(name for name in read if name not in local))
    return list(results)


def unique_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which no two bodies name a value the same.

    It is the model itself where none do. Names of the outermost graph and of functions stay.
    """
    if not any(_has_shared(graph) for graph in (model.graph, *model.functions)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {name for nodes in node_lists(copy) for node in nodes for name in node.input}
    names.update(name for graph in graphs_of(copy) for name in _defined(graph))
    for function in copy.functions:
        for body in (function, *bodies_in(function.node)):
            names.update(_defined(body))
    for graph in (copy.graph, *copy.functions):
        seen = set(_defined(graph))
        for body in _bodies(graph.node):
            _rename(body, {}, seen, names)
    return copy


def _defined(graph: Any) -> Iterator[str]:
    """Yield the names that a graph or function gives."""
    for item in graph.input:
        yield item if isinstance(item, str) else item.name
    for tensor in getattr(graph, "initializer", ()):
        yield tensor.name
    for tensor in getattr(graph, "sparse_initializer", ()):
        yield tensor.values.name
    for node in graph.node:
        yield from filter(None, node.output)


def _has_shared(graph: Any) -> bool:
    counts = Counter[str]()
    for body in (graph, *bodies_in(graph.node)):
        counts.update(set(_defined(body)))
    return any(count > 1 for count in counts.values())


def _rename(
    graph: onnx.GraphProto, around: Mapping[str, str], seen: set[str], names: set[str]
) -> None:
    """Give a body's values names that are not seen before."""
    new = dict(around)
    for name in dict.fromkeys(_defined(graph)):
        fresh, number = name, 1
        while fresh in seen or (number > 1 and fresh in names):
            number += 1
            fresh = f"{name} {number}"
        new[name] = fresh
        seen.add(fresh)
    sparse = [tensor.values for tensor in graph.sparse_initializer]
    for item in (*graph.input, *graph.initializer, *sparse, *graph.output, *graph.value_info):
        item.name = new.get(item.name, item.name)
    for node in graph.node:
        for entries in (node.input, node.output):
            entries[:] = [new.get(name, name) for name in entries]
        for body in bodies_of(node):
            _rename(body, new, seen, names)


def declare_as(graph: onnx.GraphProto, name: str, other: str, kind: int) -> None:
    """Declare a new value with the sizes of another one; a Scan needs those of its outputs."""
    for info in (*graph.output, *graph.value_info):
        if info.name == other and info.type.HasField("tensor_type"):
            new = onnx.ValueInfoProto()
            new.CopyFrom(info)
            new.name, new.type.tensor_type.elem_type = name, kind
            graph.value_info.append(new)
            return
