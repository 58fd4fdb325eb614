"""Padding: larger dimensions inside, equal outputs, and a mesh that divides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from gehost import UsageError
from gehost_sharding.cli import shard
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.padding import Request, pad_model
from gehost_sharding.plan import Planner
from gehost_sharding.propagation import Pin
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, Array, assert_equal, feeds_of, graph_of, reread, split_run, whole_run
from .test_random_splits import BLOCKS, chain

VOCABULARY = """(int64[3,5] ids, float[3,5,1] s) => (float[3,5,13] z, float[3,13] m) {
    x = Gather (table, ids)
    y = Mul (x, s)
    rows = Constant <value = int64[2] {15, 8}> ()
    flat = Reshape (y, rows)
    t = Tanh (flat)
    cube = Constant <value = int64[3] {3, 5, 8}> ()
    back = Reshape (t, cube)
    l = MatMul (back, head)
    z = Add (l, bias)
    p = Softmax <axis = -1> (z)
    axis = Constant <value = int64[1] {1}> ()
    m = ReduceSum <keepdims = 0> (p, axis)
}"""


def vocabulary() -> ModelGraph:
    rng = np.random.default_rng(0)
    shapes = {"table": (13, 8), "head": (8, 13), "bias": (13,)}
    weights: dict[str, Array] = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    return graph_of(VOCABULARY, weights)


def padded(graph: ModelGraph, *texts: str) -> ModelGraph:
    requests = [Request.parse(text, graph) for text in texts]
    model = pad_model(graph, requests, RuleTable())
    onnx.checker.check_model(model)
    return ModelGraph(model)


def test_a_vocabulary_and_a_batch_that_no_axis_divides_are_split() -> None:
    graph = vocabulary()
    mesh = Mesh.parse("data=2,model=2")
    larger = padded(graph, "table=0:2", "head=1:2", "ids=0:2")
    assert larger.inputs == graph.inputs
    assert larger.outputs == graph.outputs
    assert larger.tensors["l/padded"].shape == (4, 5, 14)
    assert larger.tensors["flat/padded"].shape == (20, 8)
    tables = [name for name in larger.readers if name.startswith(("table", "head"))]
    pins = [f"{name}={0 if name[0] == 't' else 1}:model" for name in tables]
    planner = Planner(larger, mesh, SLOW, RuleTable())
    plan = planner.plan(pins=[Pin.parse(pin, larger, mesh) for pin in [*pins, "l/padded=0:data"]])
    feeds = feeds_of(graph)
    feeds["ids"] = feeds["ids"] - 13 * (np.arange(5) % 2)  # some count from the end
    expected = whole_run(graph, feeds)
    assert_equal(expected, whole_run(larger, feeds))
    assert_equal(expected, split_run(reread(plan.assignment), feeds)[0])


@pytest.mark.parametrize("seed", range(96))
def test_random_chains_are_equal_with_padding(seed: int) -> None:
    """The batch, and each dimension of each weight, of every block."""
    rng = np.random.default_rng(seed)
    names = [list(BLOCKS)[seed % len(BLOCKS)], str(rng.choice(list(BLOCKS)))]
    graph = chain(seed, names)
    texts = ["x=0:3"] if seed % 2 else ["x=0:8"]
    for name in graph.readers:
        tensor = graph.tensors[name]
        if graph.is_constant(name) and tensor.dtype.kind == "f":
            texts += [f"{name}={dim}:3" for dim in range(len(tensor.shape)) if rng.random() < 0.5]
    feeds = feeds_of(graph, seed)
    larger = padded(graph, *texts)
    is_whole = names[0] in {"lstm", "gru", "scatter_nd"}  # dimension 0 is time, or is indexed
    assert is_whole or any(name.startswith("x/padded") for name in larger.tensors)
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))


def test_a_division_by_padding_is_avoided() -> None:
    graph = graph_of("(int64[3,4] x) => (int64[3,4] z) { o = Abs (x) z = Div (x, o) }")
    feeds = {"x": np.arange(1, 13).reshape(3, 4)}
    assert_equal(whole_run(graph, feeds), whole_run(padded(graph, "x=0:2"), feeds))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table=0", "write TENSOR=AXIS:MULTIPLE"),
        ("table=2:2", "has 2 dimensions"),
        ("y=0:2", "y is computed; pad the weight or input"),
        ("tabel=0:2", "the nearest: table"),
    ],
)
def test_requests_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Request.parse(text, vocabulary())


def test_the_command_writes_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = vocabulary()
    onnx.save(graph.proto, "m.onnx")
    result = CliRunner().invoke(shard, ["pad", "m.onnx", "--pad", "head=1:8", "-o", "p.onnx"])
    assert result.exit_code == 0, result.output
    feeds = feeds_of(graph)
    larger = ModelGraph(onnx.load("p.onnx"))
    assert larger.tensors["l/padded"].shape == (3, 5, 16)
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))
