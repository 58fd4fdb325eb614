"""The greedy driver: which rules it runs, in which order, how often, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import Graph, PassError, PatternError, UsageError, es
from gehost_drr import (
    ApplyPatternsGreedily,
    GreedyRewriteConfig,
    Pass,
    PassManager,
    RewritePatternSet,
    drr,
)

from .conftest import CHAIN, Greedy, model_of, ops_of, replace


def test_rules_that_feed_each_other_run_until_none_applies() -> None:
    """Each rule makes what the one before it looks for, so that a single round would leave two of three undone."""
    greedy = Greedy(replace("Exp", "Log"), replace("Neg", "Exp"), replace("Relu", "Neg"))
    result = (
        PassManager().AddPass(greedy).Run(model_of("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    )
    assert ops_of(result.model) == {"Log": 1}
    assert greedy.said == [(True, 3)]
    (outcome,) = result.passes
    assert (outcome.count, outcome.converged, outcome.reason) == (3, True, "")
    assert outcome.rewrites == {"Relu_to_Neg": 1, "Neg_to_Exp": 1, "Exp_to_Log": 1}
    assert (
        result.Statistics()
        == "Greedy: 3 rewrites (Exp_to_Log 1, Neg_to_Exp 1, Relu_to_Neg 1), converged"
    )


def test_that_it_did_not_converge_is_said() -> None:
    greedy = Greedy(
        replace("Relu", "Abs"), replace("Abs", "Relu"), config=GreedyRewriteConfig(max_iterations=3)
    )
    result = (
        PassManager().AddPass(greedy).Run(model_of("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    )
    assert greedy.said == [(False, 6)]
    assert (result.passes[0].converged, result.passes[0].reason) == (
        False,
        "not converged after 3 iterations",
    )
    assert "not converged" in result.Statistics()


def test_the_most_beneficial_rule_is_tried_first_then_the_first_added() -> None:
    rules = [
        replace("Relu", "Abs"),
        replace("Relu", "Neg", benefit=2),
        replace("Relu", "Exp", benefit=2),
    ]
    result = (
        PassManager()
        .AddPass(Greedy(*rules))
        .Run(model_of("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    )
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
    (outcome,) = PassManager().AddPass(Greedy(*rules, **labels)).Run(model_of(CHAIN)).passes
    assert [name for name, count in outcome.rewrites.items() if count] == ran


def test_a_rule_that_does_not_apply_is_told_and_the_others_run() -> None:
    result = (
        PassManager()
        .AddPass(Greedy(replace("Gelu", "Abs"), replace("Relu", "Abs")))
        .Run(model_of(CHAIN))
    )
    (outcome,) = result.passes
    assert (outcome.status, outcome.count) == ("done", 1)
    assert outcome.reason == "Gelu_to_Abs: Gelu needs opset 20, the model has 17"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"min_opset": 18}, "Relu_to_Abs: needs opset 18 or newer, the model has 17"),
        ({"max_opset": 16}, "Relu_to_Abs: is for opsets up to 16, the model has 17"),
        ({"min_opset": 17, "max_opset": 17}, ""),
    ],
)
def test_a_rule_for_other_opsets_does_not_run(options: dict[str, int], reason: str) -> None:
    (outcome,) = (
        PassManager().AddPass(Greedy(replace("Relu", "Abs", **options))).Run(model_of(CHAIN)).passes
    )
    assert (outcome.count, outcome.reason) == (0 if reason else 1, reason)


def test_a_rule_that_fails_is_told_at_its_own_line() -> None:
    @drr.rule()
    def broken(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        res.y = res.Elu(alpha=lambda m: "much")(res.x)

    class OfAnotherFile(Greedy):
        pass

    OfAnotherFile.origin = es.Origin("/other.py", 1)
    with pytest.raises(
        PassError,
        match=rf"^OfAnotherFile \({__file__}:\d+\): Replacement at node .*Elu: alpha must be float",
    ):
        PassManager().AddPass(OfAnotherFile(broken)).Run(model_of(CHAIN))


@pytest.mark.parametrize("most", [0, -1, "3"])
def test_a_driver_tries_at_least_once(most: Any) -> None:
    with pytest.raises(UsageError, match=rf"max_iterations must be 1 or more, got {most!r}"):
        GreedyRewriteConfig(max_iterations=most)


def test_a_set_takes_rules_alone() -> None:
    with pytest.raises(PatternError, match=rf"^{__file__}:\d+: wanted a rule, got 'rule'"):
        RewritePatternSet("rule")  # pyright: ignore[reportArgumentType]


def test_the_driver_takes_sets_of_rules_and_no_lists() -> None:
    class Lists(Pass):
        def Run(self, graph: Graph) -> None:
            ApplyPatternsGreedily(graph, [replace("Relu", "Abs")])  # pyright: ignore[reportArgumentType]

    with pytest.raises(
        PassError, match="wants a FrozenRewritePatternSet or RewritePatternSet, got"
    ):
        PassManager().AddPass(Lists()).Run(model_of(CHAIN))


@pytest.mark.parametrize(("top_down", "rest"), [(True, "y"), (False, "a")])
def test_of_overlapping_matches_the_traversal_chooses(top_down: bool, rest: str) -> None:
    """Of three in a row the first two are a pair, or the last two."""

    @drr.rule()
    def pair(pat: Any, res: Any) -> None:
        pat.out = pat.Neg(pat.Neg(pat.x))
        res.out = res.Abs(res.x)

    greedy = Greedy(pair, config=GreedyRewriteConfig(use_top_down_traversal=top_down))
    text = "(float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Neg(b) }"
    result = PassManager().AddPass(greedy).Run(model_of(text))
    assert greedy.said == [(True, 1)]
    assert [node.output[0] for node in result.model.graph.node if node.op_type == "Neg"] == [rest]


def test_bottom_up_too_rules_run_until_none_applies() -> None:
    config = GreedyRewriteConfig(use_top_down_traversal=False)
    greedy = Greedy(
        replace("Exp", "Log"), replace("Neg", "Exp"), replace("Relu", "Neg"), config=config
    )
    result = (
        PassManager()
        .AddPass(greedy)
        .Run(model_of("(float[2] x) => (float[2] y) { t = Relu(x) y = Relu(t) }"))
    )
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
