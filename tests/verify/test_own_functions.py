"""A function of the model that has the name of a kernel: what runs is what counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import gehost
from gehost.ir.inline import inline_functions
from gehost.testing import parse
from gehost.verify import Baseline, Runner, compare

RUNTIME = pytest.importorskip("onnxruntime")

OPERATORS = ["com.microsoft::QuickGelu", "com.microsoft::Gelu", "com.microsoft::FastGelu"]
OPERATORS += ["com.microsoft::BiasGelu", "ai.onnx::Gelu", "ai.onnx::Relu", "ai.onnx::Identity"]
TWICE = "twice = Add(a, a)"
"""No activation computes it."""
BODY = {"call": "t = CALL", "if": "t = If(yes) <then_branch = x () => (KIND[2,4] p) { p = CALL }, "}
BODY["if"] += "else_branch = e () => (KIND[2,4] q) { q = Neg(x) }>"


def model(op: str, kind: str = "float", place: str = "call", body: str = TWICE) -> onnx.ModelProto:
    """Return a call of a function whose name has a kernel."""
    domain, _, name = op.partition("::")
    domain = domain.replace("ai.onnx", "")
    arguments = "x, b" if name == "BiasGelu" else "x"
    parameters = "a, b" if name == "BiasGelu" else "a"
    call = f"{domain + '.' if domain else ''}{name}({arguments})"
    called = "t = own.call(x, b)" if place == "function" else BODY[place].replace("CALL", call)
    imports = '"": 20, "com.microsoft": 1, "own": 1'
    return parse(
        f"""<ir_version: 9, opset_import: [{imports}]>
        m ({kind}[2,4] x, {kind}[4] b) => ({kind}[2,4] y) <bool yes = {{1}}> {{
            {called.replace("KIND", kind)}
            s = Identity(t)
            y = Tanh(s)
        }}
        <domain: "{domain}", opset_import: ["": 20]> {name} ({parameters}) => (twice) {{ {body} }}
        <domain: "own", opset_import: [{imports}]> call (x, b) => (r) {{ r = {call} }}"""
    )


def plain_run(source: str | bytes, kind: str) -> np.ndarray:
    """Run without optimizations, as any user may."""
    options = RUNTIME.SessionOptions()
    options.graph_optimization_level = RUNTIME.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = RUNTIME.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    dtype = "float16" if kind == "float16" else "float32"
    feeds = {"x": rng.standard_normal((2, 4)).astype(dtype), "b": np.ones(4, dtype)}
    names = [entry.name for entry in session.get_inputs()]
    return np.asarray(session.run(None, {name: feeds[name] for name in names})[0])


@pytest.mark.parametrize("place", ["call", "if", "function"])
@pytest.mark.parametrize("op", OPERATORS)
def test_a_body_that_does_not_run_replaces_no_kernel(op: str, place: str) -> None:
    original = model(op, place=place)
    result = compare(original, inline_functions(original))
    assert not result.equal
    assert f"a kernel of the runtime computes {op}, and not the function" in result.note


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("op", ["com.microsoft::QuickGelu", "ai.onnx::Relu"])
def test_a_model_in_half_is_compared_as_it_runs(op: str, kind: str) -> None:
    original = model(op, kind)
    assert compare(original, original).equal
    assert not compare(original, inline_functions(original)).equal


@pytest.mark.parametrize("op", ["own::Gelu", "com.microsoft::NoSuchKernel"])
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_a_function_without_a_kernel_runs(op: str, kind: str) -> None:
    original = model(op, kind)
    assert compare(original, inline_functions(original)).equal
    assert Baseline.of(Runner(original)).replaced == []


def test_a_body_of_the_kernels_numbers_may_be_inlined() -> None:
    original = model("com.microsoft::QuickGelu", body="""
        k = Constant<value_float = 1.702>() c = CastLike(k, a) m = Mul(a, c) s = Sigmoid(m)
        twice = Mul(a, s)""")  # fmt: skip
    result = compare(original, inline_functions(original))
    assert result.equal
    assert "kernel" not in result.note


def test_only_the_functions_that_do_not_run_are_named() -> None:
    both = model("com.microsoft::QuickGelu")
    both.graph.node[0].op_type, both.graph.node[0].domain = "call", "own"
    del both.graph.node[0].input[1:]
    both.graph.node[0].input.append("b")
    result = compare(both, inline_functions(both))
    assert "com.microsoft::QuickGelu" in result.note.partition(", and")[0]


@pytest.mark.parametrize("target", ["cpu", "any"])
@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("place", ["call", "if", "function"])
@pytest.mark.parametrize("op", OPERATORS)
def test_an_optimized_file_computes_what_the_original_computes(
    op: str, place: str, kind: str, target: str, tmp_path: Path
) -> None:
    original: Any = model(op, kind, place)
    try:
        expected = plain_run(original.SerializeToString(), kind)
    except Exception as error:  # noqa: BLE001 - of many types
        pytest.skip(f"no kernel in half: {error}")
    path = tmp_path / "m.onnx"
    onnx.save(original, path)
    result = gehost.optimize(path, target, measured=False)
    actual = plain_run(str(result.model), kind)
    np.testing.assert_allclose(actual, expected, atol=1e-2 if kind == "float16" else 1e-5)
    assert result.report.numbers.startswith("equal")
    if target == "any":
        assert "a kernel of the runtime computes" in result.report.dropped["the clean-up"]


@pytest.mark.parametrize("target", ["cpu", "any"])
@pytest.mark.parametrize("op", ["com.microsoft.QuickGelu", "Softmax"])
def test_a_file_in_half_computes_what_the_original_computes(
    op: str, target: str, tmp_path: Path
) -> None:
    domain, _, name = op.rpartition(".")
    original: Any = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        m (float[2,64] x) => (float[2,64] y) {{ a = MatMul(x, w) b = {op}(a) y = Add(b, x) }}
        <domain: "{domain}", opset_import: ["": 17]> {name} (a) => (t) {{ t = Tanh(a) }}"""
    )
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    original.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(original, path)
    result = gehost.optimize(path, target, half=True, measured=False)
    feed = {"x": rng.standard_normal((2, 64)).astype(np.float32)}
    expected, actual = (
        RUNTIME.InferenceSession(str(item)).run(None, feed)[0] for item in (path, result.model)
    )
    np.testing.assert_allclose(actual, expected, atol=5e-2)
    assert (target == "any") == any("the model's functions" in n for n in result.report.notes)
