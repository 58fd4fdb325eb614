"""Activations in each spelling: what is described, replaced, and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsTensor,
    Host,
    HostOptions,
    PassError,
    es,
    infer_model,
)
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic import Activation, ActivationCall, ActivationFusionPass, Views
from gehost_semantic.activations import activations
from plugins.semantic.tests.test_passes import run
from tools.semantic.check import random_feed

REPOSITORY = Path(__file__).parents[3]
AFTER = CustomPassStage.kAfterInferShape
CONSTANTS = """float half = {0.5}, float one = {1}, float two = {2}, float three = {3}, float[1] one1 = {1},
    float root = {1.4142135}, float inverse = {0.70710677}, float cubic = {0.044715},
    float factor = {0.7978846}, float twice = {1.5957691}, float quick = {1.702}, float off = {0.71},
    int64[1] i0 = {0}, int64[1] i6 = {6}, int64[1] i12 = {12}, int64[1] last = {-1}, int64[3] flat = {0, 0, 6}"""
X = "float[b, s, 6] x"
ERF = "e = Erf (z) a = Add (e, one) "
CUBE = "c3 = Pow (x, three) c = Mul (c3, cubic) i = Add (x, c) z = Mul (i, factor) "
TANH = "t = Tanh (z) a = Add (one, t) h = Mul (x, half) y = Mul (h, a)"

FORMS = {
    "quotient": ("gelu", "z = Div (x, root) " + ERF + "m = Mul (x, a) y = Mul (m, half)", X),
    "product": ("gelu", "z = Mul (inverse, x) " + ERF + "h = Mul (half, x) y = Mul (a, h)", X),
    "half inside": ("gelu", "z = Div (x, root) " + ERF + "h = Mul (a, half) y = Mul (x, h)", X),
    "spread out": (
        "gelu", "z = Div (x, root) e = Erf (z) h = Mul (x, half) m = Mul (h, e) y = Add (h, m)", X,
    ),
    "by a quotient": ("gelu", "z = Div (x, root) " + ERF + "m = Mul (x, a) y = Div (m, two)", X),
    "half types": (
        "gelu", "r16 = Cast <to = 10> (root) o16 = Cast <to = 10> (one) h16 = Cast <to = 10> (half) "
        "z = Div (x, r16) e = Erf (z) a = Add (e, o16) m = Mul (x, a) y = Mul (m, h16)",
        "float16[b, s, 6] x",
    ),
    "an island": (
        "gelu",
        "x1 = Cast <to = 1> (x) z = Div (x1, root) " + ERF + "m = Mul (x1, a) o = Mul (m, half) "
        "y = Cast <to = 10> (o)", "float16[b, s, 6] x",
    ),
    "behind a reshape": (
        "gelu", "x = Reshape (x0, flat) z = Div (x, root) " + ERF + "m = Mul (x, a) y = Mul (m, half)",
        "float[b, s, 6] x0",
    ),
    "tanh": ("gelu tanh", CUBE + TANH, X),
    "tanh of products": (
        "gelu tanh", "p = Mul (x, x) c3 = Mul (p, x) c = Mul (cubic, c3) i = Add (c, x) "
        "z = Mul (factor, i) " + TANH, X,
    ),
    "tanh of a factored sum": (
        "gelu tanh", "p = Mul (x, x) q = Mul (p, cubic) r = Add (q, one) i = Mul (x, r) "
        "z = Mul (i, factor) " + TANH, X,
    ),
    "tanh as sigmoid": (
        "gelu tanh", CUBE.replace("factor", "twice") + "g = Sigmoid (z) y = Mul (x, g)", X,
    ),
    "silu": ("silu", "g = Sigmoid (x) y = Mul (x, g)", X),
    "silu by exp": ("silu", "n = Neg (x) e = Exp (n) a = Add (e, one) y = Div (x, a)", X),
    "silu by a reciprocal": (
        "silu", "n = Neg (x) e = Exp (n) a = Add (one, e) g = Reciprocal (a) y = Mul (g, x)", X,
    ),
    "silu by tanh": (
        "silu", "z = Mul (x, half) t = Tanh (z) a = Add (t, one) h = Mul (a, half) y = Mul (x, h)", X,
    ),
    "quick gelu": ("swish", "z = Mul (x, quick) g = Sigmoid (z) y = Mul (x, g)", X),
}  # fmt: skip
KINDS = ("gelu", "gelu tanh", "silu", "swish")


class Plain(ActivationFusionPass):
    def Replacement(self, activation: ActivationCall) -> EsTensor:
        return es.op("npu::Act")(activation.x, alpha=activation.alpha)


class Rich(ActivationFusionPass):
    takes = ("bias", "gate", "packed")

    def Replacement(self, activation: ActivationCall) -> EsTensor:
        return es.op("npu::Act")(
            activation.x,
            activation.bias,
            activation.gate,
            first=int(activation.gate_is_first),
            packed=int(activation.is_packed),
        )


PASSES = {
    base: {
        kind: REG_FUSION_PASS(stage=AFTER)(
            type(f"{base.__name__}{kind.title().replace(' ', '')}", (base,), {"kind": kind})
        )
        for kind in KINDS
    }
    for base in (Plain, Rich)
}


def model(body: str, inputs: str, opset: int = 18) -> onnx.ModelProto:
    kind = "float16" if "float16" in inputs else "float"
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    return parse(f"{head}({inputs}) => ({kind}[?] y) <{CONSTANTS}> {{ {body} }}")


def described(proto: onnx.ModelProto) -> list[Activation]:
    graph = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(graph)
    results = [item for _, item in activations(Views.shared(graph.graph))]
    return [item for item in results if isinstance(item, Activation)]


def assert_equal(before: onnx.ModelProto, after: onnx.ModelProto, tolerance: float = 1e-5) -> None:
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    sizes = ({"b": 3, "s": 5}, {"b": 1, "s": 1}, {"b": 0, "s": 4})
    for seed, size in enumerate(sizes):
        feed = random_feed(graph, size, np.random.default_rng(seed))
        for one, other in zip(run(before, feed), run(after, feed), strict=True):
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)


def calls(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.domain == "npu"]


@pytest.mark.parametrize("name", FORMS)
def test_each_spelling_is_described(name: str) -> None:
    kind, body, inputs = FORMS[name]
    (result,) = described(model(body, inputs))
    assert (result.kind, result.x.name, result.result.name) == (kind, "x", "y")
    assert result.alpha == pytest.approx(1.702 if kind == "swish" else 1)


@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_takes_its_place_with_equal_numbers(name: str) -> None:
    kind, body, inputs = FORMS[name]
    before = model(body, inputs)
    after, record = run_pass(before, PASSES[Plain][kind], cleanup=True)
    assert (record.replaced, dict(record.rejected), len(calls(after))) == (1, {}, 1)
    assert len(after.graph.node) <= 2
    assert_equal(before, after, 2e-3 if "half" in name or "island" in name else 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_is_not_asked(kind: str) -> None:
    own, body, inputs = FORMS["silu"]
    _, record = run_pass(model(body, inputs), PASSES[Plain][kind])
    assert (record.replaced, dict(record.rejected)) == (int(kind == own), {})


SILU = "g = Sigmoid (x) a = Mul (x, g) "
AROUND = {
    # body, inputs, the kernel's inputs and gate_is_first
    "bias": ("x = Add (m, v) g = Sigmoid (x) y = Mul (x, g)", "float[b, s, 6] m, float[6] v", ["m", "v"], 0),
    "gate": (SILU + "y = Mul (u, a)", f"{X}, float[b, s, 6] u", ["x", "", "u"], 0),
    "halves": (
        "x, u = Split <axis = 2, num_outputs = 2> (p) " + SILU + "y = Mul (a, u)", "float[b, s, 12] p", ["p"], 0,
    ),
    "halves exchanged": (
        "u = Slice (p, i0, i6, last) x = Slice (p, i6, i12, last) " + SILU + "y = Mul (a, u)",
        "float[b, s, 12] p", ["p"], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AROUND)
def test_bias_gate_and_halves_go_to_a_kernel_that_takes_them(name: str) -> None:
    body, inputs, operands, first = AROUND[name]
    before = model(body, inputs)
    after, record = run_pass(before, PASSES[Rich]["silu"], cleanup=True)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    (call,) = calls(after)
    assert [*call.input] == [*operands, *[""] * (len(call.input) - len(operands))]
    assert call.attribute[0].i == first
    assert len(after.graph.node) == 1
    assert_equal(before, after)
    plain, record = run_pass(before, PASSES[Plain]["silu"], cleanup=True)
    assert record.replaced == 1
    assert_equal(before, plain)


def test_a_gate_of_another_shape_is_none() -> None:
    (result,) = described(model(SILU + "y = Mul (a, u)", f"{X}, float[b, 1, 6] u"))
    assert (result.gate, result.result.name) == (None, "a")


def test_a_part_of_a_wider_tensor_is_not_packed() -> None:
    body = "x = Slice (p, i0, i6, last) u = Slice (p, i6, i12, last) " + SILU + "y = Mul (a, u)"
    (result,) = described(model(body, "float[b, s, 15] p"))
    assert result.gate is not None
    assert result.gate.packed is None


REFUSALS = {
    "another root": ("z = Mul (x, off) " + ERF + "m = Mul (x, a) y = Mul (m, half)", "gelu", "constant"),
    "another cubic": (CUBE.replace("cubic", "half") + TANH, "gelu tanh", "constant"),
    "not halved": ("z = Div (x, root) " + ERF + "y = Mul (x, a)", "gelu", "constant"),
    "less one": ("z = Div (x, root) e = Erf (z) a = Sub (e, one) m = Mul (x, a) y = Mul (m, half)", "gelu", "constant"),
    "of another tensor": (
        "z = Div (o, root) " + ERF + "m = Mul (x, a) y = Mul (m, half)", "gelu", "",
    ),
    "negative": ("n = Neg (x) g = Sigmoid (n) y = Mul (x, g)", "silu", "product"),
    "a gate of another kind": ("g = Sigmoid (x) y = Mul (o, g)", "gelu", ""),
    "exp of x": ("e = Exp (x) a = Add (e, two) y = Div (x, a)", "silu", ""),
    "read inside": ("z = Div (x, root) " + ERF + "m = Mul (x, a) k = Mul (m, half) y = Add (k, e)", "gelu", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_near_miss_stays(name: str) -> None:
    body, kind, key = REFUSALS[name]
    _, record = run_pass(model(body, f"{X}, float[b, s, 6] o"), PASSES[Plain][kind])
    assert (record.replaced, dict(record.rejected)) == (0, {key: 1} if key else {})


SCALARS = ("half", "one", "two", "root", "inverse", "cubic", "factor", "twice", "quick")
DEGENERATE = {
    **{name: body for name, (_, body, inputs) in FORMS.items() if inputs == X},
    "a scaled x": "s = Mul (x, two) z = Div (s, root) " + ERF + "m = Mul (s, a) y = Mul (m, half)",
    "a divided x": "s = Div (x, two) z = Mul (s, inverse) "
    + ERF
    + "m = Mul (s, a) y = Mul (m, half)",
}


@pytest.mark.parametrize("number", [0.0, 1e-45, float("inf"), float("nan")])
@pytest.mark.parametrize("form", DEGENERATE)
def test_a_constant_that_is_nothing_or_no_number_is_no_fault(form: str, number: float) -> None:
    expected = len(described(model(DEGENERATE[form], X)))
    assert expected == 1
    for name in SCALARS:
        proto = model(DEGENERATE[form], X)
        for tensor in proto.graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(numpy_helper.from_array(np.float32(number), name))
        actual = described(proto)
        assert len(actual) <= expected, name


@pytest.mark.parametrize(("opset", "body"), [
    (20, "y = Gelu (x)"), (20, 'y = Gelu <approximate = "tanh"> (x)'),
])  # fmt: skip
def test_operators_of_onnx(opset: int, body: str) -> None:
    before = model(body, X, opset)
    kind = "gelu tanh" if "tanh" in body else "gelu"
    after, record = run_pass(before, PASSES[Plain][kind])
    assert record.replaced == 1
    assert_equal(before, after)


EXPORTS = {
    "tests/models/bert.ts17.onnx": ("gelu", 2),
    "tests/models/gpt2.ts17.onnx": ("gelu tanh", 2),
    "tests/models/llama.ts17.onnx": ("silu", 2),
    "plugins/semantic/tests/models/gemma3_past.dyn.eager.onnx": ("gelu tanh", 2),
}


@pytest.mark.parametrize("path", EXPORTS)
def test_it_fires_on_exports_with_equal_numbers(path: str) -> None:
    kind, count = EXPORTS[path]
    before = onnx.load(REPOSITORY / path)
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    feed = random_feed(graph, {"batch": 2, "seq": 9, "past": 4}, np.random.default_rng(0))
    for base in (Plain, Rich):
        after, record = run_pass(before, PASSES[base][kind], cleanup=True)
        assert (record.replaced, dict(record.rejected)) == (count, {})
        for one, other in zip(run(before, feed), run(after, feed), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_a_kind_that_does_not_exist_is_named() -> None:
    wrong = REG_FUSION_PASS(stage=AFTER)(type("Wrong", (Plain,), {"kind": "relu"}))
    with pytest.raises(PassError, match="there is no 'relu'; there are gelu, gelu tanh"):
        run_pass(model(*FORMS["silu"][1:]), wrong)


GELU = """
from gehost import REG_FUSION_PASS, CustomPassStage, es
from gehost_semantic import ActivationFusionPass, LinearFusionPass

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class NpuLinear(LinearFusionPass):
    takes = {"bias", "gelu"}

    def Replacement(self, linear):
        return es.op("npu::Linear")(
            linear.x, linear.weight, linear.bias, activation=linear.activation
        )

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class NpuGelu(ActivationFusionPass):
    kind = "gelu"

    def Replacement(self, activation):
        return es.op("npu::Gelu")(activation.x)
"""


@pytest.mark.parametrize("body", ["z = Neg (x)", "m = MatMul (x, w) z = Add (m, b)"])
def test_a_body_in_half_has_the_numbers_of_the_kernel(tmp_path: Path, body: str) -> None:
    """Half rounds the root of 2; ONNX's Gelu, and a kernel, compute with the number itself."""
    folder = tmp_path / "npu" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "gelu.py").write_text(GELU)
    weights = [str((n % 7 - 3) / 8) for n in range(64)]
    model = parse(
        f"""<ir_version: 9, opset_import: ["": 20]> g (float[4, 8] x) => (float[4, 8] y)
        <float[8, 8] w = {{{",".join(weights)}}}, float[8] b = {{{",".join(weights[:8])}}}>
        {{ {body} y = Gelu (z) }}"""
    )
    half, _ = Host(HostOptions(half=True, plugins=False)).run(model)
    host = Host(HostOptions(vendors=[tmp_path], plugins=False, verify=True))
    result, _ = host.run(half)
    assert {node.op_type for node in result.graph.node} <= {"Neg", "Gelu", "Linear"}
    assert len(result.functions) == 1
