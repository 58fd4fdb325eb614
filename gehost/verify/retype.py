"""Copy a model with other float types: tensors, declared types, and attributes that name types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.infer import Inferrer, infer_model
from gehost.ir.bodies import bodies_in, graphs_of, node_lists
from gehost.ir.files.external import all_tensors, element_bits, element_count
from gehost.ir.graph import Node, split_op
from gehost.ir.model import Model
from gehost.ir.tensors import from_numpy, to_numpy
from gehost.ir.types import TYPE_ATTRIBUTES, TensorType, ValueType
from gehost.ops import OpRegistry
from gehost.verify.feeds import without_weights

_TENSOR = onnx.TensorProto
HALF = frozenset((_TENSOR.FLOAT16, _TENSOR.BFLOAT16))
WIDER: Mapping[int, int] = MappingProxyType(dict.fromkeys(HALF, _TENSOR.FLOAT))
TO_DOUBLE: Mapping[int, int] = MappingProxyType(
    dict.fromkeys((*HALF, _TENSOR.FLOAT), _TENSOR.DOUBLE)
)
_ALIGNMENT = 4096
"""Of external data, so that it can be mapped."""


def retyped(
    model: onnx.ModelProto,
    types: Mapping[int, int],
    base_dir: str | None = None,
    folder: Path | None = None,
) -> onnx.ModelProto:
    """Return a copy in which each element type of ``types`` is replaced by its value.

    Args:
        model: it stays as it is.
        types: the new type of each replaced one.
        base_dir: of the model's external data.
        folder: where initializers go instead of memory; it is then the copy's ``base_dir``.

    Raises:
        ModelError: the data of a tensor cannot be read.
    """
    copy = _without_initializers(model)
    for nodes in node_lists(copy):
        for node in nodes:
            _write_default_type(node)
    for tensor in all_tensors(copy):
        if tensor.data_type in types:
            tensor.CopyFrom(from_numpy(_converted(tensor, types, base_dir), tensor.name))
    for tensor in model.graph.initializer:
        if folder is not None and tensor.data_type != _TENSOR.STRING:
            _append(copy.graph.initializer.add(), tensor, types, base_dir, folder)
        elif tensor.data_type in types:
            array = _converted(tensor, types, base_dir)
            copy.graph.initializer.append(from_numpy(array, tensor.name))
        else:
            copy.graph.initializer.append(tensor)
    for kind in _declared(copy):
        if kind.elem_type in types:
            kind.elem_type = types[kind.elem_type]
    for nodes in node_lists(copy):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.name in TYPE_ATTRIBUTES and attribute.i in types:
                    attribute.i = types[attribute.i]
    return copy


def replace_noop_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace no-op Casts of inputs and of other Casts by Identities; return the model.

    Retyped models have many. ONNX Runtime 1.31, without optimizations, loses an input that two of
    them pass on to a body ("Missing Input").
    """
    inputs = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
    for nodes in node_lists(model):
        kinds = dict(inputs)
        for node in nodes:
            if node.op_type == "Cast" and node.domain in ("", "ai.onnx"):
                kind = next(entry.i for entry in node.attribute if entry.name == "to")
                if kinds.get(node.input[0]) == kind:
                    node.op_type = "Identity"
                    del node.attribute[:]
                kinds[node.output[0]] = kind
        inputs = {}  # of the graph alone: bodies and functions may give the same names
    return model


def _write_default_type(node: onnx.NodeProto) -> None:
    """Write the float32 of a result that no attribute of the node names."""
    if node.domain not in ("", "ai.onnx"):
        return
    names = {attribute.name for attribute in node.attribute}
    if node.op_type in ("RandomNormal", "RandomUniform") and "dtype" not in names:
        node.attribute.append(onnx.helper.make_attribute("dtype", int(_TENSOR.FLOAT)))
    elif node.op_type == "ConstantOfShape" and "value" not in names:
        zero = from_numpy(np.zeros(1, np.float32), "")
        node.attribute.append(onnx.helper.make_attribute("value", zero))


def retyped_bytes(model: onnx.ModelProto, types: Mapping[int, int]) -> list[int]:
    """Return the bytes of each initializer in the new types."""
    return [
        element_bits(types.get(tensor.data_type, tensor.data_type)) * element_count(tensor) // 8
        for tensor in model.graph.initializer
        if tensor.data_type != _TENSOR.STRING
    ]


