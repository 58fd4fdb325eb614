"""Check an index: order, single definitions, uses consistent with the protobuf."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gehost.errors import ModelError
from gehost.ir.graph import Graph, Node, Value, op_name
from gehost.ir.wide import WIDE, Slots


def check_graph(graph: Graph) -> None:
    """Check one graph's index, without its bodies.

    Raises:
        ModelError: an error, with its place.
    """
    where = f'{graph.model}: graph "{graph.name}"'
    last: int | None = None
    for node in graph.nodes:
        if last is not None and node.order <= last:
            raise ModelError(f"{node!r} is out of order in the list of nodes", subject=where)
        last = node.order
        _check_node(node, where)
    for value in graph.outputs:
        _check_read(graph, value, where)
    _check_slots(graph, graph.outputs, where)
    reads: dict[Node | Graph, frozenset[Value | None]] = {}
    for name, value in graph.values.items():
        _check_value(name, value, where, reads)


def _check_node(node: Node, where: str) -> None:
    graph, proto = node.graph, node.proto
    if node.op != op_name(proto.domain, proto.op_type, proto.overload):
        raise ModelError(f"the operators of {node!r} and of its protobuf differ", subject=where)
    if [value.name if value is not None else "" for value in node.inputs] != proto.input[:]:
        raise ModelError(f"the inputs of {node!r} and of its protobuf differ", subject=where)
    if [value.name if value is not None else "" for value in node.outputs] != proto.output[:]:
        raise ModelError(f"the outputs of {node!r} and of its protobuf differ", subject=where)
    for value in node.inputs:
        if value is not None:
            _check_read(node, value, where)
    _check_slots(node, node.inputs, where)
    for slot, value in enumerate(node.outputs):
        if value is None:
            continue
        if value.producer is not node or value.index != slot:
            raise ModelError(f'tensor "{value.name}" has two producers', subject=where)
        if graph.values.get(value.name) is not value:
            raise ModelError(
                f'output "{value.name}" of {node!r} is not among the graph\'s values', subject=where
            )


def _check_read(reader: Node | Graph, value: Value, where: str) -> None:
    graph = reader if isinstance(reader, Graph) else reader.graph
    if reader not in value.readers:
        raise ModelError(
            f'{reader!r} is missing among the readers of "{value.name}"', subject=where
        )
    if graph.find(value.name) is not value:
        raise ModelError(
            f'{reader!r} reads "{value.name}", which is not defined here (any more)', subject=where
        )
    reading = value.graph.reading_node(reader)
    if reading is not None and value.producer is not None and value.producer.order >= reading.order:
        raise ModelError(f'{reader!r} reads "{value.name}" before it is made', subject=where)


def _check_slots(reader: Node | Graph, read: Sequence[Value | None], where: str) -> None:
    """Compare the index of slots, if it was built, with the inputs."""
    if reader.slots is not None and reader.slots != Slots(read):
        raise ModelError(
            f"{reader!r} has an index of its slots that differs from them", subject=where
        )


def _check_value(
    name: str, value: Value, where: str, reads: dict[Node | Graph, frozenset[Value | None]]
) -> None:
    """Check one value.

    ``reads`` caches the inputs of wide readers, each needed by many values.
    """
    if value.producer is not None and not value.producer.in_graph:
        raise ModelError(f'tensor "{name}" is produced by a removed node', subject=where)
    if value.producer is None and value.initializer is None and not value.is_input:
        raise ModelError(f'tensor "{name}" has no producer', subject=where)
    for reader in value.readers:
        read: Collection[Value | None] = (
            reader.outputs if isinstance(reader, Graph) else reader.inputs
        )
        if len(read) > WIDE:
            slots = reads.get(reader)
            read = reads[reader] = frozenset(read) if slots is None else slots
        node = reader.owner if isinstance(reader, Graph) else reader
        if value not in read or (node is not None and not node.in_graph):
            raise ModelError(f'"{name}" lists a reader that does not read it', subject=where)
