"""Propagation: all shardings without communication that follow from pinned ones.

A row is one strategy of one operator; the domain of a tensor is the set of shardings still
possible for it. Arc consistency keeps the rows whose every sharding is in the domains and shrinks
the domains to the rows' shardings; enumeration over the inputs then finds every solution.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from gehost import UsageError
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph, Operator, repeated_operands
from gehost_sharding.rules.rule import NEED
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import REPLICATED, Sharding, shardings_of
from gehost_sharding.strategies import Strategies, Strategy, strategies_of

_PIN = re.compile(r"(?P<tensor>.+)=(?P<dim>-?\d+)(?::(?P<axis>[^:=]+))?")


@dataclass(frozen=True)
class Pin:
    """A tensor's placement on one mesh axis, given by the user."""

    tensor: str
    axis: int
    dim: int
    """A dimension, or ``REPLICATED``."""
    text: str

    @classmethod
    def parse(cls, text: str, graph: ModelGraph, mesh: Mesh) -> Pin:
        """Read ``TENSOR=AXIS:MESHAXIS``; -1 for AXIS pins the tensor as replicated.

        Raises:
            UsageError: not in that form, no such tensor, dimension or mesh axis, or the mesh axis
                does not divide the dimension.
        """
        match = _PIN.fullmatch(text)
        if match is None:
            raise UsageError(
                "wanted TENSOR=AXIS:MESHAXIS, as in input_ids=0:data", subject=f'pin "{text}"'
            )
        tensor, dim, name = graph.tensor(match["tensor"]), int(match["dim"]), match["axis"]
        if name is None and len(mesh.axes) == 1:
            name = mesh.axes[0]
        if name is None:
            raise UsageError(
                f"wanted a mesh axis, as in {text}:{mesh.axes[0]}; the mesh has "
                f"{', '.join(mesh.axes)}, each with a pin of its own",
                subject=f'pin "{text}"',
            )
        if name not in mesh.axes:
            nearest = difflib.get_close_matches(name, mesh.axes, n=1, cutoff=0.0)
            hint = f" (nearest: {nearest[0]})" if nearest else ""
            raise UsageError(
                f'no mesh axis "{name}"; the mesh has {", ".join(mesh.axes)}{hint}',
                subject=f'pin "{text}"',
            )
        rank = len(tensor.shape)
        if not REPLICATED <= dim < rank:
            raise UsageError(
                f"{tensor.name} has {rank} dimensions {list(tensor.shape)}; wanted "
                f"{'-1 (replicated)' if rank == 0 else f'0 to {rank - 1}, or -1'}",
                subject=f'pin "{text}"',
            )
        axis = mesh.axes.index(name)
        if dim != REPLICATED and not mesh.divides([axis], tensor.shape[dim]):
            raise UsageError(
                f"mesh axis {name} of size {mesh.sizes[axis]} does not divide dimension "
                f"{dim} of {tensor.name}, which has size {tensor.shape[dim]}",
                subject=f'pin "{text}"',
            )
        return cls(tensor.name, axis, dim, text)

    def allows(self, sharding: Sharding) -> bool:
        return sharding[self.axis] == self.dim


class OperatorStrategies:
    """Strategies of each operator of a model, computed once per distinct operator."""

    def __init__(self, graph: ModelGraph, mesh: Mesh, table: RuleTable) -> None:
        self.graph = graph
        self.mesh = mesh
        self.unknown: dict[str, int] = {}
        """Operators without a rule, and how many nodes have them."""
        cache: dict[object, Strategies] = {}
        self.by_operator: list[Strategies] = []
        """By operator index."""
        for operator in graph.operators:
            key = graph.signature(operator)
            if key not in cache:
                same = repeated_operands(operator.node)
                cache[key] = strategies_of(table.rule_of(graph, operator), mesh, same)
            strategies = cache[key]
            self.by_operator.append(strategies)
            if not strategies.rule.is_known:
                self.unknown[operator.op] = self.unknown.get(operator.op, 0) + 1

    def __getitem__(self, operator: Operator | int) -> Strategies:
        return self.by_operator[operator if isinstance(operator, int) else operator.index]


@dataclass(frozen=True)
class Solution:
    """One consistent sharding: of the inputs, and one completion over all tensors."""

    inputs: Mapping[str, Sharding]
    tensors: Mapping[str, Sharding]


