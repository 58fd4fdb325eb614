"""A part of a graph with ordered inputs and outputs: what a match covers, or what a pass marks
out by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gehost.errors import PassError
from gehost.ir.ge import NodeIo
from gehost.ir.graph import Graph, Node, Value, by_order

_Entry = TypeVar("_Entry")

_FEW = 16
"""Nodes of a region that are searched as a list; more are searched as a set."""


class Region:
    """Nodes of one graph, the values that they take from outside (None: an absent one) and those
    that they give.
    """

    __slots__ = ("_inside", "closed", "graph", "inputs", "nodes", "outputs")

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Value | None],
        outputs: list[Value],
        nodes: list[Node],
        closed: bool = False,
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.outputs = outputs
        self.nodes = nodes
        """In topological order."""
        self._inside: frozenset[Node] | None = None
        self.closed = closed
        """Whether it is known that nobody outside reads a tensor that is made here, except for
        the outputs.
        """

    def holds(self, node: Node) -> bool:
        """Whether ``node`` is one of the region's nodes."""
        if len(self.nodes) <= _FEW:
            return node in self.nodes
        if self._inside is None:
            self._inside = frozenset(self.nodes)
        return node in self._inside

    @property
    def last(self) -> Node:
        """The node that runs last."""
        return self.nodes[-1]

    def outside_readers(self, value: Value) -> list[Node]:
        """The nodes of this region's graph, not of the region, that read ``value`` themselves or
        in a body.
        """
        readers = [self.graph.reading_node(reader) for reader in value.readers]
        return [reader for reader in readers if reader is not None and not self.holds(reader)]

    def readers_before(self, order: int) -> list[Node]:
        """The nodes outside that depend on an output and stand before ``order``, in topological
        order.

        Where such a node feeds the region, the region's nodes that it feeds are among them.
        """
        found: dict[Node, None] = {}
        stack = [reader for value in self.outputs for reader in self.outside_readers(value)]
        while stack:
            node = stack.pop()
            if node in found or node.order >= order:
                continue
            found[node] = None
            for value in node.outputs:
                if value is not None:
                    readers = [self.graph.reading_node(reader) for reader in value.readers]
                    stack.extend(reader for reader in readers if reader is not None)
        return sorted(found, key=by_order)

    def closes_cycle(self) -> bool:
        """Whether an output feeds an input, itself or through nodes outside: joined into one
        node it would be a cycle.
        """
        if not set(self.outputs).isdisjoint(self.inputs):
            return True
        return any(self.holds(node) for node in self.readers_before(self.last.order + 1))


class SubgraphInput:
    """The readers, inside a boundary, of one tensor that enters it: ``NodeIo(node, input
    index)`` each.
    """

    def __init__(self, node_inputs: Sequence[NodeIo] = ()) -> None:
        self._inputs = list(node_inputs)

    def AddInput(self, node_input: NodeIo) -> SubgraphInput:
        self._inputs.append(node_input)
        return self

    def GetAllInputs(self) -> list[NodeIo]:
        return list(self._inputs)


class SubgraphOutput:
    """A tensor that leaves a boundary: ``NodeIo(node, output index)``."""

    def __init__(self, node_output: NodeIo | None = None) -> None:
        self._output = node_output

    def SetOutput(self, node_output: NodeIo) -> SubgraphOutput:
        self._output = node_output
        return self

    def GetOutput(self) -> NodeIo:
        if self._output is None:
            raise PassError("SubgraphOutput: no output was set")
        return self._output


