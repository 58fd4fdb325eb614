"""Constants: size without reading, elements, and a key for equality."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import onnx

from gehost.errors import ModelError
from gehost.ir import tensors
from gehost.ir.edits import added_constants
from gehost.ir.files.external import OWN_WEIGHTS, element_bits, is_external
from gehost.ir.graph import Value
from gehost.ir.model import Model
from gehost.ir.node import Node
from gehost.ir.types import DataType

Array: TypeAlias = np.ndarray[Any, Any]

SMALL = 4096
"""Constants of at most this many bytes are compared by content."""

_AS_STORED = frozenset(
    [
        DataType.FLOAT,
        DataType.DOUBLE,
        DataType.FLOAT16,
        DataType.BFLOAT16,
        DataType.INT8,
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.UINT8,
        DataType.UINT16,
        DataType.UINT32,
        DataType.UINT64,
    ]
    if sys.byteorder == "little"
    else []
)
"""Element types whose raw data equals the bytes of the array, so that it can be compared as is."""


def tensor_of(value: Value) -> onnx.TensorProto | None:
    """Return the tensor of a constant.

    Returns None if the value is not constant, is sparse, or is a ``Constant`` of plain numbers.
    """
    if not value.is_constant:
        return None
    if value.initializer is not None:
        return value.initializer if isinstance(value.initializer, onnx.TensorProto) else None
    assert value.producer is not None
    return _tensor_in(value.producer)


def _tensor_in(constant: Node) -> onnx.TensorProto | None:
    for attribute in constant.proto.attribute[:]:
        if attribute.name == "value" and attribute.type == onnx.AttributeProto.TENSOR:
            return attribute.t
    return None


def added_bytes(model: Model, mark: int) -> int:
    """Return the bytes of the tensors that edits since a mark added, less those removed."""
    size = 0
    for sign, owner in added_constants(model.journal.since(mark)):
        tensor = _tensor_in(owner) if isinstance(owner, Node) else owner.initializer
        if isinstance(tensor, onnx.TensorProto):
            with suppress(ModelError):
                size += sign * tensors.nbytes(tensor)
    return size


def stored_bytes(value: Value) -> int | None:
    """Return a constant's data size from its dimensions, None if unreadable."""
    tensor = tensor_of(value)
    if tensor is None:
        array = elements(value) if value.is_constant and value.initializer is None else None
        return None if array is None else bytes_of(array)
    try:
        return tensors.nbytes(tensor)
    except ModelError:
        return None


def external_bytes(value: Value) -> int:
    """Return a constant's number of bytes in another file of the user."""
    tensor = tensor_of(value)
    if tensor is None or not is_external(tensor):
        return 0
    if any(
        one.key == "location" and one.value.endswith(OWN_WEIGHTS) for one in tensor.external_data
    ):
        return 0  # the result has them inside
    return stored_bytes(value) or 0


def elements(value: Value) -> Array | None:
    """Return the elements, None if not a constant or not readable."""
    try:
        return value.array
    except ModelError:
        return None


def bytes_of(array: Array) -> int:
    """Return the data size, as ``stored_bytes`` counts it."""
    return (
        sum(map(_length, array.flat))
        if array.dtype == object
        else bytes_for(array.size, array.dtype)
    )


def bytes_for(count: int, dtype: np.dtype[Any]) -> int:
    """Return the size of this many elements in a file.

    Sub-byte elements are packed there.
    """
    return (count * element_bits(tensors.elem_type(dtype)) + 7) // 8


def bytes_at_most(count: int, like: Array) -> int:
    """Return the largest size of this many elements of ``like``."""
    if like.dtype == object:
        return count * max(map(_length, like.flat), default=0)
    return bytes_for(count, like.dtype)


def _length(text: str | bytes) -> int:
    return len(text.encode()) if isinstance(text, str) else len(text)


def content(value: Value, most: int = SMALL) -> Hashable:
    """Return a key for equal element type, shape and bits.

    Returns None above ``most`` bytes.
    """
    tensor = tensor_of(value)
    if (
        tensor is not None
        and tensor.data_type in _AS_STORED
        and tensor.HasField("raw_data")
        and tensor.ByteSize() <= 2 * SMALL
    ):
        raw = tensor.raw_data
        return (tensor.data_type, tuple(tensor.dims[:]), raw) if len(raw) <= most else None
    size = stored_bytes(value)
    if size is None or size > most:
        return None
    array = elements(value)
    if array is None:
        return None
    bits = tuple(array.flat) if array.dtype == object else array.tobytes()
    return (tensors.elem_type(array.dtype), array.shape, bits)
