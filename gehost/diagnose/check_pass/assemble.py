"""Build a model of lowered operators: names, initializers, imports and called functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from gehost.es.graph import EsConst, EsTensor
from gehost.ir import tensors
from gehost.ir.attributes import encode_attribute
from gehost.ir.graph import op_name, spelled, split_op
from gehost.ir.model import Model
from gehost.ir.types import TensorType, encode_type
from gehost.rewrite.lower import LoweredNode, Operand


@dataclass(frozen=True, slots=True)
class Application:
    """A lowered operator with its outputs.

    ``op`` is the name of its body in the model.
    """

    lowered: LoweredNode
    op: str
    outputs: Sequence[EsTensor]


def assemble(
    model: Model,
    operands: Sequence[tuple[EsTensor, TensorType | np.ndarray[Any, Any]]],
    applications: Sequence[Application],
    outputs: Sequence[tuple[EsTensor, TensorType]],
) -> onnx.ModelProto:
    """Write operators into an otherwise empty model, which may already hold functions.

    Args:
        model: its protobuf is returned.
        operands: tensors that no operator produces: inputs with their types, constants with
            their numbers.
        applications: in topological order.
        outputs: of the graph, with their types.
    """
    proto = model.flush()
    graph = proto.graph
    names: dict[tuple[int, int], str] = {}
    for number, (tensor, source) in enumerate(operands):
        name = names[_key(tensor)] = f"input{number}"
        if isinstance(source, TensorType):
            graph.input.add(name=name, type=encode_type(source))
        else:
            graph.initializer.append(tensors.from_numpy(source, name))
    for number, (tensor, type_) in enumerate(outputs):
        names[_key(tensor)] = f"output{number}"
        graph.output.add(name=f"output{number}", type=encode_type(type_))
    for number, application in enumerate(applications):
        inputs = [_name(operand, names, graph) for operand in application.lowered.inputs]
        stem = split_op(application.op)[1].lower()
        for tensor in application.outputs:
            names.setdefault(_key(tensor), f"{stem}_{len(names)}")
        node = node_proto(
            application.lowered,
            application.op,
            inputs,
            [names[_key(tensor)] for tensor in application.outputs],
        )
        node.name = f"node{number}"
        graph.node.append(node)
    _add_functions(proto, model)
    return proto


def node_proto(
    lowered: LoweredNode, op: str, inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.NodeProto:
    """Return a node that applies an operator to named tensors.

    A body may stand in for the operator.
    """
    spelling = spelled(op)
    node = onnx.NodeProto(
        op_type=spelling.op_type, domain=spelling.domain, input=inputs, output=outputs
    )
    node.attribute.extend(
        encode_attribute(name, value) for name, value in lowered.attributes.items()
    )
    if op != lowered.op:
        node.metadata_props.add(key="gehost.op", value=lowered.op)
    return node


def array_of(operand: Operand) -> np.ndarray[Any, Any] | None:
    """Return the numbers of a constant operand; None for another one."""
    if isinstance(operand, np.ndarray):
        return operand
    return (
        operand.producer.array
        if operand is not None and isinstance(operand.producer, EsConst)
        else None
    )


def _key(tensor: EsTensor) -> tuple[int, int]:
    return id(tensor.producer), tensor.index


def _name(operand: Operand, names: dict[tuple[int, int], str], graph: onnx.GraphProto) -> str:
    """Return the name of an operand; a constant becomes an initializer."""
    if operand is None:
        return ""
    key = (id(operand), -1) if isinstance(operand, np.ndarray) else _key(operand)
    if key not in names:
        array = array_of(operand)
        assert array is not None
        names[key] = f"constant{len(graph.initializer)}"
        graph.initializer.append(tensors.from_numpy(array, names[key]))
    return names[key]


def _add_functions(proto: onnx.ModelProto, model: Model) -> None:
    """Add the bodies that nodes call, directly or not; drop unused imports."""
    waiting = list(proto.graph.node)
    domains, called = {""}, dict[str, onnx.FunctionProto]()
    for node in waiting:  # grows during the loop
        name = op_name(node.domain, node.op_type, node.overload)
        body = model.function(name)
        domains.add(split_op(name)[0])
        if body is not None and name not in called:
            called[name] = body
            waiting.extend(body.node)
    proto.functions.extend(called.values())
    imports = [entry for entry in proto.opset_import if entry.domain in domains]
    del proto.opset_import[:]
    proto.opset_import.extend(imports)
