"""Calls that stand for standard operators, replaced by what their functions compute.

A pass that makes an operator of a later opset (RMSNormalization before 23) calls a function of the
domain ``gehost``. Nodes that call it would bound the groups; the nodes of its body do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx

from gehost import CustomPassContext, EsGraph, EsGraphBuilder, EsTensor, Graph, Node, Region, es
from gehost_linalg.lower.table import lowerings

_PREFIX = "gehost::"
_DTYPES = {"value_int": "q", "value_ints": "q", "value_float": "f", "value_floats": "f"}


def inline_calls(graph: Graph, context: CustomPassContext) -> None:
    """Replace calls of ``gehost`` functions whose operators can all be lowered."""
    for node in [node for node in graph.nodes if node.op.startswith(_PREFIX)]:
        function = node.graph.model.function(node.op)
        if function is None or len(node.inputs) != len(function.input):
            continue
        opsets = [(entry.domain, entry.version) for entry in function.opset_import]
        if opsets != [("", node.graph.model.opset())]:
            continue
        arguments = {entry.name for entry in (*function.attribute_proto, *node.proto.attribute)}
        if all(
            item.op_type in lowerings() or _is_constant(item, arguments) for item in function.node
        ):
            region = Region.of_nodes([node])
            if isinstance(region, Region):
                context.replace(region, _body(node, region, function))


def _is_constant(node: onnx.NodeProto, arguments: Collection[str]) -> bool:
    """Whether it is a Constant; ``arguments`` are the attributes that the call has."""
    if node.op_type != "Constant":
        return False
    value = node.attribute[0]
    return value.name in {"value", *_DTYPES} and (
        not value.ref_attr_name or value.ref_attr_name in arguments
    )


def _body(node: Node, region: Region, function: onnx.FunctionProto) -> EsGraph:
    """The function's body for this call; copies by Identity are left out."""
    builder = EsGraphBuilder(node.op)
    placeholders = builder.CreateInputs(len(region.inputs))
    arguments = {entry.name: entry for entry in (*function.attribute_proto, *node.proto.attribute)}
    values: dict[str, EsTensor | None] = {"": None}
    for name, value in zip(function.input, node.inputs, strict=True):
        values[name] = None if value is None else placeholders[region.inputs.index(value)]
    for output in function.node:
        attributes = _attributes(output, arguments)
        if output.op_type == "Constant":
            ((name, value),) = attributes.items()
            values[output.output[0]] = builder.CreateConst(
                onnx.numpy_helper.to_array(value)
                if name == "value"
                else np.array(value, _DTYPES[name])
            )
        elif output.op_type == "Identity":
            values[output.output[0]] = values[output.input[0]]
        else:
            inputs = [values[name] for name in output.input]
            created = es.op(output.op_type)(*inputs, num_outputs=len(output.output), **attributes)
            results = [created] if isinstance(created, EsTensor) else list(created)
            values.update(zip(output.output, results, strict=True))
    created = dict(zip(node.outputs, [values[name] for name in function.output], strict=False))
    outputs = [created[result] for result in region.outputs]
    return builder.BuildAndReset([output for output in outputs if output is not None])


def _attributes(
    node: onnx.NodeProto, arguments: Mapping[str, onnx.AttributeProto]
) -> dict[str, Any]:
    """A node's attributes; those of the call in place of references."""
    results: dict[str, Any] = {}
    for entry in node.attribute:
        source = arguments.get(entry.ref_attr_name) if entry.ref_attr_name else entry
        if source is not None:
            value = onnx.helper.get_attribute_value(source)
            results[entry.name] = value.decode() if isinstance(value, bytes) else value
    return results
