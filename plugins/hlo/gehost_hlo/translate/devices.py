"""The regions of shard_map: one program on all devices of a mesh, written out for each of them.

A value inside such a region has a part on each device. An instruction that reads one is translated
for every device; a collective combines the parts. The result is the program of all devices in one
graph, so that its numbers are those of the whole.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gehost import Refused
from gehost_hlo.attributes import (
    called,
    dimension,
    replica_groups,
    sharding,
    source_target_pairs,
    tile_devices,
)
from gehost_hlo.context import Context
from gehost_hlo.emit import Nested, Tensor, Value, leaves
from gehost_hlo.module import HloInstruction
from gehost_hlo.translate.control import check_value, condition_of, finish, packed, results_of
from gehost_hlo.translate.elementwise import tensors
from gehost_hlo.translate.reduction import combine

MOST = 64
"""Devices that a program is written out for, at most."""
COLLECTIVES = frozenset(
    [
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "collective-permute",
        "collective-broadcast",
        "partition-id",
        "replica-id",
    ]
)
LEAVES = frozenset(["xla.sdy.LocalToGlobalShape", "SPMDShardToFullShape"])
"""The custom calls that put the parts of all devices together."""

_MESH = re.compile(r"([\w.$-]+) = #sdy\.mesh<\[([^\]]*)\]([^>]*)>")
_AXIS = re.compile(r'"([^"]+)"=([0-9]+)')
_SHARDING = re.compile(r"<@([\w.$-]+),\s*\[((?:\{[^}]*\}(?:,\s*)?)*)\]")


@dataclass(frozen=True)
class Mesh:
    """Sizes of the axes by name, the last one changing fastest."""

    axes: dict[str, int]

    @property
    def devices(self) -> int:
        return math.prod(self.axes.values())

    def device(self, coordinates: Mapping[str, int]) -> int:
        """The number of a device; 0 along the axes that are not named."""
        number = 0
        for name, size in self.axes.items():
            number = number * size + coordinates.get(name, 0)
        return number

    def place(self, device: int, axes: Sequence[str]) -> int:
        """Which part along some axes, the first one major, a device has."""
        coordinates: dict[str, int] = {}
        for name, size in reversed(self.axes.items()):
            device, coordinates[name] = divmod(device, size)
        number = 0
        for name in axes:
            number = number * self.axes[name] + coordinates[name]
        return number


Layout = list[list[str]]
"""For each dimension of an array, the axes of the mesh that it is split along."""


def boundary(c: Context, i: HloInstruction, kind: str) -> tuple[Mesh, list[Layout]]:
    """The mesh and the layouts of the arrays that go into or out of a region."""
    text = i.attributes.get("frontend_attributes", "").replace('\\"', '"')
    part = re.search(rf'xla\.sdy\.{kind}_shardings="(.*?)>\]>"', text)
    manual = re.search(r"manual_axes\{([^}]*)\}", text)
    rows = _SHARDING.findall(part[0]) if part is not None else []
    meshes = {name: (axes, rest) for name, axes, rest in _MESH.findall(_meshes(c))}
    names = {name for name, _ in rows}
    if manual is None or len(names) != 1 or not names <= meshes.keys():
        raise Refused("missing", "its mesh or its shardings are not in the text")
    axes_text, rest = meshes[names.pop()]
    mesh = Mesh({name: int(size) for name, size in _AXIS.findall(axes_text)})
    automatic = [
        name for name, size in mesh.axes.items() if size > 1 and f'"{name}"' not in manual[1]
    ]
    if automatic or rest.strip():
        raise Refused("unsupported", "shard_map over some of the axes, or an own order of devices")
    if mesh.devices > MOST:
        raise Refused(
            "unsupported", f"a mesh of {mesh.devices} devices is not written out, {MOST} at most"
        )
    if ":(" in part[0] if part is not None else False:
        raise Refused("unsupported", "a dimension is split along a part of an axis")
    return mesh, [
        [re.findall(r'"([^"]+)"', axes) for axes in re.findall(r"\{([^}]*)\}", row)]
        for _, row in rows
    ]


def _meshes(c: Context) -> str:
    return c.module.attributes.get("frontend_attributes", "").replace('\\"', '"')


def enter(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Split arrays; notes the parts of all devices, and returns those of device 0."""
    arrays = tensors(args, len(args))
    mesh, layouts = boundary(c, i, "in")
    if len(layouts) != len(arrays) or i.shape is None:
        raise Refused("invalid", f"it has {len(arrays)} operands, {len(layouts)} shardings")
    c.shards[i.name] = [
        packed(
            i.shape, [_part(c, x, mesh, dims, d) for x, dims in zip(arrays, layouts, strict=True)]
        )
        for d in range(mesh.devices)
    ]
    return c.shards[i.name][0]


