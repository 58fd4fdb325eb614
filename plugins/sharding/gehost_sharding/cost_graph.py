"""The cost graph: vertices are operators and shared tensors, edges are redistributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gehost_sharding.assignment import nearest_strategy
from gehost_sharding.hardware import Hardware
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph, Operator
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.redistribution import Legality, Redistributions
from gehost_sharding.sharding import (
    Shape,
    Sharding,
    local_elements,
    local_shape,
    replicated,
    shardings_of,
)
from gehost_sharding.strategies import NO_FACTOR, Strategies, Strategy

Array = NDArray[np.float64]

_BARRED = 1e30
"""Cost of a pair that must not be chosen; finite, so that differences stay defined."""

SHARED_WEIGHT = 1 << 16
"""Bytes from which a weight with several readers is a vertex, where weights are priced."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of the states of a vertex, or of the pairs of states of an edge."""

    seconds: Array
    weights: Array
    """Bytes of weights per device."""
    memory: Array
    """Bytes of results and weights per device."""
    wire: Array
    """Bytes on the wire per device."""


@dataclass(frozen=True)
class Objective:
    """A linear combination of the costs."""

    seconds: float = 1.0
    weights: float = 0.0
    """Seconds per byte of weights."""
    memory: float = 0.0
    wire: float = 0.0

    def of(self, costs: Costs) -> Array:
        total = self.seconds * costs.seconds
        for factor, table in (
            (self.weights, costs.weights),
            (self.memory, costs.memory),
            (self.wire, costs.wire),
        ):
            if factor:
                total = total + factor * table
        return total


@dataclass(frozen=True)
class Vertex:
    """An operator, a tensor with several readers or that is an output, or a shared weight."""

    number: int
    operator: int | None
    """Index of the operator; None for a tensor."""
    tensor: str | None
    costs: Costs
    shardings: tuple[Sharding, ...] = ()
    """Of a tensor: the sharding that each state is."""

    @property
    def states(self) -> int:
        return len(self.costs.seconds)


@dataclass(frozen=True)
class Edge:
    """A redistribution from a state of ``source`` to a state of ``target``."""

    source: int
    target: int
    tensor: str
    costs: Costs


