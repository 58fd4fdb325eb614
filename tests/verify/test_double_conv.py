"""A convolution in float64 is the one of the reference, whatever its strides, pads and groups."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost.testing import parse
from gehost.verify import Runner
from gehost.verify.double_conv import decompose_convolutions

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("attributes", "weights", "axes"),
    [
        ("", (5, 4, 3, 3), 2),
        ("strides = [2, 3], pads = [1, 0, 2, 1]", (5, 4, 3, 2), 2),
        ("dilations = [2, 1], group = 2", (6, 2, 3, 2), 2),
        ("group = 4, pads = [1, 1, 1, 1], strides = [2, 2]", (4, 1, 3, 3), 2),
        ("group = 4", (8, 1, 1, 1), 2),
        ("pads = [2, 1], dilations = [3]", (3, 4, 2), 1),
        ('strides = [2, 1, 2], auto_pad = "VALID"', (2, 4, 2, 3, 1), 3),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_the_sum_over_positions_is_the_convolution(
    attributes: str, weights: tuple[int, ...], axes: int, bias: bool
) -> None:
    sizes = ", ".join(["N", "4", *["L"] * axes])
    inputs = {"w": np.random.default_rng(0).standard_normal(weights)}
    if bias:
        inputs["b"] = np.random.default_rng(1).standard_normal(weights[0])
    text = f"""<ir_version: 10, opset_import: ["": 21]>
    g (double[{sizes}] x) => (double y) {{ y = Conv <{attributes}> (x, w{", b" if bias else ""}) }}"""
    model = parse(text.replace("<>", ""), inputs)
    x = np.random.default_rng(2).standard_normal((2, 4, *(7, 8, 9)[:axes]))
    (expected,) = Runner(model, engine="reference").run({"x": x}).values()
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    decompose_convolutions(changed, None)
    assert "Conv" not in {node.op_type for node in changed.graph.node}
    (y,) = Runner(changed, engine="onnxruntime").run({"x": x}).values()
    assert y.shape == expected.shape
    assert np.allclose(y, expected, rtol=1e-12, atol=1e-12)
