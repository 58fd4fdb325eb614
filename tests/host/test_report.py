"""The report: names that outside checks rely on, counts that are exact, JSON that reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gehost import PassRecord, Report
from gehost.host.report import op_counts
from gehost.ir.model import Model
from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
agraph (bool c, float[2] x) => (float[2] y)
{
    a = Relu(x)
    b = acme.Foo(a)
    y = If(c) <
        then_branch = t () => (float[2] p) { r = Relu(b) p = Relu(r) },
        else_branch = e () => (float[2] q) { q = Abs(b) }
    >
}"""
PUBLIC = [
    "model",
    "nodes_before",
    "nodes_after",
    "op_types_before",
    "op_types_after",
    "seconds",
    "dumps",
    "verify",
    "passes",
]
PUBLIC_OF_PASSES = [
    "name",
    "stage",
    "origin",
    "kind",
    "status",
    "matched",
    "replaced",
    "rejected",
    "seconds",
]


def test_operators_are_counted_over_all_graphs_most_frequent_first() -> None:
    counts = op_counts(Model(parse(MODEL)))
    assert list(counts.items()) == [("Relu", 3), ("Abs", 1), ("If", 1), ("acme::Foo", 1)]


@pytest.fixture
def report(vendors: Any) -> Report:
    refuse = "return match.GetMatchedNodes()[0].label != 'r' or match.reject('place: not this one')"
    path = vendors.write(
        "acme/a.py",
        vendors.swap("P", "Relu", "Sigmoid", meet=refuse),
        vendors.swap("Q", "Cos", "Sin"),
    )
    assert path.exists()
    return vendors.host(cleanup=True).run(parse(MODEL))[1]


def test_it_says_what_was_done(report: Report, vendors: Any) -> None:
    assert (report.model, report.nodes_before, report.nodes_after) == ("agraph", 6, 6)
    assert report.op_types_before == {"Relu": 3, "Abs": 1, "If": 1, "acme::Foo": 1}
    assert report.op_types_after == {"Sigmoid": 2, "Abs": 1, "If": 1, "Relu": 1, "acme::Foo": 1}
    assert report.dumps == []
    assert report.verify == {}
    assert set(report.seconds) >= {"load", "infer_shape", "passes"}
    first, second = report.passes
    assert (first.name, first.stage, first.kind, first.vendor, first.status) == (
        "P",
        "kAfterInferShape",
        "pattern",
        "acme",
        "done",
    )
    assert first.origin == f"{vendors.root}/acme/custom_fusion_passes/a.py:3"
    assert (first.matched, first.replaced, first.rejected) == (3, 2, {"place": 1})
    assert (second.status, second.matched, second.replaced, second.rejected) == (
        "not changed",
        0,
        0,
        {},
    )


def test_json_has_the_same_names_and_reads_back(report: Report) -> None:
    plain = json.loads(report.to_json())
    assert [name for name in plain if name in PUBLIC] == PUBLIC
    assert all(
        [name for name in row if name in PUBLIC_OF_PASSES] == PUBLIC_OF_PASSES
        for row in plain["passes"]
    )
    assert plain == report.as_dict()
    rows = [PassRecord(**row) for row in plain.pop("passes")]
    assert Report(**plain, passes=rows) == report
    assert plain["cleanup"].keys() == report.cleanup.keys() != set()
    assert type(report.as_dict()["passes"][0]["rejected"]) is dict


def test_names_that_no_encoding_has_are_written_too() -> None:
    text = Report(model="weights-\udcff.onnx").to_json()
    assert json.loads(text.encode())["model"] == "weights-\udcff.onnx"
