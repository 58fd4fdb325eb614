"""Reports of a plan: as data, and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from gehost_sharding.annotations import LEAST_IR_VERSION
from gehost_sharding.cost_graph import CostGraph, Objective
from gehost_sharding.elimination import Component
from gehost_sharding.picture import picture
from gehost_sharding.plan import Plan, Solved, objective_value
from gehost_sharding.redistribution import SLICE
from gehost_sharding.sharding import describe
from gehost_sharding.strategies import NO_FACTOR


def as_dict(plan: Plan, *, alpha: float = 1.0, beta: float = 1.0) -> dict[str, Any]:
    """Write everything about a plan as JSON data.

    Args:
        plan: the plan.
        alpha: weight of memory_cost in the weighted objective.
        beta: weight of communication_cost in it.
    """
    solved = plan.solved
    graph = solved.cost_graph.graph
    strategies = solved.cost_graph.strategies
    before = graph.proto.ir_version
    return {
        "model": str(graph),
        "mesh": {
            "axes": dict(zip(plan.assignment.mesh.axes, plan.assignment.mesh.sizes, strict=True))
        },
        "hardware": solved.cost_graph.hardware.as_dict(),
        "ir_version": {"before": before, "after": max(before, LEAST_IR_VERSION)},
        "operators_without_rule": strategies.unknown,
        "search": {
            "operators": len(graph.operators),
            "vertices": len(solved.cost_graph.vertices),
            "edges": len(solved.cost_graph.edges),
            "most_strategies": max((len(rows) for rows in strategies.by_operator), default=0),
            "width": solved.minimum.width,
            "is_proven": plan.is_proven,
            "bound": plan.bound,
            "objective": solved.minimum.cost,
            "objective_recomputed": solved.recomputed,
            "held_replicated": [solved.cost_graph.label(number) for number in solved.minimum.fixed],
            "price": plan.price,
            "memory": plan.memory,
        },
        "costs": _figures(solved, alpha, beta),
        "compared": {
            label: result if isinstance(result, str) else _figures(result, alpha, beta)
            for label, result in plan.compared.items()
        },
        "picture": list(picture(solved.assignment)),
        "operators": list(_operators(solved)),
        "redistributions": [
            {
                "tensor": transfer.tensor,
                "kind": transfer.move.kind,
                "mesh_axis": plan.assignment.mesh.axes[transfer.move.axis],
                "from": describe(plan.assignment.mesh, transfer.source),
                "to": describe(plan.assignment.mesh, transfer.move.after),
                "bytes": transfer.bytes,
            }
            for transfer in solved.transfers
        ],
        "components": [
            _component(solved.cost_graph, component) for component in solved.minimum.components
        ],
    }


def _figures(solved: Solved, alpha: float, beta: float) -> dict[str, Any]:
    totals = solved.totals
    weighted = Objective(0.0, 0.0, alpha, beta)
    return {
        "seconds": totals["seconds"],
        "computation_seconds": solved.compute_seconds,
        "communication_seconds": totals["seconds"] - solved.compute_seconds,
        "memory_cost": totals["memory"],
        "communication_cost": totals["wire"],
        "weighted": {"alpha": alpha, "beta": beta, "value": objective_value(weighted, solved)},
        "weight_bytes": solved.held_weights(),
        "activation_bytes": solved.activation_bytes,
        "wire_bytes": solved.wire_bytes,
        "output_bytes": solved.output_bytes,
        "by_collective": solved.by_collective(),
    }


def _operators(solved: Solved) -> Iterator[dict[str, Any]]:
    assignment = solved.assignment
    mesh = assignment.mesh
    for operator in assignment.graph.operators:
        strategy = assignment.strategy(operator.index)
        rule = assignment.strategies[operator].rule
        yield {
            "op": operator.op,
            "node": operator.label,
            "split": {
                mesh.axes[axis]: {
                    "factor": factor,
                    "size": rule.factors[factor].size,
                    "kind": rule.factors[factor].kind,
                }
                for axis, factor in enumerate(strategy.factors)
                if factor != NO_FACTOR
            },
            "operands": {
                name: describe(mesh, sharding)
                for name, sharding in zip(operator.node.input, strategy.operands, strict=True)
                if name and sharding is not None
            },
            "results": {
                name: describe(mesh, assignment.specs[name])
                for name in operator.node.output
                if name
            },
        }


def _component(cost_graph: CostGraph, component: Component) -> dict[str, Any]:
    last = component.last
    costs = component.last_costs
    entries = [
        {
            "states": [_state(cost_graph, v, s) for v, s in zip(last, states, strict=True)],
            "cost": float(costs[cell]),
            "chosen": states == component.chosen,
        }
        for cell, states in _cells(component)
    ]
    return {
        "vertices": len(component.vertices),
        "width": component.width,
        "pruned_states": component.pruned,
        "eliminations": [
            {
                "kind": step.kind,
                "vertex": cost_graph.label(step.vertex),
                "neighbours": [cost_graph.label(other) for other in step.neighbours],
            }
            for step in component.log
        ],
        "last_graph": {
            "vertices": [cost_graph.label(vertex) for vertex in last],
            "entries": entries,
        },
        "recovery": [
            {"vertex": cost_graph.label(vertex), "state": _state(cost_graph, vertex, state)}
            for vertex, state in component.recovery
        ],
    }


def _cells(component: Component) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cells of the cost list of the last graph, with the states that they stand for."""
    first = component.last_states[0]
    if len(component.last) == 1:
        for row, state in enumerate(first):
            yield (row,), (int(state),)
        return
    for row, state in enumerate(first):
        for column, other in enumerate(component.last_states[1]):
            yield (row, column), (int(state), int(other))


