"""Types of ONNX Runtime's own operators, against its schemas and its inference."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.infer.runtime_operators import _ELEMENTS, _SHAPES
from gehost.ir.model import Model
from gehost.ir.types import DataType, TensorType, encode_type
from gehost.ops import OpRegistry

onnxruntime = pytest.importorskip("onnxruntime")
bindings = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'

CASES = [
    # operator <attributes>, types of the operands ("": left out), number of results
    (
        "MatMulNBits <K=32, N=48, bits=4, block_size=16>",
        "float16[B,S,32] uint8[48,2,8] float16[96]",
        1,
    ),
    (
        "MatMulBnb4 <K=32, N=48, block_size=16, quant_type=1>",
        "float[B,S,32] uint8[768] float[96]",
        1,
    ),
    ("FusedMatMul <transA=1, alpha=2.0>", "float[B,32,S] float[B,32,8]", 1),
    ("FusedMatMul <transB=1>", "float[B,1,S,32] float[4,8,32]", 1),
    ("FusedMatMul <transBatchA=1>", "float[S,B,32] float[B,32,8]", 1),
    ("FusedMatMul", "float[B,S,32] float[32,8]", 1),
    ("TransposeMatMul <transB=1>", "float[B,S,32] float[8,32]", 1),
    ('FusedGemm <transB=1, activation="Relu">', "float[B,32] float[8,32] float[8]", 1),
    ("DynamicQuantizeMatMul", "float[B,S,32] uint8[32,8] float[1] uint8[1]", 1),
    ("MatMulIntegerToFloat", "uint8[B,S,32] uint8[32,8] float[1] float[1]", 1),
    ("MatMulInteger16", "int16[B,S,32] int16[32,8]", 1),
    (
        "QAttention <num_heads=2>",
        "uint8[B,S,16] uint8[16,48] float[48] float float int32[B] uint8 uint8",
        1,
    ),
    ("Attention <num_heads=2>", "float16[B,S,16] float16[16,48] float16[48]", 1),
    (
        "Attention <num_heads=2, qkv_hidden_sizes=[16, 16, 32]>",
        "float[B,S,16] float[16,64] float[64]",
        1,
    ),
    (
        "Attention <num_heads=2>",
        "float[B,S,16] float[16,48] float[48] int32[B,?] float[2,B,2,P,8]",
        2,
    ),
    ("MultiHeadAttention <num_heads=2>", "float16[B,S,16] float16[B,T,16] float16[B,T,32]", 1),
    ("MultiHeadAttention <num_heads=2>", "float[B,S,16] float[B,2,T,8] float[B,2,T,8]", 1),
    ("MultiHeadAttention <num_heads=2>", "float[B,S,2,3,8]", 1),
    ("MultiHeadAttention <num_heads=2>", "float[B,S,16] float[B,T,2,2,8]", 1),
    ("MultiHeadAttention <num_heads=2>", "float[B,S,16] float[B,T,16] float[B,T,32]", 3),
    (
        "DecoderMaskedMultiHeadAttention <num_heads=2>",
        "float[B,1,16] float[B,1,16] float[B,1,16]",
        1,
    ),
    (
        "GroupQueryAttention <num_heads=4, kv_num_heads=2>",
        "float16[B,S,64] float16[B,S,32] float16[B,S,32] float16[B,2,P,16] float16[B,2,P,16] int32[B] int32",
        3,
    ),
    (
        "GroupQueryAttention <num_heads=4, kv_num_heads=2>",
        "float[B,S,128] - - float[B,2,P,16] float[B,2,P,16] int32[B] int32",
        3,
    ),
    ("SkipLayerNormalization", "float16[B,S,16] float16[B,S,16] float16[16] float16[16]", 4),
    ("SkipSimplifiedLayerNormalization", "float16[B,S,16] float16[B,S,16] float16[16]", 4),
    (
        "EmbedLayerNormalization",
        "int32[B,S] int32[B,S] float[9,16] float[9,16] float[2,16] float[16] float[16] int32[B,S]",
        2,
    ),
    ("RotaryEmbedding", "float[B,S,16] int64[B,S] float[9,4] float[9,4]", 1),
    ("BiasGelu", "float16[B,S,16] float16[16]", 1),
    ("FastGelu", "float[B,S,16] float[16]", 1),
    ("QuickGelu", "float[B,S,16]", 1),
    ("Gelu", "float[B,S,16]", 1),
    ("BiasSoftmax <axis=1, is_inner_broadcast=0>", "float[B,S,16] float[1,S,16]", 1),
    ("BiasSplitGelu", "float[B,S,1280] float[1280]", 1),
    ("GroupNorm <groups=2, activation=0>", "float[B,8,8,16] float[16] float[16]", 1),
    (
        "SkipGroupNorm <groups=2, activation=0>",
        "float[B,8,8,16] float[16] float[16] float[B,8,8,16]",
        2,
    ),
    ("BiasAdd", "float[B,S,16] float[16] float[B,S,16]", 1),
    ("Inverse", "float[B,4,4]", 1),
    ("Trilu", "float[B,4,4]", 1),
    ("QuantizeLinear", "float[B,16] float uint16", 1),
    ("DequantizeLinear", "uint16[B,16] float uint16", 1),
    ("QLinearAdd", "uint8[B,S,16] float uint8 uint8[1,16] float uint8 float uint8", 1),
    ("QLinearMul", "uint8[B,1,16] float uint8 uint8[B,S,1] float uint8 float uint8", 1),
    ("QLinearSigmoid", "uint8[B,16] float uint8 float uint8", 1),
    ("QLinearLeakyRelu <alpha=0.1>", "uint8[B,16] float uint8 float uint8", 1),
    ("QLinearSoftmax <opset=13>", "uint8[B,16] float uint8 float uint8", 1),
    ("QLinearConv", "uint8[1,3,8,8] float uint8 uint8[2,3,1,1] float uint8 float uint8", 1),
    ("QLinearConcat <axis=1>", "float uint8 uint8[B,2] float uint8 uint8[B,3] float uint8", 1),
    ("GatherBlockQuantized", "uint4[9,32] int64[B,S] float[9,1]", 1),
    ('FusedConv <activation="Relu">', "float[B,3,8,8] float[2,3,1,1]", 1),
    ("MoE <k=1>", "float[S,16] float[S,4] float[4,16,32] - float[4,32,16]", 1),
]


def model_of(case: str, operands: str, results: int, opset: int = 17) -> onnx.ModelProto:
    op, _, attributes = case.partition(" ")
    kinds = operands.split()
    names = ["" if kind == "-" else f"i{place}" for place, kind in enumerate(kinds)]
    inputs = ", ".join(f"{k} {n}" for k, n in zip(kinds, names, strict=True) if n)
    outputs = ", ".join(f"o{place}" for place in range(results))
    text = f"""{HEAD} g ({inputs}) => (float unused)
    {{ {outputs} = com.microsoft.{op} {attributes} ({", ".join(names)}) unused = Constant <value_float=1.0> () }}"""
    return onnx.parser.parse_model(text)


NO_KERNEL_HERE = ("BiasSoftmax", "BiasSplitGelu", "GroupNorm", "SkipGroupNorm", "BiasAdd")
"""Of a CPU: their sizes are those of the documentation."""


@pytest.mark.parametrize(("case", "operands", "results"), CASES)
def test_types_are_those_of_the_runtime(case: str, operands: str, results: int) -> None:
    proto = model_of(case, operands, results)
    model = Model(proto)
    infer_model(model, Inferrer(model, OpRegistry()))
    ours: list[Any] = [model.graph.values[f"o{place}"].type for place in range(results)]
    assert all(isinstance(kind, TensorType) for kind in ours)
    if case.startswith(NO_KERNEL_HERE):
        return
    del proto.graph.output[:]
    for place, kind in enumerate(ours):
        open_type = encode_type(TensorType(kind.dtype, None))
        proto.graph.output.add(name=f"o{place}", type=open_type)
    for our, their in zip(ours, types_of_the_runtime(proto), strict=True):
        assert their.type == f"tensor({str(TensorType(our.dtype, ()))[:-2]})"
        if our.shape is not None and their.shape:
            assert len(our.shape) == len(their.shape)
            assert all(map(agree, our.shape, their.shape)), (our.shape, their.shape)


def agree(ours: Any, theirs: Any) -> bool:
    """Whether two sizes are equal, or one is open."""
    return ours == theirs or is_open(ours) or is_open(theirs)


def is_open(size: Any) -> bool:
    return size is None or (isinstance(size, str) and not size.isalpha())


def types_of_the_runtime(proto: onnx.ModelProto) -> list[Any]:
    """The outputs of a session, with types and shapes that ONNX Runtime infers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.get_outputs()


