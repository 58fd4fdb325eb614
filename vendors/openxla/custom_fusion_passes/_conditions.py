"""Conditions that the passes of this directory share.

HLO's shapes are static, so that all of them can be proven.
"""

from __future__ import annotations

from gehost import MatchResult, Node, Value

TOLERANCE = 1e-6
"""How far a factor may be off, relatively: the rounding of float32."""


def static_shape(value: Value) -> tuple[int, ...] | None:
    """Return the shape of a tensor if it is static."""
    shape = value.shape
    if shape is None or any(not isinstance(dim, int) for dim in shape):
        return None
    return tuple(dim for dim in shape if isinstance(dim, int))


def reduced_axes(node: Node, x: Value) -> tuple[int, ...] | None:
    """Return the axes of a reduction, from 0 on.

    Returns None where they or the rank of its operand are not known, or it has no such axis.
    """
    rank = x.rank
    if rank is None:
        return None
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        array = node.inputs[1].array
        axes = None if array is None else [int(axis) for axis in array.reshape(-1)]
    else:
        axes = node.attrs.get("axes", [])
    if axes is None:
        return None
    if not axes:  # absent or empty: all of them, or none
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank))
    if not all(-rank <= axis < rank for axis in axes):
        return None
    return tuple(sorted({axis % rank for axis in axes}))


def kept_shape(x: Value, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of a reduction that keeps its axes."""
    shape = static_shape(x)
    return (
        None
        if shape is None
        else tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    )


def number(value: Value) -> float | None:
    """Return the one number that a constant holds."""
    array = value.array
    return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


def node_of(match: MatchResult, *ops: str) -> Node:
    """Return the matched node of an operator type."""
    return next(node for node in match.GetMatchedNodes() if node.op in ops)
