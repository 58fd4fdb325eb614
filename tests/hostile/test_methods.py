"""Methods of passes that raise, return nonsense or never come to an end: exit code 5, the pass named and undone as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import onnx
import pytest

from gehost.errors import one_line
from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x, float[3] z, bool c) => (float[2] y, float[2] w) {
    a = Relu (x)
    b = Relu (a)
    d = If (c) <
        then_branch = inner () => (float[2] t) { e = Relu (a) t = Neg (e) },
        else_branch = other () => (float[2] f) { f = Identity (b) }
    >
    y = Neg (d)
    v = Add (b, d)
    w = Softmax <axis = 0> (v)
}"""

PROLOGUE = """
def built(*ops, inputs=1, outputs=1, **constraint):
    builder = EsGraphBuilder("built")
    tensor = builder.CreateInputs(inputs)[0]
    for op in ops:
        tensor = es.op(op)(tensor)
    return builder.BuildAndReset([tensor] * outputs)

class Base(PatternFusionPass):
    def Patterns(self): return [Pattern(built("Relu"))]
    def Replacement(self, match): return built("Abs")

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
"""


@pytest.fixture
def model(tmp_path: Path, vendors: Any) -> Path:
    """A model, and good passes before and after ``beta/bad.py``."""
    path = tmp_path / "m.onnx"
    onnx.save(parse(MODEL), path)
    vendors.write("acme/good.py", vendors.swap("First", "Neg", "Sigmoid"))
    vendors.write("zeta/good.py", vendors.swap("Last", "Sigmoid", "Tanh"))
    return path


@pytest.fixture
def contained(
    model: Path, vendors: Any, refused: Any, gehost_run: Any, tmp_path: Path
) -> Callable[..., None]:
    """``contained(code, told)``: a compile with the pass ``Bad`` ends with 5; with ``--keep-going`` too, and the output is as if it were not there."""

    def contained(code: str, message: str, exit_code: int = 5) -> None:
        file = vendors.write("beta/bad.py", PROLOGUE, code)
        line = refused(exit_code, model, "--vendors", vendors.root)
        assert message in line
        assert f"{file}:" in line
        output, report = tmp_path / "kept.onnx", tmp_path / "report.json"
        actual, _, err = gehost_run(
            "compile",
            model,
            "-o",
            output,
            "--vendors",
            vendors.root,
            "--keep-going",
            "--report",
            report,
        )
        assert actual == exit_code
        assert err.splitlines()[-1].startswith(f"gehost: {output} is written; kept going after: ")
        result = json.loads(report.read_text())
        (problem,) = result["problems"]
        assert without_addresses(line) == f"gehost: {without_addresses(one_line(problem))}"
        statuses = {
            record["name"]: (record["status"], record["replaced"]) for record in result["passes"]
        }
        assert statuses.pop("Bad", ("failed", 0)) == ("failed", 0)
        assert statuses == {"First": ("done", 2), "Last": ("done", 2)}
        file.unlink()
        assert (
            gehost_run("compile", model, "-o", tmp_path / "wanted.onnx", "--vendors", vendors.root)[
                0
            ]
            == 0
        )
        assert output.read_bytes() == (tmp_path / "wanted.onnx").read_bytes()

    return contained


def without_addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x", text)


def bad(*methods: str, base: str = "Base") -> str:
    """The class ``Bad``; the pass has done something by the time that it fails, wherever that can be."""
    return f"class Bad({base}):\n" + "".join(indent(f"{method}\n", "    ") for method in methods)


# -- methods that raise -----------------------------------------------------------------------------------------------

