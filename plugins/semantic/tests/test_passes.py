"""A vendor's pass on attention: what it takes, what is written around the kernel, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime as ort
import pytest

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsTensor,
    Host,
    HostOptions,
    PassError,
    Refusal,
    es,
)
from gehost.diagnose.explain.run import explain
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic import AttentionCall, AttentionFusionPass, Views
from tests.conftest import Vendors, no_default_vendors, vendors  # noqa: F401 - fixtures
from tools.semantic.check import random_feed

REPOSITORY = Path(__file__).parents[3]
AFTER = CustomPassStage.kAfterInferShape
QKV = "float[b, 4, s, 8] q, float[b, 4, t, 8] k, float[b, 4, t, 6] v"
PLAIN = """
kt = Transpose <perm = [0, 1, 3, 2]> (k)
scores = MatMul (q, kt)
scale = Constant <value = float {0.25}> ()
scaled = Mul (scores, scale)
"""
REST = "\np = Softmax <axis = -1> (%s)\ny = MatMul (p, v)"
FILE = '''
from gehost import REG_FUSION_PASS, CustomPassStage, es
from gehost_semantic import AttentionFusionPass

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class NpuFlashAttention(AttentionFusionPass):
    """softmax(q·kᵀ·scale + mask)·v ==> npu::FlashAttention"""

    takes = {"mask"}  # beyond q, k, v and scale: one additive mask

    def MeetRequirements(self, attention):
        return attention.head_size <= 128 or attention.reject("head size: at most 128")

    def Replacement(self, attention):
        return es.op("npu::FlashAttention")(
            attention.q, attention.k, attention.v, attention.mask, scale=attention.scale
        )
'''


@REG_FUSION_PASS(stage=AFTER)
class Kernel(AttentionFusionPass):
    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        return attention.head_size <= 128 or attention.reject("head size: at most 128")

    def Replacement(self, attention: AttentionCall) -> EsTensor | Refusal:
        return es.op("npu::FlashAttention")(
            attention.q, attention.k, attention.v, attention.mask, scale=attention.scale
        )


@REG_FUSION_PASS(stage=AFTER)
class Rich(Kernel):
    takes = ("causal", "empty rows", "groups", "mask", "softcap")

    def Replacement(self, attention: AttentionCall) -> EsTensor | Refusal:
        return es.op("npu::FlashAttention")(
            attention.q,
            attention.k,
            attention.v,
            attention.mask,
            scale=attention.scale,
            softcap=attention.softcap,
            causal=int(attention.is_causal),
        )


@REG_FUSION_PASS(stage=AFTER)
class Poor(Kernel):
    takes = ()


def model(body: str, inputs: str = QKV, opset: int = 18) -> onnx.ModelProto:
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    return parse(f"{head}({inputs}) => (float[?] y) {{ {body} }}")


def run(proto: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feed))


def assert_equal(before: onnx.ModelProto, after: onnx.ModelProto, sizes: dict[str, int]) -> None:
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    for seed in range(2):
        feed = random_feed(graph, sizes, np.random.default_rng(seed))
        for one, other in zip(run(before, feed), run(after, feed), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def calls(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.domain == "npu"]


EXPORTS = {
    "tests/models/bert.ts17.onnx": {"batch": 3, "seq": 9},
    "tests/models/gpt2.dyn20.onnx": {"batch": 2, "seq": 9},
    "tests/models/llama.ts17.onnx": {"batch": 3, "seq": 9},
    "tests/models/vit.ts13.onnx": {"batch": 3},
    "plugins/semantic/tests/models/gemma3_past.dyn.eager.onnx": {"batch": 2, "seq": 5, "past": 7},
    "plugins/semantic/tests/models/torchenc.ts.sdpa.onnx": {"batch": 3, "seq": 7},
    "plugins/semantic/tests/models/vae_attn.ts.eager.onnx": {"batch": 1, "height": 4, "width": 6},
    "plugins/semantic/tests/models/yolo_psa.ts.onnx": {"batch": 2, "height": 3, "width": 5},
}


@pytest.mark.parametrize("path", EXPORTS)
@pytest.mark.parametrize("kernel", [Kernel, Rich])
def test_it_fires_on_exports_with_equal_numbers(path: str, kernel: type[Kernel]) -> None:
    before = onnx.load(REPOSITORY / path)
    after, record = run_pass(before, kernel, cleanup=True)
    layers = sum(node.op_type == "Softmax" for node in before.graph.node)
    assert (record.replaced, len(calls(after)), dict(record.rejected)) == (layers, layers, {})
    assert not [node for node in after.graph.node if node.op_type == "Softmax"]
    assert_equal(before, after, EXPORTS[path])


@REG_FUSION_PASS(stage=AFTER)
class Forgetful(AttentionFusionPass):
    def Replacement(self, attention: AttentionCall) -> EsTensor:
        return es.op("npu::FlashAttention")(
            attention.q, attention.k, attention.v, scale=attention.scale
        )


def test_a_mask_that_the_replacement_does_not_use_is_refused() -> None:
    body = PLAIN + "masked = Add (scaled, m)" + REST % "masked"
    before = model(body, f"{QKV}, float[s, t] m")
    after, record = run_pass(before, Forgetful)
    assert (after, dict(record.rejected)) == (before, {"mask": 1})


@REG_FUSION_PASS(stage=AFTER)
class Cached(AttentionFusionPass):
    takes = ("mask", "past")

    def Replacement(self, attention: AttentionCall) -> EsTensor | list[EsTensor]:
        kernel = es.op("npu::FlashAttention")
        if not attention.has_past:
            return kernel(
                attention.q, attention.k, attention.v, attention.mask, scale=attention.scale
            )
        result = kernel(
            attention.q,
            attention.k,
            attention.v,
            attention.past_k,
            attention.past_v,
            attention.mask,
            scale=attention.scale,
            num_outputs=3,
        )
        return [result[0], result[1], result[2]]


@pytest.mark.parametrize("axis", [2, 3])
def test_a_past_is_the_kernels_where_it_comes_before_the_new_ones(axis: int) -> None:
    joins = f"k = Concat <axis = {axis}> (pk, nk) v = Concat <axis = 2> (pv, nv) masked = Add (scaled, m)"
    body = joins.replace("masked", PLAIN + "masked") + REST % "masked"
    inputs = "float[b, 4, s, 8] q, float[b, 4, p, 8] pk, float[b, 4, s, 8] nk"
    if axis == 3:
        inputs = "float[b, 4, s, 8] q, float[b, 4, t, 2] pk, float[b, 4, t, 6] nk"
    before = model(body, f"{inputs}, float[b, 4, p, 6] pv, float[b, 4, s, 6] nv, float[s, t] m")
    after, record = run_pass(before, Cached, cleanup=True)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    (call,) = calls(after)
    assert len(call.output) == (3 if axis == 2 else 1)
    assert_equal(before, after, {"b": 2, "s": 3, "p": 4, "t": 7})


def test_a_second_run_changes_nothing() -> None:
    after, _ = run_pass(model(PLAIN + REST % "scaled"), Kernel)
    again, record = run_pass(after, Kernel)
    assert (record.replaced, again) == (0, after)


def test_the_body_is_the_formula_of_what_the_call_holds() -> None:
    after, _ = run_pass(model(PLAIN + REST % "scaled"), Kernel)
    (call,), (body,) = calls(after), after.functions
    assert (call.op_type, list(call.input)) == ("FlashAttention", ["q", "k", "v", ""])
    assert [node.op_type for node in body.node if node.op_type != "Constant"] == [
        "Transpose", "MatMul", "Mul", "Softmax", "MatMul", "Identity",
    ]  # fmt: skip


def test_addends_and_masks_become_one_addend() -> None:
    body = (
        PLAIN
        + """
