"""Nodes for which ONNX's inference would exhaust memory.

It is not called for them.

It writes out every dimension and trusts a node's attributes: a rank that comes from the length of a
vector, or from ``Gather`` of ``Gather``, may exceed all memory; a ``Split`` with more outputs than
its attribute ends the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import onnx

from gehost.ir.types import Dim

_MOST = 4096
"""Largest rank."""

_RANK_OF = MappingProxyType({"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Unsqueeze": 1})
"""The input whose length is the rank of an operator's result."""
_RANKS_ADDED = frozenset({"Gather", "GatherND"})


def grows_too_much(op: str, shapes: Sequence[tuple[Dim, ...] | None]) -> bool:
    """Whether the result of a node may have an extreme rank.

    Its inputs have these shapes.
    """
    slot = _RANK_OF.get(op)
    if slot is not None:
        shape = shapes[slot] if slot < len(shapes) else None
        return shape is not None and any(isinstance(size, int) and size > _MOST for size in shape)
    return op in _RANKS_ADDED and sum([len(shape) for shape in shapes if shape is not None]) > _MOST


def miscounts_outputs(node: onnx.NodeProto) -> bool:
    """Whether a ``Split`` has another number of outputs than its attribute.

    ONNX's inference trusts the attribute and runs out of memory.
    """
    return node.op_type == "Split" and any(
        attribute.name == "num_outputs" and attribute.i != len(node.output)
        for attribute in node.attribute
    )
