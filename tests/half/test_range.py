"""Numbers that float16 is too coarse or too narrow for: logarithms, squares, sums and epsilons."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest

from gehost.half import to_float16
from gehost.kernels import Target
from gehost.verify import Runner
from gehost.verify.rounded import rounded

onnxruntime = pytest.importorskip("onnxruntime")

_ROWS = np.array([[30, 0, 1, 2, 3, -10], [0, 25, -25, 1, 2, 3]], np.float32)
_LARGE = np.linspace(300, 600, 12, dtype=np.float32).reshape(2, 6)
_NORM = "s = Mul (h, h) m = ReduceMean <axes = [-1]> (s)"
_EPSILON = "e = Constant <value = float {0.000001}> ()"
_CASES: dict[str, tuple[str, np.ndarray[Any, Any]]] = {
    "log of Softmax": ("p = Softmax (h) y = Log (p)", _ROWS),
    "log of Sigmoid": ("p = Sigmoid (h) y = Log (p)", _ROWS / 2),
    "log of the rest": ("p = Sigmoid (h) q = Sub (one, p) r = Clip (q, tiny) y = Log (r)", _ROWS),
    "filters of a spectrum": (
        "s = Mul (h, h) b = MatMul (s, bands) q = Clip (b, floor) y = Log (q)",
        _ROWS * np.float32(1e-4),
    ),
    "loud spectrum": ("s = Mul (h, h) b = MatMul (s, bands) y = Log (b)", _LARGE * 100),
    "epsilon in a node": (f"{_NORM} {_EPSILON} v = Add (m, e) d = Sqrt (v) y = Div (h, d)", _LARGE),
    "squares of an If": (
        f"""{_NORM} v = If (c) <then_branch = t () => (float[2, 1] a) {{ a = Add (m, floor) }},
        else_branch = o () => (float[2, 1] b) {{ b = Identity (m) }}> d = Sqrt (v) y = Div (h, d)""",
        _LARGE,
    ),
    "function with an epsilon": ("y = own.Norm (h, floor)", _LARGE),
    "function that makes squares": ("v = own.Square (h) d = Sqrt (v) y = Div (h, d)", _LARGE),
    "function with an attribute": ("y = own.With <eps = 0.000001> (h)", _LARGE),
    "sum and count": (
        "s = ReduceSum (h) n = Size (h) f = Cast <to = 1> (n) y = Div (s, f)",
        np.tile(_LARGE, (60, 1)),
    ),
    "mean of squares": (
        """s = Mul (h, h) a = ReduceMean <axes = [-1]> (s) m = ReduceMean <axes = [-1]> (h)
        q = Mul (m, m) y = Sub (a, q)""",
        _LARGE / 300 + 30,
    ),
    "distances": (
        """s = Mul (h, h) a = ReduceSum <keepdims = 1> (s, last) d = Mul (h, two)
        p = MatMul (d, corner) y = Sub (a, p)""",
        _LARGE,
    ),
    "sums so far": (
        """less = Sub (h, one) a = CumSum (less, axis) b = CumSum (h, axis) d = Sub (b, a)
        y = Exp (d)""",
        _LARGE,
    ),
    "sixth power": ("s = Pow (h, six) m = ReduceMean <axes = [-1]> (s) y = Pow (m, sixth)", _ROWS),
    "standardized input": ("a = Sub (h, offset) y = Div (a, spread)", _LARGE * 300),
    "norm of an input": (
        "y = LayerNormalization <axis = -1> (h, ones)",
        np.float32(4096) + np.arange(12, dtype=np.float32).reshape(2, 6),
    ),
    "areas of inputs": (
        """a = Slice (h, from0, to3, last) b = Slice (h, to3, to6, last) q = Mul (a, b)
        d = Mul (b, b) e = Add (q, d) y = Div (q, e)""",
        _LARGE,
    ),
    "turned places": (
        """a = Slice (h, from0, to3, last) b = MatMul (a, camera) d = Mul (b, two) e = Floor (d)
        i = Cast <to = 7> (e) y = Cast <to = 1> (i)""",
        _LARGE,
    ),
    "arc": ("t = Tanh (h) y = Acos (t)", np.linspace(2, 4, 12, dtype=np.float32).reshape(2, 6)),
    "Expand of an epsilon": (
        """n = ReduceSum <keepdims = 1> (h, last) z = Shape (n) e = Expand (floor, z)
        m = Max (n, e) y = Div (h, m)""",
        _ROWS * 0,
    ),
}
_ENTERED = ("standardized input", "norm of an input", "turned places")
"""Cases in which the inputs are no numbers of float16."""
_WEIGHTS = """float one = {1}, float two = {2}, float tiny = {0.0000001}, float floor = {1e-10},
    float offset = {60000}, float spread = {50000}, float[6] ones = {1, 1, 1, 1, 1, 1},
    int64[1] from0 = {0}, int64[1] to3 = {3}, int64[1] to6 = {6},
    float[3, 3] camera = {1.1, 0.3, 7, 0.2, 0.9, 5, 0.01, 0.02, 3}, float six = {6}, float sixth = {0.1666667},
    int64[1] last = {1}, int64 axis = {1},
    float[6, 1] corner = {300, 350, 420, 460, 500, 560},
    float[6, 3] bands = {0.5, 0, 0, 0.5, 0.1, 0, 0, 0.9, 0, 0, 0.2, 0.3, 0, 0, 0.7, 0, 0, 0.6}"""
_FUNCTIONS = {
    "Norm": f"(h, e) => (y) {{ {_NORM} v = Add (m, e) d = Sqrt (v) y = Div (h, d) }}",
    "Square": f"(h) => (m) {{ {_NORM} }}",
    "With": f"""<eps> (h) => (y) {{ e = Constant <value_float: float = @eps> () {_NORM}
        v = Add (m, e) d = Sqrt (v) y = Div (h, d) }}""",
}


def _model(case: str) -> onnx.ModelProto:
    body = _CASES[case][0]
    functions = "".join(
        f'<domain: "own", opset_import: ["": 17]> {name} {text}'
        for name, text in _FUNCTIONS.items()
        if f"own.{name}" in body
    )
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[A, 6] h, bool c) => (float[B, C] y) <{_WEIGHTS}> {{ {body} }} {functions}"""
    )
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("feeds", [False, True], ids=["", "feeds"])
@pytest.mark.parametrize("case", _CASES)
def test_numbers_stay(case: str, feeds: bool) -> None:
    """Feeds of other numbers change nothing."""
    model, h = _model(case), _CASES[case][1]
    exact = case in _ENTERED
    inputs = {"h": h if exact else h.astype(np.float16).astype(np.float32), "c": np.array(True)}
    small = inputs | {"h": np.ones_like(h)}
    half = to_float16(model, keep_io=True, feeds=[small] if feeds else ()).model
    onnx.checker.check_model(half, full_check=True)
    expected = Runner(model).run(inputs)["y"]
    # ONNX Runtime leaves out roundings between operators that its CPU computes in float32
    result = Runner(rounded(half)).run(inputs)["y"]
    assert np.isfinite(result).all() == np.isfinite(expected).all()
    size = np.maximum(np.abs(expected), 1e-6)
    assert float(np.nanmax(np.abs(result - expected) / size, initial=0)) < 3e-3


