from __future__ import annotations

import numpy as np
import onnx
import pytest

NAME = "FlattenBatchMatMulAddPass"
STATIC = {"Flatten": 1, "Gemm": 1, "Reshape": 1}
DYNAMIC = {"Shape": 1, "Slice": 1, "Concat": 1, **STATIC}


def site(x, y, operands="t, b", dtype="float"):
    return f"g ({dtype}[{x}] x) => ({dtype}[{y}] y) {{ t = MatMul(x, w) y = Add({operands}) }}"


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 20])
@pytest.mark.parametrize("operands", ["t, b", "b, t"])
def test_known_sizes(ascend, operands, opset):
    ascend.assert_rewrites(
        ascend.model(site("2,5,3", "2,5,4", operands), opset=opset, w=(3, 4), b=(4,)),
        NAME,
        1,
        STATIC,
    )


@pytest.mark.parametrize("opset", [9, 13, 17])
@pytest.mark.parametrize(
    ("x", "y"), [("N,5,3", "N,5,4"), ("5,N,3", "5,N,4"), ("2,N,5,3", "2,N,5,4")]
)
def test_one_unknown_size_is_written_as_minus_one(ascend, x, y, opset):
    model = ascend.model(site(x, y), opset=opset, w=(3, 4), b=(4,))
    result = ascend.assert_rewrites(model, NAME, 1, STATIC, {"N": 1}, {"N": 6}, {"N": 0})
    (shape,) = (
        onnx.numpy_helper.to_array(t).tolist()
        for t in result.graph.initializer
        if t.data_type == onnx.TensorProto.INT64
    )
    assert shape == [-1 if size == "N" else int(size) for size in y.split(",")]


@pytest.mark.parametrize("opset", [14, 17, 20])
def test_several_unknown_sizes_are_taken_from_the_input(ascend, opset):
    model = ascend.model(site("N,S,3", "N,S,4"), opset=opset, w=(3, 4), b=(4,))
    sizes = [{"N": n, "S": s} for n, s in ((1, 1), (2, 5), (0, 5), (5, 0), (0, 0))]
    ascend.assert_rewrites(model, NAME, 1, DYNAMIC, *sizes)
    model = ascend.model(site("N,7,S,T,3", "N,7,S,T,4"), opset=opset, w=(3, 4), b=(4,))
    ascend.assert_rewrites(model, NAME, 1, DYNAMIC, {"N": 2, "S": 3, "T": 1})


def test_sizes_without_a_name(ascend):
    model = ascend.model(site("?,?,3", "?,?,4"), w=(3, 4), b=(4,))
    _, (record,) = ascend.run(model, NAME)
    assert record.replaced == 1


def test_the_inner_size_of_the_stack_need_not_be_known(ascend):
    ascend.assert_rewrites(
        ascend.model(site("N,S,K", "N,S,4"), w=(3, 4), b=(4,)),
        NAME,
        1,
        DYNAMIC,
        {"N": 2, "S": 5, "K": 3},
    )


@pytest.mark.parametrize("bias", [(), (1,), (4,), (1, 4), (1, 1)])
def test_bias_along_the_last_axis(ascend, bias):
    ascend.assert_rewrites(ascend.model(site("2,5,3", "2,5,4"), w=(3, 4), b=bias), NAME, 1, STATIC)


def test_bias_through_an_identity_and_weights_that_are_computed(ascend):
    text = "g (float[2,S,3] x, float[4,3] v) => (float[2,S,4] y) { c = Identity(b) w = Transpose(v) t = MatMul(x, w) y = Add(c, t) }"
    model = ascend.model(text, b=(4,))
    ascend.assert_rewrites(
        model, NAME, 1, {"Identity": 1, "Transpose": 1, **STATIC}, {"S": 5}, {"S": 1}
    )


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_dtypes(ascend, dtype):
    text = f"g ({dtype}[2,5,3] x, {dtype}[3,4] w, {dtype}[4] b) => ({dtype}[2,5,4] y) {{ t = MatMul(x, w) y = Add(t, b) }}"
    ascend.assert_rewrites(ascend.model(text), NAME, 1, STATIC)


def test_below_ir_4(ascend):
    text = "g (float[N,5,3] x, float[3,4] w, float[4] b) => (float[N,5,4] y) { t = MatMul(x, w) y = Add(t, b) }"
    model = ascend.model(text, ir=3, opset=9, w=(3, 4), b=(4,))
    ascend.assert_rewrites(model, NAME, 1, {"Constant": 1, **STATIC}, {"N": 2})


