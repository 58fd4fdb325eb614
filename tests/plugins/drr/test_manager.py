"""The pass manager: the greedy driver, levels, what it prints, and dead-code elimination."""

from __future__ import annotations

import io
from typing import Any

import onnx
import pytest

from gehost import Graph, PassError, UsageError, ops
from gehost_drr import (
    ApplyPatternsGreedily,
    DeadCodeEliminationPass,
    FrozenRewritePatternSet,
    GreedyResult,
    GreedyRewriteConfig,
    Pass,
    PassManager,
    PatternRewritePass,
    RewritePatternSet,
    drr,
)

from .conftest import model_of, ops_of

CHAIN = "(float[2] x) => (float[2] y) { a = Relu(x) b = Abs(a) y = Neg(b) }"


def replace(old: str, new: str, name: str = "", **options: Any) -> Any:
    """A rule that replaces one unary operator by another."""

    @drr.rule(name=name or f"{old}_to_{new}", **options)
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Op(old)(pat.x)
        res.y = res.Op(new)(res.x)

    return rule


class Greedy(Pass):
    """Runs rules, and keeps what the driver said."""

    def __init__(self, *rules: Any, config: GreedyRewriteConfig | None = None, **labels: Any) -> None:
        self.patterns = FrozenRewritePatternSet(RewritePatternSet(*rules), **labels)
        self.config = config
        self.said: list[GreedyResult] = []

    def Run(self, graph: Graph) -> None:
        self.said.append(ApplyPatternsGreedily(graph, self.patterns, self.config))


# -- the greedy driver ----------------------------------------------------------------------------------------------


