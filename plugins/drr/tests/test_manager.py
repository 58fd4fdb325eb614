"""The pass manager: order, levels, what it prints, and dead-code elimination."""

from __future__ import annotations

import io
from typing import Any

import onnx
import pytest

from gehost import CustomPassStage, Graph, HostOptions, PassError, PatternError, UsageError, ops
from gehost_drr import (
    REG_IR_PASS,
    DeadCodeEliminationPass,
    PassManager,
    PatternRewritePass,
    drr,
)

from .conftest import CHAIN, Greedy, model_of, ops_of, replace

# -- passes ---------------------------------------------------------------------------------------------------------


class Costly(PatternRewritePass):
    opt_level = 3
    patterns = (replace("Relu", "Abs"),)


def test_a_pass_above_the_managers_level_is_skipped_for_that_reason() -> None:
    (outcome,) = PassManager(opt_level=2).AddPass(Costly()).Run(model_of(CHAIN)).passes
    assert (outcome.status, outcome.reason) == ("skipped", "opt level 3 is above the manager's 2")
    (outcome,) = PassManager(opt_level=3).AddPass(Costly()).Run(model_of(CHAIN)).passes
    assert (outcome.status, outcome.count) == ("done", 1)


def test_name_and_level_may_be_said_to_the_constructor() -> None:
    class Published(PatternRewritePass):
        patterns = (replace("Relu", "Abs"),)

        def __init__(self) -> None:
            super().__init__("published_pass", 4)

    (outcome,) = PassManager(opt_level=3).AddPass(Published()).Run(model_of(CHAIN)).passes
    assert (outcome.name, outcome.reason) == (
        "published_pass",
        "opt level 4 is above the manager's 3",
    )


def test_one_pass_may_run_twice_under_two_names() -> None:
    @REG_IR_PASS("registered")
    class Registered(Costly):
        opt_level = 1

    result = PassManager().AddPass(Registered()).AddPass(Registered("again")).Run(model_of(CHAIN))
    assert [(pass_.name, pass_.count) for pass_ in result.passes] == [
        ("registered", 1),
        ("again", 0),
    ]


def test_a_pass_may_decline_a_graph() -> None:
    class Declines(PatternRewritePass):
        patterns = (replace("Relu", "Abs"),)

        def CanApplyOn(self, graph: Graph) -> bool:
            return graph.owner is not None

    (outcome,) = PassManager().AddPass(Declines()).Run(model_of(CHAIN)).passes
    assert (outcome.status, outcome.reason) == ("not changed", 'CanApplyOn refused graph "main"')


@pytest.mark.parametrize(
    "stages",
    [
        ("kBeforeInferShape", "kAfterBuiltinFusionPass"),
        ("kAfterBuiltinFusionPass", "kBeforeInferShape"),
    ],
)
def test_passes_run_as_they_were_added_whatever_their_stages(stages: tuple[str, str]) -> None:
    class First(PatternRewritePass):
        stage = CustomPassStage[stages[0]]
        patterns = (replace("Relu", "Abs"),)

    class Second(PatternRewritePass):
        stage = CustomPassStage[stages[1]]
        patterns = (replace("Relu", "Exp"),)

    first, second = PassManager().AddPass(First()).AddPass(Second()).Run(model_of(CHAIN)).passes
    assert (first.count, second.count) == (1, 0)


@pytest.mark.parametrize("raises", [True, False])
def test_a_pass_that_fails_leaves_the_graph_as_it_was(raises: bool) -> None:
    class Fails(Greedy):
        def Run(self, graph: Graph) -> bool:
            super().Run(graph)
            if raises:
                raise RuntimeError("boom")
            return False

    model = model_of(CHAIN)
    with pytest.raises(PassError, match="boom" if raises else "it returned FAILED"):
        PassManager().AddPass(Fails(replace("Relu", "Abs"))).Run(model)
    assert model == model_of(CHAIN)
    going_on = HostOptions(plugins=False, cleanup=False, keep_going=True)
    result = PassManager(options=going_on).AddPass(Fails(replace("Relu", "Abs"))).Run(model)
    assert ops_of(result.model) == ops_of(model)
    assert (result.passes[0].status, result.passes[0].count, result.passes[0].rewrites) == (
        "failed",
        0,
        {},
    )
    assert result.Statistics().startswith("Fails: failed; Fails (")


