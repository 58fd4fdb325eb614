"""What goes wrong in an author's code: always a ``PassError`` with pass, file and line, and the node at hand."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from gehost import (
    DecomposePass,
    EsGraph,
    EsGraphBuilder,
    FusionBasePass,
    PassError,
    Pattern,
    PatternFusionPass,
    es,
)
from gehost.passes import driver
from gehost.testing import run_pass

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    [the_node] a = Relu(x)
    y = Neg(a)
}"""


def unary(*ops: str) -> EsGraph:
    builder = EsGraphBuilder("unary")
    (tensor,) = builder.CreateInputs(1)
    for op in ops:
        tensor = es.op(op)(tensor)
    return builder.BuildAndReset([tensor])


class Relus(PatternFusionPass):
    def Patterns(self) -> Any:
        return [Pattern(unary("Relu"))]

    def Replacement(self, match: Any) -> Any:
        return unary("Sigmoid")


def failing(method: str, error: Any) -> type[FusionBasePass]:
    """A pass in which one method raises."""

    def fail(*_: Any) -> Any:
        raise error

    return type("Failing", (Relus,), {method: fail})


def line_of(method: Any) -> int:
    return method.__code__.co_firstlineno


def told(pass_: type[FusionBasePass], model: str = CHAIN) -> str:
    with pytest.raises(PassError) as caught:
        run_pass(model, pass_)
    assert "\n" not in str(caught.value)
    return str(caught.value)


AT_NODE = ' at node "the_node" (Relu)'


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("__init__", ""),
        ("Patterns", ""),
        ("MeetRequirements", AT_NODE),
        ("Replacement", AT_NODE),
        ("Run", ""),
    ],
)
@pytest.mark.parametrize(
    "error", [ZeroDivisionError("of all things"), SystemExit(0), PassError("of all things")]
)
def test_an_exception_in_a_method_names_pass_file_line_method_and_node(
    method: str, where: str, error: BaseException
) -> None:
    line = failing.__code__.co_firstlineno + 4
    text = told(failing(method, error))
    what = "of all things" if isinstance(error, PassError) else f"{type(error).__name__}: {error}"
    assert text == f"Failing ({__file__}:{line}): {method}{where}: {what}"


def test_an_interrupt_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_pass(CHAIN, failing("MeetRequirements", KeyboardInterrupt()))


@pytest.mark.parametrize("patterns", [None, [], [None], "Relu", [EsGraphBuilder("x")], 3])
def test_patterns_that_are_none(patterns: Any) -> None:
    class Odd(Relus):
        def Patterns(self) -> Any:
            return patterns

    assert re.match(
        rf"Odd \({__file__}:{line_of(Odd.Patterns)}\): Patterns: it must return a list of Pattern, got ",
        told(Odd),
    )


@pytest.mark.parametrize("answer", ["rank: a reason is not given so", [], EsGraphBuilder("x")])
def test_an_answer_of_meet_requirements_that_is_none(answer: Any) -> None:
    class Odd(Relus):
        def MeetRequirements(self, match: Any) -> Any:
            return answer

    assert (
        f'Odd ({__file__}:{line_of(Odd.MeetRequirements)}): MeetRequirements at node "the_node" (Relu): '
        "it must return True, False or match.reject(reason), got" in told(Odd)
    )


def test_a_replacement_that_is_none() -> None:
    class Odd(Relus):
        def Replacement(self, match: Any) -> Any:
            return None

    assert (
        f'Odd ({__file__}:{line_of(Odd.Replacement)}): Replacement at node "the_node" (Relu): '
        "it must return the result of BuildAndReset, or tensors" in told(Odd)
    )


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("Patterns", "Patterns: it returned more than 10000 patterns"),
        ("Replacement", f"Replacement{AT_NODE}: it returned more than 10000 tensors"),
    ],
)
def test_endless_generators_are_stopped(method: str, text: str) -> None:
    """The limit is in what is returned, not in time."""
    result = itertools.repeat(
        Pattern(unary("Relu")) if method == "Patterns" else unary("Relu").outputs
    )
    assert told(type("Odd", (Relus,), {method: lambda *_: result})).endswith(text)


