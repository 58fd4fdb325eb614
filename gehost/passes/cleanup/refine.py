"""Infer once more what a node makes, now that more is known of what it reads.

Folding a shape makes a ``Reshape`` static, which makes the ``Shape`` behind it a constant, and so
on: without this the clean-up would stop half-way, and rules would meet tensors of unknown sizes
that are known.
"""

from __future__ import annotations

from gehost.errors import ModelError
from gehost.infer.local import InferenceFailed
from gehost.ir.graph import Node, Value
from gehost.ir.types import TensorType
from gehost.passes.cleanup.state import ContradictionError, State, join


def refine(state: State, node: Node) -> None:
    """Add to the types of a node's outputs what inference can tell; what contradicts them is
    left aside.
    """
    if node.bodies or all(value is None or _is_static(value) for value in node.outputs):
        return
    try:
        types = state.inferrer.node(node)
    except (InferenceFailed, ModelError):
        return
    for value, known in zip(node.outputs, types, strict=False):
        if value is None:
            continue
        before = value.type
        try:
            joined = join(before, known)
        except ContradictionError:
            continue
        if joined != before:
            node.graph.set_type(value, joined)
            state.touch_readers(value, stale=True)


def _is_static(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.size is not None
