"""Products with constant matrices: bias, activation, several of one tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gehost import REG_FUSION_PASS, CustomPassStage, EsTensor, es
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic import LinearCall, LinearFusionPass
from plugins.semantic.tests.test_passes import calls, run
from tools.semantic.check import random_feed

REPOSITORY = Path(__file__).parents[3]
AFTER = CustomPassStage.kAfterInferShape
WEIGHTS = {"w": (8, 6), "w2": (8, 6), "w3": (8, 4), "t": (6, 8), "v": (6,), "v3": (4,)}
CONSTANTS = "float half = {0.5}, float one = {1}, float root = {1.4142135}"


@REG_FUSION_PASS(stage=AFTER)
class Plain(LinearFusionPass):
    takes = ()

    def Replacement(self, linear: LinearCall) -> EsTensor:
        return es.op("npu::Linear")(linear.x, linear.weight)


@REG_FUSION_PASS(stage=AFTER)
class Rich(LinearFusionPass):
    takes = ("bias", "relu", "gelu", "silu", "transposed", "packed")

    def Replacement(self, linear: LinearCall) -> EsTensor:
        return es.op("npu::Linear")(
            linear.x,
            linear.weight,
            linear.bias,
            activation=linear.activation,
            transposed=int(linear.is_transposed),
        )


@REG_FUSION_PASS(stage=AFTER)
class Packed(Plain):
    takes = ("packed",)


def model(
    body: str, inputs: str = "float[b, s, 8] x", outputs: str = "float[?] y"
) -> onnx.ModelProto:
    generator = np.random.default_rng(0)
    names = [name for name in WEIGHTS if f" {name})" in body or f" {name}," in body]
    listing = "".join(f", float{[*WEIGHTS[name]]} {name}" for name in names)
    proto = parse(
        f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}{listing}) => ({outputs}) '
        f"<{CONSTANTS}> {{ {body} }}"
    )
    for name in names:
        array = generator.standard_normal(WEIGHTS[name]).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
        position = [value.name for value in proto.graph.input].index(name)
        del proto.graph.input[position]
    return proto


def assert_equal(before: onnx.ModelProto, after: onnx.ModelProto, sizes: dict[str, int]) -> None:
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    feed = random_feed(graph, sizes, np.random.default_rng(1))
    for one, other in zip(run(before, feed), run(after, feed), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


GELU = "z = Div (m, root) e = Erf (z) a = Add (e, one) h = Mul (m, a) y = Mul (h, half)"
FORMS = {
    # body, inputs of x, the kernel's activation, nodes that stay beside it
    "product": ("y = MatMul (x, w)", "float[b, s, 8] x", "", 0),
    "bias": ("p = MatMul (x, w) y = Add (v, p)".replace("(v, p)", "(p, v)"), "float[b, s, 8] x", "", 0),
    "relu": ("p = MatMul (x, w) m = Add (p, v) y = Relu (m)", "float[b, s, 8] x", "relu", 0),
    "gelu": ("p = MatMul (x, w) m = Add (p, v) " + GELU, "float[b, s, 8] x", "gelu", 0),
    "silu": ("m = MatMul (x, w) g = Sigmoid (m) y = Mul (m, g)", "float[b, s, 8] x", "silu", 0),
    "tanh": ("p = MatMul (x, w) m = Add (p, v) y = Tanh (m)", "float[b, s, 8] x", "", 1),
    "gemm": ("m = Gemm (x, w, v) y = Relu (m)", "float[s, 8] x", "relu", 0),
    "transposed": ("m = Gemm <transB = 1> (x, t, v) y = Relu (m)", "float[s, 8] x", "relu", 0),
    "read inside": (
        "p = MatMul (x, w) m = Add (p, v) r = Relu (m) y = Add (r, m)", "float[b, s, 8] x", "", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernel", [Plain, Rich])
@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_takes_its_place_with_equal_numbers(
    name: str, kernel: type[LinearFusionPass]
) -> None:
    body, inputs, activation, others = FORMS[name]
    before = model(body, inputs)
    after, record = run_pass(before, kernel, cleanup=True)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    (call,) = calls(after)
    if kernel is Rich:
        attributes = {item.name: item for item in call.attribute}
        assert attributes["activation"].s.decode() == activation
        assert len(after.graph.node) == 1 + others
    assert_equal(before, after, {"b": 2, "s": 3})
    assert_equal(before, after, {"b": 1, "s": 1})


def test_products_of_one_tensor_become_one() -> None:
    body = """p = MatMul (x, w) q = Add (p, v) k = MatMul (x, w2) r = MatMul (x, w3)
        s0 = Add (r, v3)"""
    before = model(body, outputs="float[?] q, float[?] k, float[?] s0")
    after, record = run_pass(before, Rich, cleanup=True)
    assert (record.replaced, dict(record.rejected), len(calls(after))) == (1, {}, 1)
    assert not [node for node in after.graph.node if node.op_type in ("MatMul", "Add")]
    assert_equal(before, after, {"b": 2, "s": 3})
    alone, record = run_pass(before, Plain, cleanup=True)
    assert (record.replaced, len(calls(alone))) == (3, 3)
    assert_equal(before, alone, {"b": 2, "s": 3})


def test_a_gemm_s_bias_is_added_behind_a_kernel_that_takes_none() -> None:
    body = "q = Gemm (x, w, v) k = MatMul (x, w2) r = Gemm (x, w3, v3) s0 = Relu (r)"
    before = model(body, "float[s, 8] x", "float[?] q, float[?] k, float[?] s0")
    after, record = run_pass(before, Packed, cleanup=True)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    assert_equal(before, after, {"s": 3})


def test_products_that_depend_on_each_other_stay_apart() -> None:
    body = "p = MatMul (x, w) c = ReduceMean (p) k0 = MatMul (x, w2) k = Mul (k0, c) y = Add (k, p)"
    before = model(body)
    after, record = run_pass(before, Rich, cleanup=True)
    assert record.replaced + sum(record.rejected.values()) == 1
    assert_equal(before, after, {"b": 2, "s": 3})


@pytest.mark.parametrize(
    ("key", "body", "inputs"),
    [
        ("weight", "y = MatMul (x, k)", "float[b, s, 8] x, float[8, 4] k"),
        ("x", "y = MatMul (x, w)", "float[8] x"),
        ("attributes", "y = Gemm <alpha = 0.5> (x, w, v)", "float[s, 8] x"),
        ("bias", "y = Gemm (x, w, k)", "float[s, 8] x, float[s, 6] k"),
    ],
)
def test_another_product_is_refused_with_the_reason(key: str, body: str, inputs: str) -> None:
    _, record = run_pass(model(body, inputs), Rich)
    assert (record.replaced, dict(record.rejected)) == (0, {key: 1})


@pytest.mark.parametrize(
    ("path", "count"), [("tests/models/bert.ts17.onnx", 10), ("tests/models/gpt2.ts17.onnx", 8)]
)
def test_it_fires_on_exports_with_equal_numbers(path: str, count: int) -> None:
    before = onnx.load(REPOSITORY / path)
    for kernel in (Plain, Rich):
        after, record = run_pass(before, kernel, cleanup=True)
        assert record.replaced >= count - 4 * (kernel is Rich)
        assert_equal(before, after, {"batch": 2, "seq": 7})
