"""Shardings of a tensor: per mesh axis replicated, split along a dimension, or partial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

from gehost_sharding.mesh import Mesh

Sharding: TypeAlias = tuple[int, ...]
"""One placement per mesh axis: a dimension, ``REPLICATED``, or one of the partial codes."""

Shape: TypeAlias = tuple[int, ...]

REPLICATED = -1
PARTIAL_SUM, PARTIAL_MAX, PARTIAL_MIN, PARTIAL_PROD = -2, -3, -4, -5
REDUCTIONS = {PARTIAL_SUM: "sum", PARTIAL_MAX: "max", PARTIAL_MIN: "min", PARTIAL_PROD: "prod"}


def replicated(mesh: Mesh) -> Sharding:
    """Return the sharding that splits nothing."""
    return (REPLICATED,) * len(mesh.axes)


def is_partial(sharding: Sharding) -> bool:
    """Return True if a device holds only a summand on some axis."""
    return min(sharding, default=0) < REPLICATED


def axes_of(sharding: Sharding, dim: int) -> tuple[int, ...]:
    """Mesh axes that split a dimension, major first."""
    return tuple(axis for axis, placed in enumerate(sharding) if placed == dim)


def is_legal(mesh: Mesh, shape: Shape, sharding: Sharding) -> bool:
    """Return True if each split dimension exists and is divided evenly."""
    for axis, dim in enumerate(sharding):
        if dim >= len(shape) or (dim >= 0 and mesh.sizes[axis] == 1):
            return False
    return all(mesh.divides(axes_of(sharding, dim), shape[dim]) for dim in {*sharding} if dim >= 0)


def shardings_of(mesh: Mesh, shape: Shape) -> tuple[Sharding, ...]:
    """Every legal sharding of a shape without partial placements, replicated first."""
    choices = [
        (REPLICATED, *range(len(shape))) if size != 1 else (REPLICATED,) for size in mesh.sizes
    ]
    return tuple(
        sharding for sharding in itertools.product(*choices) if is_legal(mesh, shape, sharding)
    )


def local_shape(mesh: Mesh, shape: Shape, sharding: Sharding) -> Shape:
    """Shape of the piece that one device holds."""
    return tuple(
        size // mesh.extent(axes_of(sharding, dim)) if size else 0 for dim, size in enumerate(shape)
    )


def local_elements(mesh: Mesh, shape: Shape, sharding: Sharding) -> int:
    """Count the elements of the piece that one device holds."""
    return math.prod(shape) // mesh.extent(axis for axis, dim in enumerate(sharding) if dim >= 0)


def piece(
    mesh: Mesh, shape: Shape, sharding: Sharding, coordinates: Sequence[int]
) -> tuple[slice, ...]:
    """Slices that cut the piece of the device at ``coordinates`` out of the whole tensor."""
    slices: list[slice] = []
    for dim, size in enumerate(shape):
        index = 0
        axes = axes_of(sharding, dim)
        for axis in axes:
            index = index * mesh.sizes[axis] + coordinates[axis]
        step = size // mesh.extent(axes)
        slices.append(slice(index * step, (index + 1) * step))
    return tuple(slices)


def describe(mesh: Mesh, sharding: Sharding) -> str:
    """Write a sharding for a reader: ``0:data,1:model``, ``partial sum:model``, ``replicated``."""
    parts = [
        f"{dim if dim >= 0 else f'partial {REDUCTIONS[dim]}'}:{name}"
        for name, dim in zip(mesh.axes, sharding, strict=True)
        if dim != REPLICATED
    ]
    return ",".join(parts) or "replicated"