def test_rules_that_feed_each_other_run_until_none_applies() -> None:
    """Each rule makes what the one before it looks for, so that a single round would leave two of three undone."""
    greedy = Greedy(replace("Exp", "Log"), replace("Neg", "Exp"), replace("Relu", "Neg"))
    result = PassManager().AddPass(greedy).Run(model_of("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert ops_of(result.model) == {"Log": 1}
    assert greedy.said == [(True, 3)]
    (done,) = result.passes
    assert (done.count, done.converged, done.reason) == (3, True, "")
    assert done.rewrites == {"Relu_to_Neg": 1, "Neg_to_Exp": 1, "Exp_to_Log": 1}
    assert result.Statistics() == "Greedy: 3 rewrites (Exp_to_Log 1, Neg_to_Exp 1, Relu_to_Neg 1), converged"


def test_that_it_did_not_converge_is_said() -> None:
    greedy = Greedy(replace("Relu", "Abs"), replace("Abs", "Relu"), config=GreedyRewriteConfig(max_iterations=3))
    result = PassManager().AddPass(greedy).Run(model_of("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert greedy.said == [(False, 6)]
    assert (result.passes[0].converged, result.passes[0].reason) == (False, "not converged after 3 iterations")
    assert "not converged" in result.Statistics()


def test_the_most_beneficial_rule_is_tried_first_then_the_first_added() -> None:
    rules = [replace("Relu", "Abs"), replace("Relu", "Neg", benefit=2), replace("Relu", "Exp", benefit=2)]
    result = PassManager().AddPass(Greedy(*rules)).Run(model_of("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert ops_of(result.model) == {"Neg": 1}


@pytest.mark.parametrize(
    ("labels", "ran"),
    [
        ({}, ["r", "a", "n"]),
        ({"disabled_pattern_labels": ["math"]}, ["n"]),
        ({"disabled_pattern_labels": ["a"]}, ["r", "n"]),
        ({"enabled_pattern_labels": ["math"]}, ["r", "a"]),
        ({"enabled_pattern_labels": ["math"], "disabled_pattern_labels": ["fast"]}, ["r"]),
    ],
)
def test_labels_choose_rules(labels: dict[str, list[str]], ran: list[str]) -> None:
    rules = [
        replace("Relu", "Selu", "r", labels=["math"]),
        replace("Abs", "Exp", "a", labels=["math", "fast"]),
        replace("Neg", "Elu", "n"),
    ]
    (done,) = PassManager().AddPass(Greedy(*rules, **labels)).Run(model_of(CHAIN)).passes
    assert [name for name, count in done.rewrites.items() if count] == ran


def test_a_rule_that_does_not_apply_is_told_and_the_others_run() -> None:
    result = PassManager().AddPass(Greedy(replace("Gelu", "Abs"), replace("Relu", "Abs"))).Run(model_of(CHAIN))
    (done,) = result.passes
    assert (done.status, done.count) == ("done", 1)
    assert done.reason == "Gelu_to_Abs: Gelu needs opset 20, the model has 17"


@pytest.mark.parametrize(("top_down", "left"), [(True, "y"), (False, "a")])
def test_of_overlapping_matches_the_traversal_chooses(top_down: bool, left: str) -> None:
    """Of three in a row the first two are a pair, or the last two."""

    @drr.rule()
    def pair(pat: Any, res: Any) -> None:
        pat.out = pat.Neg(pat.Neg(pat.x))
        res.out = res.Abs(res.x)

    greedy = Greedy(pair, config=GreedyRewriteConfig(use_top_down_traversal=top_down))
    text = "(float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Neg(b) }"
    result = PassManager().AddPass(greedy).Run(model_of(text))
    assert greedy.said == [(True, 1)]
    assert [node.output[0] for node in result.model.graph.node if node.op_type == "Neg"] == [left]


def test_bottom_up_too_rules_run_until_none_applies() -> None:
    config = GreedyRewriteConfig(use_top_down_traversal=False)
    greedy = Greedy(replace("Exp", "Log"), replace("Neg", "Exp"), replace("Relu", "Neg"), config=config)
    result = PassManager().AddPass(greedy).Run(model_of("(float[2] x) => (float[2] y) { t = Relu(x) y = Relu(t) }"))
    assert (ops_of(result.model), greedy.said) == ({"Log": 2}, [(True, 6)])


def test_the_driver_works_inside_a_pass_only() -> None:
    with pytest.raises(PassError, match="works inside the Run of a gehost_drr.Pass"):
        ApplyPatternsGreedily(object(), RewritePatternSet())  # pyright: ignore[reportArgumentType]


def test_it_runs_in_nested_bodies_too() -> None:
    text = """(bool c, float[2] x) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] q) { q = Neg(x) }>
}"""
    greedy = Greedy(replace("Relu", "Abs"))
    result = PassManager().AddPass(greedy).Run(model_of(text))
    assert greedy.said == [(True, 0), (True, 1), (True, 0)]
    assert result.passes[0].count == 1


# -- passes ---------------------------------------------------------------------------------------------------------


class Costly(PatternRewritePass):
    opt_level = 3
    patterns = (replace("Relu", "Abs"),)


def test_a_pass_above_the_managers_level_is_skipped_for_that_reason() -> None:
    (done,) = PassManager(opt_level=2).AddPass(Costly()).Run(model_of(CHAIN)).passes
    assert (done.status, done.reason) == ("skipped", "opt level 3 is above the manager's 2")
    (done,) = PassManager(opt_level=3).AddPass(Costly()).Run(model_of(CHAIN)).passes
    assert (done.status, done.count) == ("done", 1)


def test_name_and_level_may_be_said_to_the_constructor() -> None:
    class Published(PatternRewritePass):
        patterns = (replace("Relu", "Abs"),)

        def __init__(self) -> None:
            super().__init__("published_pass", 4)

    (done,) = PassManager(opt_level=3).AddPass(Published()).Run(model_of(CHAIN)).passes
    assert (done.name, done.reason) == ("published_pass", "opt level 4 is above the manager's 3")


def test_a_pass_may_decline_a_graph() -> None:
    class Declines(PatternRewritePass):
        patterns = (replace("Relu", "Abs"),)

        def CanApplyOn(self, graph: Graph) -> bool:
            return graph.owner is not None

    (done,) = PassManager().AddPass(Declines()).Run(model_of(CHAIN)).passes
    assert (done.status, done.reason) == ("not changed", 'CanApplyOn refused graph "main"')


def test_a_pass_that_cannot_initialize_fails() -> None:
    class Broken(PatternRewritePass):
        def Initialize(self, context: Any) -> bool:
            return False

    with pytest.raises(PassError, match=r"^Broken .*: Initialize returned False"):
        PassManager().AddPass(Broken()).Run(model_of(CHAIN))


@pytest.mark.parametrize(("given", "told"), [(Costly, "wants an object of a subclass"), (Costly(), "was added already")])
def test_what_cannot_be_added(given: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        PassManager().AddPass(Costly()).AddPass(given)


def test_a_manager_runs_again_on_another_model() -> None:
    manager = PassManager().AddPass(Greedy(replace("Relu", "Abs"), replace("Gelu", "Abs")))
    assert manager.Run(model_of(CHAIN, 17)).passes[0].count == 1
    assert manager.Run(model_of("(float[2] x) => (float[2] y) { y = Gelu(x) }", 20)).passes[0].count == 1


def test_timing_names_each_pass_that_ran() -> None:
    text = PassManager(2).AddPass(Costly()).AddPass(Greedy(replace("Relu", "Abs"))).Run(model_of(CHAIN)).Timing()
    assert [line.split()[-1] for line in text.splitlines()] == ["Greedy"]


# -- printing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ({}, ["before First", "after First", "before Second", "after Second"]),
        ({"before": lambda name: name == "Second"}, ["after First", "before Second", "after Second"]),
        ({"after": lambda name: False}, ["before First", "before Second"]),
        ({"only_on_change": True}, ["before First", "after First", "before Second"]),
    ],
)
def test_graphs_are_printed_around_the_passes_that_were_named(options: dict[str, Any], titles: list[str]) -> None:
    class First(Costly):
        opt_level = 1

    class Second(First):
        pass

    stream = io.StringIO()
    manager = PassManager().AddPass(First()).AddPass(Second())
    manager.EnableIRPrinting(stream=stream, **options)
    manager.Run(model_of(CHAIN))
    found = [line.strip("= ") for line in stream.getvalue().splitlines() if line.startswith("=")]
    assert found == [f"IRPrinting {title} pass" for title in titles]


# -- dead code ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dead", "left"),
    [
        ("d = Neg(x) e = Abs(d) f = Exp(e)", 0),
        ("d = RandomNormalLike(x)", 0),
        ("d = acme.Log(x)", 1),
        ("d = Neg(x) e = acme.Log(d)", 2),
        ("d = If(c) <then_branch = t () => (p) { p = Neg(x) }, else_branch = e () => (q) { q = Abs(x) }>", 0),
        ("d = If(c) <then_branch = t () => (p) { p = acme.Log(x) }, else_branch = e () => (q) { q = Abs(x) }>", 1),
    ],
)
def test_what_nobody_reads_goes_unless_it_may_do_more(dead: str, left: int) -> None:
    text = f"(bool c, float[2] x) => (float[2] y) {{ y = Relu(x) {dead} }}"
    result = PassManager().AddPass(DeadCodeEliminationPass()).Run(model_of(text))
    assert len(result.model.graph.node) == 1 + left
    assert result.passes[0].count == len(model_of(text).graph.node) - 1 - left


def test_what_a_nested_body_reads_is_not_dead() -> None:
    text = """(bool c, float[2] x) => (float[2] y) {
    a = Neg(x)
    y = If(c) <then_branch = t () => (float[2] p) { p = Relu(a) }, else_branch = e () => (float[2] q) { q = Abs(x) }>
}"""
    assert len(PassManager().AddPass(DeadCodeEliminationPass()).Run(model_of(text)).model.graph.node) == 2


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
    @drr.rule()
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Add(pat.x, pat.x)
        res.y = res.Op("acme::Twice")(res.x)

    result = PassManager().AddPass(Greedy(rule)).Run(model_of("(float[2] x) => (float[2] y) { y = Add(x, x) }"))
    assert [node.op_type for node in result.model.graph.node] == ["Twice"]
    assert [function.name for function in result.model.functions] == ["Twice"]
    assert [node.op_type for node in result.model.functions[0].node] == ["Add", "Identity"]
