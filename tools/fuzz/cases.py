"""One random model and everything that is done with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from gehost import Host, HostOptions
from gehost.host.registry import PassSpec
from tests.shipped import EXAMPLES
from tools.fuzz import matching
from tools.fuzz.blocks import fill
from tools.fuzz.checks import (
    Failure,
    Feeds,
    RunErrors,
    Tally,
    check_numbers,
    check_pass,
    check_valid,
    fresh_model,
    outputs_of,
)
from tools.fuzz.equivalents import SUBSTITUTES
from tools.fuzz.graphs import Maker, RandomModel
from tools.fuzz.plans import random_plan
from tools.fuzz.rewrites import decomposition, spec_by_hand, spec_of

VENDORS = Path(__file__).parents[2] / "vendors"
PASSES = 4
ZERO_PASSES = ("RemoveAddZeroPass", "RemoveAddCustomZeroPass")
"""They say that the sign of a zero may change (-0.0 + 0.0 is 0.0), which a division shows; without them numbers must be equal."""


def model_of(seed: int) -> RandomModel:
    """The model of a seed."""
    rng = random.Random(seed)
    small = rng.random() < 0.4
    return Maker(seed).make(rng.randint(4, 12) if small else rng.randint(10, 28), fill)


def run_case(seed: int) -> Tally:
    """Make the model of a seed, rewrite it, compile it, and look for its patterns.

    Raises:
        Failure: a check did not hold.
        Exception: whatever gehost raised; it should not have.
    """
    tally, rng, result = Tally(), random.Random(~seed), model_of(seed)
    try:
        onnx.checker.check_model(result.proto, full_check=True)
        reference = Reference(result)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
    ):  # equal names in bodies of bodies
        tally.refused["models that onnx.checker does not take"] += 1
        return tally
    except RunErrors as error:
        tally.refused[f"models that ONNX Runtime does not run: {str(error)[:60]}"] += 1
        return tally
    tally.counts["graphs"] += 1
    rewritten = result.proto
    for number in range(PASSES):
        spec = _random_pass(rewritten, rng, f"P{number}")
        if spec is not None:
            after = check_pass(rewritten, spec, tally, thorough=rng.random() < 0.3)
            if after != rewritten:
                reference.check(after, tally, "numbers", exact=True)
            rewritten = after
    compiled(result.proto, reference, tally)
    if len(result.proto.graph.node) <= 14:
        matching.check_matches(result.proto, rng, tally)
    return tally


@dataclass
class Reference:
    """What the model computed before anything was done, on its feeds and, where it takes them, on those of other sizes."""

    feeds: list[Feeds]
    outputs: list[Sequence[np.ndarray]]
    ops: set[str]

    def __init__(self, result: RandomModel) -> None:
        self.feeds = list(result.feeds)
        self.outputs = list(outputs_of(result.proto, self.feeds))
        self.ops = {node.op_type for node in result.proto.graph.node}
        if result.other_sizes is not None:
            try:
                self.outputs += outputs_of(result.proto, [result.other_sizes])
            except RunErrors:  # a Reshape or a constant says another size
                return
            self.feeds.append(result.other_sizes)

    def check(self, model: onnx.ModelProto, tally: Tally, what: str, *, exact: bool) -> None:
        tally.checks[what] += 1
        tally.checks[f"{what} of other sizes"] += len(self.feeds) > 3
        try:
            check_numbers(model, self.feeds, self.outputs, ops=None if exact else self.ops)
        except Failure as failure:
            raise Failure(what, str(failure), [model]) from failure
        except RunErrors as error:
            raise Failure(
                what, f"ONNX Runtime does not run the result: {error}", [model]
            ) from error


def _random_pass(model: onnx.ModelProto, rng: random.Random, name: str) -> PassSpec | None:
    if rng.random() < 0.2:
        ops = sorted(
            {
                node.op
                for graph in fresh_model(model).graphs
                for node in graph.nodes
                if not node.bodies and any(node.inputs)
            }
        )
        output = [op for op in ops if op in SUBSTITUTES]
        chosen = rng.sample(ops, min(2, len(ops))) + rng.sample(output, min(1, len(output)))
        return decomposition(name, sorted(set(chosen)), rng.randrange(60)) if chosen else None
    plan = random_plan(fresh_model(model), rng, name)
    return None if plan is None else spec_by_hand(plan) if rng.random() < 0.15 else spec_of(plan)


@cache
def vendors_host(disabled: tuple[str, ...] = ()) -> Host:
    enabled = [name for name in EXAMPLES if name not in disabled]
    return Host(HostOptions(vendors=[VENDORS], plugins=False, enable=enabled, disable=disabled))


def compiled(model: onnx.ModelProto, reference: Reference, tally: Tally) -> None:
    """Compile with the shipped vendors and the clean-up."""
    result, report = vendors_host().run(model)
    for record in report.passes:
        tally.note(record)
    tally.counts["whole compiles"] += 1
    tally.counts["changes by the clean-up"] += sum(
        value for value in (report.cleanup or {}).values() if isinstance(value, int)
    )
    check_valid(model, result)
    try:
        reference.check(result, tally, "numbers after a compile", exact=False)
    except Failure:
        if not any(record.name in ZERO_PASSES and record.replaced for record in report.passes):
            raise
        tally.counts["compiles repeated for the sign of a zero"] += 1
        result, _ = vendors_host(ZERO_PASSES).run(model)
        reference.check(result, tally, "numbers after a compile", exact=False)
