"""Shapes that a model computes, element by element, where ONNX's inference gives up."""

from __future__ import annotations

import onnx
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.infer.contents import Contents, merge_types
from gehost.ir.model import Model
from gehost.ir.types import DataType, OtherType, TensorType
from gehost.ops import OpRegistry

INT = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807}, int64[2] pair = {3, 4}, int64 last = {-1}"


def load(nodes: str, inputs: str = "float[N, ?, 4] x, float[2, 4] w", opset: int = 17) -> Model:
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) <{INT}> {{ {nodes} y = Relu(x) }}'
    return Model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ("v = Identity(pair)", (3, 4)),
        ("v = Identity(last)", (-1,)),
        ("v = Shape(x)", ("N", None, 4)),
        ("v = Shape<start = 1>(x)", (None, 4)),
        ("v = Shape<start = -3, end = -1>(x)", ("N", None)),
        ("s = Shape(x) v = Gather(s, zero)", ("N",)),
        ("s = Shape(x) v = Gather(s, last)", (4,)),
        ("s = Shape(x) v = Gather<axis = 1>(s, last)", None),
        ("s = Shape(x) v = Slice(s, zero, two)", ("N", None)),
        ("s = Shape(x) v = Slice(s, one, far, zero)", (None, 4)),
        ("s = Shape(x) v = Slice(s, zero, far, zero, two)", ("N", 4)),
        ("s = Shape(x) a = Slice(s, zero, one) v = Concat<axis = 0>(a, pair, one)", ("N", 3, 4, 1)),
        (
            "s = Shape(x) a = Gather(s, last) b = Unsqueeze(a, zero) c = Cast<to = 7>(b) v = Concat<axis = 0>(c, one)",
            (4, 1),
        ),
        ("s = Shape(x) a = Mul(s, two) v = Concat<axis = 0>(a, one)", (None, None, 8, 1)),
        ("s = Shape(x) v = Mul(s, one)", ("N", None, 4)),
        ("s = Shape(x) v = Add(zero, s)", ("N", None, 4)),
        ("s = Shape(x) a = Sub(s, two) v = Add(a, pair)", None),
        ("s = Shape(x) v = Sub(zero, s)", (None, None, -4)),
        ("s = Shape(x) v = Div(s, two)", (None, None, 2)),
        ("v = Div(last, two)", (None,)),
        ("v = Div(pair, zero)", (None, None)),
        ("v = Mul(far, two)", (None,)),
        ("v = Add(pair, two)", (5, 6)),
        ("v = Size(w)", (8,)),
        ("v = Size(x)", (None,)),
        ("v = Mul(x, x)", None),
        ("c = Cast<to = 6>(far) v = Cast<to = 7>(c)", (None,)),
        ("v = Cast<to = 7>(far)", (9223372036854775807,)),
        ("s = Shape(x) f = Cast<to = 1>(s) v = Cast<to = 7>(f)", (None, None, None)),
    ],
)
def test_elements(nodes, wanted):
    model = load(nodes)
    infer_model(model)
    assert Contents().of(model.graph.values["v"]) == wanted


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (
            "s = Shape(x) a = Slice(s, zero, two) b = Concat<axis = 0>(a, two, two) v = Reshape(x, b)",
            "float[N,?,2,2]",
        ),
        ("b = Concat<axis = 0>(zero, zero, two, two) v = Reshape(x, b)", "float[N,?,2,2]"),
        (
            "s = Shape(x) a = Slice(s, zero, one) m = Neg(one) b = Concat<axis = 0>(a, m) v = Reshape(x, b)",
            "float[N,?]",
        ),
        (
            "s = Shape(x) a = Slice(s, zero, two) b = Concat<axis = 0>(two, a, one) v = Expand(x, b)",
            "float[2,N,?,4]",
        ),
        (
            "s = Shape(x) a = Slice(s, zero, one) b = Concat<axis = 0>(a, two) v = ConstantOfShape(b)",
            "float[N,2]",
        ),
        ("s = Shape(w) a = Sub(s, pair) b = Add(a, one) v = ConstantOfShape(b)", "float[0,1]"),
        ("s = Shape(w) a = Sub(s, pair) v = ConstantOfShape(a)", "float[?,0]"),
        ("s = Shape(w) a = Sub(s, pair) b = Slice(a, zero, one) v = Expand(one, b)", "int64[?]"),
    ],
)
def test_shapes_that_are_computed_are_known_where_their_elements_are(nodes, wanted):
    model = load(nodes)
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == wanted


@pytest.mark.parametrize(
    ("inputs", "shape", "wanted"),
    [
        ("float[N, 3, 4] x", "zero, minus", "float[N,12]"),
        ("float[N, 3, 4] x", "minus, pair", "float[N,3,4]"),
        ("float[N, 3, 4] x", "minus, two", "float[?,2]"),
        ("float[2, 3, 4] x", "minus, two", "float[12,2]"),
        ("float[N, M, 4] x", "minus, two", "float[?,2]"),
        ("float[N, ?, 4] x", "zero, minus", "float[N,?]"),
        ("float[N, ?, 12] x", "zero, zero, two, minus", "float[N,?,2,6]"),
        ("float[N, ?, 12] x", "zero, zero, minus", "float[N,?,12]"),
        ("float[N, ?, 12] x", "zero, minus, two", "float[N,?,2]"),
        ("float[0, 3, 12] x", "zero, minus", "float[0,?]"),
        ("float[2, 3] x", "zero, zero, zero, minus", "float[2,3,?,?]"),
    ],
)
def test_what_is_left_over_for_minus_one(inputs, shape, wanted):
    model = load(
        f"minus = Constant<value = int64[1] {{-1}}>() b = Concat<axis = 0>({shape}) v = Reshape(x, b)",
        inputs,
    )
    infer_model(model, Inferrer(model, OpRegistry()))
    assert str(model.graph.values["v"].type) == wanted


def test_elements_are_those_of_the_graph_as_it_is():
    model = load("s = Shape(x) v = Concat<axis = 0>(s, two)")
    infer_model(model)
    graph, contents = model.graph, Contents()
    value, concat = graph.values["v"], graph.values["v"].producer
    for done in (False, True):
        mark = model.mark()
        assert contents.of(value) == ("N", None, 4, 2)
        graph.set_input(concat, 1, graph.values["pair"])
        assert contents.of(value) == ("N", None, 4, 3, 4)
        if done:
            model.commit()
            assert contents.of(value) == ("N", None, 4, 3, 4)
        else:
            model.undo(mark)
            graph.set_input(concat, 1, graph.values["one"])
            assert contents.of(value) == ("N", None, 4, 1)
            model.undo(mark)


def test_two_sayings_are_merged():
    known, vague = (
        TensorType(DataType.FLOAT, ("N", None)),
        TensorType(DataType.UNDEFINED, (None, 4)),
    )
    assert merge_types(known, vague) == TensorType(DataType.FLOAT, ("N", 4))
    assert merge_types(vague, known) == TensorType(DataType.FLOAT, ("N", 4))
    assert merge_types(None, known) == merge_types(known, None) == known
    assert merge_types(TensorType(DataType.FLOAT, None), known) == known
    assert merge_types(known, TensorType(DataType.FLOAT, (1, 2, 3))) == known
    other = OtherType(b"")
    assert merge_types(other, known) is other
