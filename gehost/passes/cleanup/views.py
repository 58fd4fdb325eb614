"""Merge nodes that only give a tensor another shape.

``x → Reshape | Flatten | Squeeze | Unsqueeze → one of them``
1. ``==>   x`` where the result has the shape of x, by names that inference proves equal.
2. ``==>   x → the second`` where it is a Reshape to constant sizes: a 0 copies a size that x has at
   the same place.
3. ``==>   x → Reshape to a constant`` where the result's sizes are numbers, copies of sizes of x,
   and at most one that follows from them (as in ``shapes``).
Keeps: the shape of the result, in every run in which the model does not fail; its name.
Refused, but for 1: a first result with other users, or to which something else refers by name;
results without elements. All: opsets below 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gehost.errors import ModelError
from gehost.ir.graph import Node
from gehost.ir.shapes import same_dim
from gehost.ir.types import Dim, TensorType
from gehost.passes.cleanup.dead import reap
from gehost.passes.cleanup.identity import forward_operand
from gehost.passes.cleanup.shapes import entries
from gehost.passes.cleanup.state import State
from gehost.refusal import Refused

VIEWS = frozenset(("Flatten", "Reshape", "Squeeze", "Unsqueeze"))


def merge_views(state: State, node: Node, first: Node) -> bool:
    """Merge two views; returns False if both must stay."""
    source, between, result = first.input(0), node.input(0), node.outputs[0]
    shape = None if source is None else source.shape
    if state.opset < 5 or source is None or between is None or result is None or shape is None:
        return False
    shapes = _inferred(state, first, node)
    if shapes is None:
        return False
    middle, final = shapes
    if final == shape and None not in shape and forward_operand(state, node, source):
        return True
    if not state.is_only_reader(node, between):
        return False
    if node.op == "Reshape" and _restates(node, middle, shape):
        node.graph.set_input(node, 0, source)
        state.counts.identities += 1
        state.push(node)
        reap(state, [between])
        return True
    scope = state.model.sizes
    sizes = scope.parse_all(final), scope.parse_all(shape)
    target = None if 0 in final else entries(scope, *sizes, allow_zero=False)
    if target is None or not node.graph.takes_constant(np.dtype(np.int64)):
        return False
    constant = state.add_integers(node.graph, target, "shape")
    lost = state.replace(node, "Reshape", [source, constant])
    state.counts.identities += 1
    reap(state, lost)
    return True


def _inferred(
    state: State, first: Node, second: Node
) -> tuple[Sequence[Dim], Sequence[Dim]] | None:
    """Return the shapes after each of two nodes, from the type of the first one's operand."""
    try:
        (middle,) = state.inferrer.node(first)
        others = [None if value is None else value.type for value in second.inputs[1:]]
        (final,) = state.inferrer.node(second, [middle, *others])
    except (Refused, ModelError, ValueError):
        return None
    if not isinstance(middle, TensorType) or not isinstance(final, TensorType):
        return None
    if middle.shape is None or final.shape is None:
        return None
    return middle.shape, final.shape


def _restates(reshape: Node, middle: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether a Reshape asks for the same sizes from the first operand."""
    target = reshape.input(1)
    sizes = None if target is None or not target.is_constant else target.elements
    if sizes is None:
        return False
    if reshape.attrs.get("allowzero", 0):
        return True
    return all(
        place < len(shape) and same_dim(middle[place], shape[place])
        for place, size in enumerate(sizes)
        if size == 0
    )
