"""Five rules said in GE's style and in this one are equal inside, and make equal models, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest

from gehost import EsGraphBuilder, EsTensor, Host, HostOptions, MatchResult, Model, PassSpec, Pattern, PatternFusionPass, es
from gehost.ops import OpRegistry
from gehost.pattern.build import build_source
from gehost.pattern.config import PatternMatcherConfig
from gehost.testing import assert_equal_numbers
from gehost_drr import DrrRule, attr, drr

from .conftest import model_of


def ge_style(inputs: int, source: Callable[..., EsTensor], result: Callable[..., EsTensor]) -> type[PatternFusionPass]:
    """A pass in GE's style; ``result`` is given the match and its inputs."""

    class Rule(PatternFusionPass):
        def Patterns(self) -> Sequence[Pattern]:
            builder = EsGraphBuilder("Rule")
            return [Pattern(builder.BuildAndReset(source(*builder.CreateInputs(inputs))))]

        def Replacement(self, match: MatchResult) -> Any:
            builder = EsGraphBuilder("Rule")
            return builder.BuildAndReset(result(match, *builder.CreateInputs(inputs)))

    return Rule


# -- the rules ------------------------------------------------------------------------------------------------------

transposes = ge_style(
    1,
    lambda x: es.constrain(es.Transpose(es.constrain(es.Transpose(x), perm=es.Bind("p1"))), perm=es.Bind("p2")),
    lambda m, x: es.Transpose(x, perm=[m.attributes["p1"][axis] for axis in m.attributes["p2"]]),
)


@drr.rule(name="Rule")
def drr_transposes(pat: Any, res: Any) -> None:
    pat.y = pat.Transpose(perm=attr.p2)(pat.Transpose(perm=attr.p1)(pat.x))
    res.y = res.Transpose(perm=lambda m: [m.p1[axis] for axis in m.p2])(res.x)


add_zero = ge_style(1, lambda x: es.Commutative(es.Add(x, 0)), lambda m, x: x)


@drr.rule(name="Rule")
def drr_add_zero(pat: Any, res: Any) -> None:
    pat.y = pat.Commutative(pat.Add(pat.x, 0))
    res.y = res.x


casts = ge_style(1, lambda x: es.constrain(es.Cast(es.Cast(x)), to=es.Bind("to")), lambda m, x: es.Cast(x, to=m.attributes["to"]))


@drr.rule(name="Rule")
def drr_casts(pat: Any, res: Any) -> None:
    pat.y = pat.Cast(to=attr.to)(pat.Cast()(pat.x))
    res.y = res.Cast(to=attr.to)(res.x)


linear = ge_style(
    3,
    lambda x, w, b: es.Relu(es.Commutative(es.Add(es.MatMul(x, w), b))),
    lambda m, x, w, b: es.Relu(es.Gemm(x, w, b, alpha=1.0)),
)


@drr.rule(name="Rule")
def drr_linear(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.Commutative(pat.Add(pat.MatMul(pat.x, pat.w), pat.b)))
    res.y = res.Relu(res.Gemm(alpha=1.0)(res.x, res.w, res.b))


def _normalized(x: EsTensor, scale: EsTensor, bias: EsTensor) -> EsTensor:
    centered = es.Sub(x, es.constrain(es.ReduceMean(x), axes=[-1]))
    variance = es.constrain(es.ReduceMean(es.Pow(centered, 2.0)), axes=[-1])
    return es.Add(es.Mul(es.Div(centered, es.Sqrt(es.Add(variance, 1e-5))), scale), bias)


layer_norm = ge_style(3, _normalized, lambda m, x, s, b: es.LayerNormalization(x, s, b, epsilon=1e-5))


