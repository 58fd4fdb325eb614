from __future__ import annotations

import numpy as np
import pytest

NAME = "FuseScaledMatMulAddPass"


def site(perm="<perm = [1, 0]>", dtype="float", q="2,3", k="4,3", c="2,4", y="2,4"):
    return f"""g ({dtype}[{q}] q, {dtype}[{k}] k, {dtype}[{c}] c) => ({dtype}[{y}] y) {{
        kt = Transpose {perm} (k) s = MatMul(q, kt) f = Mul(s, scale) y = Add(f, c) }}"""


@pytest.mark.parametrize("opset", [9, 13, 17, 20])
@pytest.mark.parametrize("scale", [0.25, 0.125, 0.0625])
def test_fires_for_each_head_size(ascend, scale, opset):
    model = ascend.model(site(), opset=opset, scale=np.float32(scale))
    result = ascend.assert_rewrites(model, NAME, 1, {"ge::GEMM": 1})
    feeds = ascend.feeds(model, {})
    assert ascend.outputs(model, feeds)[0].tobytes() == ascend.outputs(result, feeds)[0].tobytes()


def test_a_perm_left_out_reverses_the_axes(ascend):
    ascend.assert_rewrites(
        ascend.model(site(perm=""), scale=np.float32(0.125)), NAME, 1, {"ge::GEMM": 1}
    )


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_dtypes(ascend, dtype):
    scale = np.array(0.125, {"float16": np.float16, "double": np.float64}[dtype])
    ascend.assert_rewrites(ascend.model(site(dtype=dtype), scale=scale), NAME, 1, {"ge::GEMM": 1})


def test_operands_in_other_order_and_symbols(ascend):
    text = """g (float[L,3] q, float[S,3] k, float[L,S] c) => (float[L,S] y) {
        kt = Transpose <perm = [1, 0]> (k) s = MatMul(q, kt) f = Mul(scale, s) y = Add(c, f) }"""
    model = ascend.model(text, scale=np.float32(0.25))
    ascend.assert_rewrites(model, NAME, 1, {"ge::GEMM": 1}, {"L": 2, "S": 5}, {"L": 1, "S": 1})


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        (site(), np.float32(0.1)),
        (site(), np.nextafter(np.float32(0.125), np.float32(1))),
        (site(), np.array([0.125], np.float32)),
        (site(perm="<perm = [0, 1]>", k="3,4"), np.float32(0.125)),
    ],
    ids=["other value", "last bit", "rank 1", "other perm"],
)
def test_other_constants_and_attributes_do_not_match(ascend, text, scale):
    ascend.assert_refuses(ascend.model(text, scale=scale), NAME)


def test_a_factor_that_is_no_constant_does_not_match(ascend):
    text = site().replace("float[2,4] c)", "float[2,4] c, float scale)", 1)
    ascend.assert_refuses(ascend.model(text), NAME)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (site(c="5,2,4", y="5,2,4"), "addend"),
        (site(q="1,3", c="6,4", y="6,4"), "addend"),
        (site(c="M,4"), "addend"),
        (site().replace("Add(f, c)", "Add(f, f)"), "addend"),
        (site(q="5,2,3", c="4", y="5,2,4"), "rank"),
        (site(q="3", k="4,3", c="4", y="4"), "rank"),
    ],
)
def test_near_misses_give_their_reason(ascend, text, key):
    ascend.assert_refuses(ascend.model(text, scale=np.float32(0.125)), NAME, **{key: 1})


@pytest.mark.parametrize("inner", ["kt", "s", "f"])
def test_an_inner_tensor_that_is_also_a_graph_output_or_read_elsewhere_stays(ascend, inner):
    shape = "3,4" if inner == "kt" else "2,4"
    output = site().replace("(float[2,4] y)", f"(float[2,4] y, float[{shape}] {inner})")
    reader = (
        site()
        .replace("(float[2,4] y)", f"(float[2,4] y, float[{shape}] z)")
        .replace("y = Add", f"z = Neg({inner}) y = Add")
    )
    body = (
        f"z = If (p) <then_branch = h () => (float[{shape}] u) {{ u = Neg({inner}) }},"
        f"            else_branch = e () => (float[{shape}] v) {{ v = Abs({inner}) }}> }}"
    )
    captured = (
        reader.replace("g (", "g (bool p, ").replace(f"z = Neg({inner})", "").rstrip(" }") + body
    )
    for text in (output, reader, captured):
        ascend.assert_refuses(ascend.model(text, scale=np.float32(0.125)), NAME)
