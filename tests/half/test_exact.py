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
from gehost.verify.rounded import rounded

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
    "function multiplies it": "m = Unsqueeze (f, zero) y = own.Product (p, m)",
    "function in a function": "a = Mul (p, f) y = own.Outer (a)",
    "CumSum": "a = Mul (p, f) b = CumSum (a, axis) y = Cos (b)",
    "ReduceSum": "a = Mul (p, f) b = ReduceSum (a, one) y = Cos (b)",
    "Pad": "a = Mul (p, f) b = Pad (a, pads) y = Cos (b)",
    "Relu": "a = Mul (p, f) b = Relu (a) y = Cos (b)",
    "Sqrt": "a = Mul (p, f) b = Mul (a, a) d = Sqrt (b) y = Cos (d)",
    "Trilu": "a = Mul (p, f) b = Trilu (a) y = Cos (b)",
    "TopK": "a = Mul (p, f) b, j = TopK (a, one) y = Cos (b)",
    "ScatterND": "a = Mul (p, f) a2 = Gather (a, i2) b = ScatterND (a, rows, a2) y = Cos (b)",
    "Resize": """a = Mul (p, f) b = Unsqueeze (a, zero) d = Resize <mode = "linear"> (b, , scales)
        y = Cos (d)""",
    "SequenceAt": "a = Mul (p, f) q = SequenceConstruct (a, a) b = SequenceAt (q, one) y = Cos (b)",
    "AveragePool": """a = Mul (p, f) b = Unsqueeze (a, zero)
        d = AveragePool <kernel_shape = [2]> (b) y = Cos (d)""",
    "a filter": """a = Mul (p, f) b = Unsqueeze (a, one) d = Conv (b, filter) y = Cos (d)""",
    "LeakyRelu": "a = Mul (p, f) b = LeakyRelu (a) y = Cos (b)",
    "frequencies of an If": """g = If (c) <then_branch = t () => (float[8] u) { u = Mul (f, k) },
        else_branch = e () => (float[8] w) { w = Identity (f) }> m = Unsqueeze (g, zero)
        q = Cast <to = 1> (n) a = MatMul (q, m) y = Cos (a)""",
    "a large weight is none": "h = MatMul (x, w) y = Sin (h)",
}
_OF_THREE_AXES = ("Resize", "AveragePool", "a filter")
_INTEGERS = {
    "a comparison of what is entered": "a = Equal (v, row) y = Cast <to = 7> (a)",
    "a difference of what is entered": "d = Sub (v, row) y = Sign (d)",
    "a comparison of what is exact": """a = Add (v, one) i = Cast <to = 7> (a) y = Less (a, row)
        j = Neg (i)""",
    "product": "g = Cast <to = 1> (n) a = Mul (g, k) y = Cast <to = 7> (a)",
    "Floor": "g = Cast <to = 1> (n) a = Div (g, k) b = Floor (a) y = Cast <to = 6> (b)",
    "double": "g = Cast <to = 11> (n) h = Cast <to = 1> (g) y = Cast <to = 7> (h)",
    "Equal": "g = Cast <to = 1> (n) h = Mul (g, one) y = Equal (h, row)",
    "input": "y = Cast <to = 7> (v)",
    "type of a function's attribute": "a = Mul (v, one) y = own.As <to = 7> (a)",
    "fraction": """a = Mul (v, tenth) b = Floor (a) y = Sub (a, b) i = Cast <to = 7> (b)
        j = Cast <to = 7> (a)""",
    "Mod": "a = Mul (v, tenth) y = Mod <fmod = 1> (a, one) j = Cast <to = 7> (a)",
    "CastLike": "a = Mul (v, one) y = CastLike (a, n)",
    "CastLike in a function": "g = Cast <to = 1> (n) y = own.Like (g, n)",
    "ReduceSum": "a = Mul (v, one) s = ReduceSum <keepdims = 0> (a) y = Cast <to = 7> (s)",
    "CumSum": "a = Mul (v, one) b = CumSum (a, axis) y = Cast <to = 7> (b)",
    "ReduceMax": "a = Mul (v, one) s = ReduceMax (a) y = Cast <to = 7> (s)",
    "Compress": "a = Mul (v, one) d = Compress (a, mask) y = Cast <to = 7> (d)",
    "Pad": "a = Mul (v, one) d = Pad (a, pads, row) y = Cast <to = 7> (d)",
    "Range": "r = ReduceMin <keepdims = 0> (v) d = Add (r, half) e = Range (zero, d, one) y = Shape (e)",
    "If": """g = If (c) <
        then_branch = t () => (float[4] u) { u = Cast <to = 1> (n) },
        else_branch = e () => (float[4] w) { e1 = Cast <to = 1> (n) w = Neg (e1) }>
        y = Cast <to = 7> (g)""",
    "function": "g = Cast <to = 1> (n) y = own.Index (g)",
}


