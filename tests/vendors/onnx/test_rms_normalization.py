"""The decomposed RMSNormalization is fused, and what only looks like it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from gehost.testing import assert_equal_numbers, parse
from gehost.verify import make_feeds

PASS = "RMSNormalizationFusionPass"
STANDARD, CUSTOM = "RMSNormalization", "gehost::RMSNormalization"
SQUARES = ("p = Pow(u, two)", "p = Mul(u, u)")
QUOTIENTS = (
    "q = Div(u, r)",
    "i = Reciprocal(r) q = Mul(u, i)",
    "i = Reciprocal(r) q = Mul(i, u)",
    "i = Div(one, r) q = Mul(u, i)",
)
DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}
NUMBERS = {"float": 1, "float16": 10, "double": 11}


def decomposed(
    opset: int = 17,
    *,
    dtype: str = "float",
    inside: str | None = None,
    casts: tuple[str, str] = ("", ""),
    x: str = "[B, S, 8]",
    y: str | None = None,
    axes: str = "[-1]",
    keepdims: int = 1,
    square: str = SQUARES[0],
    shift: str = "w = Add(v, eps)",
    quotient: str = QUOTIENTS[1],
    scale: str = "y = Mul(n, gamma)",
    result: str | None = None,
    inputs: str = "",
    outputs: str = "",
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of one decomposed RMSNormalization over ``x``; each argument changes one thing of it.

    Args:
        inside: the dtype in which it normalizes, if not that of ``x``.
        casts: the dtypes to which x is cast before, and the normalized x after; none where empty.
        result: the dtype of scale and result, if not that of x.
    """
    if opset < 18:
        mean = f"v = ReduceMean <axes = {axes}, keepdims = {keepdims}> (p)"
    else:
        mean = (
            f"k = Constant <value_ints = {axes}> () v = ReduceMean <keepdims = {keepdims}> (p, k)"
        )
    into, back = (f"Cast <to = {NUMBERS[to]}>" if to else "" for to in casts)
    parts = f"{square} {mean} {shift} r = Sqrt(w) {quotient}"
    parts = f"u = {into} (x) {parts}" if into else re.sub(r"\bu\b", "x", parts)
    parts += f" n = {back} (q) {scale}" if back else " " + re.sub(r"\bn\b", "q", scale)
    text = f"""<ir_version: {11 if opset >= 23 else 8}, opset_import: ["": {opset}]>
    g ({dtype}{x} x{inputs}) => ({result or dtype}{x if y is None else y} y{outputs}) {{ {parts} }}"""
    arguments = {
        "two": np.array(2.0),
        "one": np.array(1.0),
        "eps": np.array(1e-3),
        "gamma": np.random.default_rng(3).standard_normal(8),
        **(weights or {}),
    }
    read = set(re.findall(r"\w+", text))
    dtypes = {"gamma": DTYPES[result or dtype]}
    inner = DTYPES[inside or dtype]
    arrays = {
        name: np.asarray(a).astype(dtypes.get(name, inner))
        for name, a in arguments.items()
        if a is not None and name in read
    }
    return parse(text, arrays)


def attributes_of(model: onnx.ModelProto) -> dict[str, Any]:
    (node,) = (node for node in model.graph.node if node.op_type == "RMSNormalization")
    assert list(node.input) == ["x", "gamma"]
    return {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}


@pytest.mark.parametrize("opset", [9, 13, 17, 18, 20, 22, 23])
def test_every_opset(fuses: Callable[..., onnx.ModelProto], opset: int) -> None:
    axes = "[2]" if opset < 11 else "[-1]"
    result = fuses(decomposed(opset, axes=axes), PASS, STANDARD if opset >= 23 else CUSTOM)
    assert attributes_of(result) == {"axis": -1, "epsilon": pytest.approx(1e-3), "stash_type": 1}


@pytest.mark.parametrize("opset", [13, 23])
@pytest.mark.parametrize(("square", "quotient"), list(product(SQUARES, QUOTIENTS)))
@pytest.mark.parametrize("casts", [("", ""), ("", "float"), ("float", "float"), ("float", "")])
def test_every_form(
    fuses: Callable[..., onnx.ModelProto],
    square: str,
    quotient: str,
    casts: tuple[str, str],
    opset: int,
) -> None:
    """As transformers' exports have it: casts to float32 that a float32 model does not need."""
    only_before = casts == ("float", "")
    model = decomposed(opset, square=square, quotient=quotient, casts=casts)
    fuses(model, PASS, STANDARD if opset >= 23 else CUSTOM, left=1 + only_before)


@pytest.mark.parametrize("shift", ["w = Add(v, eps)", "w = Add(eps, v)"])
@pytest.mark.parametrize("scale", ["y = Mul(n, gamma)", "y = Mul(gamma, n)"])
def test_operands_in_any_order(
    fuses: Callable[..., onnx.ModelProto], shift: str, scale: str
) -> None:
    fuses(decomposed(shift=shift, scale=scale), PASS, CUSTOM)


