"""ONNX multi-device annotations: an assignment written into a model, and specs read from it.

Device numbers are positions in ``configuration.device``. The name of a configuration is the mesh
(``data=2,model=4``) if this module wrote it; else the mesh is derived from the specs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import onnx

from gehost import ModelError, UsageError
from gehost_sharding.assignment import Assignment
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import Operator
from gehost_sharding.sharding import REPLICATED, Sharding, axes_of

LEAST_IR_VERSION = 11
MOST_DEVICES = 65_536
_LISTED = 8
"""Devices that a finding lists."""


def annotate(assignment: Assignment) -> onnx.ModelProto:
    """Return a copy of the model with a configuration and specs for every operand and result.

    The IR version is raised to 11. Initializers of a model below IR version 4 leave the input
    list, as they can be overridden in no later version otherwise.
    """
    model = onnx.ModelProto()
    model.CopyFrom(assignment.graph.proto)
    if model.ir_version < 4:
        names = {entry.name for entry in model.graph.initializer}
        own_inputs = [entry for entry in model.graph.input if entry.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(own_inputs)
    model.ir_version = max(model.ir_version, LEAST_IR_VERSION)
    del model.configuration[:]
    model.configuration.append(configuration_of(assignment.mesh))
    for node in model.graph.node:
        del node.device_configurations[:]
    for position, entries in node_entries(assignment).items():
        model.graph.node[position].device_configurations.extend(entries)
    return model


def configuration_of(mesh: Mesh) -> onnx.DeviceConfigurationProto:
    """Return the configuration that stands for a mesh, and is named after it."""
    configuration = onnx.DeviceConfigurationProto(name=str(mesh), num_devices=mesh.devices)
    configuration.device.extend(_device_name(mesh, device) for device in range(mesh.devices))
    return configuration


def node_entries(
    assignment: Assignment,
) -> dict[int, tuple[onnx.NodeDeviceConfigurationProto, ...]]:
    """Return the device configurations of nodes, by their position in the model."""
    specs = _SpecWriter(assignment.mesh)
    entries: dict[int, tuple[onnx.NodeDeviceConfigurationProto, ...]] = {}
    for operator in assignment.graph.operators:
        entry = onnx.NodeDeviceConfigurationProto(configuration_id=str(assignment.mesh))
        _write_specs(entry, assignment, operator, specs)
        entries[operator.position] = (entry,)
    return entries


def _device_name(mesh: Mesh, device: int) -> str:
    position = zip(mesh.axes, mesh.coordinates(device), strict=True)
    return ",".join(f"{axis}={coordinate}" for axis, coordinate in position)


def _write_specs(
    entry: onnx.NodeDeviceConfigurationProto,
    assignment: Assignment,
    operator: Operator,
    specs: _SpecWriter,
) -> None:
    strategy = assignment.strategy(operator.index)
    specs_written: dict[str, Sharding] = {}
    for slot, name in enumerate(operator.node.input):
        sharding = strategy.operands[slot] if name else None
        if sharding is not None and name not in specs_written:
            specs_written[name] = sharding
            entry.sharding_spec.append(specs.spec(name, sharding))
    for name in operator.node.output:
        if name:
            entry.sharding_spec.append(specs.spec(name, assignment.specs[name]))


class _SpecWriter:
    """Writes specs; all of one sharding are copies of one message."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._cache: dict[Sharding, onnx.ShardingSpecProto] = {}

    def spec(self, tensor: str, sharding: Sharding) -> onnx.ShardingSpecProto:
        if sharding not in self._cache:
            self._cache[sharding] = self._write(sharding)
        spec = self._cache[sharding]
        spec.tensor_name = tensor
        return spec

    def _write(self, sharding: Sharding) -> onnx.ShardingSpecProto:
        mesh = self.mesh
        spec = onnx.ShardingSpecProto()
        order: list[int] = []
        for dim in sorted({dim for dim in sharding if dim >= 0}):
            sharded = spec.sharded_dim.add(axis=dim)
            for axis in axes_of(sharding, dim):
                sharded.simple_sharding.add(num_shards=mesh.sizes[axis])
                order.append(axis)
        groups: dict[tuple[int, ...], list[int]] = {}
        for device in range(mesh.devices):
            position = mesh.coordinates(device)
            groups.setdefault(tuple(position[axis] for axis in order), []).append(device)
        for number, key in enumerate(sorted(groups), start=1):
            devices = groups[key]
            if len(devices) == 1:
                spec.device.append(devices[0])
                continue
            spec.device.append(-number)
            group = spec.index_to_device_group_map.add(key=-number)
            group.value.extend(devices)
        return spec


