"""A matched or chosen part of a graph with ordered boundary."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, TypeVar

from gehost.errors import PassError
from gehost.ir.ge import NodeIo
from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.refusal import Refusal

_Entry = TypeVar("_Entry")

_FEW = 16
"""Largest region whose nodes are searched as a list; larger ones are searched as a set."""


class Region:
    """Nodes of one graph with their boundary.

    The boundary has the outside values that they read (None: absent) and their results.
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
        """Whether inner tensors are known to have no users outside."""

    @classmethod
    def of_nodes(cls, nodes: Iterable[Node]) -> Region | Refusal:
        """Return the region that consists of ``nodes``, or why it is none.

        Inputs are all values from outside, including constants and values captured by nested
        bodies, in the order of their first use. Outputs are all values used by outside nodes or by
        the graph's caller, in the order of their producers.

        Returns:
            A ``Refusal`` if there is no node, one was removed, they belong to several graphs
            (``graphs: …``), no result is used outside (``dead: …``), or a path leaves the nodes and
            comes back (``not convex: through …``).

        Raises:
            PassError: ``nodes`` is no iterable of nodes.
        """
        argument: Any = nodes  # an author may pass anything
        items: list[Any] = list(argument) if isinstance(argument, Iterable) else []  # pyright: ignore[reportUnknownArgumentType]
        if not isinstance(argument, Iterable) or not all(isinstance(node, Node) for node in items):
            raise PassError(f"Region.of_nodes wants a list of nodes, got {argument!r}")
        inside: dict[Node, None] = dict.fromkeys(items)
        if not inside:
            return Refusal("empty", "a region needs a node")
        removed = next((node for node in inside if not node.in_graph), None)
        if removed is not None:
            return Refusal("removed", f"{_named(removed)} is not in the graph any more")
        ordered = list(inside)
        graph = ordered[0].graph
        if any(node.graph is not graph for node in ordered):
            return Refusal("graphs", "the nodes belong to more than one graph")
        ordered.sort(key=by_order)
        inputs = dict.fromkeys(
            value for node in ordered for value in _read_by(node) if value.producer not in inside
        )
        results = [value for node in ordered for value in node.outputs if value is not None]
        outputs = [
            value
            for value in results
            if any(graph.reading_node(reader) not in inside for reader in value.readers)
        ]
        if not outputs:
            return Refusal("dead", "no result of the nodes is used outside")
        between = _way_back(graph, inside, outputs, ordered[-1].order)
        if between is not None:
            return Refusal("not convex", f"through {_named(between)}")
        return cls(graph, list(inputs), outputs, ordered)

    @property
    def results(self) -> list[Value]:
        """The outputs that no node of the region uses."""
        read = {value for node in self.nodes for value in _read_by(node)}
        return [value for value in self.outputs if value not in read]

    def stale(self) -> str:
        """Return why the region can no longer be replaced, or ""."""
        inside, inputs = set(self.nodes), set(self.inputs)
        for node in self.nodes:
            if not node.in_graph:
                return f"{_named(node)} is not in the graph any more"
            for value in _read_by(node):
                if value.producer not in inside and value not in inputs and not value.is_constant:
                    return (
                        f'{_named(node)} reads "{value.name}", which is not an input of the region'
                    )
        for value in self.outputs:
            if value.producer not in inside:
                return f'no node of the region produces "{value.name}" any more'
        return ""

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

    def readers_before(self, order: int) -> list[Node]:
        """Return the outside nodes before ``order`` that depend on an output, topologically.

        If such a node feeds the region, the region's nodes that it feeds are included.
        """
        before: dict[Node, None] = {}
        readers = [
            self.graph.reading_node(reader) for value in self.outputs for reader in value.readers
        ]
        stack = [reader for reader in readers if reader is not None and not self.holds(reader)]
        while stack:
            node = stack.pop()
            if node in before or node.order >= order:
                continue
            before[node] = None
            for value in node.outputs:
                if value is not None:
                    readers = [self.graph.reading_node(reader) for reader in value.readers]
                    stack.extend(reader for reader in readers if reader is not None)
        return sorted(before, key=by_order)

    @property
    def anchor(self) -> Node:
        """The insertion point: all inputs are computed by the end of this node.

        It is ``last``, or the producer of an input: those of a region that a pass delimits itself
        may come later than its nodes.
        """
        anchor = self.last
        for value in self.inputs:
            producer = None if value is None else value.producer
            if (
                producer is not None
                and producer.order > anchor.order
                and producer.graph is self.graph
            ):
                anchor = producer
        return anchor

    def closes_cycle(self) -> bool:
        """Whether an output feeds an input, directly or through outside nodes.

        Fused into one node, the region would then be part of a cycle.
        """
        return bool(self.cycle())

    def cycle(self) -> str:
        """Return how an output feeds an input (``through …``), or ""."""
        both = next((value for value in self.inputs if value in self.outputs), None)
        if both is not None:
            return f'through tensor "{both.name}", which is both read and given'
        behind = self.readers_before(self.anchor.order + 1)
        if not behind:
            return ""
        feeding = {value.producer for value in self.inputs if value is not None}
        for node in behind:
            if node in feeding and not self.holds(node):
                return f"through {_named(node)}"
        inside = next(filter(self.holds, behind), None)
        return "" if inside is None else f"into {_named(inside)}"


def _named(node: Node) -> str:
    return f'{node.op} "{node.label}"'


def _read_by(node: Node) -> Iterator[Value]:
    """Yield the values that a node reads, then those its bodies capture."""
    for value in node.inputs:
        if value is not None:
            yield value
    for body in node.bodies:
        for _, _, value in body.captured():
            yield value


