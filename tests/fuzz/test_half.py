"""A few random models through ``--half``; ``make fuzz-half`` runs many."""

from __future__ import annotations

import random
from typing import Any

import onnx
import pytest

from tools.fuzz import half
from tools.fuzz.half_graphs import Maker

# with bodies, equal names in two of them, a function that a kernel replaces, others, a planted fault,
# a Scan of declared sizes
SEEDS = (6, 11, 38, 53, 94, 1167)


@pytest.mark.parametrize("seed", SEEDS)
def test_models_with_bodies_convert(seed: int) -> None:
    assert half.run_case(seed)["models"] == 1


def test_a_comparison_that_finds_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict: Any = type("Equal", (), {"equal": True, "summary": lambda _: "equal"})()
    monkeypatch.setattr(half, "judge", lambda *_: verdict)
    with pytest.raises(half.Failure, match="planted"):
        half.run_case(53)


def test_the_oracle_sees_another_operator() -> None:
    model, feeds = Maker(6).make(random.Random(~6).randint(3, 12))
    oracle = half.Oracle(model, feeds, 6)
    assert oracle.off(model) < 1
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    name = wrong.graph.output[0].name
    node = next(node for node in wrong.graph.node if name in node.output)
    node.output[list(node.output).index(name)] = "before"
    wrong.graph.node.append(onnx.helper.make_node("Neg", ["before"], [name]))
    assert oracle.off(wrong) > 30
