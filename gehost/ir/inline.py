"""Inline model-local functions with the defaults of their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx.inliner

from gehost.ir.node import op_name
from gehost.ir.schemas import schema_at


def inline_functions(
    model: onnx.ModelProto, *, keep: Callable[[onnx.FunctionProto], bool] | None = None
) -> onnx.ModelProto:
    """Return the model with its functions inlined, except those that ``keep`` chooses.

    A function of another opset stays if an operator in it has another form at the model's.
    """
    explicit = with_function_defaults(model)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if any(_differs(function, opsets) for function in model.functions):
        if explicit is model:
            explicit = onnx.ModelProto()
            explicit.CopyFrom(model)
        for function in explicit.functions:  # ONNX's inliner leaves functions of other opsets
            if _differs(function, opsets) and _is_the_same_at(opsets, function):
                for entry in function.opset_import:
                    entry.version = opsets.get(entry.domain, entry.version)
    if keep is None:
        return onnx.inliner.inline_local_functions(explicit)
    chosen = [
        (candidate.domain, candidate.name) for candidate in model.functions if not keep(candidate)
    ]
    return onnx.inliner.inline_selected_functions(explicit, chosen)


def _differs(function: onnx.FunctionProto, opsets: Mapping[str, int]) -> bool:
    return any(
        opsets.get(entry.domain, entry.version) != entry.version for entry in function.opset_import
    )


def _is_the_same_at(opsets: Mapping[str, int], function: onnx.FunctionProto) -> bool:
    """Whether every operator in a function, also in bodies, has one form at both opsets."""
    own = {entry.domain: entry.version for entry in function.opset_import}
    nodes = [*function.node]
    while nodes:
        node = nodes.pop()
        nodes += [
            body_node
            for entry in node.attribute
            for body in (entry.g, *entry.graphs)
            for body_node in body.node
        ]
        forms = [
            schema_at(node.domain, node.op_type, versions[node.domain])
            for versions in (own, opsets)
            if node.domain in versions
        ]
        if len(forms) == 2 and forms[0] is not forms[1]:
            return False
    return True


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
    explicit = onnx.ModelProto()
    explicit.CopyFrom(model)
    state_defaults(explicit, defaults)
    return explicit


def state_defaults(
    model: onnx.ModelProto, defaults: Mapping[str, Sequence[onnx.AttributeProto]]
) -> None:
    """Write the attributes that nodes leave out into them; ``defaults`` by operator."""
    waiting = [*model.graph.node, *(node for item in model.functions for node in item.node)]
    while waiting:
        node = waiting.pop()
        names = {attribute.name for attribute in node.attribute}
        left_out = defaults.get(op_name(node.domain, node.op_type, node.overload), ())
        node.attribute.extend([item for item in left_out if item.name not in names])
        for attribute in node.attribute:
            waiting.extend(attribute.g.node)
            for graph in attribute.graphs:
                waiting.extend(graph.node)
