"""The depth-first search: order-dependent, neither sound nor complete."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from gehost.testing import parse
from gehost_sharding.depth_first import DepthFirstSearch
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.propagation import Propagation, strategy_graph
from gehost_sharding.rules.table import RuleTable

from .conftest import FUSED, graph_of


@pytest.fixture(scope="module")
def model() -> ModelGraph:
    return ModelGraph(parse(FUSED))


@pytest.fixture(scope="module")
def graph(model: ModelGraph) -> nx.MultiGraph:
    mesh = Mesh.symbolic()
    return strategy_graph(model, mesh, Propagation(model, mesh, RuleTable()).strategies)


def test_an_edge_never_holds_two_strategies_of_one_operator(graph: nx.MultiGraph) -> None:
    for _, _, strategies in graph.edges(data="strategies"):
        operators = [operator for operator, _ in strategies]
        assert len(operators) == len({*operators})


def test_alone_it_is_not_sound(graph: nx.MultiGraph) -> None:
    """From p14 split along 0 it allows every dimension of p9, through a shared scalar."""
    solution = DepthFirstSearch(graph).search(("p14", 0), {})
    assert solution is not None
    assert solution["p9"] == {-1, 0, 1, 2}
    assert solution["p13"] == {0}


def test_what_it_finds_depends_on_the_order_of_the_edges(graph: nx.MultiGraph) -> None:
    results: set[object] = set()
    for seed in range(30):
        edges = list(graph.edges(keys=True))
        random.Random(seed).shuffle(edges)
        solution = DepthFirstSearch(graph, edges).search(("p14", 0), {})
        assert solution is not None
        results.add(frozenset((name, solution[name]) for name in solution if name.startswith("p")))
    assert len(results) > 1


def test_alone_it_is_not_complete() -> None:
    """From a whole it finds no c that is split along 0, which is a solution."""
    text = "(float[4,4] a, float[4,4] b, float[4,4] c) => (float[4,4] z)"
    graph = graph_of(f"{text} {{ t = MatMul (c, b) z = MatMul (t, a) }}")
    mesh = Mesh.symbolic()
    propagation = Propagation(graph, mesh, RuleTable())
    solution = DepthFirstSearch(strategy_graph(graph, mesh, propagation.strategies)).search(
        ("a", -1), {}
    )
    assert solution is not None
    assert solution["c"] == {-1}
    solutions = [result.inputs for result in propagation.solutions()]
    assert {"a": (-1,), "b": (-1,), "c": (0,)} in solutions
