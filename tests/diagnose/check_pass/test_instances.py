"""Instances are valid models that the pattern matches; changed ones are other models, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from gehost import DataType, EsGraphBuilder, Model, Pattern, PatternMatcher, es
from gehost.diagnose.check_pass.candidates import attribute_values
from gehost.diagnose.check_pass.instances import (
    Draw,
    NoInstance,
    Operand,
    draw,
    empty_model,
)
from gehost.diagnose.check_pass.mutations import mutated, mutations
from gehost.infer import infer_model
from gehost.ir.types import TensorType
from gehost.ops import OpRegistry
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.pattern import PatternMatcherConfig

OPSETS = (9, 13, 18, 23)


def layer_norm(builder):
    x, scale, bias = builder.CreateInputs(3)
    difference = es.Sub(x, es.constrain(es.ReduceMean(x), axes=[-1], keepdims=1))
    variance = es.constrain(es.ReduceMean(es.Pow(difference, 2.0)), axes=[-1], keepdims=1)
    root = es.Sqrt(es.Commutative(es.Add(variance, builder.CreateScalar(1e-5))))
    return es.Commutative(es.Add(es.Commutative(es.Mul(es.Div(difference, root), scale)), bias))


PATTERNS = {
    "layer norm": layer_norm,
    "same placeholder twice": lambda b: (lambda x: es.Mul(x, x))(b.CreateInput(0)),
    "required attribute": lambda b: es.Concat(*b.CreateInputs(2)),
    "migrating parameter": lambda b: es.Unsqueeze(es.ReduceSum(b.CreateInput(0)), axes=[0]),
    "predicate": lambda b: es.constrain(
        es.Transpose(b.CreateInput(0)), perm=lambda perm: len(perm) == 3
    ),
    "several operators": lambda b: es.AnyOf("Relu", "Sigmoid")(b.CreateInput(0)),
    "typed inputs": lambda b: es.MatMul(
        b.CreateInput(0, dtype=DataType.DOUBLE, rank=3), b.CreateInput(1, shape=[None, 5])
    ),
    "two outputs": lambda b: es.Add(*es.Split(b.CreateInput(0), num_outputs=2, axis=1)),
    "weights": lambda b: es.Conv(*b.CreateInputs(3)),
    "weights and a bound": lambda b: es.Clip(es.Conv(*b.CreateInputs(2)), 0.0, 6.0),
    "literal in an attribute": lambda b: es.Clip(b.CreateInput(0), 0.0, 6.0),
    "attributes that opsets lack": lambda b: es.constrain(
        es.ReduceMax(
            es.constrain(es.MaxPool(b.CreateInput(0)), dilations=lambda value: set(value) == {1})
        ),
        noop_with_empty_axes=es.Bind("n"),
    ),
    "indices": lambda b: es.Gather(*b.CreateInputs(2)),
}


def pattern(build):
    builder = EsGraphBuilder("pattern")
    return Pattern(builder.BuildAndReset([build(builder)]))


def instances(actual, opset, count, seed=0, tries=60):
    """Up to ``count`` instances of a pattern, of so many draws."""
    source = LoweredPattern(actual, PatternMatcherConfig(), empty_model(opset), OpRegistry()).source
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(tries):
        try:
            draws.append(draw(source, opset, OpRegistry(), rng))
        except NoInstance:
            continue
        if len(draws) == count:
            break
    return draws


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("build", PATTERNS.values(), ids=PATTERNS)
def test_an_instance_is_a_valid_model_that_the_pattern_matches(build, opset):
    actual = pattern(build)
    draws = instances(actual, opset, 3)
    assert len(draws) == 3
    for instance in draws:
        onnx.checker.check_model(instance.model, full_check=True)
        model = Model(instance.model)
        infer_model(model)
        assert PatternMatcher(actual, model).MatchNext() is not None


def test_one_seed_gives_one_model_and_another_another():
    actual = pattern(layer_norm)
    texts = [
        [
            item.model.SerializeToString(deterministic=True)
            for item in instances(actual, 17, 2, seed)
        ]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_what_was_drawn_can_be_used_again():
    actual = pattern(PATTERNS["weights"])
    source = LoweredPattern(actual, PatternMatcherConfig(), empty_model(17), OpRegistry()).source
    (first,) = instances(actual, 17, 1)
    again = draw(source, 13, OpRegistry(), np.random.default_rng(5), first.drawn)
    assert again.drawn.operands == first.drawn.operands


def test_the_constants_of_an_instance_are_used_again():
    actual = pattern(lambda b: es.Mul(b.CreateInput(0), b.CreateScalar(2.0)))
    source = LoweredPattern(actual, PatternMatcherConfig(), empty_model(17), OpRegistry()).source
    (value, first) = next(
        (array, item)
        for item in instances(actual, 17, 30)
        for array in item.drawn.constants.values()
        if array != 2.0
    )
    seeds = [np.random.default_rng(seed) for seed in range(20)]
    again = [draw(source, 17, OpRegistry(), rng, first.drawn).drawn.constants for rng in seeds]
    assert sum(float(array) == float(value) for (array,) in map(dict.values, again)) > 10


@pytest.mark.parametrize("seed", range(20))
def test_similar_choices_keep_lists_and_change_all_shapes_or_types_or_one_operand(seed):
    rng = np.random.default_rng(seed)
    operand = Operand(TensorType(DataType.INT64, (2,)), constant=True, values=(3, 4))
    whole = Operand(TensorType(DataType.FLOAT, (2, 3, 4)), constant=False)
    like = Draw((whole, replace(whole, constant=True), operand))
    first, second, third = like.varied(rng).operands
    assert first.type == second.type
    assert (first.constant, second.constant, third) == (False, True, operand)
    changed = [
        (old, new)
        for old, new in zip(like.operands, like.reopened(rng).operands, strict=True)
        if old is not new
    ]
    assert len(changed) == 1
    ((old, new),) = changed
    assert new is None or (new == replace(old, constant=not old.constant) and old is not operand)


def test_a_pattern_that_no_types_satisfy_is_told_with_the_operator():
    actual = pattern(lambda b: es.Not(es.Add(*b.CreateInputs(2))))
    source = LoweredPattern(actual, PatternMatcherConfig(), empty_model(17), OpRegistry()).source
    with pytest.raises(NoInstance, match="Not cannot be built: X typestr"):
        draw(source, 17, OpRegistry(), np.random.default_rng(0))


@pytest.mark.parametrize("default", [None, 1.0])
def test_no_random_numbers_are_drawn_of_a_scale_or_range_that_ends_the_process(default):
    def values(name: str) -> list[float]:
        return attribute_values(
            np.random.default_rng(0), name, onnx.AttributeProto.FLOAT, default, 2
        )

    assert min(values("scale")) > 0
    assert max(
        attribute_values(np.random.default_rng(0), "low", onnx.AttributeProto.FLOAT, 0.0, 2)
    ) < min(values("high"))


# -- changes ------------------------------------------------------------------------------------------------------------


def test_changes_are_of_every_kind_and_leave_the_model_as_it_is():
    (instance,) = instances(pattern(PATTERNS["weights and a bound"]), 17, 1)
    before = instance.model.SerializeToString(deterministic=True)
    mutants = mutations(instance.model, np.random.default_rng(0))
    assert {mutation.kind for mutation in mutants} == {
        "attribute",
        "opset",
        "option",
        "constant",
        "constant as input",
        "reader",
        "shape",
        "dtype",
        "operands",
        "place",
    }
    assert instance.model.SerializeToString(deterministic=True) == before
    changed = [model for mutation in mutants for model in mutated(instance.model, mutation)]
    assert len(changed) > 100
    for model in changed:
        onnx.checker.check_model(model, full_check=True)


def test_a_change_that_leaves_no_model_gives_none():
    (instance,) = instances(pattern(PATTERNS["indices"]), 17, 1)
    wrong = [
        item
        for item in mutations(instance.model, np.random.default_rng(0))
        if item.what.endswith("inputs 0 and 1 swapped")
    ]
    assert [list(mutated(instance.model, item)) for item in wrong] == [[]]
