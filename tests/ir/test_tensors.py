from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from gehost.errors import ModelError
from gehost.ir import tensors

NUMERIC = [
    pytest.param(number, id=name)
    for name, number in TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING")
]
# 15 elements: of every packed type the last byte is only partly used.
SHAPES = [
    pytest.param((3, 5), id="3x5"),
    pytest.param((), id="scalar"),
    pytest.param((0, 4), id="empty"),
]


def sample(number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Distinct, seeded elements of an element type, negative ones and fractions among them."""
    dtype = tensors.numpy_dtype(number)
    values = np.random.default_rng(number).permutation(np.prod(shape, dtype=int)) - 7
    if dtype == np.bool_:
        return (values % 2).astype(dtype).reshape(shape)
    if dtype.kind == "c":
        return (values + 1j * values[::-1]).astype(dtype).reshape(shape)
    low = 0 if dtype.kind == "u" or dtype.name.startswith("uint") or "e8m0" in dtype.name else -2
    bits = tensors.nbytes(TensorProto(data_type=number, dims=[8]))
    if bits < 8:
        values = (values % min(2**bits, 7)) + (low if bits < 4 else 2 * low)
    elif low == 0:
        values = values + 8
    return values.astype(dtype).reshape(shape)


def typed(array: np.ndarray) -> TensorProto:
    """The array in the typed field that onnx itself would use."""
    number = tensors.elem_type(array.dtype)
    tensor = onnx.helper.make_tensor(
        "typed", number, array.shape, array.astype(object).ravel().tolist()
    )
    assert not tensor.HasField("raw_data")
    return tensor


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


@pytest.mark.parametrize("number", NUMERIC)
def test_samples_tell_elements_apart(number):
    assert len({element.tobytes() for element in sample(number, (3, 5)).ravel()}) >= 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", NUMERIC)
def test_round_trip_through_raw_data(number, shape):
    array = sample(number, shape)
    tensor = tensors.from_numpy(array, "x")
    assert (tensor.name, tensor.data_type, tuple(tensor.dims)) == ("x", number, shape)
    assert tensor == numpy_helper.from_array(array, "x")
    back = tensors.to_numpy(tensor, None)
    assert same(back, array)
    assert same(back, numpy_helper.to_array(tensor))
    assert not back.flags.writeable
    assert tensors.nbytes(tensor) == len(tensor.raw_data)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", NUMERIC)
def test_typed_fields(number, shape):
    array = sample(number, shape)
    tensor = typed(array)
    back = tensors.to_numpy(tensor, None)
    assert same(back, array)
    assert not back.flags.writeable
    assert tensors.nbytes(tensor) == len(tensors.from_numpy(array, "x").raw_data)


@pytest.mark.parametrize("offset", [0, 1, 4096])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", NUMERIC)
def test_external_data(tmp_path, number, shape, offset):
    array = sample(number, shape)
    embedded = tensors.from_numpy(array, "x")
    (tmp_path / "w.bin").write_bytes(b"\xa5" * offset + embedded.raw_data + b"\x5a" * 3)
    tensor = TensorProto(name="x", data_type=number, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    tensor.external_data.add(key="offset", value=str(offset))
    back = tensors.to_numpy(tensor, str(tmp_path))
    assert same(back, array)
    assert not back.flags.writeable
    assert not tensor.HasField("raw_data")


@pytest.mark.parametrize("number", NUMERIC)
def test_element_types_and_dtypes_are_each_others_inverse(number):
    assert tensors.elem_type(tensors.numpy_dtype(number)) == number


@pytest.mark.parametrize(
    ("array", "raw"),
    [
        (np.array([1, -2, 3], ml_dtypes.int4), b"\xe1\x03"),
        (np.array([1, 14, 3], ml_dtypes.uint4), b"\xe1\x03"),
        (np.array([1, -2, -1, 0, 1], ml_dtypes.int2), b"\x39\x01"),
        (np.array([1, 2, 3, 0, 1], ml_dtypes.uint2), b"\x39\x01"),
        (np.array([0.5, -6], ml_dtypes.float4_e2m1fn), b"\xf1"),
        (np.array([1, 2, 3, 4, 5], np.uint8).view(ml_dtypes.float6_e2m3fn), b"\x81\x30\x10\x05"),
        (np.array([1, -2], ">i2"), b"\x01\x00\xfe\xff"),
        (np.array([[1, 2], [3, 4]], "<i2").T, b"\x01\x00\x03\x00\x02\x00\x04\x00"),
        (np.array([1 - 2j], ">c8"), b"\x00\x00\x80\x3f\x00\x00\x00\xc0"),
        (np.array([1, 3], ml_dtypes.bfloat16), b"\x80\x3f\x40\x40"),
        (np.array([True, False]), b"\x01\x00"),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_bytes_are_those_of_the_onnx_specification(array, raw):
    tensor = tensors.from_numpy(array, "x")
    assert tensor.raw_data == raw
    assert tensors.to_numpy(tensor, None).tolist() == array.tolist()


def test_embedded_data_is_decoded_without_a_second_copy():
    tensor = tensors.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), "x")
    assert not tensors.to_numpy(tensor, None).flags.owndata


def test_booleans_are_0_or_1_whatever_the_file_says():
    raw = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x02\x00\x01")
    field = TensorProto(data_type=TensorProto.BOOL, dims=[3], int32_data=[256, 0, 1])
    for tensor in (raw, field):
        assert tensors.to_numpy(tensor, None).tobytes() == b"\x01\x00\x01"


@pytest.mark.parametrize(
    ("array", "stored", "back"),
    [
        (
            np.array([["a", "ß"], ["", "a\0"]], object),
            [b"a", "ß".encode(), b"", b"a\0"],
            ["a", "ß", "", "a\0"],
        ),
        (np.array([b"a", b"\xff"], object), [b"a", b"\xff"], [b"a", b"\xff"]),
        (np.array(["a", "bc"]), [b"a", b"bc"], ["a", "bc"]),
        (np.array([b"a", b"bc"]), [b"a", b"bc"], ["a", "bc"]),
        (np.array("one", object), [b"one"], ["one"]),
        (np.array([], object), [], []),
    ],
    ids=["object", "not-utf8", "unicode", "bytes", "scalar", "empty"],
)
def test_strings(array, stored, back):
    tensor = tensors.from_numpy(array, "s")
    assert tensor.data_type == TensorProto.STRING == tensors.elem_type(array.dtype)
    assert list(tensor.string_data) == stored
    result = tensors.to_numpy(tensor, None)
    assert (result.dtype, result.shape) == (np.dtype(object), array.shape)
    assert result.ravel().tolist() == back
    assert not result.flags.writeable
    assert tensors.nbytes(tensor) == sum(map(len, stored))


MALFORMED = {
    "raw data too short": (
        {"data_type": 1, "dims": [2], "raw_data": b"1234567"},
        "raw data has 7 bytes.*take 8",
    ),
    "raw data too long": (
        {"data_type": 1, "dims": [2], "raw_data": b"123456789"},
        "raw data has 9 bytes.*take 8",
    ),
    "no raw data": ({"data_type": 1, "dims": [2], "raw_data": b""}, "raw data has 0 bytes.*take 8"),
    "packed data too short": (
        {"data_type": 22, "dims": [3], "raw_data": b"1"},
        "raw data has 1 bytes.*take 2",
    ),
    "packed data too long": (
        {"data_type": 25, "dims": [4], "raw_data": b"12"},
        "raw data has 2 bytes.*take 1",
    ),
    "no data": ({"data_type": 1, "dims": [2]}, "float_data has 0 entries.*take 2"),
    "typed field too short": (
        {"data_type": 7, "dims": [2], "int64_data": [1]},
        "int64_data has 1 entries.*take 2",
    ),
    "typed field too long": (
        {"data_type": 7, "dims": [], "int64_data": [1, 2]},
        "int64_data has 2 entries.*take 1",
    ),
    "typed field not empty": (
        {"data_type": 7, "dims": [0], "int64_data": [1]},
        "int64_data has 1 entries.*take 0",
    ),
    "int4 field too long": (
        {"data_type": 22, "dims": [2], "int32_data": [1, 2]},
        "int32_data has 2 entries.*take 1",
    ),
    "complex field too short": (
        {"data_type": 14, "dims": [2], "float_data": [1, 2]},
        "float_data has 2 entries.*take 4",
    ),
    "another type's field": (
        {"data_type": 7, "dims": [1], "int32_data": [1]},
        "data in int32_data, where only int64_data",
    ),
    "two fields": (
        {"data_type": 6, "dims": [1], "int32_data": [1], "float_data": [1]},
        "data in float_data, where only int32",
    ),
    "raw and typed": (
        {"data_type": 6, "dims": [1], "int32_data": [1], "raw_data": b"1234"},
        "data in int32_data, where only raw",
    ),
    "raw strings": (
        {"data_type": 8, "dims": [1], "raw_data": b"a"},
        "data in raw_data, where only string_data",
    ),
    "too few strings": (
        {"data_type": 8, "dims": [2], "string_data": [b"a"]},
        "string_data has 1 entries.*take 2",
    ),
    "strings of negative size": (
        {"data_type": 8, "dims": [-1], "string_data": []},
        "dimension -1 is negative",
    ),
    "negative dimension": (
        {"data_type": 1, "dims": [-2, -1], "raw_data": b"12345678"},
        "dimension -2 is negative",
    ),
    "overflow": ({"data_type": 1, "dims": [2**62, 2**62], "raw_data": b""}, "overflow"),
    "overflow to zero": ({"data_type": 1, "dims": [2**32, 2**32], "raw_data": b""}, "overflow"),
    "overflow behind a zero": (
        {"data_type": 1, "dims": [0, 2**62, 2**62], "raw_data": b""},
        "overflow",
    ),
    "many dimensions": (
        {"data_type": 1, "dims": [1] * 70, "raw_data": b"1234"},
        "numpy cannot hold its shape",
    ),
    "very many dimensions": ({"data_type": 1, "dims": [2**62] * 100_000}, "overflow"),
    "undefined type": ({"data_type": 0, "dims": [1], "raw_data": b"1"}, "element type 0"),
    "no type": ({"dims": [1], "raw_data": b"1"}, "element type 0"),
    "unknown type": ({"data_type": 9999, "dims": [1], "raw_data": b"1"}, "element type 9999"),
    "segment": (
        {"data_type": 1, "dims": [1], "segment": TensorProto.Segment(begin=0, end=1)},
        "segments",
    ),
}


@pytest.mark.parametrize(("fields", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_tensors_are_named_in_one_line(fields, message):
    with pytest.raises(ModelError, match=f"^tensor 'bad': .*{message}") as caught:
        tensors.to_numpy(TensorProto(name="bad", **fields), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "^a tensor without a name: "),
        ("a\nb", r"^tensor 'a\\nb': "),
        ("n" * 5000, r"^tensor 'n{97}\.\.\.': "),
    ],
    ids=["empty", "two-lines", "long"],
)
def test_awkward_names_still_make_one_short_line(name, shown):
    with pytest.raises(ModelError, match=shown):
        tensors.to_numpy(TensorProto(name=name, data_type=1, dims=[1]), None)


def test_a_name_that_is_not_utf8_is_shown():
    tensor = TensorProto.FromString(b"\x08\x01\x10\x01\x42\x02\xff\xfe")
    with pytest.raises(ModelError, match=r"float_data has 0 entries"):
        tensors.to_numpy(tensor, None)


@pytest.mark.parametrize("number", [0, -1, 9999])
def test_unknown_element_types(number):
    with pytest.raises(ModelError, match=f"element type {number} "):
        tensors.numpy_dtype(number)


@pytest.mark.parametrize("dtype", ["M8[s]", "V3", "f,i", np.longdouble])
def test_dtypes_that_onnx_lacks(dtype):
    with pytest.raises(TypeError, match="no element type"):
        tensors.from_numpy(np.zeros(2, dtype), "x")


def test_objects_that_are_no_strings():
    with pytest.raises(TypeError, match=r"tensor 'x'.*holds int"):
        tensors.from_numpy(np.array(["a", 1], object), "x")
