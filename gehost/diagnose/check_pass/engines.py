"""Engines that compute a model's numbers, the most trusted one first.

ONNX Runtime lacks kernels for some element types. The reference evaluator runs nearly everything,
but some operators wrongly; then ONNX Runtime may still run the model with float32 for all floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import numpy as np
import onnx

from gehost.ir import tensors
from gehost.ir.types import DataType
from gehost.verify import Runner
from gehost.verify.reference import engine_version, reference_faults
from gehost.verify.run import ENGINES

_FLOATS = frozenset({DataType.FLOAT16, DataType.BFLOAT16, DataType.DOUBLE})


class Engine(Enum):
    """An engine, in the order in which they are tried."""

    RUNTIME = "ONNX Runtime"
    REFERENCE = "onnx.reference"
    SINGLE = "ONNX Runtime in float32"

    def __str__(self) -> str:
        version = engine_version(ENGINES[self is Engine.REFERENCE])
        name, _, way = self.value.partition(" in ")
        return f"{name} {version}{f' in {way}' if way else ''}"


class Loaded(NamedTuple):
    """A model in one engine, with its own element types or float32."""

    model: onnx.ModelProto
    runner: Runner


def load(model: onnx.ModelProto, engine: Engine) -> Loaded | None:
    """Load a model in an engine; None if that lacks a kernel, or is known to be wrong for it.

    Raises:
        ModelError: the model does not load.
    """
    if engine is Engine.REFERENCE:
        faults = reference_faults(model)
        return None if faults else Loaded(model, Runner(model, engine="reference"))
    source = in_single_precision(model) if engine is Engine.SINGLE else model
    runner = Runner(source)
    return None if runner.engine == "reference" else Loaded(source, runner)


def in_single_precision(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model in which all floats are float32."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = int(DataType.FLOAT)
    for tensor in graph.initializer:
        _recast(tensor)
    _recast_nodes(graph.node)
    for function in copy.functions:
        _recast_nodes(function.node)
        del function.value_info[:]
    del graph.value_info[:]
    return copy


def _recast_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for entry in node.attribute:
            if entry.type == onnx.AttributeProto.TENSOR:
                _recast(entry.t)
            elif entry.name in ("to", "dtype", "output_dtype") and entry.i in _FLOATS:
                entry.i = int(DataType.FLOAT)


def _recast(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        array = tensors.to_numpy(tensor, None).astype(np.float32)
        tensor.CopyFrom(tensors.from_numpy(array, tensor.name))
