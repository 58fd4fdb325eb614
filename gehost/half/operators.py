"""Operators by what half does to them: which keep float32, and which operands may be half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.half.reasons import FLOAT, QUANTIZED, UNKNOWN
from gehost.half.weights import rounded_array
from gehost.ir.node import op_name
from gehost.ir.schemas import schema_at
from gehost.ir.tensors import from_numpy, to_numpy
from gehost.ir.types import DataType
from gehost.kernels import Target, kernels

_KEPT = (
    frozenset(("AffineGrid", "Bernoulli", "BitCast", "BlackmanWindow", "CumSum", "DFT"))
    .union(("GridSample", "HammingWindow", "HannWindow", "MeanVarianceNormalization"))
    .union(("MelWeightMatrix", "Multinomial", "NonMaxSuppression", "RandomNormal"))
    .union(("RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "RoiAlign", "STFT"))
)
"""Operators whose numbers half is too coarse for, or whose draws would be others."""
_INTEGER_KERNELS = frozenset(("DynamicQuantizeLinear", "QuantizeLinear", "DequantizeLinear")).union(
    ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
)


def key_of(node: onnx.NodeProto) -> str:
    """Return the operator's full name, by which a model's functions are found."""
    return op_name(node.domain, node.op_type, node.overload)


def schema_of(node: onnx.NodeProto, opsets: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator of ONNX; None of others."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return schema_at(domain, node.op_type, opsets.get(domain, 1))


def reason_of(node: onnx.NodeProto) -> str:
    """Return why an operator keeps float32 in each model, or ""."""
    is_tree = node.domain == "ai.onnx.ml"  # these and their like have no half
    if is_tree or node.op_type in _KEPT or _trains(node) or _adds_up(node):
        return UNKNOWN
    return QUANTIZED if node.op_type in _INTEGER_KERNELS else ""


def _trains(node: onnx.NodeProto) -> bool:
    """Whether a normalization writes the statistics that it reads, which ONNX Runtime does."""
    return node.op_type == "BatchNormalization" and any(
        entry.name == "training_mode" and entry.i for entry in node.attribute
    )


def _adds_up(node: onnx.NodeProto) -> bool:
    """Whether a scatter adds up or multiplies, which ONNX Runtime's CPU cannot in half."""
    return node.op_type in ("ScatterElements", "ScatterND") and any(
        entry.name == "reduction" and entry.s != b"none" for entry in node.attribute
    )


def is_kernel(node: onnx.NodeProto) -> bool:
    """Whether a runtime has a kernel for an operator, in any type."""
    operator = op_name(node.domain, node.op_type)
    return any(row.operator == operator for row in kernels())


def has_kernel(node: onnx.NodeProto, target: Target, kind: DataType) -> bool:
    """Whether the target has a kernel for an operator in a type."""
    operator = f"{node.domain}::{node.op_type}"
    runtimes = {row.runtime for row in kernels() if row.operator == operator}
    return any(target.kernel(operator, kind, runtime) for runtime in runtimes)


def crashing(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Return the transposes at which ONNX Runtime's CPU provider dies, by result.

    Versions 1.31 and 1.32 join a product of half with one that moves the first of three axes, and
    have no kernel for what they made.
    """
    products = {name for node in nodes if node.op_type == "MatMul" for name in node.input}
    return {
        node.output[0]
        for node in nodes
        if node.op_type == "Transpose" and node.output[0] in products
        for entry in node.attribute
        if entry.name == "perm" and [*entry.ints] in ([1, 0, 2], [1, 2, 0])
    }


def takes_half(schema: onnx.defs.OpSchema, slot: int) -> bool:
    """Whether an operator's input may be half."""
    return "tensor(float16)" in _kinds(schema, schema.inputs, slot)


def gives_half(schema: onnx.defs.OpSchema, slot: int) -> bool:
    """Whether an operator that computes in half has it in an output."""
    if schema.name == "LayerNormalization" and slot > 0:
        return False  # mean and deviation have the type in which it computes
    return "tensor(float16)" in _kinds(schema, schema.outputs, slot)


def holds_float(schema: onnx.defs.OpSchema, slot: int) -> bool:
    """Whether an operator's input may hold floats, also in a sequence."""
    return any("tensor(float)" in kind for kind in _kinds(schema, schema.inputs, slot))


def makes_float(schema: onnx.defs.OpSchema, slot: int) -> bool:
    """Whether an operator's output may hold floats, also in a sequence."""
    return any("tensor(float)" in kind for kind in _kinds(schema, schema.outputs, slot))


def _kinds(schema: onnx.defs.OpSchema, formals: Sequence[Any], slot: int) -> Sequence[str]:
    """Return the types that an operand may have."""
    kind = formals[min(slot, len(formals) - 1)].type_str
    for constraint in schema.type_constraints:
        if constraint.type_param_str == kind:
            return constraint.allowed_type_strs
    return (kind,)


def retype(node: onnx.NodeProto) -> None:
    """Let a node that names its output's type make half."""
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(
            onnx.helper.make_attribute("value", from_numpy(np.zeros(1, np.float16), "value"))
        )
    for entry in node.attribute:
        if entry.HasField("t") and entry.t.data_type == FLOAT:
            entry.t.CopyFrom(from_numpy(rounded_array(to_numpy(entry.t, None)), entry.t.name))
        elif entry.name in ("to", "dtype", "output_dtype") and entry.i == FLOAT:
            entry.i = onnx.TensorProto.FLOAT16


def opsets_of(imports: Any) -> dict[str, int]:
    """Return the versions that a model or function imports, by domain."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}
