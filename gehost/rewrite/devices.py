"""Device configurations of matched nodes: a single new node inherits them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from gehost.ir.graph import Node, Value
from gehost.ir.region import Region
from gehost.refusal import Refused


def inherit_devices(region: Region, removed: Sequence[Node], new_nodes: Sequence[Node]) -> None:
    """Give a new node the devices of the nodes that it replaces.

    It inherits their specs of its inputs and outputs, and their pipeline stage. Specs of tensors
    inside the region are dropped with the tensors.

    Args:
        region: the region to replace.
        removed: its nodes that are removed.
        new_nodes: those that replace them.

    Raises:
        Refused: ``sharding: …``: there are device configurations and not exactly one new node; two
            specs of a tensor or two pipeline stages differ; a spec splits a boundary tensor that
            the new node does not have.
    """
    placed = [node for node in removed if node.proto.device_configurations]
    if not placed:
        return
    if len(new_nodes) != 1:
        raise Refused(
            "sharding",
            f"{placed[0].op} has device configurations, which one new node can take "
            f"over, not {len(new_nodes)}",
        )
    new = new_nodes[0]
    boundary = {value.name for value in (*new.inputs, *new.outputs) if value is not None}
    inside = {
        value.name
        for node in removed
        for value in node.outputs
        if value is not None and value not in region.outputs
    }
    configurations: dict[str, onnx.NodeDeviceConfigurationProto] = {}
    specs: dict[tuple[str, str], onnx.ShardingSpecProto] = {}
    for node in placed:
        for old in node.proto.device_configurations:
            name = old.configuration_id
            configuration = configurations.setdefault(
                name, onnx.NodeDeviceConfigurationProto(configuration_id=name)
            )
            if old.HasField("pipeline_stage"):
                if (
                    configuration.HasField("pipeline_stage")
                    and configuration.pipeline_stage != old.pipeline_stage
                ):
                    stages = f"{configuration.pipeline_stage} and {old.pipeline_stage}"
                    raise Refused("sharding", f"the matched nodes are of pipeline stages {stages}")
                configuration.pipeline_stage = old.pipeline_stage
            for spec in old.sharding_spec:
                tensor = spec.tensor_name
                if tensor in boundary:
                    if specs.setdefault((name, tensor), spec) != spec:
                        raise Refused("sharding", f'the matched nodes split "{tensor}" in two ways')
                elif tensor not in inside and spec.sharded_dim:
                    raise Refused("sharding", f'{new.op} does not have "{tensor}", which is split')
    for (name, _), spec in specs.items():
        configurations[name].sharding_spec.append(spec)
    new.device_configurations = tuple(configurations.values())


def check_not_specified(value: Value, readers: Sequence[Node]) -> None:
    """Check that no node has a spec of this tensor.

    The node would no longer read or produce it.

    Raises:
        Refused: ``sharding: …``: a node has one.
    """
    for node in readers:
        for configuration in node.proto.device_configurations:
            if any(spec.tensor_name == value.name for spec in configuration.sharding_spec):
                raise Refused("sharding", f'{node.op} "{node.label}" has a spec of "{value.name}"')
