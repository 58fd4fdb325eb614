"""Proofs about shapes.

An unknown dimension is equal to nothing, not even to itself.
"""

from __future__ import annotations

from typing import Any

from gehost.ir.graph import Value
from gehost.ir.types import Dim, is_invented
from gehost.sizes import Size

__all__ = ["broadcasts_into", "filled", "is_invented", "is_static", "same_dim", "same_shape"]


def filled(value: Value, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return sizes of a value's model as they are in runs in which no tensor is empty.

    A Reshape's computed entry copies another size where it is 0. So ``either(seq, 64)`` is ``seq``.
    """
    scope = value.graph.model.sizes
    sizes = [scope.filled(scope.parse(dim)) if isinstance(dim, str) else dim for dim in dims]
    return tuple([str(size) if isinstance(size, Size) else size for size in sizes])


# Any: numpy's integers are accepted, too, also by machine code
def same_dim(left: Dim | Any, right: Dim | Any) -> bool:
    """Whether two dimensions are equal numbers, or the same symbol."""
    return left is not None and bool(left == right)


def same_shape(left: Value, right: Value) -> bool:
    """Whether both ranks are known and every dimension is proven equal."""
    a, b = left.shape, right.shape
    return a is not None and b is not None and len(a) == len(b) and all(map(same_dim, a, b))


def broadcasts_into(addend: Value, target: Value) -> bool:
    """Whether ``addend`` is proven to broadcast to ``target``'s shape without widening it.

    Shapes: addend [..., d], target [..., D]; from the right each d is 1 or equal to D, and addend
    has no more dimensions.
    """
    a, t = addend.shape, target.shape
    if a is None or t is None or len(a) > len(t):
        return False
    return all(
        dim == 1 or same_dim(dim, wide) for dim, wide in zip(reversed(a), reversed(t), strict=False)
    )


def is_static(value: Value) -> bool:
    """Whether every dimension is a number."""
    shape = value.shape
    return shape is not None and all(isinstance(dim, int) for dim in shape)
