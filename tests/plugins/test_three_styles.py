"""Five rules said in GE's style, in DRR and as traced pairs: equal inside, equal refusals, equal models, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter
import pytest
from msgspec.structs import replace

from gehost import Host, HostOptions, Model, PassRecord, PassSpec
from gehost.ops import OpRegistry
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.pattern import PatternMatcherConfig
from gehost.pattern.source import Kind
from gehost.testing import assert_equal_numbers
from plugins.drr.tests.conftest import model_of
from tools.benchmarks.figures import STYLED, STYLES
from tools.benchmarks.style_rules import RULES

MODELS = Path(__file__).parents[1] / "models"

LAYER_NORM = """{{
    mean = ReduceMean<axes = [-1]{keep}>(x)
    centered = Sub(x, mean)
    squares = Pow(centered, two)
    variance = ReduceMean<axes = [-1]{keep}>(squares)
    shifted = Add(variance, eps)
    root = Sqrt(shifted)
    normal = Div(centered, root)
    scaled = Mul(normal, scale)
    y = Add(scaled, bias)
}}"""


def layer_norm(
    x: str = "float[2, 8]",
    scale: str = "float[8]",
    bias: str = "float[8]",
    keep: str = "",
    dtype: str = "float",
    eps: str = "0.00001",
) -> str:
    constants = f"<{dtype} two = {{2}}, {dtype} eps = {{{eps}}}>"
    return f"({x} x, {scale} scale, {bias} bias) => ({dtype}[2, 8] y) {constants} {LAYER_NORM.format(keep=keep)}"


def linear(x: str = "float[2, 3]", b: str = "float[4]", y: str = "float[2, 4]") -> str:
    return (
        f"({x} x, float[3, 4] w, {b} b) => ({y} y) {{ p = MatMul(x, w) s = Add(b, p) y = Relu(s) }}"
    )


FIRES = {
    "transposes": "(float[2, 3, 4] x) => (float[4, 2, 3] y) "
    "{ t = Transpose<perm = [1, 2, 0]>(x) y = Transpose<perm = [1, 2, 0]>(t) }",
    "add_zero": "(float[2] x) => (float[2] y) <float z = {0}> { t = Add(z, x) y = Neg(t) }",
    "casts": "(float[2] x) => (float16[2] y) { t = Cast<to = 1>(x) y = Cast<to = 10>(t) }",
    "linear": linear(),
    "layer_norm": layer_norm(),
}

NEAR_MISSES: list[tuple[str, str, dict[str, int]]] = [
    ("add_zero", "(float[2] x) => (float[2] y) <float z = {1}> { t = Add(z, x) y = Neg(t) }", {}),
    ("add_zero", "(float[2] x) => (float[2] y) <float z = {0}> { t = Sub(z, x) y = Neg(t) }", {}),
    (
        "add_zero",
        "(float[2] x) => (float[1, 2] y) <float[1, 2] z = {0, 0}> { t = Add(z, x) y = Neg(t) }",
        {"rank": 1},
    ),
    (
        "casts",
        "(float[2] x) => (float[2] y) { t = Cast<to = 10>(x) y = Cast<to = 1>(t) }",
        {"condition": 1},
    ),
    ("linear", linear(x="float[5, 2, 3]", y="float[5, 2, 4]"), {"condition": 1}),
    ("linear", linear(b="float[2, 4]"), {"condition": 1}),
    ("linear", linear(b="float[1]"), {"condition": 1}),
    ("layer_norm", layer_norm("float[8, 8]", keep=", keepdims = 0"), {}),
    ("layer_norm", layer_norm(eps="0.0001"), {}),
    (
        "layer_norm",
        layer_norm("double[2, 8]", "double[8]", "double[8]", dtype="double"),
        {"condition": 1},
    ),
    ("layer_norm", layer_norm(scale="float[1]"), {"condition": 1}),
    ("layer_norm", layer_norm(bias="float[1]"), {"condition": 1}),
    ("layer_norm", layer_norm(bias="float[2, 8]"), {"condition": 1}),
]
"""By rule: a model that lacks one thing that the rule asks, and how its refusal is counted; the pattern refuses uncounted."""


def inside(spec: PassSpec, model: onnx.ModelProto) -> Any:
    """A rule's pattern in plain values; without lines, names of placeholders and captures; variables are numbered."""
    result: Any = spec.factory()
    (pattern,) = result.Patterns()
    source = LoweredPattern(pattern, PatternMatcherConfig(), Model(model), OpRegistry()).source
    numbers: dict[str, int] = {}
    ops = [
        (
            sorted(op.ops),
            [None if tensor is None else tensor.index for tensor in op.inputs],
            [tensor.index for tensor in op.outputs],
            [
                replace(actual, wanted=numbers.setdefault(actual.wanted, len(numbers)))
                if actual.kind is Kind.BIND
                else actual
                for actual in op.constraints
            ],
            op.exact_attributes,
            op.commutative,
        )
        for op in source.ops
    ]
    tensors = [
        (
            tensor.producer,
            tensor.slot,
            tensor.dtype,
            tensor.rank,
            tensor.shape,
            None if array is None else array.tolist(),
        )
        for tensor in source.tensors
        for array in [tensor.constant.array if tensor.constant is not None else None]
    ]
    switches = [(name, getattr(result, name)) for name in ("shape_proven", "bottom_up")]
    return (
        ops,
        tensors,
        source.inputs,
        source.outputs,
        len(list(source.variants())),
        switches,
        spec.stage,
        spec.min_opset,
        spec.max_opset,
    )


