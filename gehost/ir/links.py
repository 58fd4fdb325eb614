"""The list of a graph's nodes: doubly linked, with growing order numbers. Not journaled;
``Graph`` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.node import Node

ORDER_GAP: Final = 1 << 24


def link(graph: Graph, node: Node, after: Node | None) -> None:
    """Put a node into the list behind ``after`` (None: first)."""
    following = graph.head if after is None else after.next
    if after is None:
        node.order = ORDER_GAP if following is None else following.order - ORDER_GAP
    elif following is None:
        node.order = after.order + ORDER_GAP
    else:
        if following.order - after.order < 2:
            _renumber(graph)
        node.order = (after.order + following.order) // 2
    node.prev, node.next = after, following
    if after is None:
        graph.head = node
    else:
        after.next = node
    if following is None:
        graph.tail = node
    else:
        following.prev = node
    group = graph.by_op.get(node.op)
    if group is None:
        group = graph.by_op[node.op] = {}
    group[node] = None
    graph.dirty = True


def unlink(graph: Graph, nodes: Sequence[Node]) -> None:
    """Take nodes out of the list, also such as are in it by half or not at all."""
    graph.dirty = True
    for node in nodes:
        before, following = node.prev, node.next
        if before is None:
            if graph.head is node:
                graph.head = following
        elif before.next is node:
            before.next = following
        if following is None:
            if graph.tail is node:
                graph.tail = before
        elif following.prev is node:
            following.prev = before
        group = graph.by_op.get(node.op)
        if group is not None:
            group.pop(node, None)


def _renumber(graph: Graph) -> None:
    """Give the nodes numbers behind all that there are, the last node first: they grow along the
    list at any time.
    """
    node = graph.tail
    assert node is not None
    order = (node.order // ORDER_GAP + len(graph)) * ORDER_GAP
    while node is not None:
        node.order = order
        order -= ORDER_GAP
        node = node.prev
    graph.model.renumbered += 1
