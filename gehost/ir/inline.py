"""Inline model-local functions with the defaults of their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx
import onnx.helper
import onnx.inliner

from gehost.ir.bodies import bodies_in
from gehost.ir.node import op_name
from gehost.ir.schemas import schema_at


def inline_functions(
    model: onnx.ModelProto, *, keep: Callable[[onnx.FunctionProto], bool] | None = None
) -> onnx.ModelProto:
    """Return the model with its functions inlined, except those that ``keep`` chooses.

    A function of another opset stays if an operator in it has another form at the model's.
    """
    apart: list[onnx.FunctionProto] = []
    explicit = with_function_defaults(model)
    if any(_returned(body) for body in _bodies(explicit)):
        if explicit is model:
            explicit = onnx.ModelProto()
            explicit.CopyFrom(model)
        for body in _bodies(explicit):
            _return_constants(body)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if any(_differs(function, opsets) for function in model.functions):
        if explicit is model:
            explicit = onnx.ModelProto()
            explicit.CopyFrom(model)
        for function in explicit.functions:  # ONNX's inliner leaves functions of other opsets
            if _differs(function, opsets) and _is_the_same_at(opsets, function):
                for entry in function.opset_import:
                    entry.version = opsets.get(entry.domain, entry.version)
        apart = [function for function in explicit.functions if _differs(function, opsets)]
    if keep is None:
        return onnx.inliner.inline_local_functions(explicit)
    for function in apart:  # it refuses to choose where there are any
        explicit.functions.remove(function)
    chosen = [
        (candidate.domain, candidate.name)
        for candidate in explicit.functions
        if not keep(candidate)
    ]
    inlined = onnx.inliner.inline_selected_functions(explicit, chosen)
    inlined.functions.extend(apart)
    return inlined


def _bodies(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of operators in functions."""
    return bodies_in(node for function in model.functions for node in function.node)


def _returned(body: onnx.GraphProto) -> list[int]:
    """Return the places of initializers that a body returns, from the last one."""
    outputs = {info.name for info in body.output}
    return [i for i, tensor in enumerate(body.initializer) if tensor.name in outputs][::-1]


def _return_constants(body: onnx.GraphProto) -> None:
    """Let a body return constants in place of initializers: ONNX's inliner names them wrongly."""
    for place in _returned(body):
        tensor = body.initializer.pop(place)
        body.node.insert(0, onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))


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
