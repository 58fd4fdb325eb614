"""``GraphBuilder`` and ``TensorHolder``: graphs of patterns and replacements with GE's names.

Source: the documented Python interface of GE (GraphBuilder, TensorHolder, ES-PY module).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, NoReturn

import numpy as np

from gehost import EsGraphBuilder, EsTensor, es
from gehost_ge.attributes import shown
from gehost_ge.building import in_pattern
from gehost_ge.drafts import Draft, DraftNode, DraftTensor
from gehost_ge.errors import GeError, checked, items_of, origin
from gehost_ge.graph import Graph, Node, agree
from gehost_ge.types import DataType, Format, Shape, TensorDesc, to_onnx


class InputType(Enum):
    """Kinds of graph inputs; ONNX has one."""

    DATA = "Data"


class TensorHolder:
    """A tensor of a graph under construction; arithmetic on it adds operators."""

    __array_ufunc__ = None
    """Keeps numpy from iterating over the tensor in ``array * tensor``."""

    def __init__(self, tensor: EsTensor, builder: GraphBuilder) -> None:
        self.tensor = tensor
        self.builder = builder

    def __repr__(self) -> str:
        return f"<TensorHolder {self.name}>"

    @property
    def name(self) -> str:
        producer = self.tensor.producer
        if isinstance(producer, es.EsNode):
            return f"{producer.GetType()}_{self.tensor.index}"
        return getattr(producer, "name", "Const")

    def set_data_type(self, data_type: DataType) -> TensorHolder:
        """State the element type.

        Raises:
            RuntimeError: inference has another one.
        """
        checked(data_type, DataType, "a DataType")
        agree(self._drafted(), TensorDesc(Shape([-2]), data_type=data_type))
        return self

    def set_format(self, format: Format) -> TensorHolder:  # noqa: A002 - GE's name
        """Check the name of a format; tensors of ONNX have none."""
        checked(format, Format, "a Format")
        return self

    def set_shape(self, shape: Shape | Sequence[int]) -> TensorHolder:
        """State the shape.

        Raises:
            RuntimeError: inference has another one.
        """
        declared = shape if isinstance(shape, Shape) else Shape(shape)
        agree(self._drafted(), TensorDesc(declared, data_type=DataType.DT_UNDEFINED))
        return self

    def _get_node_snapshot(self) -> Node:
        """Return the operator of the tensor; private in GE, but published examples call it."""
        return Node(self._drafted().node)

    def _drafted(self) -> DraftTensor:
        return DraftTensor(self.tensor, self.builder.draft)

    def __iter__(self) -> NoReturn:
        raise TypeError("a TensorHolder is one tensor and has no parts")

    def __add__(self, other: Any) -> TensorHolder:
        return binary("Add", self, other)

    def __radd__(self, other: Any) -> TensorHolder:
        return binary("Add", other, self)

    def __sub__(self, other: Any) -> TensorHolder:
        return binary("Sub", self, other)

    def __rsub__(self, other: Any) -> TensorHolder:
        return binary("Sub", other, self)

    def __mul__(self, other: Any) -> TensorHolder:
        return binary("Mul", self, other)

    def __rmul__(self, other: Any) -> TensorHolder:
        return binary("Mul", other, self)

    def __truediv__(self, other: Any) -> TensorHolder:
        return binary("Div", self, other)

    def __rtruediv__(self, other: Any) -> TensorHolder:
        return binary("Div", other, self)

    add, sub, mul, div = __add__, __sub__, __mul__, __truediv__


class GraphBuilder:
    """Builds one graph: ``build_and_reset`` uses it up."""

    def __init__(self, name: str | None = None) -> None:
        self.name = checked(name or "graph", str, "a name as text")
        with es.written_at(origin()):
            self.built = EsGraphBuilder(self.name)
        self.draft = Draft(self.built.graph)
        self._outputs: dict[int, TensorHolder] = {}
        self._is_used = False

    def __repr__(self) -> str:
        return f"<GraphBuilder {self.name}>"

    def holder(self, tensor: EsTensor) -> TensorHolder:
        """Return a tensor of this builder as authors see it."""
        return TensorHolder(tensor, self)

    def create_input(
        self,
        index: int,
        *,
        name: str | None = None,
        type_str: str | InputType = InputType.DATA,
        data_type: DataType = DataType.DT_FLOAT,
        format: Format = Format.FORMAT_ND,  # noqa: A002 - GE's name
        shape: Sequence[int] | None = None,
    ) -> TensorHolder:
        """Create the placeholder at ``index``: any tensor fits, also of other types and shapes.

        Raises:
            TypeError: an argument is of another type than documented.
            RuntimeError: the builder is used up.
        """
        del type_str, shape
        checked(index, int, "the index of an input")
        checked(data_type, DataType, "a DataType")
        checked(format, Format, "a Format")
        self.check_open()
        with es.written_at(origin()):
            tensor = self.built.CreateInput(index, name or "")
        self.draft.data_types[tensor.producer] = data_type
        return self.holder(tensor)

    def create_inputs(self, num: int, start_index: int = 0) -> list[TensorHolder]:
        """Create ``num`` placeholders from ``start_index`` on."""
        checked(num, int, "a number of inputs")
        return [self.create_input(index) for index in range(start_index, start_index + num)]

    def create_const_int64(self, value: Any, shape: Sequence[int] | None = None) -> TensorHolder:
        return self._constant(value, DataType.DT_INT64, shape)

    def create_const_int32(self, value: Any, shape: Sequence[int] | None = None) -> TensorHolder:
        return self._constant(value, DataType.DT_INT32, shape)

    def create_const_uint64(self, value: Any, shape: Sequence[int] | None = None) -> TensorHolder:
        return self._constant(value, DataType.DT_UINT64, shape)

    def create_const_uint32(self, value: Any, shape: Sequence[int] | None = None) -> TensorHolder:
        return self._constant(value, DataType.DT_UINT32, shape)

    def create_const_float(self, value: Any, shape: Sequence[int] | None = None) -> TensorHolder:
        return self._constant(value, DataType.DT_FLOAT, shape)

    def create_scalar_int64(self, value: int) -> TensorHolder:
        return self._constant(value, DataType.DT_INT64, ())

    def create_scalar_int32(self, value: int) -> TensorHolder:
        return self._constant(value, DataType.DT_INT32, ())

    def create_scalar_uint64(self, value: int) -> TensorHolder:
        return self._constant(value, DataType.DT_UINT64, ())

    def create_scalar_uint32(self, value: int) -> TensorHolder:
        return self._constant(value, DataType.DT_UINT32, ())

    def create_scalar_float(self, value: float) -> TensorHolder:
        return self._constant(value, DataType.DT_FLOAT, ())

    def create_vector_int64(self, value: Sequence[int]) -> TensorHolder:
        return self._constant(value, DataType.DT_INT64, (-1,))

    def create_variable(self, index: int, name: str) -> NoReturn:
        """Not offered; raises ``GeError``."""
        del index, name
        raise GeError("create_variable: ONNX has no variables; use create_input or a constant")

    def set_graph_output(self, tensor: TensorHolder, index: int) -> None:
        """Make a tensor output ``index``.

        Raises:
            ValueError: it is a tensor of another builder.
        """
        self.own(tensor)
        self._outputs[checked(index, int, "the index of an output")] = tensor

    def set_graph_attr_int64(self, name: str, value: int) -> None:
        _no_attributes(name, value)

    def set_graph_attr_string(self, name: str, value: str) -> None:
        _no_attributes(name, value)

    def set_graph_attr_bool(self, name: str, value: bool) -> None:
        _no_attributes(name, value)

    def set_tensor_attr_int64(self, tensor: TensorHolder, name: str, value: int) -> None:
        _no_attributes(name, value, tensor)

    def set_tensor_attr_string(self, tensor: TensorHolder, name: str, value: str) -> None:
        _no_attributes(name, value, tensor)

    def set_tensor_attr_bool(self, tensor: TensorHolder, name: str, value: bool) -> None:
        _no_attributes(name, value, tensor)

    def set_node_attr_int64(self, tensor: TensorHolder, name: str, value: int) -> None:
        self._set_node_attr(tensor, name, checked(value, int, "a whole number"))

    def set_node_attr_string(self, tensor: TensorHolder, name: str, value: str) -> None:
        self._set_node_attr(tensor, name, checked(value, str, "a text"))

    def set_node_attr_bool(self, tensor: TensorHolder, name: str, value: bool) -> None:
        self._set_node_attr(tensor, name, int(checked(value, bool, "True or False")))

    def add_control_dependency(self, dst: TensorHolder, src: Sequence[TensorHolder]) -> NoReturn:
        """Not offered; raises ``GeError``."""
        del dst, src
        raise GeError("add_control_dependency: ONNX has no control edges")

    def build_and_reset(self, outputs: Sequence[TensorHolder] | None = None) -> Graph:
        """Return the finished graph; the builder is used up.

        Args:
            outputs: the graph's results, by default those of ``set_graph_output`` by index.

        Raises:
            RuntimeError: the builder is used up.
            ValueError: an output is a tensor of another builder.
        """
        self.check_open()
        if outputs is None:
            outputs = [self._outputs[index] for index in sorted(self._outputs)]
        items = items_of(outputs)
        if items is None:
            raise TypeError(f"build_and_reset expects a list of tensors, got {outputs!r}")
        for tensor in items:
            self.own(tensor)
        self._is_used = True
        with es.written_at(origin()):
            self.built.BuildAndReset([tensor.tensor for tensor in items])
        return Graph(self.draft)

    def check_open(self) -> None:
        """Raises ``RuntimeError`` if the builder is used up."""
        if self._is_used:
            raise RuntimeError(f'"{self.name}" is built already; make another GraphBuilder')

    def own(self, tensor: Any) -> EsTensor:
        """Return the host's tensor; raises ``ValueError`` if another builder made it."""
        checked(tensor, TensorHolder, "a TensorHolder")
        if tensor.builder is not self:
            raise ValueError(
                f'{tensor!r} belongs to builder "{tensor.builder.name}", not to "{self.name}"'
            )
        return tensor.tensor

    def operand(self, value: Any) -> Any:
        """Return an operand as the host takes it; a number of a pattern stands for any constant."""
        if value is None:
            return None
        if isinstance(value, TensorHolder):
            return self.own(value)
        if not in_pattern() or isinstance(value, str):
            return value  # the host gives a number of a replacement its partner's type
        _check_numbers(value)
        return self.built.CreateConst(value)

    def _constant(
        self, value: Any, data_type: DataType, shape: Sequence[int] | None
    ) -> TensorHolder:
        self.check_open()
        dtype = to_onnx(data_type)
        _check_numbers(value)
        with es.written_at(origin()):
            return self.holder(self.built.CreateConst(np.asarray(value), dtype, shape))

    def _set_node_attr(self, tensor: TensorHolder, name: str, value: Any) -> None:
        producer = self.own(tensor).producer
        if not isinstance(producer, es.EsNode):
            raise GeError(f"{tensor!r} has no operator with attributes")
        Node(DraftNode(producer, self.draft)).set_attr(name, value)


