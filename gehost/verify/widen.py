"""The widened form of a model: every half tensor, constant and Cast target becomes float32.

Constant expressions keep their rounding: a weight that the model computes in half before its first
use is the same number whether a compile folded it or not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.helper

from gehost.ir.bodies import captures, declare_as, graphs_of, unique_names
from gehost.verify.retype import HALF, WIDER, retyped, tensor_types

_NO_ROUNDING = frozenset(
    ("Constant", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat")
).union(("Gather", "Slice", "Split", "Expand", "Tile", "If", "Loop", "Scan"))
"""Operators that move numbers; those with bodies round inside."""
_LOOPS = ("Loop", "Scan")
"""Operators that no compile folds; it may take out what their bodies read for nothing."""
_SIZES = ("Shape", "Size")
"""Operators that a compile folds where the sizes of their input are known."""


def widened(
    model: onnx.ModelProto, base_dir: str | None = None, folder: Path | None = None
) -> onnx.ModelProto:
    """Return the model computing in float32 what it computes in half."""
    model = unique_names(model)
    wide = retyped(model, WIDER, base_dir, folder)
    constants = {tensor.name for graph in graphs_of(model) for tensor in graph.initializer}
    constants -= {value.name for value in model.graph.input}
    types = tensor_types(model)

    def is_constant(node: onnx.NodeProto) -> bool:
        read = [name for name in (*node.input, *captures(node)) if name]
        if node.op_type in _SIZES and read and read[0] in types:
            is_fixed = types[read[0]].size is not None
        elif node.op_type in _LOOPS:
            is_fixed = False
        else:
            is_fixed = node.op_type == "Constant" or (bool(read) and constants.issuperset(read))
        constants.update(node.output if is_fixed else ())
        return is_fixed

    round_outputs(wide, {name: int(kind.dtype) for name, kind in types.items()}, is_constant)
    return wide


def round_outputs(
    wide: onnx.ModelProto, types: dict[str, int], which: Callable[[onnx.NodeProto], bool]
) -> None:
    """Put a pair of casts, to half and back, behind nodes whose output was half.

    Args:
        wide: the widened model, which is changed.
        types: the element types of the original.
        which: chooses nodes; called in the order of the graph.
    """
    for graph in graphs_of(wide):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            nodes.append(node)
            if not which(node) or node.op_type in _NO_ROUNDING:
                continue
            for slot, name in enumerate(node.output):
                if types.get(name) in HALF:
                    exact, half = f"{name} (exact)", f"{name} (half)"
                    node.output[slot] = exact
                    declare_as(graph, exact, name, onnx.TensorProto.FLOAT)
                    nodes += (
                        onnx.helper.make_node("Cast", [exact], [half], to=types[name]),
                        onnx.helper.make_node("Cast", [half], [name], to=onnx.TensorProto.FLOAT),
                    )
        # copies, as deleting the field ends the life of its nodes
        nodes = [_copy(node) for node in nodes]
        del graph.node[:]
        graph.node.extend(nodes)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy
