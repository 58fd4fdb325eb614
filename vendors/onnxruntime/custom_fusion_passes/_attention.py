"""Constants that several passes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from gehost import Node, Value

HEADS_SECOND = [0, 2, 1, 3]
"""[B, S, N, H] to [B, N, S, H], and back."""


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
