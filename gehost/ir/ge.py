"""GE's accessor names as thin aliases, so that its examples work."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeVar, cast, overload

from gehost.ir.types import DataType, Dim, TensorType
from gehost.status import SUCCESS, Status

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.node import Node, Value


class Shape:
    """The shape in a ``TensorDesc``.

    Unknown dimensions and unknown ranks read as -1, as in GE.
    """

    def __init__(self, dims: tuple[Dim, ...] | None) -> None:
        self._dims = dims

    def GetDims(self) -> list[int]:
        """Return the sizes, -1 if unknown or symbolic, ``[-2]`` without a rank."""
        if self._dims is None:
            return [-2]
        return [dim if isinstance(dim, int) else -1 for dim in self._dims]

    def GetDim(self, index: SupportsIndex) -> int:
        return self.GetDims()[operator.index(index)]

    def GetDimNum(self) -> int:
        """Return the rank, -1 if unknown."""
        return -1 if self._dims is None else len(self._dims)

    def GetShapeSize(self) -> int:
        """Return the number of elements; -1 if a dimension is unknown."""
        size = TensorType(DataType.UNDEFINED, self._dims).size
        return -1 if size is None else size


class TensorDesc:
    """The element type and shape of a tensor.

    ``TensorDesc()`` is empty until a method fills it.
    """

    def __init__(self, value: TypedTensor | None = None) -> None:
        self._value = value

    def fill(self, value: TypedTensor) -> Status:
        """Describe ``value``, as GE's out-parameters do."""
        self._value = value
        return SUCCESS

    def GetDataType(self) -> DataType:
        """Return the element type, ``DT_UNDEFINED`` if unknown."""
        return (self._value.dtype if self._value is not None else None) or DataType.UNDEFINED

    def GetShape(self) -> Shape:
        return Shape(self._value.shape if self._value is not None else None)


class TypedTensor(Protocol):
    """A tensor of a model, or one that a replacement will add."""

    @property
    def dtype(self) -> DataType | None: ...
    @property
    def shape(self) -> tuple[Dim, ...] | None: ...


class NodeIo:
    """One output of a node, or one input of a node.

    An output is a tensor, an input is a user.

    ``NodeIo()`` is empty until ``GetCapturedTensor(index, io)`` fills it.
    """

    __slots__ = ("index", "node", "tensor")

    def __init__(
        self, node: Any = None, index: SupportsIndex = 0, tensor: Value | None = None
    ) -> None:
        self.node = node
        self.index = operator.index(index)
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"NodeIo(node={self.node!r}, index={self.index})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeIo) and (self.node, self.index) == (other.node, other.index)

    def __hash__(self) -> int:
        return hash((self.node, self.index))

    @classmethod
    def of(cls, value: Value) -> NodeIo:
        """Return a tensor's producer, a ``SourceNode`` for inputs and initializers."""
        if value.producer is None:
            return cls(SourceNode(value), 0, value)
        return cls(value.producer, value.index, value)

    @property
    def value(self) -> Value:
        """The tensor: the captured one, or output ``index`` of the node."""
        if self.tensor is not None:
            return self.tensor
        return _present(self.node.outputs, self.index, f"output {self.index} of {self.node!r}")


class _Described(Protocol):
    """The attributes of a node that the accessors read."""

    @property
    def op_type(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...

    @property
    def inputs(self) -> Sequence[TypedTensor | None]: ...
    @property
    def outputs(self) -> Sequence[TypedTensor | None]: ...


class _InGraph(Protocol):
    @property
    def inputs(self) -> Sequence[Value | None]: ...
    @property
    def outputs(self) -> Sequence[Value | None]: ...


class _Editable(Protocol):
    graph: Graph


class GNodeAccessors:
    """The methods of GE's ``GNode`` that its documentation uses."""

    __slots__ = ()

    def GetType(self: _Described) -> str:
        return self.op_type

    def GetName(self: _Described) -> str:
        return self.name

    def GetInputsSize(self: _Described) -> int:
        return len(self.inputs)

    def GetOutputsSize(self: _Described) -> int:
        return len(self.outputs)

    def GetAttr(self: _Described, name: str) -> Any:
        """Return the attribute's Python value.

        Raises ``KeyError`` if the node does not have it.
        """
        return self.attrs[name]

    def SetAttr(self: _Editable, name: str, value: Any) -> None:
        self.graph.set_attribute(cast("Node", self), name, value)

    @overload
    def GetInputDesc(self: _Described, index: SupportsIndex) -> TensorDesc: ...
    @overload
    def GetInputDesc(self: _Described, index: SupportsIndex, desc: TensorDesc) -> Status: ...
    def GetInputDesc(
        self: _Described, index: SupportsIndex, desc: TensorDesc | None = None
    ) -> TensorDesc | Status:
        """Return the type of input ``index``, or write it to ``desc``."""
        value = _present(self.inputs, index, f"input {index} of {self!r}")
        return TensorDesc(value) if desc is None else desc.fill(value)

    @overload
    def GetOutputDesc(self: _Described, index: SupportsIndex) -> TensorDesc: ...
    @overload
    def GetOutputDesc(self: _Described, index: SupportsIndex, desc: TensorDesc) -> Status: ...
    def GetOutputDesc(
        self: _Described, index: SupportsIndex, desc: TensorDesc | None = None
    ) -> TensorDesc | Status:
        """Return the type of output ``index``, or write it to ``desc``."""
        value = _present(self.outputs, index, f"output {index} of {self!r}")
        return TensorDesc(value) if desc is None else desc.fill(value)

    def GetInDataNodesAndPortIndexs(self: _InGraph, index: SupportsIndex) -> NodeIo:
        """Return the node and output that feed input ``index``.

        The node is a ``SourceNode`` for a graph input or an initializer.
        """
        return NodeIo.of(_present(self.inputs, index, f"input {index} of {self!r}"))

    def GetOutDataNodesAndPortIndexs(self: _InGraph, index: SupportsIndex) -> list[NodeIo]:
        """Return the users of output ``index`` and their slots, in topological order."""
        value = _present(self.outputs, index, f"output {index} of {self!r}")
        return [NodeIo(node, slot) for node, slot in value.consumers()]


class SourceNode(GNodeAccessors):
    """Stand-in producer: ``Data`` for graph inputs, ``Const`` for initializers."""

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"<{self.op_type} {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceNode) and self._value is other._value

    def __hash__(self) -> int:
        return hash(self._value)

    @property
    def domain(self) -> str:
        return ""

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        return ()

    @property
    def op_type(self) -> str:
        return "Data" if self._value.is_input else "Const"

    @property
    def op(self) -> str:
        return self.op_type

    @property
    def name(self) -> str:
        return self._value.name

    @property
    def label(self) -> str:
        return self._value.name

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Empty; for a ``Const``, its array under ``value``."""
        return {} if self._value.is_input else {"value": self._value.array}

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        return (self._value,)


_T = TypeVar("_T")


def _present(values: Sequence[_T | None], index: SupportsIndex, what: str) -> _T:
    place = operator.index(index)
    value = values[place] if 0 <= place < len(values) else None
    if value is None:
        raise IndexError(f"{what} is absent")
    return value