def compiled(rule: str, style: str, model: onnx.ModelProto) -> tuple[bytes, PassRecord]:
    host = Host(HostOptions(plugins=False, cleanup=False))
    host.passes.add(RULES[rule].spec(style))
    result, report = host.run(model)
    return result.SerializeToString(deterministic=True), report.passes[0]


def test_what_is_measured_is_what_is_tested() -> None:
    assert (set(STYLED), set(FIRES)) == (RULES.keys(), RULES.keys())


@pytest.mark.parametrize("rule", RULES)
def test_they_are_the_same_rule_inside(rule: str) -> None:
    ge, declarative, traced = (
        inside(RULES[rule].spec(style), model_of(FIRES[rule])) for style in STYLES
    )
    assert ge == declarative == traced


@pytest.mark.parametrize("perms", [("<perm = [1, 0]>", ""), ("", "<perm = [1, 0]>"), ("", "")])
def test_they_see_the_axes_that_a_transpose_leaves_out(perms: tuple[str, str]) -> None:
    first, second = perms
    text = (
        f"(float[2, 3] x) => (float[2, 3] y) {{ t = Transpose{first}(x) y = Transpose{second}(t) }}"
    )
    results = [compiled("transposes", style, model_of(text)) for style in STYLES]
    assert [record.replaced for _, record in results] == [1, 1, 1]
    assert len({result for result, _ in results}) == 1


@pytest.mark.parametrize("rule", RULES)
def test_they_make_the_same_model_and_keep_its_numbers(rule: str) -> None:
    model = model_of(FIRES[rule])
    results = [compiled(rule, style, model) for style in STYLES]
    assert [(record.matched, record.replaced) for _, record in results] == [(1, 1)] * 3
    assert len({result for result, _ in results}) == 1
    assert_equal_numbers(model, onnx.load_model_from_string(results[0][0]))


@pytest.mark.parametrize(("rule", "text", "refused"), NEAR_MISSES)
@pytest.mark.parametrize("style", STYLES)
def test_each_asks_everything_that_the_others_ask(
    rule: str, text: str, refused: dict[str, int], style: str
) -> None:
    model = model_of(text)
    result, record = compiled(rule, style, model)
    assert (record.matched, record.replaced, dict(record.rejected)) == (
        sum(refused.values()),
        0,
        refused,
    )
    assert result == model.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("linear", linear(b="float[n]")),
        ("layer_norm", layer_norm(scale="float[n]")),
        ("layer_norm", layer_norm(x="float[2, n]")),
    ],
)
@pytest.mark.parametrize("style", STYLES)
def test_each_refuses_what_is_not_known(rule: str, text: str, style: str) -> None:
    _, record = compiled(rule, style, model_of(text))
    assert list(record.rejected.items()) == [("unknown" if style == "traced" else "condition", 1)]


@pytest.mark.parametrize(
    ("rule", "file", "matched"),
    [
        ("transposes", "bert.raw18", 2),
        ("add_zero", "bert.raw18", 2),
        ("casts", "llama.ts17", 6),
        ("casts", "vit.ts17", 2),
        ("linear", "if", 2),
    ],
)
def test_they_do_the_same_to_exported_models(rule: str, file: str, matched: int) -> None:
    results = [compiled(rule, style, onnx.load(MODELS / f"{file}.onnx")) for style in STYLES]
    assert [(record.matched, record.replaced) for _, record in results] == [(matched, matched)] * 3
    assert len({result for result, _ in results}) == 1


@pytest.mark.parametrize(
    ("opset", "replaced", "refused"), [(13, 0, {"not applicable": 5}), (17, 5, {})]
)
def test_what_the_opset_lacks_is_refused_in_each(
    opset: int, replaced: int, refused: dict[str, int]
) -> None:
    model = onnx.version_converter.convert_version(onnx.load(MODELS / "gpt2.ts13.onnx"), opset)
    results = [compiled("layer_norm", style, model) for style in STYLES]
    counts = [(record.matched, record.replaced, dict(record.rejected)) for _, record in results]
    assert counts == [(5, replaced, refused)] * 3
    assert len({result for result, _ in results}) == 1
