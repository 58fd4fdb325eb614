"""The classes that authors derive from: what they demand, what they default to."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import (
    REG_DECOMPOSE_PASS,
    DecomposePass,
    EsGraphBuilder,
    FusionBasePass,
    PassError,
    Pattern,
    PatternError,
    PatternFusionPass,
    PatternMatcherConfigBuilder,
    es,
    ops,
)
from gehost.passes.base import missing_methods
from gehost.testing import assert_refuses, graph_of, run_pass

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Abs(a)
    y = Relu(b)
}"""
TWO_ADDENDS = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) <float[2] one = {1, 1}, float[2] two = {2, 2}> {
    a = Add(x, one)
    y = Add(a, two)
}"""


def one_node(op: str, count: int = 1) -> Any:
    builder = EsGraphBuilder(op)
    return builder.BuildAndReset([es.op(op)(*builder.CreateInputs(count))])


class Halfway(PatternFusionPass):
    def Patterns(self) -> Any:
        return [Pattern(one_node("Relu"))]


class Whole(Halfway):
    def Replacement(self, match: Any) -> Any:
        return one_node("Abs")


class Neither(DecomposePass):
    pass


class Nothing(FusionBasePass):
    pass


@pytest.mark.parametrize("config", ["strict", PatternMatcherConfigBuilder()])
def test_what_is_no_configuration_is_refused_where_it_is_given(config: Any) -> None:
    class Configured(Whole):
        def __init__(self) -> None:
            super().__init__(config)

    message = r"__init__: wanted the result of PatternMatcherConfigBuilder\(\)\.Build\(\), got "
    with pytest.raises(PassError, match=rf"test_base\.py:\d+\): {message}{type(config).__name__}"):
        run_pass(CHAIN, Configured)


def test_missing_methods_are_those_that_no_class_between_defines() -> None:
    assert missing_methods(PatternFusionPass) == ["Patterns", "Replacement"]
    assert missing_methods(Halfway) == ["Replacement"]
    assert missing_methods(Whole) == []
    assert missing_methods(Neither) == ["Replacement"]
    assert missing_methods(Nothing) == ["Run"]


def test_meet_requirements_is_true_unless_it_says_otherwise() -> None:
    _, record = run_pass(CHAIN, Whole)
    assert (record.matched, record.replaced, dict(record.rejected)) == (2, 2, {})


def test_a_constructor_that_does_not_call_its_base_is_no_problem() -> None:
    class Silent(Whole):
        def __init__(self) -> None:
            pass

    class SilentSplit(DecomposePass):
        op_types = ("Relu",)

        def __init__(self) -> None:
            pass

        def Replacement(self, node: Any) -> Any:
            return one_node("Abs")

    assert run_pass(CHAIN, Silent)[1].replaced == 2
    assert run_pass(CHAIN, SilentSplit)[1].replaced == 2


@pytest.mark.parametrize("strict", [True, False])
def test_the_matcher_is_configured_by_the_base_constructor(strict: bool) -> None:
    class AddOne(PatternFusionPass):
        def __init__(self) -> None:
            super().__init__(
                PatternMatcherConfigBuilder().EnableConstValueMatch().Build() if strict else None
            )

        def Patterns(self) -> Any:
            builder = EsGraphBuilder("add")
            return [
                Pattern(
                    builder.BuildAndReset(
                        [es.Add(builder.CreateInput(0), builder.CreateVector([1.0, 1.0]))]
                    )
                )
            ]

        def Replacement(self, match: Any) -> Any:
            return one_node("Neg")

    result, record = run_pass(TWO_ADDENDS, AddOne)
    assert record.replaced == (1 if strict else 2)
    assert [node.op_type for node in result.graph.node] == (
        ["Neg", "Add"] if strict else ["Neg", "Neg"]
    )


@pytest.mark.parametrize(
    ("value", "marked", "ops"),
    [
        ((), ("Relu",), {"Relu"}),
        (("Abs",), ("Relu",), {"Abs"}),
        (("Relu", "Abs"), (), {"Relu", "Abs"}),
        ("Abs", (), {"Abs"}),
    ],
)
def test_operators_come_from_the_constructor_else_from_the_registration(
    value: Any, marked: Any, ops: set[str]
) -> None:
    visited: set[str] = set()

    @REG_DECOMPOSE_PASS(marked)
    class Watch(DecomposePass):
        def __init__(self) -> None:
            super().__init__(value)

        def MeetRequirements(self, node: Any) -> bool:
            visited.add(node.op_type)
            return False

        def Replacement(self, node: Any) -> Any:
            raise NotImplementedError

    assert_refuses(CHAIN, Watch, "MeetRequirements")
    assert visited == ops


def test_a_node_is_refused_by_the_node_as_a_match_by_the_match() -> None:
    @REG_DECOMPOSE_PASS(["Relu"])
    class Refuses(DecomposePass):
        def MeetRequirements(self, node: Any) -> Any:
            return node.name != "first" or node.reject("first: stays")

        def Replacement(self, node: Any) -> Any:
            return node.reject("second: stays, too")

    _, record = run_pass(CHAIN.replace("    a = ", "    [first] a = "), Refuses)
    assert record.rejected == {"first": 1, "second": 1}
    node: Any = next(iter(graph_of(CHAIN).nodes))
    with pytest.raises(PassError, match=r"node.reject wants a reason as text, .*, got 3"):
        node.reject(3)


def test_all_outputs_that_a_registration_names_may_be_unpacked() -> None:
    ops.register("acme::Halves", inputs=["x"], outputs=["low", "high"])

    class Unpacks(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("sum")
            low, high = es.op("acme::Halves")(builder.CreateInput(0))
            return [Pattern(builder.BuildAndReset([low + high]))]

        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("twice")
            low, high = es.op("acme::Halves")(builder.CreateInput(0))
            return builder.BuildAndReset([high - low])

    text = CHAIN.replace('"" : 17]', '"" : 17, "acme" : 1]').replace(
        "a = Relu(x)\n    b = Abs(a)", "low, high = acme.Halves(x) b = Add(low, high)"
    )
    result, record = run_pass(text, Unpacks)
    assert record.replaced == 1
    assert [len(node.output) for node in result.graph.node] == [2, 1, 1]


def test_outputs_of_an_operator_that_declares_no_number_are_not_unpacked() -> None:
    builder = EsGraphBuilder("free")
    with pytest.raises(PatternError, match=r"write \[0\], \[1\], … for the outputs"):
        list(es.op("acme::Free")(builder.CreateInput(0)))


def test_the_marks_of_a_base_class_name_no_operators_for_a_subclass() -> None:
    @REG_DECOMPOSE_PASS(["Relu"])
    class Marked(DecomposePass):
        def Replacement(self, node: Any) -> Any:
            return one_node("Abs")

    class Derived(Marked):
        pass

    with pytest.raises(PassError, match="it names no operators"):
        run_pass(CHAIN, Derived)


@pytest.mark.parametrize("opset", [9, 11, 13])
@pytest.mark.parametrize("shape", ["[2, 3]", ""])
@pytest.mark.parametrize("axis", [-4, 5])
def test_an_axis_that_the_rank_does_not_have_is_refused_at_every_opset(
    opset: int, shape: str, axis: int
) -> None:
    """A negative axis that is only taken modulo the rank becomes another axis, and other numbers."""

    class Reduce(DecomposePass):
        op_types = ("Erf",)

        def Replacement(self, node: Any) -> Any:
            builder = EsGraphBuilder("replacement")
            x = builder.CreateInput(0)
            return builder.BuildAndReset([x - es.ReduceSum(x, axes=[axis], keepdims=1)])

    class Soften(DecomposePass):
        op_types = ("Erf",)

        def Replacement(self, node: Any) -> Any:
            builder = EsGraphBuilder("replacement")
            return builder.BuildAndReset([es.Softmax(builder.CreateInput(0), axis=axis)])

    text = f'<ir_version: 8, opset_import: ["" : {opset}]> main (float{shape} x) => (float{shape} y) {{ y = Erf(x) }}'
    for wrong in (Reduce, Soften):
        _, record = run_pass(text, wrong)
        assert (record.replaced, sum(record.rejected.values())) == (0, 1)
