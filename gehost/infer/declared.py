"""Declare sizes that readers of the file need and may not infer.

ONNX's inference of Attention (onnx 1.23, and with it ONNX Runtime) reads an unknown width of a v
[B, T, M·V] as 0, and the width of the result as well, so that the file does not load. A rewrite can
make the width of v one that only gehost infers: behind a Reshape to computed sizes.
"""

from __future__ import annotations

from gehost.ir.graph import Value
from gehost.ir.model import Model
from gehost.ir.types import TensorType, encode_type


def declare_widths(model: Model) -> None:
    """Declare the width of each v of Attention that a Reshape to computed sizes makes."""
    for graph in model.graphs:
        for node in graph.nodes_of("Attention"):
            value = node.input(2)
            if value is not None and not value.is_graph_output:
                _declare(value)


def _declare(value: Value) -> None:
    graph, maker, known = value.graph, value.producer, value.type
    if maker is None or maker.op != "Reshape" or not isinstance(known, TensorType):
        return
    target, shape = maker.input(1), known.shape
    if target is None or target.is_constant or shape is None or len(shape) != 3:
        return
    if not isinstance(shape[2], int):
        return
    info = next((one for one in graph.proto.value_info if one.name == value.name), None)
    if info is not None and value.name not in graph.remade:
        declared = info.type.tensor_type.shape.dim
        if len(declared) == 3 and declared[2].HasField("dim_value"):
            return
    if info is None:
        info = graph.proto.value_info.add(name=value.name)
    info.type.CopyFrom(encode_type(TensorType(known.dtype, (None, None, shape[2]))))
    graph.remade.discard(value.name)
    graph.dirty = True
