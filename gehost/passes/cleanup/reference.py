"""Compute operators on constants with ``onnx.reference``, each result rounded once.

Only operators and versions of which the committed table of ``make reference`` says that they equal
ONNX Runtime's. Floats are computed in float64 and rounded to the declared type, so that results
depend neither on the installed runtime nor, as far as float64 goes, on the machine.
Declined: results other than the declared types and shapes; NaN; infinities that no operand has;
random and quantized operators; -0.0 beside others in Max and Min; infinities in a Clip that lacks a
bound, where the bound is the largest finite number and the evaluator has none.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import onnx.helper

from gehost.ir import tensors
from gehost.ir.constants import Array
from gehost.ir.graph import Node
from gehost.ir.schemas import RANDOM
from gehost.ir.types import DataType, TensorType, ValueType
from gehost.passes.cleanup.call import Call, DeclinedError
from gehost.verify.reference import equals_runtime

OPERATIONS = 10**9
"""Operations that one expression may take."""
ALL_OPERATIONS = 10**10
"""Operations that all expressions of a clean-up may take."""

_ELEMENTS = 1 << 25
"""Elements of all operands, which are widened."""
_FLOATS = frozenset((DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE))
_INTEGERS = frozenset(
    dtype
    for dtype in DataType
    if dtype.name in {f"{u}INT{n}" for u in ("", "U") for n in (8, 16, 32, 64)}
)
_TYPES = _FLOATS | _INTEGERS | {DataType.BOOL}
_REFUSED = RANDOM | {
    *("BitShift", "Cast", "CastLike", "Constant", "Dropout", "DynamicQuantizeLinear"),
    *("DequantizeLinear", "QuantizeLinear", "Identity", "QLinearConv"),
    *("QLinearMatMul", "Range", "ConvInteger", "MatMulInteger"),
}
"""Random; parts of quantized chains, which runtimes find; operators with kernels of their own."""
_BY_ELEMENT = 10
"""Operations of an operator for an element, in numpy."""
_BY_STEP = 10_000
"""The same where the evaluator runs a step of Python for each element."""
_STEPS = frozenset(
    (
        *("AveragePool", "Col2Im", "CenterCropPad", "DeformConv", "GatherElements", "GatherND"),
        *("GridSample", "GRU", "LSTM", "LpPool", "MaxPool", "MaxUnpool", "NonMaxSuppression"),
        *("OneHot", "Resize", "RNN", "RoiAlign", "ScatterElements", "ScatterND", "TensorScatter"),
        *("TfIdfVectorizer", "TopK", "Unique", "Upsample"),
    )
)
_PRODUCTS = frozenset(("Attention", "DFT", "Einsum", "GRU", "LSTM", "RNN", "STFT"))
"""Operators that multiply each element of an operand with many of another."""


def can_compute(node: Node, version: int) -> bool:
    """Whether the operator, with these attributes and result types, may be computed."""
    if (
        "::" in node.op
        or node.op in _REFUSED
        or node.bodies
        or not equals_runtime(node.proto, version)
    ):
        return False
    return all(value is None or _is_static(value.type) for value in node.outputs)


def operations(node: Node) -> int:
    """Return an upper bound of the operations that a node takes, from its declared types."""
    sizes = [_size(value.type) for value in node.inputs if value is not None]
    results = [_size(value.type) for value in node.outputs if value is not None]
    moved = sum(sizes) + sum(results)
    if moved > _ELEMENTS:
        return OPERATIONS + 1
    left, right = (node.input(slot) for slot in (0, 1))
    if node.op in ("MatMul", "Gemm") and left is not None and left.shape:
        inner = left.shape[0 if node.attrs.get("transA") else -1]
        return moved + results[0] * (inner if isinstance(inner, int) else _ELEMENTS)
    if node.op in ("Conv", "ConvTranspose") and right is not None and right.shape:
        # the evaluator holds the window of each result, for every channel that it reads
        window = math.prod(dim for dim in right.shape[1:] if isinstance(dim, int))
        return moved + max(results[0], _BY_ELEMENT * _size(node.inputs[0].type)) * window  # type: ignore[union-attr]
    if node.op in _PRODUCTS:
        largest = sorted(sizes)[-2:]
        return moved * _BY_STEP + math.prod(largest)
    return moved * (_BY_STEP if node.op in _STEPS else _BY_ELEMENT)


def evaluate(call: Call) -> list[Array]:
    """Return the node's results, in the declared types and shapes."""
    from onnx.reference import ReferenceEvaluator  # takes as long as a small compile

    node, arrays = call.node, [array for array in call.inputs if array is not None]
    if node.op in ("Max", "Min") and any(map(_has_negative_zeros, arrays)):
        raise DeclinedError
    is_finite = not any(map(_has_infinities, arrays))
    lacks_bound = call.version >= 11 and len(arrays) < 3  # attributes have defaults
    if node.op == "Clip" and lacks_bound and not is_finite:
        raise DeclinedError
    feeds: dict[str, Array] = {}
    infos: list[onnx.ValueInfoProto] = []
    for slot, array in enumerate(call.inputs):
        if array is not None:
            feeds[f"i{slot}"] = wide = _widened(array)
            infos.append(
                onnx.helper.make_tensor_value_info(
                    f"i{slot}", tensors.elem_type(wide.dtype), wide.shape
                )
            )
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[:], proto.output[:], proto.metadata_props[:]
    proto.input.extend(
        "" if array is None else f"i{slot}" for slot, array in enumerate(call.inputs)
    )
    proto.output.extend("" if value is None else f"o{value.index}" for value in node.outputs)
    names = [name for name in proto.output if name]
    graph = onnx.helper.make_graph(
        [proto], "g", infos, [onnx.ValueInfoProto(name=name) for name in names]
    )
    opset = onnx.helper.make_opsetid("", call.version)
    model = onnx.helper.make_model(graph, opset_imports=[opset])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            outputs = cast(
                "Sequence[Any]", cast("Any", ReferenceEvaluator(model)).run(names, feeds)
            )
        except Exception as error:
            raise DeclinedError from error
    computed = dict(zip(names, outputs, strict=True))
    results = [
        np.empty(0) if value is None else _narrowed(computed[f"o{value.index}"], value.type)
        for value in node.outputs
    ]
    if is_finite and any(map(_has_infinities, results)):
        raise DeclinedError
    return results


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if _is_float(array) else array


