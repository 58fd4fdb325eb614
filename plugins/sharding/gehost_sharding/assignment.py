"""A sharding of a whole model: a strategy per operator, a sharding per result.

This is all that annotations hold. Which redistributions follow from it is decided here, for the
planner, which counts their bytes, and for the splitter, which writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph, Operator
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.redistribution import HALO, Move, Redistributions
from gehost_sharding.sharding import Shape, Sharding, local_shape, replicated
from gehost_sharding.strategies import Strategies, Strategy


@dataclass(frozen=True)
class Transfer:
    """One move of a tensor."""

    tensor: str
    source: Sharding
    move: Move
    bytes: int
    """On the wire, per device."""


@dataclass
class Assignment:
    """The strategy of each operator and the sharding that each result is kept in."""

    graph: ModelGraph
    mesh: Mesh
    strategies: OperatorStrategies
    chosen: list[int]
    """Number of the strategy, by operator."""
    specs: Mapping[str, Sharding]
    """By result: its sharding after reduction and a redistribution that all readers share."""

    def strategy(self, operator: int) -> Strategy:
        return self.strategies[operator].choices[self.chosen[operator]]

    def own(self, tensor: str) -> Sharding:
        """Return the sharding that the producer's strategy gives a result; may be partial."""
        operator, index = self.graph.producer[tensor]
        return self.strategy(operator).results[index]

    def input_sharding(self, name: str) -> Sharding:
        """Return how an input arrives: as all its readers want it, else whole (cuts are free)."""
        targets = {
            self.strategy(operator).operands[slot]
            for operator, slot in self.graph.readers.get(name, ())
        }
        only = next(iter(targets)) if len(targets) == 1 and name not in self.graph.outputs else None
        return only or replicated(self.mesh)

    def output_sharding(self, name: str) -> Sharding:
        """Return the sharding of a graph output, never partial."""
        return self.specs.get(name) or replicated(self.mesh)


def nearest_strategy(
    strategies: Strategies,
    numbers: Iterable[int],
    shapes: Sequence[Shape],
    specs: Sequence[Sharding],
    redistributions: Redistributions,
) -> int:
    """Pick the strategy whose results need the least redistribution into ``specs``.

    Operands' specs leave several strategies where only results have a factor (Expand,
    ConstantOfShape). This choice is part of the meaning of annotations.
    """

    def key(number: int) -> tuple[float, int, int]:
        moves = [
            move
            for shape, pinned, target in zip(
                shapes, strategies.choices[number].results, specs, strict=True
            )
            for move in redistributions.path(shape, pinned, target)
        ]
        return sum(move.wire for move in moves), len(moves), number

    return min(numbers, key=key)


class Transfers:
    """Hands out the moves that bring tensors where they are read, each once."""

    def __init__(self, assignment: Assignment, redistributions: Redistributions) -> None:
        self.assignment = assignment
        self.redistributions = redistributions
        self._present: set[tuple[str, Sharding]] = set()

    def to(self, name: str, target: Sharding) -> list[Transfer]:
        """Moves that are still missing before ``name`` is there as ``target``, in order.

        Constants and inputs are cut for free and need none.
        """
        assignment = self.assignment
        if name not in assignment.graph.producer or (name, target) in self._present:
            return []
        own, spec = assignment.own(name), assignment.specs[name]
        self._present.add((name, own))
        tensor = assignment.graph.tensors[name]
        transfers: list[Transfer] = []
        for source, goal in ((own, spec), (spec, target)):
            path = self.redistributions.path(tensor.shape, source, goal)
            state = source
            for move in path:
                if (name, move.after) not in self._present:
                    self._present.add((name, move.after))
                    size = self.redistributions.bytes_of(
                        tensor.shape, tensor.dtype.itemsize, state, move
                    )
                    transfers.append(Transfer(name, state, move, size))
                state = move.after
        return transfers


def all_transfers(assignment: Assignment, redistributions: Redistributions) -> Iterator[Transfer]:
    """All moves of a model in the order of its operators, outputs last."""
    transfers = Transfers(assignment, redistributions)
    for operator in assignment.graph.operators:
        strategy = assignment.strategy(operator.index)
        for slot, name in enumerate(operator.node.input):
            target = strategy.operands[slot] if name else None
            if target is not None:
                yield from transfers.to(name, target)
        halo = halo_transfer(assignment, operator)
        if halo is not None:
            yield halo
    for name in assignment.graph.outputs:
        yield from transfers.to(name, assignment.output_sharding(name))


def halo_transfer(assignment: Assignment, operator: Operator) -> Transfer | None:
    """Return the exchange of edges that an operator's strategy needs, if any."""
    strategy = assignment.strategy(operator.index)
    exchange, sharding = strategy.exchange, strategy.operands[0]
    if exchange is None or sharding is None:
        return None
    tensor = assignment.graph.tensors[operator.node.input[0]]
    local = local_shape(assignment.mesh, tensor.shape, sharding)
    dim = exchange.halo.dim
    move = Move(HALO, exchange.axis, dim, dim, sharding, 0.0)
    return Transfer(tensor.name, sharding, move, exchange.wire_bytes(local, tensor.dtype.itemsize))


def gather_transfers(assignment: Assignment, redistributions: Redistributions) -> list[Transfer]:
    """Moves that make each output whole, which ``run`` does after the model."""
    transfers: list[Transfer] = []
    whole = replicated(assignment.mesh)
    for name in assignment.graph.outputs:
        tensor = assignment.graph.tensors[name]
        state = assignment.output_sharding(name)
        for move in redistributions.path(tensor.shape, state, whole):
            size = redistributions.bytes_of(tensor.shape, tensor.dtype.itemsize, state, move)
            transfers.append(Transfer(name, state, move, size))
            state = move.after
    return transfers
