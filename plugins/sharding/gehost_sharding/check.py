"""Reading the annotations of any model, with every finding about them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from gehost import ModelError
from gehost_sharding.annotations import (
    LEAST_IR_VERSION,
    Spec,
    SpecError,
    configuration_mesh,
    decode_spec,
    device_problem,
    mesh_to_check,
    sharding_of,
)
from gehost_sharding.assignment import Assignment, nearest_strategy
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph, Operator
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.redistribution import Redistributions
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import Sharding, is_legal, replicated


@dataclass
class Annotated:
    """The content of a model's annotations, and all their faults."""

    graph: ModelGraph
    mesh: Mesh | None
    findings: list[str]
    assignment: Assignment | None
    """None if there are findings."""


def read_annotations(graph: ModelGraph, table: RuleTable | None = None) -> Annotated:
    """Read the annotations of a model and check them: names, axes, devices, sizes, rules."""
    return _Reader(graph, table or RuleTable.with_plugins()).read()


@dataclass
class Partial:
    """The annotations of a model that has some, and all their faults."""

    mesh: Mesh | None
    """None if the model has no configuration, or one whose mesh no spec shows."""
    findings: list[str]
    specs: dict[int, dict[str, Sharding]]
    """By operator and tensor."""


def read_partial(graph: ModelGraph, mesh: Mesh | None = None) -> Partial:
    """Read the annotations that a model has; nodes and tensors may lack one.

    Args:
        graph: the model.
        mesh: its devices, if they are declared elsewhere; else those of its configuration.
    """
    return _Reader(graph, RuleTable(), is_partial=True).read_partial(mesh)