def _narrowed(array: Any, declared: ValueType | None) -> Array:
    """Round a result once, to its declared type."""
    if not isinstance(array, np.ndarray | np.generic) or not isinstance(declared, TensorType):
        raise DeclinedError
    array, dtype = np.asarray(cast("Any", array)), declared.dtype.numpy
    if array.shape != declared.shape:
        raise DeclinedError
    if declared.dtype in _FLOATS:
        if array.dtype.kind != "f" or np.isnan(array).any():
            raise DeclinedError
        with np.errstate(all="ignore"):
            return array.astype(dtype)
    if array.dtype != dtype:
        raise DeclinedError
    return array


def _is_float(array: Array) -> bool:
    return DataType(tensors.elem_type(array.dtype)) in _FLOATS


def _has_infinities(array: Array) -> bool:
    return _is_float(array) and bool(np.isinf(array).any())


def _has_negative_zeros(array: Array) -> bool:
    return _is_float(array) and bool((np.signbit(array) & (array == 0)).any())


def _is_static(value_type: ValueType | None) -> bool:
    return (
        isinstance(value_type, TensorType)
        and value_type.size is not None
        and value_type.dtype in _TYPES
    )


def _size(value_type: ValueType | None) -> int:
    size = value_type.size if isinstance(value_type, TensorType) else None
    return _ELEMENTS if size is None else size
