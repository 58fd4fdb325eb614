"""One rank of a split model: ``mpiexec -n N python -m gehost_sharding.rank DIR``.

Each rank loads its own model, runs it with ONNX Runtime between the collectives, and counts the
bytes of the buffers that it hands to MPI. Rank 0 writes the whole outputs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from gehost import verify
from gehost_sharding.collectives import Collective
from gehost_sharding.mesh import Mesh
from gehost_sharding.redistribution import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SLICE,
    Redistributions,
    wire_bytes,
)
from gehost_sharding.segments import SegmentedModel
from gehost_sharding.sharding import Sharding, piece, replicated

if TYPE_CHECKING:
    from mpi4py import MPI

Array = NDArray[Any]

MANIFEST = "split.json"
ERROR = ".error"
"""Ends the name of a file with why a rank failed."""
ALIVE = "alive"
"""A file in the directory of PIDs, which the launcher locks until it ends or is killed."""


@dataclass
class Traffic:
    """Bytes that this rank sent, counted from the buffers of the collectives."""

    bytes: int = 0
    count: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, kind: str, size: int) -> None:
        self.bytes += size
        self.count[kind] = self.count.get(kind, 0) + 1


class Exchange:
    """Does collectives over MPI."""

    def __init__(self, world: MPI.Intracomm) -> None:
        self.world = world
        self.traffic = Traffic()
        self._comms: dict[tuple[int, ...], MPI.Intracomm] = {}

    def __call__(self, collective: Collective, value: Array) -> Array:
        rank = self.world.Get_rank()
        group = next(group for group in collective.groups if rank in group)
        comm = self._comm(group)
        size = len(group)
        value = np.asarray(value, order="C")
        if collective.kind == ALL_REDUCE:
            self._count(collective, value.nbytes, size)
            return self._all_reduce(comm, value, collective.reduction)
        if collective.kind == ALL_GATHER:
            gathered = _gather(comm, value, size)
            self._count(collective, gathered.nbytes, size)
            return np.concatenate([*gathered], axis=collective.concat_axis)
        pieces = np.stack(np.split(value, size, axis=collective.split_axis))
        if collective.kind == REDUCE_SCATTER:
            self._count(collective, pieces.nbytes, size)
            return self._reduce_scatter(comm, pieces, collective.reduction)
        assert collective.kind == ALL_TO_ALL
        received = np.empty_like(pieces)
        comm.Alltoall(_raw(pieces), _raw(received))
        self._count(collective, pieces.nbytes * size, size)
        return np.concatenate([*received], axis=collective.concat_axis)

    def _comm(self, group: tuple[int, ...]) -> MPI.Intracomm:
        if group not in self._comms:
            members = self.world.Get_group().Incl(group)
            self._comms[group] = self.world.Create_group(members)
        return self._comms[group]

    def _count(self, collective: Collective, size: int, devices: int) -> None:
        self.traffic.add(collective.kind, wire_bytes(collective.kind, size, devices))

    def _all_reduce(self, comm: MPI.Intracomm, value: Array, reduction: str) -> Array:
        wide = _widened(value)
        result = np.empty_like(wide)
        comm.Allreduce(wide, result, _operation(reduction))
        return result.astype(value.dtype, copy=False)

    def _reduce_scatter(self, comm: MPI.Intracomm, pieces: Array, reduction: str) -> Array:
        wide = _widened(pieces)
        result = np.empty_like(wide[0])
        comm.Reduce_scatter_block(wide, result, _operation(reduction))
        return result.astype(pieces.dtype, copy=False)


def _gather(comm: MPI.Intracomm, value: Array, size: int) -> Array:
    gathered = np.empty((size, *value.shape), value.dtype)
    comm.Allgather(_raw(value), _raw(gathered))
    return gathered


def _raw(value: Array) -> Array:
    """View an array as bytes, so that MPI need not know its type."""
    return value.reshape(-1).view(np.uint8)


def _widened(value: Array) -> Array:
    """Use a type that MPI can add up: float16 and bfloat16 as float32, bool as uint8."""
    if value.dtype.kind == "b":
        return value.astype(np.uint8)
    return value if value.dtype.kind in "iu" or value.dtype.itemsize > 2 else value.astype("f4")


def _operation(reduction: str) -> MPI.Op:
    from mpi4py import MPI

    return {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}[reduction]


def gather_output(
    exchange: Exchange, mesh: Mesh, shape: tuple[int, ...], sharding: Sharding, value: Array
) -> Array:
    """Make an output whole on every rank."""
    for move in Redistributions(mesh).path(shape, sharding, replicated(mesh)):
        assert move.kind != SLICE, "an output that is not partial only needs gathering"
        groups = mesh.groups(move.axis)
        collective = Collective(
            move.kind, groups, split_axis=max(move.target, 0), concat_axis=max(move.source, 0)
        )
        value = exchange(collective, value)
    return value


def run_rank(
    world: MPI.Intracomm, directory: str, feeds: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Run one rank.

    Args:
        world: all ranks.
        directory: a split, as ``write_split`` leaves it.
        feeds: whole inputs by name.

    Returns:
        The whole outputs, and this rank's traffic.
    """
    manifest = json.loads((Path(directory) / MANIFEST).read_text(encoding="utf-8"))
    mesh = Mesh(tuple(manifest["mesh"]["axes"]), tuple(manifest["mesh"]["sizes"]))
    rank = world.Get_rank()
    if world.Get_size() != mesh.devices:
        raise ValueError(
            f"{directory} is split for {mesh.devices} ranks, but {world.Get_size()} run"
        )
    started = time.perf_counter()
    path = str(Path(directory) / f"rank{rank}.onnx")
    proto = onnx.load(path)  # pyright: ignore[reportUnknownMemberType]
    model = SegmentedModel(proto, mesh.devices)
    loaded = time.perf_counter()
    position = mesh.coordinates(rank)
    local: dict[str, Array] = {}
    for name, entry in manifest["inputs"].items():
        if name not in feeds:
            raise ValueError(f"no feed for input {name}; the feeds have {', '.join(feeds)}")
        value = np.asarray(feeds[name])
        if list(value.shape) != entry["shape"]:
            raise ValueError(
                f"feed {name} has shape {list(value.shape)}; the split is for {entry['shape']}"
            )
        cut = piece(mesh, value.shape, tuple(entry["sharding"]), position)
        local[name] = np.asarray(value[cut])
    exchange = Exchange(world)
    outputs = model.run(local, exchange)
    ran = time.perf_counter()
    own = exchange.traffic
    exchange.traffic = Traffic()
    whole = {
        name: gather_output(
            exchange, mesh, tuple(entry["shape"]), tuple(entry["sharding"]), outputs[name]
        )
        for name, entry in manifest["outputs"].items()
    }
    return whole, {
        "rank": rank,
        "bytes": own.bytes,
        "collectives": own.count,
        "output_bytes": exchange.traffic.bytes,
        "segments": len(model.segments),
        "load_seconds": loaded - started,
        "run_seconds": ran - loaded,
    }