@dataclass
class CostGraph:
    """Costs of all strategies of a model on one mesh and hardware."""

    graph: ModelGraph
    mesh: Mesh
    hardware: Hardware
    strategies: OperatorStrategies
    redistributions: Redistributions
    prices_weights: bool = False
    """True makes large weights with several readers vertices, so that they count once."""
    pinned: frozenset[str] = frozenset()
    """Tensors that are vertices because the user pinned them."""
    vertices: list[Vertex] = field(default_factory=list[Vertex])
    edges: list[Edge] = field(default_factory=list[Edge])
    vertex_of: dict[int | str, int] = field(default_factory=dict[int | str, int])
    """Vertex by operator index or tensor name."""

    def __post_init__(self) -> None:
        self._operator_costs: dict[int, dict[tuple[bool, ...], Costs]] = {}
        self._edge_costs: dict[tuple[int, int], Costs] = {}
        self._unit_costs: dict[tuple[Legality, int, int], tuple[Array, Array, Array]] = {}
        self._rows: dict[tuple[Legality, Sharding], Array] = {}
        self._columns: dict[Legality, dict[Sharding, int]] = {}
        self._tensor_states: dict[Shape, tuple[Sharding, ...]] = {}
        self._outputs = frozenset(self.graph.outputs)
        self._zeros: dict[int, Array] = {}
        self._shared_weights = self._find_shared_weights()
        for name in self._shared_weights:
            self._add_weight(name)
        for operator in self.graph.operators:
            self._add_operator(operator)
        for operator in self.graph.operators:
            self._connect(operator)

    def _find_shared_weights(self) -> list[str]:
        if not self.prices_weights:
            return []
        return [
            name
            for name, readers in self.graph.readers.items()
            if self.graph.is_constant(name)
            and len(readers) > 1
            and self.graph.tensors[name].bytes >= SHARED_WEIGHT
        ]

    # -- vertices -----------------------------------------------------------------------------

    def _add(
        self, key: int | str, operator: int | None, costs: Costs, shardings: tuple[Sharding, ...]
    ) -> None:
        number = len(self.vertices)
        tensor = key if isinstance(key, str) else None
        self.vertices.append(Vertex(number, operator, tensor, costs, shardings))
        self.vertex_of[key] = number

    def _add_weight(self, name: str) -> None:
        tensor = self.graph.tensors[name]
        states = self.states_of(tensor.shape)
        sizes = np.array([self._bytes(name, sharding) for sharding in states])
        zero = self._zero(len(states))
        self._add(name, None, Costs(zero, sizes, sizes, zero), states)

    def _add_operator(self, operator: Operator) -> None:
        strategies = self.strategies[operator]
        inputs = operator.node.input
        weights = tuple(
            self.graph.is_constant(name) and name not in self._shared_weights for name in inputs
        )
        cache = self._operator_costs.setdefault(id(strategies), {})
        if weights not in cache:
            cache[weights] = self._costs(operator, strategies, weights)
        self._add(operator.index, operator.index, cache[weights], ())
        for name in operator.node.output:
            if name and self.is_shared(name):
                states = self.states_of(self.graph.tensors[name].shape)
                zero = self._zero(len(states))
                self._add(name, None, Costs(zero, zero, zero, zero), states)

    def is_shared(self, name: str) -> bool:
        """Return True for a result that is a vertex: several readers, an output, or pinned."""
        if name in self._outputs or name in self.pinned:
            return True
        return len(self.graph.readers.get(name, ())) > 1

    def states_of(self, shape: Shape) -> tuple[Sharding, ...]:
        if shape not in self._tensor_states:
            self._tensor_states[shape] = shardings_of(self.mesh, shape)
        return self._tensor_states[shape]

    def _costs(
        self, operator: Operator, strategies: Strategies, weights: tuple[bool, ...]
    ) -> Costs:
        seconds: list[float] = []
        stored: list[float] = []
        memory: list[float] = []
        wire: list[float] = []
        results = [name for name in operator.node.output if name]
        for strategy in strategies.choices:
            used = [axis for axis, factor in enumerate(strategy.factors) if factor != NO_FACTOR]
            flops = strategies.rule.flops / self.mesh.extent(used)
            moved = weight = 0
            for slot, name in enumerate(operator.node.input):
                sharding = strategy.operands[slot] if name else None
                if sharding is not None:
                    size = self._bytes(name, sharding)
                    moved += size
                    weight += size if weights[slot] else 0
            written_bytes = sum(
                self._bytes(name, sharding)
                for name, sharding in zip(results, strategy.results, strict=True)
            )
            exchange = self._exchange(operator, strategy)
            compute = self.hardware.compute_seconds(flops, moved + written_bytes)
            if operator.op == "Identity":
                compute = 0.0  # a name for the same bytes
            seconds.append(compute + exchange[0])
            wire.append(exchange[1])
            stored.append(weight)
            memory.append(weight + written_bytes)
        return Costs(np.array(seconds), np.array(stored), np.array(memory), np.array(wire))

    def _exchange(self, operator: Operator, strategy: Strategy) -> tuple[float, float]:
        """Seconds and bytes on the wire of the halo that a strategy needs."""
        exchange, sharding = strategy.exchange, strategy.operands[0] if strategy.operands else None
        if exchange is None or sharding is None:
            return 0.0, 0.0
        tensor = self.graph.tensors[operator.node.input[0]]
        local = local_shape(self.mesh, tensor.shape, sharding)
        wire = exchange.wire_bytes(local, tensor.dtype.itemsize)
        return self.hardware.exchange_seconds(self.mesh.axes[exchange.axis], wire), wire

    def _bytes(self, name: str, sharding: Sharding) -> int:
        tensor = self.graph.tensors[name]
        return local_elements(self.mesh, tensor.shape, sharding) * tensor.dtype.itemsize

    def _zero(self, count: int) -> Array:
        return self._zeros.setdefault(count, np.zeros(count))

    # -- edges --------------------------------------------------------------------------------

    def _connect(self, operator: Operator) -> None:
        strategies = self.strategies[operator]
        for slot, name in enumerate(operator.node.input):
            targets = strategies.operands[slot] if name else None
            if targets is None:
                continue
            source = self.vertex_of.get(name)
            target = self.vertex_of[operator.index]
            if source is not None and self.graph.is_constant(name):
                costs = self._weight_costs(name, self.vertices[source].shardings, targets)
            elif source is not None:
                costs = self._redistribution(name, self.vertices[source].shardings, targets)
            elif name in self.graph.producer:
                producer, index = self.graph.producer[name]
                source = self.vertex_of[producer]
                sources = self.strategies[producer].results[index]
                costs = self._redistribution(name, sources, targets)
            else:
                continue
            self.edges.append(Edge(source, target, name, costs))
        for index, name in enumerate(name for name in operator.node.output if name):
            if name in self.vertex_of:
                target = self.vertex_of[name]
                sources = strategies.results[index]
                costs = self._redistribution(name, sources, self.vertices[target].shardings)
                if len({strategy.operands for strategy in strategies.choices}) < len(strategies):
                    costs = self._as_read_back(name, strategies, target, costs)
                self.edges.append(Edge(self.vertex_of[operator.index], target, name, costs))

    def _redistribution(
        self, name: str, sources: tuple[Sharding, ...], targets: tuple[Sharding, ...]
    ) -> Costs:
        tensor = self.graph.tensors[name]
        legality = self.redistributions.legality(tensor.shape)
        shape_key = (legality, id(sources), id(targets))
        if shape_key not in self._unit_costs:
            self._unit_costs[shape_key] = self._unit_costs_of(legality, sources, targets)
        latency, per_byte, wire = self._unit_costs[shape_key]
        key = (tensor.bytes, id(per_byte))
        if key not in self._edge_costs:
            zero = np.zeros((1, 1))
            seconds = latency + per_byte * tensor.bytes
            self._edge_costs[key] = Costs(seconds, zero, zero, wire * tensor.bytes)
        return self._edge_costs[key]

    def _unit_costs_of(
        self, legality: Legality, sources: tuple[Sharding, ...], targets: tuple[Sharding, ...]
    ) -> tuple[Array, Array, Array]:
        """Latency, seconds per byte of the tensor and bytes on the wire per byte, by state."""
        columns = self._columns.setdefault(legality, {})
        if not columns:
            states = self.redistributions.states_of(legality)
            columns.update({state: column for column, state in enumerate(states)})
        rows = np.stack([self._row(legality, source, columns) for source in sources])
        chosen = rows[:, :, [columns[target] for target in targets]]
        return chosen[:, 0], chosen[:, 1], chosen[:, 2]

    def _row(self, legality: Legality, source: Sharding, columns: Mapping[Sharding, int]) -> Array:
        """Latency, seconds per byte and bytes per byte from one sharding to all: (3, targets)."""
        key = (legality, source)
        if key not in self._rows:
            row = self._rows[key] = np.zeros((3, len(columns)))
            paths = self.redistributions.paths_from(legality, source)
            for target, column in columns.items():
                path = paths[target]
                latency, per_byte = self.hardware.path_seconds(self.mesh, path)
                row[:, column] = latency, per_byte, sum(move.wire for move in path)
        return self._rows[key]

    def _as_read_back(self, name: str, strategies: Strategies, target: int, costs: Costs) -> Costs:
        """Rule out pairs that annotations cannot express: another strategy would be read back."""
        shape = self.graph.tensors[name].shape
        by_operands: dict[tuple[Sharding | None, ...], list[int]] = {}
        for number, strategy in enumerate(strategies.choices):
            by_operands.setdefault(strategy.operands, []).append(number)
        barred = np.zeros(costs.seconds.shape, bool)
        if len(strategies.results) == 1:
            for column, sharding in enumerate(self.vertices[target].shardings):
                for numbers in by_operands.values():
                    read = nearest_strategy(
                        strategies, numbers, [shape], [sharding], self.redistributions
                    )
                    barred[[number for number in numbers if number != read], column] = True
        return Costs(
            np.where(barred, _BARRED, costs.seconds),
            np.where(barred, _BARRED, 0.0),
            np.where(barred, _BARRED, 0.0),
            np.where(barred, _BARRED, costs.wire),
        )

    def _weight_costs(
        self, name: str, stored: tuple[Sharding, ...], targets: tuple[Sharding, ...]
    ) -> Costs:
        """A reader that wants another piece than the one that is held gets a copy of its own."""
        own = np.array([self._bytes(name, target) for target in targets])
        differs = np.array([[source != target for target in targets] for source in stored])
        copies = np.where(differs, own[None, :], 0.0)
        zero = np.zeros((1, 1))
        return Costs(zero, copies, copies, zero)

    @cached_property
    def overcounted_weights(self) -> int:
        """Bytes by which the costs of weights may exceed a device's share.

        A weight counts at each of its readers. One that is a vertex counts once, and at each reader
        of another piece; two such readers may want the same piece.
        """
        total = 0
        for name, readers in self.graph.readers.items():
            if not self.graph.is_constant(name):
                continue
            counted = sum(
                self.strategies[reader].operands[slot] is not None for reader, slot in readers
            )
            exact = 2 if name in self.vertex_of else 1
            total += max(counted - exact, 0) * self.graph.tensors[name].bytes
        return total

    def least_bytes(self, allowed: Mapping[int, NDArray[np.bool_]]) -> int:
        """Bytes of weights and live tensors below which no plan is.

        It counts each weight in its smallest piece, and the largest operator in its
        smallest strategy.

        Args:
            allowed: vertices of which only some states may be chosen.
        """
        pieces: dict[str, int] = {}
        live = 0
        for operator in self.graph.operators:
            inputs, results = operator.node.input, [name for name in operator.node.output if name]
            number = self.vertex_of[operator.index]
            sizes: list[int] = []
            for state, strategy in enumerate(self.strategies[operator].choices):
                if number in allowed and not allowed[number][state]:
                    continue
                stored: dict[str, int] = {}
                for name, sharding in zip(inputs, strategy.operands, strict=False):
                    if not name or sharding is None:
                        continue
                    size = self._bytes(name, sharding)
                    if self.graph.is_constant(name):
                        pieces[name] = min(size, pieces.get(name, size))
                    else:
                        stored[name] = size
                pairs = zip(results, strategy.results, strict=True)
                sizes.append(sum(stored.values()) + sum(self._bytes(*pair) for pair in pairs))
            live = max(live, min(sizes))
        return sum(pieces.values()) + live

    # -- inspection ---------------------------------------------------------------------------

    def label(self, number: int) -> str:
        """Name of a vertex in reports."""
        vertex = self.vertices[number]
        if vertex.operator is None:
            return f"tensor {vertex.tensor}"
        operator = self.graph.operators[vertex.operator]
        return f"{operator.op} {operator.label}"

    def networkx(self) -> nx.MultiDiGraph[Any]:
        """The graph with ``label``, ``states`` on vertices and ``tensor``, ``seconds`` on edges."""
        picture: nx.MultiDiGraph[Any] = nx.MultiDiGraph()
        for vertex in self.vertices:
            picture.add_node(vertex.number, label=self.label(vertex.number), states=vertex.states)
        for edge in self.edges:
            picture.add_edge(
                edge.source, edge.target, tensor=edge.tensor, seconds=edge.costs.seconds
            )
        return picture

    def tables(
        self, objective: Objective, allowed: Mapping[int, NDArray[np.bool_]]
    ) -> tuple[list[Array], list[tuple[int, int, Array]], list[NDArray[np.intp]]]:
        """Tables for the search: costs of vertices, of edges, and the states that are left.

        Args:
            objective: what to add up.
            allowed: vertices of which only some states may be chosen.
        """
        rows = [
            np.flatnonzero(allowed[vertex.number])
            if vertex.number in allowed
            else np.arange(vertex.states)
            for vertex in self.vertices
        ]
        cache: dict[int, Array] = {}

        def of(costs: Costs) -> Array:
            if id(costs) not in cache:
                cache[id(costs)] = objective.of(costs)
            return cache[id(costs)]

        def cut(number: int, axis: int) -> Callable[[Array], Array]:
            if number not in allowed:
                return lambda table: table
            return lambda table: np.take(table, rows[number], axis=axis)

        costs = [cut(vertex.number, 0)(of(vertex.costs)) for vertex in self.vertices]
        edges = [
            (
                edge.source,
                edge.target,
                cut(edge.target, 1)(cut(edge.source, 0)(self._full(edge, of(edge.costs)))),
            )
            for edge in self.edges
        ]
        return costs, edges, rows

    def _full(self, edge: Edge, table: Array) -> Array:
        shape = (self.vertices[edge.source].states, self.vertices[edge.target].states)
        return table if table.shape == shape else np.broadcast_to(table, shape)

    def total(self, states: list[int]) -> dict[str, float]:
        """Sum every kind of cost over given states."""
        totals: dict[str, Any] = {}
        for name in ("seconds", "weights", "memory", "wire"):
            total = sum(
                float(getattr(vertex.costs, name)[states[vertex.number]])
                for vertex in self.vertices
            )
            for edge in self.edges:
                table = self._full(edge, getattr(edge.costs, name))
                total += float(table[states[edge.source], states[edge.target]])
            totals[name] = total
        return totals

    def replicated_states(self) -> dict[int, int]:
        """For each tensor vertex the state in which every device holds all of it."""
        whole = replicated(self.mesh)
        return {
            vertex.number: vertex.shardings.index(whole)
            for vertex in self.vertices
            if vertex.operator is None
        }
