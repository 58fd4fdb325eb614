"""The decomposed LayerNormalization is fused, and what only looks like it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.testing import assert_equal_numbers, parse
from gehost.verify import make_feeds

PASS = "LayerNormalizationFusionPass"
STANDARD, CUSTOM = "LayerNormalization", "gehost::LayerNormalization"
SQUARES = ("p = Pow(d, two)", "p = Mul(d, d)")
QUOTIENTS = (
    "q = Div(d, r)",
    "i = Reciprocal(r) q = Mul(d, i)",
    "i = Reciprocal(r) q = Mul(i, d)",
    "i = Div(one, r) q = Mul(d, i)",
)
DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}


def decomposed(
    opset: int = 17,
    *,
    dtype: str = "float",
    x: str = "[B, S, 8]",
    y: str | None = None,
    mean_axes: str = "[-1]",
    variance_axes: str = "[-1]",
    keepdims: int = 1,
    subtract: str = "d = Sub(x, m)",
    square: str = SQUARES[0],
    shift: str = "w = Add(v, eps)",
    quotient: str = QUOTIENTS[0],
    scale: str = "s = Mul(q, gamma)",
    bias: str = "y = Add(s, beta)",
    inputs: str = "",
    outputs: str = "",
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of one decomposed LayerNormalization over ``x``; each argument changes one thing of it."""
    if opset < 18:
        means = [
            f"{out} = ReduceMean <axes = {axes}, keepdims = {keepdims}> ({of})"
            for out, of, axes in _means(mean_axes, variance_axes)
        ]
    else:
        means = [
            f"a{out} = Constant <value_ints = {axes}> () {out} = ReduceMean <keepdims = {keepdims}> ({of}, a{out})"
            for out, of, axes in _means(mean_axes, variance_axes)
        ]
    text = f"""<ir_version: {11 if opset >= 23 else 8}, opset_import: ["": {opset}]>
    g ({dtype}{x} x{inputs}) => ({dtype}{x if y is None else y} y{outputs}) {{
        {means[0]} {subtract} {square} {means[1]} {shift} r = Sqrt(w) {quotient} {scale} {bias}
    }}"""
    random = np.random.default_rng(3)
    arguments = {
        "two": np.array(2.0),
        "one": np.array(1.0),
        "eps": np.array(1e-3),
        "gamma": random.standard_normal(8),
        "beta": random.standard_normal(8),
        **(weights or {}),
    }
    read = set(re.findall(r"\w+", text))
    return parse(
        text,
        {
            name: np.asarray(a).astype(DTYPES[dtype])
            for name, a in arguments.items()
            if a is not None and name in read
        },
    )


def _means(mean_axes: str, variance_axes: str) -> list[tuple[str, str, str]]:
    return [("m", "x", mean_axes), ("v", "p", variance_axes)]


@pytest.mark.parametrize(
    ("opset", "became"),
    [
        (9, CUSTOM),
        (13, CUSTOM),
        (16, CUSTOM),
        (17, STANDARD),
        (18, STANDARD),
        (20, STANDARD),
        (23, STANDARD),
    ],
)
def test_every_opset(fuses: Callable[..., onnx.ModelProto], opset: int, became: str) -> None:
    axes = "[2]" if opset < 11 else "[-1]"
    result = fuses(decomposed(opset, mean_axes=axes, variance_axes=axes), PASS, became)
    (node,) = (node for node in result.graph.node if node.op_type == "LayerNormalization")
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    assert attributes == {"axis": -1, "epsilon": pytest.approx(1e-3)}
    assert list(node.input) == ["x", "gamma", "beta"]
    assert [
        (f.domain, f.name, {a.domain: a.version for a in f.opset_import}[""])
        for f in result.functions
    ] == ([] if became == STANDARD else [("gehost", "LayerNormalization", opset)])


@pytest.mark.parametrize("became", [CUSTOM, STANDARD])
@pytest.mark.parametrize(("square", "quotient"), list(product(SQUARES, QUOTIENTS)))
def test_every_form(
    fuses: Callable[..., onnx.ModelProto], square: str, quotient: str, became: str
) -> None:
    fuses(
        decomposed(13 if became == CUSTOM else 17, square=square, quotient=quotient), PASS, became
    )


@pytest.mark.parametrize("shift", ["w = Add(v, eps)", "w = Add(eps, v)"])
@pytest.mark.parametrize("scale", ["s = Mul(q, gamma)", "s = Mul(gamma, q)"])
@pytest.mark.parametrize("bias", ["y = Add(s, beta)", "y = Add(beta, s)"])
def test_operands_in_any_order(
    fuses: Callable[..., onnx.ModelProto], shift: str, scale: str, bias: str
) -> None:
    fuses(decomposed(shift=shift, scale=scale, bias=bias), PASS, STANDARD)


