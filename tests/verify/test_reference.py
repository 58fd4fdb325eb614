"""Where the reference evaluator is wrong: what was measured, and that it still holds."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pytest

from gehost.testing import parse
from gehost.verify import compare
from gehost.verify.reference import reference_faults
from gehost.verify.reference_table import TABLE, VERSIONS
from tools.reference.__main__ import condition
from tools.reference.sweep import DIFFERS, EQUAL, Seen, look, targets

measured = pytest.mark.skipif(
    any(version(name) != each for name, each in VERSIONS.items()),
    reason="other versions were compared",
)


@measured
def test_every_operator_and_version_is_in_the_table() -> None:
    assert {(op, since) for op, since, _ in targets()} == {
        (op, since) for op, versions in TABLE.items() for since in versions
    }


@measured
@pytest.mark.parametrize("op", ["BatchNormalization", "GlobalMaxPool", "Relu", "RoiAlign"])
def test_a_sample_of_the_cases_agrees_with_the_table(op: str) -> None:
    for place, (name, since, _) in enumerate(targets()):
        if name == op:
            visited = [look(place + turn * len(targets())) for turn in range(8)]
            wrong = sum(item.verdict == DIFFERS for item in visited)
            assert wrong <= TABLE[op][since].wrong
            assert not wrong or TABLE[op][since].wrong


@pytest.mark.parametrize(("opset", "wrong"), [(7, False), (9, True), (13, True), (14, False)])
def test_batch_normalization_of_opset_9_is_computed_from_the_statistics_of_the_batch(
    opset: int, wrong: bool
) -> None:
    model = parse(f"""<ir_version: 7, opset_import: ["": {opset}]>
        g (float[2,3] x, float[3] a, float[3] b, float[3] m, float[3] v) => (float[2,3] y)
        {{ y = BatchNormalization (x, a, b, m, v) }}""")
    assert reference_faults(model) == ["BatchNormalization of opset 9"] * wrong


def test_numbers_of_a_wrong_operator_accuse_nobody() -> None:
    text = """<ir_version: 7, opset_import: ["": 11]>
        g (double[2,3] x, double[3] a, double[3] b, double[3] m, double[3] v) => (double[2,3] y)
        { y = BatchNormalization <epsilon = 0.0> (x, a, b, m, v) }"""
    folded = text.replace(
        "y = BatchNormalization <epsilon = 0.0> (x, a, b, m, v)",
        "d = Sub (x, m) s = Sqrt (v) q = Div (d, s) w = Mul (q, a) y = Add (w, b)",
    )
    rng = np.random.default_rng(0)
    feeds = {"x": rng.random((2, 3)), **{name: rng.random(3) + 0.5 for name in "abmv"}}
    result = compare(parse(text), parse(folded), feeds=[feeds], engine="reference")
    assert result.equal
    assert result.unjudged == "onnx.reference is wrong for BatchNormalization of opset 9"
    assert result.summary().startswith("not judged: onnx.reference is wrong for Batch")
    result = compare(
        parse(folded), parse(folded.replace("Add", "Sub")), feeds=[feeds], engine="reference"
    )
    assert not result.equal


def test_a_fault_in_a_body_or_a_function_counts_and_its_attribute_decides() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["": 17, "f": 1]>
        g (bool c, float[4] x, int64[1] k) => (float[N] y) {
            y = If (c) <then_branch = t () => (float[N] a) { a = f.top (x, k) },
                        else_branch = e () => (float[N] b) {
                            b, i = TopK <sorted = SORTED> (x, k) }>
        }
        <domain: "f", opset_import: ["": 17]> top (x, k) => (v) { v, j = TopK (x, k) }
    """.replace("SORTED", "0")
    )
    fault = ["TopK of opset 11 with sorted=0"]
    assert reference_faults(model) == fault
    model.functions[0].node[0].attribute.add(name="sorted", type=2, i=0)
    model.graph.node[0].attribute[1].g.node[0].attribute[0].i = 1
    assert reference_faults(model) == fault
    model.functions[0].node[0].attribute[0].i = 1
    assert reference_faults(model) == []


def test_the_condition_is_the_attribute_of_the_wrong_cases_alone() -> None:
    wrong = [Seen("Op", 1, DIFFERS, frozenset({"a=1", f"b={n}"})) for n in range(3)]
    right = [Seen("Op", 1, EQUAL, frozenset({"a=0"}))]
    assert condition([*wrong, *right]) == "a=1"
    assert condition([*wrong[:2], *right]) == ""
    assert condition([*wrong, Seen("Op", 1, EQUAL, frozenset({"a=1"}))]) == ""