_BRANCH = """else_branch = e{0} () => (float[4] w{0}) {{ w{0} = Cast <to = 1> (n) }}"""
_MADE = {
    "If": f"""y = If (c) <then_branch = t () => (float[4] u)
        {{ u1 = Cast <to = 1> (n) u = Mul (u1, k) }}, {_BRANCH.format("")}>""",
    "an If in an If": f"""y = If (c) <then_branch = t () => (float[4] u) {{
        u = If (c) <then_branch = i () => (float[4] v1)
        {{ u1 = Cast <to = 1> (n) v1 = Mul (u1, k) }}, {_BRANCH.format("1")}> }},
        {_BRANCH.format("")}>""",
    "behind an If": f"""z = If (c) <then_branch = t () => (float[4] u)
        {{ u = Cast <to = 1> (n) }}, {_BRANCH.format("")}> y = Mul (z, k)""",
    "one branch": """y = If (c) <then_branch = t () => (float[4] u)
        { u1 = Cast <to = 1> (n) u = Mul (u1, k) },
        else_branch = e () => (float[4] w) { w = Tanh (v) }>""",
    "each step of a Loop": """m = Constant <value = int64 {3}> () y = Loop (m, c)
        <body = b (int64 step, bool go) => (bool more, float[4] u)
        { more = Identity (go) u1 = Cast <to = 1> (n) u = Mul (u1, k) }>""",
    "a counter of a Loop": """m = Constant <value = int64 {3000}> ()
        zero = Constant <value = float {0}> () y = Loop (m, c, zero)
        <body = b (int64 step, bool go, float s) => (bool more, float t)
        { more = Identity (go) one1 = Constant <value = float {1}> () t = Add (s, one1) }>""",
    "a Loop beside half": """m = Constant <value = int64 {3}> () g = Cast <to = 1> (n)
        y, z = Loop (m, c, g, v) <body = b (int64 step, bool go, float[4] s, float[4] h) =>
        (bool more, float[4] t, float[4] l)
        { more = Identity (go) t = Add (s, k) l = Tanh (h) }>""",
    "a Scan": """g = Cast <to = 1> (n) y, z = Scan (g, v)
        <num_scan_inputs = 1, body = b (float[4] s, float h) => (float[4] t, float l) { t = Add (s, k) l = Tanh (h) }>""",
    "a function": "g = Cast <to = 1> (n) y = own.Angle (g, k)",
}
_STATES = {
    "Loop": """m = Constant <value = int64 {2}> () last, h, y = Loop (m, c, p, x) <body = b
        (int64 step, bool go, float[6, 1] s, float[1, 300] r) =>
        (bool more, float[6, 1] t, float[1, 300] l, float[6, 8] o) {
            more = Identity (go) t = Mul (s, k) a = Mul (t, f) o = Cos (a) l = Tanh (r) }>""",
    "Scan": """last, h, y = Scan (p, x, f6) <num_scan_inputs = 1, body = b
        (float[6, 1] s, float[1, 300] r, float[1] z) =>
        (float[6, 1] t, float[1, 300] l, float[6, 8] o) {
            t = Mul (s, k) a = Mul (t, f) o = Cos (a) l = Tanh (r) }>""",
    "what a Scan reads": """h, y = Scan (x, p) <num_scan_inputs = 1, body = b
        (float[1, 300] r, float[1] z) => (float[1, 300] l, float[8] o) {
            a = Mul (z, f) o = Cos (a) l = Tanh (r) }>""",
    "Loop in a branch": """y = If (c) <then_branch = t () => (float[A, B, C] u) {
        m = Constant <value = int64 {2}> () last, u = Loop (m, c, p) <body = b
        (int64 step, bool go, float[6, 1] s) => (bool more, float[6, 1] i, float[6, 8] o) {
            more = Identity (go) i = Mul (s, k) a = Mul (i, f) o = Cos (a) }> },
        else_branch = e () => (float[A, B, C] w) { w1 = Cos (f) w = Unsqueeze (w1, two) }>""",
}


