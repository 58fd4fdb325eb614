"""The graph of a ``GraphBuilder`` as ``Node`` and ``Graph`` read it, with types where known."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx

import gehost
from gehost import EsTensor, GehostError, TensorType, es
from gehost_ge.form import Form

current_inputs: ContextVar[Sequence[Any]] = ContextVar("gehost_ge_inputs", default=())
"""The tensors that the match or node reads for which a method of a pass runs."""


@dataclass(eq=False)
class Draft:
    """A graph under construction, or one that is built.

    Attributes:
        graph: the host's.
        forms: the operators as the author calls them, by producer.
        inputs: the tensors or types that its inputs stand for, by index.
        data_types: the element types with which the author creates inputs, by producer.
        is_pattern: a pattern took it over.
    """

    graph: es.EsGraph
    forms: dict[Any, Form] = field(default_factory=dict[Any, Form])
    inputs: Sequence[Any] = field(default_factory=current_inputs.get)
    data_types: dict[Any, Any] = field(default_factory=dict[Any, Any])
    is_pattern: bool = False

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def nodes(self) -> list[DraftNode]:
        """The operators, in order of building."""
        return [DraftNode(node, self) for node in self.graph.nodes]

    @property
    def outputs(self) -> list[DraftTensor]:
        return [DraftTensor(tensor, self) for tensor in self.graph.outputs]

    def type_of(self, tensor: EsTensor) -> TensorType | None:
        """Return the type that inference knows; None in a pattern."""
        try:
            (entry,) = gehost.GeUtils.InferShape(self.graph.delivering([tensor]), self.inputs)
        except GehostError:
            return None
        return entry if isinstance(entry, TensorType) else None


class DraftNode:
    """An operator, input or constant of a draft, with the attributes of the host's nodes."""

    domain = ""

    def __init__(self, producer: Any, draft: Draft) -> None:
        self.producer = producer
        self.draft = draft

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DraftNode) and self.producer is other.producer

    def __hash__(self) -> int:
        return hash(self.producer)

    @property
    def op(self) -> str:
        return self.op_type

    @property
    def op_type(self) -> str:
        if isinstance(self.producer, es.EsNode):
            form = self.draft.forms.get(self.producer)
            return self.producer.GetType() if form is None else form.name
        return "Const" if hasattr(self.producer, "array") else "Data"

    @property
    def label(self) -> str:
        if isinstance(self.producer, es.EsNode):
            return f"{self.op_type}_{self.draft.graph.nodes.index(self.producer)}"
        return getattr(self.producer, "name", "Const")

    @property
    def attrs(self) -> dict[str, Any]:
        return getattr(self.producer, "params", {})

    def attr(self, name: str) -> Any:
        """Return an attribute, or the default of the newest opset; else None."""
        if name in self.attrs or not isinstance(self.producer, es.EsNode):
            return self.attrs.get(name)
        if not onnx.defs.has(self.producer.GetType()):
            return None
        entry = onnx.defs.get_schema(self.producer.GetType()).attributes.get(name)
        default = None if entry is None else entry.default_value
        value = onnx.helper.get_attribute_value(default) if default and default.type else None
        return value.decode() if isinstance(value, bytes) else value

    @property
    def inputs(self) -> list[DraftTensor | None]:
        read: list[EsTensor | None] = getattr(self.producer, "inputs", [])
        return [None if tensor is None else DraftTensor(tensor, self.draft) for tensor in read]

    @property
    def outputs(self) -> list[DraftTensor]:
        count = getattr(self.producer, "count", 1)
        return [DraftTensor(EsTensor(self.producer, index), self.draft) for index in range(count)]


class DraftTensor:
    """A tensor of a draft, with the attributes of the host's tensors."""

    def __init__(self, tensor: EsTensor, draft: Draft) -> None:
        self.tensor = tensor
        self.index = tensor.index
        self.draft = draft
        self.node = DraftNode(tensor.producer, draft)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DraftTensor) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, int]:
        return self.tensor.producer, self.index

    @property
    def name(self) -> str:
        return self.node.label if self.index == 0 else f"{self.node.label}_{self.index}"

    @property
    def producer(self) -> DraftNode | None:
        """The operator; None for an input and a constant."""
        return self.node if isinstance(self.tensor.producer, es.EsNode) else None

    @property
    def is_input(self) -> bool:
        return self.producer is None and not self.is_constant

    @property
    def is_constant(self) -> bool:
        return hasattr(self.tensor.producer, "array")

    @property
    def array(self) -> np.ndarray[Any, Any] | None:
        return cast("Any", getattr(self.tensor.producer, "array", None))

    @property
    def type(self) -> TensorType | None:
        return self.draft.type_of(self.tensor)

    @property
    def dtype(self) -> gehost.DataType | None:
        value_type = self.type
        return None if value_type is None else value_type.dtype

    @property
    def shape(self) -> Sequence[int | str | None] | None:
        value_type = self.type
        return None if value_type is None else value_type.shape

    @property
    def readers(self) -> list[tuple[DraftNode, int]]:
        return self.consumers()

    def consumers(self) -> list[tuple[DraftNode, int]]:
        """Return the operators that read the tensor, with the numbers of their inputs."""
        return [
            (node, slot)
            for node in self.draft.nodes
            for slot, read in enumerate(node.inputs)
            if read == self
        ]