def test_a_cast_for_each_reader(fuses: Callable[..., onnx.ModelProto]) -> None:
    """As TorchScript writes T5: x is cast to be squared, and again to be divided."""
    model = decomposed(
        dtype="float16",
        inside="float",
        casts=("float", "float16"),
        quotient="i = Div(one, r) again = Cast <to = 1> (x) q = Mul(again, i)",
    )
    fuses(model, PASS, CUSTOM)


def test_a_cast_that_others_read_stays(fuses: Callable[..., onnx.ModelProto]) -> None:
    """As in llama: the residual addition reads the cast x; the fused node then reads it too."""
    model = decomposed(
        casts=("float", "float"), scale="y = Mul(n, gamma) z = Neg(u)", outputs=", float[B, S, 8] z"
    )
    result = fuses(model, PASS, CUSTOM, left=3)
    assert sorted(node.op_type for node in result.graph.node) == ["Cast", "Neg", "RMSNormalization"]


@pytest.mark.parametrize("x", ["[8]", "[2, 3, 8]", "[?, ?, 8]"])
@pytest.mark.parametrize("opset", [13, 23])
def test_unknown_dimensions(fuses: Callable[..., onnx.ModelProto], x: str, opset: int) -> None:
    model = decomposed(opset, x=x.replace("?", "unknown"))
    for entry in (*model.graph.input, *model.graph.output):
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param == "unknown":
                dim.Clear()
    fuses(model, PASS, STANDARD if opset >= 23 else CUSTOM)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"x": "[B, S, D]", "inputs": ", float[D] gamma", "weights": {"gamma": None}},
            "scale",
        ),
        *(({"x": f"[B, S, {d}]", "weights": {"gamma": np.ones(d)}}, "scale") for d in (0, 1)),
        ({"axes": "[1]"}, None),
        ({"axes": "[1, 2]"}, None),
        ({"keepdims": 0, "x": "[8, 8]"}, None),
        ({"square": "p = Pow(u, three)", "weights": {"three": np.array(3.0)}}, None),
        ({"square": "p = Mul(u, other)", "inputs": ", float[B, S, 8] other"}, None),
        ({"square": "p = Mul(other, other)", "inputs": ", float[B, S, 8] other"}, None),
        ({"square": "p = Abs(u)"}, None),
        ({"quotient": "q = Div(r, u)"}, None),
        ({"quotient": "q = Div(other, r)", "inputs": ", float[B, S, 8] other"}, None),
        ({"quotient": "i = Div(two, r) q = Mul(u, i)"}, None),
        ({"shift": "w = Sub(v, eps)"}, None),
        ({"inputs": ", float[1] eps", "weights": {"eps": None}}, None),
        ({"outputs": ", float[B, S, 1] r"}, None),
        ({"outputs": ", float[B, S, 8] q"}, None),
        ({"scale": "y = Mul(n, gamma) z = Neg(i)", "outputs": ", float[B, S, 1] z"}, None),
        ({"weights": {"eps": np.full(8, 1e-3)}}, "epsilon"),
        ({"weights": {"eps": np.array(0.0)}}, "epsilon"),
        ({"weights": {"eps": np.array(-1e-3)}}, "epsilon"),
        ({"weights": {"eps": np.array(np.nan)}}, "epsilon"),
        ({"weights": {"two": np.full(8, 2.0)}}, "scalar"),
        ({"weights": {"two": np.full((1, 1, 1, 1), 2.0)}, "y": "[1, B, S, 8]"}, "scalar"),
        ({"weights": {"gamma": np.array(0.5)}}, "scale"),
        (
            {
                "weights": {"gamma": np.linspace(1, 2, 16).reshape(2, 1, 8)},
                "x": "[1, S, 8]",
                "y": "[2, S, 8]",
            },
            "scale",
        ),
        ({"x": "[B, S, 1]", "y": "[B, S, 8]"}, "scale"),
        (
            {
                "x": "[B, S, D]",
                "inputs": ", float[E] gamma",
                "y": "[B, S, F]",
                "weights": {"gamma": None},
            },
            "scale",
        ),
    ],
)
@pytest.mark.parametrize("opset", [13, 18, 23])
def test_near_misses(
    refuses: Callable[..., None], changed: dict[str, Any], reason: str | None, opset: int
) -> None:
    refuses(decomposed(opset, **changed), PASS, reason)


@pytest.mark.parametrize("casts", [("", ""), ("", "float")])
def test_an_unknown_dtype(
    refuses: Callable[..., None],
    untyped: Callable[[onnx.ModelProto], onnx.ModelProto],
    casts: tuple[str, str],
) -> None:
    refuses(untyped(decomposed(17, casts=casts)), PASS, "dtype")


def test_an_inner_tensor_that_a_nested_body_captures(refuses: Callable[..., None]) -> None:
    body = """z = If (c) <
        then_branch = t () => (float[B, S, 1] t0) { t0 = Neg(r) },
        else_branch = e () => (float[B, S, 1] e0) { e0 = Neg(v) }>"""
    refuses(
        decomposed(
            inputs=", bool c", outputs=", float[B, S, 1] z", scale=f"y = Mul(n, gamma) {body}"
        ),
        PASS,
        None,
    )