class _Reader:
    def __init__(self, graph: ModelGraph, table: RuleTable, *, is_partial: bool = False) -> None:
        self.graph = graph
        self.table = table
        self.is_partial = is_partial
        self.findings: list[str] = []

    def read_partial(self, mesh: Mesh | None) -> Partial:
        model = self.graph.proto
        specs = self._specs(self._entries())
        if model.configuration:
            configuration = model.configuration[0]
            if len(model.configuration) > 1:
                self.findings.append(f"{len(model.configuration)} configurations; wanted one")
            elif mesh is not None and mesh.devices != configuration.num_devices:
                self.findings.append(
                    f"mesh {mesh} has {mesh.devices} devices, configuration"
                    f' "{configuration.name}" has {configuration.num_devices}'
                )
            elif mesh is None and not device_problem(configuration):
                flat = [spec for by_name in specs.values() for spec in by_name.values()]
                mesh = mesh_to_check(configuration, flat)
        if mesh is None or self.findings:
            return Partial(mesh, self.findings, {})
        return Partial(mesh, self.findings, self._shardings(mesh, specs))

    def read(self) -> Annotated:
        model = self.graph.proto
        entries = self._entries()
        specs = self._specs(entries)
        mesh: Mesh | None = None
        if model.configuration or not self.findings:
            flat = [spec for by_name in specs.values() for spec in by_name.values()]
            try:
                mesh = configuration_mesh(model, flat)
            except ModelError as error:
                if str(error) not in self.findings:
                    self.findings.append(str(error))
                if len(model.configuration) == 1 and not device_problem(model.configuration[0]):
                    mesh = mesh_to_check(model.configuration[0], flat)
        if mesh is None:
            return Annotated(self.graph, None, self.findings, None)
        shardings = self._shardings(mesh, specs)
        assignment = self._assignment(mesh, shardings)
        if self.findings:
            assignment = None
        return Annotated(self.graph, mesh, self.findings, assignment)

    def _entries(self) -> dict[int, onnx.NodeDeviceConfigurationProto]:
        """The annotation of each operator; checks the configurations first."""
        model = self.graph.proto
        numbers: dict[str, int] = {}
        for entry in model.configuration:
            if entry.name in numbers:
                self.findings.append(f'configuration "{entry.name}" is defined twice')
            numbers[entry.name] = entry.num_devices
            problem = device_problem(entry)
            if problem:
                self.findings.append(problem)
            if entry.device and len(entry.device) != entry.num_devices:
                self.findings.append(
                    f'configuration "{entry.name}" names {len(entry.device)} devices,'
                    f" but has {entry.num_devices}"
                )
        if model.configuration and model.ir_version < LEAST_IR_VERSION:
            self.findings.append(
                f"IR version {model.ir_version}: annotations need {LEAST_IR_VERSION}"
            )
        by_number: dict[int, onnx.NodeDeviceConfigurationProto] = {}
        if any(map(device_problem, model.configuration)):
            return by_number
        operators = self.graph.operators
        if self.is_partial:
            pass
        elif operators and not any(item.node.device_configurations for item in operators):
            self.findings.append("no node has an annotation; gehost shard plan writes them")
            return by_number
        for operator in operators:
            where = _where(operator)
            entries = operator.node.device_configurations
            for entry in entries:
                if entry.configuration_id not in numbers:
                    self.findings.append(f'{where}: no configuration "{entry.configuration_id}"')
                if entry.HasField("pipeline_stage") and entry.pipeline_stage:
                    self.findings.append(
                        f"{where}: pipeline stage {entry.pipeline_stage}; stages are not supported"
                    )
            if len(entries) > 1:
                self.findings.append(f"{where}: {len(entries)} device configurations; wanted one")
            if not entries:
                if not self.is_partial:
                    self.findings.append(f"{where}: no annotation")
            elif entries[0].configuration_id in numbers:
                by_number[operator.index] = entries[0]
        return by_number

    def _specs(
        self, entries: Mapping[int, onnx.NodeDeviceConfigurationProto]
    ) -> dict[int, dict[str, Spec]]:
        configurations = {entry.name: entry for entry in self.graph.proto.configuration}
        by_operator: dict[int, dict[str, Spec]] = {}
        for index, entry in entries.items():
            operator = self.graph.operators[index]
            where = _where(operator)
            own = {*operator.node.input, *operator.node.output} - {""}
            specs = by_operator.setdefault(index, {})
            devices = configurations[entry.configuration_id].num_devices
            for spec in entry.sharding_spec:
                name = spec.tensor_name
                if name not in own:
                    self.findings.append(f'{where}: "{name}" is no operand or result of it')
                    continue
                if name in specs:
                    self.findings.append(f'{where}: two specs of "{name}"')
                    continue
                tensor = self.graph.tensors[name]
                try:
                    specs[name] = decode_spec(spec, tensor.shape, devices)
                except SpecError as error:
                    self.findings.extend(
                        f'{where}, "{name}": {finding}' for finding in error.findings
                    )
            for name in sorted(own - specs.keys()):
                has_spec = any(spec.tensor_name == name for spec in entry.sharding_spec)
                if not has_spec and not self.is_partial:
                    self.findings.append(f'{where}: no spec of "{name}"')
        return by_operator

    def _shardings(
        self, mesh: Mesh, specs: Mapping[int, Mapping[str, Spec]]
    ) -> dict[int, dict[str, Sharding]]:
        shardings: dict[int, dict[str, Sharding]] = {}
        cache: dict[tuple[object, ...], Sharding | None] = {}
        for index, own in specs.items():
            where = _where(self.graph.operators[index])
            for name, spec in own.items():
                shape = self.graph.tensors[name].shape
                uneven = False
                for dim, counts in spec.dims:
                    if shape[dim] % math.prod(counts) or not shape[dim]:
                        uneven = True
                        self.findings.append(
                            f'{where}, "{name}": dimension {dim} of size {shape[dim]} is not'
                            f" divided by {math.prod(counts)} shards"
                        )
                key = (spec.dims, spec.holders)
                if key not in cache:
                    cache[key] = sharding_of(mesh, spec)
                sharding = cache[key]
                if sharding is None:
                    self.findings.append(
                        f'{where}, "{name}": its shards do not lie along the axes of mesh {mesh}'
                    )
                elif not uneven and is_legal(mesh, shape, sharding):
                    shardings.setdefault(index, {})[name] = sharding
        return shardings

    def _assignment(
        self, mesh: Mesh, shardings: Mapping[int, Mapping[str, Sharding]]
    ) -> Assignment:
        strategies = OperatorStrategies(self.graph, mesh, self.table)
        redistributions = Redistributions(mesh)
        chosen: list[int] = []
        specs: dict[str, Sharding] = {}
        for operator in self.graph.operators:
            own = shardings.get(operator.index, {})
            names = {*operator.node.input, *operator.node.output} - {""}
            for name in operator.node.output:
                if name:
                    specs[name] = own.get(name, replicated(mesh))
            number = 0
            if names <= own.keys():  # else a finding is recorded already
                strategy = self._strategy(operator, own, strategies, redistributions)
                number = strategy or 0
                if strategy is None:
                    self.findings.append(self._no_strategy(operator, own, strategies))
            chosen.append(number)
        return Assignment(self.graph, mesh, strategies, chosen, specs)

    def _strategy(
        self,
        operator: Operator,
        own: Mapping[str, Sharding],
        strategies: OperatorStrategies,
        redistributions: Redistributions,
    ) -> int | None:
        """Number of the strategy whose operands are as the specs; the one next to the results."""
        results = [name for name in operator.node.output if name]
        fitting = [
            number
            for number, strategy in enumerate(strategies[operator].choices)
            if all(
                not name or strategy.operands[slot] in {None, own[name]}
                for slot, name in enumerate(operator.node.input)
            )
        ]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        shapes = [self.graph.tensors[name].shape for name in results]
        specs = [own[name] for name in results]
        return nearest_strategy(strategies[operator], fitting, shapes, specs, redistributions)

    def _no_strategy(
        self, operator: Operator, own: Mapping[str, Sharding], strategies: OperatorStrategies
    ) -> str:
        is_known = strategies[operator].rule.is_known
        reason = (
            "its rule allows no such strategy" if is_known else "it has no rule: all replicated"
        )
        operands = ", ".join(f'"{name}" {list(own[name])}' for name in operator.node.input if name)
        return f"{_where(operator)}: operands {operands}: {reason}"


def _where(operator: Operator) -> str:
    return f'{operator.op} "{operator.label}"'
