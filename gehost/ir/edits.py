"""The single steps of an edit, each writing protobuf and index together; ``Graph`` journals and
composes them.

What takes an edit back does so from any point that the edit came to; see ``Journal``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx

from gehost.ir.links import link, unlink
from gehost.ir.node import Node, Value
from gehost.ir.node_table import NodeTable
from gehost.ir.types import ValueType
from gehost.ir.wide import with_entry

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.model import Model


def connect(
    node: Node,
    proto: onnx.NodeProto,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value | None],
) -> None:
    """Make a new node read ``inputs`` and define ``outputs``; it is not among the readers yet."""
    proto.input.extend([value.name if value is not None else "" for value in inputs])
    proto.output.extend([value.name if value is not None else "" for value in outputs])
    node.inputs, node.outputs = tuple(inputs), tuple(outputs)
    for slot, value in enumerate(outputs):
        if value is not None:
            value.producer, value.index = node, slot


def put_input(node: Node, slot: int, value: Value | None, old: Value | None) -> None:
    """Make a node read ``value`` at ``slot`` in place of ``old``."""
    # by an undo it may be whatever a caller gave
    before = old if isinstance(old, Value) else None
    node.inputs = with_entry(node.inputs, slot, value)
    if node.slots is not None:
        node.slots.put(slot, value, before)
    node.proto.input[slot] = "" if value is None else value.name
    if before is not None and not node.reads(before):
        before.drop_reader(node)
    if value is not None:
        value.add_reader(node)


def put_output(node: Node, slot: int, value: Value) -> None:
    old = node.outputs[slot]
    if old is not None and old.producer is node:
        old.producer, old.index = None, 0
    node.outputs = with_entry(node.outputs, slot, value)
    node.proto.output[slot] = value.name
    value.producer, value.index = node, slot


def put_producer(value: Value, producer: Node | None, index: int) -> None:
    value.producer, value.index = producer, index


def put_attribute(
    node: Node, name: str, attribute: onnx.AttributeProto | None, position: int | None = None
) -> None:
    """Set, add (at ``position``, else last) or remove an attribute."""
    entries = node.proto.attribute
    present = find_entry([entry.name for entry in entries], name)
    if attribute is None:
        if present is not None:
            del entries[present]
    elif present is None:
        entries.append(attribute)
        present = len(entries) - 1
    else:
        entries[present].CopyFrom(attribute)
    if position is not None and present is not None and present != position:
        held = list(entries)
        moved = held.pop(present)
        arrange(entries, [*held[:position], moved, *held[position:]])
    node.forget_attrs()


def put_metadata(owner: Node | Model, key: str, text: str | None) -> None:
    entries = owner.proto.metadata_props
    present = find_entry([entry.key for entry in entries], key)
    if text is None:
        if present is not None:
            del entries[present]
    elif present is None:
        entries.add(key=key, value=text)
    else:
        entries[present].value = text


def put_device_configurations(
    node: Node, configurations: Sequence[onnx.NodeDeviceConfigurationProto]
) -> None:
    entries = node.proto.device_configurations
    del entries[:]
    entries.extend(configurations)


def put_type(value: Value, known: ValueType | onnx.TypeProto | None) -> None:
    value.stated = known


def use_inputs(node: Node) -> None:
    """Enter a node, and what its bodies read outside, among the readers of its inputs."""
    for value in node.inputs:
        if value is not None:
            if value.read_by is None:
                value.read_by = node
            else:
                value.add_reader(node)
    for body in node.bodies:
        for reader, _, value in body.captured():
            value.add_reader(reader)


def disuse_inputs(nodes: Sequence[Node]) -> None:
    for node in nodes:
        for value in node.inputs:
            if value is not None:
                if value.read_by is node:
                    value.read_by = None
                else:
                    value.drop_reader(node)
        for body in node.bodies:
            for reader, _, value in body.captured():
                value.drop_reader(reader)


def forget_value(value: Value, remade: bool) -> None:
    graph = value.graph
    graph.values.pop(value.name, None)
    if not remade:
        graph.remade.discard(value.name)


def undo_add_node(node: Node) -> None:
    disuse_inputs([node])
    unlink(node.graph, [node])


def undo_remove_nodes(nodes: Sequence[Node], before: Sequence[Node | None]) -> None:
    """Put nodes back behind those that stood before them."""
    for node, earlier in zip(nodes, before, strict=True):
        unlink(node.graph, [node])
        for value in node.outputs:
            if value is not None:
                value.graph.values[value.name] = value
                if value.producer is None:
                    value.producer = node
        link(node.graph, node, earlier)
        use_inputs(node)
        node.graph.model.names.put_back(_names_of(node))


def _names_of(node: Node) -> list[str]:
    found = [node.name, *[value.name for value in node.outputs if value is not None]]
    for body in node.bodies:
        for graph in (body, *body.subgraphs()):
            found += [*graph.values, *[inner.name for inner in graph.nodes]]
    return found


def undo_move(node: Node, before: Node | None) -> None:
    unlink(node.graph, [node])
    link(node.graph, node, before)


def undo_add_initializer(value: Value) -> None:
    if value.initializer is not None:
        value.graph.dropped.append(value.initializer)
        value.graph.dirty = True


def undo_remove_initializer(value: Value) -> None:
    assert value.initializer is not None
    value.graph.values[value.name] = value
    value.graph.model.names.put_back([value.name])
    value.graph.dropped = [entry for entry in value.graph.dropped if entry is not value.initializer]


def find_entry(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None


def arrange(entries: Any, wanted: Sequence[Any]) -> None:
    """Bring a repeated field, in place, to the messages ``wanted``, which are among its entries,
    in that order.
    """
    find = {id(message): place for place, message in enumerate(wanted)}.get
    held = list(entries)  # keeps the Python objects, and so their identities, alive
    end = len(wanted)

    def place(message: Any) -> int:
        return find(id(message), end)

    entries.sort(key=place)
    del entries[end:], held


def write_lists(graph: Graph) -> None:
    """Order a graph's protobufs of nodes, and drop what was removed from its lists."""
    wanted = [node.proto for node in graph.nodes]
    listing, stood = NodeTable(graph.protos), list(graph.protos)
    # for nodes that were removed, or that an interrupt leaves out below
    graph.listing.protos, graph.listing = stood, listing
    arrange(graph.protos, wanted)
    for place, node in enumerate(graph.nodes):
        before, stood_at = node.listing, node.place
        node.place, node.listing = place, listing
        before.protos[stood_at] = None
    write_tables(graph)


def write_tables(graph: Graph) -> None:
    """Drop the constants that were removed, and the types of tensors that are gone."""
    proto = graph.proto
    if graph.dropped:
        gone = {id(tensor) for tensor in graph.dropped}
        for entries in (proto.initializer, proto.sparse_initializer):
            arrange(entries, [entry for entry in list(entries) if id(entry) not in gone])
        graph.dropped.clear()
    infos = list(proto.value_info)
    alive = [info for info in infos if info.name in graph.values and info.name not in graph.remade]
    if len(alive) < len(infos):
        arrange(proto.value_info, alive)
