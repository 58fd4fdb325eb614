"""The state of one clean-up: worklist, counts, and its two edits."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gehost.infer.local import Inferrer
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.ir.types import DataType, Dim, OtherType, TensorType, ValueType, more_specific
from gehost.ops import OpRegistry
from gehost.passes.cleanup.purity import Purity, Trust


@dataclass(slots=True)
class Counts:
    dead_nodes: int = 0
    dead_initializers: int = 0
    identities: int = 0
    folded: int = 0
    merged: int = 0
    grown: int = 0


class ContradictionError(Exception):
    """Two types of the same value exclude each other."""


class State:
    """Shared state of the parts of a clean-up.

    Only *open* graphs are edited: the root, and the bodies of ONNX's control flow in open graphs.
    Names in ``protected`` are referenced from places that edits do not update (quantization
    annotations, device configurations).
    """

    def __init__(self, model: Model, registry: OpRegistry, inferrer: Inferrer) -> None:
        self.model = model
        self.opset = model.opset() or 0
        self.inferrer = inferrer
        self.purity = Purity(model, registry)
        self.counts = Counts()
        self.freed = 0
        """Bytes of removed nodes and constants, less those of constants that folding stored; a
        clean-up may begin with some."""
        self.open: set[Graph] = set()
        self.graphs: list[Graph] = []
        nodes = list(self.open_graph(model.graph))
        self.protected = frozenset(_names_elsewhere(model))
        self.initial = nodes
        self._place = {node: place for place, node in enumerate(nodes)}
        self._queue: list[tuple[int, Node]] = []
        self._queued: set[Node] = set()
        self.made: set[Value] = set()
        """Constants that replaced folded nodes; their later changes are not counted."""
        self.ordinary: set[Value] = set()
        """Inputs and initializers that are not neutral in arithmetic."""
        self.added: list[Value] = []
        """Constants that edits added, which may equal others."""
        self.stale: set[Node] = set()
        """Nodes whose input types were refined since their outputs were inferred."""

    def open_graph(self, graph: Graph) -> Iterator[Node]:
        """Open a graph and its bodies; yield all nodes in order.

        Each node comes before the nodes of its bodies.
        """
        self.open.add(graph)
        self.graphs.append(graph)
        for node in graph.nodes:
            yield node
            if node.bodies and self.purity.has_open_bodies(node):
                for body in node.bodies:
                    yield from self.open_graph(body)

    # worklist

    def push(self, node: Node) -> None:
        """Queue a node; nodes are visited in the graph's order."""
        if node not in self._queued:
            self._queued.add(node)
            heapq.heappush(self._queue, (self._place.setdefault(node, len(self._place)), node))

    def pop(self) -> Node | None:
        """Return the next queued node that still exists; None at the end."""
        while self._queue:
            _, node = heapq.heappop(self._queue)
            self._queued.discard(node)
            if self.alive(node):
                return node
        return None

    def alive(self, node: Node) -> bool:
        return node.graph in self.open and node.in_graph

    def touch_readers(self, value: Value, *, stale: bool) -> None:
        """Queue the users of a value.

        They know more about it now if ``stale``.
        """
        for reader in value.readers:
            if isinstance(reader, Node) and reader.graph in self.open:
                self.push(reader)
                if stale:
                    self.stale.add(reader)

    def node_bytes(self, node: Node) -> int:
        return node.proto.ByteSize()

    # conditions

    def is_pure(self, node: Node) -> bool:
        return self.purity.of(node) is Trust.PURE

    def may_leave(self, value: Value) -> bool:
        """Whether all users of a value can read another one.

        They cannot if it is a graph output or a closed body reads it.
        """
        return value.name not in self.protected and all(
            isinstance(reader, Node) and reader.graph in self.open for reader in value.readers
        )

    def is_only_reader(self, node: Node, value: Value) -> bool:
        """Whether nothing but one input of ``node`` refers to a value."""
        return (
            len(value.readers) == 1
            and value.name not in self.protected
            and sum(read is value for read in node.inputs) == 1
        )

    def can_forward(self, old: Value, new: Value) -> bool:
        """Whether, by names and types, users of ``old`` may read ``new``."""
        if not self.may_leave(old):
            return False
        for reader in old.readers:
            graph = reader.graph if isinstance(reader, Node) else reader
            if graph is not new.graph and graph.find(new.name) is not new:
                return False
        try:
            join(new.type, old.type)
        except ContradictionError:
            return False
        return True

    # edits

    def forward(self, old: Value, new: Value) -> None:
        """Make the users of ``old`` read the equal value ``new``; see ``can_forward``.

        ``new`` gets the more precise type of both.
        """
        before = old.type
        joined = join(new.type, before)
        if joined != new.type:
            new.graph.set_type(new, joined)
            self.touch_readers(new, stale=True)
        better = joined != before or (new.is_constant and not old.is_constant)
        self.touch_readers(old, stale=better)
        old.graph.redirect(old, new)

    def replace(
        self,
        node: Node,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any] | None = None,
    ) -> list[Value]:
        """Let another operator compute the result of a node with one output, which goes.

        Returns the values that lost a user.
        """
        result = node.graph.add_node(
            op,
            inputs,
            node.outputs,
            attributes or {},
            name=node.name,
            after=node,
            metadata=node.metadata,
        )
        self.freed += self.node_bytes(node) - self.node_bytes(result)
        lost = [value for value in dict.fromkeys(node.inputs) if value is not None]
        node.graph.remove_node(node)
        self.push(result)
        return lost

    def add_integers(
        self, graph: Graph, numbers: Sequence[int], name: str, *, rank: int = 1
    ) -> Value:
        """Add a list of int64, or of rank 0 one number; the graph takes such constants."""
        array = np.array(numbers, np.int64).reshape((-1,) * rank)
        constant = graph.add_initializer(array, self.model.fresh_name(f"cleanup_{name}"))
        self.freed -= array.nbytes + len(constant.name)
        self.made.add(constant)
        self.added.append(constant)
        return constant


def join(value_type: ValueType | None, other: ValueType | None) -> ValueType | None:
    """Merge two types of one value.

    Names of ``value_type`` win over those of ``other``.

    Raises:
        ContradictionError: they exclude each other.
    """
    if value_type is None or other is None or value_type == other:
        return value_type if value_type is not None else other
    if isinstance(value_type, OtherType) or isinstance(other, OtherType):
        raise ContradictionError
    if value_type.dtype and other.dtype and value_type.dtype != other.dtype:
        raise ContradictionError
    dtype: DataType = value_type.dtype or other.dtype
    if value_type.shape is None or other.shape is None:
        return TensorType(dtype, value_type.shape if value_type.shape is not None else other.shape)
    if len(value_type.shape) != len(other.shape):
        raise ContradictionError
    dims: list[Dim] = []
    for left, right in zip(value_type.shape, other.shape, strict=True):
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise ContradictionError
        dims.append(more_specific(left, right))
    return TensorType(dtype, tuple(dims))


def _names_elsewhere(model: Model) -> Iterator[str]:
    """Yield names of tensors in quantization annotations and sharding specifications."""
    for graph in model.graphs:
        for annotation in graph.proto.quantization_annotation:
            yield annotation.tensor_name
            for entry in annotation.quant_parameter_tensor_names:
                yield entry.value
        if model.has_device_configurations:
            for node in graph.nodes:
                for configuration in node.proto.device_configurations:
                    for spec in configuration.sharding_spec:
                        yield spec.tensor_name
