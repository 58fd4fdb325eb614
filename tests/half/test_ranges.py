"""The largest number of each value on feeds."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.half import judge, to_float16
from gehost.half.ranges import ranges


def test_large_and_tiny_values_are_named_fills_are_not() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N] x, bool[N] keep) => (float[N] y)
        <float big = {1000}, float small = {1e-5}, float low = {-3.4028235e38}> {
            a = Mul (x, big) b = Mul (x, small) c = Where (keep, x, low) d = Mul (a, b) y = Add (c, d)
        }"""
    )
    feeds = [
        {"x": np.array(numbers, np.float32), "keep": np.array([True, False])}
        for numbers in ([1, 2], [3, 70])
    ]
    outside, lines = ranges(model, feeds)
    assert outside == {"a"}
    assert lines == ['half: Mul "a" reaches 7e+04, above 65504: kept in float32']


def test_values_below_the_normal_numbers_are_named() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N] x) => (float[N] y) <float tiny = {1e-6}> { a = Mul (x, tiny) y = Add (a, x) }"""
    )
    outside, lines = ranges(model, [{"x": np.array([1, -2], np.float32)}])
    assert outside == {"a"}
    assert lines == [
        'half: Mul "a" reaches 2e-06, below float16\'s normal numbers: kept in float32'
    ]


def test_a_model_without_products_whose_constants_are_inputs() -> None:
    """IR version 3, for which ONNX Runtime refuses constants that no node reads."""
    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["": 9]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
    )
    assert ranges(model, [{"x": np.array([1, 7e4], np.float32)}])[0] == {"x", "y"}


def test_without_feeds_nothing_runs() -> None:
    assert ranges(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20]> g (float[N] x) => (float[N] y) { y = Abs (x) }'
        ),
        [],
    ) == (set(), [])


def test_large_values_beside_a_fill_are_named() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N] x, bool[N] keep) => (float[N] y) <float big = {1e10}, float low = {-1e9}>
        { a = Mul (x, big) m = Where (keep, x, low) s = Add (m, x) y = Add (s, a) }"""
    )
    feed = {"x": np.array([3, 2], np.float32), "keep": np.array([True, False])}
    outside, _ = ranges(model, [feed])
    assert outside == {"a", "y"}


def test_a_product_is_no_fill_however_large() -> None:
    """Weights of a test model that all have one size make logits of 1e31; those are numbers."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N, 1] x, float[1, 1] w) => (float[N, 1] y) {
            a = MatMul (x, w) b = MatMul (a, w) y = Softmax (b)
        }"""
    )
    feed = {"x": np.full((2, 1), 6e4, np.float32), "w": np.full((1, 1), 6e13, np.float32)}
    outside, _ = ranges(model, [feed])
    assert outside == {"w", "a", "b"}


def test_a_model_without_float32_has_no_ranges() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (double[N] x) => (double[N] y) { y = Tanh (x) }"""
    )
    assert ranges(model, [{"x": np.ones(2)}]) == (set(), [])


def test_an_output_that_a_body_reads_behind_two_casts_is_measured() -> None:
    """ONNX Runtime 1.31 lost it where it was no output of the measured model."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N] x, bool c) => (float[N] y, float[N] t) {
            u = Cast <to = 1> (x) t = Cast <to = 1> (u)
            y = If (c) <then_branch = a () => (float[N] p) { p = Neg (x) },
            else_branch = b () => (float[N] q) { q = Add (t, t) }> }"""
    )
    feed = {"x": np.array([1, 4e4], np.float32), "c": np.array(False)}
    assert ranges(model, [feed])[0] == {"y"}


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_models_older_than_where_are_measured(opset: int) -> None:
    """IR version 3, too; a value of the model is an output, and fills count in none."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 3, opset_import: ["": {opset}]>
        g (float[N] x, float[1] big, float[1] low) => (float[N] y, float[N] a)
        <float[1] big = {{1000}}, float[1] low = {{-1e9}}>
        {{ a = Mul (x, big) b = Relu (x) c = Div (a, big) f = Mul (b, low) d = Add (c, f)
        g = Add (b, low) n = Log (d) z = Mul (n, n) k = Abs (g) e = Add (k, z) y = Add (e, x) }}"""
    )
    outside, _ = ranges(model, [{"x": np.array([70, -1, 0.5], np.float32)}])
    newer = onnx.ModelProto()
    newer.CopyFrom(model)
    newer.opset_import[0].version = 9
    assert outside == ranges(newer, [{"x": np.array([70, -1, 0.5], np.float32)}])[0]
    assert "a" in outside
    assert not outside.intersection("bcgkx")


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_old_models_are_converted_and_compared(opset: int) -> None:
    weight = ", float[4, 4] w) => (float[N, 4] y)"
    model = onnx.parser.parse_model(
        f"""<ir_version: 3, opset_import: ["": {opset}]> g (float[N, 4] x{weight}
        {{ a = MatMul (x, w) e = Exp (w) y = MatMul (a, e) }}"""
    )
    weights = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    for keep_io_types in (False, True):
        host = Host(HostOptions(half=True, verify=True, keep_io_types=keep_io_types, plugins=False))
        report = host.run(model)[1]
        assert report.verify is not None
        assert report.verify["equal"]


@pytest.mark.parametrize("opset", [7, 8, 11])
def test_bounds_are_those_of_the_opset(opset: int) -> None:
    """A mask of float32 becomes half behind Max and Min."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 4, opset_import: ["": {opset}]>
        g (float[2, 4] x, int64[2, 4] m) => (float[2, 4] y)
        <float one = {{1}}, float low = {{-1e9}}>
        {{ c = Cast <to = 1> (m) i = Sub (one, c) f = Mul (i, low) t = Add (x, f) y = Softmax <axis = 1> (t) }}"""
    )
    conversion = to_float16(model)
    assert conversion.clipped
    draw = np.random.default_rng(0)
    feed = {
        "x": draw.normal(size=(2, 4)).astype(np.float32),
        "m": np.array([[1, 0, 1, 1], [1, 1, 0, 1]], np.int64),
    }
    assert judge(model, conversion, [feed]).equal
