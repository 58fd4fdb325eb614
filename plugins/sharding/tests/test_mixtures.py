"""Mixtures of experts: by experts in plain operators, by tokens in MoE."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_sharding.assignment import Assignment
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.padding import Request, pad_model
from gehost_sharding.partition import split_rank
from gehost_sharding.plan import Planner
from gehost_sharding.propagation import OperatorStrategies, Pin
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import Sharding

from .conftest import (
    SLOW,
    Array,
    assert_equal,
    feeds_of,
    graph_of,
    reread,
    session,
    split_run,
    whole_run,
)

MODELS = {
    "input": "f = Reshape (x, flat) y = com.microsoft.MoE <k = 2> (f, p, w, , w) z = Relu (y)",
    "read_later": """t = Tanh (x) f = Reshape (t, flat)
        y = com.microsoft.MoE <k = 2> (f, p, w, , w) z = Add (y, f)""",
}
"""Models whose input of MoE keeps its memory; the slices of a split are computed instead.

ONNX Runtime to 1.31.1 computes zeros where nothing reads the input of MoE behind it.
"""
SWITCH = """(float[4,8,16] x) => (float[4,8,16] z) {
    logits = MatMul (x, router)
    shares = Softmax (logits)
    best = ArgMax <axis = -1, keepdims = 0> (logits)
    chosen = OneHot (best, experts, off_on)
    counted = CumSum <exclusive = 1> (chosen, one)
    place = Mul (counted, chosen)
    places = ReduceSum <keepdims = 0> (place, last)
    numbers = Cast <to = 7> (places)
    at = OneHot (numbers, capacity, off_on)
    mask = Einsum <equation = "gse,gsc->gsec"> (chosen, at)
    sent = Einsum <equation = "gsec,gsm->egcm"> (mask, x)
    tokens = Reshape (sent, by_expert)
    inner = MatMul (tokens, w1)
    active = Gelu (inner)
    outer = MatMul (active, w2)
    back = Reshape (outer, by_group)
    scaled = Einsum <equation = "gsec,gse->gsec"> (mask, shares)
    y = Einsum <equation = "gsec,egcm->gsm"> (scaled, back)
    z = Add (x, y)
}"""
"""One expert a token, six places each in a group; later tokens pass the experts by."""
WHOLE, ROWS = (-1,), (0,)


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"p": (32, 4), "w": (4, 16, 16)}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return values | {"flat": np.array([32, 16])}


def assignment_of(model: str, strategies: list[int], specs: dict[str, Sharding]) -> Assignment:
    graph = graph_of(f"(float[4,8,16] x) => (float[32,16] z) {{ {MODELS[model]} }}", weights())
    mesh = Mesh.parse("data=2")
    choices = OperatorStrategies(graph, mesh, RuleTable())
    return Assignment(
        graph, mesh, choices, strategies, dict.fromkeys(graph.producer, WHOLE) | specs
    )


@pytest.mark.parametrize("z", [WHOLE, ROWS])
@pytest.mark.parametrize(
    ("model", "strategies", "specs"),
    [("input", [0, 1, 1], {"y": ROWS}), ("read_later", [0, 0, 0, 1], {})],
)
def test_a_rank_keeps_the_input_of_a_mixture(
    model: str, strategies: list[int], specs: dict[str, Sharding], z: Sharding
) -> None:
    assignment = assignment_of(model, strategies, specs | {"z": z})
    feeds = feeds_of(assignment.graph)
    expected = whole_run(assignment.graph, feeds)
    assert np.abs(expected["z"]).max() > 1
    actual, lock_step = split_run(assignment, feeds)
    assert_equal(expected, actual)
    if lock_step.sent == [0, 0]:  # a rank's file runs in ONNX Runtime as it is
        part = split_rank(assignment, 1).model
        (rows,) = session(part).run(["z"], feeds)
        np.testing.assert_allclose(rows, expected["z"][16:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_padding_keeps_the_input_of_a_mixture(model: str) -> None:
    graph = assignment_of(model, [0] * (3 if model == "input" else 4), {}).graph
    feeds = feeds_of(graph)
    larger = ModelGraph(pad_model(graph, [Request.parse("x=0:6", graph)]))
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))
    (mixture,) = [node for node in larger.proto.graph.node if node.op_type == "MoE"]
    assert larger.tensors[mixture.input[0]].shape == (48, 16)


def test_experts_in_plain_operators_exchange_tokens() -> None:
    """Groups of tokens and experts over one axis: tokens to the experts and back."""
    rng = np.random.default_rng(0)
    shapes = {"router": (16, 4), "w1": (4, 16, 32), "w2": (4, 32, 16)}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    numbers = {"experts": 4, "capacity": 6, "one": 1, "last": [-1], "by_expert": [4, 24, 16]}
    numbers["by_group"] = [4, 4, 6, 16]
    values |= {name: np.array(value) for name, value in numbers.items()}
    values["off_on"] = np.array([0, 1], np.float32)
    graph = graph_of(SWITCH, values)
    mesh = Mesh.parse("device=4")
    pins = [Pin.parse(pin, graph, mesh) for pin in ("x=0:device", "w1=0:device", "w2=0:device")]
    plan = Planner(graph, mesh, SLOW, RuleTable()).plan(pins=pins)
    assert plan.solved.by_collective()["all_to_all"]["count"] == 2
    feeds = feeds_of(graph)
    actual, lock_step = split_run(reread(plan.assignment), feeds)
    assert_equal(whole_run(graph, feeds), actual)
    assert lock_step.sent == [plan.solved.wire_bytes] * 4
