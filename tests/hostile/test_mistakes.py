"""Typical mistakes in a pass file: each is one line with the file and the line of the author's code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]> main (float[2,3] x) => (float[2,3] y)
{ [the_node] a = Relu(x) y = Neg(a) }"""
IMPORTS = "from gehost import *\nfrom gehost import es, ops\n"
FILE = (
    IMPORTS
    + """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Mine(PatternFusionPass):
    def Patterns(self):
        b = EsGraphBuilder("p")
        x = b.CreateInput(0)
        return [Pattern(b.BuildAndReset([es.Relu(x)]))]

    def MeetRequirements(self, match):
        return True

    def Replacement(self, match):
        b = EsGraphBuilder("r")
        return b.BuildAndReset([es.Sigmoid(b.CreateInput(0))])
"""
)
RUN = (
    IMPORTS
    + """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Mine(FusionBasePass):
    def Run(self, graph, context):
        node = graph.nodes_of("Relu")[0]
        """
)
RELUS = "[Pattern(b.BuildAndReset([es.Relu(x)]))]"
REPLACED = "b.BuildAndReset([es.Sigmoid(b.CreateInput(0))])"
PATTERNS = [
    (RELUS, "None", "it must return a list of Pattern, got None"),
    (RELUS, "[None]", "it must return a list of Pattern, got [None]"),
    (RELUS, "es.Relu(x)", "it must return a list of Pattern, got <EsTensor"),
    (RELUS, "b.BuildAndReset([es.Relu(x)])", "it must return a list of Pattern, got <EsGraph"),
    (f"return {RELUS}", "yield from ()", "it must return a list of Pattern"),
    (f"return {RELUS}", "yield 1 / 0", "ZeroDivisionError: division by zero"),
    (RELUS, "[Pattern(None)]", "Pattern needs the result of BuildAndReset, got NoneType"),
    (RELUS, "[Pattern(b.BuildAndReset([]))]", "graph 'p' has no outputs"),
    (RELUS, "[Pattern(b.BuildAndReset([x]))]", "pattern 'p' has no operator"),
    ("es.Relu(x)", "5", "output 0 of 'p': wanted an EsTensor, got int"),
    ("es.Relu(x)", "EsGraphBuilder('q').CreateInput(0)", "was made by another builder"),
    ("es.Relu(x)", "es.op(7)(x)", "es.op wants the name of an operator"),
    ("es.Relu(x)", "es.Rellu(x)", "has an operator Rellu; did you mean Relu?"),
    ("es.Relu(x)", "es.Relu('x')", "Relu needs at least one tensor among its inputs"),
    ("es.Relu(x)", "x + b.CreateConst(1, rtol='x')", "a tolerance must be a number >= 0, got 'x'"),
    ("es.Relu(x)", "x + b.CreateConst(1, atol=-1)", "a tolerance must be a number >= 0, got -1"),
    ("CreateInput(0)", "CreateInput(4)", "the inputs [4] of 'p' leave a gap"),
    ("CreateInput(0)", "CreateInput(0, dtype='flaot')", "wanted a DataType, got 'flaot'"),
]
AT_NODE = [
    ("True", "'no'", "it must return True, False or match.reject(reason), got 'no'"),
    ("True", "match.reject(3)", "match.reject wants a reason as text"),
    ("True", "match.has('x')", "match.has needs a tensor of the pattern, got 'x'"),
    ("True", "match.inputs[3].rank == 2", "IndexError"),
    (REPLACED, "None", "it must return the result of BuildAndReset"),
    (REPLACED, "(None,)", "it must return the result of BuildAndReset"),
    (REPLACED, "match.inputs[0]", "it must return the result of BuildAndReset"),
    (REPLACED, "self.Replacement(match)", "RecursionError"),
    (REPLACED, "self.Patterns()[0]", "it must return the result of BuildAndReset"),
    ("[es.Sigmoid(b.CreateInput(0))]", "b.CreateInputs(1) * 2", "has 2 outputs, the pattern 1"),
    ("es.Sigmoid(b.CreateInput(0))", "es.Elu(b.CreateInput(0), alpha='1')", "alpha must be float"),
    ("es.Sigmoid(b", "es.Sigmoid(EsGraphBuilder('s')", "was made by another builder"),
    (REPLACED, "match.GetMatchedNodes()[0].attrs.update(x=1)", "AttributeError"),
]
IN_RUN = [
    ("context.replace(None, None)", "wanted the result of Region.of_nodes, got NoneType"),
    ("context.replace([node], None)", "wanted the result of Region.of_nodes, got list"),
    (
        "context.replace(Region.of_nodes([]), None)",
        "wanted the result of Region.of_nodes, got a refusal, empty: a region needs a node",
    ),
    (
        "context.replace(Region.of_nodes([node]), 5)",
        "wanted the result of BuildAndReset, got int",
    ),
    ("context.refuse(None, 'x')", "wanted a node and a reason"),
    ("context.refuse('a', 'x')", "wanted a node and a reason"),
    ("context.refuse(node, 5)", "wanted a node and a reason"),
    ("return 'x'", "it returned 'x'; wanted None, SUCCESS"),
    ("node.op_type = 'Neg'", "AttributeError"),
    ("graph.proto.node[0].op_type = 'Neg'", "the graph is not sound after Mine"),
]
AT_LOAD = [
    (IMPORTS + "@ops.register(5)\ndef f(x): return x\n", "wanted the name of an operator"),
    (
        IMPORTS + "@ops.register('a::B', outputs='yz')\ndef f(x): return x\n",
        'operator "a::B": outputs must be a list, as in ["yz"]',
    ),
    (IMPORTS + "ops.register('a::B', inputs='xy')\n", "inputs must be a list, as in"),
    (
        FILE.replace("InferShape)", "InferShape, default='no')"),
        "Mine: default must be True or False, got 'no'",
    ),
    (
        FILE.replace("    def Patterns", "    shape_proven = 'yes'\n    def Patterns"),
        "Mine: shape_proven must be True or False, got 'yes'",
    ),
    (
        FILE.replace("    def Patterns", "    bottom_up = 1\n    def Patterns"),
        "Mine: bottom_up must be True or False, got 1",
    ),
    (
        IMPORTS + "@REG_DECOMPOSE_PASS([5])\nclass Mine(DecomposePass): pass\n",
        "wanted names of operators",
    ),
    (
        IMPORTS + "@REG_DECOMPOSE_PASS(5)\nclass Mine(DecomposePass): pass\n",
        "wanted names of operators",
    ),
    (FILE.replace("InferShape)", "InferShape, options=[1])"), "options must be PassOption"),
    (
        FILE.replace("@REG_FUSION_PASS(s", "@REG_FUSION_PASS\n@REG_FUSION_PASS(s"),
        "is registered already at",
    ),
]


