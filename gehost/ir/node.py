"""Values and nodes: the elements of a graph's index.

Only ``Graph`` edits them.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, SupportsIndex

import numpy as np
import onnx

from gehost.errors import GehostError
from gehost.ir import tensors
from gehost.ir.attributes import NO_ATTRIBUTES, Attributes
from gehost.ir.effective import effective
from gehost.ir.ge import GNodeAccessors, SourceNode
from gehost.ir.node_table import NodeTable
from gehost.ir.types import DataType, Dim, TensorType, ValueType, decode_type, tensor_type
from gehost.ir.wide import WIDE, Slots
from gehost.refusal import Refusal, refusal_by

if TYPE_CHECKING:
    from gehost.ir.graph import Graph

GRAPH_KINDS: Final = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)

_KEPT_BYTES = 1 << 16
"""Largest array in bytes that is cached once it was read."""

_SHORT: Final = 256
"""Largest size in bytes of encoded attributes that are cached."""

PROVIDED_BY: Final = "gehost.provided_by"
"""Metadata key: the runtime that has the operator of a node which a pass added."""
INPUT: Final = -1

_FEW: Final = 4
"""Number of readers up to which a tuple is as fast as a dict; it takes a third of the memory."""


class Value:
    """One tensor (or sequence, …) of a graph, by its single definition.

    Most tensors have one reader, and a large model has many tensors: ``read_by`` is None, that
    reader, a tuple of a few readers, or a dict of many. A graph is a reader of its outputs; readers
    in nested bodies are included. Use ``readers`` or ``uses`` for access.
    """

    __slots__ = (
        "_array",
        "graph",
        "index",
        "initializer",
        "known_type",
        "name",
        "producer",
        "read_by",
    )

    def __init__(
        self, graph: Graph, name: str, producer: Node | None = None, index: int = 0
    ) -> None:
        self.graph = graph
        self.name = name
        self.producer = producer
        self.index = index
        """The output slot of the producer; ``INPUT`` for inputs of the graph."""
        self.read_by: Node | Graph | tuple[Node | Graph, ...] | dict[Node | Graph, None] | None = (
            None
        )
        self.initializer: onnx.TensorProto | onnx.SparseTensorProto | None = None
        self.known_type: ValueType | onnx.TypeProto | None = None
        """The declared or inferred type, not decoded until ``type`` is read."""
        self._array: tuple[object, np.ndarray[Any, Any]] | None = None

    def __reduce__(self) -> Any:
        from gehost.ir.copies import reduced_value

        return reduced_value(self)

    def __repr__(self) -> str:
        return f"<Value {self.name} {self.type or 'untyped'}>"

    @property
    def type(self) -> ValueType | None:
        """The declared or inferred type of this value; None if neither exists."""
        value_type = self.known_type
        if type(value_type) is TensorType:
            return value_type
        tensor = self.initializer
        if isinstance(value_type, onnx.TypeProto):
            value_type = self.known_type = (
                None
                if isinstance(tensor, onnx.TensorProto) and self.index != INPUT
                else decode_type(value_type)
            )
        if value_type is None and isinstance(tensor, onnx.TensorProto):
            value_type = self.known_type = tensor_type(tensor.data_type, tuple(tensor.dims[:]))
        return value_type

    @property
    def node(self) -> Node | SourceNode:
        """The producer; without one, a stand-in with the same accessors.

        The stand-in is ``Data`` for a graph input, ``Const`` for an initializer.
        """
        return SourceNode(self) if self.producer is None else self.producer

    @property
    def is_input(self) -> bool:
        """Whether this is a graph input, perhaps with an initializer as default."""
        return self.index == INPUT

    @property
    def dtype(self) -> DataType | None:
        """Element type; None if unknown, or if this is not a tensor."""
        value_type = self.type
        return (value_type.dtype or None) if isinstance(value_type, TensorType) else None

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """Dimensions; None if even the rank is unknown.

        A dimension is a number, a name or an expression of names. Equal texts are equal sizes; two
        names may be equal or not. Inference gives unknown sizes a name (``?3``), so that None only
        occurs in types that it has not processed.
        """
        value_type = self.known_type
        if type(value_type) is TensorType:
            return value_type.shape
        value_type = self.type
        return value_type.shape if isinstance(value_type, TensorType) else None

    @property
    def may_be_empty(self) -> bool:
        """Whether a size may be 0: it is, or no number is known for it."""
        shape = self.shape
        return shape is None or not all(isinstance(size, int) and size > 0 for size in shape)

    @property
    def rank(self) -> int | None:
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def elements(self) -> tuple[Dim, ...] | None:
        """The elements of an integer scalar or vector, at most 64.

        It is None if the number of elements is unknown.

        Each is a number, a size as in ``shape``, or None. Constants are read, and computed shapes
        are traced back to their inputs: for ``Concat(Shape(x)[:2], [12, 64])`` the elements may be
        ``("batch", "?3", 12, 64)``.
        """
        vector = self.graph.model.integers.vector(self)
        if vector is None:
            return None
        return tuple([dim if dim is None or isinstance(dim, int) else str(dim) for dim in vector])

    @property
    def is_constant(self) -> bool:
        """Whether the value is constant.

        It is one if it is an initializer that no caller can override, or a ``Constant``'s
        output.
        """
        if self.initializer is not None:
            return self.index != INPUT or self.graph.model.ir_version < 4
        return self.producer is not None and self.producer.op == "Constant"

    @property
    def array(self) -> np.ndarray[Any, Any] | None:
        """The constant's elements (read-only), None if not constant or sparse.

        Read on demand; external data is memory-mapped. Small arrays are cached.
        """
        if not self.is_constant:
            return None
        source = self.initializer if self.producer is None else self.producer.attrs
        if self._array is not None and self._array[0] is source:
            return self._array[1]
        base_dir = self.graph.model.base_dir
        array: np.ndarray[Any, Any] | None
        if isinstance(source, onnx.TensorProto):
            array = tensors.to_numpy(source, base_dir)
        elif isinstance(source, Attributes):
            array = source.constant_array(base_dir)
        else:
            array = None
        if array is not None and array.nbytes <= _KEPT_BYTES:
            if isinstance(source, onnx.TensorProto) and source.external_data:
                # a cached view would keep a mapping of the file open, one for each tensor
                array = array.copy()
                array.flags.writeable = False
            self._array = (source, array)
        return array

    @property
    def readers(self) -> Collection[Node | Graph]:
        """The users, each once: nodes, also in bodies, and graphs (as outputs)."""
        reader = self.read_by
        if reader is None:
            return ()
        if isinstance(reader, Node):
            return (reader,)
        return reader if isinstance(reader, (tuple, dict)) else (reader,)

    @property
    def uses(self) -> list[tuple[Node | Graph, int]]:
        """Every use as ``(node, input slot)``, or ``(graph, output slot)`` for outputs."""
        results: list[tuple[Node | Graph, int]] = []
        for reader in self.readers:
            read = reader.inputs if isinstance(reader, Node) else reader.outputs
            if len(read) > WIDE:
                results.extend([(reader, slot) for slot in reader.slots_of(self)])
            else:
                results.extend([(reader, slot) for slot, value in enumerate(read) if value is self])
        return results

    def add_reader(self, reader: Node | Graph) -> None:
        """Add ``reader`` to the users of this value, unless it is one."""
        first = self.read_by
        if first is None:
            self.read_by = reader
        elif isinstance(first, dict):
            first[reader] = None
        elif isinstance(first, tuple):
            if reader not in first:
                self.read_by = (
                    (*first, reader) if len(first) < _FEW else dict.fromkeys((*first, reader))
                )
        elif first is not reader:
            self.read_by = (first, reader)

    def drop_reader(self, reader: Node | Graph) -> None:
        """Remove ``reader`` from the users of this value."""
        first = self.read_by
        if first is reader:
            self.read_by = None
        elif isinstance(first, tuple):
            if reader in first:
                place = first.index(reader)
                self.read_by = (
                    first[:place] + first[place + 1 :] if len(first) > 2 else first[1 - place]
                )
        elif isinstance(first, dict):
            first.pop(reader, None)
            if len(first) <= _FEW:
                self.read_by = tuple(first)

    @property
    def is_graph_output(self) -> bool:
        return any(not isinstance(reader, Node) for reader in self.readers)

    def consumers(self) -> list[tuple[Node, int]]:
        """Return the user nodes with their slots, in topological order."""
        results = [(reader, slot) for reader, slot in self.uses if isinstance(reader, Node)]
        if len(results) > 1:
            results.sort(key=lambda use: (use[0].path_from(self.graph), use[1]))
        return results

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the constant's elements; raises ``GehostError`` if there are none to read."""
        array = self.array
        if array is None:
            raise GehostError(f'tensor "{self.name}" is not a constant')
        return array