def _positive(alpha: Any) -> bool:
    return alpha.is_positive()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: es.Neg(es.constrain(es.LeakyRelu(x), alpha=_positive)),
        lambda x: es.Neg(es.LeakyRelu(x, alpha=_positive)),
        lambda x: es.Neg(es.constrain(es.AnyOf("Elu", "LeakyRelu")(x), alpha=_positive)),
    ],
    ids=["constrain", "argument", "AnyOf"],
)
def test_an_exception_in_a_condition_names_the_node_and_the_line(make: Any) -> None:
    class Odd(Relus):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("odd")
            return [Pattern(builder.BuildAndReset([make(builder.CreateInput(0))]))]

    line = _positive.__code__.co_firstlineno + 1
    assert told(Odd, CHAIN.replace("Relu", "LeakyRelu")) == (
        f'Odd ({__file__}:{line}): Patterns: the condition on alpha at node "the_node" (LeakyRelu): '
        "AttributeError: 'float' object has no attribute 'is_positive'"
    )


def test_a_replacement_with_too_many_outputs() -> None:
    class Two(Relus):
        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("two")
            x = builder.CreateInput(0)
            return builder.BuildAndReset([es.Sigmoid(x), es.Tanh(x)])

    assert f"Replacement{AT_NODE}: the replacement has 2 outputs, the pattern 1" in told(Two)


def test_a_misspelt_parameter_is_told_once_with_its_line() -> None:
    class Misspelt(Relus):
        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("leaky")
            return builder.BuildAndReset([es.LeakyRelu(builder.CreateInput(0), alhpa=0.1)])

    line = Misspelt.Replacement.__code__.co_firstlineno + 2
    text = told(Misspelt)
    assert text.startswith(
        f'Misspelt ({__file__}:{line}): Replacement{AT_NODE}: LeakyRelu has no parameter "alhpa"'
    )
    assert text.count(__file__) == 1


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("MeetRequirements", lambda match: True),
        ("Replacement", lambda match: unary("Sigmoid")),
        ("Replacement", lambda match: match.reject("not here")),
    ],
)
def test_a_rule_pass_may_not_edit_the_graph_by_hand(method: str, result: Any) -> None:
    def edit(self: Any, match: Any) -> Any:
        (node,) = match.GetMatchedNodes()
        match.graph.set_metadata(node, "a", "b")
        return result(match)

    pass_ = type("Editor", (Relus,), {method: edit})
    assert (
        f"{method}{AT_NODE}: it edited the graph; only the graph returned by Replacement may change it"
        in told(pass_)
    )


# -- without end ----------------------------------------------------------------------------------------------------


def test_a_rewrite_that_feeds_itself_is_stopped_by_its_depth() -> None:
    class Grow(Relus):
        def Replacement(self, match: Any) -> Any:
            return unary("Abs", "Relu")

    text = told(Grow)
    assert re.match(
        rf"Grow \({__file__}:{line_of(Grow.Replacement)}\): Replacement at node \"Grow_Relu_\d+\" \(Relu\): rewrites feed each other",
        text,
    )
    assert "101 generations deep" in text


def doubled(op: str, depth: int) -> type[Relus]:
    """A pass in which a node becomes two of its kind, these four, and so on, ``depth`` times."""

    class Double(Relus):
        def Patterns(self) -> Any:
            return [Pattern(unary(name)) for name in op.split()]

        def Replacement(self, match: Any) -> Any:
            (node,) = match.GetMatchedNodes()
            if node.generation == depth:
                return unary("Neg")
            builder = EsGraphBuilder("double")
            x = builder.CreateInput(0)
            return builder.BuildAndReset([es.Add(es.op(node.op)(x), es.op(node.op)(es.Neg(x)))])

    return Double


def test_a_rewrite_that_multiplies_is_stopped_by_its_number() -> None:
    assert run_pass(CHAIN, doubled("Relu", 8))[1].replaced == 511
    text = told(doubled("Relu", 10))
    assert re.search(
        r"stopped after 1020 rewrites that grow the graph, at Double_Relu_\d+ \(Relu\): they feed each other",
        text,
    )


