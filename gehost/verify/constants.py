"""Put exact constants in place of those that a model has rounded to half."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from gehost.ir.tensors import from_numpy, to_numpy
from gehost.verify.retype import HALF, graphs_of


def set_constants(
    wide: onnx.ModelProto, model: onnx.ModelProto, exact: Mapping[str, float]
) -> None:
    """Set constants of a widened model.

    A compile merges equal constants, so all that equal a named one are set.

    Args:
        wide: the widened model, which is changed.
        model: the original.
        exact: the value of each named tensor; names that the original lacks have no effect.
    """
    numbers: dict[str, tuple[int, float]] = {}
    for name, tensor in _scalars(model):
        if tensor.data_type in HALF:
            numbers[name] = tensor.data_type, float(to_numpy(tensor, None).reshape(-1)[0])
    values = {numbers[name]: value for name, value in exact.items() if name in numbers}
    for name, tensor in _scalars(wide):
        value = values.get(numbers.get(name, (0, 0.0)))
        if value is not None:
            array = to_numpy(tensor, None).copy()
            array[...] = value
            tensor.CopyFrom(from_numpy(array, tensor.name))


def rounded_in_half(model: onnx.ModelProto) -> dict[str, float]:
    """Return the float32 constants of one element that float16 rounds, by name."""
    values = {
        name: float(to_numpy(tensor, None).reshape(-1)[0])
        for name, tensor in _scalars(model)
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    with np.errstate(over="ignore"):  # what half cannot hold is bounded, and so far off
        halves = {name: float(np.float16(value)) for name, value in values.items()}
    return {
        name: value
        for name, value in values.items()
        if halves[name] != value and math.isfinite(halves[name])
    }


def _scalars(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield each embedded constant of one element by its name."""
    for graph in graphs_of(model):
        results = [(tensor.name, tensor) for tensor in graph.initializer]
        for node in graph.node:
            if node.op_type == "Constant":
                results += [(node.output[0], a.t) for a in node.attribute if a.HasField("t")]
        for name, tensor in results:
            external = tensor.data_location == onnx.TensorProto.EXTERNAL
            if all(dim == 1 for dim in tensor.dims) and not external:
                yield name, tensor