def test_layers_in_a_row_with_a_residual(ascend):
    text = """g (float[N,S,4] x) => (float[N,S,4] y) {
        t = MatMul(x, w) u = Add(b, t) r = Relu(u) v = MatMul(r, w) z = Add(v, b) y = Add(z, x) }"""
    ops = {
        "Shape": 2,
        "Slice": 2,
        "Concat": 2,
        "Flatten": 2,
        "Gemm": 2,
        "Reshape": 2,
        "Relu": 1,
        "Add": 1,
    }
    ascend.assert_rewrites(ascend.model(text, w=(4, 4), b=(4,)), NAME, 2, ops, {"N": 2, "S": 3})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "g (float[5,3] x, float[3,4] w, float[4] b) => (float[5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "rank",
        ),
        (
            "g (float[3] x, float[3,4] w, float[4] b) => (float[4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "rank",
        ),
        (
            "g (float[2,5,3] x, float[2,3,4] w, float[4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "weights",
        ),
        (
            "g (float[2,5,3] x, float[3] w, float[5] b) => (float[2,5] y) { t = MatMul(x, w) y = Add(t, b) }",
            "weights",
        ),
        (
            "g (float[2,5,3] x, float[3,N] w, float[1] b) => (float[2,5,N] y) { t = MatMul(x, w) y = Add(t, b) }",
            "weights",
        ),
        (
            "g (float[2,5,3] x, float[K,4] w, float[4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "weights",
        ),
        (
            "g (float[2,5,3] x, float[3,4] w, float[2,5,4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (float[2,5,3] x, float[3,4] w, float[5,4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (float[2,5,3] x, float[3,4] w, float[5,1] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (float[2,5,3] x, float[3,4] w, float[1,1,4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (float[2,5,3] x, float[3,1] w, float[4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (float[2,5,3] x, float[3,4] w, float[N] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (float[2,5,3] x, float[3,4] w, float[?] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "bias",
        ),
        (
            "g (int32[2,5,3] x, int32[3,4] w, int32[4] b) => (int32[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "dtype",
        ),
        (
            "g (float[0,N,3] x, float[3,4] w, float[4] b) => (float[0,N,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "empty",
        ),
        (
            "g (float[2,5,0] x, float[0,4] w, float[4] b) => (float[2,5,4] y) { t = MatMul(x, w) y = Add(t, b) }",
            "empty",
        ),
    ],
)
def test_near_misses_give_their_reason(ascend, text, key):
    ascend.assert_refuses(ascend.model(text), NAME, **{key: 1})


@pytest.mark.parametrize("opset", [9, 13])
def test_two_unknown_sizes_need_allowzero(ascend, opset):
    ascend.assert_refuses(
        ascend.model(site("N,S,3", "N,S,4"), opset=opset, w=(3, 4), b=(4,)), NAME, opset=1
    )


def test_unknown_rank(ascend):
    text = "g (float[6] a, int64[r] s) => (float[?,?,?] y) { x = Reshape(a, s) t = MatMul(x, w) y = Add(t, b) }"
    ascend.assert_refuses(ascend.model(text, w=(3, 4), b=(4,)), NAME, rank=1)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,5,3] x) => (float[2,5,4] y, float[2,5,4] t) { t = MatMul(x, w) y = Add(t, b) }",
        "g (float[2,5,3] x) => (float[2,5,4] y, float[2,5,4] z) { t = MatMul(x, w) y = Add(t, b) z = Neg(t) }",
        """g (bool p, float[2,5,3] x) => (float[2,5,4] y, float[2,5,4] z) { t = MatMul(x, w) y = Add(t, b)
           z = If (p) <then_branch = h () => (float[2,5,4] u) { u = Neg(t) },
                       else_branch = e () => (float[2,5,4] v) { v = Abs(y) }> }""",
    ],
    ids=["graph output", "other reader", "captured by a body"],
)
def test_a_product_that_is_also_read_elsewhere_stays(ascend, text):
    ascend.assert_refuses(ascend.model(text, w=(3, 4), b=(4,)), NAME)


def test_in_a_nested_body(ascend):
    text = """g (bool p, float[2,S,3] x) => (float[2,S,4] y) {
        y = If (p) <then_branch = h () => (float[2,S,4] u) { t = MatMul(x, w) u = Add(b, t) },
                    else_branch = e () => (float[2,S,4] v) { s = MatMul(x, w) v = Sub(s, b) }> }"""
    result, (record,) = ascend.run(model := ascend.model(text, w=(3, 4), b=(4,)), NAME)
    assert record.replaced == 1
    ascend.assert_equal(model, result, {"S": 5})


def test_provenance_names_what_was_fused(ascend):
    text = (
        "g (float[2,5,3] x) => (float[2,5,4] y) { [product] t = MatMul(x, w) [sum] y = Add(t, b) }"
    )
    model = ascend.model(text.replace("[product] ", "").replace("[sum] ", ""), w=(3, 4), b=(4,))
    model.graph.node[0].name, model.graph.node[1].name = "product", "sum"
    result, _ = ascend.run(model, NAME)
    message = {entry.key: entry.value for entry in result.graph.node[1].metadata_props}
    assert (message["gehost.pass"], message["gehost.vendor"]) == (NAME, "ascend")
    assert message["gehost.origin_nodes"] == '["product", "sum"]'
    assert np.array_equal(sorted(ascend.ops(result)), sorted(STATIC))


def test_before_opset_7_add_broadcasts_by_an_attribute(ascend):
    text = """g (float[2,5,3] a, float[3,4] b, float[4] c) => (float[2,5,4] y) {
        t = MatMul(a, b) y = Add <broadcast = 1, axis = 2> (t, c) }"""
    _, (record,) = ascend.run(ascend.model(text, opset=6), NAME)
    assert (record.status, record.replaced) == ("not applicable", 0)
