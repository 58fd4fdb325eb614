"""Names of inputs on the nodes that passes make of registered operators, and on no others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import onnx
import pytest

import gehost_netron
from gehost.testing import parse

OPERATORS = """
@ops.register("acme::Gate")
def gate(data, scale, *, power=1):
    return es.Mul(data, scale)

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class MakeGate(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("mul")
        return [Pattern(builder.BuildAndReset([es.Mul(*builder.CreateInputs(2))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("gate")
        return builder.BuildAndReset([es.op("acme::Gate")(*builder.CreateInputs(2))])
"""
MODEL = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
main (bool c, float[2] x) => (float[2] y, float[2] z) {
    m = Mul(x, x)
    z = acme.Gate(x, x)
    y = If(c) <
        then_branch = t () => (float[2] p) { p = Mul(m, x) },
        else_branch = e () => (float[2] q) { q = Relu(m) }
    >
}"""


def named(nodes: Any) -> dict[str, str]:
    return {
        node.output[0]: entry.value
        for node in nodes
        for entry in node.metadata_props
        if entry.key == "input_names"
    }


@pytest.fixture
def compiled(vendors: Any) -> onnx.ModelProto:
    vendors.write("acme/a.py", OPERATORS)
    return vendors.host(plugins=[("netron", gehost_netron)]).run(parse(MODEL))[0]


def test_nodes_that_passes_made_are_named_also_in_bodies(compiled: onnx.ModelProto) -> None:
    expected = "['data', 'scale']"
    graph = compiled.graph
    assert named(graph.node) == {"m": expected}
    body = graph.node[2].attribute[0].g
    assert named(body.node) == {"p": expected}


def test_nodes_that_no_pass_touched_keep_their_bytes(compiled: onnx.ModelProto) -> None:
    assert compiled.graph.node[1] == parse(MODEL).graph.node[1]


def test_a_node_whose_operator_got_a_name_for_its_body_is_named_too(vendors: Any) -> None:
    """The model brings another body of the same name, so that the new one is called ``Gate__<hash>``."""
    vendors.write("acme/a.py", OPERATORS)
    function = '\n<domain: "acme", opset_import: ["" : 17]>\nGate (a, b) => (o) { o = Add(a, b) }'
    result, report = vendors.host(plugins=[("netron", gehost_netron)]).run(parse(MODEL + function))
    assert report.passes[0].replaced == 2
    (call,) = (node for node in result.graph.node if node.output[0] == "m")
    assert call.op_type.startswith("Gate__")
    assert named(result.graph.node) == {"m": "['data', 'scale']"}


def test_a_second_compile_changes_nothing(vendors: Any, compiled: onnx.ModelProto) -> None:
    again, report = vendors.host(plugins=[("netron", gehost_netron)]).run(compiled)
    assert report.problems == []
    assert again == compiled


def test_it_loads_nothing_heavy() -> None:
    code = "import sys, gehost_netron; print([m for m in ('onnx', 'numpy', 'networkx', 'rich') if m in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"
