"""Numbers that must not be rounded to float16: angles, and what becomes an integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest

from gehost.half import to_float16
from gehost.verify import Runner

_FREQUENCIES = "float[8] f = {0.5, 57.6, 114.7, 171.9, 229, 286.1, 343.2, 400.3}"
_ANGLES = {
    "two products": "a = Mul (p, f) b = Mul (a, k) y = Cos (b)",
    "Sub": "a = Mul (p, f) b = Sub (a, k) y = Sin (b)",
    "second of Concat": "a = Mul (p, f) b = Concat <axis = -1> (f6, a) y = Cos (b)",
    "Gather": "a = Mul (p, f) b = Gather <axis = 0> (a, i) y = Cos (b)",
    "MatMul": "m = Unsqueeze (f, zero) a = MatMul (p, m) y = Cos (a)",
    "Einsum": """q = Squeeze (p, one) a = Einsum <equation = "i,j->ij"> (q, f) y = Cos (a)""",
    "If reads it": """a = Mul (p, f) y = If (c) <
        then_branch = t () => (float[6, 8] u) { u = Sin (a) },
        else_branch = e () => (float[6, 8] w) { w = Cos (a) }>""",
    "If makes it": """a = If (c) <
        then_branch = t () => (float[6, 8] u) { u = Mul (p, f) },
        else_branch = e () => (float[6, 8] w) { w = Add (p, f) }> y = Cos (a)""",
    "function reads it": "a = Mul (p, f) y = own.Turn (a)",
    "function makes it": "a = own.Angle (p, f) y = Cos (a)",
    "function in a function": "a = Mul (p, f) y = own.Outer (a)",
    "a large weight is none": "h = MatMul (x, w) y = Sin (h)",
}
_INTEGERS = {
    "product": "g = Cast <to = 1> (n) a = Mul (g, k) y = Cast <to = 7> (a)",
    "Floor": "g = Cast <to = 1> (n) a = Div (g, k) b = Floor (a) y = Cast <to = 6> (b)",
    "double": "g = Cast <to = 11> (n) h = Cast <to = 1> (g) y = Cast <to = 7> (h)",
    "Equal": "g = Cast <to = 1> (n) h = Mul (g, one) y = Equal (h, row)",
    "input": "y = Cast <to = 7> (v)",
    "If": """g = If (c) <
        then_branch = t () => (float[4] u) { u = Cast <to = 1> (n) },
        else_branch = e () => (float[4] w) { e1 = Cast <to = 1> (n) w = Neg (e1) }>
        y = Cast <to = 7> (g)""",
    "function": "g = Cast <to = 1> (n) y = own.Index (g)",
}


def _function(name: str, text: str) -> str:
    return f'<domain: "own", opset_import: ["": 20, "own": 1]> {name} {text}'


def _model(arguments: str, body: str, weights: str, result: str = "y") -> onnx.ModelProto:
    functions = {
        "Turn": _function("Turn", "(a) => (y) { b = Identity (a) y = Cos (b) }"),
        "Angle": _function("Angle", "(p, f) => (y) { y = Mul (p, f) }"),
        "Outer": _function("Outer", "(a) => (y) { b = Neg (a) y = own.Turn (b) }"),
        "Index": _function("Index", "(g) => (y) { h = Identity (g) y = Cast <to = 7> (h) }"),
    }
    used = {name for name in functions if f"own.{name}" in body}
    used |= {"Turn"} if "Outer" in used else set()
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20, "own": 1]>
        g ({arguments}) => ({result}) <{weights}> {{ {body} }} {" ".join(functions[n] for n in used)}"""
    )


def _off(model: onnx.ModelProto, feeds: dict[str, Any]) -> float:
    model = onnx.shape_inference.infer_shapes(model)
    half = to_float16(model, keep_io=True).model
    onnx.checker.check_model(half, full_check=True)
    expected = np.asarray(Runner(model).run(feeds)["y"])
    result = np.asarray(Runner(half).run(feeds)["y"])
    assert result.shape == expected.shape
    return float(np.abs(result.astype(np.float64) - expected).max())


@pytest.mark.parametrize("case", _ANGLES)
def test_an_angle_is_not_rounded(case: str) -> None:
    """A product of 2,000 is up to a unit off in float16, and its cosine any number."""
    weights = f"""{_FREQUENCIES}, float k = {{1.37}}, float[6, 1] f6 = {{1, 2, 3, 4, 5, 6}},
        int64[3] i = {{5, 3, 1}}, int64[1] zero = {{0}}, int64[1] one = {{1}}"""
    model = _model("float[6, 1] p, bool c, float[1, 300] x", _ANGLES[case], weights)
    if "weight" in case:
        tensor = onnx.numpy_helper.from_array(np.full((300, 300), 0.01, np.float32), "w")
        model.graph.initializer.append(tensor)
        half = to_float16(onnx.shape_inference.infer_shapes(model)).model
        types = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
        assert types["w"] == onnx.TensorProto.FLOAT16
        return
    feeds = {"p": np.arange(6, dtype=np.float32)[:, None], "x": np.zeros((1, 300), np.float32)}
    assert _off(model, feeds | {"c": np.array(True)}) < 1e-3


@pytest.mark.parametrize("case", _INTEGERS)
def test_what_becomes_an_integer_is_not_rounded(case: str) -> None:
    """2,049 is no number of float16, and 105,001 is out of its range."""
    model = _model(
        "int64[4] n, float[4] v, bool c",
        _INTEGERS[case],
        "float k = {7}, float one = {1}, float row = {4099}",
    )
    feeds = {"n": np.array([4099, 4100, 2049, 105001])}
    feeds |= {"v": feeds["n"].astype(np.float32), "c": np.array(True)}
    assert _off(model, feeds) == 0


def test_a_loop_that_counts_positions_is_converted() -> None:
    """Integers are never rounded, so that an angle made of a counter keeps no Loop in float32."""
    body = """n = Constant <value = int64 {2}> () last, y = Loop (n, c, k, x) <body = b (int64 step,
        bool go, int64 at, float[1, 8] s) => (bool more, int64 next, float[1, 8] t) {
            more = Identity (go) next = Add (at, step) g = Cast <to = 1> (next) a = Mul (g, f)
            o = Cos (a) r = Mul (s, o) t = MatMul (r, w) }>"""
    model = _model(
        "bool c, float[1, 8] x",
        body,
        f"{_FREQUENCIES}, int64 k = {{4096}}",
        "float[A, B] y",
    )
    tensor = onnx.numpy_helper.from_array(np.full((8, 8), 0.1, np.float32), "w")
    model.graph.initializer.append(tensor)
    half = to_float16(onnx.shape_inference.infer_shapes(model))
    types = {tensor.name: tensor.data_type for tensor in half.model.graph.initializer}
    assert types["w"] == onnx.TensorProto.FLOAT16
    assert not any("Loop" in note for note in half.notes)
