"""Weights and constants that a graph, a function or a body returns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.parser
import pytest

from gehost.half import judge, to_float16
from gehost.ir.bodies import lists_of
from gehost.ir.tensors import from_numpy

onnxruntime = pytest.importorskip("onnxruntime")
_DRAW = np.random.default_rng(0)
X = _DRAW.normal(size=(4, 16)).astype(np.float32)
W = (_DRAW.normal(size=(16, 16)) * 0.2).astype(np.float32)
HEAD = '<ir_version: 9, opset_import: ["": 17, "my": 1]> g '
READERS = {
    "none": "y = Relu (x)",
    "half": "y = MatMul (x, w)",
    "float32": "e = Exp (w) y = MatMul (x, e)",
    "both": "a = MatMul (x, w) e = Exp (w) y = MatMul (a, e)",
}


def owners(model: onnx.ModelProto) -> list[Any]:
    """Return the graph, the functions, and the bodies in them."""
    first = [model.graph, *model.functions]
    return first + [
        entry.g
        for graph in first
        for nodes in lists_of(graph.node)
        for node in nodes
        for entry in node.attribute
        if entry.HasField("g")
    ]


def define(model: onnx.ModelProto, form: str, array: np.ndarray[Any, Any] = W) -> onnx.ModelProto:
    """Define a weight in each graph and function that returns it."""
    for owner in owners(model):
        names = [info if isinstance(info, str) else info.name for info in owner.output]
        for name in dict.fromkeys(name for name in names if name.startswith("w")):
            if any(name in node.output for node in owner.node):
                continue
            tensor = from_numpy(array, name)
            if form == "Constant" or isinstance(owner, onnx.FunctionProto):
                node = onnx.helper.make_node("Constant", [], [name], value=tensor)
                owner.node.insert(0, node)
            else:
                owner.initializer.append(tensor)
    return model


def run(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
    return session.run(
        None,
        {
            info.name: feed[info.name].astype(kinds.get(info.type, feed[info.name].dtype))
            for info in session.get_inputs()
        },
    )


def prove(model: onnx.ModelProto, feeds: list[dict[str, Any]]) -> None:
    onnx.checker.check_model(model, full_check=True)
    for keep_io in (False, True):
        conversion = to_float16(model, keep_io=keep_io, feeds=feeds)
        onnx.checker.check_model(conversion.model, full_check=True)
        for feed in feeds:
            for a, b in zip(run(model, feed), run(conversion.model, feed), strict=True):
                assert b.dtype == (np.float32 if keep_io else np.float16)
                assert np.abs(a - b).max() < 0.01 * np.abs(a).max()
        assert judge(model, conversion, feeds).equal


@pytest.mark.parametrize("form", ["initializer", "Constant"])
@pytest.mark.parametrize("outputs", ["float[16, 16] w", "float[16, 16] w, float[16, 16] w"])
@pytest.mark.parametrize("readers", READERS.values(), ids=READERS)
def test_a_graph_returns_a_weight(readers: str, outputs: str, form: str) -> None:
    text = f"{HEAD} (float[4, 16] x) => (float[4, 16] y, {outputs}) {{ {readers} }}"
    prove(define(onnx.parser.parse_model(text), form), [{"x": X}])


@pytest.mark.parametrize("readers", READERS.values(), ids=READERS)
def test_a_graph_returns_a_weight_that_is_an_input(readers: str) -> None:
    for initialized in (True, False):
        model = onnx.parser.parse_model(
            f"""{HEAD} (float[4, 16] x, float[16, 16] w) => (float[4, 16] y, float[16, 16] w)
            {{ {readers} }}"""
        )
        if initialized:
            model.graph.initializer.append(from_numpy(W, "w"))
        for keep_io in (False, True):
            converted = to_float16(model, keep_io=keep_io).model
            onnx.checker.check_model(converted, full_check=True)
            feed = {"x": X, "w": W + 1}
            for a, b in zip(run(model, feed), run(converted, feed), strict=True):
                assert b.dtype == (np.float32 if keep_io else np.float16)
                assert np.abs(a - b).max() < 0.01 * np.abs(a).max()


@pytest.mark.parametrize(("size", "in_half"), [(1e5, 65504), (-3.4e38, -65504), (-np.inf, -np.inf)])
@pytest.mark.parametrize("form", ["initializer", "Constant"])
def test_a_graph_returns_a_weight_beyond_the_range(form: str, size: float, in_half: float) -> None:
    array = W.copy()
    array[0, 0] = size
    model = onnx.parser.parse_model(
        f"""{HEAD} (float[4, 16] x) => (float[4, 16] y, float[16, 16] w)
        {{ e = Softmax (w) y = MatMul (x, e) }}"""
    )
    define(model, form, array)
    for keep_io in (False, True):
        conversion = to_float16(model, keep_io=keep_io)
        onnx.checker.check_model(conversion.model, full_check=True)
        result = run(conversion.model, {"x": X})[1][0, 0]
        assert result == (np.float32(size) if keep_io else in_half)
        assert judge(model, conversion, [{"x": X}]).equal == (keep_io or size == in_half)


def branch(readers: str, name: str = "t") -> str:
    """Return a branch as text; names of two of them are no others."""
    words = re.sub(r"\b([yew])\b", rf"\1{name}", readers)
    return f"{name} () => (float[4, 16] y{name}, float[16, 16] w{name}) {{ {words} }}"


@pytest.mark.parametrize("form", ["initializer", "Constant"])
@pytest.mark.parametrize("place", ["graph", "branch", "function"])
@pytest.mark.parametrize("readers", READERS.values(), ids=READERS)
def test_a_branch_returns_a_weight(readers: str, place: str, form: str) -> None:
    choice = f"""If (c) <then_branch = {branch(readers)},
        else_branch = {branch("y = Neg (x)", "f")}>"""
    types = "float[4, 16] y, float[16, 16] v"
    text = f"(float[4, 16] x, bool c) => ({types}) {{ y, v = {choice} }}"
    if place == "branch":
        text = f"""(float[4, 16] x, bool c) => ({types}) {{ y, v = If (c)
            <then_branch = o () => (float[4, 16] p, float[16, 16] q) {{ p, q = {choice} }},
            else_branch = {branch("y = Neg (x)", "g")}> }}"""
    if place == "function":
        text = f"""(float[4, 16] x, bool c) => ({types}) {{ y, v = my.f (x, c) }}
            <domain: "my", opset_import: ["": 17]> f (x, c) => (y, v) {{ y, v = {choice} }}"""
    model = define(onnx.parser.parse_model(HEAD + text), form)
    prove(model, [{"x": X, "c": np.array(flag)} for flag in (True, False)])


@pytest.mark.parametrize("readers", READERS.values(), ids=READERS)
def test_a_function_returns_a_constant(readers: str) -> None:
    model = onnx.parser.parse_model(
        f"""{HEAD} (float[4, 16] x) => (float[4, 16] y, float[16, 16] v, float[16, 16] w)
        {{ h, v = my.f (x) y = MatMul (h, w) }}
        <domain: "my", opset_import: ["": 17]> f (x) => (y, w) {{ {readers} }}"""
    )
    prove(define(model, "initializer"), [{"x": X}])


@pytest.mark.parametrize("form", ["initializer", "Constant"])
@pytest.mark.parametrize("readers", READERS.values(), ids=READERS)
def test_bodies_of_loops_return_a_weight(readers: str, form: str) -> None:
    inner = readers.replace("(x", "(s").replace("Relu", "Tanh")
    texts = (
        f"""(float[4, 16] x) => (float[4, 16] y, float[n, 16, 16] z)
        <int64 two = {{2}}, bool yes = {{1}}> {{ y, z = Loop (two, yes, x)
        <body = b (int64 i, bool k, float[4, 16] s) =>
        (bool l, float[4, 16] y, float[16, 16] w) {{ l = Identity (k) {inner} }}> }}""",
        f"""(float[4, 16] x) => (float[4, 16] y, float[4, 16, 16] z) {{ y, z = Scan (x, x)
        <num_scan_inputs = 1, body = b (float[4, 16] s, float[16] i) =>
        (float[4, 16] y, float[16, 16] w) {{ {inner} }}> }}""",
    )
    for text in texts:
        prove(define(onnx.parser.parse_model(HEAD + text), form), [{"x": X}])
