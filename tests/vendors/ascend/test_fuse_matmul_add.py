from __future__ import annotations

import numpy as np
import onnx
import pytest

NAME = "MatMulAddToGemmPass"
SITE = "g (float[M,3] a) => (float[M,4] y) { t = MatMul(a, b) y = Add(t, c) }"


@pytest.mark.parametrize("ir", [3, 7, 8, 10])
@pytest.mark.parametrize("opset", [9, 13, 15, 17, 20])
def test_fires_at_every_opset_and_ir_version(ascend, opset, ir):
    text = "g (float[5,3] a, float[3,4] b, float[4] c) => (float[5,4] y) { t = MatMul(a, b) y = Add(t, c) }"
    model = ascend.model(text, opset=opset, ir=ir)
    ones = {"Constant": 1} if ir < 4 else {}
    result = ascend.assert_rewrites(model, NAME, 1, {"ge::GEMM": 1, **ones})
    assert [function.name for function in result.functions] == ["GEMM"]
    assert list(result.graph.node[-1].output) == ["y"]
    onnx.checker.check_model(result)


@pytest.mark.parametrize("addend", [(), (1,), (4,), (1, 4), (1, 1)])
def test_addend_broadcasts_and_a_size_may_be_a_symbol(ascend, addend):
    ascend.assert_rewrites(
        ascend.model(SITE, b=(3, 4), c=addend),
        NAME,
        1,
        {"ge::GEMM": 1},
        {"M": 1},
        {"M": 6},
        {"M": 0},
    )


def test_addend_of_the_products_own_symbol(ascend):
    text = """g (float[M,3] a, float[M,4] c, float[M,1] d) => (float[M,4] y) {
        t = MatMul(a, b) u = Add(c, t) v = MatMul(u, e) y = Add(v, d) }"""
    ascend.assert_rewrites(
        ascend.model(text, b=(3, 4), e=(4, 4)), NAME, 2, {"ge::GEMM": 2}, {"M": 1}, {"M": 5}
    )


def test_addend_before_the_product(ascend):
    text = "g (float[2,3] a) => (float[2,4] y) { t = MatMul(a, b) y = Add(c, t) }"
    ascend.assert_rewrites(ascend.model(text, b=(3, 4), c=(4,)), NAME, 1, {"ge::GEMM": 1})


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_floating_point_dtypes_cast_the_factors(ascend, dtype):
    text = f"g ({dtype}[2,3] a, {dtype}[3,4] b, {dtype}[4] c) => ({dtype}[2,4] y) {{ t = MatMul(a, b) y = Add(t, c) }}"
    for opset in (13, 17):
        ascend.assert_rewrites(ascend.model(text, opset=opset), NAME, 1, {"ge::GEMM": 1})


def test_two_dtypes_below_opset_15_have_a_body_each(ascend):
    text = """g (float[2,3] a, float[3,4] b, float[4] c, double[2,3] d, double[3,4] e, double[4] f)
        => (float[2,4] y, double[2,4] z) {
        t = MatMul(a, b) y = Add(t, c) u = MatMul(d, e) z = Add(u, f) }"""
    result, (record,) = ascend.run(model := ascend.model(text, opset=13), NAME)
    assert record.replaced == 2
    assert len(result.functions) == 2
    ascend.assert_equal(model, result)


def test_in_a_nested_body(ascend):
    text = """g (bool p, float[2,3] a, float[3,4] b, float[4] c) => (float[2,4] y) {
        y = If (p) <then_branch = t () => (float[2,4] u) { m = MatMul(a, b) u = Add(m, c) },
                    else_branch = e () => (float[2,4] v) { n = MatMul(a, b) v = Sub(n, c) }> }"""
    result, (record,) = ascend.run(model := ascend.model(text), NAME)
    assert record.replaced == 1
    ascend.assert_equal(model, result)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "g (float[2,3] a, float[3,4] b, float[5,2,4] c) => (float[5,2,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "addend",
        ),
        (
            "g (float[1,3] a, float[3,4] b, float[6,4] c) => (float[6,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "addend",
        ),
        (
            "g (float[2,3] a, float[3,1] b, float[4] c) => (float[2,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "addend",
        ),
        (
            "g (float[M,3] a, float[3,4] b, float[N,4] c) => (float[P,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "addend",
        ),
        (
            "g (float[?,3] a, float[3,4] b, float[?,4] c) => (float[?,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "addend",
        ),
        (
            "g (float[2,3] a, float[3,4] b, float c) => (float[2,4] y) { u = Squeeze(c) t = MatMul(a, b) y = Add(t, u) }",
            None,
        ),
        (
            "g (float[2,3] a, float[3,4] b) => (float[2,4] y) { t = MatMul(a, b) y = Add(t, t) }",
            "addend",
        ),
        (
            "g (float[7,2,3] a, float[3,4] b, float[4] c) => (float[7,2,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "rank",
        ),
        (
            "g (float[3] a, float[5,3,4] b, float[4] c) => (float[5,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "rank",
        ),
        (
            "g (int32[2,3] a, int32[3,4] b, int32[4] c) => (int32[2,4] y) { t = MatMul(a, b) y = Add(t, c) }",
            "dtype",
        ),
    ],
)
def test_near_misses_give_their_reason(ascend, text, key):
    if key is None:
        ascend.assert_rewrites(ascend.model(text), NAME, 1, {"Squeeze": 1, "ge::GEMM": 1})
    else:
        ascend.assert_refuses(ascend.model(text), NAME, **{key: 1})


