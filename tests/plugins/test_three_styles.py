"""Five rules said in GE's style, in DRR and as traced pairs are equal inside, and make equal models, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import PassSpec
from gehost.pattern.rule import Kind
from gehost_drr import DrrRule
from gehost_register_pass import MappedPattern, RegisteredPass, RegisterPass, native, op

from .drr.conftest import model_of
from .drr.test_same_as_ge_style import RULES, compiled, structure

MODELS = Path(__file__).parents[1] / "models"


@native
def compose(first: list[int], second: list[int]) -> list[int]:
    return [first[axis] for axis in second]


def transposes() -> Any:
    def replace(x):
        return op.Transpose(x, perm=compose(MappedPattern("Transpose", 0, "perm"), MappedPattern("Transpose", 1, "perm")))

    return lambda x: op.Transpose(op.Transpose(x)), replace


def add_zero() -> Any:
    return lambda x: op.Add(x, 0).Commutative(), lambda x: x


def casts() -> Any:
    return lambda x: op.Cast(op.Cast(x)), lambda x: op.Cast(x, to=MappedPattern("Cast", 1, "to"))


def linear() -> Any:
    def pattern(x, w, b):
        return op.Relu(op.Add(op.MatMul(x, w), b).Commutative())

    return pattern, lambda x, w, b: op.Relu(op.Gemm(x, w, b, alpha=1.0))


def layer_norm() -> Any:
    def pattern(x, scale, bias):
        centered = op.Sub(x, op.ReduceMean(x, axes=[-1]))
        variance = op.ReduceMean(op.Pow(centered, 2.0), axes=[-1])
        return op.Add(op.Mul(op.Div(centered, op.Sqrt(op.Add(variance, 1e-5))), scale), bias)

    return pattern, lambda x, scale, bias: op.LayerNormalization(x, scale, bias, epsilon=1e-5)


TRACED: dict[str, RegisteredPass] = {
    name.replace("_", " "): RegisterPass(name="Rule")(function)
    for name, function in (
        ("transposes", transposes),
        ("add_zero", add_zero),
        ("casts", casts),
        ("linear", linear),
        ("layer_norm", layer_norm),
    )
}


def test_all_five_are_here() -> None:
    assert TRACED.keys() == RULES.keys()


def specs(name: str) -> list[PassSpec]:
    """The rule as a pass in each of the three styles."""
    ge, declarative, _ = RULES[name]
    assert isinstance(declarative, DrrRule)
    traced = TRACED[name].spec()
    return [PassSpec("Rule", traced.stage, traced.origin, "pattern", ge, trusted=True), declarative.spec(), traced]


def inside(spec: PassSpec, text: str) -> Any:
    """The rule model; variables, which each style names as it likes, are numbered."""
    made: Any = spec.factory()
    (pattern,) = made.Patterns()
    ops, *rest = structure(pattern, model_of(text))
    numbers: dict[str, int] = {}
    numbered = [
        (
            *before,
            [
                replace(found, wanted=numbers.setdefault(found.wanted, len(numbers))) if found.kind is Kind.BIND else found
                for found in constraints
            ],
            *after,
        )
        for *before, constraints, exact, commutative in ops
        for after in [(exact, commutative)]
    ]
    return numbered, *rest


@pytest.mark.parametrize("name", RULES)
def test_they_are_the_same_rule_inside(name: str) -> None:
    text = RULES[name][2]
    ge, declarative, traced = (inside(spec, text) for spec in specs(name))
    assert ge == declarative == traced


@pytest.mark.parametrize("name", RULES)
def test_they_make_the_same_model(name: str) -> None:
    model = model_of(RULES[name][2])
    results = [compiled(spec, model) for spec in specs(name)]
    assert [(record.matched, record.replaced) for _, record in results] == [(1, 1)] * 3
    assert len({result.SerializeToString(deterministic=True) for result, _ in results}) == 1


@pytest.mark.parametrize(
    ("name", "file", "matched"),
    [
        ("transposes", "bert.raw18", 2),
        ("add zero", "bert.raw18", 2),
        ("casts", "llama.ts17", 6),
        ("casts", "vit.ts17", 2),
        ("linear", "if", 2),
        ("layer norm", "gpt2.ts13", 5),
    ],
)
def test_they_do_the_same_to_exported_models(name: str, file: str, matched: int) -> None:
    """LayerNormalization is not in opset 13: the same refusal in each."""
    model = onnx.load(MODELS / f"{file}.onnx")
    results = [compiled(spec, model) for spec in specs(name)]
    counts = [(record.matched, record.replaced, dict(record.rejected)) for _, record in results]
    assert counts == [(matched, matched, {}) if name != "layer norm" else (matched, 0, {"not applicable": matched})] * 3
    assert len({result.SerializeToString(deterministic=True) for result, _ in results}) == 1
