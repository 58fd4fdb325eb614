"""Prove the types of a replacement.

A new tensor has the type of the tensor that it replaces.

A known size must stay; where the new one is not known, and not that of an input, the old one is
kept. For unknown sizes, both sides are inferred again, from inputs whose unknown
sizes have unique names: results with the same name come from the same input dimension, unchanged,
from the same computation, or from a Conv or a pooling over the same sizes. Two unknown sizes are
not equal just because both are unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from gehost.es.functions import COMMUTATIVE
from gehost.infer.calls import body_nodes, constant_of, opsets_of
from gehost.infer.local import Inferrer, array_type, small_array
from gehost.ir.graph import Node, Value, op_name
from gehost.ir.types import Dim, TensorType, ValueType, is_invented
from gehost.refusal import Refused

_WINDOWS = frozenset({"AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool"})
"""Operators whose sizes follow from attributes and sizes, whatever the numbers are."""


class NodeState:
    """A node with its inputs and outputs at a certain moment."""

    __slots__ = ("inputs", "node", "outputs")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.inputs = tuple(node.inputs)
        self.outputs = tuple(node.outputs)


def states_of(nodes: Sequence[Node]) -> list[NodeState]:
    """Return the states of nodes now, for comparison after an edit."""
    return [NodeState(node) for node in nodes]


class TypeProof:
    """Compares old and new types of one rewrite.

    Args:
        inputs: the region's inputs.
        before: the matched nodes before the rewrite.
        after: the new nodes.
        inferrer: infers both sides.
        shape_proven: the rule's author proves sizes that cannot be compared.
    """

    def __init__(
        self,
        inputs: Sequence[Value | None],
        before: Sequence[NodeState],
        after: Sequence[NodeState],
        inferrer: Inferrer,
        *,
        shape_proven: bool,
    ) -> None:
        self._shape_proven = shape_proven
        self._before = before
        self._after = after
        self._inputs = inputs
        self._inferrer = inferrer

    def unify(
        self,
        old: Value,
        old_type: ValueType | None,
        new: Value,
        new_type: ValueType | None,
    ) -> ValueType | None:
        """Return the type of ``old`` after it has been replaced by ``new``.

        Args:
            old: the replaced tensor.
            old_type: its known type.
            new: the tensor that replaces it; the same object if it keeps the name.
            new_type: its known type.

        Raises:
            Refused: the types disagree, or cannot be proven to agree.
        """
        where = f'"{old.name}"'
        old_types, new_types = self._types
        before, after = old_types.get(old), new_types.get(new)
        if old_type is None:
            old_type = _without_names(before)
        if old_type is None:
            if new_type is None or self._shape_proven:
                return new_type
            raise Refused(
                "unproven", f"the type of {where} is unknown, the replacement would have {new_type}"
            )
        if new_type is None:
            return old_type
        if not isinstance(old_type, TensorType) or not isinstance(new_type, TensorType):
            if old_type != new_type:
                raise Refused("type", f"{where} was {old_type}, would be {new_type}")
            return old_type
        if old_type.dtype and new_type.dtype and old_type.dtype != new_type.dtype:
            raise Refused("dtype", f"{where} was {old_type}, would be {new_type}")
        if new_type.dtype and not old_type.dtype and not self._shape_proven:
            raise Refused(
                "unproven",
                f"the dtype of {where} is unknown, the replacement would have {new_type}",
            )
        shape = self._shape(old_type.shape, new_type.shape, before, after, old, new)
        return TensorType(old_type.dtype or new_type.dtype, shape)

    def _shape(
        self,
        old: tuple[Dim, ...] | None,
        new: tuple[Dim, ...] | None,
        before: ValueType | None,
        after: ValueType | None,
        old_value: Value,
        new_value: Value,
    ) -> tuple[Dim, ...] | None:
        """Return the agreed shape; ``before`` and ``after`` have names for unknown sizes."""
        where = f'"{old_value.name}"'
        if new is None:
            return old
        if old is None:
            if self._shape_proven:
                return new
            raise Refused(
                "unproven", f"the rank of {where} is unknown, the replacement would have {len(new)}"
            )
        if len(old) != len(new):
            raise Refused("rank", f"{where} had {len(old)} dimensions, would have {len(new)}")
        named_old = _dims(before, len(old))
        named_new = _dims(after, len(new))
        return tuple(
            self._dim(place, old_value, new_value, (a, b), (p, q))
            for place, (a, b, p, q) in enumerate(zip(old, new, named_old, named_new, strict=True))
        )

    def _dim(
        self,
        place: int,
        old_value: Value,
        new_value: Value,
        sizes: tuple[Dim, Dim],
        names: tuple[Dim, Dim],
    ) -> Dim:
        """Return the agreed size at a place of both values; names are sizes or given ones."""
        (old, new), (before, after) = sizes, names
        where = f'dimension {place} of "{old_value.name}"'
        if isinstance(old, int):
            if isinstance(new, int) and new != old:
                raise Refused("shape", f"{where} was {old}, would be {new}")
            if (
                not isinstance(new, int)
                and before != after
                and self._is_of_inputs(after)
                and not self._shape_proven
            ):
                would = self._would_be(new, place, new_value)
                raise Refused("unproven", f"{where} was {old}, would be that of an input, {would}")
            return old
        equal = (old is not None and old == new) or (before is not None and before == after)
        if not equal and not self._shape_proven:
            was = _with_origin(old, place, old_value, self._before, "")
            would = self._would_be(new, place, new_value)
            raise Refused("unproven", f"{where} was {was}, would be {would}")
        return old if old is not None else new

    def _is_of_inputs(self, dim: Dim) -> bool:
        """Whether a name is made of sizes of inputs alone, not of the elements of a tensor."""
        return isinstance(dim, str) and self._inferrer.names_in(dim) <= self._numbering.sizes

    def _would_be(self, size: Dim, place: int, new: Value) -> str:
        return _with_origin(size, place, new, self._after, "the replacement's ")

    @cached_property
    def _numbering(self) -> ValueNumbering:
        return ValueNumbering(self._inputs, self._inferrer)

    @cached_property
    def _types(self) -> Sequence[dict[Value, ValueType | None]]:
        """Both sides' types, inferred from inputs whose unknown sizes have names."""
        return [SideInference(self._numbering).types(side) for side in (self._before, self._after)]


