"""Builds ONNX graphs: tensors with HLO's shapes, operators in order.

Names come from the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gehost_hlo.kernels import carrier
from gehost_hlo.literals import NUMPY, ONNX, Array

DOMAIN = "hlo"
"""Domain of XLA's fusions, and of operators that are kept and not run."""


@dataclass(slots=True, eq=False)
class Tensor:
    """The result of an instruction: an array of ``dims``.

    ``stored`` is the shape of the ONNX tensor; it broadcasts to ``dims``. A broadcast thus costs
    nothing where all of its readers broadcast by themselves. A constant has no name: each body that
    reads it gets an ONNX tensor of its value.
    """

    name: str
    type: str
    dims: tuple[int, ...]
    stored: tuple[int, ...]
    constant: Array | None = None
    hint: str = ""
    """Name that a constant gets where it is first read."""

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def number(self) -> Any:
        """The one number that a constant holds throughout; None for others."""
        if self.constant is None or self.constant.size != 1:
            return None
        return self.constant.reshape(-1)[0]


Value: TypeAlias = Tensor | tuple["Value", ...]


def leaves(value: Value) -> list[Tensor]:
    """Return the tensors of a value, depth first."""
    if isinstance(value, Tensor):
        return [value]
    return [leaf for element in value for leaf in leaves(element)]


