"""A model as sharding sees it: operators, tensors of fixed size, constants.

The one module that reads ONNX models for the others.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import external_data_helper, helper, numpy_helper

import gehost
from gehost import Host, HostOptions, ModelError, UsageError
from gehost_sharding.contrib import DOMAIN as CONTRIB
from gehost_sharding.contrib import contrib_shapes, node_to_infer
from gehost_sharding.rules.rule import Instance
from gehost_sharding.sharding import Shape

_SMALL = 1024
"""Elements up to which a constant is shown to shape inference and to the rules."""

_GRAPHS = {onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS}

RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    }
)


@dataclass(frozen=True)
class Tensor:
    """A tensor of fixed size."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Operator:
    """A node of the model."""

    index: int
    """Its position among the operators, which are in topological order."""
    position: int
    """Its position among the nodes of the model."""
    node: onnx.NodeProto
    op: str
    """``domain::Type``, or the type alone in ONNX's own domain."""

    @property
    def label(self) -> str:
        """Return a name for messages: the node's, or its first result's."""
        return self.node.name or (self.node.output[0] if self.node.output else self.op)


class OpenShapeError(ModelError):
    """A tensor has no fixed shape."""


class ModelGraph:
    """Operators in topological order, the tensors between them, and who reads them."""

    def __init__(self, proto: onnx.ModelProto, path: str | None = None) -> None:
        """Read a model; ``proto`` is kept and not changed.

        Raises:
            ModelError: control flow, a tensor without a fixed shape, or no tensor at all.
        """
        self.proto = proto
        self.path = path
        self.base_dir = os.path.dirname(os.path.abspath(path)) if path else ""
        self.opsets = {entry.domain: entry.version for entry in proto.opset_import}
        self.functions = {
            f"{function.domain}::{function.name}": function for function in proto.functions
        }
        graph = proto.graph
        self.initializers = {entry.name: entry for entry in graph.initializer}
        self.inputs = [entry.name for entry in graph.input if entry.name not in self.initializers]
        self.outputs = [entry.name for entry in graph.output]
        self.literals: dict[str, NDArray[Any]] = {}
        """Results of Constant, Shape and Size nodes, which are constants here and no operators."""
        self.operators: list[Operator] = []
        self.tensors: dict[str, Tensor] = {}
        self.producer: dict[str, tuple[int, int]] = {}
        """Tensor -> operator and result that computes it."""
        self.readers: dict[str, list[tuple[int, int]]] = {}
        """Tensor -> operators and operands that read it, in order."""
        self._refuse()
        self._read_shapes()
        self._read_nodes()

    def __str__(self) -> str:
        return self.path or "the model"

    def is_constant(self, name: str) -> bool:
        """Return True for initializers and literals, which a split cuts for free."""
        return name in self.initializers or name in self.literals

    def is_external(self, name: str) -> bool:
        """Return True if the value of an initializer is in another file."""
        return external_data_helper.uses_external_data(self.initializers[name])

    def value(self, name: str) -> NDArray[Any]:
        """Return the value of a constant; reads external data."""
        if name in self.literals:
            return self.literals[name]
        return numpy_helper.to_array(self.initializers[name], self.base_dir)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor by name.

        Raises:
            UsageError: the model has none of that name; gives the nearest ones.
        """
        if name not in self.tensors:
            nearest = difflib.get_close_matches(name, self.tensors, n=3, cutoff=0.5)
            hint = f"; the nearest: {', '.join(nearest)}" if nearest else ""
            raise UsageError(f'no tensor "{name}"{hint}', where=str(self))
        return self.tensors[name]

    def instance(self, operator: Operator) -> Instance:
        """Return the operator with its shapes, for the rule table."""
        node = operator.node
        operands = [self.tensors[name] if name else None for name in node.input]
        constants = {
            slot: self.value(name)
            for slot, name in enumerate(node.input)
            if name and self._is_shown(name)
        }
        return Instance(
            op=operator.op,
            opset=self.opsets.get(node.domain, 1),
            attributes={
                entry.name: helper.get_attribute_value(entry)
                for entry in node.attribute
                if entry.type not in _GRAPHS
            },
            operands=tuple(tensor and tensor.shape for tensor in operands),
            results=tuple(self.tensors[name].shape for name in node.output if name),
            constants=constants,
            dtypes=tuple(tensor and tensor.dtype for tensor in operands),
            present=_positions(node.output),
        )

    def signature(self, operator: Operator) -> tuple[Any, ...]:
        """Return a key that is equal for operators whose rules are equal."""
        node = operator.node
        return (
            operator.op,
            tuple(attribute.SerializeToString() for attribute in node.attribute),
            tuple(self._operand_key(name) if name else None for name in node.input),
            repeated_operands(node),
            tuple(self.tensors[name].shape for name in node.output if name),
            _positions(node.output),
        )

    def _operand_key(self, name: str) -> tuple[Any, ...]:
        tensor = self.tensors[name]
        if self._is_shown(name):
            return (tensor.shape, tensor.dtype, self.value(name).tobytes())
        return (tensor.shape, tensor.dtype, self.is_constant(name))

    def _is_shown(self, name: str) -> bool:
        """Return True for constants that rules may look at: small ones that are no floats."""
        tensor = self.tensors[name]
        return self.is_constant(name) and tensor.elements <= _SMALL and tensor.dtype.kind in "iub"

    # -- reading ------------------------------------------------------------------------------

    def _refuse(self) -> None:
        """Refuse control flow and random numbers, in the bodies of functions too."""
        self._refuse_in(self.proto.graph.node, {*self.initializers})
        for function in self.functions.values():
            self._refuse_in(function.node, set())

    def _refuse_in(self, nodes: Sequence[onnx.NodeProto], initializers: set[str]) -> None:
        literals = {node.output[0]: node for node in nodes if node.op_type == "Constant"}
        for node in nodes:
            where = f'{self}: {node.op_type} "{node.name}"'
            if any(attribute.type in _GRAPHS for attribute in node.attribute):
                raise ModelError(
                    f"{where} is control flow, which is not sharded; unroll or remove it"
                )
            is_random = not node.domain and node.op_type in RANDOM
            if not node.domain and node.op_type == "Dropout" and len(node.input) > 2:
                name = node.input[2]
                if name in initializers:
                    is_random = bool(self.value(name).any())
                elif name:
                    is_random = name not in literals or bool(_literal(literals[name]).any())
            if is_random:
                raise ModelError(
                    f"{where} draws random numbers, which would differ between devices",
                    hint="make them an input",
                )

    def _read_shapes(self) -> None:
        graph = self.proto.graph
        for name, entry in self.initializers.items():
            self.tensors[name] = Tensor(name, tuple(entry.dims), element_type(entry.data_type))
        inferred = _inferred(self.proto)
        for entry in (*graph.input, *inferred.graph.value_info, *inferred.graph.output):
            if entry.name not in self.initializers:
                self._read_shape(entry)
        for entry in (*graph.value_info, *graph.output):  # where inference knows nothing
            if entry.name not in self.tensors:
                self._read_shape(entry)

    def _read_shape(self, entry: onnx.ValueInfoProto) -> None:
        kind = entry.type.tensor_type
        value = entry.type.WhichOneof("value")
        if value not in {None, "tensor_type"}:
            raise ModelError(
                f'"{entry.name}" is a {str(value).removesuffix("_type")}; only tensors are sharded',
                where=str(self),
            )
        if value is None or not kind.HasField("shape"):
            return
        dims: list[int] = []
        for axis, dim in enumerate(kind.shape.dim):
            if not dim.HasField("dim_value"):
                if entry.name in self.inputs:
                    option = f"{dim.dim_param}=SIZE" if dim.dim_param else f"{entry.name}:{axis}=…"
                    named = f" ({dim.dim_param})" if dim.dim_param else ""
                    raise ModelError(
                        f'input "{entry.name}" has an open dimension {axis}{named}; '
                        f"sharding needs fixed sizes: give --dim {option}",
                        where=str(self),
                    )
                return
            dims.append(dim.dim_value)
        self.tensors[entry.name] = Tensor(entry.name, tuple(dims), element_type(kind.elem_type))

    def _read_nodes(self) -> None:
        for position, node in enumerate(self.proto.graph.node):
            op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            if op == "Constant":
                value = _literal(node)
                self._add_literal(node.output[0], value)
                continue
            self._require_shapes(node)
            if op in {"Shape", "Size"}:
                self._add_literal(node.output[0], self._measure(node))
                continue
            operator = Operator(len(self.operators), position, node, op)
            self.operators.append(operator)
            for slot, name in enumerate(node.input):
                if name:
                    self.readers.setdefault(name, []).append((operator.index, slot))
            for index, name in enumerate(name for name in node.output if name):
                self.producer[name] = (operator.index, index)
        for name in self.outputs:
            self._require_shape(name, "output")

    def _add_literal(self, name: str, value: NDArray[Any]) -> None:
        self.literals[name] = value
        self.tensors[name] = Tensor(name, value.shape, value.dtype)

    def _measure(self, node: onnx.NodeProto) -> NDArray[Any]:
        shape = self.tensors[node.input[0]].shape
        if node.op_type == "Size":
            return np.array(math.prod(shape), np.int64)
        attributes = {entry.name: entry.i for entry in node.attribute}
        return np.array(
            shape[attributes.get("start", 0) : attributes.get("end", len(shape))], np.int64
        )

    def _require_shapes(self, node: onnx.NodeProto) -> None:
        for name in (*node.input, *node.output):
            if name:
                self._require_shape(name, f'{node.op_type} "{node.name}"')

    def _require_shape(self, name: str, where: str) -> None:
        if name not in self.tensors:
            raise OpenShapeError(
                f'the shape of tensor "{name}" ({where}) is not fixed',
                where=str(self),
                hint="give --dim for each open dimension, and run gehost compile first, which "
                "folds shapes",
            )


def _positions(names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the names that are there; empty if no other comes before one of them."""
    present = tuple(position for position, name in enumerate(names) if name)
    return present if present != tuple(range(len(present))) else ()


