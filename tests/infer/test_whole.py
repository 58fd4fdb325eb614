"""Types of a whole model, in the index only."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import ops
from gehost.errors import VendorError
from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model
from gehost.ir.types import TensorType, ValueType, decode_type
from gehost.ops import OpRegistry

MODELS = Path(__file__).parents[1] / "models"


def load(text: str, opset: int = 17) -> Model:
    return Model(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "ge": 1]> {text}')
    )


def types(model: Model, *names: str) -> list[str]:
    values = {name: value for graph in model.graphs for name, value in graph.values.items()}
    return [re.sub(r"\?\d+", "?", str(values[name].type)) for name in names]


def test_every_tensor_gets_its_type_and_the_file_stays_as_it_is():
    model = load(
        "g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { t = MatMul(x, w) y = Relu(t) }"
    )
    before = model.proto.SerializeToString(deterministic=True)
    infer_model(model)
    assert types(model, "t", "y", "w") == ["float[N,4]", "float[N,4]", "float[3,4]"]
    assert model.proto.SerializeToString(deterministic=True) == before
    assert (model.mark(), model.graph.dirty) == (0, False)


def test_shapes_that_the_model_computes_are_propagated():
    text = """g (float[N, 3, 4] x) => (float[?, ?] y) {
        s = Shape(x) i = Constant<value = int64[1] {0}>() n = Gather(s, i) r = Constant<value = int64[1] {12}>()
        t = Concat<axis = 0>(n, r) u = Reshape(x, t) y = Relu(u) }"""
    model = load(text)
    infer_model(model)
    assert types(model, "u", "y") == ["float[N,12]", "float[N,12]"]


def test_edits_are_seen():
    model = load("g (float[2, 3] x) => (float[?, ?] y) { t = Relu(x) y = Neg(t) }")
    model.graph.set_input(model.graph.values["y"].producer, 0, model.graph.values["x"])
    model.graph.add_node("Transpose", [model.graph.values["x"]], ["new"], {"perm": [1, 0]})
    infer_model(model)
    assert types(model, "new") == ["float[3,2]"]


def test_bodies_get_types_too():
    text = """g (float[N, 3] x, bool c, int64 n) => (float[N, 3] y) {
        a = Relu(x)
        b = If(c) <
            then_branch = t () => (float[?, ?] p) { q = Neg(a) p = If(c) <then_branch = d () => (float[?, ?] u) { v = Exp(q) u = Abs(v) }, else_branch = f () => (float[?, ?] w) { w = Abs(q) }> },
            else_branch = e () => (float[?, ?] r) { r = Neg(x) }>
        y = Loop(n, c, b) <body = l (int64 i, bool go, float[N, 3] z) => (bool go, float[N, 3] o) { m = Mul(z, a) o = Add(m, x) }>
    }"""
    model = load(text)
    infer_model(model)
    assert types(model, "q", "v", "r", "m", "b") == ["float[N,3]"] * 5


def test_an_if_that_sizes_decide_has_the_types_of_its_branch():
    """Without it the other branch, of rank 3, hides the rank from all that follows."""
    model = load(
        """g (float[N, 4] x) => (float[?] y) {
            shape = Shape(x) rank = Size(shape) two = Constant<value_int = 2>()
            test = Equal(rank, two)
            sizes = If(test) <then_branch = a () => (int64[2] s) { s = Identity(shape) },
                else_branch = b () => (int64[3] t) { t = Constant<value_ints = [1, 1, 4]>() }>
            z = If(test) <then_branch = c () => (float[N, 4] u) { u = Relu(x) },
                else_branch = d () => (float[1, N, 4] v) { o = Constant<value_ints = [0]>() v = Unsqueeze(x, o) }>
            y = Reshape(z, sizes) }"""
    )
    infer_model(model)
    assert types(model, "sizes", "z", "y") == ["int64[2]", "float[N,4]", "float[N,4]"]


def test_weights_stay_out_of_it(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[N, 512] x) => (float[] y) { t = MatMul(x, w) y = Reshape(t, s) }'
    )
    weight = proto.graph.initializer.add(
        name="w", data_type=1, dims=[512, 64], data_location=onnx.TensorProto.EXTERNAL
    )
    weight.external_data.add(key="location", value="missing.bin")
    shape = proto.graph.initializer.add(
        name="s", data_type=7, dims=[3], data_location=onnx.TensorProto.EXTERNAL
    )
    shape.external_data.add(key="location", value="shapes.bin")
    (tmp_path / "shapes.bin").write_bytes(np.array([-1, 8, 8]).tobytes())
    model = Model(proto, path=str(tmp_path / "m.onnx"))
    infer_model(model)
    assert types(model, "t", "y") == ["float[N,64]", "float[N,8,8]"]
    assert [len(tensor.external_data) for tensor in model.proto.graph.initializer] == [1, 1]
    (tmp_path / "shapes.bin").unlink()
    again = Model(proto, path=str(tmp_path / "m.onnx"))
    infer_model(again)
    assert types(again, "t") == ["float[N,64]"]


def test_functions_are_looked_into():
    text = 'g (float[2, 3] x) => (float[] y) { t = ge.F(x) y = Relu(t) } <domain: "ge", opset_import: ["": 17]> F (p) => (q) { q = Transpose(p) }'
    model = load(text)
    infer_model(model)
    assert types(model, "t", "y") == ["float[3,2]", "float[3,2]"]


def test_what_vendors_know_goes_on_through_the_nodes_behind():
    text = """g (float[2, 3] x, bool c) => (float[] y) { t = ge.F(x) u = Relu(t) y = Identity(u)
        z = If(c) <then_branch = d () => (float[] p) { q = ge.F(x) p = Neg(q) }, else_branch = e () => (float[] r) { r = Neg(x) }> }"""
    namespace = {
        "ops": ops,
        "shape": lambda types, attributes: [TensorType(types[0].dtype, (7, None))],
    }
    exec("ops.register('ge::F', inputs=['x'], shape=shape)", namespace)
    registry = OpRegistry()
    registry.add_marked(namespace)
    model = load(text)
    infer_model(model)
    assert types(model, "t", "u", "q") == ["None"] * 3
    model = load(text)
    infer_model(model, Inferrer(model, registry))
    assert types(model, "t", "u", "q", "p") == ["float[7,?]"] * 4


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # a state that grows: the size is not that of the beginning
        ("v, t = Loop(n, c, x) <body = l (i, g, s) => (h, u, o) { h = Identity(g) u = Concat<axis = 0>(s, x) o = Neg(x) }>",
         {"s": "float[?,3]", "u": "float[? + 2,3]", "v": "float[?,3]", "t": "float[?,?,?]"}),
        ("v, t = Loop(n, c, x) <body = l (i, g, s) => (h, u, o) { h = Identity(g) u = Unsqueeze(s, a) o = Neg(x) }>",
         {"s": "float[*]", "u": "float[*]", "v": "float[*]", "t": "float[?,?,?]"}),
        # states that keep their types, as long as others do
        ("v, q = Loop(n, c, x, x) <body = l (i, g, s, r) => (h, u, p) { h = Identity(g) u = Add(s, r) p = Exp(r) }>",
         {"s": "float[2,3]", "v": "float[2,3]", "q": "float[2,3]"}),
        ("v, q = Loop(n, c, x, x) <body = l (i, g, s, r) => (h, u, p) { h = Identity(g) u = Neg(r) p = Concat<axis = 1>(r, x) }>",
         {"s": "float[2,?]", "r": "float[2,?]", "v": "float[2,?]", "q": "float[2,?]"}),
        ("v, q = Loop(n, c, x, y) <body = l (i, g, s, r) => (h, r, s) { h = Identity(g) }>",
         {"s": "float[?,?]", "r": "float[?,?]", "v": "float[?,?]", "q": "float[?,?]"}),
        # what is found of sizes while it is tried is of no account
        ("v = Loop(n, c, x) <body = l (i, g, s) => (h, u) { h = Identity(g) k = Shape(s) m = ConstantOfShape(k) u = Concat<axis = 0>(m, m) }>",
         {"k": "int64[2]", "m": "float[?,3]", "v": "float[?,3]"}),
        ("v = Loop(n, c, x) <body = l (i, g, s) => (h, u) { h = Identity(g) w = Loop(n, g, s) <body = k (j, e, r) => (f, q) {"
         " f = Identity(e) q = Neg(r) }> u = Concat<axis = 0>(w, x) }>", {"r": "float[?,3]", "w": "float[?,3]", "v": "float[?,3]"}),
        ("o = SequenceConstruct(x) v = Loop(n, c, o) <body = l (i, g, s) => (h, u) { h = Identity(g) e = SequenceAt(s, a) u = SequenceInsert(s, e) }>",
         {"e": "float[2,3]"}),
        ("o = SequenceConstruct(x) v = Loop(n, c, o) <body = l (i, g, s) => (h, u) { h = Identity(g) u = SequenceInsert(s, z) }> e = SequenceAt(v, a)",
         {"e": "float[*]"}),
        ("v, t = Loop(n, c, x) <body = l (i, g, s) => (h, u, o) { h = Identity(g) u = Exp(x) o = Neg(s) }>",
         {"s": "float[2,3]", "i": "int64[*]", "g": "bool[*]", "v": "float[2,3]", "t": "float[?,?,?]"}),
        # without an iteration ONNX Runtime makes outputs of size 0; here there is one
        ("k = Constant<value_int = 2>() v, t = Loop(k, , x) <body = l (i, g, s) => (h, u, o) { h = Identity(g) u = Exp(x) o = Neg(s) }>",
         {"v": "float[2,3]", "t": "float[?,2,3]"}),
        ("v, t = Loop(n, c, x) <body = l (i, g, s) => (h, u, o) { h = Identity(g) u = Neg(y) o = Neg(x) }>", {"v": "float[?,?]"}),
        ("v, t = Scan(x, z) <num_scan_inputs = 1, body = l (s, e) => (u, o) { u = Concat<axis = 0>(s, s) o = Neg(e) }>",
         {"s": "float[?,3]", "e": "float[4,5]", "v": "float[?,3]", "t": "float[7,4,5]"}),
        ("v, t = Scan(x, z) <num_scan_inputs = 1, body = l (s, e) => (u, o) { u = Neg(s) o = Exp(s) }>",
         {"s": "float[2,3]", "v": "float[2,3]", "t": "float[7,2,3]"}),
        ("v, t = Scan(x, z) <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1], body = l (s, e) => (u, o)"
         " { u = Exp(x) o = Neg(e) }>", {"e": "float[7,5]", "v": "float[2,3]", "t": "float[7,5,4]"}),
        ("v, t = Scan(x, z) <num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [1], body = l (s, e) => (u, o)"
         " { u = Exp(x) o = Neg(e) }>", {"e": "float[7,4]", "t": "float[7,5,4]"}),
        ("v = If(c) <then_branch = p () => (a) { a = Neg(x) }, else_branch = q () => (b) { b = Neg(y) }>", {"v": "float[?,?]"}),
        ("v = If(c) <then_branch = p () => (a) { a = Neg(x) }, else_branch = q () => (b) { b = Exp(x) }>", {"v": "float[2,3]"}),
        ("v = If(c) <then_branch = p () => (a) { a = Neg(x) }, else_branch = q () => (b) { b = Neg(z) }>", {"v": "float[*]"}),
        ("v = If(c) <then_branch = p () => (a) { a = Neg(x) }, else_branch = q () => (b) { b = Identity(n) }>", {"v": "None"}),
    ],
)  # fmt: skip
def test_what_enters_bodies_and_leaves_them(nodes, expected):
    model = load(
        f"g (float[2, 3] x, float[N, ?] y, float[7, 4, 5] z, int64 n, bool c) => (w) <int64 a = {{0}}> {{ {nodes} w = Identity(x) }}"
    )
    infer_model(model)
    assert dict(zip(expected, types(model, *expected), strict=True)) == expected


def test_what_is_tried_is_taken_back_when_a_vendor_s_function_fails():
    def shape(types, attributes):
        if types[0].shape is not None:
            raise ValueError("no shapes")
        return types

    namespace = {"ops": ops, "shape": shape}
    exec("ops.register('ge::F', inputs=['x'], shape=shape)", namespace)
    registry = OpRegistry()
    registry.add_marked(namespace)
    model = load(
        "g (float[2] x, int64 n, bool c) => (y) { y = Loop(n, c, x) <body = l (i, g, s) => (h, u) { h = Not(g) u = ge.F(s) }> }"
    )
    with pytest.raises(VendorError, match="no shapes"):
        infer_model(model, Inferrer(model, registry))
    assert types(model, "s", "h", "u", "y") == ["None"] * 4


def test_a_node_that_cannot_be_stops_nothing():
    model = load(
        "g (float[2] x, float[3] z) => (float[2] y) { t = Add(x, z) u = Relu(t) y = Neg(x) v = Abs(y) }"
    )
    infer_model(model)
    assert types(model, "t", "u", "v") == ["None", "None", "float[2]"]


@pytest.mark.parametrize("opset", [9, 13, 20])
def test_every_opset(opset):
    model = load("g (float[2, 3] x) => (float[] y) { t = Relu(x) y = Add(t, t) }", opset)
    infer_model(model)
    assert types(model, "t", "y") == ["float[2,3]"] * 2


def says_no_less(ours: ValueType | None, theirs: ValueType | None) -> bool:
    if not isinstance(ours, TensorType) or not isinstance(theirs, TensorType):
        return theirs is None or ours == theirs
    if (
        ours.dtype != theirs.dtype
        or theirs.shape is None
        or ours.shape is None
        or len(ours.shape) != len(theirs.shape)
    ):
        return ours.dtype == theirs.dtype and theirs.shape is None
    return all(
        other is None
        or one == other
        or isinstance(one, int)
        or str(one).startswith(f"either({other}, ")  # where it is 0, Reshape copies another size
        for one, other in zip(ours.shape, theirs.shape, strict=True)
    )


def all_types(graph: onnx.GraphProto) -> dict[str, ValueType | None]:
    actual = {info.name: decode_type(info.type) for info in (*graph.value_info, *graph.output)}
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                actual |= all_types(body)
    return actual


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
@pytest.mark.parametrize("declared", [True, False], ids=["as it is", "nothing declared"])
def test_of_real_models_no_less_is_known_than_onnx_s_own_inference_tells(path, declared):
    proto = onnx.load(path)
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]  # the numbers in it are claims
    theirs = all_types(onnx.shape_inference.infer_shapes(bare, data_prop=True).graph)
    if path.stem == "loop":
        del theirs["trace"], theirs["go_out"]  # it may have no iteration; the rank is a claim
    model = Model(proto if declared else bare, path=str(path))
    infer_model(model)
    ours = {name: value.type for graph in model.graphs for name, value in graph.values.items()}
    assert {
        name: (str(ours[name]), str(facts))
        for name, facts in theirs.items()
        if not says_no_less(ours[name], facts)
    } == {}
