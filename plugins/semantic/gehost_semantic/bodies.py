"""What the function of a model computes for one call, as a graph of its own.

A name says little about a function that a model brings: its body decides what the call stands for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import onnx
import onnx.helper
import onnx.inliner

from gehost import Model, ModelError, Node, Value, infer_model
from gehost_semantic.views import Views


def has_body(node: Node) -> bool:
    """Whether a function of the model computes a node."""
    return node.graph.model.function(node.op) is not None


def views_of_body(node: Node) -> Views | None:
    """Return the views of what a call computes; its inputs and outputs are those of the node.

    None where a type is not known, or the body cannot be read.
    """
    model, function = node.graph.model, node.graph.model.function(node.op)
    types = [_declared(f"i{place}", value) for place, value in enumerate(node.inputs)]
    key = ("body", node.op, node.encoded_attrs, tuple(str(item) for item in types))
    cached = model.answers.get(key)
    if not isinstance(cached, tuple) or cached[0] is not function:
        cached = model.answers[key] = function, _views(node, types)
    return cast("Views | None", cached[1])


def is_same(views: Views, first: Value | None, second: Value | None) -> bool:
    """Whether two tensors have equal elements, but for casts."""
    one, other = views.of(first), views.of(second)
    if one is None or other is None:
        return first is not None and first is second
    return one == replace(other, casts=one.casts)


def _views(node: Node, types: list[onnx.ValueInfoProto | None]) -> Views | None:
    inputs = [item for item, value in zip(types, node.inputs, strict=True) if value is not None]
    known = [item for item in inputs if item is not None]
    if len(known) < len(inputs):
        return None
    model = node.graph.model
    call = onnx.NodeProto()
    call.CopyFrom(node.proto)
    call.input[:] = ["" if item is None else item.name for item in types]
    call.output[:] = [f"o{place}" for place in range(len(node.outputs))]
    results = [onnx.ValueInfoProto(name=name) for name in call.output]
    graph = onnx.helper.make_graph([call], "body", known, results)
    proto = onnx.helper.make_model(
        graph,
        functions=list({**model.new_functions, **model.functions}.values()),
        opset_imports=[onnx.helper.make_opsetid(*item) for item in model.opsets.items()],
    )
    try:
        inlined = Model(onnx.inliner.inline_local_functions(proto))
    except (ModelError, RuntimeError):
        return None
    infer_model(inlined)
    return Views(inlined.graph)


def _declared(name: str, value: Value | None) -> onnx.ValueInfoProto | None:
    """Return the type of an operand, its open sizes without names; None if it is not known."""
    if value is None or value.dtype is None:
        return None
    shape = (
        None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    )
    return onnx.helper.make_tensor_value_info(name, value.dtype.value, shape)
