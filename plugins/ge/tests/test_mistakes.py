"""Mistakes of authors are one line with the file and the line, and the documented exception."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import onnx
import pytest

from gehost import GehostError, Host, HostOptions

from .conftest import IMPORTS, model

RELUS = "g (float[2] x) => (float[2] y) {\n  r = Relu(x)\n  y = Relu(r)\n}"
MARK = '@register_fusion_pass(name="P", stage=PassStage.AFTER_INFER_SHAPE)\n'
DECOMPOSE = "@register_decompose_pass(name='D', stage=PassStage.AFTER_INFER_SHAPE, op_types={})\n"
PATTERN = "@pattern\ndef relu(self, inputs):\n    return Relu(Relu(inputs[0]))"
REPLACEMENT = "def replacement(self, inputs):\n    return Relu(inputs[0])"
NO_REPLACEMENT = "def replacement(self, match_result): pass"


def of(*methods: str, mark: str = MARK, base: str = "PatternFusionPass") -> str:
    body = "".join(textwrap.indent(method, "    ") + "\n" for method in methods)
    return f"{mark}class P({base}):\n{body}"


def traced(body: str) -> str:
    return of(f"@pattern\ndef relu(self, inputs):\n    {body}", REPLACEMENT)


def listed(*lines: str, replacement: str = NO_REPLACEMENT) -> str:
    body = "".join(f"\n    {line}" for line in lines)
    return of(f"def patterns(self):{body}", replacement)


def asked(body: str, arguments: str = "self, match_result") -> str:
    return of(PATTERN, REPLACEMENT, f"def meet_requirements({arguments}):\n    {body}")


def replacing(body: str, arguments: str = "self, inputs") -> str:
    return of(PATTERN, f"def replacement({arguments}):\n    {body}")


def walking(body: str) -> str:
    return of(f"def run(self, graph, context):\n    {body}", base="FusionBasePass")


MISTAKES = {
    "run is the host's": (
        of(PATTERN, REPLACEMENT, "def run(self, graph, context): pass"),
        "TypeError: P defines run",
    ),
    "patterns both ways": (
        of(PATTERN, REPLACEMENT, "def patterns(self): return []"),
        "TypeError: P has patterns and @pattern methods (relu); keep one form",
    ),
    "patterns with inputs": (
        of("def patterns(self, inputs): return []", REPLACEMENT),
        "TypeError: P.patterns takes self alone",
    ),
    "a stage of GE alone": (
        of(
            PATTERN,
            REPLACEMENT,
            mark=MARK.replace("AFTER_INFER_SHAPE", "AFTER_ASSIGN_LOGIC_STREAM"),
        ),
        "there is no stage AFTER_ASSIGN_LOGIC_STREAM; stages: BEFORE_INFER_SHAPE",
    ),
    "a stage as text": (
        of(PATTERN, REPLACEMENT, mark=MARK.replace("PassStage.AFTER_INFER_SHAPE", "'AFTER'")),
        "TypeError: P: stage is one of PassStage.BEFORE_INFER_SHAPE",
    ),
    "an empty name": (
        of(PATTERN, REPLACEMENT, mark=MARK.replace('"P"', '""')),
        "ValueError: a pass needs a name",
    ),
    "no name": (
        of(PATTERN, REPLACEMENT, mark=MARK.replace('name="P", ', "")),
        "missing 1 required keyword-only argument: 'name'",
    ),
    "a name that is a number": (
        of(PATTERN, REPLACEMENT, mark=MARK.replace('"P"', "3")),
        "TypeError: a pass has a name as text, got 3",
    ),
    "another kind": (
        of(PATTERN, REPLACEMENT, mark=MARK.replace('name="P"', 'name="P", kind="fusion_base"')),
        'ValueError: P: kind is "pattern_fusion"',
    ),
    "no base class": (
        of(PATTERN, REPLACEMENT, base="object"),
        "TypeError: P: a fusion pass derives from PatternFusionPass or FusionBasePass",
    ),
    "no replacement": (of(PATTERN), "TypeError: P does not define replacement"),
    "no pattern": (of(REPLACEMENT), "TypeError: P does not define a @pattern method or patterns"),
    "a misspelled method": (
        of(PATTERN, REPLACEMENT, "def meet_requirement(self, match_result): return False"),
        "P defines meet_requirement; did you mean meet_requirements?",
    ),
    "a name twice": (
        of(PATTERN, REPLACEMENT) + of(PATTERN, REPLACEMENT),
        "a pass called P is registered already at",
    ),
    "no run": (of("pass", base="FusionBasePass"), "TypeError: P does not define run"),
    "an unknown operator": (
        "from ge.es.nn import FlashThing\n",
        "ImportError: no operator FlashThing: neither ONNX nor the table in docs/differences/ge.md "
        "has it; one that a vendor file registers is ge.es.custom.FlashThing",
    ),
    "an unknown operator with near names": (
        "from ge.es.math import Add, Relu6\n",
        "ImportError: no operator Relu6: neither ONNX nor the table in docs/differences/ge.md has "
        "it; near: Relu",
    ),
    "an operator of a module that is unknown": (
        "from ge.es import nn\nnn.Relu6\n",
        "AttributeError: no operator Relu6: neither ONNX",
    ),
    "empty axes": (
        traced("return ReduceSum(inputs[0], [])"),
        "ReduceSum: axes: empty, for which ONNX's operator reduces all axes; name the axes",
    ),
    "a bias of another layout": (
        traced("return BiasAdd(inputs[0], inputs[1], 'NCHW')"),
        "BiasAdd: data_format 'NCHW' adds along axis 1, and the rank of x is not known here; use",
    ),
    "a tensor for an attribute": (
        traced("return LeakyRelu(inputs[0], inputs[1])"),
        "LeakyRelu: negative_slope: a number is expected, got a tensor",
    ),
    "a permutation that is computed": (
        replacing("return Transpose(inputs[0], inputs[0])"),
        "Transpose: perm: an attribute takes numbers, got a tensor that the model computes",
    ),
    "a window of two axes": (
        replacing("return MaxPool(inputs[0], [2, 2], [1] * 4, 'SAME', 'NCHW')"),
        "MaxPool: ksize: it is [1, 1, height, width], got [2, 2]",
    ),
    "a bias of rank 2": (
        replacing("return BiasAdd(inputs[0], [[1.0]])"),
        "BiasAdd: a bias has rank 1, got rank 2; use Add",
    ),
    "a type of ONNX": (
        replacing("return Cast(inputs[0], 'float')"),
        "Cast: dst_type: expected a DataType, got 'float'",
    ),
    "decimals": (
        traced("return Round(inputs[0], decimals=2)"),
        "Round: decimals: ONNX has 0 only, got 2",
    ),
    "batch dims": (
        traced("return Gather(inputs[0], inputs[1], batch_dims=1)"),
        "Gather: batch_dims: ONNX has 0 only, got 1",
    ),
    "a partial replacement that returns nothing": (
        of(
            PATTERN,
            "import functools\nreplacement = staticmethod(functools.partial(lambda inputs: None))",
        ),
        "must return a tensor or a list of tensors, got None",
    ),
    "a syntax error": ("def f(:\n", "SyntaxError: invalid syntax"),
    "a pattern that returns nothing": (
        traced("Relu(inputs[0])"),
        "relu must return a tensor or a list of tensors, got None",
    ),
    "a pattern of no tensors": (traced("return []"), "relu must return a tensor"),
    "a pattern without operator": (traced("return inputs[0]"), "relu: it returns input0, which"),
    "inputs without a count": (
        traced("a, b = inputs; return a + b"),
        "TypeError: inputs have no end; write inputs[:3] for the first three",
    ),
    "inputs with a gap": (traced("return inputs[0] + inputs[2]"), "leave a gap"),
    "an unknown attribute": (traced("return Relu(inputs[0], axis=1)"), "TypeError: Relu: got an"),
    "an input too many of an operator": (
        traced("return Relu(inputs[0], inputs[1])"),
        "TypeError: Relu: too many positional arguments; it is Relu(x)",
    ),
    "an operator of numbers": (
        traced("return Relu(3)"),
        "TypeError: an operator needs a tensor among its inputs",
    ),
    "a tensor for an attribute of ONNX": (
        "from ge.es.custom import Gelu\n" + traced("return Gelu(inputs[0], inputs[0])"),
        "TypeError: Gelu: approximate is an attribute and takes no tensor",
    ),
    "an operator of GE without an equal": (
        "from ge.es.nn import PRelu\n" + traced("return PRelu(inputs[0], inputs[1])"),
        "GeError: PRelu: GE's operator is PRelu(x, weight, with a weight for each channel); "
        "ONNX's is ge.es.custom.PRelu",
    ),
    "two builders": (
        listed(
            "a, b = GraphBuilder('a'), GraphBuilder('b')",
            "return [b.build_and_reset([a.create_input(0) + b.create_input(0)])]",
        ),
        'belongs to builder "b", not to "a"',
    ),
    "a builder that is used up": (
        listed(
            "a = GraphBuilder('a')",
            "graph = a.build_and_reset([Relu(a.create_input(0))])",
            "a.create_input(1)",
        ),
        'RuntimeError: "a" is built already; make another GraphBuilder',
    ),
    "a pattern of a tensor": (
        listed("a = GraphBuilder('a')", "return [create_pattern(Relu(a.create_input(0)))]"),
        "TypeError: expected the result of build_and_reset, got <TensorHolder",
    ),
    "one pattern, no list": (
        listed("a = GraphBuilder('a')", "return a.build_and_reset([Relu(a.create_input(0))])"),
        "patterns must return a list of patterns, got <Graph a>",
    ),
    "a replacement that returns nothing": (
        replacing("pass"),
        "replacement must return a tensor or a list of tensors, got None",
    ),
    "a replacement of a number": (
        replacing("return 1", "self, match_result"),
        "replacement must return the result of build_and_reset, got 1",
    ),
    "an input too many": (
        replacing("return Relu(inputs[1])"),
        "GeError: there is no input 1; the pattern has 1",
    ),
    "an input from the end": (traced("return Relu(inputs[-1])"), "GeError: there is no input -1"),
    "an async replacement": (
        of(PATTERN, "async def replacement(self, inputs):\n    return Relu(inputs[0])"),
        "P.replacement is async; a pass has plain methods",
    ),
    "an async answer": (
        of(PATTERN, REPLACEMENT, "async def meet_requirements(self, match_result): return True"),
        "P.meet_requirements is async; a pass has plain methods",
    ),
    "an async pattern": (
        of("@pattern\nasync def relu(self, inputs): return Relu(inputs[0])", REPLACEMENT),
        "TypeError: P.relu is async; a pass has plain methods",
    ),
    "an async run": (
        of("async def run(self, graph, context): pass", base="FusionBasePass"),
        "P.run is async; a pass has plain methods",
    ),
    "a graph of two patterns": (
        listed(
            "a = GraphBuilder('a')",
            "graph = a.build_and_reset([Relu(a.create_input(0))])",
            "return [create_pattern(graph), create_pattern(graph)]",
        ),
        'GeError: "a" is a pattern already',
    ),
    "a returned input": (
        traced("y = Relu(Relu(inputs[0])); return inputs[0], y"),
        "relu: it returns input0, which no operator of the pattern makes; return results alone",
    ),
    "a complex number": (traced("return Relu(inputs[0]) + 1j"), "no complex constants, got 1j"),
    "complex numbers": (
        traced("return Max(inputs[0], [[1j]])"),
        "no complex constants, got [[1j]]",
    ),
    "not a number": (
        traced("return Relu(inputs[0]) * float('nan')"),
        "ValueError: no constant equals NaN, got nan in a pattern",
    ),
    "a constant that is none": (
        listed(
            "b = GraphBuilder('b'); c = b.create_const_float([1.0, float('nan')])",
            "return [b.build_and_reset([b.create_input(0) + c])]",
        ),
        "ValueError: no constant equals NaN, got [1.0, nan] in a pattern",
    ),
    "a number as a matrix": (
        replacing("return MatMul(inputs[0], 2.0, None, False, True)"),
        "ValueError: a matrix is transposed, got numbers of rank 0",
    ),
    "a product of numbers": (
        replacing("return MatMul([[1.0]], [[2.0]], inputs[0])"),
        "TypeError: x1 and x2 are numbers, whose type is not known; use create_const_float",
    ),
    "shapes of no inputs": (
        replacing(
            "b = GraphBuilder('b'); g = b.build_and_reset([Relu(b.create_input(0))])\n"
            "    GeUtils.infer_shape(g, []); return g",
            "self, match_result",
        ),
        "GeError: infer_shape got 0 shapes, the graph has 1 inputs",
    ),
    "a match of an earlier call": (
        of(
            PATTERN,
            "def meet_requirements(self, match_result):\n"
            "    self.match = match_result; return True",
            "def replacement(self, inputs):\n"
            "    self.match.get_captured_tensor(0); return Relu(inputs[0])",
        ),
        "GeError: a match is valid during the call that gets it",
    ),
    "an edge that is needed": (
        walking("r, y = graph.get_direct_nodes(); graph.remove_edge(r, 0, y, 0)"),
        'after P (FILE:8): Relu "y": ',
    ),
    "an output too many": (
        replacing("return [Relu(inputs[0]), Relu(inputs[0])]"),
        "the replacement has 2 outputs, the pattern 1",
    ),
    "an answer as text": (asked("return 'no'"), "meet_requirements must return True or False"),
    "no answer": (asked("pass"), "meet_requirements must return True or False, got None"),
    "a missing attribute": (
        asked("return match_result.get_matched_nodes()[0].get_attr('axis')"),
        'GeError: Relu "r" has no attribute "axis"',
    ),
    "a tensor that is not captured": (
        asked("return match_result.get_captured_tensor(7)"),
        "GeError: captured tensor 7: P_relu_pattern captured 2",
    ),
    "an unknown option": (
        asked("return context.get_option_value('k')", "self, match_result, context"),
        'meet_requirements at node "y" (Relu): GeError: option "k" has no value; set it: --set P.k=VALUE',
    ),
    "a config that is not built": (
        of(
            "def __init__(self):\n    super().__init__(PatternMatcherConfigBuilder())",
            PATTERN,
            REPLACEMENT,
        ),
        "TypeError: expected the result of build(), got",
    ),
    "no call of the base class": (
        of("def __init__(self):\n    self.config = 3", PATTERN, REPLACEMENT),
        "__init__: it does not call super().__init__(), with or without a PatternMatcherConfig",
    ),
    "no operators to replace": (
        of(NO_REPLACEMENT, mark=DECOMPOSE.format("[]"), base="DecomposePass"),
        "ValueError: D: op_types names no operator",
    ),
    "operators to replace as text": (
        of(NO_REPLACEMENT, mark=DECOMPOSE.format("'Relu'"), base="DecomposePass"),
        "TypeError: D: op_types is a list of names, got 'Relu'",
    ),
    "an operator that does not exist": (
        of(NO_REPLACEMENT, mark=DECOMPOSE.format("['Rellu']"), base="DecomposePass"),
        "has an operator Rellu; did you mean Relu?",
    ),
    "a decompose pass that returns nothing": (
        of(NO_REPLACEMENT, mark=DECOMPOSE.format("['Relu']"), base="DecomposePass"),
        "replacement must return the result of build_and_reset, got None",
    ),
    "a run that fails": (
        walking("context.set_error_message('no luck'); return 0"),
        ": run: no luck",
    ),
    "a run that returns False": (walking("return False"), ": run: it returned False"),
    "a node that does not exist": (
        walking("graph.find_node_by_name('absent')"),
        'GeError: graph "g" has no node "absent"',
    ),
    "a wrong type in a boundary": (
        walking("SubgraphBoundary().add_input(0, graph)"),
        "TypeError: expected a SubgraphInput, got <Graph g>",
    ),
    "a report without an edit": (
        walking("nodes = graph.get_direct_nodes(); report_fuse(nodes[1:], nodes[1:], context)"),
        "run: GeError: nothing was edited since the last report or the pass's start",
    ),
    "a report of nodes that stay": (
        walking("nodes = graph.get_direct_nodes(); report_fuse(nodes[:1], [], context)"),
        'run: GeError: ReportFuse: Relu "r" is still in use; let its users read the new nodes',
    ),
    "a report of no nodes": (
        walking("report_fuse([], [], context)"),
        "run: GeError: ReportFuse: name the nodes before the rewrite",
    ),
    "a report of new nodes that are not in the graph": (
        walking(
            "node = graph.get_direct_nodes()[1]; graph.remove_edge(node, 0, node, 0)\n"
            "    report_fuse([node], [node], context)"
        ),
        "run: GeError: ",
    ),
    "a match of no nodes": (
        walking("report_match([], context)"),
        "run: GeError: ReportMatch: a match has a node",
    ),
    "a report of texts": (
        walking("report_fuse(['r'], [], context)"),
        "run: TypeError: expected a list of nodes, got 'r'",
    ),
    "a report to something else": (
        walking("report_match(graph.get_direct_nodes(), graph)"),
        "run: TypeError: expected a PassContext, got <Graph g>",
    ),
    "an edit in meet_requirements": (
        asked("match_result.get_matched_nodes()[0].set_attr('k', 1); return True"),
        'meet_requirements at node "y" (Relu): it edited the graph; only the graph returned by '
        "replacement may change it",
    ),
    "control edges": (
        walking("graph.add_control_edge(graph, graph)"),
        "GeError: Graph.add_control_edge: ONNX has no control edges",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_its_file_and_line(mistake: str, tmp_path: Path) -> None:
    source, message = MISTAKES[mistake]
    file = tmp_path / "passes.py"
    file.write_text(IMPORTS + source)
    onnx.save(model(RELUS), tmp_path / "m.onnx")
    with pytest.raises(GehostError) as caught:
        Host(HostOptions(pass_paths=[file])).compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
    text = str(caught.value)
    assert message.replace("FILE", str(file)) in text
    assert "\n" not in text
    lines = [int(line) for line in re.findall(rf"{re.escape(str(file))}:(\d+)", text)]
    assert lines
    assert all(line > IMPORTS.count("\n") for line in lines)
    assert not HOST_NAMES.search(text), text
    if method := re.search(r"(\w+) must return|(__init__): it does not", text):
        name = method[1] or method[2]
        code = (IMPORTS + source).splitlines()
        (line,) = [n for n, item in enumerate(code, 1) if f"def {name}(" in item]
        if code[line - 2].strip() == "@pattern":
            line -= 1
        assert lines == [line], text


HOST_NAMES = re.compile(r"MeetRequirements|Replacement|Patterns|\bRun\b|BuildAndReset|EsGraph")
"""What authors of this interface never wrote."""
