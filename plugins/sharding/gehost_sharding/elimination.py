"""Exact minimum of a sum of tables over discrete variables, by eliminating vertices.

A vertex of least degree is removed: the tables that hold it are added up and minimised over its
states, and the arg-min is recorded. The last graph of each component, one vertex or two with an
edge, is searched directly; recovery undoes the eliminations in reverse. The names of the
eliminations are MindSpore's; all of them are exact here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]

OPERATOR, EDGE, MERGE, CONTRACT, TRIANGLE, STAR = (
    "operator",
    "edge",
    "merge",
    "contract",
    "triangle",
    "star",
)

MOST_CELLS = 30_000_000
"""Cells of the largest table that an elimination may build."""


@dataclass(frozen=True)
class Eliminated:
    """One elimination, as logged."""

    kind: str
    vertex: int
    """The vertex that was removed; for *edge* the tail of the edges that were summed."""
    neighbours: tuple[int, ...]


@dataclass
class Component:
    """One connected component: its eliminations, its last graph, and the choice there."""

    vertices: list[int]
    log: list[Eliminated] = field(default_factory=list[Eliminated])
    last: tuple[int, ...] = ()
    """One vertex, or two with u before v."""
    last_costs: Table = field(default_factory=lambda: np.zeros(0))
    """Cost list of the last graph, by state of u and of v."""
    last_states: list[NDArray[np.intp]] = field(default_factory=list[NDArray[np.intp]])
    """For each vertex of the last graph the states that its axis of ``last_costs`` stands for."""
    chosen: tuple[int, ...] = ()
    width: int = 0
    """Most neighbours of an eliminated vertex."""
    pruned: int = 0
    """States that cannot be in any optimum and were dropped before star eliminations."""
    recovery: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(vertex, state) in the order in which recovery found them."""


@dataclass
class Minimum:
    """A minimum and how it was found."""

    cost: float
    states: list[int]
    components: list[Component]
    is_proven: bool
    """False if vertices were fixed to bound the width."""
    fixed: dict[int, int] = field(default_factory=dict[int, int])
    """Vertices that were fixed in one state, to bound the width."""

    @property
    def width(self) -> int:
        return max((component.width for component in self.components), default=0)


class TooWideError(Exception):
    """An elimination would build a table of more than the allowed number of cells."""

    def __init__(self, vertex: int, neighbours: tuple[int, ...], cells: int) -> None:
        super().__init__(f"{cells} cells at vertex {vertex} with {len(neighbours)} neighbours")
        self.vertex = vertex
        self.neighbours = neighbours
        self.cells = cells


@dataclass
class _Factor:
    scope: tuple[int, ...]
    """Vertices, ascending."""
    table: Table


@dataclass
class _Record:
    """The arg-min of one elimination."""

    vertex: int
    neighbours: tuple[int, ...]
    chosen: NDArray[np.intp]
    """Position of the best state of the vertex, by positions of the neighbours' states."""
    states: dict[int, NDArray[np.intp]]
    """States by position at the time of the elimination; later ones may have been dropped."""

    def recover(self, states: Mapping[int, int]) -> int:
        """Return the best state of the vertex, given those of its neighbours."""
        position = tuple(
            int(np.searchsorted(self.states[other], states[other])) for other in self.neighbours
        )
        return int(self.states[self.vertex][self.chosen[position]])