def _way_back(
    graph: Graph, inside: Collection[Node], outputs: Sequence[Value], last: int
) -> Node | None:
    """Return an outside node on a path from an output back inside.

    The node is at or before ``last``.
    """
    visited: set[Node] = set()
    values = list(outputs)
    while values:
        value = values.pop()
        for next_reader in value.readers:
            reader = graph.reading_node(next_reader)
            if reader is None:
                continue
            if reader in inside:
                if value.producer not in inside:
                    return value.producer
            elif reader not in visited and reader.order < last:
                visited.add(reader)
                values.extend([result for result in reader.outputs if result is not None])
    return None


class SubgraphInput:
    """The inside users, each a ``NodeIo(node, slot)``, of an entering tensor."""

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
    """Ordered inputs and outputs that enclose a part of a graph."""

    def __init__(self) -> None:
        self._inputs: dict[int, SubgraphInput] = {}
        self._outputs: dict[int, SubgraphOutput] = {}

    def AddInput(self, index: SupportsIndex, subgraph_input: SubgraphInput) -> SubgraphBoundary:
        """Add an input; raises ``PassError`` if ``index`` was added already."""
        place = operator.index(index)
        if place in self._inputs:
            raise PassError(f"input {index} was added already", subject="SubgraphBoundary")
        self._inputs[place] = subgraph_input
        return self

    def AddOutput(self, index: SupportsIndex, subgraph_output: SubgraphOutput) -> SubgraphBoundary:
        """Add an output; raises ``PassError`` if ``index`` was added already."""
        place = operator.index(index)
        if place in self._outputs:
            raise PassError(f"output {index} was added already", subject="SubgraphBoundary")
        self._outputs[place] = subgraph_output
        return self

    def GetInput(self, index: SupportsIndex) -> SubgraphInput:
        return self._inputs[operator.index(index)]

    def GetOutput(self, index: SupportsIndex) -> SubgraphOutput:
        return self._outputs[operator.index(index)]

    @classmethod
    def of_region(cls, region: Region) -> SubgraphBoundary:
        """Return the boundary of a region."""
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
        """Return the part between the inputs and the outputs.

        Raises:
            PassError: indices with gaps, a removed node, users of one input that read different
                tensors, outputs of two graphs, an input of a body, an inner tensor with outside
                users, or a tensor that enters without being an input (constants may).
        """
        inputs, outputs = _in_order(self._inputs, "input"), _in_order(self._outputs, "output")
        if not outputs:
            raise PassError("it has no output", subject="SubgraphBoundary")
        values: list[Value] = []
        entries: set[tuple[Node, int]] = set()
        for index, entry in enumerate(inputs):
            readers = [(_present(io), io.index) for io in entry.GetAllInputs()]
            read = {_input_at(node, slot) for node, slot in readers}
            if len(read) != 1:
                raise PassError(
                    f"the readers of input {index} read {len(read)} tensors; wanted one",
                    subject="SubgraphBoundary",
                )
            values.append(read.pop())
            entries.update(readers)
        results = [_output_at(output.GetOutput()) for output in outputs]
        graph = results[0].graph
        if any(value.graph is not graph for value in results):
            raise PassError("its outputs are of more than one graph", subject="SubgraphBoundary")
        for value in values:
            if graph.find(value.name) is not value:
                raise PassError(
                    f'input "{value.name}" is of a body, which graph "{graph.name}" cannot read',
                    subject="SubgraphBoundary",
                )
        region = Region(graph, values, results, _nodes_between(graph, values, entries, results))
        _check_closed(region)
        return region


def _in_order(entries: dict[int, _Entry], what: str) -> list[_Entry]:
    if sorted(entries) != list(range(len(entries))):
        raise PassError(
            f"{what}s {sorted(entries)} leave a gap",
            subject="SubgraphBoundary",
            hint="number them from 0",
        )
    return [entries[index] for index in range(len(entries))]


def _present(io: NodeIo) -> Node:
    node: Node | None = io.node
    if node is None or not node.in_graph:
        raise PassError(f"{node!r} is not in the graph (any more)", subject="SubgraphBoundary")
    return node


def _input_at(node: Node, slot: int) -> Value:
    value = node.input(slot)
    if value is None:
        raise PassError(f"input {slot} of {node!r} is absent", subject="SubgraphBoundary")
    return value


def _output_at(io: NodeIo) -> Value:
    node = _present(io)
    value = node.outputs[io.index] if 0 <= io.index < len(node.outputs) else None
    if value is None:
        raise PassError(f"output {io.index} of {node!r} is absent", subject="SubgraphBoundary")
    return value


def _nodes_between(
    graph: Graph, inputs: list[Value], entries: set[tuple[Node, int]], outputs: list[Value]
) -> list[Node]:
    between: dict[Node, None] = {}
    entering = set(inputs)
    stack = [value.producer for value in outputs]
    while stack:
        node = stack.pop()
        if node is None or node in between:
            continue
        between[node] = None
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
                    f'tensor "{value.name}" enters at {node!r} but is no input',
                    subject="SubgraphBoundary",
                )
            stack.append(value.producer)
    return sorted(between, key=by_order)


def _check_closed(region: Region) -> None:
    """Check that inner tensors have no outside users.

    Inner tensors here are those that have inner users and are not outputs.
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
                    f'inner tensor "{value.name}" is also used outside',
                    subject="SubgraphBoundary",
                    hint="make it an output",
                )