def test_a_result_has_the_matches_that_were_refused() -> None:
    @drr.rule()
    def absolute(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        pat.RequireNativeCall(
            lambda m: m.x.Rank() == 2 or m.reject(f"rank: no matrix, {m.x.Shape()}")
        )
        res.y = res.Abs(res.x)

    text = """(float[2] a, float[2,2] b, float[3] c) => (float[2] d, float[2,2] e, float[3] f) {
    [one] d = Relu(a) [two] e = Relu(b) [three] f = Relu(c)
}"""
    result = PassManager().AddPass(Greedy(absolute)).Run(model_of(text))
    (outcome,) = result.passes
    assert outcome.refused == {
        "rank: no matrix, [2]": ("one",),
        "rank: no matrix, [3]": ("three",),
    }
    assert result.Statistics() == "Greedy: 1 rewrite (absolute 1), converged; refused 2 (rank 2)"


def test_a_pass_without_rules_fails() -> None:
    class Empty(PatternRewritePass):
        pass

    with pytest.raises(
        PassError, match="it has no rules: define patterns, or override InitializePatterns"
    ):
        PassManager().AddPass(Empty()).Run(model_of(CHAIN))


def test_a_pass_that_forgets_to_initialize_its_rules_is_told_so() -> None:
    class Forgets(Costly):
        opt_level = 1

        def Initialize(self, context: Any) -> None:
            del context

    with pytest.raises(
        PassError, match=r"its Initialize does not call super\(\).Initialize\(context\)"
    ):
        PassManager().AddPass(Forgets()).Run(model_of(CHAIN))


@pytest.mark.parametrize("patterns", [("no rule",), replace("Relu", "Abs"), (PatternRewritePass,)])
def test_what_is_no_list_of_rules_is_refused_where_the_class_stands(patterns: Any) -> None:
    with pytest.raises(
        PatternError, match=rf"^{__file__}:\d+: Wrong: patterns must be a list of rules, got"
    ):
        type("Wrong", (PatternRewritePass,), {"patterns": patterns})


def test_a_pass_that_cannot_initialize_fails() -> None:
    class Broken(PatternRewritePass):
        def Initialize(self, context: Any) -> bool:
            return False

    with pytest.raises(PassError, match=r"^Broken .*: Initialize returned False"):
        PassManager().AddPass(Broken()).Run(model_of(CHAIN))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [(Costly, "wants an object of a subclass"), (Costly(), "was added already")],
)
def test_what_cannot_be_added(inputs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PassManager().AddPass(Costly()).AddPass(inputs)


def test_a_manager_runs_again_on_another_model() -> None:
    manager = PassManager().AddPass(Greedy(replace("Relu", "Abs"), replace("Gelu", "Abs")))
    assert manager.Run(model_of(CHAIN, 17)).passes[0].count == 1
    assert (
        manager.Run(model_of("(float[2] x) => (float[2] y) { y = Gelu(x) }", 20)).passes[0].count
        == 1
    )


def test_timing_names_each_pass_that_ran() -> None:
    text = (
        PassManager(2)
        .AddPass(Costly())
        .AddPass(Greedy(replace("Relu", "Abs")))
        .Run(model_of(CHAIN))
        .Timing()
    )
    assert [line.split()[-1] for line in text.splitlines()] == ["Greedy"]


# -- printing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ({}, ["before First", "after First", "before Second", "after Second"]),
        (
            {"before": lambda name: name == "Second"},
            ["after First", "before Second", "after Second"],
        ),
        ({"after": lambda name: False}, ["before First", "before Second"]),
        ({"only_on_change": True}, ["before First", "after First", "before Second"]),
    ],
)
def test_graphs_are_printed_around_the_passes_that_were_named(
    options: dict[str, Any], titles: list[str]
) -> None:
    class First(Costly):
        opt_level = 1

    class Second(First):
        pass

    stream = io.StringIO()
    manager = PassManager().AddPass(First()).AddPass(Second())
    manager.EnableIRPrinting(stream=stream, **options)
    manager.Run(model_of(CHAIN))
    lines = stream.getvalue().splitlines()
    rules = [index for index, line in enumerate(lines) if line.startswith("===-")]
    results = [lines[index + 1].strip() for index in rules[::2]]
    assert [rule + 2 for rule in rules[::2]] == rules[1::2]
    assert results == [f"IRPrinting on builtin.module {title} pass" for title in titles]


