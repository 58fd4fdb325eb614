"""Elimination is exact: brute force, and scipy's mixed-integer solver on larger graphs."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from gehost_sharding import elimination
from gehost_sharding.elimination import TooWideError, evaluate, minimise

from .conftest import Array

Edges = list[tuple[int, int, Array]]


def random_problem(seed: int, most: int = 8) -> tuple[list[Array], Edges]:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, most + 1))
    states = rng.integers(1, 5, count)
    density = (0.2, 0.5, 0.9)[seed % 3]
    draw = (
        (lambda shape: rng.random(shape))
        if seed % 2
        else (lambda shape: rng.integers(0, 3, shape).astype(float))  # many ties
    )
    costs = [draw(size) for size in states]
    edges: Edges = [
        (u, v, draw((states[u], states[v])))
        for u, v in itertools.permutations(range(count), 2)
        if rng.random() < density
    ]
    return costs, edges


def brute_force(costs: list[Array], edges: Edges) -> float:
    return min(
        evaluate(costs, edges, states)
        for states in itertools.product(*(range(len(cost)) for cost in costs))
    )


@pytest.mark.parametrize("block", range(10))
def test_it_finds_the_minimum_of_brute_force(block: int) -> None:
    for seed in range(30 * block, 30 * block + 30):
        costs, edges = random_problem(seed, 7)
        minimum = minimise(costs, edges)
        expected = brute_force(costs, edges)
        assert minimum.cost == pytest.approx(expected, abs=1e-12), seed
        assert evaluate(costs, edges, minimum.states) == pytest.approx(expected, abs=1e-12), seed
        assert minimum.is_proven


def layered(seed: int, layers: int, states: int = 4) -> tuple[list[Array], Edges]:
    """Residual layers: every third vertex feeds the next layer and the one after."""
    rng = np.random.default_rng(seed)
    count = 3 * layers
    costs = [rng.random(states) for _ in range(count)]
    pairs = [(v - 1, v) for v in range(1, count)]
    pairs += [(v - 3, v) for v in range(3, count, 3)]
    pairs += [(0, v) for v in range(5, count, 40)]
    return costs, [(u, v, rng.random((states, states))) for u, v in pairs]


def milp(costs: list[Array], edges: Edges) -> float:
    """The same minimum by scipy's solver: a variable per state and per pair of states."""
    optimize = pytest.importorskip("scipy.optimize")
    sparse = pytest.importorskip("scipy.sparse")
    offset = np.cumsum([0, *(len(cost) for cost in costs)])
    weights = list(np.concatenate(costs))
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    right: list[float] = []

    def equation(terms: list[tuple[int, float]], total: float) -> None:
        for column, value in terms:
            rows.append(len(right))
            columns.append(column)
            values.append(value)
        right.append(total)

    for v, cost in enumerate(costs):
        equation([(int(offset[v]) + s, 1.0) for s in range(len(cost))], 1.0)
    for u, v, table in edges:
        first = len(weights)
        weights.extend(table.reshape(-1))
        for i in range(table.shape[0]):
            terms = [(first + i * table.shape[1] + j, 1.0) for j in range(table.shape[1])]
            equation([*terms, (int(offset[u]) + i, -1.0)], 0.0)
        for j in range(table.shape[1]):
            terms = [(first + i * table.shape[1] + j, 1.0) for i in range(table.shape[0])]
            equation([*terms, (int(offset[v]) + j, -1.0)], 0.0)
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=(len(right), len(weights)))
    integer = np.zeros(len(weights))
    integer[: offset[-1]] = 1
    solved = optimize.milp(
        np.array(weights),
        constraints=optimize.LinearConstraint(matrix, right, right),
        integrality=integer,
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    assert solved.success
    return float(solved.fun)


@pytest.mark.parametrize(("seed", "layers"), [(0, 20), (1, 60), (2, 166)])
def test_it_finds_the_minimum_of_an_integer_program(seed: int, layers: int) -> None:
    costs, edges = layered(seed, layers)
    assert minimise(costs, edges).cost == pytest.approx(milp(costs, edges), rel=1e-6)


def kinds(costs: list[Array], edges: Edges) -> Counter[str]:
    minimum = minimise(costs, edges)
    return Counter(step.kind for component in minimum.components for step in component.log)


def tables(*pairs: tuple[int, int]) -> tuple[list[Array], Edges]:
    rng = np.random.default_rng(0)
    count = max(map(max, pairs)) + 1
    return [rng.random(2) for _ in range(count)], [(u, v, rng.random((2, 2))) for u, v in pairs]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(0, 2), (1, 2), (0, 2)], {"edge": 1, "merge": 1}),
        ([(0, 1), (1, 2), (0, 3), (2, 3)], {"operator": 1, "triangle": 1, "edge": 1}),
        ([(0, 1), (0, 2), (1, 2)], {"triangle": 1, "edge": 1}),
        ([(0, 2), (1, 2), (2, 3), (2, 4)], {"merge": 2, "contract": 1}),
        (list(itertools.combinations(range(5), 2)), {"star": 2, "triangle": 1}),
    ],
)
def test_eliminations_have_mindspores_names(
    pairs: list[tuple[int, int]], expected: dict[str, int]
) -> None:
    counts = kinds(*tables(*pairs))
    assert {kind: counts[kind] for kind in expected} == expected