def _check_numbers(value: Any) -> None:
    """Refuse numbers that no constant of a model equals."""
    array = np.asarray(value)
    if array.dtype.kind == "c":
        raise TypeError(f"GE's Python interface has no complex constants, got {shown(value)}")
    if in_pattern() and array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"no constant equals NaN, got {shown(value)} in a pattern")


def _no_attributes(name: str, value: Any, tensor: TensorHolder | None = None) -> NoReturn:
    del value
    raise GeError(
        f'attribute "{name}": in ONNX only nodes have attributes, no '
        f"{'graphs' if tensor is None else 'tensors'}"
    )


def builder_of(*operands: Any) -> GraphBuilder:
    """Return the builder of the tensors among ``operands``.

    Raises:
        TypeError: none of them is a tensor.
        ValueError: they belong to several builders.
    """
    builder: GraphBuilder | None = None
    for operand in operands:
        for part in items_of(operand) or [operand]:
            if isinstance(part, TensorHolder):
                if builder is None:
                    builder = part.builder
                else:
                    builder.own(part)
    if builder is None:
        raise TypeError("an operator needs a tensor among its inputs")
    builder.check_open()
    return builder


def binary(op: str, left: Any, right: Any) -> TensorHolder:
    """Add an operator of two operands, at least one of them a tensor."""
    builder = builder_of(left, right)
    with es.written_at(origin()):
        operands = builder.operand(left), builder.operand(right)
        return builder.holder(getattr(es, op)(*operands))


@contextmanager
def attr_scope(attributes: dict[str, Any]) -> Generator[None]:
    """Not offered; raises ``GeError``."""
    raise GeError(f"attr_scope({attributes}): give the attributes to the operators")
    yield


@contextmanager
def control_dependency_scope(tensors: Sequence[TensorHolder]) -> Generator[None]:
    """Not offered; raises ``GeError``."""
    del tensors
    raise GeError("control_dependency_scope: ONNX has no control edges")
    yield
