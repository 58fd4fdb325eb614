"""Transpose the last two axes without merging the others.

``Reshape(Transpose(Reshape(x, s), perm=[0, 2, 1]), t)``   ==>   ``Transpose(x, perm=[0, 1, 3, 2])``
   s merges all axes of x but the last two, and t splits them again: so exporters write the keys of
   an attention, with a node for each size in s and t.
Keeps: the shape of the result, in every run in which the model does not fail. A 0 in s or t copies
another size, so of the sizes of x only the first and the last but one may be unknown: if that is 0,
t fails, as it has more entries than the Transpose has axes.
Refused: sizes that are not equal by name; a value between with other users, or with a name that
something else refers to; a result that a nested body reads, or that is a graph output.
"""

from __future__ import annotations

from collections.abc import Sequence

from gehost.ir.graph import Node
from gehost.ir.types import Dim
from gehost.passes.cleanup.dead import reap, retire
from gehost.passes.cleanup.state import State


def keep_leading_axes(state: State, node: Node) -> bool:
    """Replace a Reshape that splits what a Reshape before a Transpose merged.

    Returns False if it does not, or must stay.
    """
    if node.op != "Reshape":
        return False
    turn = _only_producer(state, node, "Transpose")
    merge = None if turn is None else _only_producer(state, turn, "Reshape")
    source = None if merge is None else merge.input(0)
    if turn is None or merge is None or source is None:
        return False
    merged_sizes, sizes, shape = _elements(merge), _elements(node), source.shape
    if shape is None or not 3 <= len(merged_sizes) <= len(shape):
        return False
    lead, rank = len(shape) - 2, len(merged_sizes)
    if (
        not all(isinstance(size, int) and size > 0 for size in (*shape[1:lead], shape[-1]))
        or list(merged_sizes[-2:]) != [*shape[-2:]]
        or list(turn.attrs.get("perm", ())) != [*range(rank - 2), rank - 1, rank - 2]
        or list(sizes) != [*shape[:lead], shape[-1], shape[-2]]
        or None in shape
    ):
        return False
    (result,), (turned,), (merged,) = node.outputs, turn.outputs, merge.outputs
    if (
        result is None
        or turned is None
        or merged is None
        or not state.may_leave(result)
        or any(
            isinstance(reader, Node) and reader.graph is not node.graph for reader in result.readers
        )
    ):
        return False
    graph = node.graph
    graph.set_input(turn, 0, source)
    graph.set_attribute(turn, "perm", [*range(lead), lead + 1, lead])
    graph.redefine(turned, result.type)
    state.push(turn)
    state.forward(result, turned)
    state.counts.identities += 1
    retire(state, node)
    reap(state, [merged])
    return True


def _only_producer(state: State, node: Node, op: str) -> Node | None:
    """Return the producer of a node's first input, which nothing else reads."""
    value = node.input(0)
    producer = None if value is None else value.producer
    if (
        value is None
        or producer is None
        or producer.op != op
        or producer.graph is not node.graph
        or not state.is_only_reader(node, value)
        or not all(map(state.purity.is_builtin, (node.op, op)))
        or not all(map(state.purity.is_well_formed, (node, producer)))
    ):
        return None
    return producer


def _elements(reshape: Node) -> Sequence[Dim]:
    """Return the sizes that a Reshape asks for; empty if they are not known."""
    target = reshape.input(1)
    return () if target is None else target.elements or ()
