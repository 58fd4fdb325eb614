"""Put exact constants in place of those that a model has rounded to half."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx
import onnx.helper

from gehost.ir.bodies import graphs_of, node_lists
from gehost.ir.tensors import from_numpy, to_numpy
from gehost.verify.retype import HALF

NO_CONSTANTS: Mapping[float, float] = MappingProxyType({})


def exact_numbers(model: onnx.ModelProto, exact: Mapping[str, float]) -> dict[float, float]:
    """Return the exact number of each rounded one.

    A factor is also written as the divisor, and a constant may be inside of a function: so exact
    numbers and their reciprocals are there rounded, too.

    Args:
        model: the original, in half.
        exact: a number by the name of the constant that rounds it, or of a tensor near it.
    """
    results: dict[float, float] = {}
    for value in exact.values():
        for number in (value, 1 / value if value else value):
            results |= dict.fromkeys(_rounded(number), number)
    for name, tensor in _scalars(model):
        if name in exact and tensor.data_type in HALF:
            results[_number(tensor)] = exact[name]
    return {
        number: value
        for number, value in results.items()
        if number != value and math.isfinite(number)
    }


def _rounded(number: float) -> Iterator[float]:
    for kind in HALF:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        with np.errstate(over="ignore"):
            yield float(np.asarray(number).astype(dtype))


def set_constants(wide: onnx.ModelProto, exact: Mapping[float, float]) -> None:
    """Set the constants of a widened model that are rounded numbers.

    All that equal one are set, also in functions: a compile merges equal constants.
    """
    if not exact:
        return
    for _, tensor in _scalars(wide):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            value = exact.get(_number(tensor))
            if value is not None:
                array = np.full(tuple(tensor.dims), value, np.float32)
                tensor.CopyFrom(from_numpy(array, tensor.name))


def _number(tensor: onnx.TensorProto) -> float:
    return float(to_numpy(tensor, None).reshape(-1)[0])


def _scalars(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield each embedded constant of one element by its name."""
    results = [(tensor.name, tensor) for graph in graphs_of(model) for tensor in graph.initializer]
    for nodes in node_lists(model):
        for node in nodes:
            if node.op_type == "Constant":
                results += [(node.output[0], a.t) for a in node.attribute if a.HasField("t")]
    for name, tensor in results:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if all(dim == 1 for dim in tensor.dims) and not external:
            yield name, tensor
