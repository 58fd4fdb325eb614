"""Types of single nodes: ONNX's functions, vendors' functions, bodies, and what is kept of results."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.shape_inference
import pytest

from gehost import ops
from gehost.errors import PatternError, VendorError
from gehost.infer import Inferrer, infer_model, local
from gehost.infer.doubts import Doubt
from gehost.infer.local import array_type, small_array
from gehost.infer.refined import is_complete
from gehost.ir.model import Model
from gehost.ir.types import DataType, TensorType
from gehost.ops import OpRegistry
from gehost.refusal import Refused


def load(text: str, opset: int = 17, functions: str = "") -> Model:
    return Model(
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": {opset}, "ge": 1]> {text} {functions}'
        )
    )


def infer(
    text: str, opset: int = 17, functions: str = "", registry: OpRegistry | None = None
) -> list[str]:
    """The types of the outputs of the first node."""
    model = load(text, opset, functions)
    return [
        str(type_)
        for type_ in Inferrer(model, registry or OpRegistry()).node(next(model.graph.nodes))
    ]


def registered(**options) -> OpRegistry:
    namespace = {"ops": ops, "options": options}
    exec(
        "ops.register('ge::F', inputs=['a', 'b'], attributes={'alpha': 1.0}, **options)", namespace
    )
    registry = OpRegistry()
    registry.add_marked(namespace)
    return registry


# -- ONNX's own -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "opset", "expected"),
    [
        (
            "g (float[N, 3] x, float[3, 4] w) => (float[] y) { y = MatMul(x, w) }",
            17,
            ["float[N,4]"],
        ),
        ("g (float[?, 3] x) => (float[] y) { y = Relu(x) }", 17, ["float[?,3]"]),
        ("g (float[2, 3] x) => (float[] y) { y = ReduceMean<axes = [1]>(x) }", 17, ["float[2,1]"]),
        (
            "g (float[2, 3] x) => (float[] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }",
            18,
            ["float[2,1]"],
        ),
        (
            "g (float[2, 3] x) => (float[] y) <int64[2] s = {3, 2}> { y = Reshape(x, s) }",
            17,
            ["float[3,2]"],
        ),
        (
            "g (float[9] x) => (float[] y) <int64[1] k = {3}> { y, i = TopK(x, k) }",
            17,
            ["float[3]", "int64[3]"],
        ),
        ("g (float[4] x, float h) => (float[] y) { y = Clip(x, , h) }", 17, ["float[4]"]),
        ("g (float[4] x) => (bool[] m) { , m = Dropout(x) }", 17, ["None", "bool[4]"]),
        ("g (float[4] x) => (float[] y) { y = acme.Unknown(x) }", 17, ["None"]),
        ("g (float[4] x) => (float[] y) { y = Gelu(x) }", 17, ["None"]),
        ("g (float[4] x) => (float[] y) { y = Shape(x) }", 17, ["int64[1]"]),
        (
            "g (float[2, N, 4, 5] x) => (float[] y) { y = MeanVarianceNormalization(x) }",
            13,
            ["float[2,N,4,5]"],
        ),
        ("g () => (float[] y) { y = Constant<value = float[2] {1, 2}>() }", 17, ["float[2]"]),
    ],
)
def test_onnx_s_operators(text, opset, expected):
    assert infer(text, opset) == expected


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, 3] x, float[4, 5] w) => (float[] y) { y = MatMul(x, w) }",
        "g (float[2, 3] x) => (float[] y) { y = ReduceMean<axes = [5]>(x) }",
        "g (float[2, 3] x, float h) => (float[] y) { y = Concat<axis = 7>(x, x) }",
    ],
)
def test_what_an_operator_does_not_take(text):
    with pytest.raises(Refused):
        infer(text)


def test_an_unknown_input_makes_a_node_unknown_and_not_wrong():
    assert infer("g (float[2, 3] x, float[] u) => (float[] y) { y = MatMul(x, u) }") == ["float[*]"]
    model = load("g (float[2, 3] x) => (float[] y) { u = acme.F(x) y = Gemm(u, u) }")
    assert Inferrer(model, OpRegistry()).node(model.graph.values["y"].producer) == (None,)


def test_an_input_without_an_element_type_makes_a_node_unknown_and_not_wrong():
    model = load("g (float[2, 3] x) => (float[] y) { y = Mul(x, x) }")
    node, no_dtype = next(model.graph.nodes), TensorType(DataType.UNDEFINED, (2, 3))
    assert Inferrer(model, OpRegistry()).node(node, [no_dtype] * 2) == (None,)
    assert not is_complete(no_dtype)


@pytest.mark.parametrize(("opset", "expected"), [(7, None), (8, "N + 1")])
def test_sizes_are_computed_at_opsets_without_the_doubt(opset, expected):
    text = "g (float[N] x, float[1] z) => (float[] y) { y = Concat<axis = 0>(x, z) }"
    model = load(text, opset)
    inferrer = Inferrer(model, OpRegistry(), {"Concat": [Doubt(6, 7, ("any_node",), 0)]})
    node = next(model.graph.nodes)
    assert inferrer.node(node) == (TensorType(DataType.FLOAT, (expected,)),)


def test_other_types_in_place_of_the_inputs():
    model = load("g (float[2, 3] x) => (float[] y) { y = Relu(x) }")
    inferrer, node = Inferrer(model, OpRegistry()), next(model.graph.nodes)
    assert inferrer.node(node, [TensorType(DataType.FLOAT16, ("?1", 7))]) == (
        TensorType(DataType.FLOAT16, ("?1", 7)),
    )
    assert inferrer.node(node) == (TensorType(DataType.FLOAT, (2, 3)),)


def test_a_protobuf_that_is_no_node():
    inferrer = Inferrer(load("g () => () { }"), OpRegistry())
    axes = np.array([0])
    proto = onnx.NodeProto(op_type="Squeeze", input=["a", "b"], output=["c"])
    assert inferrer.proto(
        "Squeeze", proto, [TensorType(DataType.FLOAT, (1, 3)), array_type(axes)], [None, axes]
    )[0].shape == (3,)
    assert inferrer.proto("Squeeze", proto, [TensorType(DataType.FLOAT, (1, 3)), array_type(axes)])[
        0
    ] == TensorType(DataType.FLOAT, None)


def test_a_result_is_computed_once(monkeypatch):
    model = load(
        "g (float[N, 3] x, float[M, 3] z) => (float a, float b, float c) { a = Relu(x) b = Relu(x) c = Relu(z) }"
    )
    calls = []
    infer_node = onnx.shape_inference.infer_node_outputs
    monkeypatch.setattr(
        onnx.shape_inference,
        "infer_node_outputs",
        lambda *a, **k: calls.append(a) or infer_node(*a, **k),
    )
    inferrer = Inferrer(model, OpRegistry())
    assert [str(inferrer.node(node)[0]) for node in model.graph.nodes] == [
        "float[N,3]",
        "float[N,3]",
        "float[M,3]",
    ]
    assert len(calls) == 2


@pytest.mark.parametrize("entry", ["value = int64[4] {%s}", "value_ints = [%s]"])
def test_constants_decide_before_they_have_a_type(entry):
    text = """g (float[24] x) => (float[] y, float[] z) {
        a = Constant<%s>() b = Constant<%s>() y = Reshape(x, a) z = Reshape(x, b) }"""
    model = load(text % (entry % "1, 2, 3, 4", entry % "4, 3, 2, 1"))
    inferrer = Inferrer(model, OpRegistry())
    assert [str(inferrer.node(node)[0]) for node in model.graph.nodes_of("Reshape")] == [
        "float[1,2,3,4]",
        "float[4,3,2,1]",
    ]


@pytest.mark.parametrize(
    ("value", "declared"), [("float[7] {%s}", "float"), ("int64[7] {%s}", "int64")]
)
def test_long_floats_are_all_alike(monkeypatch, value, declared):
    text = """g () => (float[] y, float[] z) {
        a = Constant<value = %s>() b = Constant<value = %s>() y = ReduceSumSquare(a) z = ReduceSumSquare(b) }"""
    model = load(text % (value % "1, 2, 3, 4, 5, 6, 7", value % "7, 6, 5, 4, 3, 2, 1"))
    for node in model.graph.nodes_of("Constant"):
        node.outputs[0].known_type = TensorType(DataType[declared.upper()], (7,))
    calls = []
    infer_node = onnx.shape_inference.infer_node_outputs
    monkeypatch.setattr(
        onnx.shape_inference,
        "infer_node_outputs",
        lambda *a, **k: calls.append(a) or infer_node(*a, **k),
    )
    inferrer = Inferrer(model, OpRegistry())
    for node in model.graph.nodes_of("ReduceSumSquare"):
        inferrer.node(node)
    assert len(calls) == (1 if declared == "float" else 2)


def test_large_constants_are_not_read(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[] y) { y = Add(x, w) }'
    )
    tensor = proto.graph.initializer.add(
        name="w", data_type=1, dims=[5000, 2], data_location=onnx.TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="missing.bin")
    model = Model(proto, path=str(tmp_path / "m.onnx"))
    assert str(Inferrer(model, OpRegistry()).node(next(model.graph.nodes))[0]) == "float[5000,2]"
    assert small_array(model.graph.values["w"]) is None
    assert small_array(model.graph.values["x"]) is None
    assert small_array(None) is None


def test_control_flow_is_unknown():
    text = "g (float[2] x, bool c) => (float[] y) { y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    assert infer(text) in (["None"], ["float[2]"])


# -- vendors' operators ---------------------------------------------------------------------------------------------


def test_a_vendor_s_function_is_asked():
    events = []

    def shape(types, attributes):
        events.append((types, attributes))
        return [TensorType(DataType.INT8, ("N",)), None]

    text = 'g (float[2] x) => (float[] y) { y = ge.F<alpha = 2.0, word = "x">(x) }'
    assert infer(text, registry=registered(shape=shape)) == ["int8[N]"]
    assert events == [([TensorType(DataType.FLOAT, (2,)), None], {"alpha": 2.0, "word": "x"})]
    events.clear()
    infer("g (float[2] x) => (float[] y) { y = ge.F(x, x) }", registry=registered(shape=shape))
    assert events[0][1] == {"alpha": 1.0}


def broken(types, attributes):
    raise KeyError("no")


def own_error(types, attributes):
    raise PatternError("mine")


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        (broken, VendorError, r"the shape function of ge::F failed: KeyError: 'no'"),
        (
            lambda types, attributes: [],
            VendorError,
            "the shape function of ge::F gives 0 types for 1 outputs",
        ),
        (lambda types, attributes: 3, VendorError, "the shape function of ge::F failed: TypeError"),
        (
            lambda types, attributes: types[0],
            VendorError,
            r"gives TensorType\(.*; wanted a list, with a TensorType or None",
        ),
        (
            lambda types, attributes: [(DataType.FLOAT, (2,))],
            VendorError,
            "wanted a list, with a TensorType or None",
        ),
        (own_error, PatternError, "mine"),
    ],
)
def test_a_wrong_function_is_an_error_with_its_line(shape, error, message):
    with pytest.raises(error, match=message) as caught:
        infer("g (float[2] x) => (float[] y) { y = ge.F(x) }", registry=registered(shape=shape))
    assert error is PatternError or str(caught.value).startswith("<string>:1: ")


def test_a_node_of_another_name_is_still_the_vendor_s_operator():
    model = load("g (float[2] x) => (float[] y) { y = ge.F__12345678(x) }")
    node = next(model.graph.nodes)
    node.proto.metadata_props.add(key="gehost.op", value="ge::F")
    registry = registered(shape=lambda types, attributes: [TensorType(DataType.BOOL, ())])
    assert Inferrer(model, registry).node(node) == (TensorType(DataType.BOOL, ()),)


def test_the_registered_operator_is_part_of_the_cache_key():
    """Two operators of one name and equal types: only one is the vendor's."""
    model = load("g (float[2] x) => (float[] y) { z = ge.F__1(x) y = ge.F__1(x) }")
    first, second = model.graph.nodes
    second.proto.metadata_props.add(key="gehost.op", value="ge::F")
    registry = registered(shape=lambda types, attributes: [TensorType(DataType.BOOL, ())])
    inferrer = Inferrer(model, registry)
    expected = [(None,), (TensorType(DataType.BOOL, ()),)]
    assert [inferrer.node(first), inferrer.node(second)] == expected
    types = [first.inputs[0].type]
    actual = [inferrer.proto(node.op, node.proto, types) for node in (first, second)]
    assert actual == expected


