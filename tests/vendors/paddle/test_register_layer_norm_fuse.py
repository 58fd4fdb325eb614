"""The decomposed LayerNormalization, said as a traced pair, is fused; what only looks like it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost.testing import assert_fuses, assert_refuses, check_pass, parse

PASS = "layer_norm_fuse"


def decomposed(
    opset: int = 17,
    *,
    x: str = "B, S, 8",
    y: str = "",
    dtype: str = "float",
    axes: tuple[str, str] = ("[-1]", "[-1]"),
    keepdims: int = 1,
    subtract: str = "d = Sub(x, m)",
    square: str = "p = Pow(d, two)",
    shift: str = "w = Add(v, eps)",
    divide: str = "q = Div(d, r)",
    scale: str = "s = Mul(q, gamma)",
    bias: str = "y = Add(s, beta)",
    inputs: str = "",
    outputs: str = "",
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    means: list[str] = []
    for out, of, over in (("m", "x", axes[0]), ("v", "p", axes[1])):
        if opset < 18:
            means.append(f"{out} = ReduceMean<axes = {over}, keepdims = {keepdims}>({of})")
        else:
            means.append(
                f"a{out} = Constant<value_ints = {over}>() {out} = ReduceMean<keepdims = {keepdims}>({of}, a{out})"
            )
    text = f"""<ir_version: {11 if opset >= 23 else 8}, opset_import: ["" : {opset}]>
    g ({dtype}[{x}] x{inputs}) => ({dtype}[{y or x}] y{outputs}) {{
        {means[0]} {subtract} {square} {means[1]} {shift} r = Sqrt(w) {divide} {scale} {bias}
    }}"""
    random = np.random.default_rng(5)
    arguments = {
        "two": np.array(2.0),
        "eps": np.array(1e-3),
        "gamma": random.standard_normal(8),
        "beta": random.standard_normal(8),
        **(weights or {}),
    }
    numpy = {"float": np.float32, "float16": np.float16, "double": np.float64}[dtype]
    return parse(
        text,
        {
            name: np.asarray(array).astype(numpy)
            for name, array in arguments.items()
            if array is not None
        },
    )


@pytest.mark.parametrize("opset", [17, 18, 23])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"x": "8"},
        {"x": "2, 3, 8"},
        {"shift": "w = Add(eps, v)", "scale": "s = Mul(gamma, q)", "bias": "y = Add(beta, s)"},
        {"weights": {"eps": np.full((1, 1), 1e-3), "two": np.array([2.0])}},
        {"weights": {"two": np.full(8, 2.0)}},
    ],
)
def test_every_form(alone, opset: int, changed: dict[str, Any]) -> None:
    result = assert_fuses(decomposed(opset, **changed), PASS, **alone)
    (node,) = (node for node in result.graph.node if node.op_type != "Constant")
    assert (node.op_type, list(node.input)) == ("LayerNormalization", ["x", "gamma", "beta"])
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    assert attributes == {"axis": -1, "epsilon": pytest.approx(1e-3)}


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"axes": ("[1]", "[1]")}, None),
        ({"axes": ("[-1]", "[-2]")}, None),
        ({"axes": ("[1, 2]", "[1, 2]")}, None),
        ({"keepdims": 0, "x": "8, 8"}, None),
        ({"subtract": "d = Sub(m, x)"}, None),
        ({"subtract": "d = Sub(other, m)", "inputs": ", float[B, S, 8] other"}, None),
        ({"square": "p = Pow(x, two)"}, None),
        ({"divide": "q = Div(x, r)"}, None),
        ({"outputs": ", float[B, S, 8] d"}, None),
        ({"outputs": ", float[B, S, 1] m"}, None),
        (
            {"shift": "w = Add(v, eps)", "inputs": ", float[1] eps", "weights": {"eps": None}},
            "weight",
        ),
        ({"square": "p = Pow(d, two)", "inputs": ", float[1] two", "weights": {"two": None}}, None),
        ({"weights": {"two": np.array(3.0)}}, None),
        ({"weights": {"two": np.full((1, 1, 1, 1), 2.0)}, "y": "1, B, S, 8"}, "rank"),
        ({"weights": {"eps": np.array(0.0)}}, "condition"),
        ({"weights": {"eps": np.array(-1e-3)}}, "condition"),
        ({"weights": {"eps": np.array(np.inf)}}, "condition"),
        ({"weights": {"eps": np.array(np.nan)}}, "condition"),
        ({"weights": {"eps": np.full(8, 1e-3)}}, "condition"),
        ({"weights": {"eps": np.full((1, 1, 1, 1), 1e-3)}, "y": "1, B, S, 8"}, "condition"),
        ({"weights": {"gamma": np.array([0.5])}}, "condition"),
        ({"weights": {"gamma": np.array(0.5)}}, "condition"),
        ({"weights": {"beta": np.array([0.5])}}, "condition"),
        ({"weights": {"beta": np.arange(24.0).reshape(3, 8)}, "x": "B, 3, 8"}, "condition"),
        ({"weights": {"beta": np.arange(64.0).reshape(8, 8)}, "x": "B, 8, 8"}, "condition"),
        ({"weights": {"gamma": np.arange(64.0).reshape(8, 8)}, "x": "B, 8, 8"}, "condition"),
        ({"x": "B, S, 1", "y": "B, S, 8"}, "condition"),
        *(
            (
                {"x": f"B, S, {d}", "weights": {"gamma": np.ones(d), "beta": np.ones(d)}},
                "condition",
            )
            for d in (0, 1)
        ),
        (
            {
                "x": "B, S, D",
                "inputs": ", float[D] gamma, float[D] beta",
                "weights": {"gamma": None, "beta": None},
            },
            "unknown",
        ),
        ({"x": "B, S, D", "y": "B, S, E"}, "unknown"),
        ({"dtype": "double"}, None),
        ({"dtype": "float16"}, None),
    ],
)
def test_near_misses(alone, changed: dict[str, Any], reason: str | None, opset: int) -> None:
    assert_refuses(decomposed(opset, **changed), PASS, reason, **alone)


def test_below_opset_17_there_is_no_such_operator(alone) -> None:
    assert_refuses(decomposed(16), PASS, "needs opset 17", **alone)


def test_instances_and_changes_of_the_pattern_keep_their_numbers(alone) -> None:
    check_pass(PASS, **alone)
