"""Strategies: one factor or none per axis."""

from __future__ import annotations

import pytest

from gehost_sharding.mesh import Mesh
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import PARTIAL_SUM
from gehost_sharding.strategies import strategies_of

from .conftest import graph_of

MATMUL = "(float[4,8] x, float[8,6] y) => (float[4,6] z) { z = MatMul (x, y) }"


@pytest.mark.parametrize(
    ("mesh", "count"),
    [
        (Mesh.parse("a=2"), 4),  # none, m, n, k
        (Mesh.parse("a=2,b=2"), 15),  # 16 but n = 6 over both
        (Mesh.parse("a=4"), 3),  # none, m, k
        (Mesh.parse("a=2,b=1"), 4),
        (Mesh.parse("a=7"), 1),
        (Mesh.symbolic(), 4),
    ],
)
def test_axes_divide_their_factor_together(mesh: Mesh, count: int) -> None:
    graph = graph_of(MATMUL)
    strategies = strategies_of(RuleTable().rule_of(graph, graph.operators[0]), mesh)
    assert len(strategies) == count
    assert set(strategies.choices[0].factors) == {-1}


def test_a_strategy_fixes_operands_and_results() -> None:
    graph = graph_of(MATMUL)
    strategies = strategies_of(
        RuleTable().rule_of(graph, graph.operators[0]), Mesh.parse("a=2,b=4")
    )
    by_operands = {strategy.operands: strategy for strategy in strategies.choices}
    columns_of_summands = by_operands[(1, 0), (0, -1)]
    assert columns_of_summands.results == ((PARTIAL_SUM, 0),)
    assert columns_of_summands.is_partial


def test_one_tensor_read_twice_has_one_sharding() -> None:
    graph = graph_of("(float[4,4] x) => (float[4,4] z) { z = MatMul (x, x) }")
    rule = RuleTable().rule_of(graph, graph.operators[0])
    assert len(strategies_of(rule, Mesh.parse("a=2"))) == 4
    same = strategies_of(rule, Mesh.parse("a=2"), [(0, 1)])
    assert all(strategy.operands[0] == strategy.operands[1] for strategy in same.choices)
