"""The operations of a graph as Generics; others are opaque."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gehost import Graph, Node, Refused, TensorType
from gehost import Value as Tensor
from gehost_linalg.generic import Op, Opaque, Size, Value
from gehost_linalg.lower.movement import reshape
from gehost_linalg.lower.nodes import MLIR_DTYPES, Names, OnnxOp
from gehost_linalg.lower.table import lower, lowerings

INLINE_BYTES = 4096
"""Constants with one value throughout are part of a body up to this size; larger ones are inputs.
"""

PARAMETERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Unsqueeze", "Squeeze", "Expand", "Split", "Gather", "Trilu", "OneHot"), (1,)),
    "Slice": (1, 2, 3, 4),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"), (1,)),
    **dict.fromkeys(
        ("ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), (1,)
    ),
}
"""Inputs that decide about maps, as attributes do in other opsets; they are part of a body."""

MOVEMENT = frozenset(
    {
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "Slice",
        "Split",
        "Concat",
        "Gather",
        "Reshape",
        "Identity",
        "Cast",
        "CastLike",
    }
)
"""Operators that compute nothing: a group needs two others."""


class Lowered:
    """The operations of one graph as Generics, in order; others are ``Opaque``.

    Attributes:
        ops: the operations.
        values: the value of each tensor.
        reasons: for each node that is not lowered, why.
        counts: how many operations a node was lowered to.
    """

    def __init__(
        self, graph: Graph, leave_alone: Callable[[Node], str | None], *, reshapes: bool = False
    ) -> None:
        """``reshapes``: lower each Reshape that splits or merges axes as one operation."""
        self._reshapes = reshapes
        self.ops: list[Op] = []
        self.values: dict[Tensor, Value] = {}
        self.reasons: dict[Node, str] = {}
        self.counts: dict[Node, int] = {}
        self.names = Names()
        for node in graph.nodes:
            if node.op == "Constant" or not node.outputs:
                continue
            self._lower(node, leave_alone(node))
        self.outputs = [self.values[value] for value in graph.outputs if value in self.values]

    def _lower(self, node: Node, reason: str | None) -> None:
        inputs = [None if value is None else self._value(value) for value in node.inputs]
        outputs = [None if value is None else self._output(value) for value in node.outputs]
        if reason is None and any(
            value is not None and not isinstance(value.type, TensorType) for value in node.outputs
        ):
            reason = "operand-unranked: the type of a result is unknown"
        created: list[Op] = []
        if reason is None and node.op not in lowerings():
            reason = f"not-lowered: {node.op}"
        if reason is None:
            places = PARAMETERS.get(node.op, ())
            constants = {
                place: array
                for place in places
                if (array := small_array(node.input(place))) is not None
            }
            version = node.graph.model.opset() or 0
            op = OnnxOp(node.op, version, inputs, outputs, node.attrs, constants, node, self.names)
            try:
                created = lower(op, reshape if self._reshapes and node.op == "Reshape" else None)
            except Refused as refused:
                reason = str(refused)
            except (
                TypeError,
                ValueError,
                KeyError,
                OverflowError,
            ) as error:  # attributes of a model that is wrong
                reason = f"not-lowered: {node.op}: {error}"
        if reason is not None:
            self.reasons[node] = reason
            captured = [
                self._value(value) for body in node.bodies for _, _, value in body.captured()
            ]
            read = (*[operand for operand in inputs if operand is not None], *captured)
            results = [value for value in outputs if value is not None]
            for value, tensor in zip(outputs, node.outputs, strict=True):
                if value is not None and tensor is not None:
                    self._state(value, tensor)
            created = [
                Opaque(
                    node.op, read, tuple(results), label=f"{node.op} {node.label}", origins=(node,)
                )
            ]
        self.counts[node] = len(created)
        self.ops += created

    def _state(self, value: Value, tensor: Tensor) -> None:
        """Take type and shape from the model; name unknown sizes."""
        value_type = tensor.type
        value.dtype, value.shape = _dtype(value_type), None
        if isinstance(value_type, TensorType) and value_type.shape is not None:
            value.shape = tuple([_named(size) or self.names.size() for size in value_type.shape])

    def _output(self, tensor: Tensor) -> Value:
        value = self.values[tensor] = Value(tensor.name, _dtype(tensor.type))
        shape = tensor.shape
        if shape is not None:
            value.shape = tuple([_named(size) for size in shape])
        return value

    def _value(self, tensor: Tensor) -> Value:
        cached = self.values.get(tensor)
        if cached is None:
            cached = self.values[tensor] = Value(tensor.name, "")
            self._state(cached, tensor)
            cached.constant = splat_of(tensor)
        return cached


def _named(size: Size) -> Size:
    """A known size as a name, other than 1.

    Lowering depends on sizes that are equal or statically 1, and on no other size. A name of the
    model that could be a number is changed.
    """
    if isinstance(size, str) and (size.isdecimal() or size.startswith("dim ")):
        return f"dim {size}"
    return str(size) if isinstance(size, int) and size != 1 else size


def _dtype(entry: object) -> str:
    if not isinstance(entry, TensorType):
        return "unknown"
    return MLIR_DTYPES.get(entry.dtype) or entry.dtype.name.lower()


def small_array(tensor: Tensor | None) -> np.ndarray[Any, Any] | None:
    """The elements of a small constant."""
    if tensor is None or not tensor.is_constant:
        return None
    value_type = tensor.type
    if (
        not isinstance(value_type, TensorType)
        or value_type.size is None
        or value_type.size > INLINE_BYTES
    ):
        return None
    return tensor.array


def splat_of(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The one element of a small constant with one value throughout.

    It has as many axes as the constant.
    """
    array = small_array(tensor)
    if array is None or array.size == 0 or array.nbytes > INLINE_BYTES:
        return None
    if array.size > 1 and array.tobytes() != array.reshape(-1)[:1].tobytes() * array.size:
        return None
    return array.reshape(-1)[:1].reshape((1,) * array.ndim)
