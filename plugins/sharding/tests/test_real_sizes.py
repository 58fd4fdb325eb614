"""Decoders of real width: no manual plan is cheaper, and each is found where it is the best."""

from __future__ import annotations

import pytest

from gehost_sharding.cost_graph import Objective
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.picture import picture
from gehost_sharding.plan import Plan, Planner, Solved
from gehost_sharding.rules.table import RuleTable

from .real_sizes import CLUSTER, SIZES, manual_plans, real_decoder

LAYERS = 3


def plan_of(
    sizes: str, mesh_text: str, batch: int, length: int, price: float
) -> tuple[Plan, dict[str, float]]:
    """The plan, and the cost of each manual one."""
    graph = ModelGraph(real_decoder(SIZES[sizes], batch=batch, length=length, layers=LAYERS))
    mesh = Mesh.parse(mesh_text)
    planner = Planner(graph, mesh, CLUSTER, RuleTable())
    plan = planner.plan(objective=Objective(weights=price))
    assert plan.is_proven
    pins = manual_plans(graph, mesh, LAYERS, data=("node",), model=("gpu",))
    planner.compare(plan, pins)
    costs: dict[str, float] = {}
    for label in pins:
        result = plan.compared[label]
        assert isinstance(result, Solved), result
        costs[label] = result.minimum.cost
    return plan, costs


@pytest.mark.parametrize(
    ("best", "sizes", "mesh", "batch", "length", "price"),
    [
        ("tensor", "7B", "node=2,gpu=4", 2, 512, 1e-13),
        ("tensor", "7B", "node=8,gpu=8", 8, 256, 1e-13),
        ("tensor and sequence", "7B", "node=2,gpu=4", 2, 2048, 1e-12),
        ("ZeRO", "7B", "node=2,gpu=4", 32, 4096, 1e-11),
        ("tensor, experts", "8x7B", "node=8,gpu=8", 8, 512, 1e-13),
        ("ZeRO, experts", "8x7B", "node=8,gpu=8", 64, 1024, 1e-12),
        ("", "70B", "node=2,gpu=4", 2, 2048, 1e-11),
        ("", "70B", "node=64,gpu=8", 64, 1024, 5e-12),
        ("", "8x7B", "node=64,gpu=8", 64, 2048, 1e-11),
    ],
)
def test_no_manual_plan_is_cheaper_and_each_is_found(
    best: str, sizes: str, mesh: str, batch: int, length: int, price: float
) -> None:
    plan, costs = plan_of(sizes, mesh, batch, length, price)
    own = plan.solved.minimum.cost
    assert min(costs.values()) >= own * (1 - 1e-9)
    if best:
        assert costs[best] == pytest.approx(own, rel=1e-9)
        assert [label for label, cost in costs.items() if cost <= own * (1 + 1e-9)] == [best]


def test_experts_are_split_with_all_to_all() -> None:
    plan, _ = plan_of("8x7B", "node=8,gpu=8", 64, 1024, 1e-12)
    graph, assignment = plan.assignment.graph, plan.assignment
    for operator in graph.operators:
        if operator.label.endswith(("gate.y", "up.y", "down.y")):
            assert assignment.strategy(operator.index).operands[1][1:] == (0,)  # pyright: ignore[reportOptionalSubscript]
    assert plan.solved.by_collective()["all_to_all"]["count"] >= 2 * LAYERS


def test_under_a_capacity_no_priced_plan_that_fits_is_faster() -> None:
    """The first prices are so high that the search must come down by many powers of ten."""
    graph = ModelGraph(real_decoder(SIZES["8x7B"], batch=32, length=4096, layers=LAYERS))
    planner = Planner(graph, Mesh.parse("node=2,gpu=4"), CLUSTER, RuleTable())
    priced = planner.plan(objective=Objective(weights=1e-11)).solved
    memory = int(1.05 * priced.memory_bytes)
    plan = planner.plan(memory=memory).solved
    assert plan.memory_bytes <= memory
    assert plan.totals["seconds"] <= priced.totals["seconds"] * (1 + 1e-9)


def test_a_picture_draws_equal_layers_once() -> None:
    plan, _ = plan_of("7B", "node=2,gpu=4", 2, 512, 1e-13)
    lines = list(picture(plan.assignment))
    assert any(line.startswith("┌") and line.endswith("times") for line in lines)
    assert sum("Attention" in line for line in lines) < LAYERS
    assert any("all_reduce over gpu" in line for line in lines)
    labels = " ".join(lines)
    assert "l0.attended" in labels
    assert "head.y" in labels
