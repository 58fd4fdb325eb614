"""Extract the nodes that compute outputs from inputs as a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from gehost.ir.graph import Node, Value, op_name
from gehost.ir.model import Model
from gehost.ir.types import encode_type


def submodel(
    model: Model,
    outputs: Sequence[tuple[str, Value]],
    inputs: Sequence[Value] = (),
    *,
    name: str = "part",
) -> onnx.ModelProto:
    """Return the nodes that compute ``outputs``, as a model.

    It has their constants and the functions they call.

    The graph stays as it is; nodes that are not yet written to its protobuf are included. External
    data stays external, in the directory of that of ``model``.

    Args:
        model: the model of the tensors.
        outputs: names of the part's outputs and their tensors; another name is given with an
            ``Identity``.
        inputs: tensors at which the backward walk ends; those that are read become the part's
            inputs, in the order given. So does every input of the graph, or of an enclosing body,
            that the walk meets.
        name: of the part's graph.
    """
    part = _Part(inputs)
    part.walk(value for _, value in outputs)
    proto = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.proto.opset_import)
    graph = proto.graph
    graph.name = name
    for value in part.inputs():
        graph.input.append(_declared(value.name, value))
    if model.ir_version < 4:  # initializers must be inputs, too
        graph.input.extend(_declared(value.name, value) for value in part.constants)
    _add_constants(graph, part.constants)
    for node in part.nodes():
        graph.node.append(node_proto(node))
    for tensor, value in outputs:
        if tensor != value.name or value in part.leaves or value in part.constants:
            graph.node.add(op_type="Identity", input=[value.name], output=[tensor])
        graph.output.append(_declared(tensor, value))
    _add_functions(model, proto)
    return proto


class _Part:
    """The nodes that a walk finds from its start to end tensors."""

    def __init__(self, inputs: Iterable[Value]) -> None:
        self._ends = dict.fromkeys(inputs)
        self.leaves: dict[Value, None] = {}
        self.constants: dict[Value, None] = {}
        self._nodes: dict[Node, None] = {}

    def walk(self, values: Iterable[Value]) -> None:
        stack = list(values)
        while stack:
            value = stack.pop()
            if value in self._ends:
                self.leaves[value] = None
            elif (node := value.producer) is not None:
                if node in self._nodes:
                    continue
                self._nodes[node] = None
                stack.extend(tensor for tensor in node.inputs if tensor is not None)
                inside = {graph for body in node.bodies for graph in (body, *body.subgraphs())}
                captured = [tensor for body in node.bodies for _, _, tensor in body.captured()]
                stack.extend(tensor for tensor in captured if tensor.graph not in inside)
            elif value.initializer is not None:
                self.constants[value] = None
            else:
                self.leaves[value] = None

    def inputs(self) -> list[Value]:
        return [
            *(value for value in self._ends if value in self.leaves),
            *(v for v in self.leaves if v not in self._ends),
        ]

    def nodes(self) -> list[Node]:
        """Return the nodes in a runnable order.

        Outer graphs come first, as they read nothing inside.
        """
        return sorted(self._nodes, key=lambda node: (node.graph.depth, node.order))


def node_proto(node: Node) -> onnx.NodeProto:
    """Return a copy of a node in its current state, bodies included."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node.proto)
    bodies = [
        body
        for entry in copy.attribute
        for body in ([entry.g] if entry.HasField("g") else entry.graphs)
    ]
    for body, body_proto in zip(node.bodies, bodies, strict=True):
        if body.dirty or body.subgraphs():  # its protobuf may be older than its index
            del (
                body_proto.node[:],
                body_proto.initializer[:],
                body_proto.sparse_initializer[:],
                body_proto.value_info[:],
            )
            body_proto.node.extend(node_proto(inner) for inner in body.nodes)
            _add_constants(body_proto, body.values.values())
    return copy


def _add_constants(graph: onnx.GraphProto, values: Iterable[Value]) -> None:
    for value in values:
        tensor = value.initializer
        if isinstance(tensor, onnx.SparseTensorProto):
            graph.sparse_initializer.append(tensor)
        elif tensor is not None:
            graph.initializer.append(tensor)


def _declared(name: str, value: Value) -> onnx.ValueInfoProto:
    type_ = value.type
    return onnx.ValueInfoProto(name=name, type=None if type_ is None else encode_type(type_))


def _add_functions(model: Model, proto: onnx.ModelProto) -> None:
    """Add the bodies of called operators, and import the domains they need."""
    functions: dict[str, onnx.FunctionProto] = {}
    domains: set[str] = set()
    pending: list[onnx.NodeProto] = list(proto.graph.node)
    while pending:
        node = pending.pop()
        domains.add("" if node.domain == "ai.onnx" else node.domain)
        for entry in node.attribute:
            for body in [entry.g] if entry.HasField("g") else entry.graphs:
                pending.extend(body.node)
        op = op_name(node.domain, node.op_type, node.overload)
        function = model.function(op)
        if function is not None and op not in functions:
            functions[op] = function
            pending.extend(function.node)
    proto.functions.extend(functions[op] for op in sorted(functions))
    imported = {entry.domain for entry in proto.opset_import}
    for function in proto.functions:
        for entry in function.opset_import:
            if entry.domain not in imported:
                imported.add(entry.domain)
                proto.opset_import.add(domain=entry.domain, version=entry.version)
    for domain in sorted(domains - imported - {""}):
        proto.opset_import.add(domain=domain, version=model.opset(domain) or 1)
