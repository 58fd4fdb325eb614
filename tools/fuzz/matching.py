"""Compares what gehost finds with what the oracle finds, and with what gehost finds in a model that was changed elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx

from gehost.pattern.match import PatternMatcher
from tools.fuzz import oracle, variations
from tools.fuzz.checks import Failure, Tally, fresh_model
from tools.fuzz.plans import Plan, random_plan
from tools.fuzz.rewrites import FuzzedFusion

Found = dict[str, frozenset[str]]
"""The first outputs of the matched nodes, by that of the node that makes output 0."""


def found_in(model: onnx.ModelProto, plan: Plan, known_as: Callable[[str], str] = str) -> Found:
    """What the matcher finds in the root graph."""
    (pattern,) = FuzzedFusion(plan).Patterns()
    results: Found = {}
    for match in PatternMatcher(pattern, fresh_model(model), plan.config):
        output = known_as(match.GetMatchedNode(pattern.graph.outputs[0]).proto.output[0])
        results[output] = frozenset(
            known_as(node.proto.output[0]) for node in match.GetMatchedNodes()
        )
    return results


def check_matches(model: onnx.ModelProto, rng: random.Random, tally: Tally) -> None:
    """A random pattern has the matches that the oracle finds, and the same ones after changes that do not concern it."""
    plan = random_plan(fresh_model(model), rng, "P", most=3)
    if plan is None:
        return
    plan = oracle.simplified(plan)
    result = found_in(model, plan)
    _compare_with_oracle(model, plan, result, tally)
    tally.counts["matches of the oracle"] += len(result)
    _check_reasons(model, plan, result, tally)
    several = (
        len(plan.outputs) > 1
        or any(step.commutative for step in plan.steps)
        or plan.config.commutative_match
    )
    other, known_as = variations.renamed(model)
    _compare("renaming", result, found_in(other, plan, known_as), False, model, other, tally)
    other = variations.reordered(model, rng)
    _compare("another order", result, found_in(other, plan), several, model, other, tally)
    ops = {op for step in plan.steps for op in step.ops}
    if "Identity" not in ops and not any(
        getattr(ref, "maybe_identity", False) for step in plan.steps for ref in step.operands
    ):
        other = variations.detoured(model, ops, rng)
        _compare("an Identity elsewhere", result, found_in(other, plan), False, model, other, tally)


def _compare_with_oracle(model: onnx.ModelProto, plan: Plan, result: Found, tally: Tally) -> None:
    graph = model.graph
    expected = {
        graph.node[at].output[0]: {
            frozenset(graph.node[inner].output[0] for inner in nodes) for nodes in choices
        }
        for at, choices in oracle.matches(graph, plan, model.ir_version).items()
    }
    tally.checks["oracle"] += 1
    if result.keys() != expected.keys():
        missing, more = (
            sorted(expected.keys() - result.keys()),
            sorted(result.keys() - expected.keys()),
        )
        raise Failure(
            "oracle", f"not found at {missing}, found for nothing at {more}: {plan}", [model]
        )
    for anchor, nodes in result.items():
        if nodes not in expected[anchor]:
            raise Failure(
                "oracle",
                f"at {anchor}: {sorted(nodes)} is none of {expected[anchor]}: {plan}",
                [model],
            )


def _check_reasons(model: onnx.ModelProto, plan: Plan, result: Found, tally: Tally) -> None:
    """The matcher that tells reasons has one for each node at which there is no match, and for no other."""
    (pattern,) = FuzzedFusion(plan).Patterns()
    graph = fresh_model(model).graph
    matcher = PatternMatcher(pattern, graph, plan.config)
    for node in graph.nodes:
        failure = matcher.why_not(node)
        tally.checks["reasons"] += 1
        if (failure is None) != (node.proto.output[0] in result):
            raise Failure(
                "reasons",
                f"at {node.label}: {failure}, but the matcher found {sorted(result)}: {plan}",
                [model],
            )


def _compare(
    what: str,
    one: Found,
    other: Found,
    several: bool,
    model: onnx.ModelProto,
    changed: onnx.ModelProto,
    tally: Tally,
) -> None:
    """The same matches; where a node may have several, the same nodes have one."""
    tally.checks[what] += 1
    same = one.keys() == other.keys() if several else one == other
    if not same:
        raise Failure(what, f"{one} became {other}", [model, changed])
