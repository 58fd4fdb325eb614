"""Weights that are inputs, too: defaults, and all weights before IR version 4."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.checker
import pytest

import gehost
from gehost.half import judge, to_float16
from gehost.testing import parse
from gehost.verify import Runner

FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
DRAW = np.random.default_rng(0)
W = DRAW.normal(size=(32, 32)).astype(np.float32) / 6
X = DRAW.normal(size=(4, 32)).astype(np.float32)
BODIES = {
    "plain": "a = MatMul (x, w) y = Mul (a, v)",
    "large": "a = MatMul (x, w) b = Mul (a, big) c = Div (b, more) y = Mul (c, v)",
    "tiny": "a = MatMul (x, w) z = Sub (a, a) b = Add (z, eps) c = Div (b, eps) y = Mul (c, a)",
    "angle": "a = MatMul (x, w) t = Mul (a, f) y = Cos (t)",
    "in a branch": """a = MatMul (x, w) c = Equal (n, n) y = If (c)
        <then_branch = t () => (float[m, 32] p) { p1 = Mul (a, big) p = Div (p1, more) },
        else_branch = e () => (float[m, 32] q) { q = Neg (a) }>""",
}
ARRAYS = {
    "w": W,
    "v": np.full(32, 0.7, np.float32),
    "big": np.array(4e5, np.float32),
    "more": np.array(2e5, np.float32),
    "eps": np.array(1e-9, np.float32),
    "f": np.linspace(0.5, 400, 32, dtype=np.float32),
    "n": np.array(3),
}


def model(body: str, version: int) -> onnx.ModelProto:
    """Return a model whose weights are inputs."""
    words = set(re.findall(r"\w+", body))
    arrays = {name: array for name, array in ARRAYS.items() if name in words}
    result = parse(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[m, 32] x) => (float[m, 32] y) {{ {body} }}""",
        arrays,
    )
    result.ir_version = version
    for tensor in result.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        result.graph.input.append(info)
    return result


def kinds(proto: onnx.ModelProto) -> dict[str, int]:
    return {info.name: info.type.tensor_type.elem_type for info in proto.graph.input}


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize("body", BODIES)
def test_weights_that_are_inputs_keep_their_numbers(body: str, version: int, keep_io: bool) -> None:
    source = model(BODIES[body], version)
    for feeds in ([], [{"x": X}]):
        conversion = to_float16(source, keep_io=keep_io, feeds=feeds)
        half = conversion.model
        onnx.checker.check_model(half, full_check=True)
        assert half.ir_version == version
        x = X if keep_io else X.astype(np.float16)
        actual = Runner(half).run({"x": x})["y"].astype(np.float64)
        expected = Runner(source).run({"x": x.astype(np.float32)})["y"]
        exact = body != "angle" or keep_io or version == 3
        assert np.abs(actual - expected).max() < (5e-3 if exact else 2)
    result = judge(source, conversion, [{"x": X}])
    assert result.equal or not exact, result.summary()
    if body != "angle":
        assert kinds(half)["w"] == (FLOAT if keep_io and version == 8 else FLOAT16)


@pytest.mark.parametrize("command", ["convert", "optimize"])
def test_a_default_keeps_the_type_of_its_input(command: str) -> None:
    """It can be fed, unlike the weights of IR version 3."""
    source = model(BODIES["plain"], 8)
    if command == "convert":
        half = to_float16(source, keep_io=True).model
    else:
        source.doc_string = "an exporter's notes, which leave room for casts; " * 20
        half = gehost.optimize(source, "any", half=True, measured=False).model
    assert set(kinds(half).values()) == {FLOAT}
    feed = {"x": X, "w": 2 * W}
    expected, actual = (Runner(item).run(feed)["y"] for item in (source, half))
    assert np.abs(expected - actual).max() < 5e-3


@pytest.mark.parametrize("name", ["big", "eps"])
def test_a_default_that_half_lacks_keeps_float32(name: str) -> None:
    source = model(BODIES["large" if name == "big" else "tiny"], 8)
    found = kinds(to_float16(source).model)
    exact = {"big", "more"} if name == "big" else {"eps"}
    assert {other for other, kind in found.items() if kind == FLOAT} == exact


def test_a_fill_that_is_a_default_reaches_an_output() -> None:
    """The walk up from the output ends at the input."""
    source = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[4, 8] x, float[8] d) => (float[4, 8] y) { h = Relu (x) y = Add (h, d) }"""
    )
    fill = np.full(8, -1e30, np.float32)
    source.graph.initializer.append(onnx.numpy_helper.from_array(fill, "d"))
    feed = {"x": np.ones((4, 8), np.float32)}
    half = to_float16(source, keep_io=True, feeds=[feed]).model
    np.testing.assert_array_equal(Runner(half).run(feed)["y"], np.full((4, 8), -1e30, np.float32))