def repeated_operands(node: onnx.NodeProto) -> tuple[tuple[int, int], ...]:
    """Pairs of operands that are the same tensor; annotations have one spec for both."""
    first: dict[str, int] = {}
    return tuple(
        (first[name], slot)
        for slot, name in enumerate(node.input)
        if name and first.setdefault(name, slot) != slot
    )


def read_model(path: str, dims: Mapping[str, int] | None = None) -> ModelGraph:
    """Read a model file and give its open dimensions fixed sizes.

    A model that computes shapes goes through the host's clean-up, which folds them.

    Args:
        path: an ONNX file, whose external data stays where it is, or one that an installed
            importer reads.
        dims: sizes by dimension name, or by ``INPUT:AXIS``.

    Raises:
        ModelError: the file is no model, or not one that can be sharded.
        UsageError: a name in ``dims`` that no input has.
    """
    model = gehost.read_model(path)
    try:
        proto = onnx.ModelProto()
        proto.CopyFrom(model.flush())
    finally:
        model.close()
    if dims:
        fix_dims(proto, dims, path)
    try:
        return ModelGraph(proto, path)
    except OpenShapeError:
        if any(
            external_data_helper.uses_external_data(tensor) for tensor in proto.graph.initializer
        ):
            raise
    folded, _ = Host(HostOptions()).run(proto)  # clean-up alone: folds computations of shapes
    return ModelGraph(folded, path)


