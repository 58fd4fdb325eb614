"""Python numbers in the element type of the tensor beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gehost.errors import PatternError
from gehost.ir import tensors
from gehost.ir.types import TensorType


def as_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """A number, a list of numbers or an array as an array.

    Raises:
        PatternError: it is none of these, or of an element type that ONNX has not; ``what`` begins the message.
    """
    wanted = "wanted a tensor, a number or a list of numbers, got"
    try:
        array = np.asarray(value)
    except ValueError as error:
        if isinstance(value, TensorType):  # a tuple, of which numpy makes rows
            raise PatternError(f"{what}: {wanted} TensorType") from error
        raise PatternError(f"{what}: its rows differ in length; give a list that is as long in every row") from error
    if array.dtype.kind in "OSU" or not _known(array.dtype):
        raise PatternError(f"{what}: {wanted} {type(value).__name__}")
    return array


def _known(dtype: np.dtype[Any]) -> bool:
    try:
        tensors.elem_type(dtype)
    except TypeError:
        return False
    return True


def in_dtype(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """The same numbers in another dtype; None where it cannot hold them (0.5 or 300 as uint8, 1e9 as float16).

    Rounding to a float is allowed.
    """
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if "float" in dtype.name or dtype.kind == "c":
            fits = np.isfinite(cast.astype(np.complex128)) | ~np.isfinite(array.astype(np.complex128))
        else:
            fits = cast.astype(array.dtype) == array
    return cast if np.all(fits) else None
