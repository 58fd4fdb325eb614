"""One operator applied to constants: a kernel's input and ways to decline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gehost.ir.constants import Array, bytes_at_most
from gehost.ir.graph import Node


class DeclinedError(Exception):
    """A kernel declines an invalid node or an undefined result."""


class TooLargeError(Exception):
    """The result is larger than the available room."""


@dataclass(frozen=True, slots=True)
class Call:
    """A node with constant inputs.

    ``room`` is the number of bytes that its results may take.
    """

    node: Node
    version: int
    inputs: Sequence[Array | None]
    room: int

    def array(self, slot: int) -> Array:
        result = self.optional(slot)
        if result is None:
            raise DeclinedError
        return result

    def optional(self, slot: int) -> Array | None:
        return self.inputs[slot] if slot < len(self.inputs) else None

    def same_type(self) -> list[Array]:
        """Return all inputs; declines if their element types differ."""
        arrays = [self.array(slot) for slot in range(len(self.inputs))]
        if any(array.dtype != arrays[0].dtype for array in arrays):
            raise DeclinedError
        return arrays

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attrs.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int:
        number = self.attribute(name, default)
        if not isinstance(number, int):
            raise DeclinedError
        return number

    def integers(self, name: str, slot: int, since: int) -> list[int] | None:
        """Return integers, an attribute before opset ``since``, then input ``slot``.

        Returns None if absent.
        """
        if self.version < since:
            return self.attribute(name)
        array = self.optional(slot)
        return None if array is None else whole_numbers(array)

    def claim(self, shape: Sequence[int], like: Array) -> None:
        """Check the room for a result of ``shape`` and ``like``'s elements.

        It is called before the result is created.

        Raises:
            TooLargeError: there is not enough room.
        """
        if any(dim < 0 for dim in shape):
            raise DeclinedError
        if bytes_at_most(math.prod(shape), like) > self.room:
            raise TooLargeError


def whole_numbers(array: Array) -> list[int]:
    """Return the elements of a scalar or vector of int32 or int64."""
    if array.dtype.kind != "i" or array.ndim > 1:
        raise DeclinedError
    return [int(entry) for entry in array.reshape(-1)]


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        raise DeclinedError
    return axis % rank
