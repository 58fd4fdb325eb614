"""Redistributions, done on arrays: every path leads from every sharding to every other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gehost_sharding.mesh import Mesh
from gehost_sharding.redistribution import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SLICE,
    Move,
    Redistributions,
    wire_bytes,
)
from gehost_sharding.sharding import (
    PARTIAL_SUM,
    REPLICATED,
    Shape,
    Sharding,
    local_shape,
    piece,
    shardings_of,
)

from .conftest import Array

SHAPE = (8, 4, 16)


def held(mesh: Mesh, whole: Array, sharding: Sharding) -> list[Array]:
    """What each device holds; of a partial tensor a random summand."""
    rng = np.random.default_rng(1)
    pieces: list[Array] = []
    plain = tuple(max(dim, -1) for dim in sharding)
    partial = [axis for axis, dim in enumerate(sharding) if dim == PARTIAL_SUM]
    parts = [mesh.sizes[axis] for axis in partial]
    summands = rng.integers(-9, 9, (*parts, *whole.shape)) if partial else whole
    last = tuple(size - 1 for size in parts)
    if partial:
        summands[last] += whole - summands.sum(axis=tuple(range(len(parts))))
    for device in range(mesh.devices):
        position = mesh.coordinates(device)
        own = summands[tuple(position[axis] for axis in partial)] if partial else whole
        pieces.append(own[piece(mesh, whole.shape, plain, position)])
    return pieces


def cut(whole: Array, axis: int, position: int, size: int) -> Array:
    """One of ``size`` equal pieces along an axis."""
    length, rest = divmod(whole.shape[axis], size)
    assert rest == 0
    return whole[(slice(None),) * axis + (slice(position * length, (position + 1) * length),)]


def do(mesh: Mesh, move: Move, values: list[Array]) -> list[Array]:
    """One move, by its definition."""
    results: list[Array | None] = [None] * mesh.devices
    size = mesh.sizes[move.axis]
    for group in mesh.groups(move.axis):
        own = [values[device] for device in group]
        for position, device in enumerate(group):
            if move.kind == SLICE:
                result = cut(own[position], move.target, position, size)
            elif move.kind == ALL_REDUCE:
                result = np.sum(own, axis=0)
            elif move.kind == ALL_GATHER:
                result = np.concatenate(own, axis=move.source)
            elif move.kind == REDUCE_SCATTER:
                result = cut(np.sum(own, axis=0), move.target, position, size)
            else:
                assert move.kind == ALL_TO_ALL
                parts = [cut(part, move.target, position, size) for part in own]
                result = np.concatenate(parts, axis=move.source)
            results[device] = result
    return [np.asarray(result) for result in results]


def sources(mesh: Mesh, shape: Shape) -> list[Sharding]:
    shardings: set[Sharding] = set(shardings_of(mesh, shape))
    for sharding in list(shardings):
        free = [axis for axis in mesh.active_axes if sharding[axis] == REPLICATED]
        for count in range(1, len(free) + 1):
            for axes in itertools.combinations(free, count):
                shardings.add(
                    tuple(PARTIAL_SUM if a in axes else dim for a, dim in enumerate(sharding))
                )
    return sorted(shardings)


@pytest.mark.parametrize("sizes", [(2,), (2, 2), (2, 4), (1, 4), (2, 2, 2)])
def test_every_path_keeps_the_tensor(sizes: tuple[int, ...]) -> None:
    mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
    redistributions = Redistributions(mesh)
    whole = np.random.default_rng(0).integers(-99, 99, SHAPE)
    targets = {target: held(mesh, whole, target) for target in shardings_of(mesh, SHAPE)}
    for source in sources(mesh, SHAPE):
        start = held(mesh, whole, source)
        for target, wanted_values in targets.items():
            values, state = start, source
            for move in redistributions.path(SHAPE, source, target):
                before = values[0].nbytes
                values = do(mesh, move, values)
                size = redistributions.bytes_of(SHAPE, whole.itemsize, state, move)
                assert size == pytest.approx(move.wire * whole.nbytes)
                if move.kind == ALL_REDUCE:
                    assert size == wire_bytes(ALL_REDUCE, before, mesh.sizes[move.axis])
                state = move.after
                assert values[0].shape == local_shape(
                    mesh, SHAPE, tuple(max(dim, -1) for dim in state)
                )
            for value, expected in zip(values, wanted_values, strict=True):
                assert np.array_equal(value, expected)


def test_an_axis_leaves_a_dimension_as_its_minor_most_only() -> None:
    """Gathering the major axis first would interleave the pieces of the minor one."""
    mesh = Mesh(("a", "b"), (2, 2))
    path = Redistributions(mesh).path((8,), (0, 0), (-1, 0))
    assert (path[0].kind, path[0].axis) == (ALL_GATHER, 1)
    whole = np.arange(8)
    values = held(mesh, whole, (0, 0))
    wrong = do(mesh, Move(ALL_GATHER, 0, 0, -1, (-1, 0), 0.5), values)
    assert not np.array_equal(wrong[0], held(mesh, whole, (-1, 0))[0])


def test_paths_have_the_least_bytes() -> None:
    """Compared with a search over all sequences of up to three moves."""
    mesh = Mesh(("a", "b"), (2, 2))
    redistributions = Redistributions(mesh)
    legality = redistributions.legality((4, 4))
    best: dict[tuple[Sharding, Sharding], float] = {}
    states = shardings_of(mesh, (4, 4))
    one: dict[tuple[Sharding, Sharding], float] = {}
    for source in states:
        for target in states:
            path = redistributions.paths_from(legality, source)[target]
            best[source, target] = sum(move.wire for move in path)
            if len(path) == 1:
                one[source, target] = path[0].wire
    for (a, b), cost in one.items():
        for (c, d), further in one.items():
            if b == c:
                assert best[a, d] <= cost + further + 1e-12


@pytest.mark.parametrize(
    ("kind", "size", "devices", "expected"),
    [
        (ALL_REDUCE, 800, 4, 1200),
        (ALL_GATHER, 800, 4, 600),
        (REDUCE_SCATTER, 800, 4, 600),
        (ALL_TO_ALL, 800, 4, 150),
        (ALL_REDUCE, 4, 3, 6),
    ],
)
def test_bytes_on_the_wire(kind: str, size: int, devices: int, expected: int) -> None:
    assert wire_bytes(kind, size, devices) == expected
