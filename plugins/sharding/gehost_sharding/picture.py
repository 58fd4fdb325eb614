"""A plan drawn as text: operators with their placements, collectives between, equal layers once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gehost_sharding.assignment import Assignment, Transfer, Transfers, halo_transfer
from gehost_sharding.model_graph import Operator
from gehost_sharding.redistribution import SLICE, Redistributions
from gehost_sharding.sharding import describe

_LONGEST_LAYER = 200
"""Operators up to which a repeated part is looked for."""


class _Row(NamedTuple):
    """One operator with the collectives before it; equal rows differ in names alone."""

    op: str
    collectives: tuple[str, ...]
    placements: str


def picture(assignment: Assignment) -> Iterator[str]:
    """Draw a plan, a line for each operator and collective."""
    rows = [_row(assignment, operator, moves) for operator, moves in _moved(assignment)]
    labels = [operator.label for operator in assignment.graph.operators]
    start = 0
    while start < len(rows):
        length, times = _repeated(rows, start)
        rest = "│ " if times > 1 else ""
        if times > 1:
            yield f"┌ {times} times"
        for index in range(start, start + length):
            row = rows[index]
            for text in row.collectives:
                yield f"{rest}   ⇄ {text}"
            yield f"{rest}{row.op} {labels[index]}: {row.placements}"
        if times > 1:
            yield "└"
        start += length * times


def _moved(assignment: Assignment) -> Iterator[tuple[Operator, list[Transfer]]]:
    """Yield each operator with the collectives that its operands need first."""
    transfers = Transfers(assignment, Redistributions(assignment.mesh))
    for operator in assignment.graph.operators:
        strategy = assignment.strategy(operator.index)
        moves: list[Transfer] = []
        for slot, name in enumerate(operator.node.input):
            target = strategy.operands[slot] if name else None
            if target is not None:
                moves += transfers.to(name, target)
        halo = halo_transfer(assignment, operator)
        yield operator, [*moves, *([halo] if halo is not None else [])]


def _row(assignment: Assignment, operator: Operator, moves: Sequence[Transfer]) -> _Row:
    mesh, strategy = assignment.mesh, assignment.strategy(operator.index)
    operands = [
        describe(mesh, sharding)
        for name, sharding in zip(operator.node.input, strategy.operands, strict=True)
        if name and sharding is not None
    ]
    results = [describe(mesh, sharding) for sharding in strategy.results]
    collectives = tuple(
        f"{transfer.move.kind} over {mesh.axes[transfer.move.axis]}, {_size(transfer.bytes)}"
        for transfer in moves
        if transfer.move.kind != SLICE
    )
    return _Row(operator.op, collectives, f"{' | '.join(operands)} → {' | '.join(results)}")


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _repeated(rows: Sequence[_Row], start: int) -> tuple[int, int]:
    """Length and number of the equal parts that start here and cover the most rows; else 1, 1."""
    best = (1, 1)
    for length in range(1, min(_LONGEST_LAYER, (len(rows) - start) // 2) + 1):
        part, times = rows[start : start + length], 1
        while rows[start + times * length : start + (times + 1) * length] == part:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best
