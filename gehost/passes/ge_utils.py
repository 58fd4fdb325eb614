"""GE's static helpers for pass authors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import onnx

from gehost.errors import PassError
from gehost.es.graph import EsConst, EsGraph, EsInput, EsNode, EsTensor
from gehost.infer.local import array_type, small_array
from gehost.ir.attributes import encode_attribute
from gehost.ir.ge import GNodeAccessors, SourceNode
from gehost.ir.graph import Node, Value, split_op
from gehost.ir.types import DataType, Dim, TensorType, ValueType
from gehost.passes.context import CustomPassContext, current_context
from gehost.pattern.match import MatchResult
from gehost.refusal import Refused
from gehost.rewrite.functions import op_with_body
from gehost.rewrite.lower import LoweredNode, Operand, TypeOf, lower_node

_Key: TypeAlias = tuple[int, int]
"""Shared by all ``EsTensor`` objects of one output."""


class NodeSupport(NamedTuple):
    """Whether a target can run a node, and why not.

    The tuple is true if ``supported``.
    """

    supported: bool
    reason: str

    def __bool__(self) -> bool:
        return self.supported


class GeUtils:
    """Shape inference and target support, inside a running pass."""

    @staticmethod
    def InferShape(
        graph: EsGraph, source: MatchResult | Node | Sequence[Value | TensorType | None]
    ) -> list[ValueType | None]:
        """Return the output types of a replacement for given input tensors.

        Args:
            graph: the result of ``BuildAndReset``.
            source: a match (its inputs), a node (its inputs), or the tensors themselves, or their
                types.

        Raises:
            PassError: no pass is running, the opset lacks an operator, or an operator does not
                accept its inputs.
        """
        context = _running("InferShape")
        values = source.inputs if isinstance(source, MatchResult | Node) else source
        inferred = _Inference(graph.reachable(), values, context)
        return [inferred.type_of(tensor) for tensor in graph.outputs]

    @staticmethod
    def CheckNodeSupport(node: Node | EsNode | SourceNode) -> NodeSupport:
        """Call the ``gehost_check_node_support`` hook; true if no plugin objects.

        Args:
            node: a node of the model, or one of the replacement for the current match. The hook
                gets the latter as a ``ReplacementNode``.

        Raises:
            PassError: no pass is running, or the types of a replacement's node cannot be inferred.
        """
        context = _running("CheckNodeSupport")
        request = _as_replacement(node, context) if isinstance(node, EsNode) else node
        return NodeSupport(*context.node_support(request))

    CheckNodeSupportOnAicore = CheckNodeSupport
    """GE's name of the same query."""


class ReplacementTensor(NamedTuple):
    """A tensor that a replacement will read or produce."""

    name: str
    type: ValueType | None

    @property
    def dtype(self) -> DataType | None:
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)


class ReplacementNode(GNodeAccessors):
    """A replacement's node, lowered to the model's opset, with inferred types."""

    def __init__(
        self,
        op: str,
        attrs: Mapping[str, Any],
        inputs: tuple[ReplacementTensor | None, ...],
        outputs: tuple[ReplacementTensor | None, ...],
        origin: str,
    ) -> None:
        self.op = op
        self.attrs = attrs
        self.inputs = inputs
        self.outputs = outputs
        self.origin = origin

    def __repr__(self) -> str:
        return f"<ReplacementNode {self.op} at {self.origin}>"

    @property
    def domain(self) -> str:
        return split_op(self.op)[0]

    @property
    def op_type(self) -> str:
        return split_op(self.op)[1]

    @property
    def name(self) -> str:
        """Empty: a new node is named when it is inserted."""
        return ""

    @property
    def label(self) -> str:
        return f"new {self.op}"


