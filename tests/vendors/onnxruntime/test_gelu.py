"""Gelu with a bias and by a sigmoid are the runtime's kernels, in every type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host
from gehost.verify import make_feeds
from tests.vendors.onnxruntime.test_half import widened

TYPES = {
    "float": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "double": np.dtype(np.float64),
}


def model(lines: str, dtype: str, opset: int = 20, outputs: str = "") -> onnx.ModelProto:
    result = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}]>
        g ({dtype}[B, S, 4] x) => ({dtype}[B, S, 4] y{outputs}) {{ {lines} }}"""
    )
    for name, numbers in (("b", [1.0, -2.0, 0.5, 0.0]), ("k", 1.702)):
        array = np.array(numbers).astype(TYPES[dtype])
        result.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return result


def refused(host: Host, model: onnx.ModelProto, name: str) -> set[str]:
    _, report = host.run(model)
    (record,) = [one for one in report.passes if one.name == name]
    return set(record.rejected)


@pytest.mark.parametrize("dtype", ["float", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("a = Add (x, b) y = Gelu (a)", "BiasGelu"),
        ("a = Add (b, x) y = Gelu (a)", "BiasGelu"),
        ("a = Mul (x, k) s = Sigmoid (a) y = Mul (x, s)", "QuickGelu"),
        ("a = Mul (k, x) s = Sigmoid (a) y = Mul (s, x)", "QuickGelu"),
        ("s = Sigmoid (x) y = Mul (s, x)", "QuickGelu"),
    ],
)
def test_they_are_fused(host: Host, run: Any, dtype: str, lines: str, expected: str) -> None:
    inputs = model(lines, dtype)
    result, _ = host.run(inputs)
    assert [node.op_type for node in result.graph.node] == [expected]
    onnx.checker.check_model(result)
    feeds = make_feeds(widened(inputs))
    before, after = run(widened(inputs), feeds), run(widened(result), feeds)
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("lines", "name", "key"),
    [
        ("y = Gelu (x)", "OrtBiasGeluPass", "bias"),
        ('a = Add (x, b) y = Gelu <approximate = "tanh"> (a)', "OrtBiasGeluPass", "tanh"),
        ("s = Sigmoid (x) y = Mul (s, s)", "OrtQuickGeluPass", "product"),
        ("s = Sigmoid (x) n = Neg (x) y = Mul (s, n)", "OrtQuickGeluPass", "product"),
        ("a = Add (x, k) s = Sigmoid (a) y = Mul (s, x)", "OrtQuickGeluPass", "product"),
        ("a = Mul (x, b) s = Sigmoid (a) y = Mul (s, x)", "OrtQuickGeluPass", "product"),
    ],
)
def test_near_misses_stay(host: Host, lines: str, name: str, key: str) -> None:
    assert refused(host, model(lines, "float"), name) == {key}


def test_what_others_read_stays(host: Host) -> None:
    outputs = ", float[B, S, 4] a"
    inputs = model("a = Add (x, b) y = Gelu (a)", "float", outputs=outputs)
    assert refused(host, inputs, "OrtBiasGeluPass") == {"shared"}
    inputs = model("a = Mul (x, k) s = Sigmoid (a) y = Mul (x, s)", "float", outputs=outputs)
    assert refused(host, inputs, "OrtQuickGeluPass") == {"shared"}


def test_a_bias_that_widens_stays(host: Host) -> None:
    inputs = model("a = Add (x, b) y = Gelu (a)", "float")
    inputs.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1
    assert refused(host, inputs, "OrtBiasGeluPass") == {"bias"}


def test_double_stays(host: Host) -> None:
    inputs = model("s = Sigmoid (x) y = Mul (s, x)", "double")
    assert refused(host, inputs, "OrtQuickGeluPass") == {"dtype"}


@pytest.mark.parametrize(("dtype", "keys"), [("float", set[str]()), ("float16", {"constants"})])
def test_a_gelu_that_rounds_its_constants_stays(host: Host, dtype: str, keys: set[str]) -> None:
    """The body of gehost::Gelu, below opset 20, has the model's √2: 1.4140625 in float16."""
    inputs = model("a = Add (x, b) y = gehost.Gelu (a)", dtype, opset=17)
    inputs.opset_import.add(domain="gehost", version=1)
    assert refused(host, inputs, "OrtBiasGeluPass") == keys
