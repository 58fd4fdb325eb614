"""Inference by hand, and asking whether a target can run a node."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import (
    DecomposePass,
    EsGraph,
    EsGraphBuilder,
    GeUtils,
    PassError,
    Pattern,
    PatternFusionPass,
    es,
    hookimpl,
)
from gehost.host.registry import PassSpec
from gehost.ir.types import DataType, TensorType
from gehost.passes.ge_utils import NodeSupport
from gehost.stages import CustomPassStage
from gehost.testing import parse, run_pass

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[B, 6] x) => (float[B, 2, 3] y) <int64[3] shape = {0, 2, 3}> {
    y = Reshape(x, shape)
}"""
FLOAT = DataType.FLOAT


def infer(build: Any, source: Any = lambda match: match, model: str = MODEL) -> Any:
    """What ``InferShape`` says, in ``MeetRequirements``, of the graph that ``build`` makes of the match's inputs."""
    actual: list[Any] = []

    class Ask(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("pattern")
            return [Pattern(builder.BuildAndReset([es.Reshape(*builder.CreateInputs(2))]))]

        def MeetRequirements(self, match: Any) -> Any:
            builder = EsGraphBuilder("asked")
            outputs = build(*builder.CreateInputs(2))
            actual.append(GeUtils.InferShape(builder.BuildAndReset(outputs), source(match)))
            return False

        def Replacement(self, match: Any) -> Any:
            raise NotImplementedError

    run_pass(model, Ask)
    return actual[0]


@pytest.mark.parametrize(
    "source", [lambda m: m, lambda m: m.GetMatchedNodes()[0], lambda m: m.inputs]
)
def test_types_come_from_a_match_a_node_or_tensors(source: Any) -> None:
    actual = infer(lambda x, shape: [es.Relu(x), es.Shape(x), shape], source)
    assert actual == [
        TensorType(FLOAT, ("B", 6)),
        TensorType(DataType.INT64, (2,)),
        TensorType(DataType.INT64, (3,)),
    ]


def test_constants_among_the_inputs_and_in_the_graph_are_looked_at() -> None:
    assert infer(lambda x, shape: [es.Reshape(x, shape)])[0].shape[1:] == (2, 3)
    assert infer(lambda x, shape: [es.Reshape(x, [3, -1, 2])])[0].rank == 3
    assert infer(lambda x, _: [es.Transpose(es.Add(x, 1.0), perm=[1, 0])]) == [
        TensorType(FLOAT, (6, "B"))
    ]


def test_a_constant_can_be_an_output() -> None:
    assert infer(
        lambda x, _: [
            es.Relu(x),
            x.graph.add_node(("Relu",), [[1.0, 2.0]], {})[0].producer.inputs[0],
        ]
    )[1].shape == (2,)


def test_of_tensors_of_which_nothing_is_known_the_rest_is_told() -> None:
    untyped = MODEL.replace("y = Reshape(x, shape)", "u = acme.Unknown(x) y = Reshape(u, shape)")
    actual = infer(
        lambda x, _: [es.Relu(x), es.Shape(x)],
        model=untyped.replace('["" : 17]', '["" : 17, "acme" : 1]'),
    )
    assert actual == [None, TensorType(DataType.INT64, (None,))]


def test_inputs_past_the_tensors_given_are_absent() -> None:
    assert infer(lambda x, _: [es.Clip(x, None, 1.0)], lambda match: match.inputs[:1]) == [
        TensorType(FLOAT, ("B", 6))
    ]


def test_what_an_operator_does_not_take_is_an_error_with_its_line() -> None:
    with pytest.raises(PassError, match=rf"{__file__}:\d+: MatMul: "):
        infer(lambda x, _: [es.MatMul(x, es.Reshape(x, [5, 7]))])


def test_what_the_opset_lacks_is_an_error_with_its_line() -> None:
    with pytest.raises(
        PassError, match=rf"{__file__}:\d+: Gelu: .*needs opset 20, the model has 17"
    ):
        infer(lambda x, _: [es.Gelu(x)])


def test_outside_a_pass_there_is_no_model_to_ask() -> None:
    with pytest.raises(PassError, match=r"GeUtils.InferShape works inside a running pass"):
        GeUtils.InferShape(EsGraph("empty"), [])
    with pytest.raises(PassError, match=r"GeUtils.CheckNodeSupport works inside a running pass"):
        GeUtils.CheckNodeSupport(None)  # type: ignore[arg-type]


class Answers:
    """A plugin that gives one answer of every node."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    @hookimpl
    def gehost_check_node_support(self, node: Any) -> Any:
        return self.answer(node) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answers", "supported", "reason"),
    [
        ([], True, "no plugin objects"),
        ([None, True], True, "no plugin objects"),
        ([None, "no float64 here", "another reason"], False, "no float64 here"),
        ([True, False], False, "a plugin reports that the target cannot run it"),
        ([lambda node: f"no {node.op_type}"], False, "no Reshape"),
    ],
)
def test_the_first_plugin_that_objects_says_why(
    vendors: Any, answers: Any, supported: bool, reason: str
) -> None:
    actual: list[NodeSupport] = []

    class Ask(DecomposePass):
        op_types = ("Reshape",)

        def MeetRequirements(self, node: Any) -> Any:
            actual.append(GeUtils.CheckNodeSupport(node))
            return False

    host = vendors.host(
        plugins=[(f"plugin{k}", Answers(answer)) for k, answer in enumerate(answers)]
    )
    host.passes.add(PassSpec("Ask", CustomPassStage.kAfterInferShape, "ask.py:1", "decompose", Ask))
    host.run(parse(MODEL))
    assert actual == [(supported, reason)]
    assert bool(actual[0]) is supported


def test_a_plugin_that_fails_to_answer_fails_the_pass_and_is_named(vendors: Any) -> None:
    class Ask(DecomposePass):
        op_types = ("Reshape",)

        def MeetRequirements(self, node: Any) -> Any:
            return GeUtils.CheckNodeSupport(node).supported

    host = vendors.host(plugins=[("oracle", Answers(lambda node: 1 / 0))])
    host.passes.add(PassSpec("Ask", CustomPassStage.kAfterInferShape, "ask.py:1", "decompose", Ask))
    with pytest.raises(
        PassError,
        match=r"^Ask \(ask.py:1\): MeetRequirements.*plugin oracle \(.*ge_utils.py:\d+\): .*ZeroDivisionError",
    ):
        host.run(parse(MODEL))