def _without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of all but the initializers, which may be larger than the memory."""
    copy = onnx.ModelProto()
    for source, target in ((model, copy), (model.graph, copy.graph)):
        for field, value in source.ListFields():
            if field.name in ("graph", "initializer"):
                continue
            if not field.is_repeated:
                scalar = field.message_type is None
                setattr(target, field.name, value) if scalar else getattr(
                    target, field.name
                ).CopyFrom(value)
            else:
                getattr(target, field.name).extend(value)
    return copy


def _converted(
    tensor: onnx.TensorProto, types: Mapping[int, int], base_dir: str | None
) -> np.ndarray[Any, Any]:
    kind = types.get(tensor.data_type, tensor.data_type)
    return to_numpy(tensor, base_dir).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))


def _append(
    target: onnx.TensorProto,
    tensor: onnx.TensorProto,
    types: Mapping[int, int],
    base_dir: str | None,
    folder: Path,
) -> None:
    """Write the converted data behind that of earlier tensors; fill in ``target``."""
    content = from_numpy(_converted(tensor, types, base_dir), tensor.name)
    data = content.raw_data
    content.ClearField("raw_data")
    target.CopyFrom(content)
    target.data_location = _TENSOR.EXTERNAL
    with (folder / "weights").open("ab") as file:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        entries = {"location": "weights", "offset": file.tell(), "length": len(data)}
        for key, value in entries.items():
            target.external_data.add(key=key, value=str(value))
        file.write(data)


def holds(model: onnx.ModelProto, types: frozenset[int]) -> bool:
    """Whether a tensor, a declared type or an attribute of the model has one of ``types``."""
    return (
        any(kind.elem_type in types for kind in _declared(model))
        or any(tensor.data_type in types for tensor in all_tensors(model))
        or any(
            attribute.name in TYPE_ATTRIBUTES and attribute.i in types
            for nodes in node_lists(model)
            for node in nodes
            for attribute in node.attribute
        )
    )


class _Guesses(Inferrer):
    """Knows of a kernel without a rule at least that it mostly keeps the type of an input."""

    def node(
        self, node: Node, types: Sequence[ValueType | None] | None = None
    ) -> tuple[ValueType | None, ...]:
        results = super().node(node, types)
        first = node.outputs[0] if node.outputs else None
        if split_op(node.op)[0] in ("", "ai.onnx") or first is None or first.type or results[0]:
            return results
        kinds = [value.dtype for value in node.inputs if value is not None]
        dtype = next((kind for kind in kinds if kind in TO_DOUBLE), None)
        guess = None if dtype is None else TensorType(dtype, None)
        return (guess, *results[1:])


def inferred(model: onnx.ModelProto) -> Model:
    """Return a model with the types of its tensors, as far as inference knows or guesses them."""
    indexed = Model(model)
    infer_model(indexed, _Guesses(indexed, OpRegistry()))
    return indexed


def tensor_types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the type of each tensor, as far as inference knows it."""
    return {
        name: value.type
        for graph in inferred(without_weights(model)).graphs
        for name, value in graph.values.items()
        if isinstance(value.type, TensorType)
    }


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the element type of each tensor, as far as inference knows it."""
    return {name: int(kind.dtype) for name, kind in tensor_types(model).items()}


def _declared(model: onnx.ModelProto) -> Iterator[Any]:
    """Yield each declared tensor type, also inside sequences and optionals."""
    kinds: list[onnx.TypeProto] = []
    bodies = [body for function in model.functions for body in bodies_in(function.node)]
    for graph in (*graphs_of(model), *bodies):
        for values in (graph.input, graph.output, graph.value_info):
            kinds.extend(value.type for value in values)
    for function in model.functions:
        kinds.extend(value.type for value in function.value_info)
    for nodes in node_lists(model):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("tp"):
                    kinds.append(attribute.tp)
    while kinds:
        kind = kinds.pop()
        match kind.WhichOneof("value"):
            case "tensor_type":
                yield kind.tensor_type
            case "sparse_tensor_type":
                yield kind.sparse_tensor_type
            case "sequence_type":
                kinds.append(kind.sequence_type.elem_type)
            case "optional_type":
                kinds.append(kind.optional_type.elem_type)
            case "map_type":
                kinds.append(kind.map_type.value_type)
            case _:
                pass
