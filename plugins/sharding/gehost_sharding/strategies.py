"""Strategies of an operator: one factor or none for each mesh axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gehost_sharding.mesh import SYMBOLIC, Mesh
from gehost_sharding.redistribution import ALL_GATHER, wire_bytes
from gehost_sharding.rules.rule import NEED, PASS, REDUCE, Halo, Layout, Rule
from gehost_sharding.sharding import REPLICATED, Shape, Sharding, is_partial

NO_FACTOR = -1


@dataclass(frozen=True)
class Exchange:
    """The edges of operand 0 that devices of one mesh axis exchange under a strategy."""

    halo: Halo
    axis: int
    pieces: int

    def wire_bytes(self, local: Shape, itemsize: int) -> int:
        """Bytes that each device sends to gather the edges of pieces of a shape."""
        dim = self.halo.dim
        edges = (*local[:dim], self.pieces * self.halo.rows, *local[dim + 1 :])
        return wire_bytes(ALL_GATHER, math.prod(edges) * itemsize, self.pieces)


@dataclass(frozen=True)
class Strategy:
    """One choice of factors: shardings of the operands and of the results."""

    factors: tuple[int, ...]
    """Per mesh axis the factor that it splits, or ``NO_FACTOR``."""
    operands: tuple[Sharding | None, ...]
    """None for an operand that is left out."""
    results: tuple[Sharding, ...]
    exchange: Exchange | None = None

    @property
    def is_partial(self) -> bool:
        return any(is_partial(sharding) for sharding in self.results)


@dataclass(frozen=True, eq=False)
class Strategies:
    """All legal strategies of one operator on a mesh, the one that splits nothing first."""

    rule: Rule
    choices: tuple[Strategy, ...]
    operands: tuple[tuple[Sharding, ...] | None, ...] = field(init=False)
    """For each operand the sharding that each strategy demands."""
    results: tuple[tuple[Sharding, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        operands = tuple(
            None
            if layout is None
            else tuple(_present(strategy.operands[slot]) for strategy in self.choices)
            for slot, layout in enumerate(self.rule.operands)
        )
        results = tuple(
            tuple(strategy.results[index] for strategy in self.choices)
            for index in range(len(self.rule.results))
        )
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "results", results)

    def __len__(self) -> int:
        return len(self.choices)


def _present(sharding: Sharding | None) -> Sharding:
    assert sharding is not None, "the operand is left out"
    return sharding


def splittable_factors(rule: Rule) -> tuple[int, ...]:
    """Factors that may be split: not *need*, and the major-most of every dimension they are in.

    A *pass* factor must be in every result, a *reduce* factor in none: a result without it would
    differ between devices that should hold the same.
    """
    layouts = [layout for layout in (*rule.operands, *rule.results) if layout is not None]
    minor = {factor for layout in layouts for dim in layout for factor in dim[1:]}
    factors: list[int] = []
    for index, factor in enumerate(rule.factors):
        in_results = [_dim_of(layout, index) != REPLICATED for layout in rule.results]
        fits = all(in_results) if factor.kind == PASS else not any(in_results)
        if factor.kind != NEED and index not in minor and fits:
            factors.append(index)
    return tuple(factors)


def strategies_of(
    rule: Rule, mesh: Mesh, same_operands: Sequence[tuple[int, int]] = ()
) -> Strategies:
    """Enumerate the legal strategies of a rule.

    Args:
        rule: factors and layouts of the operator.
        mesh: the devices.
        same_operands: pairs of operands that are one tensor, and so need one sharding.
    """
    choices: list[tuple[int, ...]] = []
    splittable = splittable_factors(rule)
    for axis, size in enumerate(mesh.sizes):
        legal = [f for f in splittable if size != 1 and mesh.divides([axis], rule.factors[f].size)]
        choices.append((NO_FACTOR, *legal))
    strategies: list[Strategy] = []
    for factors in itertools.product(*choices):
        if _divides(rule, mesh, factors):
            operands = tuple(
                None if layout is None else _sharding(rule, layout, factors, is_result=False)
                for layout in rule.operands
            )
            results = tuple(
                _sharding(rule, layout, factors, is_result=True) for layout in rule.results
            )
            if all(operands[a] == operands[b] for a, b in same_operands):
                exchange = _exchange(rule, mesh, factors)
                strategies.append(Strategy(factors, operands, results, exchange))
    return Strategies(rule, tuple(strategies))


def _divides(rule: Rule, mesh: Mesh, factors: tuple[int, ...]) -> bool:
    """Return True if the axes on each factor together divide it, and each halo is in one piece."""
    split = [halo for halo in rule.halos if halo.factor in factors]
    if len(split) > 1 or any(not _is_near(rule, mesh, factors, halo) for halo in split):
        return False
    for factor in {*factors} - {NO_FACTOR}:
        axes = [axis for axis, split in enumerate(factors) if split == factor]
        if len(axes) > 1 and not mesh.divides(axes, rule.factors[factor].size):
            return False
    return True


def _is_near(rule: Rule, mesh: Mesh, factors: tuple[int, ...], halo: Halo) -> bool:
    """Return True if one mesh axis splits the dimension and the next piece has all of the halo."""
    axes = [axis for axis, split in enumerate(factors) if split == halo.factor]
    layout = rule.operands[0]
    if len(axes) > 1 or layout is None or mesh.sizes[axes[0]] == SYMBOLIC:
        return False
    size = math.prod(rule.factors[factor].size for factor in layout[halo.dim])
    return size // mesh.sizes[axes[0]] >= max(halo.before, halo.after)


def _exchange(rule: Rule, mesh: Mesh, factors: tuple[int, ...]) -> Exchange | None:
    for halo in rule.halos:
        if halo.factor in factors:
            axis = factors.index(halo.factor)
            return Exchange(halo, axis, mesh.sizes[axis])
    return None


def _sharding(rule: Rule, layout: Layout, factors: tuple[int, ...], *, is_result: bool) -> Sharding:
    placed: list[int] = []
    for factor in factors:
        dim = REPLICATED if factor == NO_FACTOR else _dim_of(layout, factor)
        if is_result and factor != NO_FACTOR and rule.factors[factor].kind == REDUCE:
            dim = rule.factors[factor].combine
        placed.append(dim)
    return tuple(placed)


def _dim_of(layout: Layout, factor: int) -> int:
    for dim, factors in enumerate(layout):
        if factor in factors:
            return dim
    return REPLICATED
