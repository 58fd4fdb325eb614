"""Layout of a small layered graph.

Layers are assigned by longest path, their order by barycentre, and edges are routed.

The usual three steps of Sugiyama's method. Lengths are in pixels, x to the right, y downwards, from
0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import networkx as nx

LAYER_GAP = 44
"""Distance of the boxes of two layers; labels are written in between."""
_BOX_GAP = 22
_BEND_WIDTH = 10
_SWEEPS = 6

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a box.

    ``reach`` is its width together with the label below it.
    """

    width: float
    height: float
    reach: float = 0.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of boxes and edges.

    A box has its top centre, an edge the points where it crosses a layer's border.

    An edge goes straight from its first point to the second, from there to the next layer, straight
    through it, and so on.
    """

    width: float
    height: float
    tops: dict[int, Point]
    paths: list[list[Point]]


@dataclass(frozen=True, slots=True)
class _Bend:
    """The crossing of an edge through an inner layer of its path."""

    edge: int
    layer: int


_Item: TypeAlias = "int | _Bend"


def lay_out(sizes: Mapping[int, Size], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place boxes so that every edge points downwards.

    Args:
        sizes: the boxes, by any number.
        edges: from box to box; without a cycle.
    """
    if not sizes:
        return Layout(0, 0, {}, [])
    layer_of = _layers(sizes, edges)
    rows: list[list[_Item]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for box, layer in layer_of.items():
        rows[layer].append(box)
    chains: list[list[_Item]] = []
    above: dict[_Item, list[_Item]] = {}
    below: dict[_Item, list[_Item]] = {}
    for number, (start, end) in enumerate(edges):
        bends = [_Bend(number, layer) for layer in range(layer_of[start] + 1, layer_of[end])]
        for bend in bends:
            rows[bend.layer].append(bend)
        chains.append([start, *bends, end])
        for upper, lower in pairwise(chains[-1]):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    for sweep in range(_SWEEPS):
        _order(rows, above if sweep % 2 == 0 else below, downwards=sweep % 2 == 0)
    widths: dict[_Item, float] = {box: max(size.width, size.reach) for box, size in sizes.items()}
    centres = _centres(rows, widths, above, below)
    heights = [
        max((sizes[item].height for item in row if isinstance(item, int)), default=0)
        for row in rows
    ]
    ceilings = [sum(heights[:layer]) + layer * LAYER_GAP for layer in range(len(rows))]
    floors = [ceiling + height for ceiling, height in zip(ceilings, heights, strict=True)]
    tops: dict[int, Point] = {
        box: (centres[box], ceilings[layer]) for box, layer in layer_of.items()
    }
    paths = [_path(chain, sizes, tops, centres, ceilings, floors) for chain in chains]
    width = max(centres[item] + widths.get(item, _BEND_WIDTH) / 2 for row in rows for item in row)
    return Layout(width, floors[-1], tops, paths)


def _layers(boxes: Iterable[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Assign layers by longest path from above.

    A source stands directly above its first user.
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(boxes)
    graph.add_edges_from(edges)
    layers = {
        box: layer
        for layer, row in enumerate(nx.topological_generations(graph))
        for box in sorted(row)
    }
    for box in list(layers):
        if not graph.pred[box] and graph.succ[box]:
            layers[box] = min(layers[reader] for reader in graph.succ[box]) - 1
    return layers


def _order(
    rows: list[list[_Item]], joined: Mapping[_Item, list[_Item]], *, downwards: bool
) -> None:
    """Sort each row by the mean place of its items' neighbours.

    The neighbours are those in the row before it.
    """
    for row in rows if downwards else reversed(rows):
        places = {
            item: place / max(1, len(other) - 1)
            for other in rows
            for place, item in enumerate(other)
        }
        means = {
            item: _mean([places[other] for other in joined.get(item, [])], places[item])
            for item in row
        }
        row.sort(key=means.__getitem__)


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _centres(
    rows: Sequence[Sequence[_Item]],
    widths: Mapping[_Item, float],
    above: Mapping[_Item, list[_Item]],
    below: Mapping[_Item, list[_Item]],
) -> dict[_Item, float]:
    """Place items, in their row's order, near neighbours, from x = 0."""
    centres: dict[_Item, float] = {}
    for row in rows:
        centres.update(_without_overlaps(row, dict.fromkeys(row, 0.0), widths))
    for sweep in range(_SWEEPS):
        # the last sweep goes downwards, which makes chains straight
        joined = below if sweep % 2 == 0 else above
        for row in reversed(rows) if sweep % 2 == 0 else rows:
            ideal = {
                item: _mean([centres[other] for other in joined.get(item, [])], centres[item])
                for item in row
            }
            centres.update(_without_overlaps(row, ideal, widths))
    start = min(centre - widths.get(item, _BEND_WIDTH) / 2 for item, centre in centres.items())
    return {item: centre - start for item, centre in centres.items()}


def _without_overlaps(
    row: Sequence[_Item], ideal: Mapping[_Item, float], widths: Mapping[_Item, float]
) -> dict[_Item, float]:
    """Return the non-overlapping places nearest to the wanted ones, in least squares.

    With the widths subtracted, this is a monotone fit: neighbours that would overlap share their
    mean.
    """
    offsets: list[float] = []
    end = 0.0
    for item in row:
        width = widths.get(item, _BEND_WIDTH)
        offsets.append(end + width / 2)
        end += width + _BOX_GAP
    blocks: list[tuple[float, int]] = []
    for item, offset in zip(row, offsets, strict=True):
        mean, count = ideal[item] - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    fitted = [mean for mean, count in blocks for _ in range(count)]
    return {item: mean + offset for item, mean, offset in zip(row, fitted, offsets, strict=True)}


def _path(
    chain: Sequence[_Item],
    sizes: Mapping[int, Size],
    tops: Mapping[int, Point],
    centres: Mapping[_Item, float],
    ceilings: Sequence[float],
    floors: Sequence[float],
) -> list[Point]:
    points: list[Point] = []
    for item in chain:
        if isinstance(item, _Bend):
            points += [(centres[item], ceilings[item.layer]), (centres[item], floors[item.layer])]
        else:
            x, y = tops[item]
            points += (
                [(x, y)]
                if points
                else [(x, y + sizes[item].height), (x, next(f for f in floors if f > y))]
            )
    return points