DECOMPOSE = "DecomposePass"
METHODS = {
    "__new__": ("Base", "def __new__(cls): {}", "__init__: "),
    "__init__": ("Base", "def __init__(self): {}", "__init__: "),
    "Patterns": ("Base", "def Patterns(self): {}", "Patterns: "),
    "Patterns, lazily": (
        "Base",
        "def Patterns(self):\n    yield Pattern(built('Relu'))\n    {}",
        "Patterns: ",
    ),
    "MeetRequirements": (
        "Base",
        "def MeetRequirements(self, match):\n    {}",
        'MeetRequirements at node "a" (Relu): ',
    ),
    "Replacement": (
        "Base",
        "def Replacement(self, match):\n    {}",
        'Replacement at node "a" (Relu): ',
    ),
    "second Replacement": (
        "Base",
        "def Replacement(self, match):\n    if match.outputs[0].name == 'b': {}\n    return built('Abs')",
        'Replacement at node "b" (Relu): ',
    ),
    "in a body": (
        "Base",
        "def MeetRequirements(self, match):\n    if match.outputs[0].name == 'e': {}\n    return True",
        'MeetRequirements at node "e" (Relu): ',
    ),
    "Run": ("FusionBasePass", "def Run(self, graph, context): {}", "Run: "),
    "Run, after edits": (
        "FusionBasePass",
        "def Run(self, graph, context):\n    for node in graph.nodes: graph.set_metadata(node, 'k', 'v')\n    {}",
        "Run: ",
    ),
    "decompose MeetRequirements": (
        DECOMPOSE,
        "op_types = ['Relu']\ndef Replacement(self, node): return built('Abs')\ndef MeetRequirements(self, node): {}",
        'MeetRequirements at node "a" (Relu): ',
    ),
    "decompose Replacement": (
        DECOMPOSE,
        "op_types = ['Relu']\ndef Replacement(self, node): {}",
        'Replacement at node "a" (Relu): ',
    ),
    "a property": ("Base", "@property\ndef shape_proven(self): {}", "__init__: "),
    "op_types": (
        DECOMPOSE,
        "@property\ndef op_types(self): {}\ndef Replacement(self, node): return built('Abs')",
        "Run: ",
    ),
    "a constraint": (
        "Base",
        "def Patterns(self):\n"
        "    def fail(value): {}\n"
        "    builder = EsGraphBuilder('x')\n"
        "    return [Pattern(builder.BuildAndReset([es.constrain(es.Softmax(builder.CreateInput(0)), axis=fail)]))]",
        'Patterns: the condition on axis at node "w" (Softmax): ',
    ),
}
ERRORS = {
    "raise ZeroDivisionError('of all things')": "ZeroDivisionError: of all things",
    "raise SystemExit(0)": "SystemExit: 0",
    "raise type('Own', (BaseException,), {})('x')": "Own: x",
    "raise MemoryError": "MemoryError",
    "(lambda f: f(f))(lambda f: f(f))": "RecursionError: maximum recursion depth exceeded",
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("case", METHODS)
def test_a_method_that_raises_is_named_with_its_file_and_the_node_and_undone(
    contained: Any, case: str, error: str
) -> None:
    base, method, message = METHODS[case]
    contained(bad(method.format(error), base=base), f"{message}{ERRORS[error]}")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            "raise ValueError('a\\r\\nb\\x00\\x1b]0;title\\x07\\u2028\\u202e')",
            r"ValueError: a b\x00\x1b]0;title\x07 \u202e",
        ),
        ("raise ValueError('x' * 1_000_000)", f"ValueError: {'x' * 2000}… (1000000 characters)"),
        ("raise ValueError(object, 3, b'\\xff')", "ValueError: (<class 'object'>, 3, b'\\xff')"),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})",
            "Mute: (its message cannot be read: ",
        ),
        (
            "raise type('Odd', (Exception,), {'__str__': lambda self: 3})",
            "Odd: (its message cannot be read: TypeError)",
        ),
        (
            "raise type('Exit', (Exception,), {'__str__': lambda self: exit()})",
            "Exit: (its message cannot be read: SystemExit)",
        ),
        ("raise type('a\\nb', (Exception,), {})('c')", "a b: c"),
        ("raise type('Sly', (PassError,), {'exit_code': 0, 'named': False})('sly')", ": sly"),
    ],
)
def test_messages_are_one_line_whatever_they_are(contained: Any, message: str, text: str) -> None:
    code = "from gehost import PassError\n" + bad(f"def Replacement(self, match): {message}")
    contained(
        code.replace("from gehost import PassError\n", "", 1).replace(
            "PassError", "__import__('gehost').PassError"
        ),
        text,
    )


