"""Gelu with a bias and by a sigmoid are the runtime's kernels, in every type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.verify import Baseline, make_feeds
from tests.vendors.onnxruntime.test_half import widened

BOTH = HostOptions(
    vendors=[Path(__file__).parents[3] / "vendors"], plugins=False, enable=["OrtBiasGeluPass"]
)
"""The vendors of ONNX's own Gelu and of the runtime's."""
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


NUMBERS = {"one": 1.0, "half": 0.5, "root": 2**0.5, "inverse": 0.5**0.5, "fourth": 0.5**0.25}


def by_erf(dtype: str, scaled: str, opset: int) -> onnx.ModelProto:
    """Return Gelu with a bias, and one of its result without."""
    lines = " ".join(
        f"""{y}s = {scaled.format(x)} {y}f = Erf ({y}s) {y}e = Add ({y}f, one)
        {y}m = Mul ({x}, {y}e) {y} = Mul ({y}m, half)"""
        for x, y in (("a", "p"), ("p", "y"))
    )
    result = model(f"a = Add (x, b) {lines}", dtype, opset)
    for name, number in NUMBERS.items():
        array = np.array(number).astype(TYPES[dtype])
        result.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return result


def verdict(before: onnx.ModelProto, after: onnx.ModelProto, dtype: str) -> str:
    x = np.random.default_rng(0).normal(0, 2, (2, 9, 4)).astype(TYPES[dtype])
    return Baseline.of(before, [{"x": x}]).against(after).summary()


@pytest.fixture(scope="module")
def both() -> Host:
    return Host(BOTH)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("scaled", ["Div ({}, root)", "Mul ({}, inverse)"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_constant_in_half_is_its_exact_number(
    both: Host, dtype: str, scaled: str, opset: int
) -> None:
    """Below opset 20 the Gelu without bias is a function, whose √2 is rounded as the model's."""
    before = by_erf(dtype, scaled, opset)
    after, _ = both.run(before)
    assert [node.op_type for node in after.graph.node] == ["BiasGelu", "Gelu"]
    assert verdict(before, after, dtype).startswith("equal within rounding")
    alone, _ = both.with_options(disable=["GeluFusionPass"]).run(before)
    assert alone.graph.node[0].op_type == "BiasGelu"
    assert verdict(before, alone, dtype).startswith("equal within rounding")


def test_a_gelu_of_an_earlier_compile_is_fused(both: Host) -> None:
    """The √2 of gehost::Gelu is in its body."""
    before, _ = both.with_options(enable=[]).run(by_erf("float16", "Div ({}, root)", 17))
    before.ClearField("metadata_props")
    assert [node.op_type for node in before.graph.node] == ["Add", "Gelu", "Gelu"]
    after, _ = both.run(before)
    assert [node.op_type for node in after.graph.node] == ["BiasGelu", "Gelu"]
    assert verdict(before, after, "float16").startswith("equal within rounding")


def test_several_constants_of_half_stay(host: Host) -> None:
    before = by_erf("float16", "Mul ({}, inverse)", 17)
    (first, *_) = [node for node in before.graph.node if node.op_type == "Mul"]
    first.input[1] = "fourth"
    again = onnx.helper.make_node("Mul", ["ps", "fourth"], ["again"])
    before.graph.node.insert(2, again)
    before.graph.node[3].input[0] = "again"
    assert refused(host, before, "OrtBiasGeluPass") == {"bias", "constants"}
