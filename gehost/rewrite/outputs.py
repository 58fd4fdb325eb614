"""The outcome for each replaced tensor: reused, released or forwarded.

The new node that computes a replaced tensor becomes its producer, and it keeps its name. If the
matched node that produced it must stay, the tensor is released first. If the replacement returns an
input or a constant, users of the replaced tensor read that instead.
"""

from __future__ import annotations

from gehost.ir.graph import Node, Value
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.rewrite.devices import check_not_specified
from gehost.rewrite.lower import Refused


class Outputs:
    """The replaced tensors of one region.

    Attributes:
        retained: matched nodes that stay, as another output of theirs is used outside.
        rewired: whether old nodes read other old tensors than before.
    """

    def __init__(self, model: Model, region: Region) -> None:
        self._model = model
        self._region = region
        self.retained = retained_nodes(region)
        self.rewired = False

    def release(self, value: Value) -> None:
        """Free a replaced tensor for a new producer.

        Retained nodes keep reading the old result.

        Raises:
            Refused: a body of a retained node returns it, or a node has a sharding spec of it.
        """
        if value.producer not in self.retained:
            return
        graph = self._region.graph
        readers = [
            (reader, slot)
            for reader, slot in value.uses
            if graph.reading_node(reader) in self.retained
        ]
        self.rewired = True
        self._check_devices(value)
        spare = graph.release(value)
        for reader, slot in readers:
            if not isinstance(reader, Node):
                raise Refused(f'nested: a body of a matched node that stays returns "{value.name}"')
            graph.set_input(reader, slot, spare)

    def forward(self, value: Value, source: Value) -> bool:
        """Make the users of a replaced tensor read ``source``.

        Returns:
            True for a graph output, which needs an ``Identity`` to keep its name; its users are
            not changed.

        Raises:
            Refused: a body has a tensor named like ``source``, or a node has a sharding spec.
        """
        self.rewired = True
        if value.is_graph_output:
            self.release(value)
            return True
        self._check_devices(value)
        graph = self._region.graph
        for reader, slot in value.uses:
            if isinstance(reader, Node) and graph.level_of(reader) not in self.retained:
                if reader.graph.find(source.name) is not source:
                    raise Refused(
                        f'nested: a body that reads "{value.name}" has its own "{source.name}"'
                    )
                graph.set_input(reader, slot, source)
        return False

    def _check_devices(self, value: Value) -> None:
        """Refuse to change a tensor that has a sharding spec."""
        if self._model.has_device_configurations:
            nodes = [found for found in value.readers if isinstance(found, Node)]
            if value.producer in self.retained:
                nodes.append(value.producer)
            staying = [n for n in nodes if n in self.retained or not self._region.holds(n)]
            check_not_specified(value, staying)


def retained_nodes(region: Region) -> set[Node]:
    """Return the matched nodes that must stay.

    A tensor of theirs is used outside without being an output, or is an input of the region.
    """
    retained: set[Node] = set()
    if region.closed and not _computes_own_input(region):
        return retained
    inside, graph = set(region.nodes), region.graph
    inputs, outputs = set(region.inputs), set(region.outputs)
    for node in reversed(region.nodes):
        for value in node.outputs:
            if value is None:
                continue
            replaced = value in outputs
            if not replaced and value in inputs:
                retained.add(node)
                continue
            for found in value.readers:
                # A body's use counts as one of the node that holds it.
                reader = found if found in inside else graph.reading_node(found)
                if reader in retained or not (replaced or reader in inside):
                    retained.add(node)
                    break
    return retained


def _computes_own_input(region: Region) -> bool:
    """Whether a matched node computes an input.

    Most inputs come before the first matched node.
    """
    first = region.nodes[0].order
    for value in region.inputs:
        if (
            value is not None
            and value.producer is not None
            and value.producer.order >= first
            and region.holds(value.producer)
        ):
            return True
    return False
