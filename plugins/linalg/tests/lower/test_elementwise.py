"""Element-wise operators against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from gehost.testing import parse

from ..models import check, graph, lowered

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.5)
UNIT = np.tanh(X)

ANY = ["Abs", "Neg", "Exp", "Tanh", "Erf", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Atan", "Asinh", "Floor", "Ceil", "Round",
       "Sigmoid", "Softplus", "Sign", "Relu", "Softsign", "Mish", "LeakyRelu", "Elu", "Selu", "ThresholdedRelu",
       "HardSigmoid", "HardSwish", "Gelu", "Identity"]  # fmt: skip


@pytest.mark.parametrize("op", ANY)
def test_unary(op: str) -> None:
    check(graph(f"y = {op}(x)", "float[2,3] x", "float[2,3] y"), {"x": X * 3})


@pytest.mark.parametrize("op", ["Log", "Sqrt", "Reciprocal"])
def test_unary_of_positive_numbers(op: str) -> None:
    check(graph(f"y = {op}(x)", "float[2,3] x", "float[2,3] y"), {"x": POSITIVE})


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atanh"])
def test_unary_of_small_numbers(op: str) -> None:
    check(graph(f"y = {op}(x)", "float[2,3] x", "float[2,3] y"), {"x": UNIT})


@pytest.mark.parametrize(
    "call",
    [
        "LeakyRelu<alpha=0.3>(x)", "Elu<alpha=0.7>(x)", "Selu<alpha=1.2,gamma=0.9>(x)", "ThresholdedRelu<alpha=0.2>(x)",
        "HardSigmoid<alpha=0.3,beta=0.4>(x)", 'Gelu<approximate="tanh">(x)',
    ],
)  # fmt: skip
def test_attributes(call: str) -> None:
    check(graph(f"y = {call}", "float[2,3] x", "float[2,3] y"), {"x": X})


BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow"]
SHAPES = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2, 3)),
    ((4, 1, 3), (2, 1)),
    ((1,), (3,)),
]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_binary(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    shape = np.broadcast_shapes(a, b)
    text = graph(f"y = {op}(a, b)", f"float{list(a)} a, float{list(b)} b", f"float{list(shape)} y")
    text = text.replace("float[]", "float")
    check(text, {"a": _positive(a), "b": _positive(b)})


def _positive(shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(RNG.uniform(0.5, 2, size=shape), np.float32)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((1, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 1), (1, 3))]
)
def test_broadcast_that_is_decided_at_run_time(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    text = graph("t = Add(a, b)\ny = Mul(t, a)", "float[m,n] a, float[p,q] b", "float[r,s] y")
    check(text, {"a": _positive(a), "b": _positive(b)})


@pytest.mark.parametrize("op", ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
@pytest.mark.parametrize("dtype", ["float", "int64", "int32"])
def test_comparisons(op: str, dtype: str) -> None:
    numbers = np.array(
        [[1, 2, 3], [3, 2, 1]], {"float": np.float32, "int64": np.int64, "int32": np.int32}[dtype]
    )
    check(
        graph(f"y = {op}(a, b)", f"{dtype}[2,3] a, {dtype}[3] b", "bool[2,3] y"),
        {"a": numbers, "b": numbers[0]},
    )


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_logic(op: str) -> None:
    a, b = np.array([[True, False]]), np.array([[True], [False]])
    check(graph(f"y = {op}(a, b)", "bool[1,2] a, bool[2,1] b", "bool[2,2] y"), {"a": a, "b": b})


def test_not_where_and_casts() -> None:
    body = """n = Not(c)
