"""What a plan must have: pins and annotations as the states that they leave to vertices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gehost import UsageError
from gehost_sharding.cost_graph import CostGraph
from gehost_sharding.propagation import Pin
from gehost_sharding.sharding import Sharding, describe

Mask: TypeAlias = NDArray[np.bool_]
Specs: TypeAlias = Mapping[int, Mapping[str, Sharding]]
"""By operator and tensor: the annotations of a model."""


@dataclass(frozen=True)
class Demand:
    """The states that one pin or annotation leaves to a vertex."""

    vertex: int
    allowed: Mask
    text: str


def pin_demands(cost_graph: CostGraph, pins: Sequence[Pin]) -> Iterator[Demand]:
    """Read pins. All readers of a pinned constant or input read it as pinned."""
    graph, strategies = cost_graph.graph, cost_graph.strategies
    for pin in pins:
        text = f'pin "{pin.text}"'
        vertex = cost_graph.vertex_of.get(pin.tensor)
        if vertex is not None:
            shardings = cost_graph.vertices[vertex].shardings
            yield Demand(vertex, np.array([pin.allows(one) for one in shardings]), text)
        if pin.tensor in graph.producer:
            continue
        for reader, slot in graph.readers.get(pin.tensor, ()):
            targets = strategies[reader].operands[slot]
            if targets is not None:
                allowed = np.array([pin.allows(target) for target in targets])
                yield Demand(cost_graph.vertex_of[reader], allowed, text)


def spec_demands(cost_graph: CostGraph, specs: Specs) -> Iterator[Demand]:
    """Read annotations: an operand's is what the operator reads, a result's what it is kept as."""
    graph, strategies = cost_graph.graph, cost_graph.strategies
    for index, own in specs.items():
        operator = graph.operators[index]
        for name, sharding in own.items():
            placed = describe(cost_graph.mesh, sharding)
            text = f'annotation "{name}" {placed} of {operator.op} "{operator.label}"'
            if name in operator.node.output:
                vertex = cost_graph.vertex_of[name]
                shardings = cost_graph.vertices[vertex].shardings
                yield Demand(vertex, np.array([one == sharding for one in shardings]), text)
            for slot, operand in enumerate(operator.node.input):
                targets = strategies[operator].operands[slot] if operand == name else None
                if targets is not None:
                    allowed = np.array([target == sharding for target in targets])
                    yield Demand(cost_graph.vertex_of[index], allowed, text)


def masks_of(cost_graph: CostGraph, demands: Sequence[Demand]) -> dict[int, Mask]:
    """Return the states that all demands leave.

    Raises:
        UsageError: demands that leave a vertex no state; names two of them.
    """
    masks: dict[int, Mask] = {}
    by_vertex: dict[int, list[Demand]] = {}
    for demand in demands:
        before = masks.get(demand.vertex)
        mask = masks[demand.vertex] = demand.allowed if before is None else demand.allowed & before
        others = by_vertex.setdefault(demand.vertex, [])
        if not mask.any():
            _refuse(cost_graph, demand, others)
        others.append(demand)
    return masks


def _refuse(cost_graph: CostGraph, demand: Demand, others: Sequence[Demand]) -> None:
    label, where = cost_graph.label(demand.vertex), str(cost_graph.graph)
    if not demand.allowed.any():
        advice = _advice(cost_graph, demand.vertex)
        raise UsageError(
            f"{demand.text} cannot hold: no strategy of {label} is left{advice}", where=where
        )
    # two that exclude each other, or all where only several together do
    pair = [other for other in others if not (other.allowed & demand.allowed).any()][:1]
    texts = " and ".join(other.text for other in pair or others)
    raise UsageError(
        f"{texts} and {demand.text} contradict each other: no strategy of {label} is left",
        where=where,
    )


def _advice(cost_graph: CostGraph, vertex: int) -> str:
    operator = cost_graph.vertices[vertex].operator
    advice = "" if operator is None else cost_graph.strategies[operator].rule.advice
    return f"; {advice}" if advice else ""