@dataclass(slots=True, eq=False)
class Op:
    """One operator, before it becomes a ``NodeProto``."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    domain: str
    name: str
    metadata: dict[str, str]

    def captured(self) -> frozenset[str]:
        """Return the names that its bodies read from outside."""
        outside: set[str] = set()
        for inner in self.bodies():
            outside |= inner.body.captured(tensor.name for tensor in inner.inputs)
        return frozenset(outside)

    def bodies(self) -> list[Nested]:
        return [value for value in self.attributes.values() if isinstance(value, Nested)]


@dataclass(slots=True, eq=False)
class Nested:
    """A body of Loop or If as an attribute."""

    name: str
    body: Body
    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass(eq=False)
class Names:
    """The names of a graph and of all bodies in it."""

    reserved: frozenset[str] = frozenset()
    """Names that the outermost computation needs."""
    used: set[str] = field(default_factory=set[str])
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    """Helper tensors that became the result of an instruction, to the name that they got."""
    _placed: set[str] = field(default_factory=set[str])

    def resolve(self, name: str) -> str:
        return self.renamed.get(name, name)

    def choose(self, preferred: str, scope: str) -> str:
        """Choose a free name near ``preferred``, and take it.

        It is ``preferred`` while that is free, else ``scope/wanted``, else one with a number.
        """
        if preferred in self.used or (scope and preferred in self.reserved):
            preferred = f"{scope}/{preferred}" if scope else preferred
            candidate, number = preferred, 2
            while candidate in self.used:
                candidate, number = f"{preferred}#{number}", number + 1
            preferred = candidate
        self.used.add(preferred)
        return preferred

    def place_constant(self, name: str) -> str:
        """Return a constant's chosen name for its first tensor.

        Returns "" for the tensors that further bodies need.
        """
        if name in self._placed:
            return ""
        self._placed.add(name)
        return name


class Body:
    """A graph, function or body while it is built.

    The body is one of Loop or If.
    """

    def __init__(self, names: Names, *, constants_as_nodes: bool = False) -> None:
        self.names = names
        self.ops: list[Op] = []
        self.initializers: dict[str, Array] = {}
        self.types: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.instruction = "hlo"
        self.metadata: dict[str, str] = {}
        self._constants_as_nodes = constants_as_nodes
        self.roots: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Of reshaped tensors: the tensor that they were before the first Reshape, and its dims."""
        self._helpers = 0
        self._known: dict[Any, str] = {}

    # Instructions

    def position(self) -> tuple[str, dict[str, str], int]:
        """Return which instruction is being translated, for ``resume``."""
        return self.instruction, self.metadata, self._helpers

    def resume(self, position: tuple[str, dict[str, str], int]) -> None:
        self.instruction, self.metadata, self._helpers = position

    def start(self, name: str, metadata: dict[str, str]) -> int:
        """Begin an instruction; returns the place of its first operator."""
        self.instruction = name
        self.metadata = metadata
        self._helpers = 0
        return len(self.ops)

    def finish(self, place: int, value: Value, name: str) -> None:
        """Give the result its instruction's name if that made it in full."""
        if not isinstance(value, Tensor) or not value.name or value.stored != value.dims:
            return
        producer = next((op for op in reversed(self.ops[place:]) if value.name in op.outputs), None)
        if producer is None or value.name in self.names.renamed:
            return
        old = value.name
        self.names.renamed[old] = name
        if old in self.roots:
            self.roots[name] = self.roots[old]
        producer.name = name
        value.name = name
        self.types[name] = (value.type, value.dims)
        self.types.pop(old, None)

    def helper_name(self) -> str:
        self._helpers += 1
        return self.names.choose(f"{self.instruction}/{self._helpers}", "")

    # Operators

    def op(
        self,
        op: str,
        inputs: Sequence[str],
        *,
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add an operator; returns the names of its outputs."""
        name = self.helper_name()
        results = [name if index == 0 else f"{name}:{index}" for index in range(outputs)]
        self.ops.append(Op(op, list(inputs), results, attributes, domain, name, self.metadata))
        return results

    def tensor(
        self, op: str, inputs: Sequence[str], kind: str, dims: Sequence[int], **attributes: Any
    ) -> Tensor:
        """Add an operator with one output of a type and shape."""
        (name,) = self.op(op, inputs, **attributes)
        shape = tuple(dims)
        return self.typed(name, kind, shape, shape)

    def typed(self, name: str, kind: str, dims: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
        """Return a tensor that an operator made.

        Notes its type for the graph.
        """
        self.types[name] = (kind, shape)
        return Tensor(name, kind, dims, shape)

    def constant(self, array: Array, name: str = "") -> str:
        """Return the name of a constant tensor; equal helpers are made once."""
        key = None if name else (array.dtype.str, str(array.dtype), array.shape, array.tobytes())
        if key is not None and key in self._known:
            return self._known[key]
        chosen = self.names.place_constant(name) if name else ""
        chosen = chosen or self.helper_name()
        if self._constants_as_nodes:
            tensor = numpy_helper.from_array(array, chosen)
            self.ops.append(
                Op("Constant", [], [chosen], {"value": tensor}, "", chosen, self.metadata)
            )
        else:
            self.initializers[chosen] = array
        if key is not None:
            self._known[key] = chosen
        return chosen

    def ints(self, numbers: Iterable[int]) -> str:
        """Return a constant vector of int64."""
        return self.constant(np.array(list(numbers), np.int64))

    def scalar(self, number: Any, kind: str) -> str:
        return self.constant(np.array(number, NUMPY[kind]))

    # Tensors

    def held(self, tensor: Tensor) -> str:
        """Return the name of the ONNX tensor that broadcasts to ``tensor``."""
        if tensor.constant is None:
            return tensor.name
        if not tensor.hint:
            return self.constant(tensor.constant)
        key = ("constant", tensor.hint)
        if key not in self._known:
            self._known[key] = self.constant(tensor.constant, tensor.hint)
        return self._known[key]

    def full(self, tensor: Tensor) -> str:
        """Return the name of an ONNX tensor of exact dims.

        They are the dims of ``tensor``.
        """
        name = self.held(tensor)
        if tensor.stored == tensor.dims:
            return name
        key = ("full", name, tensor.dims)
        if key not in self._known:
            kind = tensor.type
            run = carrier("Expand", kind) or kind
            if run != kind:
                name = self.tensor("Cast", [name], run, tensor.stored, to=ONNX[run]).name
            result = self.tensor("Expand", [name, self.ints(tensor.dims)], run, tensor.dims)
            if run != kind:
                result = self.tensor("Cast", [result.name], kind, tensor.dims, to=ONNX[kind])
            self._known[key] = result.name
        return self._known[key]

    # The end

    def captured(self, inputs: Iterable[str]) -> frozenset[str]:
        """Return the names that the operators read from outside.

        ``inputs`` are the body's own inputs.
        """
        resolve = self.names.resolve
        own = {*inputs, *self.initializers}
        outside: set[str] = set()
        for op in self.ops:
            outside.update(
                resolved for name in op.inputs if name and (resolved := resolve(name)) not in own
            )
            outside.update(op.captured() - own)
            own.update(map(resolve, op.outputs))
        return frozenset(outside)

    def prune(self, outputs: Iterable[str]) -> None:
        """Remove operators and constants that no output depends on."""
        resolve = self.names.resolve
        live = {resolve(name) for name in outputs}
        live_ops: list[Op] = []
        for op in reversed(self.ops):
            if live.isdisjoint(map(resolve, op.outputs)):
                continue
            live.update(map(resolve, op.inputs))
            live.update(op.captured())
            live_ops.append(op)
        self.ops = live_ops[::-1]
        self.initializers = {
            name: array for name, array in self.initializers.items() if name in live
        }

    def has_domain(self, domain: str) -> bool:
        """Whether an operator here or in a body below is of a domain."""
        return any(
            op.domain == domain or any(inner.body.has_domain(domain) for inner in op.bodies())
            for op in self.ops
        )

    def nodes(self) -> list[onnx.NodeProto]:
        return [_node(op, self.names.renamed) for op in self.ops]

    def graph(
        self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> onnx.GraphProto:
        """Return the graph, with the types of all named results."""
        resolve = self.names.resolve
        boundary = {tensor.name for tensor in (*inputs, *outputs)}
        results = {resolve(output) for op in self.ops for output in op.outputs}
        graph = onnx.GraphProto(name=name)
        graph.node.extend(self.nodes())
        graph.input.extend(value_info(tensor.name, tensor.type, tensor.dims) for tensor in inputs)
        graph.output.extend(
            value_info(resolve(tensor.name), tensor.type, tensor.dims) for tensor in outputs
        )
        graph.initializer.extend(
            numpy_helper.from_array(array, key) for key, array in self.initializers.items()
        )
        graph.value_info.extend(
            value_info(key, *self.types[key])
            for key in self.types
            if key in results and key not in boundary
        )
        return graph


def _node(op: Op, renamed: Mapping[str, str]) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type=op.op, name=op.name, domain=op.domain)
    node.input.extend([renamed.get(name, name) for name in op.inputs])
    node.output.extend([renamed.get(name, name) for name in op.outputs])
    for name, value in op.attributes.items():
        if isinstance(value, Nested):
            graph = value.body.graph(value.name, value.inputs, value.outputs)
            node.attribute.add(name=name, type=onnx.AttributeProto.GRAPH).g.CopyFrom(graph)
        elif value is not None:
            node.attribute.append(helper.make_attribute(name, value))
    for key, text in op.metadata.items():
        node.metadata_props.add(key=key, value=text)
    return node


def value_info(name: str, kind: str, dims: Sequence[int]) -> onnx.ValueInfoProto:
    """Return a name with an element type and a shape."""
    info = onnx.ValueInfoProto(name=name)
    tensor = info.type.tensor_type
    tensor.elem_type = ONNX[kind]
    tensor.shape.SetInParent()
    for size in dims:
        tensor.shape.dim.add(dim_value=size)
    return info
