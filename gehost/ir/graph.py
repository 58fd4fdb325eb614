"""The index over the protobuf: nodes, values, uses, and editing methods.

The ``GraphProto`` is the graph; ``Graph``, ``Node`` and ``Value`` point into it. A node without
edits keeps the bytes it was loaded with. Every edit goes through a ``Graph`` method, which writes
the protobuf and the index together and adds an entry to the model's journal, so that it can be
undone.

Nodes form a doubly linked list in topological order and have an integer ``order``: ``a.order <
b.order`` whenever ``b`` reads an output of ``a``. A node whose body reads a value counts as a user
of it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import onnx

from gehost.errors import GehostError
from gehost.ir import edits, tensors
from gehost.ir.attributes import encode_attribute
from gehost.ir.flush import flush_nodes
from gehost.ir.node import (
    GRAPH_KINDS,
    Node,
    NodeTemplate,
    Value,
    by_order,
    in_order,
    op_name,
    spelled,
    split_op,
)
from gehost.ir.node_table import NodeTable
from gehost.ir.types import TensorType, ValueType, dtype_from_number
from gehost.ir.wide import Slots

if TYPE_CHECKING:
    import networkx as nx

    from gehost.ir.model import Model

__all__ = [
    "CONSTANTS_OF_ALL_TYPES",
    "GRAPH_KINDS",
    "Graph",
    "Node",
    "NodeTemplate",
    "Value",
    "by_order",
    "iter_graphs",
    "op_name",
    "spelled",
    "split_op",
]

CONSTANTS_OF_ALL_TYPES = 9
"""The first opset in which a ``Constant`` node may have other element types than floats."""


class Nodes:
    """The nodes of a graph in topological order, with length and index.

    It is also its own iterator: ``next(graph.nodes)`` is the first node.
    """

    __slots__ = ("_graph", "_walk")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._walk: Iterator[Node] | None = None

    def __iter__(self) -> Iterator[Node]:
        node = self._graph.head
        while node is not None:
            following = node.next
            yield node
            node = following

    def __next__(self) -> Node:
        if self._walk is None:
            self._walk = iter(self)
        return next(self._walk)

    def __len__(self) -> int:
        return len(self._graph)

    def __bool__(self) -> bool:
        return self._graph.head is not None

    def __getitem__(self, index: Any) -> Any:
        """Return the node at a position, or a list for a slice."""
        if isinstance(index, slice):
            return list(self)[index]
        place = operator.index(index)
        count = len(self)
        if not -count <= place < count:
            raise IndexError(f"{self._graph!r} has {count} nodes, so no index {place}")
        return next(islice(self, place % count, None))

    def __reversed__(self) -> Iterator[Node]:
        return iter(list(self)[::-1])

    def __repr__(self) -> str:
        return f"<{len(self)} nodes of {self._graph!r}>"


class Graph:
    """The root graph of a model, or a body.

    If, Loop, Scan and any node with a graph attribute have bodies.
    """

    __slots__ = (
        "by_op",
        "depth",
        "dirty",
        "dropped",
        "head",
        "inputs",
        "model",
        "outputs",
        "owner",
        "proto",
        "protos",
        "remade",
        "slots",
        "table",
        "tail",
        "values",
    )

    def __init__(self, model: Model, proto: onnx.GraphProto, owner: Node | None = None) -> None:
        self.model = model
        self.proto = proto
        self.protos = proto.node
        self.table = NodeTable(self.protos)
        self.owner = owner
        self.depth: int = 0 if owner is None else owner.graph.depth + 1
        self.values: dict[str, Value] = {}
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.slots: Slots[Value] | None = None
        """Positions of the outputs by value, built on demand."""
        self.by_op: dict[str, dict[Node, None]] = {}
        self.head: Node | None = None
        self.tail: Node | None = None
        self.dirty = False
        self.dropped: list[onnx.TensorProto | onnx.SparseTensorProto] = []
        self.remade: set[str] = set()
        """Names that stand for another tensor than in the file, whose types of them are dropped:
        values that were created since loading, or redefined.
        """

    def __reduce__(self) -> Any:
        from gehost.ir.copies import reduced_graph

        return reduced_graph(self)

    def __repr__(self) -> str:
        return f"<Graph {self.proto.name}>"

    # reading

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def nodes(self) -> Nodes:
        """The nodes in topological order.

        The current one may be removed while iterating.

        ``len(graph.nodes)`` and ``graph.nodes[-1]`` work; indexing walks the list from an end.
        """
        return Nodes(self)

    def GetDirectNode(self) -> list[Node]:
        """Return the nodes of this graph, not of bodies, in topological order."""
        return list(self.nodes)

    def __len__(self) -> int:
        return sum(map(len, self.by_op.values()))

    def __bool__(self) -> bool:
        return True

    # Any: machine code would raise its own TypeError for other values
    def nodes_of(self, *ops: str | Any) -> list[Node]:
        """Return the nodes of these operators in topological order.

        Raises:
            GehostError: one is not the name of an operator.
        """
        for op in ops:
            if not isinstance(op, str):
                raise GehostError(f'nodes_of wants names of operators, as in "Add", got {op!r}')
        nodes = [node for op in dict.fromkeys(ops) for node in self.by_op.get(op, ())]
        nodes.sort(key=by_order)
        return nodes

    def find(self, name: str) -> Value | None:
        """Return the value of a name.

        It is this graph's own, or the nearest enclosing graph's.
        """
        graph: Graph | None = self
        while graph is not None:
            if (value := graph.values.get(name)) is not None:
                return value
            graph = graph.owner.graph if graph.owner is not None else None
        return None

    def level_of(self, node: Node) -> Node:
        """Return this graph's node that is ``node`` or holds it."""
        while node.graph is not self:
            owner = node.graph.owner
            if owner is None:
                raise GehostError(f"{node!r} is not inside {self!r}")
            node = owner
        return node

    def reading_node(self, reader: Node | Graph) -> Node | None:
        """Return the node of this graph that is ``reader`` or holds it.

        Returns None if ``reader`` is this graph, which reads its outputs.
        """
        if isinstance(reader, Node):
            return self.level_of(reader)
        return None if reader is self or reader.owner is None else self.level_of(reader.owner)

    def slots_of(self, value: Value) -> list[int]:
        """Return the positions of ``value`` among the outputs, in order."""
        if self.slots is None:
            self.slots = Slots(self.outputs)
        return self.slots.of(value)

    def subgraphs(self) -> list[Graph]:
        """Return all nested bodies, depth first, outer ones first."""
        graphs: list[Graph] = []
        for node in self.nodes_of(*self.model.body_ops):
            for body in node.bodies:
                graphs.append(body)
                graphs.extend(body.subgraphs())
        return graphs

    def captured(self) -> list[tuple[Node | Graph, int, Value]]:
        """Return all reads of outside values here and in inner bodies."""
        inside = dict.fromkeys([self, *self.subgraphs()])
        uses: list[tuple[Node | Graph, int, Value]] = []
        for graph in inside:
            for node in graph.nodes:
                uses.extend(
                    (node, slot, v)
                    for slot, v in enumerate(node.inputs)
                    if v is not None and v.graph not in inside
                )
            uses.extend(
                (graph, slot, v) for slot, v in enumerate(graph.outputs) if v.graph not in inside
            )
        return uses

    def to_networkx(self) -> nx.MultiDiGraph[Node]:
        """Return the nodes and the tensors between them as a networkx graph, for analyses.

        Its nodes are the ``Node``s, with ``op``. An edge goes from producer to user for each
        tensor that the user, or a body of it, reads; its attribute ``tensor`` is the ``Value``.
        """
        import networkx as nx

        result: nx.MultiDiGraph[Node] = nx.MultiDiGraph()
        for node in self.nodes:
            result.add_node(node, op=node.op)
        for node in self.nodes:
            for value in node.outputs:
                for reader in value.readers if value is not None else ():
                    user = self.reading_node(reader)
                    if user is not None:
                        result.add_edge(node, user, tensor=value)
        return result

    # editing: each method writes protobuf, index and journal

    def add_node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | str | None],
        attributes: Mapping[str, Any] | Sequence[onnx.AttributeProto] = (),
        *,
        name: str = "",
        after: Node | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Node:
        """Add a node that reads ``inputs`` and defines ``outputs``.

        Args:
            op: the operator's name, ``domain::Type`` outside ONNX's own domain.
            inputs: None leaves an input absent.
            outputs: a name creates a new value; an existing value gets this node as its producer;
                None leaves the output absent.
            attributes: Python values by name, or encoded ones; they are copied, and graphs
                become the node's bodies.
            name: the node's name.
            after: the node to insert after; None: first. Users of the outputs must come later.
            metadata: its ``metadata_props``.

        Raises:
            GehostError: an output has the name of another tensor, or ``after`` is not in this
                graph.
            TypeError: ONNX has no attribute type for a value.
        """
        encoded = attributes
        if isinstance(encoded, Mapping):
            encoded = [encode_attribute(key, value) for key, value in encoded.items()]
        return self.add_like(
            NodeTemplate.of(op, encoded, metadata or {}), inputs, outputs, name=name, after=after
        )

    def add_like(
        self,
        template: NodeTemplate,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | str | None],
        *,
        name: str = "",
        after: Node | None = None,
        text: str = "",
    ) -> Node:
        """Add a node with operator, attributes and metadata of a template.

        ``text`` is the metadata text that the template leaves open.
        """
        self._own([] if after is None else [after])
        journal = self.model.journal
        mark = journal.mark()
        values: list[Value | None] = []
        try:
            for output in outputs:
                if isinstance(output, str):
                    values.append(self.new_value(output))
                    continue
                if output is not None:  # a new value needs no record: undo removes it
                    edits.record_producer(output)
                values.append(output)
        except GehostError:
            journal.undo(mark)
            raise
        return edits.add_node(self, template, inputs, values, name, after, text)

    def remove_node(self, node: Node) -> None:
        """Remove a node whose outputs have no users, and its bodies.

        Raises:
            GehostError: an output is still used, or the node is not in this graph.
        """
        self.remove_nodes([node])

    def remove_nodes(self, nodes: Sequence[Node]) -> None:
        """Remove nodes whose outputs have no other users, and their bodies.

        Raises:
            GehostError: an output is still used, or a node is not in this graph; none is removed.
        """
        nodes = in_order(nodes)
        self._own(nodes)
        edits.remove_nodes(self, nodes)

    def new_value(self, name: str) -> Value:
        """Return a new value of this graph, without a producer.

        Raises:
            GehostError: the name is in use here.
        """
        if self.find(name) is not None:
            raise GehostError(
                f'graph "{self.name}" has a tensor "{name}" already', hint="use Model.fresh_name"
            )
        self.model.names.use(name)
        return edits.new_value(self, name)

    def set_input(self, node: Node, slot: SupportsIndex, value: Value | None) -> None:
        """Make ``node`` read ``value`` at ``slot``.

        The caller must keep the order topological.
        """
        place = operator.index(slot)
        if node.inputs[place] is not value:
            edits.set_input(node, place, value)

    def redirect(self, old: Value, new: Value) -> None:
        """Make every node that reads ``old`` read ``new``; graph outputs stay."""
        for reader, slot in old.uses:
            if isinstance(reader, Node):
                self.set_input(reader, slot, new)

    def release(self, value: Value) -> Value:
        """Separate ``value`` from its producer, so that another node can define it.

        Returns the unused value that the producer defines instead.
        """
        substitute = self.new_value(self.model.fresh_name(f"{value.name}_replaced"))
        substitute.known_type = value.known_type
        edits.release(value, substitute)
        return substitute

    def set_attribute(self, node: Node, name: str, value: Any) -> None:
        """Set an attribute; None removes it.

        Raises:
            GehostError: the old or the new value is a nested graph.
            TypeError: ONNX has no attribute type for the value.
        """
        entries = node.proto.attribute
        position = edits.find_entry([entry.name for entry in entries], name)
        old = new = None
        if position is not None:
            old = onnx.AttributeProto()
            old.CopyFrom(entries[position])
        if value is not None:
            new = encode_attribute(name, value)
        if any(attribute is not None and attribute.type in GRAPH_KINDS for attribute in (old, new)):
            raise GehostError(
                f'attribute "{name}" of {node!r} is a nested graph and cannot be set',
                hint="add a new node",
            )
        edits.set_attribute(node, name, new, old, position)

    def set_metadata(self, node: Node, key: str, text: str) -> None:
        """Set one ``metadata_props`` entry of a node."""
        edits.set_metadata(self.model, node, key, text)

    def set_device_configurations(
        self, node: Node, configurations: Sequence[onnx.NodeDeviceConfigurationProto]
    ) -> None:
        """Set the device configurations of a node; they are copied.

        Raises:
            TypeError: an entry is not a ``NodeDeviceConfigurationProto``.
        """
        # built in a separate message, so that a wrong entry leaves the old list complete
        new = onnx.NodeProto(device_configurations=configurations)
        edits.set_device_configurations(node, new.device_configurations)

    def takes_constant(self, dtype: np.dtype[Any]) -> bool:
        """Whether ``add_initializer`` can add a constant of this type.

        Below IR version 4 it adds a ``Constant`` node.
        """
        return self.model.ir_version >= 4 or self.takes_constant_node(dtype)

    def takes_constant_node(self, dtype: np.dtype[Any]) -> bool:
        """Whether a ``Constant`` node may have this type; old opsets only have floats."""
        return (self.model.opset() or 0) >= CONSTANTS_OF_ALL_TYPES or dtype.kind == "f"

    def add_initializer(self, array: np.ndarray[Any, Any], name: str) -> Value:
        """Add a constant.

        Below IR version 4 it is a ``Constant`` node, since initializers must be inputs there.
        """
        tensor = tensors.from_numpy(array, name)
        if self.model.ir_version < 4:
            value = self.add_node("Constant", [], [name], {"value": tensor}, name=name).outputs[0]
            assert value is not None
        else:
            value = self.new_value(name)
            edits.add_initializer(value, tensor)
        value.known_type = TensorType(dtype_from_number(tensor.data_type), tuple(tensor.dims[:]))
        return value

    def remove_initializer(self, value: Value) -> None:
        """Remove an initializer without users that is not a graph input.

        Raises:
            GehostError: it has users, or is a graph input.
        """
        if value.initializer is None or value.is_input or value.readers:
            raise GehostError(
                f'initializer "{value.name}" cannot be removed: it is used, or a graph input'
            )
        edits.remove_initializer(value)

    def set_type(self, value: Value, value_type: ValueType | None) -> None:
        """Set the type of a value, in the index only."""
        if value.known_type is not value_type:
            edits.set_type(value, value_type)

    def redefine(self, value: Value, value_type: ValueType | None) -> None:
        """Set the type of a value that stands for another tensor than before.

        The type that the file declares for its name is dropped.
        """
        edits.redefine(value, value_type)

    def move_after(self, node: Node, anchor: Node | None) -> None:
        """Move a node after ``anchor`` (None: to the front).

        The caller must keep the order topological.

        Raises:
            GehostError: one of them is not in this graph.
        """
        self._own([node] if anchor is None else [node, anchor])
        edits.move_after(self, node, anchor)

    def _own(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            group = self.by_op.get(node.op)
            if node.graph is not self or group is None or node not in group:
                raise GehostError(f'{node!r} is not in graph "{self.name}" (any more)')

    def flush(self) -> None:
        """Update the protobuf's lists from the index: order nodes, drop removed entries."""
        if self.dirty:
            flush_nodes(self)
            self.dirty = False


def iter_graphs(graphs: Iterable[Graph]) -> Iterator[Graph]:
    """Yield each graph and its nested bodies, depth first."""
    for graph in graphs:
        yield graph
        yield from graph.subgraphs()
