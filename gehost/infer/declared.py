"""Declare types that readers of the file need and may not infer.

No inference knows the results of a runtime's own operators, and quantizers leave out or refuse what
stands behind a tensor of unknown type.

ONNX's inference of Attention (onnx 1.23, and with it ONNX Runtime) reads an unknown width of a v
[B, T, M·V] as 0, and the width of the result as well, so that the file does not load. A rewrite can
make the width of v one that only gehost infers: behind a Reshape to computed sizes.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from gehost.ir.graph import Value
from gehost.ir.model import Model
from gehost.ir.node import PROVIDED_BY
from gehost.ir.types import TensorType, encode_type


def declare_widths(model: Model) -> None:
    """Declare the width of each v of Attention that a Reshape to computed sizes makes."""
    for graph in model.graphs:
        for node in graph.nodes_of("Attention"):
            value = node.input(2)
            if value is not None and not value.is_graph_output:
                _declare(value)


def declare_results(model: Model, operators: Iterable[str]) -> None:
    """Declare the results of new nodes, unless a function computes them.

    Sizes that have no number stay open.

    Args:
        model: after all passes.
        operators: that runtimes provide, as ``domain::Type``.
    """
    operators = [op for op in operators if model.function(op) is None]
    for graph in model.graphs:
        infos = {info.name: info for info in graph.proto.value_info}
        for node in graph.nodes_of(*operators):
            if PROVIDED_BY not in node.metadata:
                continue
            for value in node.outputs:
                value_type = None if value is None or value.is_graph_output else value.type
                if value is None or not isinstance(value_type, TensorType) or not value_type.dtype:
                    continue
                shape = value_type.shape and tuple(
                    size if isinstance(size, int) else None for size in value_type.shape
                )
                if value.name not in infos or value.name in graph.remade:
                    _write(value, infos.get(value.name), TensorType(value_type.dtype, shape))


def _declare(value: Value) -> None:
    graph, maker, value_type = value.graph, value.producer, value.type
    if maker is None or maker.op != "Reshape" or not isinstance(value_type, TensorType):
        return
    target, shape = maker.input(1), value_type.shape
    if target is None or target.is_constant or shape is None or len(shape) != 3:
        return
    if not isinstance(shape[2], int):
        return
    infos = graph.proto.value_info
    info = next((info for info in infos if info.name == value.name), None)
    if info is not None and value.name not in graph.remade:
        declared = info.type.tensor_type.shape.dim
        if len(declared) == 3 and declared[2].HasField("dim_value"):
            return
    _write(value, info, TensorType(value_type.dtype, (None, None, shape[2])))


def _write(value: Value, info: onnx.ValueInfoProto | None, value_type: TensorType) -> None:
    """Declare a type in place of what the file declares."""
    graph = value.graph
    if info is None:
        info = graph.proto.value_info.add(name=value.name)
    info.type.CopyFrom(encode_type(value_type))
    graph.remade.discard(value.name)
    graph.dirty = True
