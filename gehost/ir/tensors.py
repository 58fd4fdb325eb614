"""Convert tensors of every ONNX element type to numpy and back."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from gehost.errors import ModelError
from gehost.ir.files.external import (
    element_bits,
    element_count,
    is_external,
    label,
    locate,
    map_data,
    nbytes,
    numpy_dtype,
)

__all__ = ["check_data", "elem_type", "from_numpy", "nbytes", "numpy_dtype", "to_numpy"]

_DATA_FIELDS = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "raw_data",
)
_BY_NUMBER = {
    onnx.TensorProto.DESCRIPTOR.fields_by_name[name].number: name for name in _DATA_FIELDS
}


def to_numpy(tensor: onnx.TensorProto, base_dir: str | None) -> npt.NDArray[Any]:
    """Return the elements of a tensor as a read-only array.

    External data is memory-mapped. Sub-byte types are unpacked, one element per byte. Strings are
    ``str``, or all of them ``bytes`` if one is not UTF-8. Booleans are 0 or 1 for any non-zero byte
    of the file.

    Args:
        tensor: dense; its data is embedded or external.
        base_dir: the model's directory, for external data; None for a model without a file.

    Raises:
        ModelError: the data does not fit dimensions and element type, or the external data
            cannot be used.
    """
    raw = _checked_raw(tensor)
    if is_external(tensor):
        array = _decode(map_data(locate(tensor, base_dir)), tensor)
    elif raw is not None:
        array = _decode(np.frombuffer(raw, np.uint8), tensor)
    elif tensor.data_type == onnx.TensorProto.STRING:
        elements: list[str] | list[bytes]
        try:
            elements = [element.decode() for element in tensor.string_data]
        except UnicodeDecodeError:
            elements = list(tensor.string_data)
        array = np.array(elements, object)  # numpy's own strings lose NULs at the end
    elif tensor.data_type == onnx.TensorProto.BOOL:
        array = np.array(tensor.int32_data, np.int32) != 0
    elif element_count(tensor) == 0:
        array = np.empty(0, numpy_dtype(tensor.data_type))
    else:
        array = numpy_helper.to_array(tensor).reshape(-1)
    try:
        array = array.reshape(tuple(tensor.dims))
    except ValueError as error:
        raise ModelError(f"numpy cannot hold its shape: {error}", subject=label(tensor)) from error
    array.flags.writeable = False
    return array


def check_data(tensor: onnx.TensorProto) -> None:
    """Check that embedded data fits dimensions and element type.

    External tensors must have none.

    Raises:
        ModelError: it does not fit, or the element type or the dimensions are invalid.
    """
    _checked_raw(tensor)


def _checked_raw(tensor: onnx.TensorProto) -> bytes | None:
    """Return the embedded raw data (copied by protobuf on access), or None.

    Raises:
        ModelError: as ``check_data``.
    """
    if tensor.HasField("segment"):
        raise ModelError(
            "it is stored in segments, which ONNX tools do not read",
            subject=label(tensor),
            hint="export it whole",
        )
    size = nbytes(tensor)
    filled: dict[str, Any] = {}
    # ListFields: accessing an empty field makes Python's tensor object grow
    for field, data in tensor.ListFields():
        name = _BY_NUMBER.get(field.number)
        if name is not None:
            filled[name] = data
    if is_external(tensor):
        _refuse_other_fields(tensor, filled, "its external file")
        return None
    if tensor.data_type != onnx.TensorProto.STRING and "raw_data" in filled:
        _refuse_other_fields(tensor, filled, "raw_data")
        raw: bytes = filled["raw_data"]
        if len(raw) != size:
            raise ModelError(
                f"its raw data has {len(raw)} bytes, but its type and shape take {size}",
                subject=label(tensor),
                hint="export the model again",
            )
        return raw
    field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    _refuse_other_fields(tensor, filled, field)
    expected = _entry_count(tensor.data_type, element_count(tensor))
    entries = len(filled.get(field, ()))
    if entries != expected:
        raise ModelError(
            f"its {field} has {entries} entries, but its type and shape take {expected}",
            subject=label(tensor),
            hint="export the model again",
        )
    return None


def _entry_count(data_type: int, count: int) -> int:
    """Return how many entries of the type's field hold ``count`` elements."""
    if data_type == onnx.TensorProto.STRING:
        return count
    if numpy_dtype(data_type).kind == "c":
        return 2 * count
    # 2-bit and 4-bit elements share the low byte of an int32; a 6-bit element has its own int32.
    bits = element_bits(data_type)
    return -(-count * bits // 8) if bits < 6 else count


def _decode(packed: npt.NDArray[np.uint8], tensor: onnx.TensorProto) -> npt.NDArray[Any]:
    """Decode little-endian packed bytes to flat elements, if possible a view."""
    dtype, bits = numpy_dtype(tensor.data_type), element_bits(tensor.data_type)
    if bits < 8:
        return _unpack(packed, bits, element_count(tensor)).view(dtype)
    if dtype == np.bool_:
        return packed != 0 if packed.max(initial=0) > 1 else packed.view(dtype)
    word = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return packed.view(f"<u{word}").astype(f"=u{word}", copy=False).view(dtype)


def _unpack(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Unpack elements, stored lowest bits first, to one per byte.

    Four 6-bit ones take 3 bytes.
    """
    words: npt.NDArray[Any]
    shifts: npt.NDArray[Any]
    if bits == 6:
        padded = np.zeros((-(-count // 4), 3), np.uint32)
        padded.reshape(-1)[: packed.size] = packed
        words = padded[:, 0] | padded[:, 1] << 8 | padded[:, 2] << 16
        shifts = np.arange(0, 24, 6, dtype=np.uint32)
    else:
        words, shifts = packed, np.arange(0, 8, bits, dtype=np.uint8)
    return (
        ((words[:, None] >> shifts) & (2**bits - 1))
        .astype(np.uint8, copy=False)
        .reshape(-1)[:count]
    )


def _refuse_other_fields(tensor: onnx.TensorProto, filled: Collection[str], field: str) -> None:
    if len(filled) > (field in filled):
        others = [name for name in _DATA_FIELDS if name in filled and name != field]
        raise ModelError(
            f"it has data in {', '.join(others)}, where only {field} belongs",
            subject=label(tensor),
            hint="export the model again",
        )


def from_numpy(array: npt.NDArray[Any], name: str) -> onnx.TensorProto:
    """Return a tensor with an array's elements in ``raw_data`` or ``string_data``.

    Arrays of ``object`` hold ``str`` or ``bytes``.

    Raises:
        TypeError: ONNX has no element type for this dtype or object.
    """
    array = np.asarray(array)
    if elem_type(array.dtype) != onnx.TensorProto.STRING:
        # In native order: onnx looks the dtype up, and writes little-endian itself.
        return numpy_helper.from_array(
            array.astype(array.dtype.newbyteorder("="), copy=False), name
        )
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.STRING, dims=array.shape)
    for element in array.astype(object).ravel():
        if isinstance(element, str):
            tensor.string_data.append(element.encode())
        elif isinstance(element, bytes):
            tensor.string_data.append(element)
        else:
            raise TypeError(
                f"cannot make tensor {name!r}: an array of objects holds "
                f"{type(element).__name__}, not str"
            )
    return tensor


def elem_type(dtype: np.dtype[Any]) -> int:
    """Return a dtype's ONNX type, STRING for ``object`` and numpy's strings.

    Raises:
        TypeError: ONNX has no such type.
    """
    if dtype.kind in "OUST":
        return onnx.TensorProto.STRING
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.newbyteorder("=")))
    except ValueError as error:
        raise TypeError(
            f"ONNX has no element type for numpy's {dtype}; convert the array with astype()"
        ) from error
