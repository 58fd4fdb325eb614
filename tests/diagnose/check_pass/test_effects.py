"""A part of an operator counts as varied only where the results are others without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import testing
from gehost.diagnose.check_pass.coverage import Coverage, Form
from gehost.diagnose.check_pass.effects import decides, refused_by_types
from gehost.diagnose.check_pass.mutations import Mutation, mutations, typed
from gehost.diagnose.check_pass.trial import BY_RULE, Outcome, Reference
from gehost.ops import OpRegistry
from gehost.testing import parse
from tests.diagnose.check_pass.test_forms import Forgets


@pytest.mark.parametrize(
    ("op", "attribute", "listed"),
    [
        ("Flatten", "axis", "Flatten (axis, which only the types refuse"),
        ("ReduceMean", "noop_with_empty_axes", "noop_with_empty_axes, which only the types refuse"),
        ("GatherND", "batch_dims", "GatherND (batch_dims, which only the types refuse"),
        ("TopK", "sorted", "sorted, without effect"),
    ],
)
def test_what_a_pass_forgets_unseen_is_listed(op: str, attribute: str, listed: str) -> None:
    forgets = type("ForgetsUnseen", (Forgets,), {"op_types": (op,), "attributes": (attribute,)})
    result = testing.check_pass(forgets, instances=5, mutations=20)
    assert result.verdict == "ok"
    assert listed in ", ".join(result.not_varied)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
POOL = (
    HEAD
    + """ g (float[1,1,4] x) => (float[1,1,M] y)
    { y = AveragePool <kernel_shape = [3], PADS, count_include_pad = 1> (x) }"""
)


class Fires:
    """In place of a trial: a pass that fires, or not, whatever the model."""

    comparing = BY_RULE

    def __init__(self, fires: bool) -> None:
        self.fires = fires

    def run(self, model: onnx.ModelProto) -> Outcome:
        return rewritten(model) if self.fires else refused()


def matters(pads: str, outcome: Outcome, *, fires_without: bool = True) -> bool:
    model = typed(parse(POOL.replace("PADS", pads)))
    assert model is not None
    mutation = Mutation("attribute", "", lambda _: None, parts=("count_include_pad",))
    trial: Any = Fires(fires_without)
    return decides(trial, 0, model, outcome, mutation, model.graph.node[0])


def test_a_part_without_effect_decides_nothing() -> None:
    assert matters("pads = [1, 0]", rewritten())
    assert not matters("pads = [0, 0]", rewritten())


def test_a_refusal_decides_where_the_pass_fires_without_the_part() -> None:
    assert matters("pads = [1, 0]", refused("pads: not zero"))
    assert not matters("pads = [1, 0]", refused("rank: not 4"), fires_without=False)
    assert not matters("pads = [0, 0]", refused("rank: not 4"))


def rewritten(model: Any = None) -> Outcome:
    return Outcome(model or onnx.ModelProto(), 1, (), "")


def refused(*reasons: str) -> Outcome:
    return Outcome(onnx.ModelProto(), 0, reasons, "")


def test_refusals_by_types_are_those_of_the_host() -> None:
    assert refused_by_types(refused('shape: dimension 0 of "y" was 3, would be 1'))
    assert refused_by_types(refused("types: Conv: no such kernel"))
    assert not refused_by_types(refused("shape: no square"))
    assert not refused_by_types(refused('rank: "y" had 2 dimensions, would have 3', "axis: not 1"))
    assert not refused_by_types(refused())
    assert not refused_by_types(rewritten())


def test_a_feature_is_open_until_it_is_decided() -> None:
    coverage = Coverage(OpRegistry())
    coverage.add(parse(POOL.replace("PADS", "strides = [2]")), instance=True)
    form = Form("AveragePool", 11, "count_include_pad", "1")
    assert coverage.news(form, ("count_include_pad",)) == 2
    assert "count_include_pad" in coverage.missing(17, 17)[0]
    coverage.refuse_by_types("AveragePool", "count_include_pad")
    assert "count_include_pad, which only the types refuse" in coverage.missing(17, 17)[0]
    coverage.decide("AveragePool", "count_include_pad")
    assert coverage.news(form, ("count_include_pad",)) == 0
    assert "count_include_pad" not in coverage.missing(17, 17)[0]


def test_no_mutation_feeds_an_operator_its_own_result() -> None:
    """ONNX's inference ends the process on some such graphs."""
    model = parse(
        HEAD + " g (float[2,4] x) => (float[2,4] y) { t = EyeLike(x) u = Neg(t) y = Abs(u) }"
    )
    for seed in range(6):
        for mutation in mutations(model, np.random.default_rng(seed)):
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            mutation.apply(copy)
            ready = {"", *(value.name for value in copy.graph.input)}
            ready |= {tensor.name for tensor in copy.graph.initializer}
            for node in copy.graph.node:
                assert ready.issuperset(node.input), mutation.what
                ready |= {*node.output}


def test_differences_of_infinite_numbers_give_no_warning() -> None:
    text = (
        HEAD + " g (float16[3] x) => (float16[3] y) { t = Exp(x) u = Exp(t) v = Exp(u) y = Exp(v) }"
    )
    reference = Reference(parse(text), 0)
    numbers = reference.compare(parse(text.replace("y = Exp", "y = Neg")))
    assert numbers.difference
    assert numbers.relative > 1
