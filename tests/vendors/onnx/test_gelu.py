"""Gelu is fused from Erf and from Tanh, and what only looks like it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.testing import assert_equal_numbers, parse
from gehost.verify import make_feeds

EXACT, TANH = "GeluFusionPass", "GeluTanhFusionPass"
STANDARD, CUSTOM = "Gelu", "gehost::Gelu"
DTYPES = {"float": np.float32, "float16": np.float16, "double": np.float64}
OPSETS = [
    (9, CUSTOM),
    (13, CUSTOM),
    (17, CUSTOM),
    (18, CUSTOM),
    (19, CUSTOM),
    (20, STANDARD),
    (23, STANDARD),
]
SCALED = ("a = Div(x, root2)", "a = Mul(x, root2_inverse)", "a = Mul(root2_inverse, x)")
CUBED = ("c = Pow(x, three)", "x2 = Mul(x, x) c = Mul(x2, x)", "x2 = Mul(x, x) c = Mul(x, x2)")
HALVED = (
    "h = Mul(x, e) y = Mul(h, half)",
    "h = Mul(e, x) y = Mul(half, h)",
    "h = Mul(half, x) y = Mul(h, e)",
    "h = Mul(x, half) y = Mul(e, h)",
    "h = Mul(half, e) y = Mul(x, h)",
    "h = Mul(e, half) y = Mul(h, x)",
)


def _model(
    opset: int,
    parts: str,
    dtype: str,
    x: str,
    y: str | None,
    inputs: str,
    outputs: str,
    weights: dict[str, Any] | None,
) -> onnx.ModelProto:
    text = f"""<ir_version: {11 if opset >= 23 else 8}, opset_import: ["": {opset}]>
    g ({dtype}{x} x{inputs}) => ({dtype}{x if y is None else y} y{outputs}) {{ {parts} }}"""
    arguments = {
        "half": 0.5,
        "one": 1.0,
        "three": 3.0,
        "root2": sqrt(2.0),
        "root2_inverse": sqrt(0.5),
        "cubic": 0.044715,
        "factor": sqrt(2.0 / pi),
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


def by_erf(
    opset: int = 17,
    *,
    dtype: str = "float",
    x: str = "[B, S, 8]",
    y: str | None = None,
    scaled: str = SCALED[0],
    erf: str = "f = Erf(a)",
    plus_one: str = "e = Add(f, one)",
    halved: str = HALVED[0],
    inputs: str = "",
    outputs: str = "",
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of one Gelu by Erf; each argument changes one thing of it."""
    return _model(
        opset, f"{scaled} {erf} {plus_one} {halved}", dtype, x, y, inputs, outputs, weights
    )


