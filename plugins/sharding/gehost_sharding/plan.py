"""Plans: the cheapest sharding of a model on a mesh, with its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import networkx as nx
import numpy as np

from gehost import GehostError, ModelError, UsageError
from gehost_sharding.assignment import Assignment, Transfer, all_transfers, gather_transfers
from gehost_sharding.cost_graph import CostGraph, Objective
from gehost_sharding.demands import Mask, Specs, masks_of, pin_demands, spec_demands
from gehost_sharding.elimination import MOST_CELLS, Minimum, evaluate, minimise
from gehost_sharding.hardware import Hardware
from gehost_sharding.memory import activation_bytes
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.propagation import OperatorStrategies, Pin, check_mesh
from gehost_sharding.redistribution import HALO, SLICE, Redistributions
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import Sharding, is_partial, replicated
from gehost_sharding.strategies import NO_FACTOR

_PRICE_STEPS = 40
"""Prices of memory that are tried under a capacity."""


MOST_AXES = 4


@dataclass
class Solved:
    """One minimum over a cost graph, with its costs by kind."""

    cost_graph: CostGraph
    minimum: Minimum
    states: list[int]
    """Chosen state of each vertex, in the numbers of the cost graph."""
    recomputed: float
    """The cost added up from the chosen states, to compare with ``minimum.cost``."""
    totals: dict[str, float]
    """seconds, weights, memory, wire."""
    assignment: Assignment
    transfers: list[Transfer]
    gathers: list[Transfer]
    """Moves that make the outputs whole."""

    @property
    def compute_seconds(self) -> float:
        """Seconds of the operators without the halos that they exchange."""
        hardware, axes = self.cost_graph.hardware, self.assignment.mesh.axes
        exchanges = sum(
            hardware.exchange_seconds(axes[transfer.move.axis], transfer.bytes)
            for transfer in self.transfers
            if transfer.move.kind == HALO
        )
        operators = sum(
            float(vertex.costs.seconds[self.states[vertex.number]])
            for vertex in self.cost_graph.vertices
        )
        return operators - exchanges

    @property
    def wire_bytes(self) -> int:
        """Bytes that each device sends, without gathering the outputs."""
        return sum(transfer.bytes for transfer in self.transfers)

    @property
    def output_bytes(self) -> int:
        return sum(transfer.bytes for transfer in self.gathers)

    def by_collective(self) -> dict[str, dict[str, int]]:
        """Count and bytes by kind of collective."""
        totals: dict[str, dict[str, int]] = {}
        for transfer in self.transfers:
            if transfer.move.kind != SLICE:
                entry = totals.setdefault(transfer.move.kind, {"count": 0, "bytes": 0})
                entry["count"] += 1
                entry["bytes"] += transfer.bytes
        return totals

    @property
    def memory_bytes(self) -> int:
        """Bytes that a device holds at once: its weights, and tensors while they are alive."""
        return self.held_weights() + self.activation_bytes

    @cached_property
    def activation_bytes(self) -> int:
        return activation_bytes(self.assignment)

    def held_weights(self) -> int:
        """Bytes of weights that one device holds; each cut of a weight counts once."""
        assignment = self.assignment
        cuts: set[tuple[str, Sharding]] = set()
        for operator in assignment.graph.operators:
            strategy = assignment.strategy(operator.index)
            for slot, name in enumerate(operator.node.input):
                sharding = strategy.operands[slot] if name else None
                if sharding is not None and assignment.graph.is_constant(name):
                    cuts.add((name, sharding))
        tensors = assignment.graph.tensors
        return sum(
            tensors[name].bytes
            // assignment.mesh.extent(axis for axis, dim in enumerate(sharding) if dim >= 0)
            for name, sharding in cuts
        )


@dataclass
class Plan:
    """The chosen sharding, and the plans it is compared with."""

    solved: Solved
    objective: Objective
    memory: int | None
    """Capacity of a device, if one was given."""
    price: float
    """Seconds per byte in the search that found the plan."""
    bound: float
    """No plan has less seconds than this (or a lower objective, if that is not time)."""
    is_proven: bool
    compared: dict[str, Solved | str] = field(default_factory=dict[str, "Solved | str"])
    """By label; a text where no such plan exists."""

    @property
    def graph(self) -> nx.MultiDiGraph[Any]:
        """The cost graph, for inspection."""
        return self.solved.cost_graph.networkx()

    @property
    def mesh(self) -> Mesh:
        """The mesh; ``plan.mesh.graph()`` has its devices as a networkx graph."""
        return self.assignment.mesh

    @property
    def assignment(self) -> Assignment:
        return self.solved.assignment


class Planner:
    """Searches plans for one model on one mesh and hardware."""

    def __init__(
        self,
        graph: ModelGraph,
        mesh: Mesh,
        hardware: Hardware | None = None,
        table: RuleTable | None = None,
        *,
        most_cells: int = MOST_CELLS,
    ) -> None:
        """Compute the strategies of each operator.

        Raises:
            UsageError: a mesh axis divides nothing, the hardware names another axis, or the mesh
                has more than four axes.
        """
        split = sum(size > 1 for size in mesh.sizes)
        if split > MOST_AXES:
            raise UsageError(
                f"a plan has at most {MOST_AXES} mesh axes larger than 1, not {split}: {mesh}",
                hint="merge axes: strategies grow exponentially with their number",
            )
        self.graph = graph
        self.mesh = mesh
        self.hardware = hardware or Hardware()
        self.hardware.check(mesh)
        self.most_cells = most_cells
        check_mesh(graph, mesh)
        self.strategies = OperatorStrategies(graph, mesh, table or RuleTable.with_plugins())
        self.redistributions = Redistributions(mesh)
        self._graphs: dict[tuple[bool, frozenset[str]], CostGraph] = {}

    def plan(
        self,
        *,
        objective: Objective | None = None,
        memory: int | None = None,
        pins: Sequence[Pin] = (),
        specs: Specs | None = None,
    ) -> Plan:
        """Find the plan with the least objective.

        Args:
            objective: what to minimise; time by default.
            memory: bytes of weights and live tensors that a device may hold; least time under it.
            pins: placements that the plan must have.
            specs: annotations that the plan must have.

        Raises:
            ModelError: no plan was found that fits ``memory``; gives the least that was found and
                a bound below which no plan is.
            UsageError: pins or annotations that contradict each other; names both.
        """
        objective = objective or Objective()
        prices = memory is not None or objective.weights > 0
        specs = specs or {}
        cost_graph = self.cost_graph(pins, prices_weights=prices, specs=specs)
        demands = [*pin_demands(cost_graph, pins), *spec_demands(cost_graph, specs)]
        masks = masks_of(cost_graph, demands)
        solved = self.solve(cost_graph, objective, masks)
        proven = solved.minimum.is_proven
        if memory is None or solved.memory_bytes <= memory:
            return Plan(solved, objective, memory, objective.weights, solved.minimum.cost, proven)
        return self._under_capacity(cost_graph, objective, memory, masks, solved)

    def compare(self, plan: Plan, pinned: dict[str, Sequence[Pin]]) -> None:
        """Add pure data parallelism, and the best plan under each set of pins, to ``plan``."""
        prices = plan.solved.cost_graph.prices_weights
        for axes in self._data_axes():
            cost_graph = self.cost_graph((), prices_weights=prices)
            label = f"data parallelism over {', '.join(self.mesh.axes[axis] for axis in axes)}"
            masks = self._data_parallel_masks(cost_graph, axes)
            plan.compared[label] = self.solve(cost_graph, plan.objective, masks)
        for label, pins in pinned.items():
            cost_graph = self.cost_graph(pins, prices_weights=prices)
            try:
                masks = masks_of(cost_graph, list(pin_demands(cost_graph, pins)))
            except UsageError as error:
                plan.compared[label] = str(error)
                continue
            plan.compared[label] = self.solve(cost_graph, plan.objective, masks)

    # -- searches -----------------------------------------------------------------------------

    def cost_graph(
        self, pins: Iterable[Pin] = (), *, prices_weights: bool = False, specs: Specs | None = None
    ) -> CostGraph:
        """Build the cost graph; pinned and annotated results are vertices of it."""
        annotated = {
            name
            for index, own in (specs or {}).items()
            for name in own
            if name in self.graph.operators[index].node.output
        }
        results = {pin.tensor for pin in pins if pin.tensor in self.graph.producer}
        pinned = frozenset(results | annotated)
        key = (prices_weights, pinned)
        if key not in self._graphs:
            self._graphs[key] = CostGraph(
                self.graph,
                self.mesh,
                self.hardware,
                self.strategies,
                self.redistributions,
                prices_weights,
                pinned,
            )
        return self._graphs[key]

    def solve(self, cost_graph: CostGraph, objective: Objective, masks: dict[int, Mask]) -> Solved:
        """Find the minimum of an objective over the states that the masks allow."""
        costs, edges, survivors = cost_graph.tables(objective, masks)
        may_hold = {
            number: int(np.flatnonzero(survivors[number] == state)[0])
            for number, state in cost_graph.replicated_states().items()
            if state in survivors[number]
        }
        minimum = minimise(costs, edges, may_hold=may_hold, most_cells=self.most_cells)
        recomputed = evaluate(costs, edges, minimum.states)
        if not math.isclose(recomputed, minimum.cost, rel_tol=1e-9, abs_tol=1e-15):
            raise GehostError(
                f"the search recorded a cost of {minimum.cost}, but its plan costs {recomputed}"
            )
        states = [int(survivors[v][state]) for v, state in enumerate(minimum.states)]
        assignment = self._assignment(cost_graph, states)
        return Solved(
            cost_graph,
            minimum,
            states,
            recomputed,
            cost_graph.total(states),
            assignment,
            list(all_transfers(assignment, self.redistributions)),
            gather_transfers(assignment, self.redistributions),
        )

    def _assignment(self, cost_graph: CostGraph, states: list[int]) -> Assignment:
        chosen = [states[cost_graph.vertex_of[op.index]] for op in self.graph.operators]
        specs: dict[str, Sharding] = {}
        for name, (operator, index) in self.graph.producer.items():
            own = self.strategies[operator].choices[chosen[operator]].results[index]
            vertex = cost_graph.vertex_of.get(name)
            if vertex is not None:
                specs[name] = cost_graph.vertices[vertex].shardings[states[vertex]]
            elif not is_partial(own):
                specs[name] = own
            elif self.graph.readers.get(name):
                reader, slot = self.graph.readers[name][0]
                target = self.strategies[reader].choices[chosen[reader]].operands[slot]
                specs[name] = target or replicated(self.mesh)
            else:
                specs[name] = replicated(self.mesh)
        return Assignment(self.graph, self.mesh, self.strategies, chosen, specs)

    def _under_capacity(
        self,
        cost_graph: CostGraph,
        objective: Objective,
        memory: int,
        masks: dict[int, Mask],
        free: Solved,
    ) -> Plan:
        """Least time under a capacity: a price on bytes, an exact check of the plan's memory.

        The price is on weights, whose sum is a lower bound of a device's memory (Lagrange), then
        also on results. The plan is proven optimal only if it meets the bound.
        """
        # a second more is worth less than a byte, but of equal bytes the fastest plan is chosen
        weights = self.solve(cost_graph, Objective(seconds=1.0, weights=1.0), masks)
        results = self.solve(cost_graph, Objective(seconds=1.0, memory=1.0), masks)
        least = min(weights, results, key=lambda result: result.memory_bytes)
        best, best_price = least, math.inf
        bound = objective_value(objective, free)
        for name, cheapest in (("weights", weights), ("memory", results)):
            above, fitting = free, None
            price = _price_scale(objective, name, free, cheapest)
            for _ in range(_PRICE_STEPS):
                priced = replace(objective, **{name: getattr(objective, name) + price})
                result = self.solve(cost_graph, priced, masks)
                if name == "weights" and result.minimum.is_proven:
                    most = memory + cost_graph.overcounted_weights
                    bound = max(bound, result.minimum.cost - price * most)
                if result.memory_bytes < least.memory_bytes:
                    least = result
                value = objective_value(objective, result)
                if result.memory_bytes <= memory:
                    fitting = result
                    if best.memory_bytes > memory or value <= objective_value(objective, best):
                        best, best_price = result, price
                elif result.totals[name] <= cheapest.totals[name] * (1 + 1e-9):
                    break
                else:
                    above = result
                if fitting is None:
                    price *= 16
                    continue
                # the price at which the two plans cost the same: a plan between them is cheaper
                saved = above.totals[name] - fitting.totals[name]
                lost = objective_value(objective, fitting) - objective_value(objective, above)
                if saved <= 0 or lost <= 0 or abs(lost / saved - price) <= 1e-9 * price:
                    break
                price = lost / saved
        if least.memory_bytes > memory:
            self._refuse_capacity(memory, least, cost_graph.least_bytes(masks))
        if best.memory_bytes > memory:
            best = least
        value = objective_value(objective, best)
        proven = free.minimum.is_proven and value - bound <= 1e-9 * abs(value)
        price = objective.weights + (0.0 if math.isinf(best_price) else best_price)
        return Plan(best, objective, memory, price, bound, proven)

    def _refuse_capacity(self, memory: int, least: Solved, bound: int) -> NoReturn:
        requirement = f"{least.memory_bytes} bytes, of which {least.held_weights()} are weights"
        if least.memory_bytes <= bound:
            reason = f"holds {memory} bytes per device; the least possible is {requirement}"
        else:
            reason = (
                f"was found that holds {memory} bytes per device; the least found is {requirement};"
                f" no plan holds less than {bound} bytes"
            )
        raise ModelError(f"no plan on mesh {self.mesh} {reason}", where=str(self.graph))

    def _data_axes(self) -> list[tuple[int, ...]]:
        active = self.mesh.active_axes
        return [active[:1], active] if len(active) > 1 else [active] if active else []

    def _data_parallel_masks(self, cost_graph: CostGraph, axes: tuple[int, ...]) -> dict[int, Mask]:
        """Weights whole, and no other axis in use."""
        whole = replicated(self.mesh)
        masks: dict[int, Mask] = {}
        for operator in self.graph.operators:
            constants = [
                slot
                for slot, name in enumerate(operator.node.input)
                if name and self.graph.is_constant(name)
            ]
            masks[cost_graph.vertex_of[operator.index]] = np.array(
                [
                    all(
                        factor == NO_FACTOR
                        for axis, factor in enumerate(strategy.factors)
                        if axis not in axes
                    )
                    and all(strategy.operands[slot] in {whole, None} for slot in constants)
                    for strategy in self.strategies[operator].choices
                ]
            )
        return masks


def objective_value(objective: Objective, solved: Solved) -> float:
    """Value of an objective for a plan."""
    totals = solved.totals
    return (
        objective.seconds * totals["seconds"]
        + objective.weights * totals["weights"]
        + objective.memory * totals["memory"]
        + objective.wire * totals["wire"]
    )


def _price_scale(objective: Objective, name: str, free: Solved, cheapest: Solved) -> float:
    """A price at which the saved bytes are worth the difference in the objective."""
    saved = free.totals[name] - cheapest.totals[name]
    lost = objective_value(objective, cheapest) - objective_value(objective, free)
    return max(lost / saved, 1e-30) if saved > 0 else 1e-30