# -- dead code ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dead", "rest"),
    [
        ("d = Neg(x) e = Abs(d) f = Exp(e)", 0),
        ("d = RandomNormalLike(x)", 0),
        ("d = acme.Log(x)", 1),
        ("d = Neg(x) e = acme.Log(d)", 2),
        (
            "d = If(c) <then_branch = t () => (p) { p = Neg(x) }, else_branch = e () => (q) { q = Abs(x) }>",
            0,
        ),
        (
            "d = If(c) <then_branch = t () => (p) { p = acme.Log(x) }, else_branch = e () => (q) { q = Abs(x) }>",
            1,
        ),
    ],
)
def test_what_nobody_reads_goes_unless_it_may_do_more(dead: str, rest: int) -> None:
    text = f"(bool c, float[2] x) => (float[2] y) {{ y = Relu(x) {dead} }}"
    result = PassManager().AddPass(DeadCodeEliminationPass()).Run(model_of(text))
    assert len(result.model.graph.node) == 1 + rest
    assert result.passes[0].count == len(model_of(text).graph.node) - 1 - rest


def test_what_a_nested_body_reads_is_not_dead() -> None:
    text = """(bool c, float[2] x) => (float[2] y) {
    a = Neg(x)
    y = If(c) <then_branch = t () => (float[2] p) { p = Relu(a) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
}"""
    assert (
        len(PassManager().AddPass(DeadCodeEliminationPass()).Run(model_of(text)).model.graph.node)
        == 2
    )


def test_what_only_dead_code_of_a_body_reads_is_dead_too() -> None:
    text = """(bool c, float[2] x) => (float[2] y) {
    a = Neg(x)
    y = If(c) <then_branch = t () => (float[2] p) { d = Exp(a) p = Relu(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
}"""
    result = PassManager().AddPass(DeadCodeEliminationPass()).Run(model_of(text))
    assert (ops_of(result.model), result.passes[0].count) == ({"If": 1}, 2)


def test_a_graph_whose_annotations_name_tensors_is_left_alone() -> None:
    model = model_of("(float[2] x) => (float[2] y) { y = Relu(x) d = Neg(x) }")
    model.graph.quantization_annotation.add(tensor_name="d")
    assert len(PassManager().AddPass(DeadCodeEliminationPass()).Run(model).model.graph.node) == 2


@ops.register("acme::Twice")
def twice(x: Any) -> Any:
    return x + x


@ops.register("acme::Counted", traits=["stateful"])
def counted(x: Any) -> Any:
    return x + x


class KnowsOperators(DeadCodeEliminationPass):
    """Of this module, whose operators the manager registers."""


def test_a_registered_operator_is_removed_unless_it_has_traits() -> None:
    text = "(float[2] x) => (float[2] y) { y = Relu(x) d = acme.Twice(x) e = acme.Counted(x) }"
    result = PassManager().AddPass(KnowsOperators()).Run(model_of(text))
    assert [node.op_type for node in result.model.graph.node] == ["Relu", "Counted"]


def test_an_operator_of_which_the_model_brings_the_body_is_not_onnxs_own() -> None:
    model = model_of("(float[2] x) => (float[2] y) { y = Relu(x) d = Softsign(x) }")
    body = onnx.helper.make_node("Counted", ["x"], ["y"], domain="acme")
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("acme", 1)]
    model.functions.append(onnx.helper.make_function("", "Softsign", ["x"], ["y"], [body], opsets))
    result = PassManager().AddPass(DeadCodeEliminationPass()).Run(model)
    assert [node.op_type for node in result.model.graph.node] == ["Relu", "Softsign"]


def test_rules_may_make_operators_of_their_module() -> None:
    """Wherever the pass that lists them is written."""

    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Add(pat.x, pat.x)
        res.y = res.Op("acme::Twice")(res.x)

    class OfAnotherFile(PatternRewritePass):
        __module__ = "elsewhere"
        patterns = (rule,)

    result = (
        PassManager()
        .AddPass(OfAnotherFile())
        .Run(model_of("(float[2] x) => (float[2] y) { y = Add(x, x) }"))
    )
    assert [node.op_type for node in result.model.graph.node] == ["Twice"]
    assert [function.name for function in result.model.functions] == ["Twice"]
    assert [node.op_type for node in result.model.functions[0].node] == ["Add", "Identity"]
