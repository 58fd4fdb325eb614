"""Raise a model's opset, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import onnx
import onnx.defs
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from gehost.errors import UsageError
from gehost.infer.whole import infer_model
from gehost.ir.graph import Graph, Value, op_name
from gehost.ir.model import Model
from gehost.ir.schemas import history
from gehost.opset.changes import CHANGES, LAST_OF_RUNTIME
from gehost.opset.operation import Operation, bodies

_OWN: Final = ("", "ai.onnx")
_CHANGED: Final = frozenset(op for op, _ in CHANGES)
_IR_OF_FIXED_WEIGHTS: Final = 4
"""The IR version from which an initializer that is no input cannot be overridden."""


def raise_opset(model: Model, version: int) -> None:
    """Raise a model's opset, and its IR version as required, in its protobuf.

    Inputs, outputs, weights, types and all that the file keeps beside nodes stay; operators that
    did not change are the same nodes. A converted operator keeps its node's name and annotations.
    Bodies in operators of every domain are converted, and functions of older opsets; operators of
    other domains stay as they are. The index is of no use afterwards.

    Args:
        model: inputs that are initializers become plain initializers where its IR version was
            below 4, in which no caller can override them.
        version: of ONNX's own operators.

    Raises:
        UsageError: the model has a newer opset, or the installed onnx does not know this one.
        ModelError: an operator cannot be converted. The protobuf may be half converted then.
    """
    proto, current = model.proto, model.opset()
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise UsageError(f"the installed onnx knows opsets up to {newest}")
    if current is None:
        raise UsageError("the model imports no operators of ONNX's own")
    if version < current:
        raise UsageError(f"the model has opset {current}, and an opset can only be raised")
    if version == current:
        return
    infer_model(model)
    raising = _Raising(model, version)
    raising.convert(proto.graph.node, current, model.graph.find)
    for function in proto.functions:
        for entry in function.opset_import:
            if entry.domain in _OWN and entry.version < version:
                raising.convert(function.node, entry.version, lambda _: None)
                entry.version = version
    for entry in proto.opset_import:
        if entry.domain in _OWN:
            entry.version = version
    least = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    raised = max(proto.ir_version, least)
    if proto.ir_version < _IR_OF_FIXED_WEIGHTS <= raised:
        constants = {tensor.name for tensor in proto.graph.initializer}
        inputs = [entry for entry in proto.graph.input if entry.name not in constants]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
    proto.ir_version = raised


class _Raising:
    """Converts the nodes of one model; new names differ from all names in it."""

    def __init__(self, model: Model, version: int) -> None:
        self._version = version
        self._functions = frozenset(model.functions)
        self._graphs: dict[int, Graph] = {id(graph.proto): graph for graph in model.graphs}
        proto = model.proto
        self._names = set(_names(proto.graph))
        for function in proto.functions:
            self._names.update(function.input, function.output, _names_of(function.node))

    def convert(
        self,
        nodes: RepeatedCompositeFieldContainer[onnx.NodeProto],
        current: int,
        find: Callable[[str], Value | None],
    ) -> None:
        """Convert the nodes of one graph or function, those of bodies first."""
        converted: list[onnx.NodeProto] = []
        for node in nodes:
            for body in bodies(node):
                inside = self._graphs.get(id(body))
                self.convert(body.node, current, find if inside is None else inside.find)
            converted += self._node(node, current, find)
        if len(converted) > len(nodes):
            del nodes[:]
            nodes.extend(converted)

    def _node(
        self, node: onnx.NodeProto, current: int, find: Callable[[str], Value | None]
    ) -> Sequence[onnx.NodeProto]:
        """Return what replaces a node, itself among it."""
        own = node.domain in _OWN
        if not own or op_name(node.domain, node.op_type, node.overload) in self._functions:
            return (node,)
        operation = Operation(node, self._version, find, self._new_name)
        if node.op_type in _CHANGED:
            for opset in range(current + 1, self._version + 1):
                change = CHANGES.get((node.op_type, opset))
                if change is not None:
                    change(operation)
        self._check_types(operation)
        self._check_runtime(operation, current)
        return (*operation.before, node, *operation.after)

    def _check_types(self, operation: Operation) -> None:
        """Refuse an operator that is gone, or an element type that it no longer takes.

        Raises:
            ModelError: names the node.
        """
        schemas = [
            schema
            for schema in history("", operation.node.op_type)
            if schema.since_version <= self._version
        ]
        if not schemas:
            raise operation.refuse("there is no such operator")
        schema = schemas[-1]
        allowed = {
            constraint.type_param_str: constraint.allowed_type_strs
            for constraint in schema.type_constraints
        }
        bound: dict[str, str] = {}
        for slot, parameter in enumerate(schema.inputs):
            dtype, variable = operation.dtype(slot), parameter.type_str
            if not dtype or variable not in allowed:
                continue
            kind = f"tensor({dtype.name.lower()})"
            if kind not in allowed[variable]:
                raise operation.refuse(f"input {slot} is {kind}, which it does not take there")
            other = bound.setdefault(variable, kind) if parameter.is_homogeneous else kind
            if other != kind:
                raise operation.refuse(f"input {slot} is {kind}, and would have to be {other}")

    def _check_runtime(self, operation: Operation, current: int) -> None:
        """Refuse an operator that ONNX Runtime runs now, and would not run then.

        Raises:
            ModelError: names the node.
        """
        for dtype in (None, operation.dtype()):
            last = LAST_OF_RUNTIME.get((operation.node.op_type, dtype))
            if last is not None and current <= last < self._version:
                of = "" if dtype is None else f" of {dtype.name.lower()}"
                raise operation.refuse(
                    f"ONNX Runtime does not run it{of} above opset {last}; use --opset {last}"
                )

    def _new_name(self, wish: str) -> str:
        name, number = wish, 1
        while name in self._names:
            number += 1
            name = f"{wish}_{number}"
        self._names.add(name)
        return name


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of all tensors in a graph and its bodies."""
    for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield entry.name
    for tensor in graph.sparse_initializer:
        yield tensor.values.name
    yield from _names_of(graph.node)


def _names_of(nodes: RepeatedCompositeFieldContainer[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from node.input
        yield from node.output
        for body in bodies(node):
            yield from _names(body)
