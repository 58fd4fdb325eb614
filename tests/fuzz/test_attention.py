"""A few random attention graphs of the many that ``python -m tools.fuzz.attention`` compiles, and proof that it sees faults."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from gehost_semantic import finder
from tools.fuzz.attention import BrokenAttention, compare, run_case, runs_of
from tools.fuzz.attention_graphs import attention_graph

pytest.importorskip("onnxruntime")

FEATURES = """decoder; fill: -10000.0; fill: -inf; form: folded; form: given apart; form: heads; form: rows first; groups;
guard; join: computed; join: rest; join: zeros; keys: cross; keys: self; mask: Where; mask: added; mask: causal;
mask: masked_fill; mask: none; opset: 13; opset: 18; opset: 23; opset: 24; past; projections: none; projections: packed;
projections: separate; scale: Div; scale: Div q; scale: Mul; scale: Mul kt; scale: Mul q; scale: none; scale: roots;
shape: computed; shape: rest; shape: zeros; softcap: Div; softcap: Mul; softcap: Tanh alone; softcap: one negative;
softcap: two negative; turn: last; turn: reshapes; V != H; V == H; window"""


@pytest.mark.parametrize("seed", range(16))
def test_what_loads_and_runs_before_does_after(seed: int) -> None:
    tally = run_case(seed)
    assert tally.counts["graphs"] == 1


def test_the_graphs_have_everything_in_them() -> None:
    counts: Counter[str] = Counter()
    for seed in range(300):
        counts.update(attention_graph(seed).features)
    assert not {one.strip() for one in FEATURES.replace("\n", " ").split(";")} - counts.keys()


def planted(op_type: str) -> onnx.ModelProto:
    """The graph with another operator behind it."""
    proto = attention_graph(0).proto
    result = proto.graph.output[0].name
    (last,) = [node for node in proto.graph.node if result in node.output]
    last.output[0] = "before"
    read = ["before", "sizes"] if op_type == "Reshape" else ["before"]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([7, 5, 3]), "sizes"))
    proto.graph.node.append(onnx.helper.make_node(op_type, read, [result]))
    return proto


@pytest.mark.parametrize(
    ("op_type", "fault"),
    [("Exp", "other numbers"), ("Nonsense", "does not load"), ("Reshape", "does not run")],
)
def test_a_fault_is_found(op_type: str, fault: str) -> None:
    runs = list(runs_of(attention_graph(0), 0))
    compare(attention_graph(0).proto, runs, "as it is")
    with pytest.raises(BrokenAttention, match=fault):
        compare(planted(op_type), runs, "planted")


@pytest.mark.parametrize(
    ("seed", "factor", "form", "kernel"),
    [
        (152, 1.25, "Div", "OrtCausalAttentionPass"),
        (164, 1.25, "Tanh alone", "OrtCausalAttentionPass"),  # with heads that are shared
        (35, 1.25, "two negative", "OrtStandardAttentionPass"),
        (34, -1, "one negative", "OrtStandardAttentionPass"),
    ],
)
def test_a_wrong_softcap_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: int, factor: float, form: str, kernel: str
) -> None:
    assert f"softcap: {form}" in attention_graph(seed).features
    fired = run_case(seed).counts[f"fired: {kernel}"]
    assert bool(fired) == (form != "one negative")  # which no kernel has
    normal = finder._normal

    def wrong(steps: Any) -> Any:
        scale, scales, softcap, after = normal(steps)
        return scale, scales, softcap and softcap * factor, after

    monkeypatch.setattr(finder, "_normal", wrong)
    with pytest.raises(BrokenAttention, match=f"{kernel}.*other numbers"):
        run_case(seed)
