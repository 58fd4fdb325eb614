"""Data flow as a graph, as JSON and as DOT."""

from __future__ import annotations

import networkx as nx

from gehost_hlo import dataflow, parse
from gehost_hlo.data_flow import as_dot, as_json

TEXT = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[2]{0} parameter(0)
  i = s32[2]{0} iota(), iota_dimension=0
  zero = f32[] constant(0)
  sq = f32[2]{0} multiply(x, x)
  t = (f32[2]{0}, s32[2]{0}) tuple(sq, i)
  g = f32[2]{0} get-tuple-element((f32[2]{0}, s32[2]{0}) t), index=0
  ROOT r = f32[] reduce(f32[2]{0} abs(g), zero), dimensions={0}, to_apply=add
}
"""


def test_the_graph() -> None:
    graph = dataflow(parse(TEXT).entry)
    assert isinstance(graph, nx.DiGraph)
    assert list(graph) == ["x", "i", "zero", "sq", "t", "g", "r", "r:0"]
    assert sorted((a, b, data["operand"]) for a, b, data in graph.edges(data=True)) == [
        ("g", "r:0", 0), ("i", "t", 1), ("r:0", "r", 0), ("sq", "t", 0), ("t", "g", 0), ("x", "sq", 0), ("x", "sq", 1), ("zero", "r", 1),
    ]  # fmt: skip
    assert graph.nodes["t"] == {"opcode": "tuple", "shape": "(f32[2]{0}, s32[2]{0})"}
    assert graph.graph["calls"] == ["add"]


def test_json() -> None:
    add, entry = as_json(parse(TEXT).computations)
    assert (add["name"], add["calls"], entry["calls"]) == ("add", [], ["add"])
    assert add["nodes"][2] == {"id": "c", "label": "c = add", "opcode": "add", "shape": "f32[]"}
    assert add["edges"] == [
        {"source": "a", "target": "c", "operand": 0},
        {"source": "b", "target": "c", "operand": 1},
    ]


def test_dot() -> None:
    text = as_dot(parse(TEXT).computations)
    assert '"e/x" -> "e/sq" [label=1];' in text
    assert 'label="e calls add";' in text
    assert text.count("subgraph") == 2
