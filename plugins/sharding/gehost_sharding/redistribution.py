"""Conversion of one sharding into another: moves on one axis, shortest paths, bytes on the wire."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from gehost import GehostError
from gehost_sharding.mesh import Mesh
from gehost_sharding.sharding import (
    REPLICATED,
    Shape,
    Sharding,
    axes_of,
    local_elements,
)

SLICE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = (
    "slice",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
)
HALO = "halo"
"""An all-gather of the edges that neighbours read (``strategies.Exchange``)."""

COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)


def wire_bytes(kind: str, size: int, devices: int) -> int:
    """Bytes that each device sends, for a ring of ``devices``.

    Args:
        kind: one of ``COLLECTIVES``.
        size: bytes of one summand (all_reduce, reduce_scatter), of the gathered result
            (all_gather), or of all shards of the group together (all_to_all).
        devices: devices of the group.
    """
    if kind == ALL_REDUCE:
        return _ceil_div(2 * (devices - 1) * size, devices)
    if kind == ALL_TO_ALL:
        return _ceil_div((devices - 1) * size, devices * devices)
    return _ceil_div((devices - 1) * size, devices)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class Move(NamedTuple):
    """One step of a redistribution, on one mesh axis."""

    kind: str
    axis: int
    source: int
    """Placement of the axis before: a dimension, replicated, or partial."""
    target: int
    after: Sharding
    """The whole sharding after the move."""
    wire: float
    """Bytes on the wire per device, in sizes of the whole tensor."""


Legality = tuple[frozenset[tuple[int, ...]], ...]
"""For each dimension the sets of mesh axes that may split it together."""


class Redistributions:
    """Shortest redistributions on one mesh, least bytes first, then fewest moves.

    Paths depend on the mesh and on which axes divide which dimension, not on hardware, so that a
    planner and a splitter that share nothing but the annotations find the same ones.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._legality: dict[Shape, Legality] = {}
        self._paths: dict[tuple[Legality, Sharding], dict[Sharding, tuple[Move, ...]]] = {}

    def legality(self, shape: Shape) -> Legality:
        """Return the key of the paths of a shape."""
        if shape not in self._legality:
            mesh = self.mesh
            subsets = [
                axes
                for count in range(1, len(mesh.active_axes) + 1)
                for axes in itertools.combinations(mesh.active_axes, count)
            ]
            moves = tuple(
                frozenset(axes for axes in subsets if mesh.divides(axes, size)) for size in shape
            )
            self._legality[shape] = moves
        return self._legality[shape]

    def states_of(self, legality: Legality) -> tuple[Sharding, ...]:
        """Every legal sharding without partial placements, replicated first."""
        active = self.mesh.active_axes
        dims = (REPLICATED, *range(len(legality)))
        choices = [dims if axis in active else (REPLICATED,) for axis in range(len(self.mesh.axes))]
        return tuple(
            state
            for state in itertools.product(*choices)
            if all(axes_of(state, dim) in legality[dim] for dim in {*state} if dim >= 0)
        )

    def path(self, shape: Shape, source: Sharding, target: Sharding) -> tuple[Move, ...]:
        """Moves that turn ``source`` into ``target``; empty if they are equal.

        Raises:
            GehostError: no sequence of moves leads there.
        """
        if source == target:
            return ()
        path = self.paths_from(self.legality(shape), source).get(target)
        if path is None:
            raise GehostError(
                f"no redistribution of shape {list(shape)} on mesh {self.mesh}"
                f" from {source} to {target}"
            )
        return path

    def paths_from(self, legality: Legality, source: Sharding) -> dict[Sharding, tuple[Move, ...]]:
        """Shortest paths from one sharding to every other that can be reached."""
        key = (legality, source)
        if key not in self._paths:
            self._paths[key] = self._search(legality, source)
        return self._paths[key]

    def bytes_of(self, shape: Shape, itemsize: int, before: Sharding, move: Move) -> int:
        """Bytes on the wire per device of one move of a tensor that is sharded as ``before``."""
        if move.kind == SLICE:
            return 0
        devices = self.mesh.sizes[move.axis]
        size = local_elements(self.mesh, shape, before) * itemsize
        if move.kind in {ALL_GATHER, ALL_TO_ALL}:
            size *= devices
        return wire_bytes(move.kind, size, devices)

    def _search(self, legality: Legality, source: Sharding) -> dict[Sharding, tuple[Move, ...]]:
        paths: dict[Sharding, tuple[Move, ...]] = {}
        unit = self.mesh.devices**2  # of the whole tensor, so that every move has whole bytes
        queue: list[tuple[int, int, Sharding, tuple[Move, ...]]] = [(0, 0, source, ())]
        while queue:
            total, length, state, path = heapq.heappop(queue)
            if state in paths:
                continue
            paths[state] = path
            local = unit // self.mesh.extent(axis for axis, dim in enumerate(state) if dim >= 0)
            for kind, axis, target in self._moves(legality, state):
                after = (*state[:axis], target, *state[axis + 1 :])
                if after in paths:
                    continue
                devices = self.mesh.sizes[axis]
                gathers = kind in {ALL_GATHER, ALL_TO_ALL}
                wire = 0
                if kind != SLICE:
                    wire = wire_bytes(kind, local * devices if gathers else local, devices)
                move = Move(kind, axis, state[axis], target, after, wire / unit)
                heapq.heappush(queue, (total + wire, length + 1, after, (*path, move)))
        return paths

    def _moves(self, legality: Legality, state: Sharding) -> Iterator[tuple[str, int, int]]:
        """Moves from ``state``; an axis leaves or joins a dimension as its minor-most only."""
        for axis in self.mesh.active_axes:
            placed = state[axis]
            if placed >= 0 and axes_of(state, placed)[-1] != axis:
                continue
            for target in (REPLICATED, *range(len(legality))):
                if target == placed:
                    continue
                if target >= 0:
                    present = axes_of(state, target)
                    if (present and present[-1] > axis) or (*present, axis) not in legality[target]:
                        continue
                if placed == REPLICATED:
                    yield SLICE, axis, target
                elif placed < REPLICATED:
                    yield (ALL_REDUCE if target == REPLICATED else REDUCE_SCATTER), axis, target
                else:
                    yield (ALL_GATHER if target == REPLICATED else ALL_TO_ALL), axis, target
