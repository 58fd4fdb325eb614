"""Whole models of today under plans that pins force: equal to the model on one device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.padding import Request, pad_model
from gehost_sharding.plan import Planner
from gehost_sharding.propagation import Pin
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, Array, assert_equal, feeds_of, graph_of, reread, split_run, whole_run

DECODER = """(float[4,8,32] x) => (float[4,8,40] y) {
    n = RMSNormalization (x, g1)
    q = MatMul (n, wq) k = MatMul (n, wk) v = MatMul (n, wv)
    a = Attention <q_num_heads = 4, kv_num_heads = 2, is_causal = 1> (q, k, v)
    o = MatMul (a, wo)
    r = Add (x, o)
    m = RMSNormalization (r, g2)
    c = MatMul (m, router)
    rows = Constant <value = int64[2] {32, 4}> ()
    p = Reshape (c, rows)
    e = com.microsoft.QMoE <k = 2, activation_type = "silu", expert_weight_bits = 4>
        (m, p, f1, s1, , f2, s2)
    z = Add (r, e)
    y = MatMul (z, head)
}"""
DECODER_SHAPES = {
    "g1": (32,), "g2": (32,), "wq": (32, 32), "wk": (32, 16), "wv": (32, 16), "wo": (32, 32),
    "router": (32, 4), "head": (32, 40), "s1": (4, 32), "s2": (4, 32),
}  # fmt: skip
EMBEDDING = """(int64[2,7] ids) => (float[2,7,51] y) {
    e = Gather (table, ids)
    n = LayerNormalization (e, g, b)
    u = MatMul (n, w1)
    t = Gelu (u)
    d = MatMul (t, w2)
    r = Add (e, d)
    y = MatMul (r, out)
}"""
EMBEDDING_SHAPES = {
    "table": (51, 16), "g": (16,), "b": (16,), "w1": (16, 27), "w2": (27, 16), "out": (16, 51),
}  # fmt: skip
CONVOLUTIONS = """(float[1,3,32,32] x) => (float[1,10] y) {
    a = Conv <pads = [1,1,1,1]> (x, c1, b1)
    b = Relu (a)
    p = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1], strides = [2,2]> (b)
    c = Conv <pads = [2,2,2,2], group = 8> (p, c2)
    d = Conv (c, c3)
    e = InstanceNormalization (d, s3, b3)
    f = Relu (e)
    g = Conv <pads = [1,1,1,1], strides = [2,2]> (f, c4)
    h = Conv <pads = [2,2,2,2], dilations = [2,2]> (g, c5)
    i = Add (g, h)
    k = AveragePool <kernel_shape = [2,2], strides = [2,2]> (i)
    l = GlobalAveragePool (k)
    m = Flatten (l)
    y = Gemm <transB = 1> (m, fc, fb)
}"""
CONVOLUTION_SHAPES = {
    "c1": (8, 3, 3, 3), "b1": (8,), "c2": (8, 1, 5, 5), "c3": (16, 8, 1, 1), "s3": (16,),
    "b3": (16,), "c4": (16, 16, 3, 3), "c5": (16, 16, 3, 3), "fc": (10, 16), "fb": (10,),
}  # fmt: skip


def weights_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal(shape) * 0.3).astype(np.float32)
        for name, shape in shapes.items()
    }


def check(graph: ModelGraph, mesh_text: str, pins: str, original: ModelGraph | None = None) -> None:
    """Plan with the pins, split, run, compare."""
    mesh = Mesh.parse(mesh_text)
    planner = Planner(graph, mesh, SLOW, RuleTable())
    plan = planner.plan(pins=[Pin.parse(pin, graph, mesh) for pin in pins.split()])
    feeds = feeds_of(graph)
    expected = whole_run(original or graph, feeds)
    assert_equal(expected, split_run(reread(plan.assignment), feeds)[0])


@pytest.mark.parametrize("pins", ["x=0:data wq=1:model head=1:model", "e=1:model wo=0:model"])
def test_a_decoder_with_quantized_experts(pins: str) -> None:
    weights = weights_of(DECODER_SHAPES)
    weights["s1"], weights["s2"] = abs(weights["s1"]) * 0.1, abs(weights["s2"]) * 0.1
    rng = np.random.default_rng(1)
    for name in ("f1", "f2"):
        weights[name] = rng.integers(0, 256, (4, 32, 16)).astype(np.uint8)
    check(graph_of(DECODER, weights, 23), "data=2,model=2", pins)


def test_odd_rows_and_widths_are_split_by_padding() -> None:
    graph = graph_of(EMBEDDING, weights_of(EMBEDDING_SHAPES))
    texts = ["table=0:4", "w1=1:4", "w2=0:4", "out=1:4"]
    padded = pad_model(graph, [Request.parse(text, graph) for text in texts], RuleTable())
    check(ModelGraph(padded), "m=4", "table=0:m w1=1:m out=1:m", graph)


@pytest.mark.parametrize(
    ("mesh", "pins"),
    [
        ("s=4", " ".join(f"{name}=3:s" for name in "xabpcdefghi")),
        ("s=2,c=2", "x=2:s a=2:s d=2:s f=1:c f=2:s h=2:s"),
    ],
)
def test_convolutions_on_a_spatial_axis(mesh: str, pins: str) -> None:
    check(graph_of(CONVOLUTIONS, weights_of(CONVOLUTION_SHAPES)), mesh, pins)