class Node(GNodeAccessors):
    """One operator application: a ``NodeProto`` whose inputs and outputs are values.

    ``op`` is the interned operator name: ``"MatMul"``, or ``"ge::GEMM"`` outside the default
    domain.
    """

    __slots__ = (
        "_attrs",
        "_encoded",
        "bodies",
        "generation",
        "graph",
        "inputs",
        "is_traced",
        "next",
        "op",
        "order",
        "outputs",
        "place",
        "prev",
        "slots",
        "table",
    )

    def __init__(self, graph: Graph, place: int, op: str) -> None:
        self.graph = graph
        self.place = place
        """The index of the node's protobuf in ``table``."""
        self.table: NodeTable = graph.table
        self.op = op
        self.inputs: Sequence[Value | None] = ()
        """A tuple, or ``Wide``, which behaves like one."""
        self.outputs: Sequence[Value | None] = ()
        self.slots: Slots[Value] | None = None
        """Index of wide inputs, built on demand."""
        self.bodies: tuple[Graph, ...] = ()
        self.order = 0
        self.generation = 0
        self.is_traced = graph.model.is_traced
        """False if the protobuf's metadata certainly has no entry of gehost."""
        self.prev: Node | None = None
        self.next: Node | None = None
        self._attrs: Attributes | None = None
        self._encoded: tuple[bytes, ...] | None = None
        """``encoded_attrs`` if known; the index sets it for a node without attributes."""

    def __reduce__(self) -> Any:
        from gehost.ir.copies import reduced_node

        return reduced_node(self)

    def __repr__(self) -> str:
        return f"<Node {self.label}>"

    @property
    def proto(self) -> onnx.NodeProto:
        """The node's protobuf, looked up on access.

        Its Python object is larger than a Node.
        """
        result: onnx.NodeProto = self.table.protos[self.place]
        return result

    @property
    def op_type(self) -> str:
        return self.proto.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; "" for ONNX's own in either spelling."""
        return self.op.rpartition("::")[0]

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def label(self) -> str:
        """The node's name, else its first output's, for messages and provenance."""
        names, place = self.table.names, self.place  # each replaced node's label is read
        name = names[place] if place < len(names) else self.name
        return name or next((value.name for value in self.outputs if value is not None), self.op)

    @property
    def attrs(self) -> Attributes:
        """The attributes as a read-only mapping of Python values, decoded on access."""
        if self._attrs is None:
            entries = self.proto.attribute[:] if self._encoded != () else []
            self._attrs = Attributes(self, entries) if entries else NO_ATTRIBUTES
        return self._attrs

    def attr(self, name: str, default: Any = None) -> Any:
        """Return what counts for an attribute: its value, or the specification's default.

        Of ``Conv``, say, ``strides`` are ones where the node leaves them out, if the rank is known;
        a text has the newest opset's spelling. ``default`` if nothing says what counts.
        """
        value = effective(self, name)
        return default if value is None else value

    def reject(self, reason: str | Any) -> Refusal:  # Any: ``refusal_by`` checks it
        """Refuse this node in a ``DecomposePass``: ``return node.reject("group: 1 is left")``.

        Refusals are counted by the text before the colon.
        """
        return refusal_by(reason, "node.reject")

    @property
    def encoded_attrs(self) -> tuple[bytes, ...]:
        """The serialized attributes, in the file's order, as a cache key.

        Short ones, which many nodes share, are cached, except for bodies, which are edited
        in place.
        """
        encoded = self._encoded
        if encoded is None:
            entries = self.proto.attribute[:]
            if not entries:
                self._encoded = ()
                return ()
            encoded = tuple([entry.SerializeToString() for entry in entries])
            if not self.bodies and sum(map(len, encoded)) <= _SHORT:
                encoded = self._encoded = _share(encoded)
        return encoded

    def forget_attrs(self) -> None:
        """Drop cached attributes, as the protobuf has changed."""
        self._attrs = self._encoded = None

    @property
    def metadata(self) -> dict[str, str]:
        return {prop.key: prop.value for prop in self.proto.metadata_props[:]}

    @property
    def device_configurations(self) -> tuple[onnx.NodeDeviceConfigurationProto, ...]:
        """The node's devices and tensor splits (copies; assign to change them)."""
        result = onnx.NodeProto()
        result.device_configurations.extend(self.proto.device_configurations)
        return tuple(result.device_configurations)

    @device_configurations.setter
    def device_configurations(
        self, configurations: tuple[onnx.NodeDeviceConfigurationProto, ...]
    ) -> None:
        self.graph.set_device_configurations(self, configurations)

    @property
    def in_graph(self) -> bool:
        """Whether the node is in its graph.

        It is false once the node, or one that holds it in a body, has been removed.
        """
        owner = self.graph.owner
        return self in self.graph.by_op.get(self.op, ()) and (owner is None or owner.in_graph)

    def input(self, index: SupportsIndex) -> Value | None:
        """Return the value at ``index``, None if absent or past the end."""
        place = operator.index(index)
        return self.inputs[place] if place < len(self.inputs) else None

    def slots_of(self, value: Value) -> list[int]:
        """Return the slots that read ``value`` in order, indexed if many."""
        if len(self.inputs) <= WIDE:
            return [slot for slot, read in enumerate(self.inputs) if read is value]
        if self.slots is None:
            self.slots = Slots(self.inputs)
        return self.slots.of(value)

    def reads(self, value: Value) -> bool:
        """Whether ``value`` is an input; found by an index if many."""
        if len(self.inputs) <= WIDE:
            return value in self.inputs
        if self.slots is None:
            self.slots = Slots(self.inputs)
        return value in self.slots

    def path_from(self, graph: Graph) -> tuple[int, ...]:
        """Return the node's place inside ``graph`` or its bodies.

        Paths sort in running order.
        """
        path = [self.order]
        node = self
        while node.graph is not graph:
            owner = node.graph.owner
            if owner is None:
                raise GehostError(f"{self!r} is not inside {graph!r}")
            path += (owner.bodies.index(node.graph), owner.order)
            node = owner
        return tuple(reversed(path))


