"""Remove nodes and initializers without users.

1. A node whose outputs are all unused goes; so do producers that only it used, and so on upwards.
2. An unused initializer goes.
Refused: nodes that are not understood (``purity``), outputs that annotations name, graph inputs,
initializers that are graph inputs.
"""

from __future__ import annotations

from collections.abc import Iterable

from gehost.ir.constants import stored_bytes
from gehost.ir.graph import Node, Value
from gehost.passes.cleanup.purity import Trust
from gehost.passes.cleanup.state import State


def sweep(state: State) -> None:
    """Remove everything dead, users before their producers."""
    for node in reversed(state.initial):
        if state.alive(node) and _is_dead(state, node):
            state.counts.dead_nodes += 1
            _remove(state, node)
    for graph in state.graphs:
        if graph in state.open:
            for value in list(graph.values.values()):
                _remove_initializer(state, value)


def retire(state: State, node: Node) -> None:
    """Remove a node with unused outputs, and everything dead without it.

    The caller counts the node itself.
    """
    reap(state, _remove(state, node))


def reap(state: State, lost: Iterable[Value]) -> None:
    """Remove the dead among values that lost a user.

    Everything that dies with them goes, too.
    """
    waiting = list(lost)
    while waiting:
        value = waiting.pop()
        if value.graph not in state.open:
            continue
        if len(value.readers) == 1:
            # folding the last user of a constant frees it; a Reshape or Transpose whose result has
            # one user left may become one with it
            state.touch_readers(value, stale=False)
        producer = value.producer
        if value.readers or producer is None:
            _remove_initializer(state, value)
        elif state.alive(producer):
            if _is_dead(state, producer):
                state.counts.dead_nodes += value not in state.made
                waiting.extend(_remove(state, producer))
            else:
                state.push(producer)  # may be simpler now, such as a Dropout with an unused mask


def _is_dead(state: State, node: Node) -> bool:
    for value in node.outputs:
        if value is not None and (value.readers or value.name in state.protected):
            return False
    return state.purity.of(node) is not Trust.OPAQUE


def _remove(state: State, node: Node) -> list[Value]:
    """Remove one node with its bodies.

    Returns the values that lost a user, each once.
    """
    lost = [value for value in node.inputs if value is not None]
    for body in node.bodies:
        inside = [body, *body.subgraphs()]
        state.open.difference_update(inside)
        for graph in inside:
            lost += [value for item in graph.nodes for value in item.inputs if value is not None]
            lost += graph.outputs
    state.freed += state.node_bytes(node)
    node.graph.remove_node(node)
    return [value for value in dict.fromkeys(lost) if value.graph in state.open]


def _remove_initializer(state: State, value: Value) -> None:
    if (
        value.initializer is None
        or value.is_input
        or value.readers
        or value.name in state.protected
    ):
        return
    if value.graph.values.get(value.name) is value:
        state.freed += stored_bytes(value) or 0
        value.graph.remove_initializer(value)
        state.counts.dead_initializers += value not in state.made