biased = Add (scaled, bias)
low = Constant <value = float {-1e9}> ()
masked = Where (mask, biased, low)
"""
    )
    inputs = f"{QKV}, float[4, s, t] bias, bool[b, 1, 1, t] mask"
    before = model(body + REST % "masked", inputs)
    after, record = run_pass(before, Kernel)
    assert record.replaced == 1
    assert len(calls(after)[0].input) == 4
    assert_equal(before, after, {"b": 3, "s": 4, "t": 6})


def test_a_row_that_is_masked_whole_is_the_mean_of_the_values() -> None:
    body = PLAIN + "low = Constant <value = float {-1e9}> ()\nm = Where (mask, scaled, low)"
    before = model(body + REST % "m", f"{QKV}, bool[b, 1, 1, t] mask")
    after, _ = run_pass(before, Kernel)
    feed: dict[str, Any] = {
        name: np.random.default_rng(n).standard_normal((2, 4, 5, size)).astype(np.float32) * 40
        for n, (name, size) in enumerate((("q", 8), ("k", 8), ("v", 6)))
    }
    feed["mask"] = np.zeros((2, 1, 1, 5), bool)
    for one, other in zip(run(before, feed), run(after, feed), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


def test_empty_rows_give_0_around_a_kernel_that_gives_nan() -> None:
    body = (
        PLAIN
        + """
