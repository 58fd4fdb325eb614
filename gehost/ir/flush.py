"""Update a graph's protobuf lists from its index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gehost.ir.node_table import NodeTable

if TYPE_CHECKING:
    from gehost.ir.graph import Graph


def flush_nodes(graph: Graph) -> None:
    """Write the nodes in order; drop removed nodes, constants and types."""
    protos = [node.proto for node in graph.nodes]
    table, stood = NodeTable(graph.protos), list(graph.protos)
    # removed nodes, and those that an interrupt below skips, keep the old table
    graph.table.protos, graph.table = stood, table
    arrange(graph.protos, protos)
    for place, node in enumerate(graph.nodes):
        before, stood_at = node.table, node.place
        node.place, node.table = place, table
        before.protos[stood_at] = None
    flush_tables(graph)


def flush_tables(graph: Graph) -> None:
    """Drop removed constants, and the types of removed tensors."""
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


def arrange(entries: Any, order: Sequence[Any]) -> None:
    """Reorder a repeated field in place to ``order``.

    These messages are all its entries.
    """
    find = {id(message): place for place, message in enumerate(order)}.get
    alive = list(entries)  # keeps the Python objects, and so their identities, alive
    end = len(order)

    def place(message: Any) -> int:
        return find(id(message), end)

    entries.sort(key=place)
    del entries[end:], alive
