"""Types of a few nodes in which every unknown size has a name that says where it comes from.

The name of an input's size is its own; the name of a size that inference cannot tell is that of the
computation. Two tensors that are computed alike from the same inputs have sizes of the same names,
also when one of them is computed in the body of an operator.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from gehost.es.functions import COMMUTATIVE
from gehost.infer.calls import body_nodes, constant_of, opsets_of
from gehost.infer.local import Inferrer, array_type, small_array
from gehost.ir.graph import Node, Value, op_name
from gehost.ir.types import Dim, TensorType, ValueType


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a tensor: its type, its elements where they are a small constant, and how
    it is computed.
    """

    type: ValueType | None
    array: np.ndarray[Any, Any] | None
    number: int
    """Equal for tensors that are computed alike from the same inputs."""


class Trace:
    """The names that both sides of a rewrite share."""

    def __init__(self, inputs: Sequence[Value | None], inferrer: Inferrer) -> None:
        self.inferrer = inferrer
        self._numbers: dict[Hashable, int] = {}
        self.given: dict[Value, Known] = {}
        for value in inputs:
            if value is not None and value not in self.given:
                self.given[value] = self.outer(value)

    def side(self) -> Side:
        """One side of the rewrite, to be walked node by node."""
        return Side(self)

    def number(self, computation: Hashable) -> int:
        """The number of a computation; the same for the same one."""
        return self._numbers.setdefault(computation, len(self._numbers))

    def outer(self, value: Value) -> Known:
        """A tensor that is there before: equal symbols stay equal, and each size without one
        gets a name.
        """
        array = small_array(value)
        number = self.number(value if array is None else _content(array))
        known = value.type
        if isinstance(known, TensorType) and known.shape is not None:
            named = [f"={dim}" if isinstance(dim, str) else dim for dim in known.shape]
            dims = [_name(number, place) if dim is None else dim for place, dim in enumerate(named)]
            known = TensorType(known.dtype, tuple(dims))
        return Known(known, array, number)

    def computed(self, known: ValueType | None, computation: Hashable) -> Known:
        """A tensor that is computed; what inference does not tell of its sizes is named by the
        computation.
        """
        number = self.number(computation)
        if isinstance(known, TensorType) and known.shape is not None:
            dims = [f"~{number}.{place}" if d is None else d for place, d in enumerate(known.shape)]
            known = TensorType(known.dtype, tuple(dims))
        return Known(known, None, number)


def is_input_size(dim: Dim) -> bool:
    """Whether a name is that of an input's dimension; of a size that is only computed nothing is
    known.
    """
    return isinstance(dim, str) and dim.startswith(("=", "?"))


def _name(number: int, place: int) -> str:
    """Of a size without one; no symbol of a model looks like it, for those are marked otherwise."""
    return f"?{number}.{place}"


class Side:
    """The tensors of one side."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[Value, Known] = dict(trace.given)
        self._inside: set[str] = set()

    def types(self) -> dict[Value, ValueType | None]:
        return {value: known.type for value, known in self._known.items()}

    def step(
        self, node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value | None]
    ) -> None:
        """Infer a node that reads and makes these values.

        Raises:
            InferenceFailed: it does not take them.
        """
        read = [
            None if value is None else self._known.get(value) or self._trace.outer(value)
            for value in inputs
        ]
        made = self._infer(node.op, node.proto, read, None)
        for value, known in zip(outputs, made, strict=True):
            if value is not None and value not in self._trace.given:
                self._known[value] = known

    def unknown(self, outputs: Sequence[Value | None]) -> None:
        """Note that nothing is known of these values."""
        self._known.update(
            (v, Known(None, None, self._trace.number(object()))) for v in outputs if v is not None
        )

    def _infer(
        self,
        op: str,
        proto: onnx.NodeProto,
        read: Sequence[Known | None],
        opsets: dict[str, int] | None,
    ) -> list[Known]:
        if op == "Identity" and read and read[0] is not None:
            return [read[0]]
        trace, inferrer = self._trace, self._trace.inferrer
        types = [None if known is None else known.type for known in read]
        arrays = [None if known is None else known.array for known in read]
        made = inferrer.proto(op, proto, types, arrays, opsets)
        body = inferrer.body(op)
        if body is not None and op not in self._inside:
            self._inside.add(op)
            inside = self._walk(body, proto, read)
            self._inside.discard(op)
            return [self._merged(known, inner) for known, inner in zip(made, inside, strict=True)]
        numbers = [-1 if known is None else known.number for known in read]
        if op in COMMUTATIVE:
            numbers.sort()
        attributes = tuple(
            sorted(entry.SerializeToString(deterministic=True) for entry in proto.attribute)
        )
        computation = (op, attributes, tuple(numbers))
        return [trace.computed(known, (computation, slot)) for slot, known in enumerate(made)]

    def _walk(
        self, body: onnx.FunctionProto, call: onnx.NodeProto, read: Sequence[Known | None]
    ) -> list[Known]:
        """The outputs of a call, through the nodes of the body."""
        scope: dict[str, Known | None] = dict(zip(body.input, read, strict=False))
        opsets = opsets_of(body)
        for proto in body_nodes(body, call):
            array = constant_of(proto)
            if array is not None:
                scope[proto.output[0]] = Known(
                    array_type(array), array, self._trace.number(_content(array))
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
        nothing = Known(None, None, self._trace.number(object()))
        return [scope.get(name) or nothing for name in body.output[: len(call.output)]]

    @staticmethod
    def _merged(outside: ValueType | None, inside: Known) -> Known:
        """What is known of a call's output by the operator's own shape function, then by its
        body.
        """
        inner = inside.type
        if isinstance(outside, TensorType) and isinstance(inner, TensorType):
            shape = outside.shape
            if shape is not None and inner.shape is not None and len(shape) == len(inner.shape):
                shape = tuple(
                    b if a is None else a for a, b in zip(shape, inner.shape, strict=True)
                )
            return Known(
                TensorType(outside.dtype, inner.shape if shape is None else shape),
                inside.array,
                inside.number,
            )
        return inside if outside is None else Known(outside, inside.array, inside.number)


def _content(array: np.ndarray[Any, Any]) -> Hashable:
    return array.dtype, array.shape, array.tobytes()