def test_a_scatter_that_adds_up_runs() -> None:
    """ONNX Runtime's CPU has no such kernel in float16."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[4] x, int64[3] i, float[3] u) => (float[4] y) {
            a = Neg (x) y = ScatterElements <reduction = "add"> (a, i, u) }"""
    )
    half = to_float16(onnx.shape_inference.infer_shapes(model), keep_io=True).model
    feeds = {"x": np.zeros(4, np.float32), "i": np.array([1, 1, 3]), "u": np.ones(3, np.float32)}
    session = onnxruntime.InferenceSession(half.SerializeToString())
    assert session.run(None, feeds)[0].tolist() == [0, 2, 0, 1]


@pytest.mark.parametrize("perm", [[1, 0, 2], [1, 2, 0]])
@pytest.mark.parametrize("target", ["", "cuda"])
def test_a_transpose_at_which_the_runtime_dies_is_float32(perm: list[int], target: str) -> None:
    """ONNX Runtime 1.31 and 1.32 end the process at a half one before a product, on the CPU."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[4, 6, 4] x) => (float[a, b, c] y) <float[4, 1] w = {{1, 2, 3, 4}}> {{
            a = Transpose <perm = {perm}> (x) y = MatMul (a, w) }}"""
    )
    model = onnx.shape_inference.infer_shapes(model)
    conversion = to_float16(model, target=Target.of(target))
    kept = [label for labels in conversion.kept.values() for label in labels]
    assert kept == ([] if target else ['Transpose "a"'])
    if not target:
        onnxruntime.InferenceSession(conversion.model.SerializeToString())


def test_a_mask_that_a_body_makes_is_clipped() -> None:
    """Its lowest number is no infinity: a row of nothing else has a mean."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[2, 4] x, bool[2, 4] m, bool c) => (float[2, 4] y)
            <float low = {-1000000000}, float zero = {0}> {
            f = If (c) <then_branch = t () => (float[2, 4] a) { a = Where (m, zero, low) },
                else_branch = e () => (float[2, 4] b) { b = Where (m, low, zero) }>
            s = Add (x, f) y = Softmax (s) }"""
    )
    half = to_float16(onnx.shape_inference.infer_shapes(model), keep_io=True).model
    feeds = {"x": np.zeros((2, 4), np.float32), "c": np.array(True)}
    feeds["m"] = np.array([[1, 0, 1, 0], [0, 0, 0, 0]], bool)
    result = Runner(rounded(half)).run(feeds)["y"]
    assert np.allclose(result, [[0.5, 0, 0.5, 0], [0.25] * 4], atol=1e-3)


_TREES = """y = ai.onnx.ml.TreeEnsemble <n_targets = 1, aggregate_function = 1, post_transform = 0,
    tree_roots = [0], nodes_modes = uint8[1] {0}, nodes_featureids = [0],
    nodes_splits = float[1] {2.5}, nodes_truenodeids = [0], nodes_trueleafs = [1],
    nodes_falsenodeids = [1], nodes_falseleafs = [1], leaf_targetids = [0, 0],
    leaf_weights = float[2] {1, 3}> (x)"""


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "y = MeanVarianceNormalization <axes = [0]> (x)",
        'y = ai.onnx.ml.Normalizer <norm = "MAX"> (x)',
        _TREES,
    ],
    ids=["normalization", "normalizer", "trees"],
)
def test_operators_without_half_stay(body: str, keep_io: bool) -> None:
    imports = '"ai.onnx.ml": 5' if ".ml." in body else '"": 18'
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: [{imports}]>
        g (float[4, 1] x) => (float[4, 1] y) {{ {body} }}"""
    )
    half = to_float16(model, keep_io=keep_io).model
    onnx.checker.check_model(half, full_check=True)
    session = onnxruntime.InferenceSession(half.SerializeToString())
    x = np.array([[1], [2], [3], [4]], np.float32 if keep_io else np.float16)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(
        None, {"x": x.astype(np.float32)}
    )[0]
    assert np.allclose(session.run(None, {"x": x})[0], expected, atol=1e-3)