def _dims(value_type: ValueType | None, rank: int) -> tuple[Dim, ...]:
    if (
        isinstance(value_type, TensorType)
        and value_type.shape is not None
        and len(value_type.shape) == rank
    ):
        return value_type.shape
    return (None,) * rank


def _without_names(value_type: ValueType | None) -> ValueType | None:
    """Return a type in which named sizes are unknown again."""
    if isinstance(value_type, TensorType) and value_type.shape is not None:
        return TensorType(
            value_type.dtype,
            tuple(dim if isinstance(dim, int) else None for dim in value_type.shape),
        )
    return value_type


# names of unknown sizes: value numbering, as compilers do to find equal computations


@dataclass(frozen=True, slots=True)
class NumberedTensor:
    """Type, elements (of a small constant) and value number of a tensor."""

    type: ValueType | None
    array: np.ndarray[Any, Any] | None
    number: int
    """Equal for tensors computed in the same way from the same inputs."""


class ValueNumbering:
    """Value numbers of both sides of a rewrite: the matched nodes, the new ones.

    Unknown sizes are named after the number of the tensor that has them first.

    Attributes:
        given: the inputs of the region.
        sizes: the names of their sizes.
    """

    def __init__(self, inputs: Sequence[Value | None], inferrer: Inferrer) -> None:
        self.inferrer = inferrer
        self._numbers: dict[Hashable, int] = {}
        self.sizes = set[str]()
        self.given: dict[Value, NumberedTensor] = {}
        for value in inputs:
            if value is not None and value not in self.given:
                self.given[value] = self.outer(value)

    def number(self, computation: Hashable) -> int:
        """Return the value number of a computation, the same for equal ones."""
        return self._numbers.setdefault(computation, len(self._numbers))

    def nothing(self) -> NumberedTensor:
        """Describe a tensor of which nothing is known."""
        return NumberedTensor(None, None, self.number(object()))

    def outer(self, value: Value) -> NumberedTensor:
        """Describe an existing tensor: symbols are kept, other unknown sizes get names."""
        array = small_array(value)
        number = self.number(value if array is None else _content(array))
        value_type = value.type
        if isinstance(value_type, TensorType) and value_type.shape is not None:
            # marked, so that no symbol of a model equals a name given here
            named = [f"={dim}" if isinstance(dim, str) else dim for dim in value_type.shape]
            dims = [f"?{number}.{place}" if dim is None else dim for place, dim in enumerate(named)]
            self.sizes.update([dim for dim in dims if isinstance(dim, str)])
            value_type = TensorType(value_type.dtype, tuple(dims))
        return NumberedTensor(value_type, array, number)

    def computed(
        self, value_type: ValueType | None, computation: Hashable, sizing: Hashable = None
    ) -> NumberedTensor:
        """Describe a computed tensor.

        Sizes that inference leaves open are named after ``sizing`` if they depend on it alone,
        else after the computation.
        """
        number = self.number(computation)
        if isinstance(value_type, TensorType) and value_type.shape is not None:
            name = number if sizing is None else self.number(sizing)
            dims = [
                f"~{name}.{place}" if d is None else d for place, d in enumerate(value_type.shape)
            ]
            value_type = TensorType(value_type.dtype, tuple(dims))
        return NumberedTensor(value_type, None, number)


def _with_origin(size: Dim, place: int, value: Value, side: Sequence[NodeState], whose: str) -> str:
    """Return a size; one that inference named with the tensor that has it first.

    Args:
        size: of ``value`` at ``place``.
        side: the nodes of one side of the rewrite, ``whose`` operators these are.
    """
    if not is_invented(size):
        return "unknown" if size is None else str(size)
    states = {result: state for state in side for result in state.outputs}
    while True:
        state, node = states.get(value), value.producer
        operands = () if node is None else node.inputs
        if state is not None:
            node, operands = state.node, state.inputs
        above = [
            operand for operand in operands if operand is not None and size in (operand.shape or ())
        ]
        if not above:
            break
        value = above[0]
        place = (value.shape or ()).index(size)
    if node is None:
        return f'{size} (dimension {place} of "{value.name}")'
    if state is not None and whose:
        return f"{size} (dimension {place} of {whose}{node.op})"
    return f'{size} (dimension {place} of "{value.name}", made by {node.op} "{node.label}")'