class SubgraphBoundary:
    """Ordered inputs and outputs of a part of a graph; what lies between them is the part."""

    def __init__(self) -> None:
        self._inputs: dict[int, SubgraphInput] = {}
        self._outputs: dict[int, SubgraphOutput] = {}

    def AddInput(self, index: int, subgraph_input: SubgraphInput) -> SubgraphBoundary:
        """Raises ``PassError`` when input ``index`` was added already."""
        if index in self._inputs:
            raise PassError(f"SubgraphBoundary: input {index} was added already")
        self._inputs[index] = subgraph_input
        return self

    def AddOutput(self, index: int, subgraph_output: SubgraphOutput) -> SubgraphBoundary:
        """Raises ``PassError`` when output ``index`` was added already."""
        if index in self._outputs:
            raise PassError(f"SubgraphBoundary: output {index} was added already")
        self._outputs[index] = subgraph_output
        return self

    def GetInput(self, index: int) -> SubgraphInput:
        return self._inputs[index]

    def GetOutput(self, index: int) -> SubgraphOutput:
        return self._outputs[index]

    @classmethod
    def of_region(cls, region: Region) -> SubgraphBoundary:
        """The boundary of a region."""
        boundary = cls()
        for index, value in enumerate(region.inputs):
            readers = [
                NodeIo(node, slot)
                for node in region.nodes
                for slot, read in enumerate(node.inputs)
                if read is value
            ]
            boundary.AddInput(index, SubgraphInput(readers))
        for index, value in enumerate(region.outputs):
            boundary.AddOutput(index, SubgraphOutput(NodeIo(value.producer, value.index)))
        return boundary

    def region(self) -> Region:
        """What lies between the inputs and the outputs.

        Raises:
            PassError: indices with gaps, a node that was removed since, readers of one input
                that read different tensors, outputs of two graphs, an inner tensor that is read
                outside, or a tensor that enters without being an input (constants may).
        """
        inputs, outputs = _in_order(self._inputs, "input"), _in_order(self._outputs, "output")
        if not outputs:
            raise PassError("SubgraphBoundary: it has no output")
        values: list[Value] = []
        entries: set[tuple[Node, int]] = set()
        for index, entry in enumerate(inputs):
            readers = [(_present(io), io.index) for io in entry.GetAllInputs()]
            read = {_read(node, slot) for node, slot in readers}
            if len(read) != 1:
                raise PassError(
                    f"SubgraphBoundary: the readers of input {index} read {len(read)} "
                    "tensors; wanted one"
                )
            values.append(read.pop())
            entries.update(readers)
        made = [_made(output.GetOutput()) for output in outputs]
        graph = made[0].graph
        if any(value.graph is not graph for value in made):
            raise PassError("SubgraphBoundary: its outputs are of more than one graph")
        region = Region(graph, values, made, _between(graph, values, entries, made))
        _check_closed(region)
        return region


def _in_order(entries: dict[int, _Entry], what: str) -> list[_Entry]:
    if sorted(entries) != list(range(len(entries))):
        raise PassError(
            f"SubgraphBoundary: {what}s {sorted(entries)} leave a gap; number them from 0"
        )
    return [entries[index] for index in range(len(entries))]


def _present(io: NodeIo) -> Node:
    node: Node | None = io.node
    if node is None or not node.in_graph:
        raise PassError(f"SubgraphBoundary: {node!r} is not in the graph (any more)")
    return node


def _read(node: Node, slot: int) -> Value:
    value = node.input(slot)
    if value is None:
        raise PassError(f"SubgraphBoundary: input {slot} of {node!r} is absent")
    return value


def _made(io: NodeIo) -> Value:
    node = _present(io)
    value = node.outputs[io.index] if 0 <= io.index < len(node.outputs) else None
    if value is None:
        raise PassError(f"SubgraphBoundary: output {io.index} of {node!r} is absent")
    return value


def _between(
    graph: Graph, inputs: list[Value], entries: set[tuple[Node, int]], outputs: list[Value]
) -> list[Node]:
    found: dict[Node, None] = {}
    entering = set(inputs)
    stack = [value.producer for value in outputs]
    while stack:
        node = stack.pop()
        if node is None or node in found:
            continue
        found[node] = None
        read = [
            value
            for slot, value in enumerate(node.inputs)
            if value is not None and (node, slot) not in entries
        ]
        for body in node.bodies:
            read.extend(value for _, _, value in body.captured() if value not in entering)
        for value in read:
            if value.is_constant:
                continue
            if value.producer is None or value.producer.graph is not graph:
                raise PassError(
                    f'SubgraphBoundary: tensor "{value.name}" enters at {node!r} but is no input'
                )
            stack.append(value.producer)
    return sorted(found, key=by_order)


def _check_closed(region: Region) -> None:
    """What is read inside must not be read outside too, unless it is an output; a tensor that
    only others read may.
    """
    outputs = set(region.outputs)
    for node in region.nodes:
        for value in node.outputs:
            if value is None or value in outputs:
                continue
            readers = [region.graph.reading_node(reader) for reader in value.readers]
            inside = [reader is not None and region.holds(reader) for reader in readers]
            if any(inside) and not all(inside):
                raise PassError(
                    f'SubgraphBoundary: inner tensor "{value.name}" is also read outside; '
                    "make it an output"
                )
