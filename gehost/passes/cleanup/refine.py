"""Infer a node's types again after more is known about its inputs.

Folding a shape makes a ``Reshape`` static, which makes the following ``Shape`` a constant, and so
on: without this the clean-up would stop half-way, and rules would see tensors of unknown sizes
that are in fact known.
"""

from __future__ import annotations

from gehost.errors import ModelError
from gehost.ir.graph import Node
from gehost.ir.types import TensorType
from gehost.passes.cleanup.state import ContradictionError, State, join
from gehost.refusal import Refused


def refine(state: State, node: Node) -> None:
    """Add inferred types to a node's outputs; contradicting ones are ignored."""
    if node.bodies or all(
        value is None or (isinstance(value.type, TensorType) and value.type.size is not None)
        for value in node.outputs
    ):
        return
    try:
        types = state.inferrer.node(node)
    except (Refused, ModelError):
        return
    for value, type_ in zip(node.outputs, types, strict=False):
        if value is None:
            continue
        before = value.type
        try:
            joined = join(before, type_)
        except ContradictionError:
            continue
        if joined != before:
            node.graph.set_type(value, joined)
            state.touch_readers(value, stale=True)