def by_tanh(
    opset: int = 17,
    *,
    dtype: str = "float",
    x: str = "[B, S, 8]",
    y: str | None = None,
    cubed: str = CUBED[0],
    weighted: str = "w = Mul(c, cubic)",
    summed: str = "s = Add(x, w)",
    scaled: str = "a = Mul(s, factor)",
    tanh: str = "t = Tanh(a)",
    plus_one: str = "e = Add(t, one)",
    halved: str = HALVED[2],
    inputs: str = "",
    outputs: str = "",
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of one Gelu by Tanh; each argument changes one thing of it."""
    parts = f"{cubed} {weighted} {summed} {scaled} {tanh} {plus_one} {halved}"
    return _model(opset, parts, dtype, x, y, inputs, outputs, weights)


def of_unknown_rank(
    build: Callable[..., onnx.ModelProto], opset: int, **changed: Any
) -> onnx.ModelProto:
    """The same between Reshapes to sizes that are inputs."""
    model = build(opset, x="[N]", inputs=", int64[R] sizes, int64[Q] back", **changed)
    for node in model.graph.node:
        node.input[:] = ["x_shaped" if tensor == "x" else tensor for tensor in node.input]
    model.graph.node[-1].output[0] = "y_shaped"
    model.graph.node.insert(0, onnx.helper.make_node("Reshape", ["x", "sizes"], ["x_shaped"]))
    model.graph.node.append(onnx.helper.make_node("Reshape", ["y_shaped", "back"], ["y"]))
    return model


@pytest.mark.parametrize(("opset", "became"), OPSETS)
@pytest.mark.parametrize(
    ("build", "name", "approximate"), [(by_erf, EXACT, b"none"), (by_tanh, TANH, b"tanh")]
)
def test_every_opset(
    fuses: Callable[..., onnx.ModelProto],
    build: Callable[..., onnx.ModelProto],
    name: str,
    approximate: bytes,
    opset: int,
    became: str,
) -> None:
    result = fuses(build(opset), name, became)
    (node,) = result.graph.node
    assert {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute} == {
        "approximate": approximate
    }
    assert [(f.domain, f.name) for f in result.functions] == (
        [] if became == STANDARD else [("gehost", "Gelu")]
    )


@pytest.mark.parametrize("halved", HALVED)
@pytest.mark.parametrize("plus_one", ["e = Add(f, one)", "e = Add(one, f)"])
@pytest.mark.parametrize("scaled", SCALED)
def test_every_form_by_erf(
    fuses: Callable[..., onnx.ModelProto], scaled: str, plus_one: str, halved: str
) -> None:
    fuses(by_erf(scaled=scaled, plus_one=plus_one, halved=halved), EXACT, CUSTOM)


@pytest.mark.parametrize("halved", HALVED)
@pytest.mark.parametrize("cubed", CUBED)
def test_every_form_by_tanh(fuses: Callable[..., onnx.ModelProto], cubed: str, halved: str) -> None:
    fuses(by_tanh(cubed=cubed, halved=halved), TANH, CUSTOM)


@pytest.mark.parametrize("swapped", ["weighted", "summed", "scaled", "plus_one"])
def test_operands_in_any_order_by_tanh(fuses: Callable[..., onnx.ModelProto], swapped: str) -> None:
    forms = {
        "weighted": "w = Mul(cubic, c)",
        "summed": "s = Add(w, x)",
        "scaled": "a = Mul(factor, s)",
        "plus_one": "e = Add(one, t)",
    }
    fuses(by_tanh(**{swapped: forms[swapped]}), TANH, CUSTOM)


@pytest.mark.parametrize(
    ("build", "name", "weights"),
    [
        (by_erf, EXACT, {"root2": 1.4142135}),
        (by_erf, EXACT, {"root2": 1.41421354}),
        (by_erf, EXACT, {"root2": 1.414214}),
        (by_erf, EXACT, {"root2": [sqrt(2.0)], "half": [[0.5]], "one": [[[1.0]]]}),
        (by_tanh, TANH, {"factor": 0.7978846}),
        (by_tanh, TANH, {"factor": 0.797884583473}),
        (by_tanh, TANH, {"cubic": 0.04471500}),
    ],
)
def test_constants_as_they_are_written(
    fuses: Callable[..., onnx.ModelProto],
    build: Callable[..., onnx.ModelProto],
    name: str,
    weights: dict[str, Any],
) -> None:
    fuses(build(weights=weights), name, CUSTOM)


def test_an_exponent_may_be_an_integer(fuses: Callable[..., onnx.ModelProto]) -> None:
    model = by_tanh(cubed="n = Constant <value_int = 3> () c = Pow(x, n)")
    fuses(model, TANH, CUSTOM)


@pytest.mark.parametrize("shape", [[], [8], ["B", None, "C"], [2, 3, 4, 5, 6], [None, None]])
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize(("build", "name"), [(by_erf, EXACT), (by_tanh, TANH)])
def test_any_shape(
    fuses: Callable[..., onnx.ModelProto],
    build: Callable[..., onnx.ModelProto],
    name: str,
    shape: list[Any],
    opset: int,
) -> None:
    model = build(opset)
    for entry in (model.graph.input[0], model.graph.output[0]):
        entry.CopyFrom(
            onnx.helper.make_tensor_value_info(entry.name, onnx.TensorProto.FLOAT, shape)
        )
    fuses(model, name, CUSTOM if opset < 20 else STANDARD)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize(("build", "name"), [(by_erf, EXACT), (by_tanh, TANH)])
def test_an_unknown_rank(
    fuses: Callable[..., onnx.ModelProto],
    build: Callable[..., onnx.ModelProto],
    name: str,
    opset: int,
) -> None:
    """Gelu does not look at the shape."""
    model = of_unknown_rank(build, opset)
    result = fuses(model, name, CUSTOM if opset < 20 else STANDARD, left=3, numbers=False)
    feeds = {
        "x": make_feeds(by_erf(x="[24]"))["x"],
        "sizes": np.array([2, 3, 4]),
        "back": np.array([24]),
    }
    assert_equal_numbers(model, result, [feeds])


@pytest.mark.parametrize("weights", [{"half": [0.5]}, {"one": [[1.0]]}])
def test_an_unknown_rank_may_be_lower_than_that_of_a_constant(
    refuses: Callable[..., None], weights: dict[str, Any]
) -> None:
    refuses(of_unknown_rank(by_erf, 17, weights=weights), EXACT, "scalar")


@pytest.mark.parametrize("dtype", ["float16", "double"])
@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize(("build", "name"), [(by_erf, EXACT), (by_tanh, TANH)])
def test_other_dtypes(
    fuses: Callable[..., onnx.ModelProto],
    build: Callable[..., onnx.ModelProto],
    name: str,
    dtype: str,
    opset: int,
) -> None:
    custom = opset < 20 or (dtype == "double" and name == TANH)
    fuses(build(opset, dtype=dtype), name, CUSTOM if custom else STANDARD)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weights": {"half": 0.4}}, None),
        ({"weights": {"one": 1.001}}, None),
        ({"plus_one": "e = Sub(f, one)"}, None),
        ({"scaled": "a = Div(root2, x)"}, None),
        ({"scaled": "a = Mul(other, root2_inverse)", "inputs": ", float[B, S, 8] other"}, None),
        (
            {"halved": "h = Mul(other, e) y = Mul(h, half)", "inputs": ", float[B, S, 8] other"},
            None,
        ),
        ({"halved": "h = Mul(x, f) y = Mul(h, half)"}, None),
        ({"halved": "h = Div(x, half) y = Mul(h, e)"}, None),
        ({"erf": "f = Tanh(a)"}, None),
        ({"weights": {"half": None}, "inputs": ", float[1] half"}, None),
        ({"outputs": ", float[B, S, 8] f"}, None),
        ({"outputs": ", float[B, S, 8] h"}, None),
        ({"halved": HALVED[0] + " n = Neg(e)", "outputs": ", float[B, S, 8] n"}, None),
        ({"weights": {"root2": 1.4}}, "constant"),
        ({"weights": {"root2": 1.4142}}, "constant"),
        ({"weights": {"root2": sqrt(0.5)}}, "constant"),
        ({"weights": {"root2": -sqrt(2.0)}}, "constant"),
        ({"weights": {"root2": np.nan}}, "constant"),
        ({"scaled": SCALED[1], "weights": {"root2_inverse": sqrt(2.0)}}, "constant"),
        ({"weights": {"root2": np.linspace(1, 2, 8)}}, "scalar"),
        ({"weights": {"half": np.full(8, 0.5)}}, "scalar"),
        ({"weights": {"one": np.full((1, 1, 1, 1), 1.0)}, "y": "[1, B, S, 8]"}, "scalar"),
    ],
)
@pytest.mark.parametrize("opset", [17, 20])
def test_near_misses_by_erf(
    refuses: Callable[..., None], changed: dict[str, Any], reason: str | None, opset: int
) -> None:
    refuses(by_erf(opset, **changed), EXACT, reason)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weights": {"half": 0.4}}, None),
        ({"weights": {"three": 2.0}}, None),
        ({"cubed": "x2 = Mul(x, x) c = Mul(x2, x2)"}, None),
        ({"cubed": "c = Pow(other, three)", "inputs": ", float[B, S, 8] other"}, None),
        ({"cubed": "x2 = Mul(x, other) c = Mul(x2, x)", "inputs": ", float[B, S, 8] other"}, None),
        ({"summed": "s = Sub(x, w)"}, None),
        ({"summed": "s = Add(c, w)"}, None),
        ({"tanh": "t = Erf(a)"}, None),
        ({"outputs": ", float[B, S, 8] t"}, None),
        ({"outputs": ", float[B, S, 8] c"}, None),
        ({"halved": HALVED[2] + " n = Neg(a)", "outputs": ", float[B, S, 8] n"}, None),
        ({"weights": {"cubic": 0.0447}}, "constant"),
        ({"weights": {"factor": 0.8}}, "constant"),
        ({"weights": {"factor": 0.7978}}, "constant"),
        ({"weights": {"cubic": sqrt(2.0 / pi), "factor": 0.044715}}, "constant"),
        ({"weights": {"cubic": np.full(8, 0.044715)}}, "scalar"),
        ({"weights": {"three": np.full((1, 1, 1, 1), 3.0)}, "y": "[1, B, S, 8]"}, "scalar"),
    ],
)
@pytest.mark.parametrize("opset", [17, 20])
def test_near_misses_by_tanh(
    refuses: Callable[..., None], changed: dict[str, Any], reason: str | None, opset: int
) -> None:
    refuses(by_tanh(opset, **changed), TANH, reason)


def test_a_widened_dimension_of_unknown_size(refuses: Callable[..., None]) -> None:
    """x may have one column; eight times ½ then makes eight of it."""
    refuses(by_erf(x="[B, N]", y="[B, 8]", weights={"half": np.full(8, 0.5)}), EXACT, "scalar")


@pytest.mark.parametrize(("build", "name"), [(by_erf, EXACT), (by_tanh, TANH)])
def test_an_unknown_dtype(
    refuses: Callable[..., None],
    untyped: Callable[[onnx.ModelProto], onnx.ModelProto],
    build: Callable[..., onnx.ModelProto],
    name: str,
) -> None:
    refuses(untyped(build()), name, "dtype")


def test_an_inner_tensor_that_a_nested_body_captures(refuses: Callable[..., None]) -> None:
    body = """z = If (flag) <
        then_branch = g1 () => (float[B, S, 8] t0) { t0 = Neg(e) },
        else_branch = g2 () => (float[B, S, 8] o0) { o0 = Neg(x) }>"""
    for build, name, halved in ((by_erf, EXACT, HALVED[0]), (by_tanh, TANH, HALVED[2])):
        refuses(
            build(inputs=", bool flag", outputs=", float[B, S, 8] z", halved=f"{halved} {body}"),
            name,
            None,
        )


def test_inside_a_nested_body(run: Callable[..., Any]) -> None:
    """x and constants are of the outer graph."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[B, 8] x, bool c) => (float[B, 8] y) {
        y = If (c) <
            then_branch = t () => (float[B, 8] t0) {
                a = Div(x, root2) f = Erf(a) e = Add(f, one) h = Mul(x, e) t0 = Mul(h, half) },
            else_branch = o () => (float[B, 8] o0) { o0 = Neg(x) }>
    }"""
    constants = {"root2": sqrt(2.0), "one": 1.0, "half": 0.5}
    model = parse(text, {name: np.array(number, np.float32) for name, number in constants.items()})
    result, record = run(model, EXACT)
    assert record.replaced == 1
    assert [node.op_type for node in result.graph.node[0].attribute[0].g.node] == ["Gelu"]
    assert_equal_numbers(
        model, result, [{**make_feeds(model), "c": np.array(c)} for c in (True, False)]
    )


def test_both_in_one_model(run: Callable[..., Any]) -> None:
    """Each keeps its own body."""
    first, second = by_erf(outputs=""), by_tanh()
    model = onnx.compose.merge_models(
        onnx.compose.add_prefix(first, "a_"),
        onnx.compose.add_prefix(second, "b_"),
        io_map=[("a_y", "b_x")],
    )
    once, record = run(model, EXACT)
    assert record.replaced == 1
    result, record = run(once, TANH)
    assert record.replaced == 1
    assert len({(function.domain, function.name) for function in result.functions}) == 2
    assert_equal_numbers(model, result)
