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
    assert larger.tensors["l"].shape == (4, 5, 14)
    assert larger.tensors["flat"].shape == (20, 8)
    pins = ["table=0:model", "head=1:model"]
    planner = Planner(larger, mesh, SLOW, RuleTable())
    plan = planner.plan(pins=[Pin.parse(pin, larger, mesh) for pin in [*pins, "l=0:data"]])
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
    larger = None
    while larger is None:
        try:
            larger = padded(graph, *texts)
        except UsageError as error:  # one that no operator can carry out
            texts.remove(str(error).split('"')[1])
    is_whole = names[0] in {"lstm", "gru", "scatter_nd"}  # dimension 0 is time, or is indexed
    assert is_whole or "x/padded" in larger.tensors
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))


MLP = """(float[3,6] x) => (float[3,6] z) {
    h = MatMul (x, w1)
    b = Add (h, b1)
    g = Div (b, two)
    e = Erf (g)
    o = Add (e, one)
    m = Mul (b, o)
    z = MatMul (m, w2)
}"""


def mlp(text: str = MLP) -> ModelGraph:
    rng = np.random.default_rng(0)
    shapes = {"w1": (6, 7), "b1": (7,), "w2": (7, 6), "v": (7,)}
    weights: dict[str, Array] = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
        if name in text
    }
    weights |= {"one": np.float32([1]), "two": np.float32([2])}
    return graph_of(text, {name: value for name, value in weights.items() if name in text})


@pytest.mark.parametrize("texts", [("w1=1:4", "w2=0:4"), ("w2=0:4",), ("w2=0:2", "w2=0:4")])
def test_a_product_sums_over_padding_that_is_asked_for(texts: tuple[str, ...]) -> None:
    graph = mlp()
    larger, feeds = padded(graph, *texts), feeds_of(graph)
    assert larger.tensors["w2"].shape == (8, 6)
    expected = whole_run(graph, feeds)
    assert_equal(expected, whole_run(larger, feeds))
    mesh = Mesh.parse("m=4")
    plan = Planner(larger, mesh, SLOW, RuleTable()).plan(pins=[Pin.parse("w2=0:m", larger, mesh)])
    assert_equal(expected, split_run(reread(plan.assignment), feeds)[0])
    if len(texts) == 2 and "w1" in texts[0]:  # padded throughout
        assert {node.op_type for node in larger.proto.graph.node} == {
            node.op_type for node in graph.proto.graph.node
        }


def test_padding_that_may_be_inf_or_nan_is_not_added() -> None:
    text = """(float[3,6] x) => (float[3,6] z) {
        h = MatMul (x, w1)
        m = Log (h)
        p = Abs (h)
        q = Log (p)
        z = MatMul (q, w2)
    }"""
    graph = mlp(text)
    feeds = feeds_of(graph)
    assert_equal(whole_run(graph, feeds), whole_run(padded(graph, "w1=1:4", "w2=0:4"), feeds))


def test_a_refused_request_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = graph_of("(float[3,7] x) => (float[3,7] z) { z = Softmax (x) }")
    onnx.save(graph.proto, "m.onnx")
    result = CliRunner().invoke(shard, ["pad", "m.onnx", "--pad", "x=1:4", "-o", "p.onnx"])
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert str(result.exception) == 'pad "x=1:4": Softmax z needs dimension 1 as it is'
    assert not Path("p.onnx").exists()


def test_a_table_keeps_its_name_where_its_rows_are_read_whole_too() -> None:
    text = """(float[3,7] x, int64[3,7] i) => (float[3,6] z, float[3,7,6] t, float[6] s) {
        z = MatMul (x, w2)
        t = Gather (w2, i)
        axis = Constant <value = int64[1] {0}> ()
        s = ReduceMax <keepdims = 0> (w2, axis)
    }"""
    graph = mlp(text)
    larger, feeds = padded(graph, "w2=0:4"), feeds_of(graph)
    feeds["i"] %= 7
    assert larger.tensors["w2"].shape == (8, 6)
    assert larger.tensors["w2/whole"].shape == (7, 6)
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))


@pytest.mark.parametrize(
    ("text", "requests", "message"),
    [
        ("(float[3,7] x) => (float[3,7] z) { z = CumSum <reverse = 1> (x, one) }", ["x=1:4"], "CumSum z needs dimension 1 as it is"),
        ("(float[3,7] x) => (float[3,7] z) { z = Add (x, v) }", ["x=1:4", "v=0:5"], "other requests make dimension 1 10"),
        ("(float[3,7] x, float[3] y) => (float[3,7] z) { z = Relu (x) }", ["y=0:4"], "nothing reads it"),
    ],
)  # fmt: skip
def test_requests_that_nothing_carries_out_are_refused(
    text: str, requests: list[str], message: str
) -> None:
    if "CumSum" in text:
        graph = graph_of(text.replace("{ z", "{ one = Constant <value = int64 {1}> () z"))
    else:
        graph = mlp(text)
    with pytest.raises(UsageError, match=message):
        padded(graph, *requests)


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
    assert larger.tensors["l"].shape == (3, 5, 16)
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))


@pytest.mark.parametrize(
    "activation",
    [
        "Gelu (b)",
        'Gelu <approximate = "tanh"> (b)',
        "Softsign (b)",
        "HardSwish (b)",
        "com.microsoft.Gelu (b)",
        "com.microsoft.FastGelu (b)",
        "com.microsoft.FastGelu (b, v)",
        "com.microsoft.QuickGelu <alpha = 1.5> (b)",
        "com.microsoft.BiasGelu (b, v)",
    ],
)
def test_every_activation_is_padded_throughout(activation: str) -> None:
    begin, end = MLP.index("g ="), MLP.index("z =")
    text = f"{MLP[:begin]}m = {activation} {MLP[end:]}"
    graph = mlp(text)
    larger, feeds = padded(graph, "w1=1:4", "w2=0:4"), feeds_of(graph)
    assert larger.tensors["m"].shape == (3, 8)
    assert_equal(whole_run(graph, feeds), whole_run(larger, feeds))