# -- methods that return nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "Patterns: it must return a list of Pattern, got None"),
        ("3", "Patterns: it must return a list of Pattern, got 3"),
        ("[]", "Patterns: it must return a list of Pattern, got []"),
        ("'Relu'", "Patterns: it must return a list of Pattern, got 'Relu'"),
        ("[Pattern(built('Relu')), None]", "Patterns: it must return a list of Pattern, got [<"),
        ("[EsGraphBuilder('x')]", "Patterns: it must return a list of Pattern, got "),
        ("[Pattern]", "Patterns: it must return a list of Pattern, got "),
        ("[object.__new__(Pattern)]", "Patterns: "),
        (
            "iter(lambda pattern=Pattern(built('Relu')): pattern, None)",
            "Patterns: it returned more than 10000 patterns",
        ),
        ("[Pattern(3)]", "Pattern needs the result of BuildAndReset, got int"),
        ("[Pattern(built())]", "pattern 'built' has no operator"),
        ("[Pattern(built('Relu', inputs=2))]", "no operator of pattern 'built' reads input"),
        ("[Pattern(built('Relu', outputs=2))]", "output 1 of pattern 'built' is given twice"),
        (
            "[Pattern(built('NoSuchOperator'))]",
            "neither ONNX nor a vendor file has an operator NoSuchOperator",
        ),
        ("[Pattern(built('If'))]", "If has nested graphs and is not allowed in a pattern"),
        (
            "[Pattern(built('Relu')).CaptureTensor(built('Relu').outputs[0])]",
            "the captured tensor is not one of pattern",
        ),
        (
            "[Pattern(EsGraphBuilder('a').BuildAndReset([built('Relu').outputs[0]]))]",
            "was made by another builder",
        ),
        (
            "[Pattern(self.twisted(lambda graph: graph.outputs.clear()))]",
            "Relu of pattern 'built' reaches no output",
        ),
        ("[Pattern(self.twisted(lambda graph: graph.nodes.append(3)))]", "Error: "),
        (
            "[Pattern(self.twisted(lambda graph: graph.nodes[0].inputs.__setitem__(0, graph.outputs[0])))]",
            "Relu of pattern 'built' reads the output of a later operator",
        ),
    ],
)
def test_patterns_that_are_none(contained: Any, returned: str, message: str) -> None:
    twisted = (
        "def twisted(self, twist):\n    graph = built('Relu')\n    twist(graph)\n    return graph"
    )
    contained(bad(twisted, f"def Patterns(self): return {returned}"), message)


@pytest.mark.parametrize(
    "answer", ["'rank: a text'", "[]", "{}", "3.5", "match", "NotImplemented", "Pattern"]
)
def test_answers_of_meet_requirements_that_are_none(contained: Any, answer: str) -> None:
    message = 'MeetRequirements at node "a" (Relu): it must return True, False or match.reject(reason), got '
    contained(bad(f"def MeetRequirements(self, match): return {answer}"), message)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "it must return the result of BuildAndReset, or tensors of one builder; got None"),
        ("3", "it must return the result of BuildAndReset"),
        ("[]", "it must return the result of BuildAndReset"),
        ("match", "it must return the result of BuildAndReset"),
        ("match.outputs[0]", "it must return the result of BuildAndReset"),
        (
            "[built('Abs').outputs[0], built('Abs').outputs[0]]",
            "it must return the result of BuildAndReset, or tensors of one builder",
        ),
        ("built('Abs', outputs=2)", "the replacement has 2 outputs, the pattern 1"),
        ("built('Abs', inputs=2)", "the replacement has 2 inputs, the pattern 1"),
        ("es.Abs(match.inputs[0])", "Abs"),
        (
            "es.Add(built('Abs').outputs[0], match.outputs[0])",
            "belongs to a graph that is built already; begin another one",
        ),
        (
            "es.Add(built('Abs').outputs[0], built('Abs').outputs[0])",
            "belongs to a graph that is built already",
        ),
        ("es.Add(built('Abs').outputs[0], object())", "belongs to a graph that is built already"),
        ("EsGraphBuilder('x').BuildAndReset([])", "graph 'x' has no outputs"),
        (
            "EsGraphBuilder('x').BuildAndReset([built('Abs').outputs[0]])",
            "output 0 of 'x' was made by another builder",
        ),
        ("EsGraphBuilder('x').CreateInput(-1)", "inputs are numbered from 0"),
        ("es.Abs(EsGraphBuilder('x').CreateInput(1))", "leave a gap; number them from 0"),
        (
            "built('NoSuchOperator')",
            "neither ONNX nor a vendor file has an operator NoSuchOperator",
        ),
        ("es.LeakyRelu(EsGraphBuilder('x').CreateInput(0), alpha=object())", "alpha"),
        ("match.GetCapturedTensor(0)", "IndexError: captured tensor 0: the pattern captured 0"),
        ("match.GetMatchedNode(7)", "IndexError"),
    ],
)
def test_replacements_that_are_none(contained: Any, returned: str, message: str) -> None:
    contained(bad(f"def Replacement(self, match):\n    return {returned}"), message)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("es.Cast(EsGraphBuilder('x').CreateInput(0), to=11)", "dtype"),
        ("(lambda x: es.Concat(x, x, axis=0))(EsGraphBuilder('x').CreateInput(0))", "shape"),
        ("es.Unsqueeze(EsGraphBuilder('x').CreateInput(0), axes=[0])", "rank"),
        (
            "(lambda x: es.MatMul(x, es.Transpose(x, perm=[3, 1])))(EsGraphBuilder('x').CreateInput(0))",
            "types",
        ),
        ("EsGraphBuilder('x').CreateConst([1.0, 2.0, 3.0])", "shape"),
        ("self.pattern", "no change"),
        ("built('Relu')", "no change"),
    ],
)
def test_replacements_of_other_types_are_refused_and_counted(
    vendors: Any, model: Path, gehost_run: Any, tmp_path: Path, returned: str, reason: str
) -> None:
    patterns = (
        "def Patterns(self):\n    self.pattern = built('Relu')\n    return [Pattern(self.pattern)]"
    )
    file = vendors.write(
        "beta/bad.py", PROLOGUE, bad(patterns, f"def Replacement(self, match): return {returned}")
    )
    report, out = tmp_path / "report.json", tmp_path / "out.onnx"
    assert (
        gehost_run("compile", model, "-o", out, "--vendors", vendors.root, "--report", report)[0]
        == 0
    )
    result = {record["name"]: record for record in json.loads(report.read_text())["passes"]}
    assert (result["Bad"]["status"], result["Bad"]["rejected"]) == ("not changed", {reason: 3})
    file.unlink()
    assert (
        gehost_run("compile", model, "-o", tmp_path / "wanted.onnx", "--vendors", vendors.root)[0]
        == 0
    )
    assert out.read_bytes() == (tmp_path / "wanted.onnx").read_bytes()


