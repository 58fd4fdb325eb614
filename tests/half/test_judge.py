"""The judge of a conversion: right ones are equal, planted faults are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost.half import judge, to_float16
from gehost.verify import make_feeds

MODELS = Path(__file__).parents[1] / "models"
FLOAT16 = onnx.TensorProto.FLOAT16


def epsilon(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        for entry in node.attribute:
            if entry.name == "epsilon":
                entry.f = 1e-3


def weight(model: onnx.ModelProto) -> None:
    tensor = next(item for item in model.graph.initializer if len(item.dims) == 2)
    array = onnx.numpy_helper.to_array(tensor).copy()
    tensor.CopyFrom(onnx.numpy_helper.from_array(array * np.float16(1.01), tensor.name))


def negated(model: onnx.ModelProto) -> None:
    node = next(item for item in model.graph.node if item.op_type == "Add")
    node.op_type = "Sub"


@pytest.mark.parametrize("name", ["bert.raw18", "gpt2.ts17", "llama.ts17", "if"])
def test_exports_are_equal(name: str) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    feeds = [make_feeds(model)]
    result = judge(model, to_float16(model, feeds=feeds), feeds)
    assert result.equal, result.summary()
    assert not result.unjudged
    assert "float16 is off by" in result.summary()


@pytest.mark.parametrize("fault", [epsilon, weight, negated])
def test_planted_faults_are_found(fault: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(MODELS / "vit.dyn20.onnx")
    feeds = [make_feeds(model)]
    conversion = to_float16(model)
    assert judge(model, conversion, feeds).equal
    broken = onnx.ModelProto()
    broken.CopyFrom(conversion.model)
    fault(broken)
    assert not judge(model, dataclasses.replace(conversion, model=broken), feeds).equal


def test_an_infinity_of_float16_is_found() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N, 4] x) => (float[N, 4] y) <float w = {1000}> { a = Mul (x, w) y = Div (a, w) }"""
    )
    feeds = [{"x": np.full((1, 4), 90.0, np.float32)}]
    assert judge(model, to_float16(model, feeds=feeds), feeds).equal
    result = judge(model, to_float16(model), feeds)
    assert result.summary() == 'differ: output "y" of feed 0 is not finite in float16'


def test_a_constant_of_both_types_is_rounded_for_its_half_readers() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N, 4] x) => (float[N, 4] y) <float w = {0.1}>
        { a = Mul (x, w) b = Tanh (a) y = Mul (b, w) }"""
    )
    model.graph.node[2].name = "last"
    feeds = [{"x": np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)}]
    assert judge(model, to_float16(model, keep_float32=["last"]), feeds).equal


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("kept", ["around", "inside"])
def test_a_constant_of_both_types_is_rounded_in_bodies(keep_io: bool, kept: str) -> None:
    """Of its readers one is in a branch, the other one around it makes an output."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N, 4] x, bool c) => (float[N, 4] y, float[N, 4] z) <float w = {0.1}>
        { y = Mul (x, w) z = If (c) <then_branch = t () => (float[N, 4] u)
          { a = Mul (x, w) u = Tanh (a) }, else_branch = e () => (float[N, 4] v) { v = Neg (x) }> }"""
    )
    model.graph.node[0].name = "around"
    model.graph.node[1].attribute[0].g.node[0].name = "inside"
    x = np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)
    feeds = [{"x": x, "c": np.array(True)}]
    result = judge(model, to_float16(model, keep_float32=[kept], keep_io=keep_io), feeds)
    assert result.equal, result.summary()


def test_a_bounded_mask_keeps_the_names_of_its_node() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N, 4] x, bool[N, 4] keep) => (float[N, 4] y)
        <float zero = {0}, float low = {-3.4028235e38}>
        { mask = Where (keep, zero, low) s = Add (x, mask) y = Softmax (s) }"""
    )
    for node in model.graph.node:
        node.name = node.output[0]
    x = np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)
    feeds = [{"x": x, "keep": np.array([[True, False, True, True], [True, True, False, False]])}]
    result = judge(model, to_float16(model, feeds=feeds), feeds)
    assert result.equal, result.summary()