@pytest.mark.parametrize(("opset", "became"), [(13, CUSTOM), (17, STANDARD)])
def test_without_bias(fuses: Callable[..., onnx.ModelProto], opset: int, became: str) -> None:
    result = fuses(decomposed(opset, scale="y = Mul(q, gamma)", bias=""), PASS, became)
    assert list(result.graph.node[-1].input) == ["x", "gamma"]


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        (
            {"weights": {"beta": np.arange(3.0)[:, None] + np.arange(8.0)}, "x": "[B, 3, 8]"},
            ["bias"],
        ),
        ({"weights": {"beta": np.array(0.25)}}, ["bias"]),
        ({"outputs": ", float[B, S, 8] s"}, []),
    ],
)
def test_a_bias_that_cannot_be_taken_stays(
    run: Callable[..., Any], changed: dict[str, Any], reasons: list[str]
) -> None:
    """What is normalized and scaled is fused alone; the addition stays."""
    model = decomposed(**changed)
    result, record = run(model, PASS)
    assert record.replaced == 1
    assert list(record.rejected) == reasons
    assert [node.op_type for node in result.graph.node] == ["LayerNormalization", "Add"]
    assert_equal_numbers(model, result)


@pytest.mark.parametrize("axes", ["[-1]", "[2]"])
@pytest.mark.parametrize("opset", [13, 18])
def test_axes_from_both_ends(fuses: Callable[..., onnx.ModelProto], axes: str, opset: int) -> None:
    fuses(
        decomposed(opset, mean_axes=axes, variance_axes="[-1]"),
        PASS,
        CUSTOM if opset < 17 else STANDARD,
    )


