"""Build the index over a protobuf: graphs, topologically ordered nodes, values.

The file's order may be another one.
"""

from __future__ import annotations

import heapq
import sys
from typing import TYPE_CHECKING, Any

import onnx

from gehost.errors import ModelError
from gehost.ir.edits import ORDER_GAP
from gehost.ir.files.external import PLAIN_KINDS
from gehost.ir.graph import GRAPH_KINDS, Graph, Node, Value, op_name
from gehost.ir.node import INPUT
from gehost.ir.wide import with_entry

if TYPE_CHECKING:
    from gehost.ir.model import Model

_LONGEST_CYCLE = 8
"""Most nodes of a cycle that an error names."""


def index_model(model: Model, proto: onnx.GraphProto) -> Graph:
    """Index a root graph and every body in it.

    Raises:
        ModelError: a tensor has no definition or two, or the nodes have a cycle.
    """
    root = Graph(model, proto)
    _index_all([root])
    return root


def index_bodies(node: Node) -> list[Graph]:
    """Index a new node's graph attributes and return all its bodies.

    Raises:
        ModelError: as ``index_model``.
    """
    waiting = _bodies_of(node)
    node.bodies = tuple(waiting)
    _index_all(waiting)
    return waiting


def _index_all(waiting: list[Graph]) -> None:
    """Index graphs level by level, each body after its surroundings."""
    unsorted: dict[Graph, None] = {}
    for graph in waiting:  # grows during the loop
        loose, in_order = _index_level(graph, waiting)
        if not in_order:
            unsorted[graph] = None
        for value in loose:
            _resolve_outside(graph, value)
    for body in waiting:
        for reader, _, value in body.captured() if body.owner is not None else ():
            reading = value.graph.reading_node(reader)
            if (
                value.producer is not None
                and reading is not None
                and reading.order <= value.producer.order
            ):  # an enclosing graph defines it after the node whose body reads it
                unsorted[value.graph] = None
    mine = set(waiting)
    for graph in unsorted:
        if graph in mine:  # the order around a new node is its caller's business
            _sort(graph)


def _bodies_of(node: Node) -> list[Graph]:
    graphs: list[Graph] = []
    for attribute in node.proto.attribute[:]:
        if attribute.type in GRAPH_KINDS:
            node.graph.model.body_ops.add(node.op)
            bodies = (
                [attribute.g]
                if attribute.type == onnx.AttributeProto.GRAPH
                else list(attribute.graphs)
            )
            graphs.extend(Graph(node.graph.model, body, node) for body in bodies)
    return graphs


# one graph


def _index_level(graph: Graph, waiting: list[Graph]) -> tuple[list[Value], bool]:
    """Index one graph without its bodies.

    Returns the values that it does not define, and whether its nodes were in order.
    """
    _index_inputs(graph)
    pending: dict[str, Value] = {}
    in_order = _index_nodes(graph, pending, waiting)
    for info in graph.proto.output:
        value = _find_or_add(graph, info.name, pending)
        value.add_reader(graph)
        graph.outputs.append(value)
        if value.known_type is None and info.type.WhichOneof("value"):
            value.known_type = info.type
    for info in graph.proto.value_info:
        declared = graph.values.get(info.name)
        if declared is not None and declared.known_type is None:
            declared.known_type = info.type
    return list(pending.values()), in_order


def _index_inputs(graph: Graph) -> None:
    proto, values = graph.proto, graph.values
    for info in proto.input:
        if info.name in values:
            raise _defined_twice(graph, info.name)
        value = values[info.name] = Value(graph, info.name, index=INPUT)
        value.known_type = info.type
        graph.inputs.append(value)
    for entries in (proto.initializer, proto.sparse_initializer):
        for tensor in entries:
            name = tensor.name if isinstance(tensor, onnx.TensorProto) else tensor.values.name
            constant = values.get(name)
            if constant is None:
                constant = values[name] = Value(graph, name)
            elif constant.initializer is not None:
                raise ModelError(
                    f'two initializers are called "{name}"',
                    where=str(graph.model),
                    hint="rename one",
                )
            constant.initializer = tensor