@lru_cache(maxsize=1024)
def _share(encoded: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the same object for equal attributes."""
    return encoded


by_order = attrgetter("order")
"""Sort key of nodes of one graph: their topological order."""


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes of one graph in topological order, mostly sorted already."""
    last: Node | None = None
    for node in nodes:
        if last is not None and node.order < last.order:
            return sorted(nodes, key=by_order)
        last = node
    return list(nodes)


def op_name(domain: str, op_type: str, overload: str = "") -> str:
    """Return ``op_type``, ``domain::op_type`` outside ONNX's domain; ``:overload`` if given."""
    name = op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
    return f"{name}:{overload}" if overload else name


def split_op(op: str) -> tuple[str, str]:
    """Split an operator name into domain ("" for ONNX) and type."""
    domain, _, op_type = op.rpartition("::")
    return ("" if domain == "ai.onnx" else domain), op_type


class Spelling(NamedTuple):
    """The parts of an operator name as stored, and the name, interned."""

    domain: str
    op_type: str
    overload: str
    op: str


@lru_cache(maxsize=1024)
def spelled(op: str) -> Spelling:
    """Split an operator name into the parts that a node stores."""
    domain, name = split_op(op)
    op_type, _, overload = name.partition(":")
    return Spelling(domain, op_type, overload, sys.intern(op_name(domain, op_type, overload)))


class NodeTemplate(NamedTuple):
    """The common part of many new nodes; see ``Graph.add_like``.

    Attributes:
        op: the operator's name.
        content: a serialized ``NodeProto`` without name, inputs and outputs.
        blank: index of the ``metadata_props`` entry that each node fills in.
        has_bodies: whether attributes are graphs.
    """

    op: str
    content: bytes
    blank: int | None = None
    has_bodies: bool = False

    @classmethod
    def of(
        cls,
        op: str,
        attributes: Sequence[onnx.AttributeProto],
        metadata: Mapping[str, str],
        blank: str | None = None,
    ) -> NodeTemplate:
        """Build one from encoded attributes and metadata, ``blank`` left open."""
        spelling = spelled(op)
        proto = onnx.NodeProto(op_type=spelling.op_type, attribute=attributes)
        if spelling.domain:
            proto.domain = spelling.domain
        if spelling.overload:
            proto.overload = spelling.overload
        for key, text in metadata.items():
            proto.metadata_props.add(key=key, value=text)
        place = None if blank is None else list(metadata).index(blank)
        return cls(
            spelling.op,
            proto.SerializeToString(),
            place,
            any(entry.type in GRAPH_KINDS for entry in attributes),
        )