w = Where(n, a, b)
i = Cast<to=6>(w)
j = Cast<to=1>(i)
k = Cast<to=1>(c)
y = Add(j, k)"""
    check(graph(body, "bool[2,1] c, float[2,3] a, float[3] b", "float[2,3] y"),
          {"c": np.array([[True], [False]]), "a": X * 5, "b": X[0] * 7})  # fmt: skip


@pytest.mark.parametrize(("source", "target"), [("int64", 1), ("int32", 7), ("int64", 6), ("float", 9), ("float", 11), ("float", 10),
                                                ("bool", 7), ("int64", 9), ("float16", 1), ("double", 1)])  # fmt: skip
def test_cast(source: str, target: int) -> None:
    names = {1: "float", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "double"}
    dtype = {
        "float": np.float32,
        "float16": np.float16,
        "double": np.float64,
        "bool": np.bool_,
    }.get(source, source)
    numbers = np.array([-2, 0, 1, 3], dtype)
    check(
        graph(f"y = Cast<to={target}>(x)", f"{source}[4] x", f"{names[target]}[4] y"),
        {"x": numbers},
    )


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_integers(op: str, dtype: str) -> None:
    a, b = np.array([7, -7, 5], dtype), np.array([2, 2, -3], dtype)
    check(
        graph(f"y = {op}(a, b)", f"{dtype}[3] a, {dtype}[3] b", f"{dtype}[3] y"), {"a": a, "b": b}
    )


def test_clip_with_scalars_and_mod() -> None:
    body = "l = Constant<value = float {-0.5}>()\nh = Constant<value = float {0.75}>()\nc = Clip(x, l, h)\ny = Mod<fmod=1>(c, s)"
    check(graph(body, "float[2,3] x, float[3] s", "float[2,3] y"), {"x": X, "s": POSITIVE[0]})


def test_clip_with_attributes() -> None:
    check(graph("y = Clip<min=-0.25,max=0.5>(x)", "float[2,3] x", "float[2,3] y", 9), {"x": X})


def test_special_values() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    check(graph("n = IsNaN(x)\ni = IsInf(x)\no = Or(n, i)\ny = Where(o, z, x)", "float[6] x, float z", "float[6] y"),
          {"x": odd, "z": np.float32(2)})  # fmt: skip
    check(graph("y = Relu(x)", "float[6] x", "float[6] y"), {"x": odd})


def test_prelu_and_batch_normalization() -> None:
    x = RNG.normal(size=(2, 3, 2, 2)).astype(np.float32)
    feeds = {
        "x": x,
        "p": POSITIVE[0].reshape(3, 1, 1),
        "s": POSITIVE[0],
        "b": X[0],
        "m": X[1],
        "v": POSITIVE[1],
    }
    inputs = "float[2,3,2,2] x, float[3,1,1] p, float[3] s, float[3] b, float[3] m, float[3] v"
    check(
        graph("a = PRelu(x, p)\ny = BatchNormalization(a, s, b, m, v)", inputs, "float[2,3,2,2] y"),
        feeds,
        atol=1e-5,
    )


def test_pow_with_an_integer() -> None:
    body = "e = Constant<value = int64 {3}>()\ny = Pow(x, e)"
    check(graph(body, "float[2,3] x", "float[2,3] y"), {"x": X})


def test_chain_of_a_gelu_by_hand() -> None:
    body = """c = Constant<value = float {1.41421356}>()
one = Constant<value = float {1.0}>()
half = Constant<value = float {0.5}>()
d = Div(x, c)
e = Erf(d)
p = Add(e, one)
m = Mul(x, p)
y = Mul(m, half)"""
    check(graph(body, "float[b,s] x", "float[b,s] y"), {"x": X})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("Add<broadcast=1,axis=0>(x, w)", "not-lowered: Add of opset 6 with broadcast"),
        ("Pow<broadcast=1,axis=0>(x, w)", "not-lowered: Pow of opset 6 with broadcast"),
        ("PRelu(x, w)", "not-lowered: PRelu of opset 6, whose slope is per channel"),
    ],
)
def test_how_old_opsets_broadcast_is_left_alone(call: str, reason: str) -> None:
    text = graph(f"y = {call}", "float[3,3] x, float[3] w", "float[3,3] y", 6)
    _, result = lowered(parse(text))
    assert list(result.reasons.values()) == [reason]
