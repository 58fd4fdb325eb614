"""A Conv with its activation is one kernel of the runtime, with equal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import make_feeds

NUMBERS = "float low = {-0.5}, float[1] high = {0.75}, float[2] two = {0, 1}"
CONV = "c = Conv <pads = [1, 0, 0, 1], strides = [1, 2], group = 2> (x, w, b)"


def model(
    lines: str, *, opset: int = 17, outputs: str = "", dtype: str = "float"
) -> onnx.ModelProto:
    numbers = np.random.default_rng(0).standard_normal((4, 2, 2, 3))
    kind = {"float": np.float32, "double": np.float64}[dtype]
    return parse(
        f"""<ir_version: 10, opset_import: ["": {opset}]>
        g ({dtype}[N, 4, H, W] x, float given, {dtype}[4, 2, 2, 3] w, {dtype}[4] b)
            => ({dtype}[N, 4, P, Q] y{outputs}) <{NUMBERS}> {{ {lines} }}""",
        {"w": numbers.astype(kind), "b": numbers[:, 0, 0, 0].astype(kind)},
    )


@pytest.mark.parametrize(
    "last",
    [
        "y = Relu (c)", "y = Sigmoid (c)", "y = Tanh (c)", "y = LeakyRelu (c)", "y = LeakyRelu <alpha = 0.3> (c)",
        "y = HardSigmoid (c)", "y = HardSigmoid <alpha = 0.3, beta = 0.1> (c)",
        "y = Clip (c, low, high)", "y = Clip (c, low)", "y = Clip (c, , high)", "y = Clip (c)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("conv", [CONV, 'c = Conv <auto_pad = "SAME_UPPER", group = 2> (x, w)'])
def test_each_activation(host: Host, run: Any, conv: str, last: str) -> None:
    inputs = model(f"{conv} {last}")
    result, _ = host.run(inputs)
    assert [node.op_type for node in result.graph.node] == ["FusedConv"]
    onnx.checker.check_model(result)
    feeds = make_feeds(inputs)
    for both in ("whole", "without kernels"):
        if both != "whole":  # the body is that of the function
            result.opset_import[1].domain = result.graph.node[0].domain = result.functions[
                0
            ].domain = "x"
        np.testing.assert_allclose(
            run(result, feeds)["y"], run(inputs, feeds)["y"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("lines", "outputs", "dtype", "key"),
    [
        (f"{CONV} y = Relu (c)", ", float[N, 4, P, Q] c", "float", "shared"),
        (f"{CONV} r = Relu (c) y = Add (r, c)", "", "float", "shared"),
        (f"{CONV} y = Clip (c, given)", "", "float", "bounds"),
        (f"{CONV} y = Relu (c)", "", "double", "dtype"),
    ],
)
def test_near_misses_stay(host: Host, lines: str, outputs: str, dtype: str, key: str) -> None:
    result, report = host.run(model(lines, outputs=outputs, dtype=dtype))
    assert "FusedConv" not in [node.op_type for node in result.graph.node]
    (record,) = [one for one in report.passes if one.name == "OrtConvActivationPass"]
    assert set(record.rejected) == {key}
