"""What the outcomes say: gehost's cost beside its peers', and whether goals are met."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.benchmarks.figures import FIGURES, GROWTH, GROWTH_BOUND, GROWTH_FROM, GROWTH_TO, Figure
from tools.benchmarks.processes import Outcome


@dataclass
class Graph:
    """A generated graph and what was measured on it."""

    nodes: int
    sites: Mapping[str, int]
    tasks: Mapping[str, Outcome]


Graphs = Mapping[tuple[str, int], Graph]
"""By kind and size."""


@dataclass
class Side:
    """What a tool takes for a figure."""

    cost: float | None = None
    """µs a node, or MiB above what the process held before."""
    rewrite: float | None = None
    """µs a rewrite."""
    problem: str = ""
    """Why there is no cost, or why it may not be compared."""


@dataclass
class Row:
    """One figure at one size."""

    title: str
    size: int
    unit: str
    own: Side
    peer: str
    other: Side
    ratio: float | None = None
    """gehost's cost in the peer's; only where both did all that was wanted."""
    goal: str = ""
    met: bool | None = None
    is_style: bool = False
    """It compares styles of one rule, and no tools."""


def compared(graphs: Graphs, sections: Container[str]) -> list[Row]:
    """Each figure of some sections at each size that was measured."""
    return [
        _row(figure, size, graph)
        for figure in FIGURES
        for (kind, size), graph in graphs.items()
        if figure.section in sections and figure.graph == kind and figure.own in graph.tasks
    ]


def _row(figure: Figure, size: int, graph: Graph) -> Row:
    own, other = _side(figure, [figure.own], graph), _side(figure, figure.peers, graph)
    row = Row(
        figure.title,
        size,
        "MiB" if figure.memory else "µs/node",
        own,
        " + ".join(figure.peers),
        other,
        is_style=figure.section == "styles",
    )
    goal = figure.goal if figure.goal is not None and figure.goal.size == size else None
    row.goal = str(goal or "")
    if own.cost is not None and other.cost and not (own.problem or other.problem):
        row.ratio = own.cost / other.cost
        row.met = None if goal is None else goal.met(own.cost, other.cost)
    return row


def _side(figure: Figure, tasks: Sequence[str], graph: Graph) -> Side:
    outcomes = [graph.tasks.get(task, Outcome(failure="not measured")) for task in tasks]
    failure = next((outcome.failure for outcome in outcomes if outcome.failure), "")
    if failure:
        return Side(problem=failure)
    expected = sum(graph.sites[site] for site in figure.sites)
    finished = sum(outcome.rewrites or 0 for outcome in outcomes)
    counts = any(outcome.rewrites is not None for outcome in outcomes)
    problem = f"{finished} rewrites, wanted {expected}" if counts and finished != expected else ""
    if figure.memory:
        return Side(sum(map(growth_of, outcomes)), problem=problem)
    seconds = sum(outcome.seconds or 0 for outcome in outcomes)
    return Side(
        seconds / graph.nodes * 1e6, seconds / finished * 1e6 if finished else None, problem
    )


def growth_of(outcome: Outcome) -> float:
    """MiB that a process held at its peak above what it held before."""
    return (outcome.peak or 0) - (outcome.resident or 0)


def growth(graphs: Graphs) -> list[dict[str, Any]]:
    """How cost a node grows from 10k to 300k nodes, in time and in memory."""
    small, large = (graphs.get(("decoder", size)) for size in (GROWTH_FROM, GROWTH_TO))
    if small is None or large is None:
        return []
    rows: list[dict[str, Any]] = []
    for task, kinds in GROWTH.items():
        before, after = (
            graph.tasks.get(task, Outcome(failure="not measured")) for graph in (small, large)
        )
        if before.failure or after.failure:
            continue
        costs = {
            "time": ((after.seconds or 0) / large.nodes, (before.seconds or 0) / small.nodes),
            "memory": (growth_of(after) / large.nodes, growth_of(before) / small.nodes),
        }
        for kind in kinds:
            end, start = costs[kind]
            rows.append(
                {
                    "task": task,
                    "what": kind,
                    "growth": end / start,
                    "met": end <= GROWTH_BOUND * start,
                }
            )
    return rows
