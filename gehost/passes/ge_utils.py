"""GE's static helpers for pass authors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx

from gehost.errors import PassError
from gehost.es.graph import EsConst, EsGraph, EsTensor
from gehost.infer.local import InferenceFailed, array_type, small_array
from gehost.ir.attributes import encode_attribute
from gehost.ir.graph import Node, Value, split_op
from gehost.ir.types import ValueType
from gehost.passes.context import CustomPassContext, current_context
from gehost.pattern.match import MatchResult
from gehost.rewrite.bodies import op_with_body
from gehost.rewrite.lower import LoweredNode, Operand, Refused, TypeOf, lower_node

_Key: TypeAlias = tuple[int, int]
"""One key for all ``EsTensor`` objects of one output."""


class NodeSupport(NamedTuple):
    """Whether a target can run a node; true when ``supported``, and why not otherwise."""

    supported: bool
    reason: str

    def __bool__(self) -> bool:
        return self.supported


class GeUtils:
    """Inference by hand and target support, inside a running pass."""

    @staticmethod
    def InferShape(
        graph: EsGraph, source: MatchResult | Node | Sequence[Value | None]
    ) -> list[ValueType | None]:
        """The output types of a replacement, from the tensors that its inputs will be given.

        Args:
            graph: what ``BuildAndReset`` returned.
            source: a match (its inputs), a node (its inputs), or the tensors themselves.

        Raises:
            PassError: no pass is running, the opset lacks an operator, or one does not take
                what it is given.
        """
        context = _running("InferShape")
        if isinstance(source, MatchResult):
            values: Sequence[Value | None] = source.inputs
        else:
            values = source.inputs if isinstance(source, Node) else source
        return _infer(graph, values, context)

    @staticmethod
    def CheckNodeSupport(node: Node) -> NodeSupport:
        """Ask the ``gehost_check_node_support`` hook; true when nobody objects."""
        return NodeSupport(*_running("CheckNodeSupport").node_support(node))


def _running(what: str) -> CustomPassContext:
    context = current_context()
    if context is None:
        raise PassError(f"GeUtils.{what} works inside a running pass")
    return context


def _infer(
    graph: EsGraph, values: Sequence[Value | None], context: CustomPassContext
) -> list[ValueType | None]:
    known: dict[_Key, ValueType | None] = {}
    constants: dict[_Key, np.ndarray[Any, Any] | None] = {}
    for tensor, value in zip(graph.inputs, values, strict=False):
        if value is not None:
            known[_key(tensor)] = value.type
            constants[_key(tensor)] = small_array(value)

    def type_of(tensor: EsTensor) -> ValueType | None:
        if isinstance(tensor.producer, EsConst):
            return array_type(tensor.producer.array)
        return known.get(_key(tensor))

    mark = context.model.mark()
    for node in graph.reachable():
        try:
            lowered = lower_node(node, context.model, context.registry, type_of)
            types = [_operand_type(operand, type_of) for operand in lowered.inputs]
            arrays = [
                constants.get(_key(read)) if isinstance(read, EsTensor) else read
                for read in lowered.inputs
            ]
            present = [operand is not None for operand in lowered.inputs]
            inferrer = context.rewriter.inferrer
            named = op_with_body(
                lowered.op,
                types,
                lowered.attributes,
                context.model,
                context.registry,
                inferrer,
                present,
            )
            made = inferrer.proto(
                named or lowered.op, _as_proto(lowered, len(node.outputs)), types, arrays
            )
        except (Refused, InferenceFailed) as error:
            raise PassError(f"{node.origin}: {'|'.join(node.ops)}: {error}") from error
        known.update(
            {_key(tensor): found for tensor, found in zip(node.outputs, made, strict=True)}
        )
    context.model.undo(mark)  # bodies were offered to infer through them; only a rewrite keeps one
    return [type_of(tensor) for tensor in graph.outputs]


def _key(tensor: EsTensor) -> _Key:
    return id(tensor.producer), tensor.index


def _operand_type(operand: Operand, type_of: TypeOf) -> ValueType | None:
    if isinstance(operand, EsTensor):
        return type_of(operand)
    return None if operand is None else array_type(operand)


def _as_proto(lowered: LoweredNode, outputs: int) -> onnx.NodeProto:
    domain, op_type = split_op(lowered.op)
    return onnx.NodeProto(
        op_type=op_type,
        domain=domain,
        input=[
            "" if operand is None else f"input{slot}" for slot, operand in enumerate(lowered.inputs)
        ],
        output=[f"output{slot}" for slot in range(outputs)],
        attribute=[encode_attribute(name, value) for name, value in lowered.attributes.items()],
    )
