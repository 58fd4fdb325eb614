"""Hardware figures that turn operations and bytes into seconds."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gehost import UsageError
from gehost_sharding.mesh import Mesh
from gehost_sharding.redistribution import SLICE, Move

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40} | {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_KEYS = ("flops", "memory_bandwidth", "link_bandwidth", "latency", "memory")


@dataclass(frozen=True)
class Hardware:
    """One device and its links; the same for all devices."""

    flops: float = 3e14
    """Operations per second."""
    memory_bandwidth: float = 2e12
    """Bytes per second."""
    link_bandwidth: float = 2e11
    """Bytes per second that a device sends."""
    latency: float = 5e-6
    """Seconds per collective."""
    memory: int | None = None
    """Bytes for weights and live tensors."""
    axis_bandwidth: Mapping[str, float] = field(default_factory=dict[str, float])
    """``link_bandwidth`` of single mesh axes."""

    @classmethod
    def load(cls, path: str) -> Hardware:
        """Read a TOML file with the keys flops, memory_bandwidth, link_bandwidth, latency, memory.

        ``link_bandwidth`` is a number, or a table by mesh axis with ``default`` for the others.

        Raises:
            UsageError: unreadable, an unknown key, or a value that is not positive.
        """
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot read the hardware file: {error}", where=path) from error
        values: dict[str, Any] = {}
        for key, value in content.items():
            if key not in _KEYS:
                nearest = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)
                raise UsageError(f'unknown key "{key}"; nearest: {nearest[0]}', where=path)
            if key == "memory":
                values[key] = parse_bytes(value) if isinstance(value, str) else value
            elif key == "link_bandwidth" and isinstance(value, dict):
                table: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
                values[key] = table.pop("default", cls.link_bandwidth)
                values["axis_bandwidth"] = table
            else:
                values[key] = value
        figures = {**values, **values.get("axis_bandwidth", {})}
        for key, value in figures.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            least_ok = is_number and (value > 0 or (key == "latency" and value == 0))
            if key != "axis_bandwidth" and not least_ok:
                raise UsageError(f"{key} = {value!r}: wanted a number above 0", where=path)
        return cls(**values)

    def check(self, mesh: Mesh) -> None:
        """Check that every axis with a bandwidth of its own is in the mesh.

        Raises:
            UsageError: an axis that the mesh lacks.
        """
        for axis in self.axis_bandwidth:
            if axis not in mesh.axes:
                raise UsageError(
                    f'link_bandwidth of axis "{axis}", which mesh {mesh} does not have',
                    subject="hardware",
                )

    def bandwidth(self, axis: str) -> float:
        """Bytes per second that a device sends along a mesh axis."""
        return self.axis_bandwidth.get(axis, self.link_bandwidth)

    def path_seconds(self, mesh: Mesh, path: Sequence[Move]) -> tuple[float, float]:
        """Return the seconds of a redistribution: fixed, and per byte of the whole tensor."""
        moves = [move for move in path if move.kind != SLICE]
        per_byte = sum(move.wire / self.bandwidth(mesh.axes[move.axis]) for move in moves)
        return self.latency * len(moves), per_byte

    def exchange_seconds(self, axis: str, wire: int) -> float:
        """Seconds of one collective over a mesh axis."""
        return self.latency + wire / self.bandwidth(axis)

    def compute_seconds(self, flops: float, moved: float) -> float:
        """Seconds of an operator that does ``flops`` operations on ``moved`` bytes."""
        return max(flops / self.flops, moved / self.memory_bandwidth)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"axis_bandwidth": dict(self.axis_bandwidth)}


def parse_bytes(text: str) -> int:
    """Read a size such as ``16GiB``, ``500MB`` or ``1024``.

    Raises:
        UsageError: not in that form.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise UsageError("wanted a number and one of KiB, MiB, GiB, TiB", subject=f'size "{text}"')
    return int(float(match[1]) * _UNITS[match[2]])
