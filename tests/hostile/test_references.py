"""What a pass keeps, or does to the objects that it is given, reaches neither the graph nor the next compile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, PassError
from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = LeakyRelu <alpha = 0.5> (x)
    b = Neg (a)
    y = LeakyRelu <alpha = 0.25> (b)
}"""
BUILT = """
import threading

def built(op):
    builder = EsGraphBuilder(op)
    return builder.BuildAndReset([es.op(op)(builder.CreateInput(0))])
"""
RULE = """
@REG_FUSION_PASS
class Rule(PatternFusionPass):
    kept = []
    def Patterns(self): return [Pattern(built("LeakyRelu"))]
    def MeetRequirements(self, match):
        {meet}
        return True
    def Replacement(self, match):
        {replace}
"""


def rule(meet: str = "pass", replace: str = "return built('Relu')") -> str:
    return BUILT + RULE.format(meet=meet, replace=replace)


@pytest.mark.parametrize(
    "meet",
    [
        "match.GetMatchedNodes().clear()",
        "match.inputs.clear()",
        "match.outputs.append(match.inputs[0])",
        "match.attributes.update(alpha=3)",
        "match.region().nodes.clear()",
        "match.ToSubgraphBoundary().AddOutput(1, SubgraphOutput())",
        "match.GetMatchedNodes()[0].metadata.update(k='v')",
        "match.inputs[0].consumers().clear()",
        "threading.Thread(target=lambda: built('Neg')).start()",
        "self.Replacement(match)",
    ],
)
def test_what_it_does_to_what_it_is_given_changes_nothing(
    vendors: Any, gehost_run: Any, tmp_path: Path, meet: str
) -> None:
    onnx.save(parse(MODEL), tmp_path / "m.onnx")
    outputs = []
    for code in (rule(), rule(meet)):
        vendors.write("acme/a.py", code)
        assert gehost_run("compile", "m.onnx", "-o", "out.onnx", "--no-cleanup")[0] == 0
        outputs.append((tmp_path / "out.onnx").read_bytes())
        (tmp_path / "vendors/acme/custom_fusion_passes/a.py").unlink()
    assert outputs[0] == outputs[1]
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == [
        "Relu",
        "Neg",
        "Relu",
    ]


@pytest.mark.parametrize(
    ("meet", "message"),
    [
        (
            "match.GetMatchedNodes()[0].attrs['alpha'] = 1.0",
            "TypeError: 'Attributes' object does not support item assignment",
        ),
        (
            "match.graph.set_metadata(match.GetMatchedNodes()[0], 'k', 'v')",
            "it edited the graph; only the graph returned by Replacement",
        ),
        (
            "match.GetMatchedNodes()[0].SetAttr('alpha', 1.0)",
            "it edited the graph; only the graph returned by Replacement",
        ),
        (
            "match.graph.add_initializer(__import__('numpy').ones(3), 'mine')",
            "it edited the graph; only the graph returned by Replacement",
        ),
        (
            "SubgraphRewriter.Replace(match.ToSubgraphBoundary(), built('Abs'))",
            "it edited the graph; only the graph returned by Replacement",
        ),
    ],
)
def test_a_rule_may_not_edit_the_graph_while_it_is_asked(
    vendors: Any, gehost_run: Any, tmp_path: Path, meet: str, message: str
) -> None:
    onnx.save(parse(MODEL), tmp_path / "m.onnx")
    vendors.write("acme/a.py", rule(meet))
    vendors.write("zeta/good.py", vendors.swap("Good", "Neg", "Sigmoid"))
    code, _, err = gehost_run("compile", "m.onnx", "-o", "out.onnx")
    assert (code, message in err, err.count("\n")) == (5, True, 1)
    assert gehost_run("compile", "m.onnx", "-o", "out.onnx", "--keep-going")[0] == 5
    saved = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in saved.graph.node] == ["LeakyRelu", "Sigmoid", "LeakyRelu"]
    assert [entry.name for entry in saved.graph.initializer] == []


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (
            "return es.Abs(self.kept.append(match.outputs[0]) or self.kept[0])",
            "Abs needs at least one tensor among its inputs",
        ),
        (
            "self.kept.append(match); return self.kept[0].GetMatchedNodes()[0]",
            "it must return the result of BuildAndReset",
        ),
    ],
)
def test_tensors_and_nodes_of_the_graph_are_no_replacement(
    vendors: Any, gehost_run: Any, tmp_path: Path, replace: str, message: str
) -> None:
    onnx.save(parse(MODEL), tmp_path / "m.onnx")
    vendors.write("acme/a.py", rule(replace=replace))
    code, _, err = gehost_run("compile", "m.onnx", "-o", "out.onnx")
    assert (code, message in err, err.count("\n")) == (5, True, 1)


KEEPING = """
@REG_FUSION_PASS
class Keeping(FusionBasePass):
    kept = []
    def Run(self, graph, context):
        self.kept.append((graph, list(graph.nodes), context))
        old, nodes, then = self.kept[0]
        {use}
"""


@pytest.mark.parametrize(
    "use",
    [
        "graph.set_input(list(graph.nodes)[-1], 0, nodes[0].outputs[0])",
        "graph.remove_node(nodes[0])",
        "graph.move_after(nodes[1], None)",
        "SubgraphRewriter.Replace(SubgraphBoundary().AddInput(0, SubgraphInput([NodeIo(nodes[0], 0)]))"
        ".AddOutput(0, SubgraphOutput(NodeIo(nodes[0], 0))), built('Abs'))",
    ],
)
def test_what_a_pass_keeps_of_one_compile_is_of_no_use_in_the_next(vendors: Any, use: str) -> None:
    vendors.write("acme/a.py", BUILT, KEEPING.format(use=f"if graph is not old: {use}"))
    vendors.write("zeta/good.py", vendors.swap("Good", "Neg", "Sigmoid"))
    host = Host(HostOptions(vendors=[vendors.root], plugins=False, keep_going=True, cleanup=False))
    first, _ = host.run(parse(MODEL))
    second, report = host.run(parse(MODEL))
    assert [record.status for record in report.passes] == ["failed", "done"], report.problems
    assert first == second
    strict = Host(HostOptions(vendors=[vendors.root], plugins=False, cleanup=False))
    strict.run(parse(MODEL))
    with pytest.raises(PassError, match="^Keeping"):
        strict.run(parse(MODEL))


def test_a_replacement_that_is_one_object_for_all_matches_is_built_anew_each_time(
    vendors: Any, gehost_run: Any, tmp_path: Path
) -> None:
    onnx.save(parse(MODEL), tmp_path / "m.onnx")
    vendors.write(
        "acme/a.py",
        rule(replace="self.kept[:] = self.kept or [built('Relu')]; return self.kept[0]"),
    )
    assert gehost_run("compile", "m.onnx", "-o", "out.onnx", "--report", "r.json")[0] == 0
    (record,) = json.loads((tmp_path / "r.json").read_text())["passes"]
    assert (record["replaced"], record["status"]) == (2, "done")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