class SideInference:
    """Infers the matched nodes, or the new ones, and numbers their tensors."""

    def __init__(self, numbering: ValueNumbering) -> None:
        self._numbering = numbering
        self._known: dict[Value, NumberedTensor] = dict(numbering.given)
        self._inside: set[str] = set()

    def types(self, steps: Sequence[NodeState]) -> dict[Value, ValueType | None]:
        """Infer nodes in order; return the types of all tensors."""
        for step in steps:
            read = [
                None if value is None else self._known.get(value) or self._numbering.outer(value)
                for value in step.inputs
            ]
            try:
                results = self._infer(step.node.op, step.node.proto, read, None)
            except Refused:  # the node does not accept the inputs
                results = [self._numbering.nothing() for _ in step.outputs]
            for value, entry in zip(step.outputs, results, strict=True):
                if value is not None and value not in self._numbering.given:
                    self._known[value] = entry
        return {value: entry.type for value, entry in self._known.items()}

    def _infer(
        self,
        op: str,
        proto: onnx.NodeProto,
        read: Sequence[NumberedTensor | None],
        opsets: dict[str, int] | None,
    ) -> list[NumberedTensor]:
        if op == "Identity" and read and read[0] is not None:
            return [read[0]]
        numbering, inferrer = self._numbering, self._numbering.inferrer
        types = [None if operand is None else operand.type for operand in read]
        arrays = [None if operand is None else operand.array for operand in read]
        results = inferrer.proto(op, proto, types, arrays, opsets)
        body = inferrer.body(op)
        if body is not None and op not in self._inside:
            self._inside.add(op)
            inside = self._walk(body, proto, read)
            self._inside.discard(op)
            return [
                self._merged(operand, inner) for operand, inner in zip(results, inside, strict=True)
            ]
        numbers = [-1 if operand is None else operand.number for operand in read]
        if op in COMMUTATIVE:
            numbers.sort()
        attributes = tuple(
            sorted(attribute.SerializeToString(deterministic=True) for attribute in proto.attribute)
        )
        computation = (op, attributes, tuple(numbers))
        sizing = _window_sizes(op, attributes, types) if op in _WINDOWS else None
        return [
            numbering.computed(
                operand, (computation, slot), None if sizing is None else (sizing, slot)
            )
            for slot, operand in enumerate(results)
        ]

    def _walk(
        self, body: onnx.FunctionProto, call: onnx.NodeProto, read: Sequence[NumberedTensor | None]
    ) -> list[NumberedTensor]:
        """Infer the outputs of a call through the nodes of its body."""
        scope: dict[str, NumberedTensor | None] = dict(zip(body.input, read, strict=False))
        opsets = opsets_of(body)
        for proto in body_nodes(body, call):
            array = constant_of(proto)
            if array is not None:
                scope[proto.output[0]] = NumberedTensor(
                    array_type(array), array, self._numbering.number(_content(array))
                )
                continue
            inputs = [scope.get(name) if name else None for name in proto.input]
            scope.update(
                zip(
                    proto.output,
                    self._infer(
                        op_name(proto.domain, proto.op_type, proto.overload), proto, inputs, opsets
                    ),
                    strict=True,
                )
            )
        nothing = self._numbering.nothing()
        return [scope.get(name) or nothing for name in body.output[: len(call.output)]]

    @staticmethod
    def _merged(outside: ValueType | None, inside: NumberedTensor) -> NumberedTensor:
        """Merge a call's two types.

        One is from the operator's shape function, the other from its body.
        """
        inner = inside.type
        if isinstance(outside, TensorType) and isinstance(inner, TensorType):
            shape = outside.shape
            if shape is not None and inner.shape is not None and len(shape) == len(inner.shape):
                shape = tuple(
                    b if a is None else a for a, b in zip(shape, inner.shape, strict=True)
                )
            return NumberedTensor(
                TensorType(outside.dtype, inner.shape if shape is None else shape),
                inside.array,
                inside.number,
            )
        return inside if outside is None else NumberedTensor(outside, inside.array, inside.number)


def _window_sizes(
    op: str, attributes: tuple[bytes, ...], types: Sequence[ValueType | None]
) -> Hashable:
    """Return what the sizes of a Conv or a pooling depend on; None if one is unknown."""
    shapes = tuple(
        value_type.shape if isinstance(value_type, TensorType) else None for value_type in types
    )
    if any(shape is None or None in shape for shape in shapes):
        return None
    return "sizes", op, attributes, shapes


def _content(array: np.ndarray[Any, Any]) -> Hashable:
    return array.dtype, array.shape, array.tobytes()
