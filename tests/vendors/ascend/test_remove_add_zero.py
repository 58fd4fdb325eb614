from __future__ import annotations

import numpy as np
import onnx
import pytest

NAME = "RemoveAddZeroPass"
F32 = np.float32


@pytest.mark.parametrize("opset", [9, 13, 17])
@pytest.mark.parametrize(
    "zero",
    [
        F32(0),
        F32(-0.0),
        np.zeros(1, F32),
        np.zeros(3, F32),
        np.zeros((2, 3), F32),
        np.zeros((1, 1), F32),
    ],
)
@pytest.mark.parametrize("operands", ["x, zero", "zero, x"])
def test_fires_in_both_orders(ascend, operands, zero, opset):
    text = f"g (float[2,3] a) => (float[2,3] y) {{ x = Neg(a) s = Add({operands}) y = Abs(s) }}"
    ascend.assert_rewrites(
        ascend.model(text, opset=opset, zero=zero), NAME, 1, {"Neg": 1, "Abs": 1}
    )


@pytest.mark.parametrize("dtype", ["float16", "double", "int32", "int64"])
def test_other_dtypes(ascend, dtype):
    zero = np.zeros((), {"double": "float64"}.get(dtype, dtype))
    text = f"g ({dtype}[2,3] x) => ({dtype}[2,3] y) {{ s = Add(x, zero) y = Neg(s) }}"
    ascend.assert_rewrites(ascend.model(text, zero=zero), NAME, 1, {"Neg": 1})


def test_a_graph_output_keeps_its_name(ascend):
    text = "g (float[2,3] x) => (float[2,3] y) { y = Add(x, zero) }"
    result = ascend.assert_rewrites(ascend.model(text, zero=F32(0)), NAME, 1, {"Identity": 1})
    assert [output.name for output in result.graph.output] == ["y"]


def test_zero_from_a_constant_node_and_unknown_sizes(ascend):
    text = """g (float[N,?,3] x) => (float[N,?,3] y) {
        zero = Constant <value = float {0}> () s = Add(x, zero) t = Add(zeros, s) y = Neg(t) }"""
    model = ascend.model(text, zeros=np.zeros((1, 3), F32))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "other"
    ascend.assert_rewrites(
        model, NAME, 2, {"Neg": 1, "Constant": 1}, {"N": 2, "other": 1}, {"N": 1, "other": 4}
    )


def test_a_number_widens_nothing_even_where_the_rank_is_unknown(ascend):
    text = "g (float[6] x, int64[r] s) => (float[?,?] y) { u = Reshape(x, s) t = Add(u, zero) y = Neg(t) }"
    result, (record,) = ascend.run(ascend.model(text, zero=F32(0)), NAME)
    assert record.replaced == 1
    assert ascend.ops(result) == {"Reshape": 1, "Neg": 1}


@pytest.mark.parametrize(
    ("shape", "zero", "result"),
    [
        ("2,3", (5, 2, 3), "5,2,3"),
        ("1,3", (4, 3), "4,3"),
        ("?,3", (4, 3), "4,3"),
        ("N,3", (4, 3), "4,3"),
        ("N", (2, 1), "2,N"),
    ],
)
def test_zeros_that_widen_are_refused(ascend, shape, zero, result):
    """With ``?`` or ``N`` the sum's size is known to be 4 and x may still be of size 1."""
    text = f"g (float[{shape}] x) => (float[{result}] y) {{ s = Add(x, zero) y = Neg(s) }}"
    ascend.assert_refuses(ascend.model(text, zero=np.zeros(zero, F32)), NAME, zeros=1)


@pytest.mark.parametrize("value", [F32(1e-30), np.array([0, 0, 1], F32), F32(np.nan)])
def test_other_numbers_do_not_match(ascend, value):
    ascend.assert_refuses(
        ascend.model("g (float[2,3] x) => (float[2,3] y) { y = Add(x, zero) }", zero=value), NAME
    )