class _Search:
    """Eliminates one component."""

    def __init__(self, costs: Sequence[Table], factors: Iterable[_Factor], most: int) -> None:
        self.unary: dict[int, Table] = {}
        self.states: dict[int, NDArray[np.intp]] = {}
        """For each vertex the original numbers of its remaining states."""
        self.factors: dict[int, dict[tuple[int, ...], _Factor]] = {}
        self.costs = costs
        self.most = most
        self.component = Component([])
        self.records: list[_Record] = []
        self.all = list(factors)
        self.queue: list[tuple[int, int, int]] = []
        """(degree, cells, vertex), least first; entries of another degree are out of date."""
        self.neighbours: dict[int, set[int]] = {}

    def run(self, vertices: list[int]) -> tuple[Component, dict[int, int], float]:
        self.component.vertices = vertices
        for vertex in vertices:
            self.unary[vertex] = self.costs[vertex]
            self.states[vertex] = np.arange(len(self.costs[vertex]))
            self.factors[vertex] = {}
            self.neighbours[vertex] = set()
        for factor in self.all:
            self._add(factor)
        for vertex in vertices:
            self._enqueue(vertex)
        rest = set(vertices)
        is_pruned = False
        while len(rest) > 2:
            degree, _cells, vertex = heapq.heappop(self.queue)
            if vertex not in rest or degree != len(self.neighbours[vertex]):
                continue
            if degree > 2 and not is_pruned:
                is_pruned = True
                self._prune(rest)
                self._enqueue(vertex)
                continue
            self._eliminate(vertex)
            rest.discard(vertex)
        return self._finish(sorted(rest))

    def _enqueue(self, vertex: int) -> None:
        cells = math.prod(len(self.unary[other]) for other in self.neighbours[vertex])
        entry = (len(self.neighbours[vertex]), cells * len(self.unary[vertex]), vertex)
        heapq.heappush(self.queue, entry)

    def _add(self, factor: _Factor) -> None:
        """Add a table; one over the same vertices is summed (an *edge* elimination)."""
        present = self.factors[factor.scope[0]].get(factor.scope)
        if present is not None:
            present.table = present.table + factor.table
            self.component.log.append(Eliminated(EDGE, factor.scope[0], factor.scope[1:]))
            return
        for vertex in factor.scope:
            self.factors[vertex][factor.scope] = factor
            self.neighbours[vertex].update(other for other in factor.scope if other != vertex)

    def _eliminate(self, vertex: int) -> None:
        neighbours = tuple(sorted(self.neighbours[vertex]))
        degree = len(neighbours)
        kind = self._kind(vertex, neighbours)
        self.component.width = max(self.component.width, degree)
        self.component.log.append(Eliminated(kind, vertex, neighbours))
        own = list(self.factors.pop(vertex).values())
        if degree == 2 and all(len(factor.scope) == 2 for factor in own):
            best, chosen = self._fold_pair(vertex, neighbours, own)
        else:
            best, chosen = self._fold(vertex, neighbours, own)
        states = {other: self.states[other] for other in (vertex, *neighbours)}
        self.records.append(_Record(vertex, neighbours, chosen, states))
        for factor in own:
            for other in factor.scope:
                if other != vertex:
                    del self.factors[other][factor.scope]
        for other in neighbours:
            self.neighbours[other].discard(vertex)
        del self.neighbours[vertex]
        if degree == 1:
            self.unary[neighbours[0]] = self.unary[neighbours[0]] + best
        else:
            self._add(_Factor(neighbours, best))
        for other in neighbours:
            self._enqueue(other)

    def _fold_pair(
        self, vertex: int, neighbours: tuple[int, ...], own: list[_Factor]
    ) -> tuple[Table, NDArray[np.intp]]:
        """Degree 2 with two edges: (states of u, states of v, states of w) -> minimum over v."""
        sides: list[Table] = []
        for other in neighbours:
            factor = next(candidate for candidate in own if other in candidate.scope)
            sides.append(factor.table if factor.scope[0] == other else factor.table.T)
        total = (sides[0] + self.unary[vertex])[:, None, :] + sides[1][None, :, :]
        chosen = total.argmin(axis=2)
        return total.min(axis=2), chosen

    def _fold(
        self, vertex: int, neighbours: tuple[int, ...], own: list[_Factor]
    ) -> tuple[Table, NDArray[np.intp]]:
        shape = tuple(len(self.unary[other]) for other in neighbours)
        cells = math.prod(shape) * len(self.unary[vertex])
        if cells > self.most and len(neighbours) > 2:
            raise TooWideError(vertex, neighbours, cells)
        scope = (*neighbours, vertex)
        total = np.broadcast_to(self.unary[vertex], (*shape, len(self.unary[vertex]))).copy()
        for factor in own:
            total += _aligned(factor, scope)
        chosen = total.argmin(axis=-1)
        return total.min(axis=-1), chosen

    def _kind(self, vertex: int, neighbours: tuple[int, ...]) -> str:
        """MindSpore's name; edges lead from the lower vertex to the higher."""
        if len(neighbours) == 1:
            return CONTRACT if neighbours[0] < vertex else MERGE
        if len(neighbours) == 2:
            return TRIANGLE if neighbours[1] in self.neighbours[neighbours[0]] else OPERATOR
        return STAR

    def _prune(self, vertices: set[int]) -> None:
        """Drop states that another state of the same vertex beats for all neighbours' states."""
        queue = sorted(vertices)
        queued = set(queue)
        while queue:
            vertex = queue.pop(0)
            queued.discard(vertex)
            survivors = self._undominated(vertex)
            if len(survivors) == len(self.unary[vertex]):
                continue
            self.component.pruned += len(self.unary[vertex]) - len(survivors)
            self.unary[vertex] = self.unary[vertex][survivors]
            self.states[vertex] = self.states[vertex][survivors]
            for factor in self.factors[vertex].values():
                position = factor.scope.index(vertex)
                factor.table = np.take(factor.table, survivors, axis=position)
            for other in self.neighbours[vertex]:
                self._enqueue(other)
                if other not in queued:
                    queue.append(other)
                    queued.add(other)
            self._enqueue(vertex)

    def _undominated(self, vertex: int) -> NDArray[np.intp]:
        unary = self.unary[vertex]
        worse_by = unary[:, None] - unary[None, :]
        for factor in self.factors[vertex].values():
            position = factor.scope.index(vertex)
            table = np.moveaxis(factor.table, position, 0).reshape(len(unary), -1)
            worse_by = worse_by + _least_difference(table)
        number = np.arange(len(unary))
        beaten = (worse_by > 0) | ((worse_by == 0) & (number[:, None] > number[None, :]))
        np.fill_diagonal(beaten, val=False)
        return np.flatnonzero(~beaten.any(axis=1))

    def _finish(self, rest: list[int]) -> tuple[Component, dict[int, int], float]:
        """Choose in the last graph, then recover in reverse."""
        component = self.component
        component.last = tuple(rest)
        component.last_states = [self.states[vertex] for vertex in rest]
        if len(rest) == 1:
            component.last_costs = self.unary[rest[0]]
        else:
            total = self.unary[rest[0]][:, None] + self.unary[rest[1]][None, :]
            for factor in self.factors[rest[0]].values():
                total = total + factor.table
            component.last_costs = total
            component.width = max(component.width, 1)
        best = np.unravel_index(int(component.last_costs.argmin()), component.last_costs.shape)
        cost = float(component.last_costs[best])
        states = {
            vertex: int(self.states[vertex][state])
            for vertex, state in zip(rest, best, strict=True)
        }
        component.chosen = tuple(states[vertex] for vertex in rest)
        for record in reversed(self.records):
            state = states[record.vertex] = record.recover(states)
            component.recovery.append((record.vertex, state))
        return component, states, cost