# -- bodies ---------------------------------------------------------------------------------------------------------

BODY = '<domain: "ge", opset_import: ["": 17]> F <axes> (p, q) => (r, s) { t = ReduceMean<axes: ints = @axes, keepdims = 0>(p) c = Constant<value = int64[2] {-1, 1}>() r = Reshape(t, c) s = Add(t, q) }'


def test_types_go_through_a_body():
    text = "g (float[2, N, 4] x, float[1] z) => (float[] y) { y, u = ge.F<axes = [1]>(x, z) }"
    assert infer(text, functions=BODY) == ["float[8,1]", "float[2,4]"]
    assert infer(text.replace("y, u", "y").replace("[1]>", "[2]>"), functions=BODY) == [
        "float[?,1]"
    ]


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_a_body_has_its_own_opset(domain):
    body = f'<domain: "ge", opset_import: ["{domain}": 18]> F (p) => (r) {{ c = Constant<value = int64[1] {{1}}>() r = ReduceMean(p, c) }}'
    assert infer("g (float[2, 3] x) => (float[] y) { y = ge.F(x) }", 17, body) == ["float[2,1]"]


def test_a_body_that_calls_itself_ends():
    body = '<domain: "ge", opset_import: ["": 17, "ge": 1]> F (p) => (r) { r = ge.F(p) }'
    assert infer("g (float[2, 3] x) => (float[] y) { y = ge.F(x) }", 17, body) == ["None"]


