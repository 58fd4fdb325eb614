"""A function of the model that has the name of an operator: its body decides what it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.optimizing.shrink import shrink
from gehost.testing import parse

RUNTIME = pytest.importorskip("onnxruntime")
GELU = """h = Constant<value_float = 0.5>() q = Constant<value_float = 0.70710678>()
    u = Constant<value_float = 1.0>() z = Mul(a, q) e = Erf(z) s = Add(e, u) v = Mul(a, h)
    p = Mul(v, s) """
NORM = """m = ReduceMean<axes = [-1]>(a) d = Sub(a, m) k = Mul(d, d) n = ReduceMean<axes = [-1]>(k)
    w = Constant<value_float = 0.00001>() l = Add(n, w) r = Sqrt(l) f = Div(d, r) p = Mul(f, g) """
RMS = """k = Mul(a, a) n = ReduceMean<axes = [-1]>(k) w = Constant<value_float = 0.00001>()
    l = Add(n, w) r = Sqrt(l) f = Div(a, r) p = Mul(f, g) """
BODIES = {
    "gehost.Gelu": ("(a)", "Gelu(s)", GELU),
    "gehost.LayerNormalization": ("(a, g)", "LayerNormalization(s, b)", NORM),
    "gehost.RMSNormalization": ("(a, g)", "RMSNormalization(s, b)", RMS),
}
ENDS = {
    "same": "o = Identity(p)",
    "twice": "o = Add(p, p)",
    "doubled": "t = Constant<value_float = 2.0>() o = Mul(p, t)",
    "x": "o = Add(a, a)",
    "nested": "o = own.copy(p)",
    "nested twice": "o = own.sum(p)",
}
FUSED = {"BiasGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}


def model(op: str, end: str, place: str) -> onnx.ModelProto:
    """Return a sum and a call of a function behind it."""
    domain, _, name = op.rpartition(".")
    parameters, call, body = BODIES[op]
    call = f"{domain}.{call}"
    added = "b" if name == "Gelu" else "x2"
    lines = f"s = Add(x, {added}) t = {call}"
    if place == "if":
        lines = f"""t = If(yes) <then_branch = h () => (float[2,4,8] t1) {{
            s = Add(x, {added}) t1 = {call} }},
            else_branch = e () => (float[2,4,8] q) {{ q = Neg(x) }}>"""
    imports = '"": 17, "gehost": 1, "own": 1'
    return parse(
        f"""<ir_version: 9, opset_import: [{imports}]>
        m (float[2,4,8] x, float[8] b, float[2,4,8] x2, bool yes) => (float[2,4,8] y) {{
            {lines} y = Tanh(t) }}
        <domain: "own", opset_import: ["": 17]> copy (i) => (j) {{ j = Identity(i) }}
        <domain: "own", opset_import: ["": 17]> sum (i) => (j) {{ j = Add(i, i) }}
        <domain: "{domain}", opset_import: [{imports}]> {name} {parameters} => (o) {{
            {body if end != "x" else ""} {ENDS[end]} }}"""
    )


def plain_run(proto: onnx.ModelProto) -> np.ndarray:
    options = RUNTIME.SessionOptions()
    options.graph_optimization_level = RUNTIME.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = RUNTIME.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {"x": rng.standard_normal((2, 4, 8)).astype("float32")}
    feeds |= {"b": rng.standard_normal(8).astype("float32"), "x2": feeds["x"][::-1]}
    feeds["yes"] = np.array(1, bool)
    names = [entry.name for entry in session.get_inputs()]
    return np.asarray(session.run(None, {name: feeds[name] for name in names})[0])


def operators(graph: onnx.GraphProto) -> set[str]:
    bodies = [a.g for node in graph.node for a in node.attribute if a.g.node]
    return {node.op_type for node in graph.node}.union(*map(operators, bodies))


@pytest.mark.parametrize("place", ["main", "if"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("op", BODIES)
def test_the_body_decides(op: str, end: str, place: str) -> None:
    original = model(op, end, place)
    names = [spec.name for spec in Host(HostOptions(vendors=["gehost:onnxruntime"])).passes]
    made, _ = Host(HostOptions(vendors=["gehost:onnxruntime"], enable=names)).run(original)
    np.testing.assert_allclose(plain_run(made), plain_run(original), atol=1e-5)
    assert bool(FUSED & operators(made.graph)) == (end in ("same", "nested"))


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("op", ["Gelu", "LayerNormalization", "RMSNormalization"])
def test_what_the_own_vendor_writes_is_taken(op: str, dtype: str) -> None:
    """Also after its texts and metadata were removed."""
    number, kind = {"float": (1, "float32"), "float16": (10, "float16")}[dtype]
    numbers = {"tiny": 1e-3, "pair": 2, "root": 2**0.5, "one": 1, "half": 0.5}
    added = "b" if op == "Gelu" else "x2"
    body = f"""w = Cast<to = 1>(s) k = Pow(w, two) n = ReduceMean<axes = [-1]>(k) l = Add(n, eps)
        r = Sqrt(l) f = Div(w, r) v = Cast<to = {number}>(f) p = Mul(v, scale)"""
    if op == "LayerNormalization":
        body = """c = ReduceMean<axes = [-1]>(s) m = Sub(s, c) k = Pow(m, pair)
        n = ReduceMean<axes = [-1]>(k) l = Add(n, tiny) r = Sqrt(l) f = Div(m, r) p = Mul(f, scale)
        q = Add(p, bias)"""
    result = "q" if op == "LayerNormalization" else "p"
    if op == "Gelu":
        body = "z = Div(s, root) e = Erf(z) u = Add(e, one) v = Mul(s, half) p = Mul(v, u)"
    original = parse(
        f"""<ir_version: 9, opset_import: ["": 16]>
        m ({dtype}[2,4,8] x, {dtype}[8] b, {dtype}[2,4,8] x2) => ({dtype}[2,4,8] y)
        {{ s = Add(x, {added}) {body}
        y = Tanh({result}) }}""",
        {
            "eps": np.array(1e-3, "float32"),
            "two": np.array(2, "float32"),
            "scale": np.arange(8).astype(kind),
            "bias": np.arange(8).astype(kind),
            **{name: np.array(value, kind) for name, value in numbers.items()},
        },
    )
    first, _ = Host(HostOptions(vendors=["gehost:onnx"])).run(original)
    assert f"gehost::{op}" in {f"{node.domain}::{node.op_type}" for node in first.graph.node}
    shrink(first)
    names = ["OrtBiasGeluPass", "OrtSkipNormPass", "OrtSkipRmsNormPass"]
    options = HostOptions(vendors=["gehost:onnxruntime"], enable=names, target="cpu")
    second, _ = Host(options).run(first)
    assert FUSED & operators(second.graph)