@dataclass
class Estimate:
    """Size of the search, before and after the first round of arc consistency."""

    tensors: int
    operators: int
    most_strategies: int
    rows_before: int
    rows_after: int
    log10_before: float
    log10_after: float

    def __str__(self) -> str:
        return (
            f"{self.tensors} tensors, {self.operators} operators,"
            f" at most {self.most_strategies} strategies each;"
            f" rows {self.rows_before} -> {self.rows_after} after arc consistency,"
            f" combinations 10^{self.log10_before:.0f} -> 10^{self.log10_after:.0f}"
        )


class ConflictError(UsageError):
    """Pins that no sharding satisfies."""


@dataclass
class _State:
    domains: dict[str, frozenset[Sharding]]
    rows: list[tuple[Strategy, ...]]

    def copy(self) -> _State:
        return _State(dict(self.domains), list(self.rows))


@dataclass(frozen=True)
class _Event:
    """A domain that an operator shrank, and the shrunk domains that made it do so."""

    tensor: str
    operator: int
    causes: tuple[int, ...]
    """Indices of earlier events."""
    pins: tuple[str, ...] = ()


@dataclass
class Propagation:
    """Arc consistency and enumeration over one model and mesh."""

    graph: ModelGraph
    mesh: Mesh
    table: RuleTable
    keep_partial: bool = False
    """Also keep strategies with partial results."""
    searches: int = 0
    """Decisions that the enumeration tried."""
    estimate: Estimate | None = None
    strategies: OperatorStrategies = field(init=False)
    _operands: list[tuple[tuple[str, bool, int], ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.strategies = OperatorStrategies(self.graph, self.mesh, self.table)
        self._operands = [
            (
                *((name, False, slot) for slot, name in enumerate(operator.node.input) if name),
                *(
                    (name, True, index)
                    for index, name in enumerate(n for n in operator.node.output if n)
                ),
            )
            for operator in self.graph.operators
        ]

    def solutions(self, pins: Iterable[Pin] = ()) -> Iterator[Solution]:
        """Yield each consistent sharding of the inputs, with one completion.

        ``estimate`` is set before the first solution.

        Raises:
            ConflictError: the pins contradict each other; names two of them and the chain of
                operators between.
        """
        state = self._start()
        before = self._measure(state)
        self._pin(state, list(pins))
        after = self._measure(state)
        self.estimate = Estimate(
            tensors=len(state.domains),
            operators=len(self.graph.operators),
            most_strategies=max(
                (len(strategies) for strategies in self.strategies.by_operator), default=0
            ),
            rows_before=before[0],
            rows_after=after[0],
            log10_before=before[1],
            log10_after=after[1],
        )
        inputs = [name for name in self.graph.inputs if name in state.domains]
        return self._enumerate(state, inputs)

    def _start(self) -> _State:
        domains: dict[str, frozenset[Sharding]] = {}
        rows: list[tuple[Strategy, ...]] = []
        for operator in self.graph.operators:
            strategies = self.strategies[operator].choices
            rows.append(
                tuple(
                    row
                    for row in strategies
                    if row.exchange is None and (self.keep_partial or not row.is_partial)
                )
            )
        for name, tensor in self.graph.tensors.items():
            if name in self.graph.readers or name in self.graph.producer:
                domains[name] = frozenset(shardings_of(self.mesh, tensor.shape))
        if self.keep_partial:
            for operator, subset in zip(self.graph.operators, rows, strict=True):
                for index, name in enumerate(n for n in operator.node.output if n):
                    domains[name] |= {row.results[index] for row in subset}
        return _State(domains, rows)

    def _measure(self, state: _State) -> tuple[int, float]:
        counts = [len(rows) for rows in state.rows]
        return sum(counts), sum(math.log10(count) for count in counts if count)

    def _pin(self, state: _State, pins: list[Pin]) -> None:
        """Apply arc consistency without pins, then with each pin in turn."""
        events: list[_Event] = []
        latest: dict[str, int] = {}
        self._shrink(state, range(len(state.rows)), events, latest)
        del events[:]
        latest.clear()
        for pin in pins:
            domain = state.domains.get(pin.tensor)
            if domain is None:
                raise UsageError(
                    f"no operator reads or computes {pin.tensor}", subject=f'pin "{pin.text}"'
                )
            allowed_here = frozenset(sharding for sharding in domain if pin.allows(sharding))
            previous = latest.get(pin.tensor)
            events.append(
                _Event(pin.tensor, -1, () if previous is None else (previous,), (pin.text,))
            )
            latest[pin.tensor] = len(events) - 1
            state.domains[pin.tensor] = allowed_here
            conflict = pin.tensor
            if allowed_here:
                touched = self._operators_of(pin.tensor)
                conflict = self._shrink(state, touched, events, latest)
            elif previous is None:  # it cannot hold by itself; the chain shows where it comes first
                state = self._start()
                allowed = [choice for choice in state.domains[pin.tensor] if pin.allows(choice)]
                state.domains[pin.tensor] = frozenset(allowed)
                del events[:-1]
                latest[pin.tensor] = 0
                failure = self._shrink(state, range(len(state.rows)), events, latest)
                conflict = failure or pin.tensor
            if conflict is not None:
                raise ConflictError(self._explain(conflict, events, latest))

    def _operators_of(self, tensor: str) -> Iterator[int]:
        if tensor in self.graph.producer:
            yield self.graph.producer[tensor][0]
        for operator, _slot in self.graph.readers.get(tensor, ()):
            yield operator

    def _shrink(
        self,
        state: _State,
        operators: Iterable[int],
        events: list[_Event] | None = None,
        latest: dict[str, int] | None = None,
    ) -> str | None:
        """Make ``state`` arc-consistent; return a tensor whose domain became empty, if any."""
        queue = deque(operators)
        queued = set(queue)
        while queue:
            operator = queue.popleft()
            queued.discard(operator)
            tensors = self._operands[operator]
            domains = state.domains
            rows = tuple(
                row
                for row in state.rows[operator]
                if all(
                    (row.results[slot] if is_result else row.operands[slot]) in domains[name]
                    for name, is_result, slot in tensors
                )
            )
            state.rows[operator] = rows
            for name, is_result, slot in tensors:
                offered = {row.results[slot] if is_result else row.operands[slot] for row in rows}
                common = domains[name] & offered
                if len(common) == len(domains[name]):
                    continue
                domains[name] = frozenset(common)
                if events is not None and latest is not None:
                    causes = tuple(latest[other] for other, _, _ in tensors if other in latest)
                    events.append(_Event(name, operator, causes))
                    latest[name] = len(events) - 1
                if not common:
                    return name
                for other in self._operators_of(name):
                    if other != operator and other not in queued:
                        queue.append(other)
                        queued.add(other)
                is_read_twice = sum(other == name for other, _, _ in tensors) > 1
                if is_read_twice and operator not in queued:
                    queue.append(operator)
                    queued.add(operator)
        return None

    def _explain(self, tensor: str, events: list[_Event], latest: dict[str, int]) -> str:
        """Chain of operators from the pins to the tensor without a sharding."""
        chains: dict[str, list[str]] = {}
        start = latest[tensor]
        queue: deque[tuple[int, list[str]]] = deque([(start, [])])
        visited = {start}
        while queue:
            index, chain = queue.popleft()
            event = events[index]
            step = chain
            if event.operator >= 0:
                operator = self.graph.operators[event.operator]
                step = [*chain, f'{operator.op} "{operator.label}"']
            for pin in event.pins:
                chains.setdefault(pin, list(reversed(step)))
            for cause in event.causes:
                if cause not in visited:
                    visited.add(cause)
                    queue.append((cause, step))
        named = list(chains.items())[:2]
        parts = [
            f"{pin}{' through ' + ', '.join(_shortened(chain)) if chain else ''}"
            for pin, chain in named
        ]
        problem = "pins contradict each other" if len(parts) > 1 else "the pin cannot hold"
        return (
            f"{self.graph}: {problem}: no sharding without communication is left for tensor"
            f' "{tensor}": {"; ".join(parts)}'
        )

    def _enumerate(self, state: _State, undecided: list[str]) -> Iterator[Solution]:
        open_inputs = [name for name in undecided if len(state.domains[name]) > 1]
        if not open_inputs:
            complete = self._complete(state)
            if complete is not None:
                tensors = {name: next(iter(domain)) for name, domain in complete.domains.items()}
                yield Solution({name: tensors[name] for name in self._inputs(state)}, tensors)
            return
        name = max(
            open_inputs, key=lambda tensor: (len(state.domains[tensor]), self._degree(tensor))
        )
        for sharding in sorted(state.domains[name]):
            trial = state.copy()
            trial.domains[name] = frozenset((sharding,))
            self.searches += 1
            if self._shrink(trial, self._operators_of(name)) is None:
                yield from self._enumerate(trial, open_inputs)

    def _inputs(self, state: _State) -> list[str]:
        return [name for name in self.graph.inputs if name in state.domains]

    def _degree(self, tensor: str) -> int:
        return len(self.graph.readers.get(tensor, ()))

    def _complete(self, state: _State) -> _State | None:
        """Decide the tensors that the inputs leave open; None if that is impossible."""
        name = next((tensor for tensor, domain in state.domains.items() if len(domain) > 1), None)
        if name is None:
            return state
        for sharding in sorted(state.domains[name]):
            trial = state.copy()
            trial.domains[name] = frozenset((sharding,))
            self.searches += 1
            if self._shrink(trial, self._operators_of(name)) is None:
                complete = self._complete(trial)
                if complete is not None:
                    return complete
        return None


def _shortened(chain: list[str]) -> list[str]:
    return chain if len(chain) <= 8 else [*chain[:4], f"… {len(chain) - 8} more …", *chain[-4:]]


def check_mesh(graph: ModelGraph, mesh: Mesh) -> None:
    """Check that each axis of a mesh divides some dimension of some tensor.

    Raises:
        UsageError: an axis divides nothing.
    """
    for axis in mesh.active_axes:
        if not any(
            mesh.divides([axis], size) for tensor in graph.tensors.values() for size in tensor.shape
        ):
            raise UsageError(
                f"axis {mesh.axes[axis]} of size {mesh.sizes[axis]} divides no dimension of "
                f"any tensor of {graph}",
                subject=f"mesh {mesh}",
            )


def strategy_graph(
    graph: ModelGraph, mesh: Mesh, strategies: OperatorStrategies
) -> nx.MultiGraph[Any]:
    """Graph of the depth-first search: nodes (tensor, dimension), edges by strategy.

    A node is a tensor and a dimension, -1 for replicated. Each strategy of an operator joins every
    pair of its nodes. Parallel edges are one edge with a longer list ``strategies`` of (operator,
    strategy), unless that list would hold two strategies of one operator: such an edge could never
    be walked, so the second strategy gets an edge of its own.
    """
    if len(mesh.axes) != 1:
        raise UsageError("the graph of strategies is drawn for one axis", subject=f"mesh {mesh}")
    picture: nx.MultiGraph[Any] = nx.MultiGraph()
    for index, rows in enumerate(strategy_rows(graph, strategies)):
        for number, row in rows.items():
            nodes = list(row.items())
            picture.add_nodes_from(nodes)
            for position, node in enumerate(nodes):
                for other in nodes[position + 1 :]:
                    _add_edge(picture, node, other, (index, number))
    return picture


def strategy_rows(
    graph: ModelGraph, strategies: OperatorStrategies
) -> list[dict[int, dict[str, int]]]:
    """For each operator its strategies without communication: the dimension of each tensor.

    One mesh axis; -1 is replicated. Constants that hold shapes are left out.
    """
    every: list[dict[int, dict[str, int]]] = []
    for operator in graph.operators:
        rows: dict[int, dict[str, int]] = {}
        for number, row in enumerate(strategies[operator].choices):
            if row.is_partial or row.exchange is not None:
                continue
            placed = {
                name: row.operands[slot]
                for slot, name in enumerate(operator.node.input)
                if name and not _is_shape_operand(graph, strategies, operator, slot)
            }
            results = [name for name in operator.node.output if name]
            placed |= dict(zip(results, row.results, strict=True))
            rows[number] = {
                name: (sharding or (REPLICATED,))[0] for name, sharding in placed.items()
            }
        every.append(rows)
    return every


def _is_shape_operand(
    graph: ModelGraph, strategies: OperatorStrategies, operator: Operator, slot: int
) -> bool:
    """Return True for a constant with dimensions that may never be split: shapes, axes, pads."""
    name, rule = operator.node.input[slot], strategies[operator].rule
    layout = rule.operands[slot] or ()
    kinds = {rule.factors[factor].kind for dim in layout for factor in dim}
    return graph.is_constant(name) and kinds == {NEED}


def _add_edge(
    graph: nx.MultiGraph[Any], node: tuple[str, int], other: tuple[str, int], label: tuple[int, int]
) -> None:
    for data in (graph.get_edge_data(node, other) or {}).values():
        if all(operator != label[0] for operator, _ in data["strategies"]):
            data["strategies"].append(label)
            return
    graph.add_edge(node, other, strategies=[label])
