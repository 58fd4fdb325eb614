"""Constants that several passes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from gehost import Node, Value

HEADS_SECOND = [0, 2, 1, 3]
"""[B, S, N, H] to [B, N, S, H], and back."""


def factor_of(node: Node) -> tuple[Value, float] | None:
    """Return operand and constant scalar factor of a Mul or Div, or None."""
    left, right = node.inputs
    for value, other in ((left, right), (right, left)):
        if value is None or other is None or other.array is None or value.is_constant:
            continue
        if other.array.size != 1 or other.array.ndim > 1:
            continue
        number = float(other.array.reshape(-1)[0])
        if node.op == "Mul":
            return value, number
        if other is right and number:
            return value, 1.0 / number
    return None


def added_constant(node: Node, width: int) -> tuple[Value, np.ndarray] | None:
    """Operand and constant [width] of an Add, or None."""
    if node.op != "Add":
        return None
    left, right = node.inputs
    for value, other in ((left, right), (right, left)):
        if value is not None and other is not None and not value.is_constant:
            array = other.array
            if array is not None and array.shape == (width,):
                return value, array
    return None
