"""Convert Python values to arrays and element types; compare them exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gehost.errors import PatternError
from gehost.ir import tensors
from gehost.ir.types import DataType, TensorType

_PLAIN: frozenset[object] = frozenset({bool, int, float, str, bytes, DataType, type(None)})


def as_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Convert a number, a list or an array to an array.

    Raises:
        PatternError: it is none of these, or ONNX lacks the element type; the message begins
            with ``what``.
    """
    wanted = "wanted a tensor, a number or a list of numbers, got"
    try:
        array = np.asarray(value)
    except ValueError as error:
        if isinstance(value, TensorType):  # a tuple, which numpy treats as rows
            raise PatternError(f"{wanted} TensorType", where=what) from error
        raise PatternError(
            "its rows differ in length", where=what, hint="give a list that is as long in every row"
        ) from error
    if array.dtype.kind in "OSU" or not _known(array.dtype):
        raise PatternError(f"{wanted} {type(value).__name__}", where=what)
    return array


def _known(dtype: np.dtype[Any]) -> bool:
    try:
        tensors.elem_type(dtype)
    except TypeError:
        return False
    return True


def element_type(given: Any, what: str) -> DataType:
    """Return a ``DataType``, given also as ONNX's number (``TensorProto.FLOAT``).

    Raises:
        PatternError: it is neither; the message begins with ``what``.
    """
    try:
        return DataType(given)
    except ValueError as error:
        raise PatternError(f"wanted a DataType, got {given!r}", where=what) from error


def in_dtype(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """Return the same numbers in a dtype that holds them, or None.

    Not held: 0.5 or 300 as uint8, 1e9 as float16, 2j as either. Rounding to a float is allowed.
    """
    if array.dtype.kind == "c" and dtype.kind != "c":
        if np.any(array.imag):
            return None
        array = array.real
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if "float" in dtype.name or dtype.kind == "c":
            fits = np.isfinite(cast.astype(np.complex128)) | ~np.isfinite(
                array.astype(np.complex128)
            )
        else:
            fits = cast.astype(array.dtype) == array
    return cast if np.all(fits) else None


def exact(value: Any) -> str | None:
    """Return a type-exact cache key, None for other types.

    1, 1.0 and True have different keys.
    """
    if type(value) in (list, tuple):  # a subclass may define its own repr
        if not _PLAIN.issuperset(map(type, cast("Sequence[Any]", value))):
            return None
    elif type(value) is float:
        return value.hex()  # four times as fast as repr
    elif type(value) not in _PLAIN:
        return None
    return repr(cast("object", value))
