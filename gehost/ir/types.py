"""Element types, dimensions and types of values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx

from gehost.sizes import is_invented

Dim: TypeAlias = int | str | None
"""A known size, the name of a size or an expression of names (``sizes``), or None: unknown, which
is equal to nothing. Equal names are equal sizes throughout the model.
"""


def more_specific(first: Dim, second: Dim) -> Dim:
    """Return the more specific of two dimensions, the first if equal.

    Numbers are more specific than names of the file, these than invented names, these than None.
    """
    if isinstance(first, int) or second is None:
        return first
    if first is None or isinstance(second, int):
        return second
    return second if is_invented(first) and not is_invented(second) else first


class DataType(IntEnum):
    """Element types with ONNX's numbers.

    The ``DT_`` names are GE's spelling of them.
    """

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    DT_UNDEFINED = 0
    DT_FLOAT = 1
    DT_UINT8 = 2
    DT_INT8 = 3
    DT_UINT16 = 4
    DT_INT16 = 5
    DT_INT32 = 6
    DT_INT64 = 7
    DT_STRING = 8
    DT_BOOL = 9
    DT_FLOAT16 = 10
    DT_DOUBLE = 11
    DT_UINT32 = 12
    DT_UINT64 = 13
    DT_COMPLEX64 = 14
    DT_COMPLEX128 = 15
    DT_BF16 = 16

    __hash__ = int.__hash__

    def __str__(self) -> str:
        """Return the name, as numpy spells it: ``float16``."""
        return {"FLOAT": "float32", "DOUBLE": "float64"}.get(self.name, self.name.lower())

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @property
    def is_float(self) -> bool:
        """Whether it is an IEEE or brain float for arithmetic.

        A float8 or float4 type is not.
        """
        return self in _FLOATS

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy (or ml_dtypes) dtype of this element type."""
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(int(self)))


_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.DOUBLE, DataType.BFLOAT16})
_DTYPE_NAMES = {dtype.value: dtype.name.lower() for dtype in DataType}


TYPE_ATTRIBUTES: frozenset[str] = frozenset(
    ("to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision")
)
"""Attributes of ONNX's operators that hold the number of an element type of a result."""


def dtype_from_number(number: int) -> DataType:
    """Return the element type of an ONNX number, UNDEFINED if unknown here."""
    try:
        return DataType(number)
    except ValueError:
        return DataType.UNDEFINED


class TensorType(NamedTuple):
    """Element type and shape (None without a known rank) of a tensor."""

    dtype: DataType
    shape: tuple[Dim, ...] | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def size(self) -> int | None:
        """Number of elements; None if a dimension is not a number."""
        if self.shape is None:
            return None
        size = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            size *= dim
        return size

    def __str__(self) -> str:
        name = _DTYPE_NAMES[self.dtype]
        if self.shape is None:
            return f"{name}[*]"
        return f"{name}[{','.join('?' if dim is None else str(dim) for dim in self.shape)}]"


def plain_shape(shape: Sequence[Any] | None) -> tuple[Dim, ...] | None:
    """Return a shape with sizes as Python integers; numpy's are accepted.

    Raises:
        TypeError: a size is neither an integer, a name nor None.
    """
    if shape is None:
        return None
    return tuple(
        dim if dim is None or isinstance(dim, str) else operator.index(dim) for dim in shape
    )


@lru_cache(maxsize=1 << 14)
def tensor_type(number: int, shape: tuple[int, ...]) -> TensorType:
    """Return a constant's type; equal ones share one object."""
    return TensorType(dtype_from_number(number), shape)


class OtherType(NamedTuple):
    """A sequence, optional, map or sparse type; passed through without decoding it."""

    serialized: bytes

    def __str__(self) -> str:
        return str(onnx.TypeProto.FromString(self.serialized).WhichOneof("value") or "untyped")


ValueType: TypeAlias = TensorType | OtherType


def decode_type(proto: onnx.TypeProto, *, all_names: bool = False) -> ValueType | None:
    """Decode a ``TypeProto``.

    Names that inference invented (``unk__0``, ``?3``) become unknown unless ``all_names`` is set.
    """
    return _decode(proto.SerializeToString(), all_names)


@lru_cache(maxsize=1 << 14)
def _decode(serialized: bytes, all_names: bool) -> ValueType | None:
    proto = onnx.TypeProto.FromString(serialized)
    if not proto.HasField("tensor_type"):
        return OtherType(serialized) if proto.WhichOneof("value") else None
    tensor = proto.tensor_type
    dtype = dtype_from_number(tensor.elem_type)
    if not tensor.HasField("shape"):
        return TensorType(dtype, None) if dtype else None
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        name = dim.dim_param
        if dim.WhichOneof("value") == "dim_value":
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        elif all_names or not (name.startswith("unk__") or is_invented(name)):
            dims.append(name or None)
        else:
            dims.append(None)
    return TensorType(dtype, tuple(dims))


def encode_type(value_type: ValueType, *, all_names: bool = False) -> onnx.TypeProto:
    """Encode a type; unknown dimensions and, without ``all_names``, invented names stay empty."""
    if isinstance(value_type, OtherType):
        return onnx.TypeProto.FromString(value_type.serialized)
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = int(value_type.dtype)
    if value_type.shape is not None:
        shape = proto.tensor_type.shape
        shape.SetInParent()
        for dim in value_type.shape:
            entry = shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            elif dim is not None and (all_names or not is_invented(dim)):
                entry.dim_param = dim
    return proto
