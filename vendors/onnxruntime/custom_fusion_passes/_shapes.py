"""Shapes and small integer tensors as the host's inference knows them; reading an input's size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from gehost import shapes

if TYPE_CHECKING:
    from gehost import Graph, Value

Size = int | str | None
Sizes = tuple[Size, ...]
Sources: TypeAlias = "dict[str, tuple[Value, int]]"
"""An input of a graph, and its axis, where each named size can be read."""


same = shapes.same_dim


def all_same(left: Sequence[Size] | None, right: Sequence[Size] | None) -> bool:
    """Both known, of one length, and equal size by size."""
    return (
        left is not None
        and right is not None
        and len(left) == len(right)
        and all(map(same, left, right))
    )


def shape_of(value: Value | None) -> Sizes | None:
    """Return the sizes of a value, None without a known rank.

    They are those of runs in which no tensor is empty.
    """
    shape = None if value is None else value.shape
    return None if value is None or shape is None else shapes.filled(value, shape)


def elements_of(value: Value | None) -> Sizes | None:
    """Return the elements of a small integer scalar or vector."""
    entry = None if value is None else value.elements
    return None if value is None or entry is None else shapes.filled(value, entry)


def sources_of(graph: Graph) -> Sources:
    """Return where the named sizes of a graph's inputs can be read."""
    sources: Sources = {}
    for value in graph.inputs:
        for axis, size in enumerate(() if value.is_constant else value.shape or ()):
            if isinstance(size, str):
                sources.setdefault(size, (value, axis))
    return sources


def remove_dead(graph: Graph) -> None:
    """Remove nodes without readers."""
    for node in reversed(list(graph.nodes)):
        if all(out is None or not (out.readers or out.is_graph_output) for out in node.outputs):
            graph.remove_node(node)
