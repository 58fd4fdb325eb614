"""Bodies of functions, instantiated for one call: its attributes, its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from gehost.ir import tensors
from gehost.ir.attributes import attribute_value
from gehost.ir.graph import GRAPH_KINDS
from gehost.ir.types import ValueType, encode_type

_PLAIN_NUMBERS = MappingProxyType(
    {"value_int": "q", "value_ints": "q", "value_float": "f", "value_floats": "f"}
)


def opsets_of(body: onnx.FunctionProto) -> dict[str, int]:
    return {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version
        for entry in body.opset_import
    }


def body_nodes(body: onnx.FunctionProto, call: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a body for one call.

    The caller's values replace references to attributes.
    """
    attributes = {entry.name: entry for entry in (*body.attribute_proto, *call.attribute)}
    for template in body.node:
        if not _refers(template):
            yield template
            continue
        proto = onnx.NodeProto()
        proto.CopyFrom(template)
        _fill_in(proto, attributes)
        yield proto


def _refers(proto: onnx.NodeProto) -> bool:
    """Whether a node, its graphs included, refers to a function's attribute."""
    return any(
        entry.ref_attr_name
        or (entry.type in GRAPH_KINDS and any(map(_refers, _nodes_inside(entry))))
        for entry in proto.attribute
    )


def _nodes_inside(entry: onnx.AttributeProto) -> Iterator[onnx.NodeProto]:
    for graph in (entry.g, *entry.graphs):
        yield from graph.node


def _fill_in(proto: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    entries = list(proto.attribute)
    del proto.attribute[:]
    for entry in entries:
        if entry.ref_attr_name in attributes:
            proto.attribute.append(attributes[entry.ref_attr_name])
            proto.attribute[-1].name = entry.name
        elif not entry.ref_attr_name:
            proto.attribute.append(entry)
            if entry.type in GRAPH_KINDS:
                for inside in _nodes_inside(proto.attribute[-1]):
                    _fill_in(inside, attributes)


def constant_of(proto: onnx.NodeProto) -> np.ndarray[Any, Any] | None:
    """Return the value of a body's ``Constant``, None for others and strings."""
    if (
        proto.op_type != "Constant"
        or proto.domain not in ("", "ai.onnx")
        or len(proto.attribute) != 1
    ):
        return None
    entry = proto.attribute[0]
    if entry.name == "value":
        return tensors.to_numpy(entry.t, None)
    dtype = _PLAIN_NUMBERS.get(entry.name)
    return None if dtype is None else np.array(attribute_value(entry), dtype)


def as_a_model(
    body: onnx.FunctionProto,
    call: onnx.NodeProto,
    types: Sequence[ValueType | None],
    arrays: Sequence[np.ndarray[Any, Any] | None],
) -> onnx.ModelProto:
    """Return a model equivalent to a call.

    Other functions that it calls are not included.
    """
    proto = onnx.ModelProto(ir_version=onnx.IR_VERSION, opset_import=body.opset_import)
    operands = list(zip(body.input, types, arrays, map(bool, call.input), strict=False))
    for name, value_type, array, present in operands:
        if not present:
            continue
        if array is None:
            proto.graph.input.add(
                name=name, type=None if value_type is None else encode_type(value_type)
            )
        else:
            proto.graph.initializer.append(tensors.from_numpy(array, name))
    absent = {*body.input}.difference([name for name, _, _, present in operands if present])
    for node in body_nodes(body, call):
        added = proto.graph.node.add()
        added.CopyFrom(node)
        added.input[:] = ["" if name in absent else name for name in node.input]
    for name in body.output[: len(call.output)]:
        proto.graph.output.add(name=name)
    return proto