def test_zeros_that_are_no_constant_do_not_match(ascend):
    text = "g (float[2,3] x, float[3] zero) => (float[2,3] y) { y = Add(x, zero) }"
    ascend.assert_refuses(ascend.model(text), NAME)
    overridable = ascend.model(text, zero=np.zeros(3, F32))
    ascend.assert_refuses(overridable, NAME)


def test_below_ir_4_an_initializer_among_the_inputs_is_a_constant(ascend):
    text = "g (float[2,3] x, float[3] zero) => (float[2,3] y) { s = Add(x, zero) y = Neg(s) }"
    ascend.assert_rewrites(
        ascend.model(text, ir=3, opset=9, zero=np.zeros(3, F32)), NAME, 1, {"Neg": 1}
    )


def test_bool_is_refused(ascend):
    model = ascend.model(
        "g (bool[2] x) => (bool[2] y) { y = Add(x, zero) }", zero=np.zeros((), np.bool_)
    )
    ascend.assert_refuses(model, NAME, dtype=1)


def test_adding_nothing_to_itself(ascend):
    text = "g (float[2,3] x) => (float[2,3] y) { z = Add(zero, zero) y = Sub(x, z) }"
    ascend.assert_rewrites(ascend.model(text, zero=np.zeros((2, 3), F32)), NAME, 1, {"Sub": 1})


def test_a_chain_and_several_readers(ascend):
    text = """g (bool p, float[2,3] x) => (float[2,3] y, float[2,3] t, float[2,3] z) {
        s = Add(x, zero) t = Add(zero, s) y = Neg(s)
        z = If (p) <then_branch = h () => (float[2,3] u) { u = Neg(s) }, else_branch = e () => (float[2,3] v) { v = Abs(t) }> }"""
    ascend.assert_rewrites(
        ascend.model(text, zero=F32(0)), NAME, 2, {"Neg": 1, "Identity": 1, "If": 1}
    )


def test_inside_the_bodies_of_an_if(ascend):
    text = """g (bool p, float[2,3] x) => (float[2,3] y) {
        y = If (p) <then_branch = h () => (float[2,3] u) { n = Neg(x) s = Add(n, zero) u = Abs(s) },
                    else_branch = e () => (float[2,3] v) { v = Add(zero, x) }> }"""
    result, (record,) = ascend.run(model := ascend.model(text, zero=F32(0)), NAME)
    assert record.replaced == 2
    bodies = {
        entry.name: [node.op_type for node in entry.g.node]
        for entry in result.graph.node[0].attribute
    }
    assert bodies == {"then_branch": ["Neg", "Abs"], "else_branch": ["Identity"]}
    ascend.assert_equal(model, result)


def test_inside_the_body_of_a_custom_operator(ascend):
    """The graph attribute of an operator that nobody knows is searched like any body."""
    text = """g (float[2,3] x) => (float[2,3] y) {
        y = ge.Fused <body = b (float[2,3] u) => (float[2,3] v) { n = Neg(u) s = Add(n, zero) v = Abs(s) }> (x) }"""
    result, (record,) = ascend.run(ascend.model(text, zero=F32(0)), NAME)
    assert record.replaced == 1
    (fused,) = result.graph.node
    assert (fused.domain, fused.op_type) == ("ge", "Fused")
    body = fused.attribute[0].g
    assert [(node.op_type, list(node.input)) for node in body.node] == [
        ("Neg", ["u"]),
        ("Abs", ["n"]),
    ]
    onnx.checker.check_graph(body, onnx.checker.DEFAULT_CONTEXT)


def test_before_opset_7_add_broadcasts_by_an_attribute(ascend):
    text = "g (float[2,3] a) => (float[2,3] y) { y = Add <broadcast = 1> (a, zero) }"
    _, (record,) = ascend.run(ascend.model(text, opset=6, zero=np.zeros((), F32)), NAME)
    assert (record.status, record.replaced) == ("not applicable", 0)
