"""Linear layers with their activation as one operation."""

from __future__ import annotations

import pytest

from .conftest import Paddle

PASS = "fused_gemm_epilogue_pass"
FUSED = "fused_gemm_epilogue"


def linear(
    tail: str = "out = Relu(s)", x: str = "2, 5, 3", total: str = "p, b", extra: str = ""
) -> str:
    sizes = ", ".join("?" * len(x.split(",")))
    return f"(float[{x}] x{extra}) => (float[{sizes}] out) {{ p = MatMul(x, w) s = Add({total}) {tail} }}"


@pytest.mark.parametrize(
    ("tail", "activation", "opset"),
    [
        ("out = Relu(s)", "relu", 17),
        ("out = Gelu(s)", "gelu", 20),
        ('out = Gelu<approximate = "tanh">(s)', "gelu_tanh", 20),
    ],
)
@pytest.mark.parametrize("total", ["p, b", "b, p"])
def test_an_activation_goes_into_the_epilogue(
    paddle: Paddle, tail: str, activation: str, opset: int, total: str
) -> None:
    result = paddle.fuses(
        paddle.model(linear(tail, total=total), opset, w=(3, 4), b=(4,)), PASS, {FUSED: 1}
    )
    assert result.graph.node[0].attribute[0].s.decode() == activation


@pytest.mark.parametrize(
    ("tail", "rest"), [("out = Tanh(s)", "Tanh"), ("out = Identity(s)", "Identity")]
)
@pytest.mark.parametrize("x", ["3", "5, 3", "N, M, 3"])
def test_without_one_that_it_knows_the_sum_is_fused(
    paddle: Paddle, tail: str, rest: str, x: str
) -> None:
    result = paddle.fuses(
        paddle.model(linear(tail, x), w=(3, 4), b=(4,)), PASS, {FUSED: 1, rest: 1}
    )
    assert result.graph.node[0].attribute[0].s.decode() == "none"


def test_a_sum_that_is_read_elsewhere_keeps_its_activation(paddle: Paddle) -> None:
    text = "(float[5, 3] x) => (float[5, 4] out, float[5, 4] s) { p = MatMul(x, w) s = Add(p, b) out = Relu(s) }"
    paddle.fuses(paddle.model(text, w=(3, 4), b=(4,)), PASS, {FUSED: 1, "Relu": 1})


@pytest.mark.parametrize(
    ("text", "shapes", "reason"),
    [
        (linear(), {"w": (3, 4), "b": (1, 1, 4)}, "bias"),
        (linear(x="5, 3"), {"w": (3, 1), "b": (4,)}, "bias"),
        (linear(x="5, 3"), {"w": (3, 4), "b": (1,)}, "bias"),
        (linear(), {"w": (2, 3, 4), "b": (4,)}, "matrix"),
        (linear().replace("float", "int32"), {}, "dtype"),
        (linear(extra=", float[N] b"), {"w": (3, 4)}, "bias"),
    ],
)
def test_what_is_no_linear_layer_stays(
    paddle: Paddle, text: str, shapes: dict[str, tuple[int, ...]], reason: str
) -> None:
    if not shapes:
        text = text.replace(
            " {",
            " <int32[3, 4] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, int32[4] b = {1, 2, 3, 4}> {",
        )
    paddle.refuses(paddle.model(text, **shapes), PASS, reason)


def test_a_product_that_is_read_elsewhere_is_no_match(paddle: Paddle) -> None:
    text = "(float[5, 3] x) => (float[5, 4] s, float[5, 4] p) { p = MatMul(x, w) s = Add(p, b) }"
    paddle.refuses(paddle.model(text, w=(3, 4), b=(4,)), PASS)
