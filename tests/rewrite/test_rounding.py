"""Passes note the constants and weights in half that they rounded otherwise."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, NumbersDifferError
from gehost.ir.model import Model
from gehost.rewrite.rounding import constants_of, folded_of, note_constant, note_weight
from gehost.testing import parse

HEAD = '<ir_version: 10, opset_import: ["": 21]>'


def noted(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def test_notes_add_up_and_are_of_half_alone() -> None:
    text = f"{HEAD} g (float16[4] x, float[4] z) => (float16[4] y) {{ y = Mul (x, k) }}"
    model = Model(parse(text, {"k": np.array(1.414, np.float16)}))
    x, k, z = (model.graph.values[name] for name in "xkz")
    for value, exact in ((k, sqrt(2)), (x, 0.5), (z, 1.0), (k, sqrt(2))):
        note_constant(model, value, exact)
    for value in (x, z, x, k):
        note_weight(model, value)
    actual = noted(model.flush())
    assert constants_of(actual) == {"k": sqrt(2), "x": 0.5}
    assert folded_of(actual) == ["x", "k"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "null", '{"k": "x"}'])
def test_what_gehost_did_not_write_is_ignored(text: str) -> None:
    assert constants_of({"gehost.constants": text}) == {}
    assert folded_of({"gehost.folded_weights": text}) == []


PASS = """
@REG_FUSION_PASS
class Exact(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        x, k = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Abs(es.Mul(x, k))]))]
    def Replacement(self, match):
        {}
        builder = EsGraphBuilder("r")
        wide = es.Mul(es.Cast(builder.CreateInput(0), to=1), 2.0 / 3)
        return builder.BuildAndReset([es.Cast(es.Abs(wide), to=10)])
"""
MODEL = f"{HEAD} g (float16[n, 8] x) => (float16[n, 8] y) {{ a = Mul (x, k) y = Abs (a) }}"


@pytest.mark.parametrize(
    ("note", "verdict"),
    [
        ("match.replaces_constant(match.inputs[1], 2 / 3)", "equal within rounding: 3 feeds"),
        ("match.folds_weight(match.inputs[1])", "equal within rounding: 3 feeds"),
        ("pass", "differ: y["),
    ],
)
def test_a_noted_rewrite_is_equal_within_rounding(note: str, verdict: str, vendors: Any) -> None:
    pytest.importorskip("onnxruntime")
    vendors.write("acme/a.py", PASS.format(note))
    host = Host(HostOptions(vendors=[vendors.root], verify=True))
    try:
        _, report = host.run(parse(MODEL, {"k": np.array(2 / 3, np.float16)}))
    except NumbersDifferError as error:
        report = error.report
    summary = report.verify["summary"]
    assert summary.startswith(verdict)
    assert ("as exact numbers: k" in summary) == ("replaces" in note)
    assert ("weights folded in half: k" in summary) == ("folds" in note)