def test_each_component_is_shrunk_to_two_vertices_and_recovered_in_reverse() -> None:
    costs, edges = tables((0, 1), (1, 2), (2, 3), (4, 5), (5, 6))
    minimum = minimise(costs, edges)
    assert [len(component.last) for component in minimum.components] == [2, 2]
    for component in minimum.components:
        removed = [step.vertex for step in component.log if step.kind != "edge"]
        assert [vertex for vertex, _ in component.recovery] == removed[::-1]
        assert component.last_costs.shape == (2, 2)


def test_a_planted_error_in_a_table_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding the transposed table gives another minimum than brute force on some graph."""
    fold = elimination._Search._fold_pair

    def wrong(search: object, vertex: int, neighbours: tuple[int, ...], own: list) -> object:
        for factor in own:
            if factor.table.shape[0] == factor.table.shape[1]:
                factor.table = factor.table.T
        return fold(search, vertex, neighbours, own)  # type: ignore[arg-type]

    monkeypatch.setattr(elimination._Search, "_fold_pair", wrong)
    errors = 0
    for seed in range(60):
        costs, edges = random_problem(seed, 6)
        errors += abs(minimise(costs, edges).cost - brute_force(costs, edges)) > 1e-9
    assert errors


def test_pruning_keeps_an_optimum() -> None:
    """Dense graphs, where states that can never win are dropped before star eliminations."""
    pruned = 0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        costs = [rng.random(5) * 3 for _ in range(6)]
        edges: Edges = [
            (u, v, rng.random((5, 5)) * 0.2) for u, v in itertools.combinations(range(6), 2)
        ]
        minimum = minimise(costs, edges)
        pruned += sum(component.pruned for component in minimum.components)
        assert minimum.cost == pytest.approx(brute_force(costs, edges))
        assert evaluate(costs, edges, minimum.states) == pytest.approx(minimum.cost)
    assert pruned


def test_above_the_width_limit_vertices_are_held_and_the_result_is_not_proven() -> None:
    rng = np.random.default_rng(3)
    count = 9
    costs = [rng.random(4) for _ in range(count)]
    edges: Edges = [(u, v, rng.random((4, 4))) for u, v in itertools.combinations(range(count), 2)]
    with pytest.raises(TooWideError):
        minimise(costs, edges, most_cells=500)
    minimum = minimise(costs, edges, may_hold=dict.fromkeys(range(5), 0), most_cells=500)
    assert minimum.fixed
    assert not minimum.is_proven
    assert all(minimum.states[vertex] == 0 for vertex in minimum.fixed)
    assert evaluate(costs, edges, minimum.states) == pytest.approx(minimum.cost)
    assert minimum.cost >= minimise(costs, edges).cost - 1e-12