def test_a_weight_that_a_node_makes_is_rounded() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[N, 4] x) => (float[N, 4] y) <int64[1] size = {4}>
        { w = ConstantOfShape <value = float[1] {0.1}> (size) y = Mul (x, w) }"""
    )
    feeds = [{"x": np.linspace(0, 1, 8, dtype=np.float32).reshape(2, 4)}]
    assert judge(model, to_float16(model), feeds).equal


@pytest.mark.parametrize("place", ["call", "if", "function"])
@pytest.mark.parametrize("domain", ["", "ai.onnx", "com.microsoft", "own"])
def test_roundings_are_those_of_what_runs(domain: str, place: str) -> None:
    """A kernel runs in place of a function of its name; other functions run.

    ONNX Runtime decides so; the distance was that of the function.
    """
    op = {"com.microsoft": "QuickGelu"}.get(domain, "Softmax")
    call = f"{domain + '.' if domain not in ('', 'ai.onnx') else ''}{op} (x)"
    lines = {"call": f"t = {call}", "function": "t = own.call (x)"}
    lines["if"] = f"""t = If (yes) <then_branch = a () => (float[4, 8] p) {{ p = {call} }},
        else_branch = b () => (float[4, 8] q) {{ q = Neg (x) }}>"""
    imports = '"": 17, "com.microsoft": 1, "own": 1'
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: [{imports}]>
        m (float[4, 8] x) => (float[4, 8] y) <bool yes = {{1}}> {{ {lines[place]} y = Add (t, x) }}
        <domain: "{domain}", opset_import: ["": 17]> {op} (a) => (r) {{ r = Tanh (a) }}
        <domain: "own", opset_import: [{imports}]> call (x) => (r) {{ r = {call} }}"""
    )
    feeds = [{"x": np.linspace(-3, 3, 32, dtype=np.float32).reshape(4, 8)}]
    result = judge(model, to_float16(model), feeds)
    assert result.equal, result.summary()
    assert result.off is not None
    assert result.off.distance < 1e-3, result.summary()


def test_other_sizes_and_integers_are_named() -> None:
    """Each element rounds to 0.3, and no more than that is left: the sizes differ."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[40, 1] x) => (float[K] y, int64[40] i, float[40, 1] z)
            <float c = {0.3}, float[1, 1] one = {1}, int64[1] all = {-1}> {
            z = MatMul (x, one) f = Reshape (z, all) m = Greater (f, c)
            y = Compress <axis = 0> (f, m) i = Cast <to = 7> (m) }"""
    )
    model = onnx.shape_inference.infer_shapes(model)
    result = judge(model, to_float16(model), [{"x": np.full((40, 1), 0.30001, np.float32)}])
    assert result.equal
    assert result.note.endswith('; other integers or sizes in "y", "i"')


@pytest.mark.parametrize(
    ("body", "result", "note"),
    [
        ("a = Mul (x, k) b = Mul (a, k) c = Mul (b, o) d = Mul (c, o) y = Cast <to = 11> (d)",
         "double", "not finite in float16"),
        ("a = Add (x, twelve) b = Sigmoid (a) y = Floor (b)", "float",
         "off by 1 (relative, root mean square), more than roundings explain"),
    ],
    ids=["double", "zeros"],
)  # fmt: skip
def test_outputs_of_each_kind_of_float_are_judged(body: str, result: str, note: str) -> None:
    """Doubles that are infinite, and zeros that are ones, are no roundings."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 8] x) => ({result}[4, 8] y) <float k = {{1000}}, float o = {{0.00024414}},
            float twelve = {{12}}> {{ {body} }}"""
    )
    model = onnx.shape_inference.infer_shapes(model)
    verdict = judge(model, to_float16(model), [{"x": np.ones((4, 8), np.float32)}])
    assert not verdict.equal
    assert verdict.error.endswith(note)