@drr.rule(name="Rule")
def drr_layer_norm(pat: Any, res: Any) -> None:
    pat.centered = pat.Sub(pat.x, pat.ReduceMean(axes=[-1])(pat.x))
    variance = pat.ReduceMean(axes=[-1])(pat.Pow(pat.centered, 2.0))
    scaled = pat.Mul(pat.Div(pat.centered, pat.Sqrt(pat.Add(variance, 1e-5))), pat.scale)
    pat.y = pat.Add(scaled, pat.bias)
    res.y = res.LayerNormalization(epsilon=1e-5)(res.x, res.scale, res.bias)


RULES = {
    "transposes": (
        transposes,
        drr_transposes,
        "(float[2, 3, 4] x) => (float[4, 2, 3] y) { t = Transpose<perm = [1, 2, 0]>(x) y = Transpose<perm = [1, 2, 0]>(t) }",
    ),
    "add zero": (add_zero, drr_add_zero, "(float[2] x) => (float[2] y) <float z = {0}> { t = Add(z, x) y = Neg(t) }"),
    "casts": (casts, drr_casts, "(float[2] x) => (float16[2] y) { t = Cast<to = 11>(x) y = Cast<to = 10>(t) }"),
    "linear": (
        linear,
        drr_linear,
        "(float[2, 3] x, float[3, 4] w, float[4] b) => (float[2, 4] y) { p = MatMul(x, w) s = Add(b, p) y = Relu(s) }",
    ),
    "layer norm": (
        layer_norm,
        drr_layer_norm,
        """(float[2, 8] x, float[8] scale, float[8] bias) => (float[2, 8] y) <float two = {2}, float eps = {0.00001}> {
            mean = ReduceMean<axes = [-1]>(x)
            centered = Sub(x, mean)
            squares = Pow(centered, two)
            variance = ReduceMean<axes = [-1]>(squares)
            shifted = Add(variance, eps)
            root = Sqrt(shifted)
            normal = Div(centered, root)
            scaled = Mul(normal, scale)
            y = Add(scaled, bias)
        }""",
    ),
}


def structure(pattern: Pattern, model: onnx.ModelProto) -> Any:
    """The rule model of a pattern in plain values; without the author's lines and the names of placeholders."""
    source = build_source(pattern.graph, [], PatternMatcherConfig(), Model(model), OpRegistry())
    ops = [
        (
            sorted(op.ops),
            [None if tensor is None else tensor.index for tensor in op.inputs],
            [tensor.index for tensor in op.outputs],
            op.constraints,
            op.exact_attributes,
            op.commutative,
        )
        for op in source.ops
    ]
    tensors = [
        (tensor.producer, tensor.slot, tensor.dtype, tensor.rank, tensor.shape, None if array is None else array.tolist())
        for tensor in source.tensors
        for array in [tensor.constant.array if tensor.constant is not None else None]
    ]
    return ops, tensors, source.inputs, source.outputs, source.variants


def compiled(spec: PassSpec, model: onnx.ModelProto) -> tuple[onnx.ModelProto, Any]:
    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(spec)
    result, report = host.run(model)
    return result, report.passes[0]


@pytest.mark.parametrize("name", RULES)
def test_both_are_the_same_rule_inside(name: str) -> None:
    ge, rule, text = RULES[name]
    assert structure(ge().Patterns()[0], model_of(text)) == structure(rule.pattern, model_of(text))


@pytest.mark.parametrize("name", RULES)
def test_both_make_the_same_model(name: str) -> None:
    ge, rule, text = RULES[name]
    assert isinstance(rule, DrrRule)
    spec = rule.spec()
    by_ge, ge_record = compiled(PassSpec("Rule", spec.stage, spec.origin, "pattern", ge, trusted=True), model_of(text))
    by_drr, drr_record = compiled(spec, model_of(text))
    assert (ge_record.matched, ge_record.replaced) == (drr_record.matched, drr_record.replaced) == (1, 1)
    assert by_ge.SerializeToString(deterministic=True) == by_drr.SerializeToString(deterministic=True)
    assert_equal_numbers(model_of(text), by_drr)
