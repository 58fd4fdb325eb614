"""The steps that a node carries: read, merged and written again."""

from __future__ import annotations

import pytest

from gehost.rewrite.provenance import Author, HistoryStep, history_of, provenance, steps_of
from gehost.testing import graph_of

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x) => (float[2] y) { [one] a = Relu(x) [two] b = Exp(a) [three] c = Neg(b) [four] y = Abs(c) }"""


def test_original_nodes_have_no_history():
    one, two, *_ = graph_of(TEXT).nodes
    assert history_of([(one, one.metadata), (two, two.metadata)]) == ""
    assert steps_of(one, one.metadata) == []
    assert Author("P").metadata(provenance([one, two])).keys() == {
        "gehost.pass",
        "gehost.origin_nodes",
        "gehost.origin_types",
    }


def test_steps_that_two_nodes_share_are_kept_once():
    graph = graph_of(TEXT)
    one, two, three, four = graph.nodes
    for result, author, sources in ((two, "A", [one]), (three, "B", [two]), (four, "C", [two])):
        for key, text in Author(author, "acme").metadata(provenance(sources)).items():
            graph.set_metadata(result, key, text)
    for key, text in Author("D").metadata(provenance([three, four])).items():
        graph.set_metadata(one, key, text)
    first = HistoryStep("two", "Exp", "A", "acme", (("one", "Relu"),))
    assert steps_of(one, one.metadata) == [
        first,
        HistoryStep("three", "Neg", "B", "acme", (0,)),
        HistoryStep("four", "Abs", "C", "acme", (0,)),
        HistoryStep("one", "Relu", "D", "", (1, 2)),
    ]


def test_each_original_node_has_its_operator():
    graph = graph_of(TEXT.replace("Exp", "Relu"))
    one, two, three, four = graph.nodes
    for key, text in Author("A").metadata(provenance([one, two, three])).items():
        graph.set_metadata(four, key, text)
    (step,) = steps_of(four, four.metadata)
    assert step.sources == (("one", "Relu"), ("two", "Relu"), ("three", "Neg"))


@pytest.mark.parametrize(
    ("types", "op"), [('["Relu"]', "Relu"), ('["Relu", "Neg"]', ""), ("[]", ""), ("3", "")]
)
def test_an_older_file_tells_the_operator_where_all_nodes_have_one(types, op):
    graph = graph_of(TEXT)
    node = graph.nodes[0] if isinstance(graph.nodes, list) else next(iter(graph.nodes))
    notes = {
        "gehost.pass": "P",
        "gehost.origin_nodes": '["a", "b", "c"]',
        "gehost.origin_types": types,
    }
    for key, text in notes.items():
        graph.set_metadata(node, key, text)
    (step,) = steps_of(node, node.metadata)
    assert step.sources == tuple((name, op) for name in "abc")


def test_half_a_pair_that_a_file_spells_stays_spelled():
    graph = graph_of(TEXT)
    one, two, three, _ = graph.nodes
    for key, text in {
        "gehost.pass": "P",
        "gehost.origin_nodes": r'["\ud800"]',
        "gehost.origin_types": '["Relu"]',
    }.items():
        graph.set_metadata(one, key, text)
    for key, text in Author("Q").metadata(provenance([one, two])).items():
        graph.set_metadata(three, key, text)
    assert three.metadata["gehost.origin_nodes"] == r'["\ud800", "two"]'
    assert [step.node for step in steps_of(three, three.metadata)] == ["one", "three"]
