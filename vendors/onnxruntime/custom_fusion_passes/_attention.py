"""Parts of attention and norms that several passes read: constants, casts, joined heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._shapes import all_same, shape_of
from ._types import not_float

if TYPE_CHECKING:
    import numpy as np

    from gehost import Node, Value

HEADS_SECOND = [0, 2, 1, 3]
"""[B, S, N, H] to [B, N, S, H], and back."""


class NoMatch(Exception):  # noqa: N818 - it refuses a match and is no error
    """Why a graph is not what a pass looks for: ``key: text``."""


def joined(value: Value, heads: int) -> tuple[Value, list[Node]] | None:
    """Return the [B, S, N·H] that becomes [B, N, S, H], and nodes between."""
    turn = value.producer
    if turn is None or turn.op != "Transpose" or list(turn.attrs.get("perm") or ()) != HEADS_SECOND:
        return None
    apart = turn.inputs[0]
    split = None if apart is None else apart.producer
    if split is None or split.op != "Reshape" or split.inputs[0] is None:
        return None
    given, made = shape_of(split.inputs[0]), shape_of(apart)
    if given is None or made is None or len(given) != 3 or len(made) != 4:
        return None
    if not all_same(given[:2], made[:2]) or made[2] != heads:
        return None
    if not isinstance(made[3], int) or given[2] != heads * made[3]:
        return None
    return split.inputs[0], [turn, split]


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


def is_float_cast(node: Node) -> bool:
    """Whether a node casts between float32, float16 and bfloat16."""
    return node.op == "Cast" and not (not_float(node.inputs[0]) or not_float(node.outputs[0]))


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