@pytest.mark.parametrize("x", ["[8]", "[2, 3, 8]", "[?, ?, 8]", "[B, ?, S, 8]"])
@pytest.mark.parametrize("opset", [13, 17])
def test_unknown_dimensions(fuses: Callable[..., onnx.ModelProto], x: str, opset: int) -> None:
    model = decomposed(opset, x=x.replace("?", "unknown"))
    for entry in (*model.graph.input, *model.graph.output):
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param == "unknown":
                dim.Clear()
    fuses(model, PASS, CUSTOM if opset < 17 else STANDARD)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mean_axes": "[1]", "variance_axes": "[1]"}, None),
        ({"variance_axes": "[-2]"}, None),
        ({"mean_axes": "[-2]"}, None),
        ({"mean_axes": "[1, 2]", "variance_axes": "[1, 2]"}, None),
        ({"keepdims": 0, "x": "[8, 8]"}, None),
        ({"subtract": "n = Neg(m) d = Sub(x, n)"}, None),
        ({"subtract": "d = Sub(m, x)"}, None),
        ({"subtract": "d = Sub(other, m)", "inputs": ", float[B, S, 8] other"}, None),
        ({"subtract": "d = Add(x, m)"}, None),
        ({"square": "p = Pow(d, three)", "weights": {"three": np.array(3.0)}}, None),
        ({"square": "p = Mul(d, x)"}, None),
        ({"square": "p = Abs(d)"}, None),
        ({"square": "e = Sub(m, x) p = Mul(e, e)"}, None),
        ({"quotient": "q = Div(r, d)"}, None),
        ({"quotient": "q = Div(x, r)"}, None),
        ({"quotient": "i = Div(two, r) q = Mul(d, i)"}, None),
        ({"shift": "w = Sub(v, eps)"}, None),
        ({"shift": "w = Add(v, eps)", "inputs": ", float[1] eps", "weights": {"eps": None}}, None),
        ({"outputs": ", float[B, S, 8] d"}, None),
        ({"outputs": ", float[B, S, 1] m"}, None),
        ({"bias": "y = Add(s, beta) n = Neg(r)", "outputs": ", float[B, S, 1] n"}, None),
        ({"weights": {"eps": np.full(8, 1e-3)}}, "epsilon"),
        ({"weights": {"eps": np.array(0.0)}}, "epsilon"),
        ({"weights": {"eps": np.array(-1e-3)}}, "epsilon"),
        ({"weights": {"eps": np.array(np.inf)}}, "epsilon"),
        ({"weights": {"eps": np.full((1, 1, 1, 1), 1e-3)}, "y": "[1, B, S, 8]"}, "epsilon"),
        ({"weights": {"two": np.full((1, 1, 1, 1), 2.0)}, "y": "[1, B, S, 8]"}, "scalar"),
        ({"weights": {"two": np.full(8, 2.0)}}, "scalar"),
        ({"quotient": QUOTIENTS[3], "weights": {"one": np.full(8, 1.0)}}, "scalar"),
        ({"weights": {"gamma": np.array([0.5])}}, "scale"),
        ({"weights": {"gamma": np.array(0.5)}}, "scale"),
        ({"weights": {"gamma": np.linspace(1, 2, 8).reshape(1, 8)}}, "scale"),
        ({"x": "[B, S, 1]", "y": "[B, S, 8]"}, "scale"),
        *(
            (
                {"x": f"[B, S, {d}]", "weights": {"gamma": np.ones(d), "beta": np.ones(d)}},
                "scale",
            )
            for d in (0, 1)
        ),
        (
            {
                "x": "[B, S, D]",
                "inputs": ", float[D] gamma, float[D] beta",
                "weights": {"gamma": None, "beta": None},
            },
            "scale",
        ),
        ({"x": "[B, S, D]", "y": "[B, S, E]"}, "scale"),
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
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_near_misses(
    refuses: Callable[..., None], changed: dict[str, Any], reason: str | None, opset: int
) -> None:
    refuses(decomposed(opset, **changed), PASS, reason)


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_an_unknown_rank(refuses: Callable[..., None], opset: int) -> None:
    """What the scale then does to the result cannot be known."""
    model = decomposed(opset, inputs=", int64[R] sizes")
    model.graph.input[0].CopyFrom(
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N"])
    )
    for node in model.graph.node:
        node.input[:] = ["x_shaped" if name == "x" else name for name in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Reshape", ["x", "sizes"], ["x_shaped"]))
    refuses(model, PASS, "scale")


def test_an_unknown_dtype(
    refuses: Callable[..., None], untyped: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    refuses(untyped(decomposed(17)), PASS, "dtype")


def test_an_inner_tensor_that_a_nested_body_captures(refuses: Callable[..., None]) -> None:
    model = decomposed(
        17,
        inputs=", bool c",
        outputs=", float[B, S, 8] z",
        bias="""y = Add(s, beta)
            z = If (c) <
                then_branch = t () => (float[B, S, 8] t0) { t0 = Neg(d) },
                else_branch = e () => (float[B, S, 8] e0) { e0 = Neg(x) }>""",
    )
    refuses(model, PASS, None)


def test_inside_a_nested_body(run: Callable[..., Any]) -> None:
    """x, weights and constants are of the outer graph."""
    whole = """m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) p = Mul(d, d)
        v = ReduceMean <axes = [-1]> (p) w = Add(v, eps) r = Sqrt(w)"""
    text = f"""<ir_version: 8, opset_import: ["": 13]> g (float[B, 8] x, bool c) => (float[B, 8] y) {{
        y = If (c) <
            then_branch = t () => (float[B, 8] t0) {{ {whole} q = Div(d, r) s = Mul(q, gamma) t0 = Add(s, beta) }},
            else_branch = e () => (float[B, 8] e0) {{ {whole} q = Div(d, r) e0 = Mul(q, gamma) }}>
    }}"""
    random = np.random.default_rng(5).standard_normal((2, 8)).astype(np.float32)
    model = parse(text, {"gamma": random[0], "beta": random[1], "eps": np.array(1e-3, np.float32)})
    result, record = run(model, PASS)
    assert record.replaced == 2
    feeds = [{**make_feeds(model), "c": np.array(c)} for c in (True, False)]
    assert_equal_numbers(model, result, feeds)
    bodies = [attribute.g for attribute in result.graph.node[0].attribute]
    assert [[(node.domain, len(node.input)) for node in body.node] for body in bodies] == [
        [("gehost", 3)],
        [("gehost", 2)],
    ]


@pytest.mark.parametrize(("opset", "became"), [(13, CUSTOM), (17, STANDARD), (20, STANDARD)])
def test_float16(fuses: Callable[..., onnx.ModelProto], opset: int, became: str) -> None:
    fuses(decomposed(opset, dtype="float16"), PASS, became)


def test_float16_epsilon_that_became_zero(refuses: Callable[..., None]) -> None:
    refuses(decomposed(17, dtype="float16", weights={"eps": np.array(1e-12)}), PASS, "epsilon")


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_float64_keeps_its_precision(fuses: Callable[..., onnx.ModelProto], opset: int) -> None:
    fuses(decomposed(opset, dtype="double"), PASS, CUSTOM)


def test_two_epsilons_have_two_bodies(run: Callable[..., Any]) -> None:
    first, second = decomposed(13), decomposed(13, weights={"eps": np.array(0.5)})
    model = onnx.compose.merge_models(
        onnx.compose.add_prefix(first, "a_"),
        onnx.compose.add_prefix(second, "b_"),
        io_map=[("a_y", "b_x")],
    )
    result, record = run(model, PASS)
    assert record.replaced == 2
    assert len({function.name for function in result.functions}) == 2
    assert_equal_numbers(model, result)
