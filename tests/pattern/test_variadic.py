"""Patterns in which an operator has any number of inputs or outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraphBuilder,
    EsTensor,
    Host,
    HostOptions,
    Pattern,
    PatternError,
    PatternFusionPass,
    VariadicPattern,
    es,
    hookimpl,
)
from gehost.host.ge_style import pass_spec
from gehost.passes.registration import mark_of
from gehost.testing import assert_equal_numbers, assert_refuses, check_pass, parse, run_pass

HEAD = '<ir_version: 8, opset_import: ["" : 17]> main '


def built(count: int, make: Callable[..., Any]) -> Any:
    builder = EsGraphBuilder("g")
    result = make(*builder.CreateInputs(count))
    return builder.BuildAndReset([result] if isinstance(result, EsTensor) else list(result))


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class ReluAfterConcatPass(PatternFusionPass):
    """Concat(Relu(x0), Relu(x1), …)  ==>  Relu(Concat(x0, x1, …))."""

    def Patterns(self) -> Any:
        def of(number: int) -> Pattern:
            def make(*xs: EsTensor) -> EsTensor:
                relus = [es.Relu(x) for x in xs]
                return es.constrain(es.Concat(*relus), axis=es.Bind("axis"))

            return Pattern(built(number, make))

        return [VariadicPattern("Concat", of)]

    def Replacement(self, match: Any) -> Any:
        axis = match.attributes["axis"]
        return built(match.number, lambda *xs: es.Relu(es.Concat(*xs, axis=axis)))


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class SplitOfConcatPass(PatternFusionPass):
    """Concat(Split(x), axis) of all parts in order  ==>  x."""

    def Patterns(self) -> Any:
        def of(number: int) -> Pattern:
            def make(x: EsTensor) -> EsTensor:
                split = es.Split(x, num_outputs=number)
                es.constrain(split[0], axis=es.Bind("axis"))
                return es.constrain(es.Concat(*split), axis=es.Bind("axis"))

            return Pattern(built(1, make))

        return VariadicPattern("Split", of, least=2)

    def Replacement(self, match: Any) -> Any:
        return built(1, lambda x: x)


def concat(parts: str, axis: int = 0) -> str:
    return f"y = Concat<axis = {axis}>({parts})"


@pytest.mark.parametrize("number", [1, 2, 3, 7, 300])
def test_concat_of_any_number_of_an_operator(number: int) -> None:
    inputs = ", ".join(f"float[2] x{i}" for i in range(number))
    relus = " ".join(f"r{i} = Relu(x{i})" for i in range(number))
    text = f"({inputs}) => (float[{2 * number}] y) {{ {relus} {concat(', '.join(f'r{i}' for i in range(number)))} }}"
    before = parse(HEAD + text)
    after, record = run_pass(before, ReluAfterConcatPass)
    assert record.replaced == 1
    assert [node.op_type for node in after.graph.node] == ["Concat", "Relu"]
    assert list(after.graph.node[0].input) == [f"x{i}" for i in range(number)]
    if number < 10:
        assert_equal_numbers(before, after)


def test_one_operand_of_another_kind_is_no_match() -> None:
    text = (
        "(float[2] a, float[2] b, float[2] c) => (float[6] y) { p = Relu(a) q = Relu(b) r = Neg(c) "
    )
    assert_refuses(f"{HEAD}{text}{concat('p, q, r')} }}", ReluAfterConcatPass)


def test_an_operand_with_another_reader_is_no_match() -> None:
    text = (
        "(float[2] a, float[2] b) => (float[4] y, float[2] z) { p = Relu(a) q = Relu(b) z = Neg(q) "
    )
    assert_refuses(f"{HEAD}{text}{concat('p, q')} }}", ReluAfterConcatPass)


def test_one_tensor_may_be_read_twice_as_a_placeholder_but_not_as_an_operator() -> None:
    text = "(float[2] a) => (float[4] y) { p = Relu(a) q = Relu(a) " + concat("p, q") + " }"
    _, record = run_pass(HEAD + text, ReluAfterConcatPass)
    assert record.replaced == 1
    text = "(float[2] a) => (float[4] y) { p = Relu(a) " + concat("p, p") + " }"
    assert_refuses(HEAD + text, ReluAfterConcatPass)


@pytest.mark.parametrize("number", [2, 3, 5])
def test_split_to_any_number(number: int) -> None:
    parts = ", ".join(f"p{i}" for i in range(number))
    text = f"(float[{6 * number}] x) => (float[{6 * number}] z) {{ {parts} = Split(x) {concat(parts)} z = Neg(y) }}"
    after, record = run_pass(HEAD + text, SplitOfConcatPass)
    assert (record.replaced, [node.op_type for node in after.graph.node]) == (1, ["Neg"])
    swapped = ", ".join(f"p{i}" for i in (1, 0, *range(2, number)))
    assert_refuses(HEAD + text.replace(concat(parts), concat(swapped)), SplitOfConcatPass)
    fewer = ", ".join(f"p{i}" for i in range(number - 1))
    text = text.replace(concat(parts), concat(fewer)).replace(
        f"{6 * number}] z", f"{6 * number - 6}] z"
    )
    assert_refuses(HEAD + text, SplitOfConcatPass)


class NestedConcatPass(PatternFusionPass):
    """Concat(Concat(a, b, …), c)  ==>  Concat(a, b, …, c): its result is of the next number."""

    def Patterns(self) -> Any:
        def of(number: int) -> Pattern:
            def make(*xs: EsTensor) -> EsTensor:
                return es.Concat(es.Concat(*xs[:-1], axis=0), xs[-1], axis=0)

            return Pattern(built(number + 1, make))

        return VariadicPattern("Concat", of)

    def Replacement(self, match: Any) -> Any:
        return built(match.number + 1, lambda *xs: es.Concat(*xs, axis=0))


def test_nodes_that_a_rewrite_adds_are_matched_too() -> None:
    text = """(float[2] a, float[2] b, float[2] c, float[2] d) => (float[8] y) {
    p = Concat<axis = 0>(a, b) q = Concat<axis = 0>(p, c) y = Concat<axis = 0>(q, d)
}"""
    after, record = run_pass(HEAD + text, NestedConcatPass)
    assert record.replaced == 2
    assert [list(node.input) for node in after.graph.node] == [["a", "b", "c", "d"]]


@pytest.mark.parametrize("checked", [ReluAfterConcatPass, SplitOfConcatPass])
def test_check_pass_draws_several_numbers(checked: Any) -> None:
    result = check_pass(checked, instances=8, mutations=6)
    assert result.patterns == (1, 1)
    assert result.tried


def test_explain_says_that_the_operator_is_missing() -> None:
    calls: list[str] = []

    class Watch:
        @hookimpl
        def gehost_before_rule(self, source: Any) -> None:
            calls.append(source.name)

    host = Host(HostOptions(plugins=False), plugins=[("watch", Watch())])
    host.passes.add(pass_spec(ReluAfterConcatPass, mark_of(ReluAfterConcatPass)))
    host.run(parse(HEAD + "(float[2] a) => (float[2] y) { y = Relu(a) }"))
    assert calls == ["g"]


def test_the_operator_must_grow_with_the_number() -> None:
    def of(number: int) -> Pattern:
        return Pattern(built(2, lambda a, b: es.Concat(a, b, axis=0)))

    with pytest.raises(PatternError, match="for 2 has no Concat with one input or output more"):
        VariadicPattern("Concat", of)
    wrong: Any = lambda number: None  # noqa: E731
    with pytest.raises(PatternError, match="the pattern for 1 is None, not a Pattern"):
        VariadicPattern("Concat", wrong)