def test_the_number_is_that_of_the_pass_and_not_of_each_pattern() -> None:
    ops = "".join(f"t{k + 1} = {op}(t{k}) " for k, op in enumerate(["Relu", "Abs"] * 40))
    model = f"""<ir_version: 8, opset_import: ["" : 17]> main (float[2] t0) => (float[2] t80) {{ {ops} }}"""
    assert (
        run_pass(model, doubled("Relu", 5))[1].replaced
        == run_pass(model, doubled("Abs", 5))[1].replaced
        == 2520
    )
    text = told(doubled("Relu Abs", 5), model)
    assert "stopped after 1800 rewrites that grow the graph, at Double_Abs_" in text


def test_rewrites_that_do_not_grow_the_graph_end_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each Relu goes before each Neg: 225 rewrites of 30 nodes."""

    class Sink(Relus):
        def Patterns(self) -> Any:
            return [Pattern(unary("Neg", "Relu"))]

        def Replacement(self, match: Any) -> Any:
            return unary("Relu", "Neg")

    limit = driver._GrowthLimit
    monkeypatch.setattr(driver, "_GrowthLimit", lambda _: limit(0))
    ops = "".join(f"t{k + 1} = {op}(t{k}) " for k, op in enumerate(["Neg"] * 15 + ["Relu"] * 15))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> main (float[2] t0) => (float[2] t30) {{ {ops} }}"""
    model, record = run_pass(text, Sink)
    assert record.replaced == 225
    assert [node.op_type for node in model.graph.node] == ["Relu"] * 15 + ["Neg"] * 15


def test_a_chain_that_takes_in_one_node_after_the_other_ends() -> None:
    """Each rewrite meets what the one before made, and removes one more node of the model."""

    class Merge(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("twice")
            return [
                Pattern(builder.BuildAndReset([es.Neg(es.Neg(es.Neg(builder.CreateInput(0))))]))
            ]

        def Replacement(self, match: Any) -> Any:
            return unary("Neg")

    ops = "".join(f"t{k + 1} = Neg(t{k}) " for k in range(1001))
    model = f"""<ir_version: 8, opset_import: ["" : 17]> main (float[2] t0) => (float[2] t1001) {{ {ops} }}"""
    assert run_pass(model, Merge)[1].replaced == 500


# -- decomposition --------------------------------------------------------------------------------------------------


def test_a_decompose_pass_that_names_no_operators() -> None:
    class Idle(DecomposePass):
        def Replacement(self, node: Any) -> Any:
            return unary("Abs")

    assert "op_types: it names no operators; register it as in REG_DECOMPOSE_PASS" in told(Idle)


def test_a_decompose_pass_that_names_an_operator_that_is_none() -> None:
    class Misspelt(DecomposePass):
        op_types = ("Reluu",)

        def Replacement(self, node: Any) -> Any:
            return unary("Abs")

    assert (
        "op_types: neither ONNX nor a vendor file has an operator Reluu; did you mean Relu?"
        in told(Misspelt)
    )


@pytest.mark.parametrize("method", ["MeetRequirements", "Replacement"])
def test_an_exception_in_a_decompose_method_names_the_node(method: str) -> None:
    class Split(DecomposePass):
        op_types = ("Relu",)

        def Replacement(self, node: Any) -> Any:
            return unary("Abs")

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    assert re.search(
        rf"Failing \({__file__}:\d+\): {method}{re.escape(AT_NODE)}: ZeroDivisionError$",
        told(type("Failing", (Split,), {method: fail})),
    )


def test_nodes_of_wants_names_of_operators() -> None:
    class Five(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> None:
            graph.nodes_of("Relu", 5)

    line = Five.Run.__code__.co_firstlineno + 1
    with pytest.raises(PassError, match=rf"{__file__}:{line}\): Run: nodes_of wants .*, got 5"):
        run_pass(CHAIN, Five)
