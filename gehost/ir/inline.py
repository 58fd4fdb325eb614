"""Inline model-local functions with the defaults of their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx.inliner

from gehost.ir.node import op_name


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined, those of its own opsets at least."""
    return onnx.inliner.inline_local_functions(with_function_defaults(model))


def with_function_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model, or a copy in which calls state the attributes that they leave out.

    ONNX's inliner ignores the defaults that a function declares: its body would run on those of
    the operators inside.
    """
    defaults = {
        op_name(function.domain, function.name, function.overload): function.attribute_proto
        for function in model.functions
        if function.attribute_proto
    }
    if not defaults:
        return model
    stated = onnx.ModelProto()
    stated.CopyFrom(model)
    state_defaults(stated, defaults)
    return stated


def state_defaults(
    model: onnx.ModelProto, defaults: Mapping[str, Sequence[onnx.AttributeProto]]
) -> None:
    """Write the attributes that nodes leave out into them; ``defaults`` by operator."""
    waiting = [*model.graph.node, *(node for each in model.functions for node in each.node)]
    while waiting:
        node = waiting.pop()
        given = {attribute.name for attribute in node.attribute}
        left_out = defaults.get(op_name(node.domain, node.op_type, node.overload), ())
        node.attribute.extend([each for each in left_out if each.name not in given])
        for attribute in node.attribute:
            waiting.extend(attribute.g.node)
            for graph in attribute.graphs:
                waiting.extend(graph.node)
