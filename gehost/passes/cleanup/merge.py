"""Merge equal nodes and equal constants.

1. Two nodes of one graph with the same operator, attributes and inputs: the users of the second
   read the first, which comes before it. Constants of at most 4 KiB with equal contents count as
   the same input, and so do equal biases that nodes make of constants.
2. Two constants of one graph with the same content: one stays. Of floats only scalars, and
   weights above 4 KiB of two axes or more in the model's file.
A vector of floats that two nodes read keeps runtimes from fusing it into either: OpenVINO's Conv
takes no bias that another Conv reads. So a node stays that makes a bias of constants, as
ConstantOfShape does.
Refused: random and unknown operators, nodes with bodies, outputs that do not correspond, a second
whose output is a graph output (which keeps its name), constants that are graph inputs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from gehost.ir.constants import SMALL, content, elements, stored_bytes, tensor_of
from gehost.ir.files.external import is_external
from gehost.ir.graph import Node, Value
from gehost.passes.cleanup.dead import retire
from gehost.passes.cleanup.state import State

_Key: TypeAlias = tuple[Hashable, ...]


class Merger:
    """Finds equal nodes and constants with keys of those seen before."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._contents: dict[Value, Hashable] = {}
        """The representative of a value in a key: the content of a small constant, or itself."""
        self._constants: dict[_Key, Value] = {}
        self._seen: dict[_Key, Node] = {}
        """The first node of each operator and inputs; without a second one, its attributes are
        never read.
        """
        self._exact: dict[_Key, Node] = {}

    def merge_initializers(self) -> None:
        for graph in self._state.graphs:
            if graph in self._state.open:
                for value in list(graph.values.values()):
                    if value.initializer is not None:
                        self.merge_constant(value)

    def merge_result(self, value: Value) -> bool:
        """Merge the constant that a value has become."""
        self._contents.pop(value, None)
        return self.merge_constant(value)

    def merge_added(self) -> None:
        """Merge the constants that edits added."""
        while self._state.added:
            self.merge_constant(self._state.added.pop())

    def merge_constant(self, value: Value) -> bool:
        """Merge an initializer or a ``Constant``'s output with its graph's equal one."""
        entry = self._shared_content(value)
        if entry is value or value.is_input or value.graph.values.get(value.name) is not value:
            return False
        key = (value.graph, entry)
        other = self._constants.get(key)
        if other is None or other is value or other.graph.values.get(other.name) is not other:
            self._constants[key] = value
            return False
        if isinstance(entry, _Start) and not _are_equal(value, other):
            return False
        # initializers stay rather than nodes, then the earlier constant, which has more users
        pairs = [(other, value), (value, other)]
        if value.producer is None and other.producer is not None:
            pairs.reverse()
        for retained, dropped in pairs:
            if _precedes_readers(retained, dropped) and self._state.can_forward(dropped, retained):
                break
        else:
            return False
        self._constants[key] = retained
        self._state.forward(dropped, retained)
        self._state.counts.merged += dropped not in self._state.made
        if dropped.producer is not None:
            retire(self._state, dropped.producer)
        else:
            self._state.freed += stored_bytes(dropped) or 0
            dropped.graph.remove_initializer(dropped)
        return True

    def merge(self, node: Node) -> bool:
        """Merge a node with an equal one seen before."""
        if node.op == "Constant":
            return node.outputs[0] is not None and self.merge_constant(node.outputs[0])
        if node.bodies:
            return False
        key = self._key(node)
        first = self._seen.setdefault(key, node)
        if first is node:
            return False
        if self._still(first, key):
            self._exact.setdefault((key, first.attrs.serialized()), first)
        else:
            self._seen[key] = node
        exact = (key, node.attrs.serialized())
        other = self._exact.get(exact)
        if other is None or other is node or not self._still(other, key):
            self._exact[exact] = node
            return False
        retained, dropped = (other, node) if other.order < node.order else (node, other)
        outputs = zip(dropped.outputs, retained.outputs, strict=True)
        pairs = [(old, new) for old, new in outputs if old is not None and new is not None]
        if not all(self._state.can_forward(old, new) for old, new in pairs):
            return False
        self._exact[exact] = retained
        if _reads_constants(node) and any(_is_bias(value) for pair in pairs for value in pair):
            for old, new in pairs:
                self._contents[old] = self._content(new)
            return False
        for old, new in pairs:
            self._state.forward(old, new)
        self._state.counts.merged += 1
        retire(self._state, dropped)
        return True

    def _key(self, node: Node) -> _Key:
        contents = self._contents
        inputs: list[Hashable] = []
        for value in node.inputs:
            if value is None:
                inputs.append(None)
            else:
                cached = contents.get(value)
                inputs.append(self._content(value) if cached is None else cached)
        present = tuple(value is not None for value in node.outputs)
        overload = node.proto.overload if ":" in node.op else ""
        return (node.graph, node.op, overload, tuple(inputs), present)

    def _content(self, value: Value) -> Hashable:
        cached = self._contents.get(value)
        if cached is None:
            cached = self._contents[value] = (
                content(value) if value.is_constant else None
            ) or value
        return cached

    def _shared_content(self, value: Value) -> Hashable:
        """Return a key for a constant that may be shared; the value itself for another."""
        dtype = value.dtype
        if dtype is None or not dtype.is_float or value.rank == 0:
            return value if _is_length(value) else self._content(value)
        tensor = tensor_of(value) if len(value.shape or ()) >= 2 else None
        if tensor is None or is_external(tensor) or (stored_bytes(value) or 0) <= SMALL:
            return value
        return _Start(tensor.data_type, tuple(tensor.dims[:]), tensor.raw_data[:_START])

    def _still(self, node: Node, key: _Key) -> bool:
        """Whether a node still exists, with the same inputs."""
        return self._state.alive(node) and self._key(node) == key


_START = 256
"""Bytes by which large constants are told apart before they are compared."""


class _Start(NamedTuple):
    """A key of large constants that may be equal."""

    dtype: int
    dims: tuple[int, ...]
    raw: bytes


def _are_equal(left: Value, right: Value) -> bool:
    """Whether two constants of one type and shape have the same bits."""
    arrays = [elements(value) for value in (left, right)]
    if arrays[0] is None or arrays[1] is None:
        return False
    return arrays[0].tobytes() == arrays[1].tobytes()


def _reads_constants(node: Node) -> bool:
    return all(value is None or value.is_constant for value in node.inputs)


def _is_bias(value: Value) -> bool:
    """Whether a convolution reads it as its bias."""
    return any(
        isinstance(item, Node)
        and item.op in ("Conv", "ConvTranspose")
        and value in item.inputs[2:3]
        for item in value.readers
    )


def _is_length(value: Value) -> bool:
    """Whether a node makes a vector of this length: of one length, runtimes make one vector."""
    readers = value.readers if value.shape == (1,) else ()
    return any(isinstance(item, Node) and item.op == "ConstantOfShape" for item in readers)


def _precedes_readers(constant: Value, other: Value) -> bool:
    """Whether a constant comes before every user of another one.

    Initializers always do.
    """
    producer, graph = constant.producer, constant.graph
    if producer is None:
        return True
    return all(
        graph.level_of(reader).order > producer.order
        for reader in other.readers
        if isinstance(reader, Node)
    )