@pytest.fixture
def line(tmp_path: Path, vendors: Any, refused: Any) -> Any:
    """``line(code, source)``: the one line of a compile with this vendor file, which ends with ``code``."""

    def line(code: int, source: str) -> str:
        model = tmp_path / "m.onnx"
        model.write_bytes(parse(MODEL).SerializeToString())
        vendors.write("acme/a.py", source)
        return refused(code, model, "--vendors", vendors.root)

    return line


@pytest.mark.parametrize(("old", "new", "expected"), PATTERNS)
def test_a_mistake_in_patterns(line: Any, old: str, new: str, expected: str) -> None:
    message = line(5, FILE.replace(old, new, 1))
    assert "Mine (" in message
    assert "a.py:" in message
    assert "): Patterns: " in message
    assert expected in message


@pytest.mark.parametrize(("old", "new", "expected"), AT_NODE)
def test_a_mistake_at_a_match_names_the_node_too(
    line: Any, old: str, new: str, expected: str
) -> None:
    message = line(5, FILE.replace(old, new, 1))
    assert "Mine (" in message
    assert "a.py:" in message
    assert ' at node "the_node" (Relu): ' in message
    assert expected in message


@pytest.mark.parametrize(("statement", "expected"), IN_RUN)
def test_a_mistake_in_run(line: Any, statement: str, expected: str) -> None:
    message = line(5, RUN + statement + "\n")
    assert "Mine (" in message
    assert "a.py:" in message
    assert expected in message


@pytest.mark.parametrize(("source", "expected"), AT_LOAD)
def test_a_mistake_that_shows_when_the_file_is_loaded(
    line: Any, source: str, expected: str
) -> None:
    message = line(4, source)
    assert "a.py:" in message
    assert expected in message