def test_a_pattern_may_be_deeper_than_python_s_stack(
    vendors: Any, model: Path, gehost_run: Any, tmp_path: Path
) -> None:
    code = bad("def Patterns(self): return [Pattern(built(*['Relu'] * 2_500))]")
    vendors.write("beta/bad.py", PROLOGUE, code)
    report = tmp_path / "report.json"
    value = (model, "-o", tmp_path / "out.onnx", "--vendors", vendors.root, "--report", report)
    assert gehost_run("compile", *value)[0] == 0
    result = {item["name"]: item["status"] for item in json.loads(report.read_text())["passes"]}
    assert result["Bad"] == "not changed"


def test_a_pattern_that_somebody_bent_into_a_cycle_is_contained(contained: Any) -> None:
    cycle = "def Patterns(self):\n    x, y = (builder := EsGraphBuilder('c')).CreateInputs(2)\n    a = es.Add(x, x)\n    b = es.Add(a, y)\n"
    cycle += "    a.producer.inputs[1] = b\n    return [Pattern(builder.BuildAndReset([b]))]"
    contained(bad(cycle), "Add of pattern 'c' reads the output of a later operator")


# -- rewrites without end -------------------------------------------------------------------------------------------

OTHER = "'Abs' if match.GetMatchedNodes()[0].op == 'Relu' else 'Relu'"
ENDLESS = {
    "grows": bad("def Replacement(self, match): return built('Abs', 'Relu')"),
    "doubles": bad("def Replacement(self, match): return built('Relu', 'Relu')"),
    "alternates": bad(
        "def Patterns(self):\n"
        "    builder = EsGraphBuilder('any')\n"
        "    return [Pattern(builder.BuildAndReset([es.AnyOf('Relu', 'Abs')(builder.CreateInput(0))]))]",
        f"def Replacement(self, match): return built({OTHER})",
    ),
    "by hand": bad(
        "def Run(self, graph, context):\n"
        "    while True:\n"
        "        for op in ('Relu', 'Abs'):\n"
        "            match = PatternMatcher(Pattern(built(op)), graph).MatchNext()\n"
        f"            SubgraphRewriter.Replace(match.ToSubgraphBoundary(), built({OTHER}))",
        base="FusionBasePass",
    ),
}


@pytest.mark.parametrize("how", ENDLESS)
def test_a_rewrite_that_feeds_itself_is_stopped(contained: Any, how: str) -> None:
    contained(ENDLESS[how], "is 101 generations deep")


def test_two_passes_and_a_decomposition_that_feed_each_other_come_to_an_end(
    vendors: Any, model: Path, gehost_run: Any, tmp_path: Path
) -> None:
    vendors.write(
        "beta/a.py", vendors.swap("There", "Relu", "Abs"), vendors.swap("Back", "Abs", "Relu")
    )
    split = "op_types = ['Relu']\ndef Replacement(self, node): return built('Relu', 'Relu')"
    vendors.write("beta/bad.py", PROLOGUE, bad(split, base=DECOMPOSE))
    report = tmp_path / "report.json"
    assert (
        gehost_run(
            "compile",
            model,
            "-o",
            tmp_path / "o.onnx",
            "--vendors",
            vendors.root,
            "--report",
            report,
        )[0]
        == 0
    )
    counts = {
        record["name"]: record["replaced"] for record in json.loads(report.read_text())["passes"]
    }
    assert counts == {"First": 2, "There": 3, "Back": 3, "Bad": 3, "Last": 2}


