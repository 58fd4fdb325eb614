"""What is known of a value, from protobuf and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from gehost.ir.types import (
    DataType,
    OtherType,
    TensorType,
    decode_type,
    dtype_from_number,
    encode_type,
)


def info(text: str) -> onnx.TypeProto:
    return onnx.parser.parse_graph(f"g ({text} x) => () {{ }}").input[0].type


def test_every_element_type_of_onnx_is_known_under_its_number():
    assert {dtype.name: int(dtype) for dtype in DataType} == dict(onnx.TensorProto.DataType.items())
    assert dtype_from_number(10) is DataType.FLOAT16
    assert dtype_from_number(999) is DataType.UNDEFINED


def test_ge_s_names_are_the_same_members():
    assert DataType.DT_FLOAT is DataType.FLOAT
    assert DataType.DT_BF16 is DataType.BFLOAT16
    assert [DataType[f"DT_{name}"] for name in ("INT64", "BOOL", "STRING", "DOUBLE")] == [
        7,
        9,
        8,
        11,
    ]


def test_numpy_and_float():
    assert DataType.FLOAT.numpy == np.float32
    assert DataType.BFLOAT16.numpy == ml_dtypes.bfloat16
    floats = [dtype for dtype in DataType if dtype.is_float]
    assert floats == [DataType.FLOAT, DataType.FLOAT16, DataType.DOUBLE, DataType.BFLOAT16]


@pytest.mark.parametrize(
    ("text", "expected", "rank", "size"),
    [
        ("float[2, 3]", "float[2,3]", 2, 6),
        ("float[]", "float[*]", None, None),
        ("int64[N, 0, ?]", "int64[N,0,?]", 3, None),
        ("float16[4, 0]", "float16[4,0]", 2, 0),
    ],
)
def test_tensors(text, expected, rank, size):
    declared = decode_type(info(text))
    assert isinstance(declared, TensorType)
    assert (str(declared), declared.rank, declared.size) == (expected, rank, size)
    assert decode_type(encode_type(declared)) == declared


def test_a_scalar_is_not_an_unknown_rank():
    scalar = TensorType(DataType.FLOAT, ())
    assert (str(scalar), scalar.rank, scalar.size) == ("float[]", 0, 1)
    assert decode_type(encode_type(scalar)) == scalar
    assert encode_type(scalar).tensor_type.HasField("shape")
    assert not encode_type(TensorType(DataType.FLOAT, None)).tensor_type.HasField("shape")


def test_what_says_nothing_is_unknown():
    assert decode_type(onnx.TypeProto()) is None
    assert decode_type(onnx.helper.make_tensor_type_proto(0, None)) is None
    shaped = onnx.helper.make_tensor_type_proto(999, [2])
    assert decode_type(shaped) == TensorType(DataType.UNDEFINED, (2,))


def test_invented_names_and_negative_sizes_are_unknown():
    proto = onnx.helper.make_tensor_type_proto(1, ["unk__12", "unknown", "", -1, None, "N"])
    assert decode_type(proto) == TensorType(
        DataType.FLOAT, (None, "unknown", None, None, None, "N")
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seq(float[2])", "sequence_type"),
        ("optional(float[2])", "optional_type"),
        ("sparse_tensor(float[2])", "sparse_tensor_type"),
    ],
)
def test_other_types_are_carried_through(text, expected):
    proto = info(text)
    declared = decode_type(proto)
    assert isinstance(declared, OtherType)
    assert str(declared) == expected
    assert encode_type(declared) == proto
    assert decode_type(info(text)) == declared


def test_unequal_types_are_unequal():
    assert TensorType(DataType.FLOAT, (2, "N")) == TensorType(DataType.FLOAT, (2, "N"))
    assert TensorType(DataType.FLOAT, (2, "N")) != TensorType(DataType.FLOAT, (2, "M"))
    assert TensorType(DataType.FLOAT, (2,)) != TensorType(DataType.INT64, (2,))
    assert TensorType(DataType.FLOAT, None) != TensorType(DataType.FLOAT, ())