def end_with_launcher(pids: str | None = None, seconds: float = 0.5) -> None:
    """End this process when what started it is gone.

    A rank whose mpiexec is killed would wait for the others for ever, on a whole core.

    Args:
        pids: the directory of PIDs, with the file that the launcher locks, if it has one.
        seconds: between two looks.
    """
    parent = os.getppid()
    alive = Path(pids or ".") / ALIVE
    has_launcher = pids is not None and alive.exists()

    def watch() -> None:
        while os.getppid() == parent and (not has_launcher or _is_locked(alive)):
            time.sleep(seconds)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def main(arguments: list[str] | None = None) -> None:
    """Run this process as one rank; an error ends all ranks."""
    parser = argparse.ArgumentParser(prog="python -m gehost_sharding.rank")
    parser.add_argument("directory", help="directory written by gehost shard split")
    parser.add_argument("--feeds", required=True, help="inputs, as FILE.npz")
    parser.add_argument("--out", help="where rank 0 writes the outputs, as FILE.npz")
    parser.add_argument("--report", help="where rank 0 writes each rank's traffic, as JSON")
    parser.add_argument("--pids", help="directory where each rank writes its PID, and its error")
    options = parser.parse_args(arguments)
    end_with_launcher(options.pids)
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if options.pids:
        (Path(options.pids) / str(os.getpid())).write_text(str(world.Get_rank()), encoding="ascii")
    try:
        outputs, report = run_rank(world, options.directory, verify.load_feeds(options.feeds))
        reports = world.gather(report)
        if world.Get_rank() == 0:
            if options.out:
                Path(options.out).write_bytes(verify.save_feeds(outputs))
            if options.report:
                Path(options.report).write_text(json.dumps(reports), encoding="utf-8")
    except Exception as error:  # noqa: BLE001 - the other ranks wait for this one
        traceback.print_exc()
        line = f"rank {world.Get_rank()}: {type(error).__name__}: {error}"
        if options.pids:  # in a file, as mpiexec may lose the end of what an aborted rank prints
            file = Path(options.pids) / f"{world.Get_rank()}{ERROR}"
            file.write_text(" ".join(line.split()), encoding="utf-8")
        world.Abort(1)


if __name__ == "__main__":
    main()