# -- edits by hand --------------------------------------------------------------------------------------------------


def run(*lines: str) -> str:
    body = "".join(
        f"\n    {line}"
        for line in ("if graph.owner is not None: return", "nodes = list(graph.nodes)", *lines)
    )
    return bad(f"def Run(self, graph, context):{body}", base="FusionBasePass")


INVALID = {
    "a cycle": ("graph.set_input(nodes[0], 0, nodes[1].outputs[0])", 'reads "b" before it is made'),
    "an order that is none": (
        "graph.move_after(nodes[0], nodes[1])",
        'reads "a" before it is made',
    ),
    "a dangling use": (
        "node = graph.add_node('Abs', [graph.inputs[0]], ['t'])\n    graph.remove_node(node)\n"
        "    graph.set_input(nodes[0], 0, node.outputs[0])",
        'reads "t", which is not defined here (any more)',
    ),
    "a name that is taken": (
        "graph.add_node('Abs', [graph.inputs[0]], ['b'])",
        'has a tensor "b" already',
    ),
    "a tensor of a body, read outside": (
        "graph.set_input(nodes[-1], 0, nodes[2].bodies[0].values['e'])",
        'reads "e", which is not defined here (any more)',
    ),
    "a tensor of another model": (
        "import gehost.testing\n    text = '<ir_version: 8, opset_import: [\"\" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'\n"
        "    graph.set_input(nodes[-1], 0, gehost.testing.graph_of(text).values['y'])",
        'reads "y", which is not defined here (any more)',
    ),
    "two producers": (
        "graph.add_node('Abs', [graph.inputs[0]], [nodes[1].outputs[0]], after=nodes[1])",
        'tensor "b" has two producers',
    ),
    "a removed node in use": (
        "graph.remove_node(nodes[0])",
        'cannot be removed: tensor "a" is still read',
    ),
    "nonsense for a tensor": ("graph.set_input(nodes[0], 0, 'x')", "Error: "),
    "nonsense for a node": ("graph.remove_node(3)", "Error: "),
    "nonsense for an attribute": ("nodes[-1].SetAttr('axis', object())", "TypeError: "),
    "an operator of another domain that is none": (
        "graph.add_node('Abs', [3], ['t'])",
        "Error: ",
    ),
}


@pytest.mark.parametrize("how", INVALID)
def test_a_pass_that_leaves_an_invalid_graph_is_named_and_undone(contained: Any, how: str) -> None:
    line, message = INVALID[how]
    contained(run("graph.set_metadata(nodes[0], 'k', 'v')", line), message)


PAST_THE_METHODS = {
    "an output removed": "del graph.proto.output[0]",
    "an output renamed": "graph.proto.output[0].name = 'other'",
    "a tensor renamed": "nodes[0].outputs[0].name = 'other'",
    "an operator changed": "nodes[0].proto.op_type = 'Abs'",
    "an input changed": "nodes[0].proto.input[0] = 'other'",
    "inputs emptied": "nodes[1].inputs = ()",
    "values forgotten": "graph.values.clear()",
    "nodes forgotten": "graph.by_op.clear()",
}


@pytest.mark.parametrize("where", ["Run", "MeetRequirements"])
@pytest.mark.parametrize("how", PAST_THE_METHODS)
def test_edits_past_the_graphs_methods_end_the_compile_without_an_output(
    vendors: Any, model: Path, refused: Any, how: str, where: str
) -> None:
    """They are not in the journal and cannot be undone; so that not even ``--keep-going`` goes on."""
    code = PAST_THE_METHODS[how]
    edit = {
        "Run": run("graph.set_metadata(nodes[0], 'k', 'v')", code),
        "MeetRequirements": bad(
            f"def MeetRequirements(self, match):\n    graph = match.graph.model.graph\n    nodes = list(graph.nodes)\n    {code}\n"
            "    return False"
        ),
    }[where]
    vendors.write("beta/bad.py", PROLOGUE, edit)
    for options in ([], ["--keep-going"]):
        assert "Bad" in refused(5, model, "--vendors", vendors.root, *options)
