"""Nodes that ONNX's inference cannot hold: it writes every dimension out, and believes what a node
says of itself.

A rank that comes from the length of a vector, or from ``Gather`` of ``Gather``, may be beyond all
memory; a ``Split`` with more outputs than it says ends the process. Nothing is asked of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import onnx

from gehost.ir.types import Dim

_MOST = 4096
"""Dimensions of a tensor."""

_RANK_OF = MappingProxyType({"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Unsqueeze": 1})
"""The input of whose length the results of an operator have dimensions."""
_RANKS_ADDED = frozenset({"Gather", "GatherND"})


def grows_too_much(op: str, shapes: Sequence[tuple[Dim, ...] | None]) -> bool:
    """Whether the result of a node would have more dimensions than anybody writes out, by the
    shapes of its inputs.
    """
    slot = _RANK_OF.get(op)
    if slot is not None:
        shape = shapes[slot] if slot < len(shapes) else None
        return shape is not None and any(isinstance(size, int) and size > _MOST for size in shape)
    return op in _RANKS_ADDED and sum([len(shape) for shape in shapes if shape is not None]) > _MOST


def miscounts_outputs(node: onnx.NodeProto) -> bool:
    """Whether a ``Split`` says another number of outputs than it has, which ONNX's inference
    believes beyond all memory.
    """
    return node.op_type == "Split" and any(
        attribute.name == "num_outputs" and attribute.i != len(node.output)
        for attribute in node.attribute
    )