def _index_nodes(graph: Graph, pending: dict[str, Value], waiting: list[Graph]) -> bool:
    """Index the nodes; return whether each follows those that it reads.

    ``pending`` gets the values that no node defines. This loop dominates the cost of loading, so it
    avoids calls.
    """
    values, by_op, with_tensors = graph.values, graph.by_op, graph.model.ops_with_tensors
    value_of, name_seen = values.get, graph.table.names.append
    is_nameless = "" in values
    """Whether an input or initializer has an empty name, the name of absent inputs."""
    interned: dict[tuple[str, str, str] | str, str] = {}
    in_order = True
    previous: Node | None = None
    for place, proto in enumerate(graph.protos):
        domain, op_type, overload = proto.domain, proto.op_type, proto.overload
        key = (domain, op_type, overload) if domain or overload else op_type
        op = interned.get(key)
        if op is None:
            op = interned[key] = sys.intern(op_name(domain, op_type, overload))
        node = Node(graph, place, op)
        name_seen(proto.name)
        names = proto.input[:]
        inputs = tuple(map(value_of, names))
        if is_nameless or None in inputs:  # absent, or not defined so far
            inputs = tuple([_find_or_add(graph, name, pending) if name else None for name in names])
        node.inputs = inputs
        for value in inputs:
            if value is not None:
                if value.read_by is None:
                    value.read_by = node
                elif value.read_by is not node:
                    value.add_reader(node)
        outputs: list[Value | None] = []
        for slot, name in enumerate(proto.output[:]):
            if not name:
                outputs.append(None)
                continue
            value = value_of(name)
            if value is None:
                value = values[name] = Value(graph, name, node, slot)
            elif pending.pop(name, None) is None:
                raise _defined_twice(graph, name)
            else:
                in_order = False  # an earlier node read it
                value.producer = node
                value.index = slot
            outputs.append(value)
        node.outputs = tuple(outputs)
        attributes = proto.attribute[:]
        if not attributes:
            node._encoded = ()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        for attribute in attributes:
            kind = attribute.type
            if kind in PLAIN_KINDS:
                continue
            with_tensors.add(op)
            if kind in GRAPH_KINDS:
                bodies = _bodies_of(node)
                node.bodies = tuple(bodies)
                waiting.extend(bodies)
                break
        node.order = place  # also its order, until a node is inserted
        node.prev = previous
        if previous is None:
            graph.head = node
        else:
            previous.next = node
        previous = node
        group = by_op.get(op)
        if group is None:
            group = by_op[op] = {}
        group[node] = None
    graph.tail = previous
    return in_order


def _find_or_add(graph: Graph, name: str, pending: dict[str, Value]) -> Value:
    value = graph.values.get(name)
    if value is None:
        value = graph.values[name] = pending[name] = Value(graph, name)
    return value


def _defined_twice(graph: Graph, name: str) -> ModelError:
    return ModelError(
        f'tensor "{name}" is defined twice in graph "{graph.name}"', where=str(graph.model)
    )


# across graphs


def _resolve_outside(graph: Graph, placeholder: Value) -> None:
    """Replace an undefined name's placeholder by the value of an enclosing graph."""
    del graph.values[placeholder.name]
    value = graph.find(placeholder.name)
    if value is None:
        reader, slot = placeholder.uses[0]
        what = (
            f'node "{reader.label}" ({reader.op})'
            if isinstance(reader, Node)
            else f"output {slot} of the graph"
        )
        raise ModelError(
            f'{what} reads tensor "{placeholder.name}", which nothing defines',
            where=str(graph.model),
        )
    for reader, slot in placeholder.uses:
        if isinstance(reader, Node):
            reader.inputs = with_entry(reader.inputs, slot, value)
        else:
            reader.outputs[slot] = value
        if reader.slots is not None:
            reader.slots.put(slot, value, placeholder)
        value.add_reader(reader)


def _sort(graph: Graph) -> None:
    """Sort a graph's nodes topologically, keeping the file's order where possible."""
    nodes = list(graph.nodes)
    readers: dict[Node, list[Node]] = {node: [] for node in nodes}
    missing = dict.fromkeys(nodes, 0)
    for node in nodes:
        for value in node.outputs:
            for reader in value.readers if value is not None else ():
                reading = graph.reading_node(reader)
                if reading is not None:
                    readers[node].append(reading)
                    missing[reading] += 1
    ready = [(node.order, node) for node in nodes if not missing[node]]
    placed: list[Node] = []
    while ready:
        _, node = heapq.heappop(ready)
        placed.append(node)
        for reading in readers[node]:
            missing[reading] -= 1
            if not missing[reading]:
                heapq.heappush(ready, (reading.order, reading))
    if len(placed) < len(nodes):
        raise _cycle(graph)
    previous: Node | None = None
    for position, node in enumerate(placed, 1):
        node.order = position * ORDER_GAP
        node.prev, node.next = previous, None
        if previous is not None:
            previous.next = node
        previous = node
    graph.head, graph.tail = placed[0], placed[-1]
    graph.dirty = True


def _cycle(graph: Graph) -> ModelError:
    """Return the error for a cycle, with its nodes."""
    import networkx as nx

    library: Any = nx  # its stubs leave the type of edges open
    nodes: list[Node] = [edge[0] for edge in library.find_cycle(graph.to_networkx())]
    first = nodes[0]
    labels = [node.label if len(node.label) < 60 else f"{node.label[:60]}…" for node in nodes]
    way = [f'"{label}"' for label in (*labels, labels[0])]
    if len(way) > _LONGEST_CYCLE:
        way[_LONGEST_CYCLE - 2 : -1] = ["…"]
    return ModelError(
        f'node "{first.label}" ({first.op}) is part of a cycle: {" → ".join(way)}',
        where=str(graph.model),
    )
