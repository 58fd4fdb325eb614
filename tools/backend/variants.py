"""Other models that compute what a case computes, so that more of gehost has something to do than in a single node.

| variant | the model |
|---|---|
| plain | as it is |
| inner | each output is the copy of a tensor of which the model states nothing |
| symbolic | as inner, and the sizes of the inputs are names, unknown or numbers, in turns |
| parameter | as symbolic, and all inputs but the first are constants |
| constant | as inner, and all inputs are constants: folding computes whatever it has a kernel for |
| branch | as inner, of nodes that stand in both bodies of an If and capture the inputs |
| function | as inner, of nodes that are the body of a function of the model |
| inlined | the same, inlined by the host |

Each gives the model and the inputs that are left; None where ONNX has no such model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from tools.backend.cases import Values

Made: TypeAlias = tuple[onnx.ModelProto, Values]
Variant: TypeAlias = Callable[[onnx.ModelProto, Values], Made | None]


def plain(model: onnx.ModelProto, feeds: Values) -> Made:
    return model, feeds


def inner(model: onnx.ModelProto, feeds: Values) -> Made:
    result = _copy(model)
    graph = result.graph
    del graph.value_info[:]
    renamed = {entry.name: f"{entry.name}__inner" for entry in graph.output}
    _rename(graph, renamed)
    for entry in graph.output:
        for dim in entry.type.tensor_type.shape.dim if entry.type.HasField("tensor_type") else ():
            dim.Clear()
        graph.node.append(onnx.helper.make_node("Identity", [renamed[entry.name]], [entry.name]))
    return result, feeds


def symbolic(model: onnx.ModelProto, feeds: Values) -> Made:
    result, feeds = inner(model, feeds)
    initialized = {tensor.name for tensor in result.graph.initializer}
    for number, entry in enumerate(result.graph.input):
        if entry.name in initialized or not entry.type.HasField("tensor_type"):
            continue
        for place, dim in enumerate(entry.type.tensor_type.shape.dim):
            match (number + place) % 3:
                case 0:
                    dim.dim_param = f"N{number}_{place}"
                case 1:
                    dim.Clear()
    return result, feeds


def parameter(model: onnx.ModelProto, feeds: Values) -> Made | None:
    result, feeds = symbolic(model, feeds)
    return _with_constants(result, feeds, list(feeds)[1:])


def constant(model: onnx.ModelProto, feeds: Values) -> Made | None:
    result, feeds = inner(model, feeds)
    return _with_constants(result, feeds, list(feeds))


def _with_constants(result: onnx.ModelProto, feeds: Values, names: Sequence[str]) -> Made | None:
    """Make inputs of these names constants, where they are tensors."""
    graph = result.graph
    arrays = {name: feeds[name] for name in names if isinstance(feeds[name], np.ndarray)}
    if not arrays:
        return None
    tensors = {name: onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()}
    graph.initializer.extend(tensors.values())
    inputs = list(graph.input)
    del graph.input[:]
    for entry in inputs:
        if entry.name not in tensors:
            graph.input.append(entry)
        elif (
            result.ir_version < 4
        ):  # where initializers had to be inputs, which nobody could override
            tensor = tensors[entry.name]
            graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return result, {name: value for name, value in feeds.items() if name not in arrays}


def branch(model: onnx.ModelProto, feeds: Values) -> Made:
    result = _copy(model)
    graph = result.graph
    outputs = [entry.name for entry in graph.output]
    bodies: dict[str, onnx.GraphProto] = {}
    for key in ("then_branch", "else_branch"):
        body = bodies[key] = onnx.GraphProto(name=key, node=graph.node)
        _rename(body, {name: f"{name}__{key}" for name in made_in(graph)})
        body.output.extend(onnx.ValueInfoProto(name=f"{name}__{key}") for name in outputs)
    del graph.node[:]
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "condition__"))
    if result.ir_version < 4:
        graph.input.append(
            onnx.helper.make_tensor_value_info("condition__", onnx.TensorProto.BOOL, [])
        )
    graph.node.append(onnx.helper.make_node("If", ["condition__"], outputs, **bodies))
    return inner(result, feeds)


def function(model: onnx.ModelProto, feeds: Values) -> Made:
    result = _copy(model)
    graph = result.graph
    inputs = list(dict.fromkeys(entry.name for entry in (*graph.input, *graph.initializer)))
    outputs = [entry.name for entry in graph.output]
    nodes, imports = list(graph.node), list(result.opset_import)
    result.functions.append(
        onnx.helper.make_function("cases", "Case", inputs, outputs, nodes, imports)
    )
    result.opset_import.append(onnx.helper.make_opsetid("cases", 1))
    del graph.node[:]
    graph.node.append(onnx.helper.make_node("Case", inputs, outputs, domain="cases"))
    return inner(result, feeds)


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "plain": plain,
        "inner": inner,
        "symbolic": symbolic,
        "parameter": parameter,
        "constant": constant,
        "branch": branch,
        "function": function,
        "inlined": function,
    }
)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that imports ONNX's own operators: the highest opset of its IR version where it imports none."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    if not any(entry.domain in ("", "ai.onnx") for entry in result.opset_import):
        fitting = [
            release for release in onnx.helper.VERSION_TABLE if release[1] <= result.ir_version
        ]
        result.opset_import.append(
            onnx.helper.make_opsetid("", max(release[2] for release in fitting))
        )
    return result


def made_in(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output if name]


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors that nodes make and read, in bodies too unless they have their own of that name."""
    for node in graph.node:
        for field in (node.input, node.output):
            for place, name in enumerate(field):
                field[place] = names.get(name, name)
        for attribute in node.attribute:
            for body in (
                [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            ):
                own = {*made_in(body), *(entry.name for entry in (*body.input, *body.initializer))}
                _rename(body, {old: new for old, new in names.items() if old not in own})
                for entry in body.output:
                    if entry.name not in own:
                        entry.name = names.get(entry.name, entry.name)