def test_another_body_of_the_same_name_is_not_the_one_that_was_seen():
    model = load("g (float[2, 3] x) => (float[] y) { y = ge.F(x) }")
    inferrer, node = Inferrer(model, OpRegistry()), next(model.graph.nodes)

    def offer(op_type: str) -> str:
        function = onnx.parser.parse_function(
            f'<domain: "ge", opset_import: ["": 17]> F (p) => (r) {{ r = {op_type}(p) }}'
        )
        mark = model.mark()
        model.offer_function("ge::F", function)
        actual = str(inferrer.node(node)[0])
        model.undo(mark)
        return actual

    assert [offer("Transpose"), offer("Relu"), offer("Shape")] == [
        "float[3,2]",
        "float[2,3]",
        "int64[2]",
    ]
    assert inferrer.node(node) == (None,)


IN_GRAPHS = """F <keep> (c, x) => (q) { q = If(c) <
    then_branch = t () => (u) { s = Constant<value = float[2, 3] {1, 2, 3, 4, 5, 6}>() u = ReduceSum<keepdims: int = @keep>(s) },
    else_branch = e () => (v) { w = Constant<value = float[2, 3] {1, 2, 3, 4, 5, 6}>() v = ReduceSum<keepdims: int = @keep>(w) }> }"""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (IN_GRAPHS, ["float[1,1]", "float[]", "float[1,1]"]),
        (
            "F <keep> (c, x) => (q) { q = ReduceSum<keepdims: int = @keep>(x) }",
            ["float[1,1]", "float[]", "float[1,1]"],
        ),
        (
            "F <keep> (c, x) => (q) { s = Constant<value_ints = [3, 2]>() q = Reshape(x, s) }",
            ["float[3,2]"] * 3,
        ),
        ("F <keep> (c, x) => (q) { q = acme.Constant<value = float[2] {1, 2}>() }", ["None"] * 3),
    ],
    ids=["in graphs", "at the top", "plain numbers", "of another domain"],
)
def test_attributes_and_constants_of_bodies(function, expected):
    text = "g (float[2, 3] x, bool c) => (float a, float b, float d) { a = ge.F<keep = 1>(c, x) b = ge.F<keep = 0>(c, x) d = ge.F(c, x) }"
    model = load(text, functions=f'<domain: "ge", opset_import: ["": 17, "acme": 1]> {function}')
    inferrer = Inferrer(model, OpRegistry())
    assert [str(inferrer.node(node)[0]) for node in model.graph.nodes] == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("F (c, x) => (q) { s = Shape(x) i = Constant<value = int64[1] {0}>() n = Gather(s, i) m = Constant<value = int64[1] {12}>()"
         " t = Concat<axis = 0>(n, m) q = Reshape(x, t) }", "float[N,12]"),
        ("F (c, x) => (q) { q = If(c) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Exp(x) }> }", "float[N,?1,4]"),
        ("F (c, x, k) => (q) { s = Shape(x) r = Reshape(x, s) q = Clip(r, k, k) }", "float[N,?1,4]"),
        ("F (c, x) => (q) { s = Shape(x) r = Reshape(x, s) q = ge.F(c, r) }", "None"),
        ("F (c, x) => (q) { s = Shape(x) q = Reshape(nothing, s) }", "None"),
        ("F (c, x) => (q) { q = Scan(x, x) <num_scan_inputs = 1, body = b (s, e) => (u) { u = Concat<axis = 0>(s, s) }> }", "float[?2,?1,4]"),
    ],
    ids=["computed shape", "bodies", "absent input", "itself", "of no meaning", "a state that grows"],
)  # fmt: skip
def test_what_more_a_body_tells_as_a_model(function, expected):
    model = load(
        "g (float[N, ?, 4] x, bool c) => (y) { y = ge.F(c, x) }",
        functions=f'<domain: "ge", opset_import: ["": 17, "ge": 1]> {function}',
    )
    infer_model(model)
    assert str(model.graph.values["y"].type) == expected


def test_bodies_of_bodies_are_looked_into_once(monkeypatch):
    """Each level asks for the next in two ways."""
    last = "F0 (c, x) => (q) { s = Shape(x) q = Reshape(x, s) }"
    levels = [
        f"F{k + 1} (c, x) => (q) {{ s = Shape(x) r = Reshape(x, s) q = ge.F{k}(c, r) }}"
        for k in range(12)
    ]
    functions = " ".join(
        f'<domain: "ge", opset_import: ["": 17, "ge": 1]> {text}' for text in (last, *levels)
    )
    model = load("g (float[N, ?, 4] x, bool c) => (y) { y = ge.F12(c, x) }", functions=functions)
    calls = []
    as_a_model = local.as_a_model
    monkeypatch.setattr(
        local, "as_a_model", lambda *value: calls.append(value) or as_a_model(*value)
    )
    infer_model(model)
    assert str(model.graph.values["y"].type) == "float[N,?1,4]"
    assert len(calls) < 50
