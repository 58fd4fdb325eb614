"""GE's accessor names on nodes: thin aliases, so that the documentation's examples read the same
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from gehost.ir.types import DataType, Dim, TensorType

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.node import Node, Value


class Shape:
    """The shape in a ``TensorDesc``; unknown dimensions and unknown ranks read as -1, as in GE."""

    def __init__(self, dims: tuple[Dim, ...] | None) -> None:
        self._dims = dims

    def GetDims(self) -> list[int]:
        """Sizes, -1 where unknown or symbolic; ``[-2]`` where the rank is unknown."""
        if self._dims is None:
            return [-2]
        return [dim if isinstance(dim, int) else -1 for dim in self._dims]

    def GetDim(self, index: int) -> int:
        return self.GetDims()[index]

    def GetDimNum(self) -> int:
        """The rank, -1 where unknown."""
        return -1 if self._dims is None else len(self._dims)

    def GetShapeSize(self) -> int:
        """Number of elements; -1 where a dimension is unknown."""
        size = TensorType(DataType.UNDEFINED, self._dims).size
        return -1 if size is None else size


class TensorDesc:
    """What is known of a tensor: element type and shape."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def GetDataType(self) -> DataType:
        """The element type, ``DT_UNDEFINED`` where unknown."""
        return self._value.dtype or DataType.UNDEFINED

    def GetShape(self) -> Shape:
        return Shape(self._value.shape)


class NodeIo:
    """One input or output of a node: an output where a tensor is meant, an input where a reader
    is meant.
    """

    __slots__ = ("index", "node", "tensor")

    def __init__(self, node: Any, index: int, tensor: Value | None = None) -> None:
        self.node = node
        self.index = index
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"NodeIo(node={self.node!r}, index={self.index})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeIo) and (self.node, self.index) == (other.node, other.index)

    def __hash__(self) -> int:
        return hash((self.node, self.index))

    @classmethod
    def of(cls, value: Value) -> NodeIo:
        """Where a tensor comes from; ``node`` is None for graph inputs and initializers, which
        no node makes.
        """
        return cls(value.producer, 0 if value.is_input else value.index, value)

    @property
    def value(self) -> Value:
        """The tensor: the one that was captured, else the one at output ``index`` of the node."""
        if self.tensor is not None:
            return self.tensor
        return _present(self.node.outputs, self.index, f"output {self.index} of {self.node!r}")


class _Described(Protocol):
    """What the accessors read of a node."""

    @property
    def op_type(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...

    inputs: Sequence[Value | None]
    outputs: Sequence[Value | None]


class _Editable(Protocol):
    graph: Graph


class GNodeAccessors:
    """The part of GE's ``GNode`` that its documentation uses."""

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
        """The attribute's Python value; ``KeyError`` when the node does not carry it."""
        return self.attrs[name]

    def SetAttr(self: _Editable, name: str, value: Any) -> None:
        self.graph.set_attribute(cast("Node", self), name, value)

    def GetInputDesc(self: _Described, index: int) -> TensorDesc:
        return TensorDesc(_present(self.inputs, index, f"input {index} of {self!r}"))

    def GetOutputDesc(self: _Described, index: int) -> TensorDesc:
        return TensorDesc(_present(self.outputs, index, f"output {index} of {self!r}"))

    def GetInDataNodesAndPortIndexs(self: _Described, index: int) -> NodeIo:
        """The node and output that feed input ``index``; the node is None for graph inputs and
        initializers.
        """
        return NodeIo.of(_present(self.inputs, index, f"input {index} of {self!r}"))

    def GetOutDataNodesAndPortIndexs(self: _Described, index: int) -> list[NodeIo]:
        """The readers of output ``index`` with the input at which they read it, in topological
        order.
        """
        value = _present(self.outputs, index, f"output {index} of {self!r}")
        return [NodeIo(node, slot) for node, slot in value.consumers()]


def _present(values: Sequence[Value | None], index: int, what: str) -> Value:
    value = values[index] if 0 <= index < len(values) else None
    if value is None:
        raise IndexError(f"{what} is absent")
    return value
