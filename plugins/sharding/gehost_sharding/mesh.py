"""Device meshes: named axes with sizes, devices numbered row-major."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gehost import UsageError

if TYPE_CHECKING:
    import networkx as nx

_AXIS = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*=\s*(-?\d+)\s*")

SYMBOLIC = 0
"""Size of an axis that divides every factor."""


@dataclass(frozen=True)
class Mesh:
    """Named axes with sizes; the first axis is the most major in the device number."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """Read ``data=2,model=4``.

        Raises:
            UsageError: not in that form, a name given twice, or a size below 1.
        """
        names: list[str] = []
        sizes: list[int] = []
        for part in text.split(","):
            match = _AXIS.fullmatch(part)
            if match is None:
                raise UsageError(
                    f'wanted axes as in data=2,model=4, found "{part}"', subject=f'mesh "{text}"'
                )
            name, size = match[1], int(match[2])
            if size < 1:
                raise UsageError(
                    f"axis {name} has size {size}; the least is 1", subject=f"mesh {text}"
                )
            if name in names:
                raise UsageError(f"axis {name} is given twice", subject=f"mesh {text}")
            names.append(name)
            sizes.append(size)
        return cls(tuple(names), tuple(sizes))

    @classmethod
    def symbolic(cls) -> Mesh:
        """One axis ``x`` of unstated size that divides every factor."""
        return cls(("x",), (SYMBOLIC,))

    def __str__(self) -> str:
        if self.is_symbolic:
            return "one symbolic axis x"
        return ",".join(f"{name}={size}" for name, size in zip(self.axes, self.sizes, strict=True))

    @property
    def is_symbolic(self) -> bool:
        return SYMBOLIC in self.sizes

    @property
    def devices(self) -> int:
        """Number of devices."""
        return math.prod(self.sizes)

    @property
    def active_axes(self) -> tuple[int, ...]:
        """Indices of the axes whose size is not 1; the others have no effect."""
        return tuple(index for index, size in enumerate(self.sizes) if size != 1)

    def extent(self, axes: Iterable[int]) -> int:
        """Number of pieces that the axes split a dimension into."""
        return math.prod(self.sizes[axis] for axis in axes)

    def divides(self, axes: Iterable[int], size: int) -> bool:
        """Return True if the axes together split ``size`` into equal parts."""
        extent = self.extent(axes)
        return size > 1 if extent == SYMBOLIC else size > 0 and size % extent == 0

    def coordinates(self, device: int) -> tuple[int, ...]:
        """Position of a device on each axis."""
        position: list[int] = []
        for size in reversed(self.sizes):
            device, coordinate = divmod(device, size)
            position.append(coordinate)
        return tuple(reversed(position))

    def device(self, coordinates: Iterable[int]) -> int:
        """Return the number of the device at a position."""
        number = 0
        for size, coordinate in zip(self.sizes, coordinates, strict=True):
            number = number * size + coordinate
        return number

    def groups(self, axis: int) -> tuple[tuple[int, ...], ...]:
        """Devices that differ in one axis only, ordered by their coordinate on it."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for device in range(self.devices):
            position = self.coordinates(device)
            groups.setdefault((*position[:axis], *position[axis + 1 :]), []).append(device)
        return tuple(tuple(group) for group in groups.values())

    def graph(self) -> nx.Graph[Any]:
        """Devices as nodes (attribute ``coordinates``), an edge per pair in a group (``axis``)."""
        import networkx as nx

        graph: nx.Graph[Any] = nx.Graph()
        for device in range(self.devices):
            graph.add_node(device, coordinates=self.coordinates(device))
        for axis in self.active_axes:
            for group in self.groups(axis):
                for position, device in enumerate(group):
                    for other in group[position + 1 :]:
                        graph.add_edge(device, other, axis=self.axes[axis])
        return graph