def _function(name: str, text: str) -> str:
    return f'<domain: "own", opset_import: ["": 20, "own": 1]> {name} {text}'


def _model(arguments: str, body: str, weights: str, result: str = "y") -> onnx.ModelProto:
    functions = {
        "Turn": _function("Turn", "(a) => (y) { b = Identity (a) y = Cos (b) }"),
        "Product": _function("Product", "(p, m) => (y) { a = MatMul (p, m) y = Cos (a) }"),
        "Angle": _function("Angle", "(p, f) => (y) { y = Mul (p, f) }"),
        "Outer": _function("Outer", "(a) => (y) { b = Neg (a) y = own.Turn (b) }"),
        "As": """<domain: "own", opset_import: ["": 20]> As <to> (g) => (y)
            { y = Cast <to: int = @to> (g) }""",
        "Like": _function("Like", "(g, n) => (y) { h = Identity (g) y = CastLike (h, n) }"),
        "Below": _function("Below", "(t, s) => (y) { b = Less (t, s) y = Identity (b) }"),
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
    # ONNX Runtime leaves out roundings between operators that its CPU computes in float32
    result = np.asarray(Runner(rounded(half)).run(feeds)["y"])
    assert result.shape == expected.shape
    return float(np.abs(result.astype(np.float64) - expected).max())


@pytest.mark.parametrize("case", _ANGLES)
def test_an_angle_is_not_rounded(case: str) -> None:
    """A product of 2,000 is up to a unit off in float16, and its cosine any number."""
    weights = f"""{_FREQUENCIES}, float k = {{1.37}}, float[6, 1] f6 = {{1, 2, 3, 4, 5, 6}},
        int64[3] i = {{5, 3, 1}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
        int64 axis = {{0}}, int64[4] pads = {{0, 0, 0, 2}}, int64[2, 1] rows = {{0, 1}},
        int64[2] i2 = {{4, 5}}, float[3] scales = {{1, 1, 2}}, float[1, 1, 2] filter = {{0.5, 0.5}}"""
    sizes = {1: "r", 3: "q, r, s"}.get(3 if case in _OF_THREE_AXES else 2, "q, r")
    model = _model(
        "float[6, 1] p, bool c, float[1, 300] x, int64[6, 1] n",
        _ANGLES[case],
        weights,
        f"float[{sizes}] y",
    )
    if "weight" in case:
        tensor = onnx.numpy_helper.from_array(np.full((300, 300), 0.01, np.float32), "w")
        model.graph.initializer.append(tensor)
        half = to_float16(onnx.shape_inference.infer_shapes(model)).model
        types = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
        assert types["w"] == onnx.TensorProto.FLOAT16
        return
    feeds = {"p": np.arange(6, dtype=np.float32)[:, None], "x": np.zeros((1, 300), np.float32)}
    feeds |= {"n": 400 * np.arange(6)[:, None], "c": np.array(True)}
    assert _off(model, feeds) < 1e-3


@pytest.mark.parametrize("case", _INTEGERS)
def test_what_becomes_an_integer_is_not_rounded(case: str) -> None:
    """2,049 is no number of float16, and 105,001 is out of its range."""
    model = _model(
        "int64[4] n, float[4] v, bool c",
        _INTEGERS[case],
        """float k = {7}, float one = {1}, float row = {4099}, int64 axis = {0}, float zero = {0},
        bool[4] mask = {1, 0, 1, 1}, int64[2] pads = {0, 2}, float half = {0.5}, float tenth = {0.1}""",
    )
    feeds = {"n": np.array([4099, 4100, 2049, 105001])}
    feeds |= {"v": feeds["n"].astype(np.float32), "c": np.array(True)}
    assert _off(model, feeds) < 1e-3


def test_a_text_is_not_rounded() -> None:
    """Cast to strings writes digits."""
    model = _model("float[4] v", "a = Mul (v, one) y = Cast <to = 8> (a)", "float one = {1}")
    half = to_float16(onnx.shape_inference.infer_shapes(model), keep_io=True).model
    result = Runner(rounded(half)).run({"v": np.array([2049, 1, 2, 3], np.float32)})
    assert result["y"].tolist() == ["2049", "1", "2", "3"]


def test_the_end_of_a_loop_is_not_rounded() -> None:
    """Steps of 0.003 are less than half of half's from 4 on."""
    body = """a = MatMul (x, w) d = Mul (q, minus) last, y = Loop (, go, d) <body = b (int64 step,
        bool more, float s) => (bool next, float t, float u) {
            t = Add (s, small) next = Less (t, five) u = Identity (t) }>"""
    weights = "float minus = {-1}, float small = {0.003}, float five = {5}, bool go = {1}"
    model = _model("float[1, 8] x, float q", body, weights, "float[r] y, float[1, 8] a")
    tensor = onnx.numpy_helper.from_array(np.full((8, 8), 0.1, np.float32), "w")
    model.graph.initializer.append(tensor)
    feeds = {"x": np.ones((1, 8), np.float32), "q": np.array(-3, np.float32)}
    assert _off(model, feeds) < 5e-3


_CONDITIONS = {
    "Cast": "b = Less (t, five) g = Cast <to = 1> (b) next = Cast <to = 9> (g)",
    "Squeeze": "u1 = Unsqueeze (t, axes) b = Less (u1, five) next = Squeeze (b)",
    "ReduceMax": """u1 = Unsqueeze (t, axes) b = Less (u1, five) i = Cast <to = 6> (b)
        m = ReduceMax <keepdims = 0> (i) next = Cast <to = 9> (m)""",
    "Xor": "b = GreaterOrEqual (t, five) yes = Equal (t, t) next = Xor (b, yes)",
    "If": """next = If (go) <then_branch = a () => (bool v) { v = Less (t, five) },
        else_branch = e () => (bool r) { r = Less (t, small) }>""",
    "function": "next = own.Below (t, five)",
}


@pytest.mark.parametrize("case", _CONDITIONS)
def test_the_end_of_a_loop_is_found_behind_other_operators(case: str) -> None:
    body = f"""a = MatMul (x, w) d = Mul (q, minus) last, y = Loop (, go, d) <body = b (int64 step,
        bool more, float s) => (bool next, float t, float u) {{
            t = Add (s, small) u = Identity (t) {_CONDITIONS[case]} }}>"""
    weights = (
        """float minus = {-1}, float small = {0.003}, float five = {5}, bool go = {1},
        int64[1] axes = {0}, float[8, 8] w = {"""
        + ", ".join(["0.1"] * 64)
        + "}"
    )
    model = _model("float[1, 8] x, float q", body, weights, "float[r] y, float[1, 8] a")
    feeds = {"x": np.ones((1, 8), np.float32), "q": np.array(-3, np.float32)}
    assert _off(model, feeds) < 5e-3


def test_boxes_are_not_rounded_before_they_are_selected() -> None:
    """An offset for each class moves boxes to where half has steps of 32 pixels."""
    body = """b = Mul (p, one) g = Cast <to = 1> (n) o = Mul (g, side) q = Unsqueeze (o, last)
        m = Add (b, q) y = NonMaxSuppression (m, s, all, iou)"""
    weights = """float one = {1}, float side = {7680}, int64[1] last = {2}, int64 all = {100},
        float iou = {0.45}"""
    model = _model(
        "float[1, 60, 4] p, int64[1, 60] n, float[1, 1, 60] s", body, weights, "int64[r, 3] y"
    )
    random = np.random.default_rng(3)
    center, size = random.uniform(50, 590, (1, 60, 2)), random.uniform(20, 80, (1, 60, 2))
    center[:, 30:] = center[:, :30] + random.uniform(-12, 12, (1, 30, 2))
    boxes = np.concatenate([center - size / 2, center + size / 2], 2).astype(np.float32)
    classes = random.integers(0, 8, (1, 60))
    classes[:, 30:] = classes[:, :30]
    scores = random.random((1, 1, 60), np.float32)
    assert _off(model, {"p": boxes, "n": classes, "s": scores}) == 0


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


@pytest.mark.parametrize("case", _MADE)
def test_what_bodies_make_of_integers_is_not_rounded(case: str) -> None:
    """A float output of them: 735,007 was an infinity of float16."""
    result = "float[4] y"
    if "Loop" in case and "beside" not in case:
        result = "float y" if "counter" in case else "float[A, B] y"
    model = _model("int64[4] n, float[4] v, bool c", _MADE[case], "float k = {7}", result)
    feeds = {"n": np.array([4099, 4100, 2049, 105001]), "c": np.array(True)}
    assert _off(model, feeds | {"v": np.ones(4, np.float32)}) == 0


@pytest.mark.parametrize("case", _STATES)
def test_a_state_that_becomes_an_angle_is_not_rounded(case: str) -> None:
    weights = f"""{_FREQUENCIES}, float k = {{1.37}}, float[6, 1] f6 = {{1, 2, 3, 4, 5, 6}},
        int64[2] two = {{0, 1}}"""
    rank = "A, B" if case.startswith("what") else "A, B, C"
    model = _model(
        "float[6, 1] p, bool c, float[1, 300] x", _STATES[case], weights, f"float[{rank}] y"
    )
    p = np.arange(6, dtype=np.float32)[:, None] + np.float32(0.3)
    feeds = {"p": p, "x": np.zeros((1, 300), np.float32), "c": np.array(True)}
    assert _off(model, feeds) < 1e-3
    half = to_float16(onnx.shape_inference.infer_shapes(model), keep_io=True)
    assert not any("Loop" in note or "Scan" in note for note in half.notes)
    onnx.checker.check_model(to_float16(model).model, full_check=True)


@pytest.mark.parametrize("domain", ["", "gehost"])
def test_a_norm_ends_what_is_followed_also_as_a_function(domain: str) -> None:
    """Below opset 17 it is a call of a body; the residual stream before it is half."""
    name = "LayerNormalization" if not domain else "gehost.RMSNormalization"
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 16, "gehost": 1]>
        g (float[2, 300] x) => (float[2, 4] y) {{
            h = MatMul (x, w) r = Add (h, x) n = {name} (r) a = MatMul (n, v) y = Sin (a) }}
        <domain: "{domain}", opset_import: ["": 16]> {name.rpartition(".")[2]} (r) => (n) {{
            m = ReduceMean <axes = [-1]> (r) n = Sub (r, m) }}"""
    )
    for name, shape in {"w": (300, 300), "v": (300, 4)}.items():
        tensor = onnx.numpy_helper.from_array(np.full(shape, 0.01, np.float32), name)
        model.graph.initializer.append(tensor)
    half = to_float16(onnx.shape_inference.infer_shapes(model))
    assert half.kept == {"angles": ['MatMul "a"', 'Sin "y"']}


def test_layers_end_what_is_followed() -> None:
    """The head of a detector: its last layers and what moves boxes are float32, no other layer."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 60, 64] x, float[2, 1, 60] s) => (int64[r, 3] y) {
            z = MatMul (x, u) a = MatMul (z, w) b = Relu (a) c = MatMul (b, v) d = Sigmoid (c) e = Mul (d, size)
            y = NonMaxSuppression (e, s, all, iou) }"""
    )
    weights = {
        "u": np.full((64, 64), 0.01),
        "w": np.full((64, 64), 0.01),
        "v": np.full((64, 4), 0.1),
        "size": np.array(640),
    }
    weights["iou"] = np.array(0.5)
    for name, array in weights.items():
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(9), "all"))
    half = to_float16(onnx.shape_inference.infer_shapes(model))
    assert half.kept["positions and masks"] == [
        'MatMul "a"',
        'Relu "b"',
        'MatMul "c"',
        'Sigmoid "d"',
        'Mul "e"',
    ]