def _state(cost_graph: CostGraph, number: int, state: int) -> str:
    vertex, mesh = cost_graph.vertices[number], cost_graph.mesh
    if vertex.operator is None:
        return describe(mesh, vertex.shardings[state])
    strategy = cost_graph.strategies[vertex.operator].choices[state]
    operands = ", ".join(
        describe(mesh, sharding) for sharding in strategy.operands if sharding is not None
    )
    return f"{operands} -> {', '.join(describe(mesh, sharding) for sharding in strategy.results)}"


def lines(plan: Plan, *, verbose: bool = False, draw: bool = False) -> Iterator[str]:
    """Write a plan for a terminal."""
    solved = plan.solved
    cost_graph = solved.cost_graph
    hardware = cost_graph.hardware
    yield (
        f"mesh {cost_graph.mesh}, {_counted(cost_graph.mesh.devices, 'device')}; hardware:"
        f" {hardware.flops:.3g} flop/s, memory {hardware.memory_bandwidth:.3g} B/s,"
        f" link {hardware.link_bandwidth:.3g} B/s, latency {hardware.latency:.3g} s"
    )
    for axis, bandwidth in hardware.axis_bandwidth.items():
        yield f"link of mesh axis {axis}: {bandwidth:.3g} B/s"
    unknown = cost_graph.strategies.unknown
    if unknown:
        names = ", ".join(f"{op} ({count})" for op, count in sorted(unknown.items()))
        yield f"operators without a rule, replicated: {names}"
    proof = "proven optimal" if plan.is_proven else f"not proven (bound {plan.bound:.6g})"
    yield (
        f"{_counted(len(cost_graph.graph.operators), 'operator')},"
        f" {_counted(len(cost_graph.vertices), 'vertex', 'vertices')},"
        f" {_counted(len(cost_graph.edges), 'edge')}, width {solved.minimum.width}: {proof}"
    )
    if solved.minimum.fixed:
        labels = [cost_graph.label(number) for number in solved.minimum.fixed]
        yield f"width above the limit: held replicated: {', '.join(labels)}"
    if verbose:
        yield from _verbose_lines(solved)
    if draw:
        yield from picture(solved.assignment)
    rows = [_row("this plan", solved)]
    rows += [
        _row(label, entry) for label, entry in plan.compared.items() if isinstance(entry, Solved)
    ]
    heads = [
        "plan",
        "ms",
        "communication ms",
        "sent B",
        "weights B",
        "activations B",
        "collectives",
    ]
    yield from tabulate(rows, headers=heads, tablefmt="simple", floatfmt=".4g").splitlines()
    for label, entry in plan.compared.items():
        if isinstance(entry, str):
            yield f"no plan for {label}: {entry}"
    yield f"gathering the outputs sends {solved.output_bytes} B more per device"


def _counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def _row(label: str, solved: Solved) -> list[Any]:
    kinds = ", ".join(
        f"{entry['count']} {kind}" for kind, entry in sorted(solved.by_collective().items())
    )
    seconds = solved.totals["seconds"]
    return [
        label,
        seconds * 1e3,
        (seconds - solved.compute_seconds) * 1e3,
        solved.wire_bytes,
        solved.held_weights(),
        solved.activation_bytes,
        kinds or "none",
    ]


def _verbose_lines(solved: Solved) -> Iterator[str]:
    for entry in _operators(solved):
        operands = "; ".join(entry["operands"].values())
        results = "; ".join(entry["results"].values())
        yield f'{entry["op"]} "{entry["node"]}": {operands} -> {results}'
    mesh = solved.assignment.mesh
    for transfer in solved.transfers:
        if transfer.move.kind != SLICE:
            yield (
                f'{transfer.move.kind} over {mesh.axes[transfer.move.axis]} of "{transfer.tensor}":'
                f" {describe(mesh, transfer.source)} -> {describe(mesh, transfer.move.after)},"
                f" {transfer.bytes} B"
            )