def test_unknown_rank_is_no_matrix(ascend):
    text = "g (float[2,3] a, int64[r] s) => (float[?,?] y) { x = Reshape(a, s) t = MatMul(x, b) y = Add(t, c) }"
    ascend.assert_refuses(ascend.model(text, b=(3, 4), c=(4,)), NAME, rank=1)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] a, float[3,4] b, float[4] c) => (float[2,4] y, float[2,4] t) { t = MatMul(a, b) y = Add(t, c) }",
        "g (float[2,3] a, float[3,4] b, float[4] c) => (float[2,4] y, float[2,4] z) { t = MatMul(a,b) y = Add(t,c) z = Neg(t) }",
        """g (bool p, float[2,3] a, float[3,4] b, float[4] c) => (float[2,4] y, float[2,4] z) {
           t = MatMul(a, b) y = Add(t, c)
           z = If (p) <then_branch = h () => (float[2,4] u) { u = Neg(t) },
                       else_branch = e () => (float[2,4] v) { v = Identity(c2) }> }""",
    ],
    ids=["graph output", "other reader", "captured by a body"],
)
def test_a_product_that_is_also_read_elsewhere_stays(ascend, text):
    ascend.assert_refuses(ascend.model(text, **({"c2": (2, 4)} if "c2" in text else {})), NAME)


def test_shared_constants_do_not_block(ascend):
    text = "g (float[2,3] a) => (float[2,4] y, float[2,4] z) { t = MatMul(a, b) y = Add(t, c) u = MatMul(a, b) z = Add(c, u) }"
    ascend.assert_rewrites(ascend.model(text, b=(3, 4), c=(4,)), NAME, 2, {"ge::GEMM": 2})


def test_each_product_keeps_its_own_body(ascend):
    """A transposed GEMM of an earlier stage must not lend its body to a plain one, nor one that the model brings."""
    text = """g (float[2,3] q, float[3,3] k, float[3,3] b, float[3] c) => (float[2,3] y, float[2,3] z) {
        kt = Transpose <perm = [1, 0]> (k) s = MatMul(q, kt) f = Mul(s, scale) y = Add(f, c) t = MatMul(q, b) z = Add(t, c) }"""
    model = ascend.model(text, scale=np.float32(0.125))
    names = ("FuseScaledMatMulAddPass", NAME)
    result, records = ascend.run(model, *names, cleanup=True)
    assert [record.replaced for record in records] == [1, 1]
    ascend.assert_equal(model, result)
    assert len(result.functions) == 2

    first, _ = ascend.run(model, names[0])
    second, (record,) = ascend.run(first, NAME)
    assert record.replaced == 1
    ascend.assert_equal(model, second)


def test_a_foreign_operator_of_the_same_name_is_not_taken_for_ours(ascend):
    text = """g (float[2,3] a, float[3,3] b, float[3] c) => (float[2,3] y, float[2,3] z) {
        t = MatMul(a, b) y = Add(t, c) z = ge.GEMM(a, b, c, one, one) }
    <domain: "ge", opset_import: ["" : 17]> GEMM (a, b, c, d, e) => (y) { t = MatMul(a, b) y = Sub(t, c) }"""
    model = ascend.model(text, one=np.float32(1))
    result, (record,) = ascend.run(model, NAME)
    assert record.replaced == 1
    ascend.assert_equal(model, result)


def test_before_opset_7_add_broadcasts_by_an_attribute(ascend):
    text = "g (float[2,3] a, float[3,4] b, float[2,4] c) => (float[2,4] y) { t = MatMul(a, b) y = Add(t, c) }"
    _, (record,) = ascend.run(ascend.model(text, opset=6), NAME)
    assert (record.status, record.replaced) == ("not applicable", 0)
