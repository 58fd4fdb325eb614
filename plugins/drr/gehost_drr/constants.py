"""Source operators without inputs, which match constant tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gehost import Value, es

CONSTANT_OPS = ("Constant", "full", "full_int_array")
"""Each matches a constant tensor, initializer or node."""
CONSTANT_ATTRIBUTES = ("value", "shape", "dtype")


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
