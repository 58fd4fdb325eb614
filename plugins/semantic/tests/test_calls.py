"""What a call hands out, when, and what a kernel must get of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest

from gehost import REG_FUSION_PASS, CustomPassStage, HostOptions, PassError, es, ops
from gehost.diagnose.explain.run import explain
from gehost.testing import assert_equal_numbers, parse, run_pass
from gehost_semantic import (
    ActivationFusionPass,
    AttentionFusionPass,
    LinearFusionPass,
    NormFusionPass,
    RotaryFusionPass,
)
from plugins.semantic.tests.test_passes import FILE
from tests.conftest import Vendors, no_default_vendors, vendors  # noqa: F401 - fixtures

AFTER = CustomPassStage.kAfterInferShape
HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '
ATTENTION = f"""{HEAD}(float[b, 4, s, 8] q, float[b, 4, t, 8] k, float[b, 4, t, 6] v, float[s, t] m)
=> (float[?] y) <float c = {{0.25}}> {{
    kt = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, kt) scaled = Mul (a, c)
    masked = Add (scaled, m) p = Softmax <axis = -1> (masked) y = MatMul (p, v) }}"""
NORM = f"""{HEAD}(float[b, s, 16] a, float[b, s, 16] z, float[16] w)
=> (float[b, s, 16] y, float[b, s, 16] out)
<float two = {{2}}, int64[1] last = {{-1}}, float eps = {{0.01}}> {{
    sum = Add (a, z) %s p = Pow (x, two) m = ReduceMean (p, last) e = Add (m, eps) r = Sqrt (e)
    n = Div (x, r) y = Mul (n, w) out = Neg (%s) }}"""
CAST = "x = Cast <to = 1> (sum)"
ROTARY = f"""{HEAD}(float[b, 2, s, 8] x, float[s, 4] co, float[s, 4] si) => (float[?] y)
<int64[1] zero = {{0}}, int64[1] four = {{4}}, int64[1] eight = {{8}}, int64[1] last = {{3}}> {{
    lo = Slice (x, zero, four, last) hi = Slice (x, four, eight, last)
    lc = Mul (lo, co) hs = Mul (hi, si) f = Sub (lc, hs)
    hc = Mul (hi, co) ls = Mul (lo, si) g2 = Add (hc, ls) y = Concat <axis = -1> (f, g2) }}"""
ACTIVATION = f"""{HEAD}(float[b, 8] a, float[b, 8] g) => (float[b, 8] y)
<float[8] c = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{
    x = Add (a, c) i = Sigmoid (x) s = Mul (x, i) y = Mul (s, g) }}"""
LINEAR = f"""{HEAD}(float[b, 2] x) => (float[b, 2] y)
<float[2, 2] w = {{1, 2, 3, 4}}, float[2] c = {{1, 2}}> {{ t = MatMul (x, w) u = Add (t, c) y = Relu (u) }}"""

ops.register("npu::Provided", provided_by="npurt>=1")
ops.register(
    "npu::Declared",
    inputs=["q", "k", "v", "mask", "sink"],
    attributes={"scale": 1.0, "softcap": 0.0},
    provided_by="npurt>=1",
)

Kernel = Callable[[Any], Any]


def pass_of(base: type, takes: set[str], kernel: Kernel, **members: Any) -> Any:
    """Return a pass that replaces with what ``kernel`` gives of a call."""
    body = {"takes": takes, "Replacement": lambda _, call: kernel(call), **members}
    return REG_FUSION_PASS(stage=AFTER)(type("Example", (base,), body))


def attention(call: Any) -> Any:
    return es.op("npu::A")(call.q, call.k, call.v, call.mask, scale=call.scale)


def norm(call: Any) -> Any:
    result = es.op("npu::N")(call.x, call.residual, call.scale, epsilon=call.epsilon)
    return result[0], result[1]


def rotary(call: Any) -> Any:
    return es.op("npu::R")(call.x, call.cos, call.sin, interleaved=int(call.interleaved))


def activation(call: Any) -> Any:
    return es.op("npu::S")(call.x, call.bias, call.gate)


def linear(call: Any) -> Any:
    return es.op("npu::L")(call.x, call.weight, call.bias, activation=call.activation)


KINDS: dict[str, tuple[str, type, set[str], Kernel, dict[str, Any], tuple[str, ...]]] = {
    "attention": (ATTENTION, AttentionFusionPass, {"mask"}, attention, {}, ("q", "k", "v", "mask")),
    "norm": (
        NORM % (CAST, "sum"), NormFusionPass, {"residual"}, norm, {"kind": "rms"},
        ("x", "residual", "scale", "full_bias"),
    ),
    "rotary": (ROTARY, RotaryFusionPass, {"interleaved"}, rotary, {}, ("x", "cos", "sin")),
    "activation": (
        ACTIVATION, ActivationFusionPass, {"bias", "gate"}, activation, {"kind": "silu"},
        ("x", "bias", "gate"),
    ),
    "linear": (LINEAR, LinearFusionPass, {"bias", "relu"}, linear, {}, ("x", "weight", "bias")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_all_tensors_of_a_call_are_readable_in_meet_requirements(kind: str) -> None:
    text, base, takes, kernel, members, names = KINDS[kind]

    def meets(_: Any, call: Any) -> bool:
        return all(getattr(call, name) is not None for name in names)

    after, record = run_pass(
        parse(text), pass_of(base, takes, kernel, MeetRequirements=meets, **members)
    )
    assert (record.replaced, dict(record.rejected)) == (1, {})
    onnx.checker.check_model(after)


FORGETFUL: dict[str, tuple[str, str, Kernel]] = {
    "attention scale": ("attention", "scale", lambda c: es.op("npu::A")(c.q, c.k, c.v, c.mask)),
    "attention v": ("attention", "v", lambda c: es.op("npu::A")(c.q, c.k, c.mask, scale=c.scale)),
    "attention mask": (
        "attention", "mask", lambda c: c.mask and es.op("npu::A")(c.q, c.k, c.v, scale=c.scale),
    ),
    "norm epsilon": ("norm", "epsilon", lambda c: es.op("npu::N")(c.x, c.residual, c.scale)),
    "norm residual": (
        "norm", "residual",
        lambda c: c.residual and es.op("npu::N")(c.x, c.scale, epsilon=c.epsilon),
    ),
    "rotary cos": ("rotary", "cos", lambda c: es.op("npu::R")(c.x, c.sin)),
    "activation gate": ("activation", "gate", lambda c: c.gate and es.op("npu::S")(c.x, c.bias)),
    "linear activation": (
        "linear", "activation", lambda c: es.op("npu::L")(c.x, c.weight, c.bias),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGETFUL)
def test_what_a_kernel_must_get_is_named(name: str) -> None:
    kind, key, kernel = FORGETFUL[name]
    text, base, takes, _, members, _ = KINDS[kind]
    _, record = run_pass(parse(text), pass_of(base, takes, kernel, **members))
    assert (record.replaced, dict(record.rejected)) == (0, {key: 1})


def test_a_number_that_meet_requirements_tests_need_not_be_passed_on() -> None:
    def is_usual(_: Any, call: Any) -> bool:
        return call.scale == 0.25

    forgets = FORGETFUL["attention scale"][2]
    pass_ = pass_of(AttentionFusionPass, {"mask"}, forgets, MeetRequirements=is_usual)
    assert run_pass(parse(ATTENTION), pass_)[1].replaced == 1


@pytest.mark.parametrize("reader", ["sum", "x", "sum, x"])
@pytest.mark.parametrize("cast", [CAST, "c = Cast <to = 1> (sum) x = Cast <to = 1> (c)"])
def test_the_kernel_s_sum_takes_the_place_of_the_graph_s(reader: str, cast: str) -> None:
    text = NORM % (cast, reader.split(", ")[0])
    if "," in reader:
        text = text.replace("out = Neg (sum)", "o = Neg (sum) out = Add (o, x)")
    pass_ = pass_of(NormFusionPass, {"residual"}, norm, kind="rms")
    after, record = run_pass(parse(text), pass_, cleanup=True)
    assert record.replaced == 1
    (call,) = [node for node in after.graph.node if node.domain == "npu"]
    users = [node.op_type for node in after.graph.node if call.output[1] in node.input]
    assert users == (["Neg", "Add"] if "," in reader else ["Neg"])
    assert [node.op_type for node in after.graph.node].count("Add") == len(users) - 1


@pytest.mark.parametrize("op", ["npu::Provided", "npu::Declared"])
@pytest.mark.parametrize("second", [0.25, 0.5])
def test_an_operator_that_a_device_provides_needs_no_body_and_keeps_its_name(
    op: str, second: float
) -> None:
    def kernel(call: Any) -> Any:
        return es.op(op)(call.q, call.k, call.v, call.mask, scale=call.scale)

    proto, other = parse(ATTENTION), parse(ATTENTION.replace("{0.25}", f"{{{second}}}"))
    names = {value: f"{value}2" for node in other.graph.node for value in node.output}
    for node in other.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
        if node.op_type == "Mul":
            node.input[1] = "c2"
    other.graph.initializer[0].name = "c2"
    other.graph.output[0].name = "y2"
    proto.graph.MergeFrom(onnx.GraphProto(
        node=other.graph.node, output=other.graph.output, initializer=other.graph.initializer,
    ))  # fmt: skip
    after, record = run_pass(proto, pass_of(AttentionFusionPass, {"mask"}, kernel))
    assert (record.replaced, dict(record.rejected)) == (2, {})
    name = op.partition("::")[2]
    assert [node.op_type for node in after.graph.node if node.domain == "npu"] == [name] * 2
    # two scales are two bodies, of which neither would be right for both calls
    assert [function.name for function in after.functions] == ([name] if second == 0.25 else [])
    onnx.checker.check_model(after)


def test_a_number_that_is_absent_may_be_passed_on() -> None:
    def kernel(call: Any) -> Any:
        operands = (call.q, call.k, call.v, call.mask)
        return es.op("npu::A")(*operands, scale=call.scale, softcap=call.softcap)

    _, record = run_pass(parse(ATTENTION), pass_of(AttentionFusionPass, {"mask"}, kernel))
    assert (record.replaced, dict(record.rejected)) == (1, {})


SETTINGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a text": ("attention", {"takes": "mask"}, r'takes is a set of names, got a text.*\{"mask"\}'),
    "layout": (
        "attention", {"layout": "b h s d"}, "AttentionFusionPass has no layout; is layouts meant",
    ),
    "layouts": ("rotary", {"layouts": {}}, "RotaryFusionPass has no layouts; is layout meant"),
    "take": ("norm", {"take": {"residual"}}, "NormFusionPass has no take; is takes meant"),
    "kind": ("linear", {"kind": "gelu"}, "LinearFusionPass has no kind; it has takes"),
    "kinds": ("norm", {"kinds": "rms"}, "kinds is a set of names, got a text"),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_nothing_reads_is_named(name: str) -> None:
    kind, wrong, message = SETTINGS[name]
    text, base, takes, kernel, members, _ = KINDS[kind]
    settings = {"takes": takes, **members, **wrong}
    with pytest.raises(PassError, match=message):
        run_pass(parse(text), pass_of(base, settings.pop("takes"), kernel, **settings))


@pytest.mark.parametrize("kind", KINDS)
def test_check_pass_has_instances_of_each_kind(kind: str) -> None:
    _, base, takes, kernel, members, _ = KINDS[kind]
    pass_ = pass_of(base, takes, kernel, **members)
    instances = list(pass_().Instances())
    assert instances
    for instance in instances:
        onnx.checker.check_model(instance)
        assert run_pass(instance, pass_)[1].replaced == 1


def test_explain_says_in_which_rewrite_an_inner_node_went(
    vendors: Vendors,  # noqa: F811
) -> None:
    vendors.write("npu/flash.py", FILE)
    options = HostOptions(vendors=[vendors.root])
    result = explain(parse(ATTENTION), "NpuFlashAttention", options, "a")
    (finding,) = result.findings
    assert finding.reason.startswith('in the match at "y", which became ')
    assert "npu::FlashAttention" in finding.reason
    assert result.notes == []


def test_explain_says_so_of_a_node_that_the_pass_never_met(vendors: Vendors) -> None:  # noqa: F811
    vendors.write("npu/flash.py", FILE)
    options = HostOptions(vendors=[vendors.root])
    result = explain(parse(NORM % (CAST, "sum")), "NpuFlashAttention", options, "sum")
    assert (result.findings, result.notes) == (
        [], ["no rewrite and no refusal of the pass is about this node"],
    )  # fmt: skip


def test_scores_may_be_wider_than_q_and_k() -> None:
    """A converter keeps the mask and the Softmax in float32."""
    text = ATTENTION.replace("float[b, 4", "float16[b, 4").replace(
        "scaled = Mul (a, c)", "wide = Cast <to = 1> (a) scaled = Mul (wide, c)"
    )
    text = text.replace("y = MatMul (p, v)", "v1 = Cast <to = 1> (v) y = MatMul (p, v1)")
    before = parse(text)
    after, record = run_pass(before, pass_of(AttentionFusionPass, {"mask"}, attention))
    assert (record.replaced, dict(record.rejected)) == (1, {})
    assert_equal_numbers(before, after, rtol=2e-3, atol=2e-3)