big = Constant <value = float {-3e38}> ()
ten = Constant <value = float {10.0}> ()
low = Mul (big, ten)
masked = Where (mask, scaled, low)
p0 = Softmax <axis = -1> (masked)
bad = IsNaN (p0)
zero = Constant <value = float {0.0}> ()
p = Where (bad, zero, p0)
y = MatMul (p, v)
"""
    )
    before = model(body, f"{QKV}, bool[b, 1, s, t] mask")
    after, record = run_pass(before, Kernel)
    assert record.replaced == 1
    feed: dict[str, Any] = {
        name: np.random.default_rng(n).standard_normal((2, 4, 5, size)).astype(np.float32)
        for n, (name, size) in enumerate((("q", 8), ("k", 8), ("v", 6)))
    }
    feed["mask"] = np.ones((2, 1, 5, 5), bool)
    feed["mask"][0, 0, 3] = False
    (one,), (other,) = run(before, feed), run(after, feed)
    assert not one[0, :, 3].any()
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_heads_are_repeated_for_a_kernel_without_groups() -> None:
    body = PLAIN.replace("(k)", "(wk)").replace(
        "\nkt",
        """
g = Constant <value_ints = [2]> ()
e = Constant <value_ints = [1, 1, 2, 1, 1]> ()
r = Constant <value_ints = [0, 4, -1, 8]> ()
rv = Constant <value_ints = [0, 4, -1, 6]> ()
uk = Unsqueeze (k, g)
ek = Expand (uk, e)
wk = Reshape (ek, r)
uv = Unsqueeze (v, g)
ev = Expand (uv, e)
wv = Reshape (ev, rv)
kt""",
    )
    before = model(body + (REST % "scaled").replace("v)", "wv)"), QKV.replace("4, t", "2, t"))
    shapes: dict[type[Kernel], list[str]] = {}
    for kernel in (Kernel, Rich):
        after, record = run_pass(before, kernel, cleanup=True)
        assert record.replaced == 1
        assert_equal(before, after, {"b": 3, "s": 4, "t": 6})
        shapes[kernel] = list(calls(after)[0].input)
    assert shapes[Rich][1:3] == ["k", "v"]
    assert shapes[Kernel][1:3] != ["k", "v"]


SOFTCAP = (
    PLAIN
    + """
