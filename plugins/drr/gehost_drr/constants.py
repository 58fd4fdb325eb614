"""Source operators without inputs, which match constant tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from gehost import DataType, PatternError, Value, es

CONSTANT_OPS = ("Constant", "full", "full_int_array")
"""Each matches a constant tensor, initializer or node."""
CONSTANT_ATTRIBUTES = ("value", "shape", "dtype")
FILLS = ("full", "full_int_array")
"""Operators without inputs that a result may have, too: each makes a constant."""


class ConstantSource(Struct, frozen=True):
    """A source operator without inputs: a tensor that must be constant.

    ``attributes`` are read from the tensor: ``value`` (of ``full``: the one number that all
    elements equal; else nested lists), ``shape``, ``dtype``.
    """

    tensor: str
    op: str
    attributes: Mapping[str, Any]
    origin: es.Origin

    def attribute(self, name: str, value: Value) -> Any:
        """An attribute of the matched tensor; None where it has none."""
        array = value.array
        if array is None:
            return None
        if name == "shape":
            return list(array.shape)
        if name == "dtype":
            return value.dtype
        if self.op != "full":
            return array.tolist()
        uniform = array.size > 0 and bool((array == array.flat[0]).all())
        return array.flat[0].item() if uniform else None


def check_constant(op: str, attributes: Mapping[str, Any], origin: es.Origin) -> None:
    for name in attributes:
        if name not in CONSTANT_ATTRIBUTES:
            raise PatternError(
                f'{op} has no attribute "{name}"; it has {", ".join(CONSTANT_ATTRIBUTES)}',
                where=origin,
            )


def filled(op: str, params: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Return the array of a constant of a result; of ``full``, its value in each place."""
    value, shape, dtype = (params.get(name) for name in ("value", "shape", "dtype"))
    if value is None:  # built once without values, when the rule is defined
        return np.zeros((), np.float32)
    array = np.asarray(value)
    if dtype is not None:
        array = array.astype(DataType(dtype).numpy)
    elif not isinstance(value, np.ndarray | np.generic):
        is_float = array.dtype.kind == "f" and op == "full"
        array = array.astype(np.float32 if is_float else np.int64)
    return array if shape is None else np.full(shape, array)