# -- reading ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """One spec as written, decoded: how many pieces along which dimension, held by whom."""

    tensor: str
    dims: tuple[tuple[int, tuple[int, ...]], ...]
    """(dimension, shard counts major first), in the order of ``sharded_dim``."""
    holders: tuple[tuple[int, ...], ...]
    """Devices that hold each shard; shards are numbered row-major."""


class SpecError(ModelError):
    """A spec that contradicts itself; holds every finding."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("; ".join(findings))
        self.findings = findings


def decode_spec(spec: onnx.ShardingSpecProto, shape: Sequence[int] | None, devices: int) -> Spec:
    """Decode one spec.

    Args:
        spec: the message.
        shape: sizes of the tensor, if they are known.
        devices: number of devices of the configuration.

    Raises:
        SpecError: the spec contradicts itself; lists every finding.
    """
    findings: list[str] = []
    groups = _device_groups(spec, findings)
    dims: list[tuple[int, tuple[int, ...]]] = []
    rank = None if shape is None else len(shape)
    devices_read: set[int] = set()
    for entry in spec.sharded_dim:
        axis = entry.axis
        if rank is not None:
            if not -rank <= axis < rank:
                findings.append(f"axis {axis}, but the tensor has {rank} dimensions")
                continue
            axis %= rank
        if axis in devices_read:
            findings.append(f"axis {axis} is listed twice")
            continue
        devices_read.add(axis)
        counts: list[int] = []
        for simple in entry.simple_sharding:
            if simple.num_shards < 1:
                findings.append(f"axis {axis} is split into {simple.num_shards} shards")
            else:
                counts.append(simple.num_shards)
        problem = "" if shape is None else _size_problem(entry, shape[axis])
        if problem:
            findings.append(f"axis {axis} {problem}")
        dims.append((axis, tuple(counts)))
    holders: list[tuple[int, ...]] = []
    for number in spec.device:
        if number >= 0:
            holders.append((number,))
        elif number in groups:
            holders.append(groups[number])
        else:
            findings.append(f"device entry {number} names no group of replicas")
    shards = math.prod(count for _, counts in dims for count in counts)
    if len(spec.device) != shards:
        findings.append(f"{len(spec.device)} device entries for {shards} shards")
    _check_devices(holders, devices, findings)
    if findings:
        raise SpecError(findings)
    return Spec(spec.tensor_name, tuple(dims), tuple(holders))


def _size_problem(entry: onnx.ShardedDimProto, size: int) -> str:
    """Describe a written size that the tensor's axis does not have; several are factors of it."""
    sizes = [simple.dim_value for simple in entry.simple_sharding if simple.HasField("dim_value")]
    if not sizes or math.prod(sizes) == size:
        return ""
    if len(sizes) < len(entry.simple_sharding) and all(
        part > 0 and size % part == 0 for part in sizes
    ):
        return ""  # the other factors are not written
    return f"has size {' × '.join(map(str, sizes))} here, the tensor has {size}"


def _device_groups(spec: onnx.ShardingSpecProto, findings: list[str]) -> dict[int, tuple[int, ...]]:
    groups: dict[int, tuple[int, ...]] = {}
    for entry in spec.index_to_device_group_map:
        if entry.key >= 0:
            findings.append(f"group {entry.key} of replicas: its key must be negative")
        if entry.key in groups:
            findings.append(f"group {entry.key} of replicas is defined twice")
        groups[entry.key] = tuple(entry.value)
        if not entry.value:
            findings.append(f"group {entry.key} of replicas is empty")
    return groups


def _check_devices(holders: list[tuple[int, ...]], devices: int, findings: list[str]) -> None:
    count = [0] * devices
    for holder in holders:
        for device in holder:
            if 0 <= device < devices:
                count[device] += 1
            else:
                findings.append(f"device {device}, but the configuration has {devices}")
    twice = [device for device, times in enumerate(count) if times > 1]
    never = [device for device, times in enumerate(count) if not times]
    if twice:
        findings.append(f"devices {_listed(twice)} hold more than one shard")
    if never:
        findings.append(f"devices {_listed(never)} hold no shard")


def _listed(devices: list[int]) -> str:
    more = f", … ({len(devices)} in all)" if len(devices) > _LISTED else ""
    return f"[{', '.join(map(str, devices[:_LISTED]))}{more}]"


def configuration_mesh(model: onnx.ModelProto, specs: Iterable[Spec]) -> Mesh:
    """Return the mesh of an annotated model: its configuration's name, else derived.

    Raises:
        ModelError: no configuration, several, or no row-major mesh fits the specs.
    """
    if not model.configuration:
        raise ModelError("the model has no configuration; gehost shard plan writes one")
    if len(model.configuration) > 1:
        names = ", ".join(entry.name for entry in model.configuration)
        raise ModelError(f"the model has {len(model.configuration)} configurations: {names}")
    configuration = model.configuration[0]
    problem = device_problem(configuration)
    if problem:
        raise ModelError(problem)
    specs = list(specs)
    named = named_mesh(configuration)
    if named is not None and all(sharding_of(named, spec) is not None for spec in specs):
        return named
    return derive_mesh(configuration.num_devices, specs)


