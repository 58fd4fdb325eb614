"""A few random models of the many that ``make fuzz`` runs, and proof that its checks see bugs."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable

import onnx
import pytest

from gehost.ir import edits
from gehost.ir.edits import Names
from gehost.ir.region import Region
from gehost.pattern import matcher
from gehost.rewrite import replace
from tools.fuzz import cases, checks, matching, rewrites
from tools.fuzz.hanging import hang_or_die
from tools.fuzz.workers import outcomes

SEEDS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_rewritten_every_check_holds(seed):
    tally = cases.run_case(seed)
    assert tally.counts["graphs"] == 1
    assert tally.counts["whole compiles"] == 1


def test_the_matcher_finds_what_the_oracle_finds():
    tally = search(range(SEEDS, SEEDS + 100))
    assert tally.counts["matches of the oracle"] > 100


# -- what the random models are -------------------------------------------------------------------------------------


def bodies(graph: onnx.GraphProto) -> Iterable[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g


def test_models_have_everything_in_them():
    counts: Counter[str] = Counter()
    for seed in range(300):
        result = cases.model_of(seed)
        graph, opset = result.proto.graph, result.proto.opset_import[0].version
        counts[f"opset {opset}"] += 1
        counts.update(node.op_type for node in graph.node)
        inner = list(bodies(graph))
        initializers = {tensor.name for tensor in graph.initializer}
        read = {name for node in graph.node for name in node.input}
        features = {
            "body in a body": any(list(bodies(body)) for body in inner),
            "captured constant": any(
                initializers & set(node.input) for body in inner for node in body.node
            ),
            "no name": any(not node.name for node in graph.node),
            "overridable": result.proto.ir_version >= 4
            and any(info.name in initializers for info in graph.input),
            "output in the middle": any(info.name in read for info in graph.output),
            "string": 8 in {info.data_type for info in graph.initializer},
            "types stated": bool(graph.value_info),
            "symbolic": any(
                dim.dim_param for info in graph.input for dim in info.type.tensor_type.shape.dim
            ),
            "empty": any(array.size == 0 for array in result.feeds[0].values()),
            "absent input": any("" in node.input for node in graph.node),
            "allowzero": any(
                attribute.name == "allowzero" for node in graph.node for attribute in node.attribute
            ),
        }
        counts.update(name for name, there in features.items() if there)
    expected = [
        *features,
        "If",
        "Loop",
        "TopK",
        "Split",
        "Gemm",
        "LayerNormalization",
        "Pad",
        "Clip",
        "Slice",
        "Where",
    ]
    assert [
        name
        for name in [*expected, *(f"opset {opset}" for opset in range(7, 25))]
        if not counts[name]
    ] == []


def test_a_seed_gives_the_same_model_again():
    assert (
        cases.model_of(7).proto.SerializeToString() == cases.model_of(7).proto.SerializeToString()
    )


# -- planted bugs ---------------------------------------------------------------------------------------------------


def first_failure(run: Callable[[int], object]) -> str:
    """The check that fails first, on the seeds from 0 up; one that fails inside a pass is the cause of the pass's error."""
    for seed in range(60):
        try:
            run(seed)
        except Exception as error:  # noqa: BLE001 - a planted bug may end in anything
            while not isinstance(error, checks.Failure) and error.__cause__ is not None:
                error = error.__cause__
            return error.check if isinstance(error, checks.Failure) else repr(error)
    return "none"


def search(seeds: Iterable[int]) -> checks.Tally:
    tally = checks.Tally()
    for seed in seeds:
        matching.check_matches(cases.model_of(seed).proto, random.Random(seed), tally)
    return tally


def rewrite(seed: int) -> None:
    """The first pass of a case."""
    result, rng, tally = cases.model_of(seed), random.Random(seed), checks.Tally()
    plan = cases.random_plan(checks.fresh_model(result.proto), rng, "P0")
    assert plan is not None
    after = checks.check_pass(result.proto, rewrites.spec_of(plan), tally, thorough=True)
    cases.Reference(result).check(after, tally, "numbers", exact=True)


def forget_readers(pattern, binding):
    return True


def forget_the_binding(op, binding, node, inputs, bind=matcher._Op.bind):
    for tensor in op.pattern.inputs:
        if tensor is not None and tensor.index >= 0:
            binding.values[tensor.index] = None
    return bind(op, binding, node, inputs)


def forget_other_nodes(source):
    return {frozenset(op.ops): [op.index] for op in source.ops}


@pytest.mark.parametrize(
    ("place", "name", "planted"),
    [
        (matcher.CompiledPattern, "_is_closed", forget_readers),
        (matcher._Op, "bind", forget_the_binding),
        (matcher, "rivals_of", forget_other_nodes),
        (Region, "closes_cycle", lambda region: False),
    ],
)
@pytest.mark.usefixtures("interpreted")
def test_a_bug_in_the_matcher_is_seen_by_the_oracle(monkeypatch, place, name, planted):
    monkeypatch.setattr(place, name, planted)
    assert first_failure(lambda seed: search(range(20 * seed, 20 * seed + 20))) == "oracle"


def swap_operands(step, node, operands, rebuilt=rewrites._rebuilt):
    return rebuilt(step, node, operands[::-1] if node.op == "Sub" else operands)


def never_twice(counter: Iterable[int]) -> Callable[[Names, str], str]:
    """Gives names that go on from one model to the next."""
    return lambda names, stem: f"{stem}_{next(iter(counter))}"


@pytest.mark.parametrize(
    ("place", "name", "planted", "check"),
    [
        (rewrites, "_rebuilt", swap_operands, "numbers"),
        (replace, "retained_nodes", lambda region: set(region.nodes), "orphan"),
        (Names, "fresh", never_twice(itertools.count()), "determinism"),
        (edits, "_undo_add_initializer", lambda value: None, "index"),
    ],
)
@pytest.mark.usefixtures("interpreted")
def test_a_bug_in_a_rewrite_is_seen(monkeypatch, place, name, planted, check):
    monkeypatch.setattr(place, name, planted)
    assert first_failure(rewrite) == check


# -- cases in processes of their own --------------------------------------------------------------------------------


def test_a_case_that_hangs_or_dies_is_told_and_the_others_run():
    actual = {
        outcome.number: outcome for outcome in outcomes(hang_or_die, iter(range(5)), 2, patience=5)
    }
    assert actual[0].failure.startswith("hang")
    assert actual[1].failure.startswith("died")
    assert "ValueError: two" in actual[2].failure
    assert [actual[number].result for number in (3, 4)] == [3, 4]