def _least_difference(table: Table) -> Table:
    """For each pair of rows a, b the least of ``a - b`` over the columns."""
    rows, columns = table.shape
    differences = np.empty((rows, rows))
    step = max(1, 2_000_000 // max(1, rows * columns))
    for start in range(0, rows, step):
        block = table[start : start + step, None, :] - table[None, :, :]
        differences[start : start + step] = block.min(axis=2)
    return differences


def _aligned(factor: _Factor, scope: tuple[int, ...]) -> Table:
    """View a table with the axes of ``scope``, of size 1 where it lacks a vertex."""
    order = sorted(range(len(factor.scope)), key=lambda axis: scope.index(factor.scope[axis]))
    table = factor.table.transpose(order)
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if vertex in factor.scope else 1 for vertex in scope])


def minimise(
    costs: Sequence[Table],
    edges: Iterable[tuple[int, int, Table]],
    *,
    may_hold: Mapping[int, int] | None = None,
    most_cells: int = MOST_CELLS,
) -> Minimum:
    """Find the states with the least sum of costs.

    Args:
        costs: for each vertex the cost of its states, shape (states,).
        edges: (u, v, table) with table of shape (states of u, states of v); parallel edges add up.
        may_hold: vertices that may be held in a state if the width is above the limit; the result
            is then not proven.
        most_cells: cells of the largest table of an elimination.

    Raises:
        TooWideError: above the limit, and no vertex may be held.
    """
    factors = [
        _Factor((u, v), table) if u < v else _Factor((v, u), table.T) for u, v, table in edges
    ]
    costs = list(costs)
    total = 0.0
    fixed: dict[int, int] = {}
    states: dict[int, int] = {}
    components: list[Component] = []
    waiting = _components(range(len(costs)), factors)[::-1]
    while waiting:
        vertices, own = waiting.pop()
        search = _Search(costs, [_Factor(factor.scope, factor.table) for factor in own], most_cells)
        try:
            component, solution, cost = search.run(vertices)
        except TooWideError:
            choices = [vertex for vertex in vertices if vertex in (may_hold or {})]
            if may_hold is None or not choices:
                raise
            widest = max(choices, key=lambda v: sum(v in factor.scope for factor in own))
            state = states[widest] = fixed[widest] = may_hold[widest]
            total += float(costs[widest][state])
            own = _fold_held(costs, own, widest, state)
            rest = [vertex for vertex in vertices if vertex != widest]
            waiting.extend(_components(rest, own)[::-1])
            continue
        components.append(component)
        states |= solution
        total += cost
    return Minimum(total, [states[v] for v in range(len(costs))], components, not fixed, fixed)


def _fold_held(
    costs: list[Table], factors: list[_Factor], vertex: int, state: int
) -> list[_Factor]:
    """Fold a held vertex into the costs of its neighbours; return the other tables."""
    rest: list[_Factor] = []
    for factor in factors:
        (u, v), table = factor.scope, factor.table
        if u == vertex:
            costs[v] = costs[v] + table[state]
        elif v == vertex:
            costs[u] = costs[u] + table[:, state]
        else:
            rest.append(factor)
    return rest


def _components(
    vertices: Iterable[int], factors: list[_Factor]
) -> list[tuple[list[int], list[_Factor]]]:
    parent = {vertex: vertex for vertex in vertices}

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for factor in factors:
        a, b = root(factor.scope[0]), root(factor.scope[1])
        parent[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    own: dict[int, list[_Factor]] = {}
    for vertex in parent:
        members.setdefault(root(vertex), []).append(vertex)
    for factor in factors:
        own.setdefault(root(factor.scope[0]), []).append(factor)
    return [(members_, own.get(first, [])) for first, members_ in members.items()]


def evaluate(
    costs: Sequence[Table], edges: Iterable[tuple[int, int, Table]], states: Sequence[int]
) -> float:
    """Sum the costs of given states, independent of any elimination."""
    total = sum(float(cost[state]) for cost, state in zip(costs, states, strict=True))
    return total + sum(float(table[states[u], states[v]]) for u, v, table in edges)