def named_mesh(configuration: onnx.DeviceConfigurationProto) -> Mesh | None:
    """Return the mesh that a configuration's name describes; None if it describes none."""
    try:
        named = Mesh.parse(configuration.name)
    except UsageError:
        return None
    return named if named.devices == configuration.num_devices else None


def mesh_to_check(
    configuration: onnx.DeviceConfigurationProto, specs: Iterable[Spec]
) -> Mesh | None:
    """Return the mesh that a configuration names, else one for the specs that fit a mesh."""
    named = named_mesh(configuration)
    if named is not None:
        return named
    row_major: list[Spec] = []
    for spec in specs:
        with suppress(ModelError):
            _strides(spec, configuration.num_devices)
            row_major.append(spec)
    with suppress(ModelError):
        return derive_mesh(configuration.num_devices, row_major)
    return None


def device_problem(configuration: onnx.DeviceConfigurationProto) -> str:
    """Return why a configuration's number of devices is refused; "" if it is not."""
    count = configuration.num_devices
    if 1 <= count <= MOST_DEVICES:
        return ""
    return f'configuration "{configuration.name}" has {count} devices; wanted 1 to {MOST_DEVICES}'


def derive_mesh(devices: int, specs: Iterable[Spec]) -> Mesh:
    """Find the coarsest row-major mesh in which every spec splits dimensions along mesh axes.

    Raises:
        ModelError: a spec places its shards in no row-major way.
    """
    cuts = {1, devices}
    for spec in specs:
        for size, stride in _strides(spec, devices):
            cuts |= {stride, stride * size}
    ordered = sorted(cuts)
    sizes: list[int] = []
    for low, high in itertools.pairwise(ordered):
        if high % low:
            raise ModelError(
                f"no row-major mesh of {devices} devices fits the specs: strides {ordered}"
            )
        sizes.append(high // low)
    sizes = sizes[::-1] or [1]
    return Mesh(tuple(f"axis{number}" for number in range(len(sizes))), tuple(sizes))


def _strides(spec: Spec, devices: int) -> list[tuple[int, int]]:
    """For each shard count of a spec the distance of devices with neighbouring shards.

    Raises:
        ModelError: the devices of the shards are not laid out at a distance.
    """
    counts = [count for _, counts in spec.dims for count in counts]
    runs: list[tuple[int, int]] = []
    period = math.prod(counts)
    for count in counts:
        period //= count
        index = {
            device: shard // period % count
            for shard, holder in enumerate(spec.holders)
            for device in holder
        }
        if count == 1:
            continue
        stride = next((s for s in range(1, devices) if index[s] != index[0]), 0)
        fits = stride and all(
            index[device] == device // stride % count for device in range(devices)
        )
        if not fits:
            raise ModelError(
                f'the spec of "{spec.tensor}" places its shards on devices in no row-major way'
            )
        runs.append((count, stride))
    return runs


def sharding_of(mesh: Mesh, spec: Spec) -> Sharding | None:
    """Return the sharding that a spec means on a mesh; None if it means none."""
    placed = [REPLICATED] * len(mesh.axes)
    try:
        strides = iter(_strides(spec, mesh.devices))
    except ModelError:
        return None
    axis_of: dict[int, int] = {}
    stride = mesh.devices
    for axis, size in enumerate(mesh.sizes):
        stride //= size
        if size > 1:
            axis_of[stride] = axis
    for dim, counts in spec.dims:
        for count in counts:
            if count == 1:
                continue
            _, stride = next(strides)
            while count > 1:  # one count may stand for several axes in a row, minor last
                axis = axis_of.get(stride)
                if axis is None or count % mesh.sizes[axis] or placed[axis] != REPLICATED:
                    return None
                placed[axis] = dim
                count //= mesh.sizes[axis]
                stride *= mesh.sizes[axis]
    sharding = tuple(placed)
    return sharding if _order_fits(mesh, spec, sharding) else None


def _order_fits(mesh: Mesh, spec: Spec, sharding: Sharding) -> bool:
    """Return True if every device holds the shard that the sharding gives it."""
    for shard, holder in enumerate(spec.holders):
        rest, index = shard, dict[int, int]()
        for dim, counts in reversed(spec.dims):
            rest, index[dim] = divmod(rest, math.prod(counts))
        for device in holder:
            position = mesh.coordinates(device)
            for dim, place in index.items():
                own = 0
                for axis in axes_of(sharding, dim):
                    own = own * mesh.sizes[axis] + position[axis]
                if own != place:
                    return False
    return True