cap = Constant <value = float {2.0}> ()
tanh = Tanh (scaled)
capped = Mul (tanh, cap)
"""
)
REFUSALS = {
    "softcap": (SOFTCAP + REST % "capped", QKV, Kernel, "softcap"),
    "mask": (PLAIN + "m = Add (scaled, mask)" + REST % "m", f"{QKV}, float[s, t] mask", Poor, "mask"),
    "head size": (PLAIN + REST % "scaled", QKV.replace("8]", "256]"), Kernel, "head size"),
    "one head of queries": (PLAIN + REST % "scaled", QKV.replace("4, s", "1, s"), Kernel, "queries"),
    "one batch of queries": (PLAIN + REST % "scaled", QKV.replace("b, 4, s", "1, 4, s"), Kernel, "queries"),
    "one batch of keys": (PLAIN + REST % "scaled", QKV.replace("b, 4, t, 8", "1, 4, t, 8"), Kernel, "keys"),
    "no attention": (PLAIN + "p = Softmax (scaled)\ny = Neg (p)", QKV, Kernel, "probabilities"),
    "fill": (
        PLAIN + "low = Constant <value = float {0.0}> ()\nm = Where (mask, scaled, low)" + REST % "m",
        f"{QKV}, bool[s, t] mask", Kernel, "mask",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_feature_that_the_kernel_lacks_is_refused_by_its_name(name: str) -> None:
    body, inputs, kernel, key = REFUSALS[name]
    _, record = run_pass(model(body, inputs), kernel)
    assert (record.replaced, dict(record.rejected)) == (0, {key: 1})


def test_a_kernel_with_softcap_gets_it() -> None:
    before = model(SOFTCAP + REST % "capped")
    after, record = run_pass(before, Rich)
    assert record.replaced == 1
    assert_equal(before, after, {"b": 3, "s": 4, "t": 6})


def test_probabilities_that_are_read_elsewhere_stay() -> None:
    body = PLAIN + REST % "scaled"
    proto = model(body)
    proto.graph.output.append(onnx.ValueInfoProto(name="p"))
    proto.graph.output[-1].type.tensor_type.elem_type = 1
    _, record = run_pass(proto, Kernel)
    assert dict(record.rejected) == {"probabilities": 1}


def test_an_unknown_feature_is_named() -> None:
    wrong = REG_FUSION_PASS(stage=AFTER)(type("Wrong", (Kernel,), {"takes": {"masks"}}))
    with pytest.raises(PassError, match="there is no feature 'masks'"):
        run_pass(model(PLAIN + REST % "scaled"), wrong)


def test_a_replacement_that_is_no_tensor_is_named() -> None:
    wrong = REG_FUSION_PASS(stage=AFTER)(
        type("Wrong", (Kernel,), {"Replacement": lambda self, attention: None})
    )
    with pytest.raises(PassError, match="must return the kernel's result"):
        run_pass(model(PLAIN + REST % "scaled"), wrong)


@pytest.mark.parametrize("hook", ["MeetRequirements", "Replacement"])
def test_an_error_names_the_author_s_hook_and_line(hook: str) -> None:
    def fails(self: Kernel, attention: AttentionCall) -> EsTensor:
        del self
        return getattr(attention, "no_such_name")  # noqa: B009 - the line that is named

    wrong = REG_FUSION_PASS(stage=AFTER)(type("Wrong", (Kernel,), {hook: fails}))
    with pytest.raises(PassError, match=f"{hook} at node .*no_such_name") as caught:
        run_pass(model(PLAIN + REST % "scaled"), wrong)
    line = fails.__code__.co_firstlineno + 2
    assert f"test_passes.py:{line}" in str(caught.value)


def test_passes_share_the_views_of_a_graph_until_it_changes() -> None:
    graph = Model(model(PLAIN + REST % "scaled")).graph
    views = Views.shared(graph)
    assert Views.shared(graph) is views
    graph.add_node("Neg", [graph.inputs[0]], ["n"])
    assert Views.shared(graph) is not views


def test_explain_names_the_step_of_each_softmax_that_stays(
    vendors: Vendors,  # noqa: F811
    tmp_path: Path,
) -> None:
    vendors.write("acme/flash.py", FILE)
    proto = model(PLAIN + "p = Softmax (scaled)\ny = Neg (p)")
    onnx.save(proto, tmp_path / "m.onnx")
    options = HostOptions(vendors=[vendors.root])
    result = explain(tmp_path / "m.onnx", "NpuFlashAttention", options)
    assert "probabilities: no product reads them" in str(result.findings)


@pytest.mark.parametrize("opset", [11, 13, 17, 21, 23])
def test_opsets(opset: int) -> None:
    before = model(PLAIN + REST % "scaled", opset=opset)
    after, record = run_pass(before, Kernel)
    assert record.replaced == 1
    assert_equal(before, after, {"b": 3, "s": 4, "t": 6})


def test_a_body_of_an_if_is_searched() -> None:
    inner = PLAIN + "p = Softmax <axis = -1> (scaled)\nz = MatMul (p, v)"
    body = f"""y = If (c) <
        then_branch = yes () => (float[b, 4, s, 6] z) {{ {inner} }},
        else_branch = no () => (float[b, 4, s, 6] w) {{ w = Identity (o) }}>"""
    before = model(body, f"{QKV}, float[b, 4, s, 6] o, bool c")
    after, record = run_pass(before, Kernel)
    assert record.replaced == 1
    assert_equal(before, after, {"b": 3, "s": 4, "t": 6})


BODIES = {
    "loop": """n = Constant <value = int64 {2}> ()
        go = Constant <value = bool {1}> ()
        y = Loop (n, go, o) <body = each (int64 i, bool c, float[b, 4, s, 6] last)
            => (bool again, float[b, 4, s, 6] z) { again = Identity (c) %s }>""",
    "scan": """y = Scan <num_scan_inputs = 1, body = each (float[4, s, 8] q) => (float[4, s, 6] z) {
        %s }> (w)""",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_a_loop_is_searched(name: str) -> None:
    inner = PLAIN + "p = Softmax <axis = -1> (scaled)\nz = MatMul (p, v)"
    inputs = f"{QKV}, float[b, 4, s, 6] o"
    if name == "scan":
        inner = inner.replace("[0, 1, 3, 2]", "[0, 2, 1]")
        inputs = "float[n, 4, s, 8] w, float[4, t, 8] k, float[4, t, 6] v"
    before = model(BODIES[name] % inner, inputs)
    after, record = run_pass(before, Kernel)
    assert record.replaced == 1
    assert_equal(before, after, {"b": 3, "s": 4, "t": 6, "n": 2})


def test_a_function_is_searched_where_it_is_inlined(vendors: Vendors) -> None:  # noqa: F811
    vendors.write("npu/flash.py", FILE)
    text = f"""<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
        g ({QKV}) => (float[?] y) {{ y = my.attend (q, k, v) }}
        <domain: "my", opset_import: ["" : 18]>
        attend (q, k, v) => (z) {{ {PLAIN} p = Softmax <axis = -1> (scaled) z = MatMul (p, v) }}"""
    before = parse(text)
    options = HostOptions(vendors=[vendors.root], inline_functions=True)
    after, _ = Host(options).run(onnx.ModelProto.FromString(before.SerializeToString()))
    assert len(calls(after)) == 1
    assert_equal(before, after, {"b": 3, "s": 4, "t": 6})


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_scale_that_half_cannot_hold_stays_a_float_in_the_body(
    half: str,
    vendors: Vendors,  # noqa: F811
) -> None:
    """As dynamo writes it: a constant of half on q and on k, whose product is none."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]> g ({QKV.replace("float", half)})
        => ({half}[b, 4, s, 6] y) {{ a = Mul (q, r) b = Mul (k, r)
            t = Transpose <perm = [0, 1, 3, 2]> (b) z = MatMul (a, t)
            p = Softmax <axis = -1> (z) y = MatMul (p, v) }}"""
    )
    dtype = DataType.FLOAT16 if half == "float16" else DataType.BFLOAT16
    root = np.asarray(0.59460355).astype(dtype.numpy)
    model.graph.initializer.append(onnx.numpy_helper.from_array(root, "r"))
    vendors.write("acme/flash.py", FILE)
    host = Host(HostOptions(vendors=[vendors.root], plugins=False, verify=half == "float16"))
    result, report = host.run(model)
    assert [record.replaced for record in report.passes] == [1]
    (body,) = result.functions
    scales = [node for node in body.node if node.op_type == "Mul"]
    assert scales
    casts = [node for node in body.node if node.op_type == "Cast"]
    assert casts[0].attribute[0].i == onnx.TensorProto.FLOAT


def test_layouts_of_no_tensor_are_refused(vendors: Vendors) -> None:  # noqa: F811
    code = FILE.replace(
        "    def Replacement", '    layouts = {"out": "b s (h v)"}\n\n    def Replacement'
    )
    vendors.write("acme/flash.py", code)
    with pytest.raises(
        PassError, match="layouts: there is no tensor 'out'; there are q, k, v, result"
    ):
        Host(HostOptions(vendors=[vendors.root], plugins=False)).run(
            parse(
                f'<ir_version: 9, opset_import: ["" : 18]> g ({QKV}) => (float[b, 4, s, 6] y) {{{PLAIN + REST % "scaled"} }}'
            )
        )
