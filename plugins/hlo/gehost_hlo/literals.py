"""Values of literals, and HLO's element types in numpy and ONNX."""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from onnx import TensorProto

from gehost_hlo.module import Shape

Array: TypeAlias = np.ndarray[Any, Any]

NUMPY: dict[str, np.dtype[Any]] = {
    name: np.dtype(type_)
    for name, type_ in {
        "pred": np.bool_,
        "s4": ml_dtypes.int4,
        "u4": ml_dtypes.uint4,
        "s8": np.int8,
        "u8": np.uint8,
        "s16": np.int16,
        "u16": np.uint16,
        "s32": np.int32,
        "u32": np.uint32,
        "s64": np.int64,
        "u64": np.uint64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "f8e4m3fn": ml_dtypes.float8_e4m3fn,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    }.items()
}
"""numpy's type of each element type that opset 21 has."""

ONNX: dict[str, int] = {
    "pred": TensorProto.BOOL,
    "s4": TensorProto.INT4,
    "u4": TensorProto.UINT4,
    "s8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "s16": TensorProto.INT16,
    "u16": TensorProto.UINT16,
    "s32": TensorProto.INT32,
    "u32": TensorProto.UINT32,
    "s64": TensorProto.INT64,
    "u64": TensorProto.UINT64,
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "f8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "f8e5m2": TensorProto.FLOAT8E5M2,
    "f8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "f8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
}

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SHAPE = re.compile(r"\s*(\w+)\[([\d,]*)\](?:\{[\d,]*\})?\s+")
_PAYLOAD = re.compile(r"(-?nan)\([^)]*\)")


def is_float(kind: str) -> bool:
    return kind.startswith(("f", "bf"))


def is_unsigned(kind: str) -> bool:
    return kind.startswith("u")


def is_integer(kind: str) -> bool:
    return kind.startswith(("s", "u"))


def bits(kind: str) -> int:
    """Width of an integer type."""
    return int(kind[1:])


def array_of(text: str, shape: Shape) -> Array:
    """Return the value of an array's literal.

    Examples are ``5``, ``{1, 2}``, ``{ {1, inf}, {nan, -0} }``, ``s32[] 5``.

    Raises:
        ValueError: the text is no literal of this shape, or its type has no value in numpy.
    """
    dtype = NUMPY.get(shape.type)
    if dtype is None:
        raise ValueError(f"{shape.type} has no ONNX type")
    text = _PAYLOAD.sub(r"\1", _COMMENT.sub("", text))
    if repeated := _SHAPE.match(text):
        dimensions = tuple(map(int, filter(None, repeated[2].split(","))))
        if (repeated[1], dimensions) != (shape.type, tuple(shape.dimensions)):
            raise ValueError(f"it has the shape {repeated[0].strip()}")
        text = text[repeated.end() :]
    words = text.replace("{", " ").replace("}", " ").replace(",", " ").split()
    if "_" in text:
        raise ValueError(f"cannot read {next(word for word in words if '_' in word)}")
    if len(words) != shape.size:
        raise ValueError(f"expected {shape.size} values, found {len(words)}")
    numbers = _numbers(words, shape.type)
    with np.errstate(over="ignore"):
        array = np.array(numbers, dtype)
    if is_float(shape.type) and not np.isfinite(array).all():
        for word, number, stored in zip(words, numbers, array, strict=True):
            if math.isfinite(number) and not np.isfinite(stored):
                raise ValueError(f"{word} does not fit into {shape.type}")
    return array.reshape(shape.dimensions)


def _numbers(words: list[str], kind: str) -> Any:
    if kind == "pred":
        bools = {"true": True, "false": False, "1": True, "0": False}
        if not bools.keys() >= set(words):
            raise ValueError(
                f"expected true or false, found {next(word for word in words if word not in bools)}"
            )
        return [bools[word] for word in words]
    if is_integer(kind):
        width = bits(kind)
        low, high = (
            (0, (1 << width) - 1)
            if is_unsigned(kind)
            else (-(1 << width - 1), (1 << width - 1) - 1)
        )
        numbers = [int(word) for word in words]
        if any(not low <= number <= high for number in numbers):
            raise ValueError(
                f"{next(n for n in numbers if not low <= n <= high)} does not fit into {kind}"
            )
        return numbers
    return [_float(word) for word in words]


def _float(word: str) -> float:
    number = float.fromhex(word) if "0x" in word else float(word)
    return math.copysign(number, -1.0) if word.startswith("-") and math.isnan(number) else number
