"""Elements of shapes that a model computes."""

from __future__ import annotations

import onnx
import pytest

from gehost.infer import infer_model
from gehost.ir.model import Model

INT = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807}, int64[2] pair = {3, 4}, int64 last = {-1}, int64[2] pair2 = {1, 1}, int64[4] pads = {3, 4, 5, 6}, int64[2] square = {2, 2}, int64[1] last1 = {-1}, int64[1] far0 = {-9223372036854775807}, int64 z = {0}, int64 o = {1}"


def load(nodes: str, inputs: str = "float[N, ?, 4] x, float[2, 4] w", opset: int = 17) -> Model:
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) <{INT}> {{ {nodes} y = Relu(x) }}'
    return Model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("v = Identity(pair)", (3, 4)),
        ("v = Identity(last)", (-1,)),
        ("v = Shape(x)", ("N", "?1", 4)),
        ("v = Shape<start = 1>(x)", ("?1", 4)),
        ("v = Shape<start = -3, end = -1>(x)", ("N", "?1")),
        ("s = Shape(x) v = Gather(s, zero)", ("N",)),
        ("s = Shape(x) v = Gather(s, last)", (4,)),
        ("s = Shape(x) v = Gather<axis = 1>(s, last)", None),
        ("s = Shape(x) v = Slice(s, zero, two)", ("N", "?1")),
        ("s = Shape(x) v = Slice(s, one, far, zero)", ("?1", 4)),
        ("s = Shape(x) v = Slice(s, zero, far, zero, two)", ("N", 4)),
        ("s = Shape(x) a = Slice(s, zero, one) v = Concat<axis = 0>(a, pair, one)", ("N", 3, 4, 1)),
        (
            "s = Shape(x) a = Gather(s, last) b = Unsqueeze(a, zero) c = Cast<to = 7>(b) v = Concat<axis = 0>(c, one)",
            (4, 1),
        ),
        ("s = Shape(x) a = Mul(s, two) v = Concat<axis = 0>(a, one)", ("2*N", "2*?1", 8, 1)),
        ("s = Shape(x) v = Mul(s, one)", ("N", "?1", 4)),
        ("s = Shape(x) v = Add(zero, s)", ("N", "?1", 4)),
        ("s = Shape(x) a = Sub(s, two) v = Add(a, pair)", None),
        ("s = Shape(x) v = Sub(zero, s)", ("-N", "-?1", -4)),
        ("s = Shape(x) v = Div(s, two)", ("N // 2", "?1 // 2", 2)),
        ("v = Div(last, two)", (None,)),
        ("v = Div(pair, zero)", (None, None)),
        ("v = Mul(far, two)", (None,)),
        ("v = Add(pair, two)", (5, 6)),
        ("v = Size(w)", (8,)),
        ("v = Size(x)", ("4*?1*N",)),
        ("v = Mul(x, x)", None),
        ("c = Cast<to = 6>(far) v = Cast<to = 7>(c)", (None,)),
        ("v = Cast<to = 7>(far)", (9223372036854775807,)),
        ("s = Shape(x) a = Neg(s) v = Add(a, two)", ("-N + 2", "-?1 + 2", -2)),
        ("s = Shape(x) a = Max(s, two) v = Min(a, one)", (1, 1, 1)),
        ("s = Shape(w) v = Mod(s, two)", (0, 0)),
        ("s = Shape(x) a = Equal(s, s) v = Where(a, one, two)", (1, 1, 1)),
        ("s = Shape(x) a = Less(s, zero) b = Not(a) v = Where(b, s, two)", ("N", "?1", 4)),
        ("s = Shape(x) v = Pow(s, two)", ("N*N", "?1*?1", 16)),
        ("v, rest = Split<axis = 0>(pair, pair2)", (3,)),
        (
            "r = Reshape(pads, square) t = Slice(r, last1, far0, zero, last1) v = Reshape(t, last1)",
            (5, 6, 3, 4),
        ),
        ("r = Reshape(pads, square) t = Transpose(r) v = Reshape(t, last1)", (3, 5, 4, 6)),
        ("t = Tile(pair, two) v = Gather(t, last)", (4,)),
        ("a = Gather(pair, z) b = Gather(pair, o) v = Range(z, a, o)", (0, 1, 2)),
        ("s = Shape(x) c = Cast<to = 9>(s) v = Cast<to = 7>(c)", (None, None, 1)),
        ("s = Shape(x) f = Cast<to = 1>(s) v = Cast<to = 7>(f)", (None, None, None)),
    ],
)
def test_elements(nodes, expected):
    model = load(nodes)
    infer_model(model)
    assert model.graph.values["v"].elements == expected


def test_elements_are_those_of_the_graph_as_it_is():
    model = load("s = Shape(x) v = Concat<axis = 0>(s, two)")
    infer_model(model)
    graph = model.graph
    value, concat = graph.values["v"], graph.values["v"].producer
    for result in (False, True):
        mark = model.mark()
        assert value.elements == ("N", "?1", 4, 2)
        graph.set_input(concat, 1, graph.values["pair"])
        assert value.elements == ("N", "?1", 4, 3, 4)
        if result:
            model.commit()
            assert value.elements == ("N", "?1", 4, 3, 4)
        else:
            model.undo(mark)
            graph.set_input(concat, 1, graph.values["one"])
            assert value.elements == ("N", "?1", 4, 1)
            model.undo(mark)
