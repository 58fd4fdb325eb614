"""Inference of a whole model with ONNX's data propagation; the result goes into the index, never into the file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import onnx
import onnx.shape_inference

from gehost.errors import ModelError
from gehost.infer.bounds import WATCHED, leave_out
from gehost.infer.contents import merge_types
from gehost.infer.doubts import DOUBTED, prepare
from gehost.infer.local import InferenceFailed, Inferrer
from gehost.ir import tensors
from gehost.ir.graph import Graph
from gehost.ir.model import Model, collector_off
from gehost.ir.skeleton import skeleton
from gehost.ir.types import TensorType, ValueType, decode_type

_SMALL = 4096
"""Initializers of at most this many bytes keep their data: shapes and axes that inference reads."""
_SHAPE_TYPES = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.INT32})


def infer_model(model: Model, inferrer: Inferrer | None = None) -> str | None:
    """Give every value the type that inference can tell; returns why it could not, if so.

    Works on a copy of the structure: weights stay out of it, so its cost is that of the nodes.

    Args:
        model: it is flushed, and so committed.
        inferrer: knows the operators of the vendors, of which ONNX can tell nothing.
    """
    content = _prepared(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(content, data_prop=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        return " ".join(str(error).split())
    with collector_off():
        _take(model.graph, inferred.graph)
    if inferrer is not None:
        for body in model.graphs:
            _fill(body, inferrer)
    return None


def _prepared(model: Model) -> bytes:
    """What ONNX's inference is asked: bytes, so that a copy is gone before inference takes memory."""
    proto = model.flush()
    doubted, watched = _occurs(model, DOUBTED), _occurs(model, WATCHED)
    is_light = proto.ByteSize() <= _SMALL * len(model.graph.values)  # taking the weights out costs more than they do
    content = proto.SerializeToString() if is_light else b""
    if not is_light or b"location" in content:
        copy = _without_weights(model)
    elif doubted or watched:
        copy = onnx.ModelProto.FromString(content)
    else:
        return content
    if doubted:
        prepare(copy)
    if watched:
        leave_out(copy)
    return copy.SerializeToString()


def _without_weights(model: Model) -> onnx.ModelProto:
    copy = skeleton(model.proto, lambda tensor: tensors.nbytes(tensor) <= _SMALL and not tensor.external_data)
    for tensor in copy.graph.initializer:
        if tensor.external_data:
            _embed(tensor, model.base_dir)
    return copy


def _occurs(model: Model, ops: Iterable[str]) -> bool:
    """Whether one of some operators may be in a model."""
    return bool(model.functions) or any(op in graph.by_op for graph in model.graphs for op in ops)


def _embed(tensor: onnx.TensorProto, base_dir: str | None) -> None:
    """Take external data into a copy where it may be a shape; weights, and files that are not there, stay out of it."""
    if tensor.data_type in _SHAPE_TYPES and tensors.nbytes(tensor) <= _SMALL:
        with suppress(ModelError):
            tensor.CopyFrom(tensors.from_numpy(tensors.to_numpy(tensor, base_dir), tensor.name))
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def _fill(graph: Graph, inferrer: Inferrer) -> None:
    """Infer node by node where sizes or types are missing still, from what is known by now."""
    for node in graph.nodes:
        if all(value is None or _is_complete(value.type) for value in node.outputs):
            continue
        with suppress(InferenceFailed):
            for value, known in zip(node.outputs, inferrer.node(node), strict=True):
                if value is not None and known is not None:
                    value.stated = merge_types(value.type, known)


def _is_complete(known: ValueType | None) -> bool:
    return known is not None and not (isinstance(known, TensorType) and (known.shape is None or None in known.shape))


def _take(graph: Graph, inferred: onnx.GraphProto) -> None:
    find = graph.values.get
    for entries in (inferred.value_info, inferred.output):
        for info in entries:
            value = find(info.name)
            if value is None or (isinstance(value.initializer, onnx.TensorProto) and not value.is_input):
                continue
            known = decode_type(info.type)
            if known is not None:
                value.stated = known
    if graph.model.body_ops.isdisjoint(graph.by_op) or len(inferred.node) != len(graph.proto.node):
        return
    for node, copy in zip(graph.nodes, inferred.node, strict=True):
        if node.bodies:
            _take_bodies(node.bodies, copy)


def _take_bodies(bodies: tuple[Graph, ...], inferred: onnx.NodeProto) -> None:
    copies: list[onnx.GraphProto] = []
    for attribute in inferred.attribute:
        copies.extend([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs)
    for body, copy in zip(bodies, copies, strict=True):
        _take(body, copy)
