"""Attributes as Python values and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from gehost.ir.attributes import attribute_value, encode_attribute
from gehost.ir.model import Model

KINDS = onnx.AttributeProto


def load(nodes: str) -> Model:
    return Model(
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 17, "local": 1]> g () => () {{ {nodes} }}'
        )
    )


@pytest.mark.parametrize(
    ("value", "kind", "decoded"),
    [
        (3, KINDS.INT, 3),
        (True, KINDS.INT, 1),
        (np.bool_(True), KINDS.INT, 1),
        (np.int32(-4), KINDS.INT, -4),
        (0.5, KINDS.FLOAT, 0.5),
        (np.float16(1.5), KINDS.FLOAT, 1.5),
        ("linear", KINDS.STRING, "linear"),
        (b"\xff", KINDS.STRING, b"\xff"),
        ([1, True, np.int64(2)], KINDS.INTS, [1, 1, 2]),
        ((1, 2.5), KINDS.FLOATS, [1.0, 2.5]),
        (["a", b"b"], KINDS.STRINGS, ["a", "b"]),
        ([], KINDS.INTS, []),
        (range(3), KINDS.INTS, [0, 1, 2]),
    ],
)
def test_round_trip(value, kind, decoded):
    proto = encode_attribute("name", value)
    onnx.checker.check_attribute(proto)
    assert (proto.name, proto.type) == ("name", kind)
    assert attribute_value(proto) == decoded


def test_tensors_graphs_and_types():
    array = np.array([[1, 2]], ml_dtypes.bfloat16)
    proto = encode_attribute("t", array)
    assert proto.type == KINDS.TENSOR
    back = attribute_value(proto)
    assert (back.dtype, back.tolist()) == (array.dtype, [[1, 2]])
    tensor = onnx.numpy_helper.from_array(np.array([7]), "named")
    assert encode_attribute("t", tensor).t == tensor
    graph = onnx.parser.parse_graph("b () => (float y) { y = F() }")
    assert encode_attribute("g", graph).g == graph
    kind = onnx.helper.make_tensor_type_proto(1, [2])
    assert encode_attribute("k", kind).tp == kind


def test_a_protobuf_is_copied_under_the_new_name():
    source = onnx.helper.make_attribute("old", 3, doc_string="said")
    copy = encode_attribute("new", source)
    assert (copy.name, copy.i, copy.doc_string, source.name) == ("new", 3, "said", "old")


@pytest.mark.parametrize("value", [object(), None, {"a": 1}, [1, "a"], [[1]], [object()]])
def test_what_onnx_has_no_kind_for(value):
    with pytest.raises(TypeError, match='attribute "name": ONNX has no type for'):
        encode_attribute("name", value)


def test_a_node_s_attributes_are_a_mapping():
    model = load('o = local.F<b = 1, a = "x", t = float[2] {1, 2}, ts = [0.5, 1.5]>()')
    attrs = next(model.graph.nodes).attrs
    assert list(attrs) == ["b", "a", "t", "ts"]
    assert (attrs["b"], attrs["a"], attrs["t"].tolist(), attrs["ts"], len(attrs)) == (
        1,
        "x",
        [1, 2],
        [0.5, 1.5],
        4,
    )
    assert not attrs["t"].flags.writeable
    assert attrs.get("c", "absent") == "absent"
    assert repr(attrs).startswith("{'b': 1, 'a': 'x'")
    with pytest.raises(KeyError):
        attrs["c"]


def test_equal_attributes_have_equal_keys_whatever_their_order():
    model = load(
        "p = F<b = 1, a = [1, 2]>() q = F<a = [1, 2], b = 1>() r = F<a = [1, 2], b = 2>() s = F<a = [1.0, 2.0], b = 1>()"
    )
    first, second, third, fourth = (node.attrs.serialized() for node in model.graph.nodes)
    assert first == second
    assert len({second, third, fourth}) == 3


def test_bodies_are_graphs_of_the_index():
    model = load(
        "o = local.F<one = b () => (float y) { y = G() }, two = c () => (float z) { z = G() }>()"
    )
    (node,) = model.graph.nodes
    assert (node.attrs["one"], node.attrs["two"]) == node.bodies
    assert node.attrs["two"].name == "c"


@pytest.mark.parametrize(
    ("attribute", "dtype", "expected"),
    [
        ("value = int32[2] {3, 4}", np.int32, [3, 4]),
        ("value_int = 5", np.int64, 5),
        ("value_ints = [5, 6]", np.int64, [5, 6]),
        ("value_float = 0.5", np.float32, 0.5),
        ("value_floats = [0.5, 1.5]", np.float32, [0.5, 1.5]),
        ('value_string = "s"', object, "s"),
        ('value_strings = ["s", "t"]', object, ["s", "t"]),
    ],
)
def test_every_form_of_constant(attribute, dtype, expected):
    model = load(f"c = Constant<{attribute}>()")
    array = model.graph.values["c"].numpy()
    assert (array.dtype, array.tolist()) == (np.dtype(dtype), expected)
    assert not array.flags.writeable


def test_a_sparse_constant_has_no_array():
    model = load("c = Constant()")
    (node,) = model.graph.nodes
    sparse = onnx.SparseTensorProto(dims=[3])
    node.proto.attribute.add(name="sparse_value", type=KINDS.SPARSE_TENSOR, sparse_tensor=sparse)
    assert model.graph.values["c"].array is None