def test_inside_a_nested_body(run: Callable[..., Any]) -> None:
    text = """<ir_version: 8, opset_import: ["": 13]> g (float[B, 8] x, bool c) => (float[B, 8] y) {
        y = If (c) <
            then_branch = t () => (float[B, 8] t0) {
                p = Mul(x, x) v = ReduceMean <axes = [-1]> (p) w = Add(v, eps) r = Sqrt(w) q = Div(x, r) t0 = Mul(q, gamma) },
            else_branch = e () => (float[B, 8] e0) { e0 = Neg(x) }>
    }"""
    gamma = np.random.default_rng(5).standard_normal(8).astype(np.float32)
    model = parse(text, {"gamma": gamma, "eps": np.array(1e-3, np.float32)})
    result, record = run(model, PASS)
    assert record.replaced == 1
    assert [node.op_type for node in result.graph.node[0].attribute[0].g.node] == [
        "RMSNormalization"
    ]
    assert_equal_numbers(
        model, result, [{**make_feeds(model), "c": np.array(c)} for c in (True, False)]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_body_has_no_cast_that_changes_nothing(
    fuses: Callable[..., onnx.ModelProto], dtype: str
) -> None:
    """ONNX Runtime 1.20 to 1.27 does not load one of float16 in a body without optimizations."""
    result = fuses(decomposed(17, dtype=dtype), PASS, CUSTOM)
    (body,) = result.functions
    assert not {node.op_type for node in body.node} & {"Cast", "CastLike"}


@pytest.mark.parametrize(
    ("opset", "casts", "stash_type"),
    [
        (13, ("", ""), 10),
        (17, ("", ""), 10),
        (23, ("", ""), 1),
        (13, ("float", "float16"), 1),
        (23, ("float", "float16"), 1),
    ],
)
def test_float16(
    fuses: Callable[..., onnx.ModelProto], opset: int, casts: tuple[str, str], stash_type: int
) -> None:
    """Normalized in the dtype in which the model does it; by the standard operator in float32."""
    model = decomposed(opset, dtype="float16", inside=casts[0] or None, casts=casts)
    result = fuses(model, PASS, STANDARD if opset >= 23 else CUSTOM)
    assert attributes_of(result)["stash_type"] == stash_type


@pytest.mark.parametrize("opset", [13, 23])
def test_float16_that_overflows_when_it_is_squared(run: Callable[..., Any], opset: int) -> None:
    """The casts are there for this; the fused operator must not lose them.

    The body is run by the reference evaluator too: ONNX Runtime on CPU computes float16 in float32 anyway. (Of the standard
    operator the evaluator's own implementation forgets ``stash_type``.)
    """
    model = decomposed(
        opset, dtype="float16", inside="float", casts=("float", "float16"), x="[2, 8]"
    )
    result, record = run(model, PASS)
    assert record.replaced == 1
    feeds = {"x": (np.random.default_rng(1).standard_normal((2, 8)) * 10000).astype(np.float16)}
    assert_equal_numbers(model, result, [feeds])
    if opset >= 23:
        return
    expected, actual = (ReferenceEvaluator(item).run(None, feeds)[0] for item in (model, result))
    np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=1e-3)
    assert np.abs(actual).max() > 0.5


@pytest.mark.parametrize(
    ("dtype", "casts"),
    [("double", ("", "")), ("float", ("double", "float")), ("float", ("float16", "float"))],
)
@pytest.mark.parametrize("opset", [13, 17, 23])
def test_other_precisions_keep_theirs(
    fuses: Callable[..., onnx.ModelProto], dtype: str, casts: tuple[str, str], opset: int
) -> None:
    """The standard operator would compute these in float32."""
    result = fuses(
        decomposed(opset, dtype=dtype, inside=casts[0] or None, casts=casts), PASS, CUSTOM
    )
    assert attributes_of(result)["stash_type"] == NUMBERS[casts[0] or dtype]


@pytest.mark.parametrize(
    ("dtype", "casts", "result"),
    [
        ("float", ("", "float16"), "float16"),
        ("float16", ("float", "double"), "double"),
        ("float16", ("float", ""), "float"),
    ],
)
@pytest.mark.parametrize("opset", [13, 23])
def test_casts_that_do_not_lead_back(
    run: Callable[..., Any], dtype: str, casts: tuple[str, str], result: str, opset: int
) -> None:
    """Where x is cast and stays so, the cast is no part of it."""
    model = decomposed(opset, dtype=dtype, inside=casts[0] or None, casts=casts, result=result)
    after, record = run(model, PASS)
    stays = casts == ("float", "")
    assert record.replaced == stays
    assert dict(record.rejected) == ({} if stays else {"dtype": record.matched})
    assert record.matched > 0
    assert_equal_numbers(model, after)
