"""The one number that all elements of a tensor are, where it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from gehost import Node, Value
from gehost_semantic.extents import Extent, Extents

_MOST_ELEMENTS = 4096
_DEPTH = 24

_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Reciprocal": np.reciprocal,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
}
_UNCHANGED = frozenset(
    {
        "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip


class Elements(Protocol):
    """The elements of integer tensors, and the sizes that they are compared as."""

    extents: Extents

    def elements(self, value: Value | None) -> list[Extent | None] | None: ...


class Numbers:
    """Numbers of uniform tensors, computed on demand."""

    def __init__(self) -> None:
        self._known: dict[Value, float | None] = {}

    def scalar(self, value: Value | None, views: Elements) -> float | None:
        """Return the number of a tensor of one element."""
        if value is None:
            return None
        shape = value.shape
        if shape is None or any(dim != 1 for dim in shape):
            return None
        return self.fill(value, views)

    def fill(self, value: Value | None, views: Elements, depth: int = _DEPTH) -> float | None:
        """Return the number that all elements of a tensor are."""
        if value is None or depth == 0:
            return None
        if value not in self._known:
            self._known[value] = self._find(value, views, depth)
        return self._known[value]

    def _find(self, value: Value, views: Elements, depth: int) -> float | None:
        if value.is_constant:
            return _uniform(value)
        if value.rank in (0, 1) and value.dtype is not None and not value.dtype.is_float:
            elements = views.elements(value)
            first = elements[0] if elements else None
            if isinstance(first, int) and elements == [first] * len(elements or ()):
                return first
        node = value.producer
        if node is None:
            return None
        if node.op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
            decided = _compared(node, views)
            if decided is not None:
                return decided
        if node.op == "ConstantOfShape":
            argument = node.attrs.get("value")
            return 0.0 if argument is None else _item(np.asarray(argument))
        if node.op in _UNCHANGED and value.index == 0:
            return self.fill(node.input(0), views, depth - 1)
        if node.op in ("Cast", "CastLike"):
            number = self.fill(node.input(0), views, depth - 1)
            return None if number is None or value.dtype is None else _in_type(number, value)
        if node.op in ("Div", *_ARITHMETIC) and value.dtype is not None:
            numbers = [self.fill(v, views, depth - 1) for v in node.inputs if v is not None]
            if not numbers or None in numbers or len(numbers) > 2:
                return None
            return computed(node, numbers)
        return None


def _compared(node: Node, views: Elements) -> float | None:
    """Compare two sizes."""
    left, right = (views.elements(node.input(slot)) for slot in (0, 1))
    if left is None or right is None or len(left) != 1 or len(right) != 1:
        return None
    (a,), (b,) = left, right
    if a is None or b is None:
        return None
    extents = views.extents
    if node.op == "Equal":
        return True if a == b else False if extents.differ(a, b) else None
    if node.op.startswith("Less"):
        a, b = b, a
    least = b if node.op.endswith("Equal") else b + 1
    return extents.at_least(a, least)


def _uniform(value: Value) -> float | None:
    shape = value.shape
    if shape is None:
        return None
    numbers = [dim for dim in shape if isinstance(dim, int)]
    if len(numbers) < len(shape) or not 0 < prod(numbers) <= _MOST_ELEMENTS:
        return None
    array = value.array
    if array is None or array.dtype.kind not in "iufbV":
        return None
    first = array.reshape(-1)[0]
    return _item(np.asarray(first)) if bool((array == first).all()) else None


def _item(array: np.ndarray[Any, Any]) -> float | None:
    if array.size != 1:
        return None
    number = array.reshape(-1)[0]
    return number.item() if array.dtype.kind in "iufb" else float(number)


def _in_type(number: float, value: Value) -> float | None:
    assert value.dtype is not None
    with np.errstate(all="ignore"):
        return _item(np.asarray(np.asarray(number).astype(value.dtype.numpy)))


def computed(node: Node, numbers: Sequence[Any]) -> float | None:
    """Compute in the type of the operands."""
    argument = node.input(0)
    if argument is None or argument.dtype is None:
        return None
    operands: list[Any] = [np.asarray(number).astype(argument.dtype.numpy) for number in numbers]
    with np.errstate(all="ignore"):
        if node.op == "Div":
            if argument.dtype.is_float:
                result: Any = np.divide(*operands)
            elif operands[1] == 0 or operands[0] < 0 or operands[1] < 0:
                return None
            else:
                result = operands[0] // operands[1]
        else:
            result = _ARITHMETIC[node.op](*operands)
    return _item(np.asarray(result))