def fix_dims(proto: onnx.ModelProto, dims: Mapping[str, int], path: str = "the model") -> None:
    """Give open dimensions of the inputs fixed sizes, in place.

    Raises:
        UsageError: a name that no input has, or a size below 1.
    """
    used: set[str] = set()
    for entry in proto.graph.input:
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            for key in (f"{entry.name}:{axis}", dim.dim_param):
                if key and key in dims:
                    used.add(key)
                    dim.Clear()
                    dim.dim_value = dims[key]
                    break
    for key, size in dims.items():
        if size < 1:
            raise UsageError(f"--dim {key}={size}: the least size is 1")
        if key not in used:
            open_dims = sorted(
                {
                    dim.dim_param
                    for entry in proto.graph.input
                    for dim in entry.type.tensor_type.shape.dim
                    if dim.dim_param
                }
            )
            raise UsageError(
                f"no input of {path} has that open dimension; open: "
                f"{', '.join(open_dims) or 'none'}",
                subject=f"--dim {key}",
            )
    if used:
        del proto.graph.value_info[:]
        for entry in proto.graph.output:
            for dim in entry.type.tensor_type.shape.dim:
                if dim.dim_param in dims:
                    size = dims[dim.dim_param]
                    dim.Clear()
                    dim.dim_value = size
                elif dim.dim_param:
                    dim.Clear()


def element_type(elem_type: int) -> np.dtype[Any]:
    """Return the numpy type of an ONNX element type; its item size is that on the wire.

    Raises:
        ModelError: strings and types that numpy cannot hold.
    """
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, TypeError) as error:
        raise ModelError(f"element type {elem_type} cannot be sharded") from error
    if dtype.kind == "O":
        raise ModelError("a model with tensors of strings cannot be sharded")
    return dtype


def _literal(node: onnx.NodeProto) -> NDArray[Any]:
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    if attribute.name in {"value_int", "value_ints"}:
        return np.array(value, np.int64)
    if attribute.name in {"value_float", "value_floats"}:
        return np.array(value, np.float32)
    raise ModelError(f"{attribute.name} cannot be sharded", subject=f'Constant "{node.name}"')


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes on a copy without large weights and without the file's own value_info."""
    version = max(proto.ir_version, 4)  # below, inference skips initializers that are no inputs
    light = onnx.ModelProto(ir_version=version, functions=proto.functions)
    light.opset_import.extend(proto.opset_import)
    light.graph.name = proto.graph.name or "graph"
    light.graph.node.extend(map(node_to_infer, proto.graph.node))
    if all(entry.domain != CONTRIB for entry in light.opset_import):
        light.opset_import.add(domain=CONTRIB, version=1)
    names = {entry.name for entry in proto.graph.initializer}
    light.graph.input.extend(entry for entry in proto.graph.input if entry.name not in names)
    for entry in proto.graph.initializer:
        if math.prod(entry.dims) <= _SMALL and not external_data_helper.uses_external_data(entry):
            light.graph.initializer.append(entry)
        else:
            light.graph.input.append(
                helper.make_tensor_value_info(entry.name, entry.data_type, tuple(entry.dims))
            )
    for entry in proto.graph.output:  # only the type: the shape is inferred
        output = light.graph.output.add(name=entry.name)
        output.type.CopyFrom(entry.type)
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        with contrib_shapes(light.graph.node):
            return onnx.shape_inference.infer_shapes(light, data_prop=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise ModelError(f"shape inference fails: {error}") from error