def _part(c: Context, x: Tensor, mesh: Mesh, layout: Layout, device: int) -> Tensor:
    rows: list[tuple[int, int, int]] = []
    for axis, size in enumerate(x.dims):
        axes = layout[axis] if axis < len(layout) else []
        own = size // math.prod(mesh.axes[name] for name in axes)
        start = own * mesh.place(device, axes)
        rows.append((start, start + own, 1))
    return c.slice(x, rows)


def leave(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Put the parts of all devices together."""
    mesh, layouts = boundary(c, i, "out")
    values = [
        c.shards.get(o.name, [arg] * mesh.devices) for o, arg in zip(i.operands, args, strict=True)
    ]
    parts = [[leaf for value in values for leaf in leaves(value[d])] for d in range(mesh.devices)]
    if i.shape is None or any(len(row) != len(layouts) for row in parts):
        raise Refused("invalid", f"it has {len(parts[0])} arrays, {len(layouts)} shardings")
    whole = [
        _joined(c, mesh, layout, [row[k] for row in parts], 0, {})
        for k, layout in enumerate(layouts)
    ]
    return packed(i.shape, whole)


def _joined(
    c: Context,
    mesh: Mesh,
    layout: Layout,
    parts: list[Tensor],
    axis: int,
    coordinates: Mapping[str, int],
) -> Tensor:
    if axis == len(layout):
        return parts[mesh.device(coordinates)]
    ranges = [range(mesh.axes[name]) for name in layout[axis]]
    rows = [
        _joined(
            c,
            mesh,
            layout,
            parts,
            axis + 1,
            {**coordinates, **dict(zip(layout[axis], place, strict=True))},
        )
        for place in itertools.product(*ranges)
    ]
    return c.concat(rows, axis)


# The same of GSPMD, whose regions are between two custom calls: an array's sharding says its parts


def _tiling(c: Context, i: HloInstruction, rank: int) -> tuple[Mesh, Layout, list[int]]:
    """The parts of an array as a mesh of their own, and the devices that have them."""
    layout = sharding(i)
    if layout is not None and layout.kind == "replicated":
        tiles, order = (1,) * rank, list(range(_device_count(c)))
    elif layout is None or len(layout.tiles) != rank + layout.replicated_last:
        raise Refused("unsupported", "the sharding of its array is not that of parts or copies")
    else:
        tiles, order = layout.tiles[:rank], tile_devices(layout)
    if len(order) > MOST:
        raise Refused(
            "unsupported", f"a mesh of {len(order)} devices is not written out, {MOST} at most"
        )
    names = [str(axis) for axis in range(rank)]
    copies = len(order) // math.prod(tiles)
    mesh = Mesh({**dict(zip(names, tiles, strict=True)), "copies": copies})
    return mesh, [[name] for name in names], order


def _device_count(c: Context) -> int:
    """The number of devices, from the shardings of the computation that have parts."""
    layouts = [sharding(i) for i in c.defined.values() if "sharding" in i.attributes]
    counts = {math.prod(layout.tiles) for layout in layouts if layout and layout.tiles}
    if len(counts) != 1:
        raise Refused("missing", "its shardings do not say how many devices there are")
    return counts.pop()


def enter_partitions(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Split an array by the sharding of what computes it, behind which the region begins."""
    (x,) = tensors(args, 1)
    own = sharding(i)
    if own is None or own.kind != "manual":
        raise Refused("unsupported", "shard_map over some of the axes")
    mesh, layout, order = _tiling(c, c.defined[i.operands[0].name], x.rank)
    parts = {d: _part(c, x, mesh, layout, place) for place, d in enumerate(order)}
    c.shards[i.name] = [parts[device] for device in range(len(order))]
    return parts[0]


def leave_partitions(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Put the parts of all devices together by the sharding of the whole."""
    (x,) = tensors(args, 1)
    mesh, layout, order = _tiling(c, i, x.rank)
    values = c.shards.get(i.operands[0].name, [x] * len(order))
    parts = [leaf for device in order for leaf in leaves(values[device])]
    return _joined(c, mesh, layout, parts, 0, {})


BOUNDARIES: Mapping[str, Callable[[Context, HloInstruction, list[Value]], Value]] = {
    "xla.sdy.GlobalToLocalShape": enter,
    "xla.sdy.LocalToGlobalShape": leave,
    "SPMDFullToShardShape": enter_partitions,
    "SPMDShardToFullShape": leave_partitions,
}
"""Custom calls at the beginning and end of a region that runs on each device, by target."""


# Inside of a region


def on_all_devices(c: Context, i: HloInstruction, args: list[Value]) -> list[Value]:
    """The results of an instruction on each device."""
    count = c.devices or len(next(iter(c.shards.values())))
    rows = [c.shards.get(o.name, [arg] * count) for o, arg in zip(i.operands, args, strict=True)]
    per_device = [[row[d] for row in rows] for d in range(count)]
    if i.opcode in COLLECTIVES:
        return _collective(c, i, per_device)
    if i.opcode == "call":
        computation = c.find(i.attributes.get("to_apply", ""))
        return c.call_on_all(c, computation, per_device, c.body.names.choose(i.name, c.scope))
    if _has_collectives(c, i):
        if i.opcode != "while":
            raise Refused("unsupported", f"a collective inside of {i.opcode}")
        return _loop(c, i, per_device)
    results: dict[tuple[int, ...], Value] = {}
    for row in per_device:  # equal on some devices, as behind an all-reduce
        key = tuple(map(id, row))
        if key not in results:
            results[key] = c.instruction(c, i, row)
    return [results[tuple(map(id, row))] for row in per_device]


def _has_collectives(c: Context, i: HloInstruction) -> bool:
    return any(
        inner.opcode in COLLECTIVES or _has_collectives(c, inner)
        for _, name in called(i)
        for inner in c.find(name).instructions
    )


def _loop(c: Context, i: HloInstruction, per_device: list[list[Value]]) -> list[Value]:
    """A loop of all devices in step: its condition is that of device 0."""
    shapes = results_of(i)
    assert i.shape is not None
    shape = i.shape
    condition, body = (c.find(i.attributes.get(key, "")) for key in ("condition", "body"))
    count, name = len(per_device), c.body.names.choose(i.name, c.scope)
    c.body.start(name, {})
    states = [check_value(row[0], shapes, "its operand") for row in per_device]
    initial = c.body.full(condition_of(c, condition, per_device[0][0], f"{name}/condition"))
    names = [c.body.full(tensor) for state in states for tensor in state]
    inner = c.nested(f"{name}/body")
    inner.devices = count

    def carried(d: int, k: int) -> Tensor:
        kind, dims = shapes[k].type, shapes[k].dimensions
        return Tensor(inner.body.names.choose(f"{name}/in.{d}.{k}", ""), kind, dims, dims)

    inputs = [
        Tensor(inner.body.names.choose(f"{name}/iteration", ""), "s64", (), ()),
        Tensor(inner.body.names.choose(f"{name}/going", ""), "pred", (), ()),
    ]
    state = [[carried(d, k) for k in range(len(shapes))] for d in range(count)]
    before: list[list[Value]] = [[packed(shape, row)] for row in state]
    after = c.call_on_all(inner, body, before, f"{name}/body")
    again = condition_of(inner, condition, after[0], f"{name}/again")
    new = [tensor for value in after for tensor in check_value(value, shapes, f"body {body.name}")]
    inputs += [tensor for row in state for tensor in row]
    nested = Nested(f"{name}/body", inner.body, inputs, finish(inner, [again, *new], inputs))
    results = iter(c.body.op("Loop", ["", initial, *names], outputs=len(names), body=nested))
    return [
        packed(shape, [Tensor(next(results), s.type, s.dimensions, s.dimensions) for s in shapes])
        for _ in range(count)
    ]


def _collective(c: Context, i: HloInstruction, per_device: list[list[Value]]) -> list[Value]:
    count = len(per_device)
    c.body.start(c.body.names.choose(i.name, c.scope), {})
    if i.opcode == "partition-id":
        return [c.number(device, "u32") for device in range(count)]
    if i.opcode == "replica-id":
        return [c.number(0, "u32")] * count
    arrays = [tensors(row, len(row)) for row in per_device]
    if i.opcode == "collective-permute":
        return _permuted(c, i, arrays)
    results: list[Value] = [()] * count
    for group in replica_groups(i, count):
        rows = [arrays[device] for device in group]
        for device, value in zip(group, _GROUPS[i.opcode](c, i, rows), strict=True):
            results[device] = value
    if any(value == () for value in results):
        raise Refused("invalid", "its replica_groups leave out a device")
    return results


def _permuted(c: Context, i: HloInstruction, arrays: list[list[Tensor]]) -> list[Value]:
    """A device that nobody sends to gets zeros."""
    sources = {target: source for source, target in source_target_pairs(i)}
    if not set(sources) | set(sources.values()) <= set(range(len(arrays))):
        raise Refused("invalid", "its source_target_pairs name another device")
    zeros = [c.number(0, x.type, x.dims) for x in arrays[0]]
    rows = [
        arrays[sources[device]] if device in sources else zeros for device in range(len(arrays))
    ]
    return [_value(i, row) for row in rows]


def _value(i: HloInstruction, row: Sequence[Tensor]) -> Value:
    is_tuple = i.shape is not None and i.shape.is_tuple
    return tuple(row) if is_tuple else row[0]


def _reduced(c: Context, i: HloInstruction, rows: list[list[Tensor]]) -> list[Tensor]:
    computation = c.find(i.attributes.get("to_apply", ""))
    total = rows[0]
    for row in rows[1:]:
        total = [
            combine(c, computation, [a], [b], a.dims)[0] for a, b in zip(total, row, strict=True)
        ]
    return total


def _all_reduce(c: Context, i: HloInstruction, rows: list[list[Tensor]]) -> list[Value]:
    return [_value(i, _reduced(c, i, rows))] * len(rows)


def _all_gather(c: Context, i: HloInstruction, rows: list[list[Tensor]]) -> list[Value]:
    axis = dimension(i, rows[0][0].rank)
    columns = zip(*rows, strict=True)
    return [_value(i, [c.concat(list(column), axis) for column in columns])] * len(rows)


def _reduce_scatter(c: Context, i: HloInstruction, rows: list[list[Tensor]]) -> list[Value]:
    total = _reduced(c, i, rows)
    axis = dimension(i, total[0].rank)
    return [
        _value(i, [_block(c, x, axis, place, len(rows)) for x in total])
        for place in range(len(rows))
    ]


def _all_to_all(c: Context, i: HloInstruction, rows: list[list[Tensor]]) -> list[Value]:
    """The k-th operand, or block, of each device goes to the k-th one."""
    count = len(rows)
    if "dimensions" not in i.attributes:
        if any(len(row) != count for row in rows):
            raise Refused("invalid", f"it has {len(rows[0])} operands for {count} devices")
        return [tuple(row[place] for row in rows) for place in range(count)]
    axis = dimension(i, rows[0][0].rank)
    return [
        c.concat([_block(c, row[0], axis, place, count) for row in rows], axis)
        for place in range(count)
    ]


def _block(c: Context, x: Tensor, axis: int, place: int, count: int) -> Tensor:
    size = x.dims[axis] // count
    if size * count != x.dims[axis]:
        raise Refused("invalid", f"{x.dims[axis]} elements are no {count} equal blocks")
    cut = [(0, whole, 1) for whole in x.dims]
    cut[axis] = (place * size, (place + 1) * size, 1)
    return c.slice(x, cut)


def _broadcast(_c: Context, i: HloInstruction, rows: list[list[Tensor]]) -> list[Value]:
    return [_value(i, rows[0])] * len(rows)


_GROUPS: dict[str, Callable[[Context, HloInstruction, list[list[Tensor]]], list[Value]]] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-broadcast": _broadcast,
}