def _as_replacement(node: EsNode, context: CustomPassContext) -> ReplacementNode:
    matched = context.matched
    values: Sequence[Value | None] = () if matched is None else matched.inputs
    inferred = _Inference(_ancestors(node), values, context)
    lowered = inferred.lowered[node]
    inputs = tuple(
        None if operand is None else ReplacementTensor("", _operand_type(operand, inferred.type_of))
        for operand in lowered.inputs
    )
    outputs = tuple(ReplacementTensor("", inferred.type_of(tensor)) for tensor in node.outputs)
    return ReplacementNode(lowered.op, dict(lowered.attributes), inputs, outputs, str(node.origin))


def _ancestors(node: EsNode) -> list[EsNode]:
    """Return the nodes that a replacement's node depends on, itself last."""
    results: dict[EsNode, None] = {}
    stack: list[tuple[EsNode, bool]] = [(node, False)]
    while stack:
        current, visited = stack.pop()
        if visited:
            results[current] = None
        elif current not in results:
            stack.append((current, True))
            stack.extend(
                (tensor.producer, False)
                for tensor in current.inputs
                if tensor is not None and isinstance(tensor.producer, EsNode)
            )
    return list(results)


def _running(what: str) -> CustomPassContext:
    context = current_context()
    if context is None:
        raise PassError(f"GeUtils.{what} works inside a running pass")
    return context


class _Inference:
    """Types and lowered nodes of a replacement."""

    def __init__(
        self,
        nodes: Sequence[EsNode],
        values: Sequence[Value | TensorType | None],
        context: CustomPassContext,
    ) -> None:
        """Infer ``nodes``, in topological order; ``values`` are the inputs by index."""
        self._values = values
        self._known: dict[_Key, ValueType | None] = {}
        self.lowered: dict[EsNode, LoweredNode] = {}
        mark = context.model.mark()
        for node in nodes:
            try:
                self._infer(node, context)
            except Refused as error:
                raise PassError(f"{'|'.join(node.ops)}: {error}", where=node.origin) from error
        # bodies were added only for inference; a rewrite adds its own
        context.model.undo(mark)

    def _source(self, tensor: EsTensor) -> Value | TensorType | None:
        producer = tensor.producer
        if isinstance(producer, EsInput) and producer.index < len(self._values):
            return self._values[producer.index]
        return None

    def type_of(self, tensor: EsTensor) -> ValueType | None:
        if isinstance(tensor.producer, EsConst):
            return array_type(tensor.producer.array)
        source = self._source(tensor)
        if source is None:
            return self._known.get(_key(tensor))
        return source.type if isinstance(source, Value) else source

    def _infer(self, node: EsNode, context: CustomPassContext) -> None:
        lowered = lower_node(node, context.model, context.registry, self.type_of)
        types = [_operand_type(operand, self.type_of) for operand in lowered.inputs]
        arrays = [
            (small_array(source) if isinstance(source := self._source(read), Value) else None)
            if isinstance(read, EsTensor)
            else read
            for read in lowered.inputs
        ]
        inferrer = context.session.inferrer
        named = op_with_body(
            lowered.op,
            types,
            lowered.attributes,
            context.model,
            context.registry,
            inferrer,
            [operand is not None for operand in lowered.inputs],
            context.session.functions,
        )
        domain, op_type = split_op(lowered.op)
        proto = onnx.NodeProto(
            op_type=op_type,
            domain=domain,
            input=[
                "" if operand is None else f"input{slot}"
                for slot, operand in enumerate(lowered.inputs)
            ],
            output=[f"output{slot}" for slot in range(len(node.outputs))],
            attribute=[encode_attribute(name, value) for name, value in lowered.attributes.items()],
        )
        result = inferrer.proto(named or lowered.op, proto, types, arrays)
        self.lowered[node] = lowered
        self._known.update(
            {_key(tensor): match for tensor, match in zip(node.outputs, result, strict=True)}
        )


def _key(tensor: EsTensor) -> _Key:
    return id(tensor.producer), tensor.index


def _operand_type(operand: Operand, type_of: TypeOf) -> ValueType | None:
    if isinstance(operand, EsTensor):
        return type_of(operand)
    return None if operand is None else array_type(operand)
