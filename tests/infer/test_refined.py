"""Shapes of which more is known than ONNX's inference tells."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.infer.refined import merge_types
from gehost.ir.model import Model
from gehost.ir.types import DataType, OtherType, TensorType
from gehost.ops import OpRegistry

INT = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807}, int64[2] pair = {3, 4}, int64 last = {-1}"


def load(nodes: str, inputs: str = "float[N, ?, 4] x, float[2, 4] w", opset: int = 17) -> Model:
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) <{INT}> {{ {nodes} y = Relu(x) }}'
    return Model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            "s = Shape(x) a = Slice(s, zero, two) b = Concat<axis = 0>(a, two, two) v = Reshape(x, b)",
            "float[N,?1,2,2]",
        ),
        ("b = Concat<axis = 0>(zero, zero, two, two) v = Reshape(x, b)", "float[N,?1,2,2]"),
        (
            "s = Shape(x) a = Slice(s, zero, one) m = Neg(one) b = Concat<axis = 0>(a, m) v = Reshape(x, b)",
            "float[N,4*?1]",
        ),
        (
            "s = Shape(x) a = Slice(s, zero, two) b = Concat<axis = 0>(two, a, one) v = Expand(x, b)",
            "float[2,N,?1,4]",
        ),
        (
            "s = Shape(x) a = Slice(s, zero, one) b = Concat<axis = 0>(a, two) v = ConstantOfShape(b)",
            "float[N,2]",
        ),
        (
            "s = Shape(x) a = Slice(s, zero, two) b = Concat<axis = 0>(a, two) v = Resize(x, , , b)",
            "float[N,?1,2]",
        ),
        ("s = Shape(w) a = Sub(s, pair) b = Add(a, one) v = ConstantOfShape(b)", "float[0,1]"),
        ("s = Shape(w) a = Sub(s, pair) v = ConstantOfShape(a)", "float[?2,0]"),
        ("s = Shape(w) a = Sub(s, pair) b = Slice(a, zero, one) v = Expand(one, b)", "int64[?2]"),
    ],
)
def test_shapes_that_are_computed_are_known_where_their_elements_are(nodes, expected):
    model = load(nodes)
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == expected


@pytest.mark.parametrize(
    ("inputs", "shape", "expected"),
    [
        ("float[N, 3, 4] x", "zero, minus", "float[N,12]"),
        ("float[N, 3, 4] x", "minus, pair", "float[N,3,4]"),
        ("float[N, 3, 4] x", "minus, two", "float[6*N,2]"),
        ("float[2, 3, 4] x", "minus, two", "float[12,2]"),
        ("float[N, M, 4] x", "minus, two", "float[2*M*N,2]"),
        ("float[N, ?, 4] x", "zero, minus", "float[N,4*?1]"),
        ("float[N, ?, 12] x", "zero, zero, two, minus", "float[N,?1,2,6]"),
        ("float[N, ?, 12] x", "zero, zero, minus", "float[N,?1,12]"),
        ("float[N, ?, 12] x", "zero, minus, two", "float[N,6*?1,2]"),
        ("float[0, 3, 12] x", "zero, minus", "float[0,?1]"),
        ("float[2, 3] x", "zero, zero, zero, minus", "float[2,3,?1,?2]"),
    ],
)
def test_what_is_left_over_for_minus_one(inputs, shape, expected):
    model = load(
        f"minus = Constant<value = int64[1] {{-1}}>() b = Concat<axis = 0>({shape}) v = Reshape(x, b)",
        inputs,
    )
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == expected


@pytest.mark.parametrize(
    ("inputs", "shape", "expected"),
    [
        ("float[B, S, 12] x", "b, s, minus, two", "float[B,S,6,2]"),
        ("float[B, S, 12] x", "minus, s, two", "float[either(6*B, ?1),S,2]"),
        ("float[B, S, 12] x", "minus, two", "float[6*B*S,2]"),
        ("float[B, S, 12] x", "s, minus, b", "float[S,12,B]"),
        ("float[B, S, 12] x", "minus, b, b", "float[?1,B,B]"),
    ],
)
def test_minus_one_beside_sizes_that_may_be_0_with_allowzero(inputs, shape, expected):
    model = load(
        "minus = Constant<value = int64[1] {-1}>() n = Shape(x) b = Slice(n, zero, one)"
        f" s = Slice(n, one, two) t = Concat<axis = 0>({shape}) v = Reshape<allowzero = 1>(x, t)",
        inputs,
    )
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == expected


def test_runs_with_zeros_and_allowzero():
    """ONNX Runtime leaves zeros out of the elements of both sides."""
    runtime = pytest.importorskip("onnxruntime")
    text = """<ir_version: 10, opset_import: ["": 17]> g (float[B, S, 12] x) => (float[A, S, 2] y, float[B, S, C, 2] z)
        <int64[1] minus = {-1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}> {
        n = Shape(x) b = Slice(n, zero, one) s = Slice(n, one, two)
        t = Concat<axis = 0>(minus, s, two) y = Reshape<allowzero = 1>(x, t)
        u = Concat<axis = 0>(b, s, minus, two) z = Reshape<allowzero = 1>(x, u) }"""
    session = runtime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    actual = {
        sizes: [result.shape for result in session.run(None, {"x": np.zeros((*sizes, 12), "f")})]
        for sizes in [(2, 3), (2, 0), (0, 3), (0, 0)]
    }
    assert actual == {
        (2, 3): [(12, 3, 2), (2, 3, 6, 2)],
        (2, 0): [(12, 0, 2), (2, 0, 6, 2)],
        (0, 3): [(0, 3, 2), (0, 3, 6, 2)],
        (0, 0): [(6, 0, 2), (0, 0, 6, 2)],
    }


def test_a_size_divided_by_itself():
    model = load(
        "s = Size(x) n = Shape(x) b = Slice(n, zero, one) d = Div(s, b) v = ConstantOfShape(d)",
        "float[B, S, 4] x",
    )
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == "float[4*S]"


def test_two_sayings_are_merged():
    exact, vague = (
        TensorType(DataType.FLOAT, ("N", None)),
        TensorType(DataType.UNDEFINED, (None, 4)),
    )
    assert merge_types(exact, vague) == TensorType(DataType.FLOAT, ("N", 4))
    assert merge_types(vague, exact) == TensorType(DataType.FLOAT, ("N", 4))
    assert merge_types(None, exact) == merge_types(exact, None) == exact
    assert merge_types(TensorType(DataType.FLOAT, None), exact) == exact
    assert merge_types(exact, TensorType(DataType.FLOAT, (1, 2, 3))) == exact
    other = OtherType(b"")
    assert merge_types(other, exact) is other


@pytest.mark.parametrize("rest", ["axes, one", "zero", "zero, pair"])
def test_a_slice_whose_bounds_and_axes_differ_in_number_has_no_sizes(rest):
    inputs = "float[N, M, 4] x, int64[2] starts, int64[2] ends, int64[2] axes"
    model = load(f"v = Slice(x, starts, ends, {rest})", inputs)
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == "float[?1,?2,?3]"


@pytest.mark.parametrize("name", ["3", "2*3"])
def test_a_size_that_a_file_names_3_is_not_3(name):
    value = onnx.helper.make_tensor_value_info("x", 1, [name, 4])
    nodes = [
        onnx.helper.make_node("Shape", ["x"], ["s"]),
        onnx.helper.make_node("Relu", ["x"], ["y"]),
    ]
    model = Model(
        onnx.helper.make_model(
            onnx.helper.make_graph(
                nodes, "g", [value], [onnx.helper.make_empty_tensor_value_info("y")]
            )
        )
    )
    infer_model(model, Inferrer(model, OpRegistry()))
    assert model.graph.values["s"].elements == (name, 4)
