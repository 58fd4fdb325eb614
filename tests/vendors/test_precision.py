"""In float64 every shipped fusion keeps the digits of the model, whatever the opset."""

from __future__ import annotations

import re
from math import pi, sqrt
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost.verify import compare

VENDORS = Path(__file__).parents[2] / "vendors"
OPSETS = (13, 17, 18, 20, 22, 23, 24)
AXES_ARE_AN_INPUT = 18
EPSILON = 1e-5 / 3
"""Not a float32."""

GELU_TANH = """c = Pow(x, three) k = Mul(c, cubic) s = Add(x, k) a = Mul(s, factor) t = Tanh(a)
    e = Add(t, one) h = Mul(x, half) y = Mul(h, e)"""
LAYER_NORMALIZATION = """m = MEAN(x) d = Sub(x, m) d2 = Mul(d, d) v = MEAN(d2) ve = Add(v, epsilon)
    r = Sqrt(ve) n = Div(d, r) s = Mul(n, scale) y = Add(s, bias)"""
RMS_NORMALIZATION = """x2 = Mul(x, x) v = MEAN(x2) ve = Add(v, epsilon) r = Sqrt(ve) n = Div(x, r)
    y = Mul(n, scale)"""
SCALED = (
    """wt = Transpose<perm = [1, 0]>(w) p = MatMul(x, wt) q = Mul(p, eighth) y = Add(q, bias)"""
)
LINEAR_GELU = """p = MatMul(x, w) q = Add(p, bias) y = Gelu<approximate = "tanh">(q)"""
CASES = {
    "tanh": ("GeluTanhFusionPass", GELU_TANH, 1),
    "layer normalization": ("LayerNormalizationFusionPass", LAYER_NORMALIZATION, 1),
    "rms normalization": ("RMSNormalizationFusionPass", RMS_NORMALIZATION, 1),
    "product": ("MatMulAddToGemmPass", "p = MatMul(x, w) y = Add(p, bias)", 1),
    "scaled product": ("FuseScaledMatMulAddPass", SCALED, 1),
    "stacked product": ("FlattenBatchMatMulAddPass", "p = MatMul(x, w) y = Add(p, bias)", 1),
    "linear": ("fused_gemm_epilogue_pass", "p = MatMul(x, w) q = Add(p, bias) y = Relu(q)", 1),
    "linear gelu": ("fused_gemm_epilogue_pass", LINEAR_GELU, 20),
    "sum": ("add_to_sum", "p = Add(x, bias) q = Add(p, scale) y = Add(q, x)", 1),
}
"""The pass, the body of a model, and the first opset that has its operators."""


def model_of(body: str, opset: int, shape: list[int]) -> onnx.ModelProto:
    body = body.replace("MEAN(x)", "MEAN(x, last)").replace("MEAN(d2)", "MEAN(d2, last)")
    body = body.replace("MEAN(x2)", "MEAN(x2, last)").replace("MEAN", "ReduceMean")
    if opset < AXES_ARE_AN_INPUT:
        body = body.replace(", last", "").replace("ReduceMean", "ReduceMean<axes = [-1]>")
    rng = np.random.default_rng(3)
    weights = {
        "three": 3.0,
        "cubic": 0.044715,
        "factor": sqrt(2 / pi),
        "one": 1.0,
        "half": 0.5,
        "eighth": 0.125,
        "epsilon": EPSILON,
        "last": np.array([-1]),
        "scale": rng.standard_normal(8),
        "bias": rng.standard_normal(8),
        "w": rng.standard_normal((8, 8)),
    }
    text = f"""<ir_version: {11 if opset >= 23 else 8}, opset_import: ["": {opset}]>
        g (double{shape} x) => (double{shape} y) {{ {body} }}"""
    read = set(re.findall(r"\w+", text))
    return parse(
        text, {name: np.asarray(weight) for name, weight in weights.items() if name in read}
    )


@pytest.fixture(scope="module")
def loaded() -> Host:
    return Host(HostOptions(vendors=[VENDORS]))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("opset", OPSETS)
def test_float64_keeps_its_digits(case: str, opset: int, loaded: Host) -> None:
    name, body, first = CASES[case]
    shape = [2, 3, 8] if "stacked" in case else [6, 8]
    model = model_of(body, max(opset, first), shape)
    others = [other for other in loaded.passes.names() if other != name]
    result, report = loaded.with_options(enable=[name], disable=others).run(model)
    assert sum(record.replaced for record in report.passes) == 1
    # In the tail, where 1 + tanh cancels, rounding alone moves the result by more.
    feeds = [{"x": np.linspace(-1.5, 2.0, 48).reshape(shape)}]
    match = compare(model, result, feeds, rtol=1e-13, atol=1e-14)
    assert match.equal, match.summary()