def test_sizes_are_known_where_operands_have_them() -> None:
    for case, operands, expected in (
        (CASES[0][0], CASES[0][1], "float16[B,S,48]"),
        ("FusedMatMul <transA=1>", "float[B,32,S] float[B,32,8]", "float[B,S,8]"),
        (
            "MultiHeadAttention <num_heads=2>",
            "float[B,S,16] float[B,T,16] float[B,T,32]",
            "float[B,S,32]",
        ),
        ("GroupQueryAttention <num_heads=4, kv_num_heads=2>", "float[B,S,128]", "float[B,S,64]"),
        ("FusedMatMul", "float[B,S,32] float[C,32,8]", "float[?,S,8]"),
    ):
        model = Model(model_of(case, operands, 1))
        infer_model(model, Inferrer(model, OpRegistry()))
        result = model.graph.values["o0"].type
        assert isinstance(result, TensorType)
        shown = TensorType(
            result.dtype, tuple(None if is_open(d) else d for d in result.shape or ())
        )
        assert str(shown) == expected


def test_element_types_are_those_of_the_schemas() -> None:
    """A result has the type of the operand with which it shares a name of a type."""
    schemas = bindings.get_all_operator_schema()
    by_name = {item.name: item for item in schemas if item.domain == "com.microsoft"}
    assert set(_SHAPES) <= set(_ELEMENTS)
    for name, sources in _ELEMENTS.items():
        schema = by_name.get(name)
        for place, source in enumerate(sources) if schema is not None else ():
            kind = schema.outputs[place].typeStr
            if isinstance(source, DataType):
                allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
                name_of = f"tensor({str(TensorType(source, ()))[:-2]})"
                assert name_of in allowed.get(kind, [kind]), name
            elif source is not None:
                assert schema.inputs[source].typeStr == kind, (name, place)
