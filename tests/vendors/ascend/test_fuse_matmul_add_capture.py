from __future__ import annotations

import pytest

NAME = "FuseMatMulAddReluCapturePass"
SITE = "g (float[2,3] a) => (float[2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }"


@pytest.mark.parametrize("opset", [9, 13, 17, 20])
def test_fires(ascend, opset):
    ascend.assert_rewrites(
        ascend.model(SITE, opset=opset, b=(3, 4), c=(4,)), NAME, 1, {"ge::GEMM": 1, "Relu": 1}
    )


def test_fires_on_float16_and_with_the_addend_first(ascend):
    text = "g (float16[2,3] a, float16[3,4] b, float16[2,1] c) => (float16[2,4] y) { t = MatMul(a, b) s = Add(c, t) y = Relu(s) }"
    ascend.assert_rewrites(ascend.model(text), NAME, 1, {"ge::GEMM": 1, "Relu": 1})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            "g (double[2,3] a, double[3,4] b, double[4] c) => (double[2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "dtype",
        ),
        (
            "g (float[5,2,3] a, float[3,4] b, float[4] c) => (float[5,2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "rank",
        ),
        (
            "g (float[3] a, float[5,3,4] b, float[4] c) => (float[5,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "rank",
        ),
        (
            "g (float[2,3] a, float[3,4] b) => (float[2,4] y) { t = MatMul(a, b) s = Add(t, t) y = Relu(s) }",
            "addend",
        ),
        (
            "g (float[M,3] a, float[3,4] b, float[4] c) => (float[M,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "size",
        ),
        (
            "g (float[?,3] a, float[3,4] b, float[4] c) => (float[?,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "size",
        ),
        (
            "g (float[1,3] a, float[3,4] b, float[2,4] c) => (float[2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "addend",
        ),
        (
            "g (float[2,3] a, float[3,4] b, float[N,4] c) => (float[2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
            "addend",
        ),
    ],
)
def test_near_misses_give_their_reason(ascend, text, key):
    ascend.assert_refuses(ascend.model(text), NAME, **{key: 1})


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] a) => (float[2,4] y, float[2,4] s) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }",
        "g (float[2,3] a) => (float[2,4] y, float[2,4] z) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) z = Neg(t) }",
        """g (bool p, float[2,3] a) => (float[2,4] y, float[2,4] z) { t = MatMul(a, b) s = Add(t, c) y = Relu(s)
           z = If (p) <then_branch = h () => (float[2,4] u) { u = Neg(s) },
                       else_branch = e () => (float[2,4] v) { v = Identity(y) }> }""",
        "g (float[2,3] a) => (float[2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Sigmoid(s) }",
    ],
    ids=["graph output", "other reader", "captured by a body", "no Relu"],
)
def test_what_does_not_match(ascend, text):
    ascend.assert_refuses(ascend.model(text, b=(3, 4), c=(4,)), NAME)


def test_what_it_refuses_is_left_to_the_plain_fusion(ascend):
    text = """g (float[2,3] a, double[2,3] d, double[3,4] e, double[4] f) => (float[2,4] y, double[2,4] z) {
        t = MatMul(a, b) s = Add(t, c) y = Relu(s) u = MatMul(d, e) v = Add(u, f) z = Relu(v) }"""
    model = ascend.model(text, b=(3, 4), c=(4,))
    result, records = ascend.run(model, NAME, "MatMulAddToGemmPass")
    assert [(record.name, record.replaced) for record in records] == [
        (NAME, 1),
        ("MatMulAddToGemmPass", 1),
    ]
    ascend.assert_equal(model, result)


def test_before_opset_7_add_broadcasts_by_an_attribute(ascend):
    text = "g (float[2,3] a, float[3,4] b, float[2,4] c) => (float[2,4] y) { t = MatMul(a, b) s = Add(t, c) y = Relu(s) }"
    _, (record,) = ascend.run(ascend.model(text, opset=6), NAME)
    assert (record.status, record.replaced) == ("not applicable", 0)
