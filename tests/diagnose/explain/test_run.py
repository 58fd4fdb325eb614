"""``gehost explain`` names the true cause of every kind of miss, and what became of everything else."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions
from gehost.cli import run
from gehost.diagnose.explain.findings import Explanation
from gehost.diagnose.explain.run import explain
from gehost.testing import parse
from tests.diagnose.conftest import Pass


def told(
    vendors: Any, passes: str, body: str, node: str | None = None, opset: int = 17, **options: Any
) -> Explanation:
    """What is told of pass P on a graph of ONNX text, ``(inputs) => (outputs) { … }``."""
    vendors.write("acme/p.py", passes)
    model = parse(f'<ir_version: 8, opset_import: ["": {opset}]> g {body}')
    value = HostOptions(vendors=[vendors.root], plugins=False, **{"cleanup": False, **options})
    return explain(model, "P", value, node)


def nearest(actual: Explanation) -> str:
    """What the first line says: a note on the pass, else the reason of the nearest miss or refusal."""
    return actual.notes[0] if actual.notes else actual.groups()[0].first.reason


LINEAR = Pass("es.MatMul(x, y)", 2, "es.Gemm(x, y)").code("LinearFusePass")
LINEAR_ADD = Pass("es.MatMul(x, y) + z", 3, "es.Gemm(x, y, z)")
PRODUCT = "(float[2, 3] x, float[3, 4] w, float[2, 4] b) => (float[2, 4] y)"
UNARY = "(float[2] x) => (float[2] y)"
TWO = "(float[2] x) => (float[2] y, float[2] z)"

MISSES = {
    "another operator, made by a pass": (
        LINEAR + LINEAR_ADD.code(), f"{PRODUCT} {{ m = MatMul(x, w) [l0_add] y = Add(m, b) }}",
        'Add "l0_add" input 0: wanted MatMul, got Gemm (made by LinearFusePass)'),
    "another operator": (
        Pass("-es.Relu(x)"), f"{UNARY} {{ a = Abs(x) y = Neg(a) }}", 'Neg "y" input 0: wanted Relu, got Abs'),
    "none of several operators": (
        Pass('-es.AnyOf("Relu", "Elu")(x)'), f"{UNARY} {{ a = Abs(x) y = Neg(a) }}",
        'Neg "y" input 0: wanted Relu|Elu, got Abs'),
    "an input where an operator is wanted": (
        Pass("-es.Relu(x)"), f"{UNARY} {{ y = Neg(x) }}", 'Neg "y" input 0: wanted Relu, got "x", an input of the graph'),
    "a constant where an operator is wanted": (
        Pass("es.Relu(x) * y", 2), f"{UNARY} <float[2] w = {{1, 2}}> {{ y = Mul(w, x) }}",
        'Mul "y" input 0: wanted Relu, got "w", a constant'),
    "a parameter": (
        Pass("es.constrain(es.Transpose(x), perm=[0, 2, 1, 3])"),
        "(float[1, 2, 3, 4] x) => (float[1, 3, 4, 2] y) { y = Transpose <perm = [0, 2, 3, 1]> (x) }",
        'Transpose "y" perm: wanted [0, 2, 1, 3], got [0, 2, 3, 1]'),
    "a parameter's condition": (
        Pass("es.constrain(es.LeakyRelu(x), alpha=lambda alpha: alpha > 1)"), f"{UNARY} {{ y = LeakyRelu <alpha = 0.5> (x) }}",
        'LeakyRelu "y" alpha: wanted a value that its condition accepts, got 0.5'),
    "a parameter, where all are asked": (
        Pass("es.LeakyRelu(x)", config=".EnableIrAttrMatch()"), f"{UNARY} {{ y = LeakyRelu <alpha = 0.5> (x) }}",
        'LeakyRelu "y" alpha: wanted 0.01, got 0.5'),
    "no constant": (
        Pass("x * 3.0"), "(float[2] x, float[2] b) => (float[2] y) { y = Mul(x, b) }",
        'Mul "y" input 1: wanted a constant, got "b", an input of the graph'),
    "a constant that callers may override": (
        Pass("x * 3.0"), "(float[2] x, float[1] b) => (float[2] y) <float[1] b = {3}> { y = Mul(x, b) }",
        'Mul "y" input 1: wanted a constant, got "b", an initializer that callers may override'),
    "another constant": (
        Pass("x * 3.0"), f"{UNARY} <float[1] b = {{2}}> {{ y = Mul(x, b) }}",
        'Mul "y" input 1: wanted the constant 3.0, got "b", [2.0]'),
    "two tensors for one placeholder": (
        Pass("x * x"), "(float[2] x, float[2] b) => (float[2] y) { y = Mul(x, b) }",
        'Mul "y" input 1: wanted "x" again, got "b"'),
    "an absent input": (
        Pass("es.Clip(x, y)", 2), f"{UNARY} {{ y = Clip(x) }}", 'Clip "y" input 1: it is absent'),
    "an input that must be absent": (
        Pass("es.Clip(x, None, y)", 2), f"{UNARY} <float low = {{0}}, float high = {{1}}> {{ y = Clip(x, low, high) }}",
        'Clip "y" input 1: wanted none, got "low"'),
    "the number of inputs": (
        Pass("es.Concat(x, y, axis=0)", 2), "(float[2] x) => (float[6] y) { y = Concat <axis = 0> (x, x, x) }",
        'Concat "y" inputs: wanted 2, got 3'),
    "swapped operands": (
        Pass("es.Relu(x) + y", 2), "(float[2] x, float[2] b) => (float[2] y) { a = Relu(x) y = Add(b, a) }",
        'Add "y" input 0: wanted Relu, got "b", an input of the graph; input 1 is Relu: es.Commutative tries both orders'),
    "neither of two operands that may swap": (
        Pass("es.Commutative(es.Relu(x) + y)", 2), f"{UNARY} {{ a = Abs(x) b = Exp(x) y = Add(a, b) }}",
        'Add "y" inputs 0 and 1: wanted Relu, got Abs and Exp'),
    "none of the alternatives": (
        Pass("-es.Alternatives(es.Cos(x), es.Tan(x))"), f"{UNARY} {{ a = Exp(x) y = Neg(a) }}",
        'Neg "y" input 0: wanted Cos or Tan, got Exp'),
    "another output": (
        Pass("-es.Split(x, num_outputs=2, axis=0)[1]"),
        "(float[4] x) => (float[2] y, float[2] b) { a, b = Split <axis = 0> (x) y = Neg(a) }",
        'Neg "y" input 0: wanted output 1 of Split, got "a", output 0'),
    "another reader": (
        Pass("-es.Relu(x)"), f"{TWO} {{ a = Relu(x) y = Neg(a) [l1_mul] z = Mul(a, x) }}",
        'tensor "a" is also read by "l1_mul"'),
    "an output of the graph": (
        Pass("-es.Relu(x)"), f"{TWO} {{ z = Relu(x) y = Neg(z) }}", 'tensor "z" is also an output of the graph'),
    "a nested body that reads": (
        Pass("-es.Relu(x)"),
        "(float[2] x, bool c) => (float[2] y, float[2] z) { a = Relu(x) y = Neg(a) "
        "z = If (c) <then_branch = t () => (float[2] r) { [inner] r = Abs(a) }, else_branch = e () => (float[2] s) { s = Abs(x) }> }",
        'tensor "a" is also read by "inner" in graph "t"'),
    "a node of an outer graph": (
        Pass("-es.Relu(x)"),
        "(float[2] x, bool c) => (float[2] z) { a = Relu(x) "
        "z = If (c) <then_branch = t () => (float[2] r) { r = Neg(a) }, else_branch = e () => (float[2] s) { s = Abs(x) }> }",
        'Neg "r" is in another graph, "t"'),
    "a second output that nobody makes": (
        Pass("[es.Relu(x), -x]", 1, "[es.Sin(x), es.Cos(x)]"), f"{TWO} {{ y = Relu(x) z = Abs(x) }}",
        'tensor "x": wanted Neg to read it; it is read by Relu, Abs'),
    "a cycle": (
        Pass("[es.Relu(x), -y]", 2, "[es.Sin(x), es.Cos(y)]"), f"{TWO} {{ y = Relu(x) a = Exp(y) z = Neg(a) }}",
        'would make a cycle through Exp "a"'),
    "a dtype and a rank": (
        Pass("-x", asks=", dtype=DataType.DOUBLE, rank=3"), f"{UNARY} {{ y = Neg(x) }}",
        'Neg "y" input 0: wanted dtype DOUBLE, rank 3, got "x", float[2]'),
    "no node of the operator": (
        Pass("es.Relu(-x)"), f"{UNARY} {{ y = Abs(x) }}", 'there was no Relu, which makes output 0, when pattern "p" was tried'),
    "no node of the last operator": (
        Pass("es.Relu(-x)"), f"{UNARY} {{ a = Neg(x) y = Abs(a) }}", 'tensor "a": wanted Relu to read it; it is read by Abs'),
    "a condition of the author's": (
        Pass("-x", meet='return match.reject("rank: Gemm takes matrices")'), f"{UNARY} {{ y = Neg(x) }}",
        "MeetRequirements: rank: Gemm takes matrices"),
    "a condition that says no more": (
        Pass("-x", meet="return False"), f"{UNARY} {{ y = Neg(x) }}", "MeetRequirements: it returned False"),
    "a replacement of another dtype": (
        Pass("-x", replacement="es.IsNaN(x)"), f"{UNARY} {{ y = Neg(x) }}",
        'at commit: dtype: "y" was float[2], would be bool[2]'),
    "a replacement that is the same": (
        Pass("-x", replacement="-x"), f"{UNARY} {{ y = Neg(x) }}",
        "at commit: no change: the replacement equals the match"),
    "a replacement of unproven size": (
        Pass("-x", replacement="es.Reshape(x, [2])"), "(float[?] x) => (float[?] y) { y = Neg(x) }",
        'at commit: unproven: dimension 0 of "y" was ?1 (dimension 0 of "x"), would be 2'),
    "an operator that the opset lacks": (
        Pass("es.LayerNormalization(x, y)", 2), f"{UNARY} {{ y = Neg(x) }}",
        "not applicable: LayerNormalization needs opset 17, the model has 13"),
    "an opset for which the pass is not": (
        Pass("-x", registration=", min_opset=18"), f"{UNARY} {{ y = Neg(x) }}",
        "not applicable: needs opset 18 or newer, the model has 13"),
}  # fmt: skip
"""A pass, a graph on which it does not fire, and why."""


@pytest.mark.parametrize(("result", "body", "reason"), MISSES.values(), ids=MISSES)
def test_the_true_cause_of_each_kind_of_miss_is_named(
    vendors: Any, result: Pass | str, body: str, reason: str
) -> None:
    actual = told(
        vendors,
        result if isinstance(result, str) else result.code(),
        body,
        opset=13 if "has 13" in reason else 17,
    )
    assert "rewritten" not in actual.counts()
    assert nearest(actual) == reason


CHAIN_OF_ADDS = "(float[2] x) => (float[2] y) { a = Add(x, x) b = Add(a, x) y = Add(b, x) }"
ADD_ADD = Pass("x + y + z", 3, "es.Sum(x, y, z)")


def outcomes(actual: Explanation) -> dict[str, tuple[str, str]]:
    return {finding.node: (finding.outcome.value, finding.reason) for finding in actual.findings}


def test_a_node_that_another_match_took_is_told_with_that_match(vendors: Any) -> None:
    assert outcomes(told(vendors, ADD_ADD.code(), CHAIN_OF_ADDS)) == {
        "b": ("rewritten", 'became Sum "P_Sum_0"'),
        "y": ("taken", 'needs Add "b", which was taken by the match at "b"'),
    }


@pytest.mark.parametrize(
    ("node", "outcome", "reason"),
    [
        ("b", "rewritten", 'became Sum "P_Sum_0"'),
        ("a", "rewritten", 'in the match at "b", which became Sum "P_Sum_0"'),
        ("y", "taken", 'needs Add "b", which was taken by the match at "b"'),
    ],
)
def test_one_node_alone_is_told_whatever_its_place_in_the_pattern(
    vendors: Any, node: str, outcome: str, reason: str
) -> None:
    assert outcomes(told(vendors, ADD_ADD.code(), CHAIN_OF_ADDS, node)) == {node: (outcome, reason)}


def test_an_inner_node_tells_the_nearest_miss_around_it(vendors: Any) -> None:
    body = f"{UNARY} {{ [inner] a = Relu(x) b = Exp(a) y = Neg(b) }}"
    actual = told(vendors, Pass("-es.Relu(x)").code(), body, "inner")
    assert outcomes(actual) == {
        "inner": ("near miss", 'tensor "a": wanted Neg to read it; it is read by Exp')
    }
    assert outcomes(told(vendors, Pass("-es.Relu(x)").code(), body, "b")) == {
        "b": ("near miss", '"b": wanted Neg, got Exp')
    }


RELU_TO_EXP = Pass("es.Relu(x)", replacement="es.Exp(x)").code("Early")
REMOVER = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Early(FusionBasePass):
    def Run(self, graph, context):
        for node in graph.nodes_of("Relu"):
            graph.redirect(node.outputs[0], node.inputs[0])
            graph.remove_node(node)
"""
EDITOR = """
@hookimpl
def gehost_before_infershape(graph):
    for node in graph.nodes_of("Relu"):
        graph.redirect(node.outputs[0], node.inputs[0])
        graph.remove_node(node)
"""


@pytest.mark.parametrize(
    ("before", "options", "fate"),
    [
        (RELU_TO_EXP, {}, 'was replaced by Early: became Exp "Early_Exp_0"'),
        (REMOVER, {}, "was removed by pass Early"),
        (EDITOR, {}, "was removed by a hook of stage kBeforeInferShape"),
        ("", {"cleanup": True}, "was removed by the clean-up"),
    ],
)
def test_a_node_that_is_gone_when_the_pass_runs_says_who_took_it(
    vendors: Any, before: str, options: dict[str, Any], fate: str
) -> None:
    late = Pass("-x", stage="kAfterBuiltinFusionPass").code()
    body = f"{UNARY} {{ [gone] a = Relu(x) y = Neg({'a' if before else 'x'}) }}"
    actual = told(vendors, before + late, body, "gone", **options)
    assert outcomes(actual) == {"gone": ("gone", f'"gone" {fate}')}


def test_a_node_that_an_earlier_pass_made_says_so(vendors: Any) -> None:
    actual = told(
        vendors,
        RELU_TO_EXP + Pass("-es.Relu(x)").code(),
        f"{UNARY} {{ a = Relu(x) y = Neg(a) }}",
        "a",
    )
    assert actual.notes == ['Exp "Early_Exp_0" was made by Early']


def test_a_node_that_matches_only_after_another_rewrite_is_told_as_rewritten(vendors: Any) -> None:
    body = f"{UNARY} {{ a = Relu(x) b = Neg(a) y = Neg(b) }}"
    actual = told(vendors, Pass("-es.Relu(x)", replacement="es.Relu(es.Abs(x))").code(), body)
    assert outcomes(actual) == {
        "b": ("rewritten", 'became Abs "P_Abs_0", Relu "P_Relu_0"'),
        "y": ("rewritten", 'became Abs "P_Abs_1", Relu "P_Relu_1"'),
    }


def test_what_a_rewrite_made_is_told_too(vendors: Any) -> None:
    once = 'return match.inputs[0].producer is None or match.reject("again: it is done")'
    actual = told(
        vendors,
        Pass("es.Relu(x)", replacement="es.Relu(-x)", meet=once).code(),
        f"{UNARY} {{ y = Relu(x) }}",
    )
    assert outcomes(actual) == {
        "y": ("rewritten", 'became Neg "P_Neg_0", Relu "P_Relu_0"'),
        "P_Relu_0": ("refused", "MeetRequirements: again: it is done"),
    }


def test_the_nearest_of_many_come_first_and_each_line_says_how_far_it_came(vendors: Any) -> None:
    body = "(float[2] x) => (float[2] y) { a = Exp(x) b = Relu(a) c = Neg(b) d = Exp(c) e = Neg(d) f = Abs(e) y = Neg(f) }"
    actual = told(vendors, Pass("-es.Relu(es.Abs(x))").code(), body)
    assert [
        (group.first.depth, [node.node for node in group.findings]) for group in actual.groups()
    ] == [
        (2, ["c"]),
        (1, ["e"]),
        (1, ["y"]),
    ]
    assert {group.first.size for group in actual.groups()} == {3}


def test_nodes_of_one_cause_are_one_group(vendors: Any) -> None:
    body = "(float[2] x) => (float[2] y) { a = Exp(x) b = Neg(a) c = Exp(b) y = Neg(c) }"
    (group,) = told(vendors, Pass("-es.Relu(x)").code(), body).groups()
    assert group.cause == "Neg … input 0: wanted Relu, got Exp"
    assert [actual.node for actual in group.findings] == ["b", "y"]


TWO_PATTERNS = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class P(PatternFusionPass):
    def Patterns(self):
        one, two = EsGraphBuilder("one"), EsGraphBuilder("two")
        return [
            Pattern(one.BuildAndReset(-es.Exp(one.CreateInput(0)))),
            Pattern(two.BuildAndReset(-es.Relu(es.Abs(two.CreateInput(0))))),
        ]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        return builder.BuildAndReset(es.Sin(builder.CreateInput(0)))
"""


def test_of_several_patterns_the_nearest_counts_and_one_that_was_asked_for_tells_all(
    vendors: Any,
) -> None:
    body = f"{UNARY} {{ a = Relu(x) [near] b = Neg(a) c = Abs(b) d = Relu(c) [done] y = Neg(d) }}"
    actual = told(vendors, TWO_PATTERNS, body)
    assert actual.counts() == {"rewritten": 1, "near miss": 1}
    assert [group.first.reason for group in actual.groups()] == [
        'became Sin "P_Sin_0"',
        'Relu "a" input 0: wanted Abs, got "x", an input of the graph',
    ]
    assert {(node.node, node.pattern) for node in actual.findings} == {
        ("near", 0),
        ("near", 1),
        ("done", 1),
    }
    assert len(told(vendors, TWO_PATTERNS, body, "near").groups()) == 2


def test_a_pattern_tells_of_the_graph_that_the_patterns_before_it_left(vendors: Any) -> None:
    code = TWO_PATTERNS.replace(
        "-es.Exp(one.CreateInput(0))", "-es.Relu(es.Exp(one.CreateInput(0)))"
    )
    body = f"{UNARY} {{ a = Exp(x) b = Relu(a) c = Neg(b) y = Neg(c) }}"
    actual = told(vendors, code, body)
    assert [(node.pattern, node.reason) for node in actual.findings if node.node == "y"] == [
        (0, 'Neg "y" input 0: wanted Relu, got Neg'),
        (1, 'Neg "y" input 0: wanted Relu, got Sin (made by P)'),
    ]


@pytest.mark.parametrize(
    ("one", "two", "told_of"),
    [
        ("Cos", "Tan", "Cos, got Split"),
        ("Cos", "Split", "output 1 of Split, got …, output 0"),
        ("Split", "Cos", "output 1 of Split, got …, output 0"),
    ],
)
def test_of_patterns_that_came_equally_far_the_closer_counts_else_the_first(
    vendors: Any, one: str, two: str, told_of: str
) -> None:
    result = {
        "Split": "es.Split({}, num_outputs=2, axis=0)[1]",
        "Cos": "es.Cos({})",
        "Tan": "es.Tan({})",
    }
    code = TWO_PATTERNS.replace(
        "es.Exp(one.CreateInput(0))", result[one].format("one.CreateInput(0)")
    )
    code = code.replace(
        "es.Relu(es.Abs(two.CreateInput(0)))", result[two].format("two.CreateInput(0)")
    )
    actual = told(
        vendors,
        code,
        "(float[4] x) => (float[2] y, float[2] b) { a, b = Split <axis = 0> (x) y = Neg(a) }",
    )
    (group,) = actual.groups()
    assert group.cause == f"Neg … input 0: wanted {told_of}"


def test_patterns_without_any_candidate_are_told_together(vendors: Any) -> None:
    actual = told(vendors, TWO_PATTERNS.replace('"two"', '"one"'), f"{UNARY} {{ y = Sin(x) }}")
    (group,) = actual.groups()
    assert (group.cause, [item.pattern for item in group.findings]) == (
        "there was no Neg, which makes output 0, when pattern … was tried",
        [0, 1],
    )


def test_the_line_is_that_of_the_pattern_operator(vendors: Any) -> None:
    code = Pass("-es.Relu(x)").code()
    (actual,) = told(vendors, code, f"{UNARY} {{ y = Neg(x) }}").findings
    path, _, line = actual.origin.rpartition(":")
    assert "es.Relu(x)" in Path(path).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert actual.pattern_op == "Relu"


def test_nested_bodies_are_looked_at_and_named(vendors: Any) -> None:
    body = (
        "(float[2] x, bool c) => (float[2] z) { z = If (c) <then_branch = t () => (float[2] r) { r = Neg(x) }, "
        "else_branch = e () => (float[2] s) { s = Neg(x) }> }"
    )
    actual = told(vendors, Pass("-es.Relu(x)").code(), body)
    assert [(node.node, node.graph) for node in actual.findings] == [("r", "t"), ("s", "e")]


DECOMPOSE = """
@REG_DECOMPOSE_PASS(["Gelu", "Relu"], stage=CustomPassStage.kAfterInferShape)
class P(DecomposePass):
    def MeetRequirements(self, node):
        return node.name != "never"

    def Replacement(self, node):
        builder = EsGraphBuilder("r")
        return builder.BuildAndReset([es.Max(builder.CreateInput(0), 0.0)])
"""


def test_a_decompose_pass_tells_what_it_replaced_what_it_refused_and_that_there_is_nothing(
    vendors: Any,
) -> None:
    body = f"{UNARY} {{ [never] a = Relu(x) [always] b = Relu(a) y = Abs(b) }}"
    assert outcomes(told(vendors, DECOMPOSE, body)) == {
        "never": ("refused", "MeetRequirements: it returned False"),
        "always": ("rewritten", 'became Max "P_Max_0"'),
    }
    assert outcomes(told(vendors, DECOMPOSE, body, "y")) == {
        "y": ("near miss", 'wanted Gelu or Relu, got Abs "y"')
    }
    assert outcomes(told(vendors, DECOMPOSE, body, "never")) == {
        "never": ("refused", "MeetRequirements: it returned False")
    }
    assert told(vendors, DECOMPOSE, f"{UNARY} {{ y = Abs(x) }}").notes == [
        "the model has no Gelu or Relu"
    ]


IN_FUNCTION = """<ir_version: 10, opset_import: ["": 17, "local": 1]> g (float[2] x) => (float[2] y) { y = local.F(x) }
<domain: "local", opset_import: ["": 17]> F (a) => (b) { r = Relu(a) b = Neg(r) }"""


@pytest.mark.parametrize(
    ("passes", "op"), [(Pass("-es.Relu(x)").code(), "Neg"), (DECOMPOSE, "Relu")]
)
def test_operators_inside_functions_are_named(vendors: Any, passes: str, op: str) -> None:
    vendors.write("acme/p.py", passes)
    value = HostOptions(vendors=[vendors.root], plugins=False, cleanup=False)
    assert explain(parse(IN_FUNCTION), "P", value).notes[-1] == (
        f"functions of the model have {op} (local::F): --inline-functions makes them part of the graph"
    )
    inlined = replace(value, inline_functions=True)
    assert explain(parse(IN_FUNCTION), "P", inlined).notes == []


def test_a_pass_that_walks_the_graph_itself_cannot_be_explained_and_says_so(vendors: Any) -> None:
    actual = told(vendors, REMOVER.replace("Early", "P"), f"{UNARY} {{ y = Abs(x) }}")
    assert actual.findings == []
    assert actual.notes[0].startswith("it walks the graph itself: its rewrites and refusals")


OWN_RUN = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class P(FusionBasePass):
    def Run(self, graph, context):
        for node in graph.nodes_of("Relu"):
            if node.name == "small":
                context.refuse(node, f"size: {node.name} is too small")
                continue
            builder = EsGraphBuilder("r")
            made = es.Cast(builder.CreateInput(0), to=6 if node.name == "wrong" else 1)
            context.replace(Region.of_nodes([node]), builder.BuildAndReset([made]))
"""


def test_the_refusals_of_a_run_are_told_as_the_passs_own(vendors: Any) -> None:
    body = f"{UNARY} {{ [small] a = Relu(x) [wrong] b = Relu(a) [right] y = Relu(b) }}"
    actual = outcomes(told(vendors, OWN_RUN, body))
    assert actual["small"] == ("refused", "size: small is too small")
    wrong = 'at commit: dtype: "b" was float[2], would be int32[2]'
    assert actual["wrong"] == ("refused", wrong)
    assert actual["right"] == ("rewritten", 'became Cast "P_Cast_0"')
    assert outcomes(told(vendors, OWN_RUN, body, "small")) == {"small": actual["small"]}
    model = parse(f'<ir_version: 8, opset_import: ["": 17]> g {body}')
    (record,) = vendors.host().run(model)[1].passes
    assert (record.matched, record.replaced) == (2, 1)
    assert dict(record.rejected) == {"size": 1, "dtype": 1}


def test_later_passes_do_not_run_and_a_pass_that_is_off_is_explained(vendors: Any) -> None:
    broken = Pass("es.Abs(x)", meet="1 / 0").code("Zzz")
    body = f"{UNARY} {{ a = Relu(x) y = Abs(a) }}"
    assert told(vendors, Pass("es.Relu(x)").code() + broken, body).counts() == {"rewritten": 1}
    actual = told(vendors, Pass("es.Relu(x)").code() + broken, body, disable=["P", "Zzz"])
    assert (actual.status, actual.notes[0].partition(" (")[0]) == (
        "disabled",
        "disabled by a switch",
    )
    quiet = (
        Pass("es.Relu(x)").code().replace("@REG_FUSION_PASS(", "@REG_FUSION_PASS(default=False, ")
    )
    actual = told(vendors, quiet, body)
    assert actual.notes == ["off by default; --enable P runs it; explained as if it ran"]
    assert actual.counts() == {"rewritten": 1}


def test_a_pass_that_fails_says_that_it_was_undone(vendors: Any) -> None:
    actual = told(
        vendors,
        Pass("es.Relu(x)", meet="1 / 0").code(),
        f"{UNARY} {{ y = Relu(x) }}",
        keep_going=True,
    )
    assert actual.notes[0].startswith("it failed and was undone: P (")
    assert outcomes(actual) == {"y": ("left", "matches, but the pass ended before its turn")}


def test_a_match_that_a_rewrite_before_it_breaks_says_why(vendors: Any) -> None:
    """One node takes the place of Relu r and Neg m, so that what it reads now comes before all that it gives."""
    joined = Pass(
        "[es.Relu(x), -y]", 2, "list(es.Split(es.Concat(x, y, axis=0), num_outputs=2, axis=0))"
    ).code()
    body = (
        "(float[2] x, float[2] w) => (float[2] m, float[2] n) "
        "{ r = Relu(x) s = Relu(w) p = Exp(s) m = Neg(p) q = Exp(r) n = Neg(q) }"
    )
    actual = outcomes(told(vendors, joined, body))
    assert actual["r"][0] == "rewritten"
    assert actual["s"] == (
        "near miss",
        'would make a cycle through Exp "q", since a rewrite of this pass',
    )


# -- the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def acme(here: Path, vendors: Any) -> Any:
    """``./vendors`` with a pass that prints and misses ``m.onnx``: Neg(Relu(x))."""
    del here
    vendors.write("acme/p.py", "print('a vendor prints')\n", Pass("-es.Abs(x)").code())
    return vendors


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["explain", "m.onnx", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.usefixtures("acme")
def test_the_command_prints_the_pass_the_counts_and_each_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(os.listdir())
    code, out, err = command(capsys, "--pass", "P")
    assert (code, err) == (0, "a vendor prints\n")
    assert out.splitlines() == [
        "P (pattern, acme, kAfterInferShape) vendors/acme/custom_fusion_passes/p.py:4",
        "candidates: 1 near miss",
        "",
        "1 × near miss, 1 of 2 operators found, then Abs of vendors/acme/custom_fusion_passes/p.py:12",
        '    Neg "y" input 0: wanted Abs, got Relu',
    ]
    assert sorted(os.listdir()) == before


def test_where_all_operators_were_found_the_command_says_so(
    acme: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    acme.write("acme/p.py", Pass("-es.Relu(x)").code())
    onnx.save(
        parse(f'<ir_version: 8, opset_import: ["": 17]> g {TWO} {{ z = Relu(x) y = Neg(z) }}'),
        "m.onnx",
    )
    _, out, _ = command(capsys, "--pass", "P")
    assert out.splitlines()[3:] == [
        "1 × near miss, all operators found, but the match fails at Relu of vendors/acme/custom_fusion_passes/p.py:11",
        '    Neg "y": tensor "z" is also an output of the graph',
    ]


@pytest.mark.usefixtures("acme")
def test_as_json_it_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "--pass", "P", "--json")
    actual = json.loads(out)
    assert (code, actual["pass_name"], actual["counts"]) == (0, "P", {"near miss": 1})
    (group,) = actual["groups"]
    assert (group["nodes"], group["cause"]) == (["y"], "Neg … input 0: wanted Abs, got Relu")
    assert actual["findings"][0]["reason"] == 'Neg "y" input 0: wanted Abs, got Relu'
    assert (actual["findings"][0]["key"], group["key"]) == ("other operator", "other operator")


@pytest.mark.parametrize(
    ("arguments", "code", "told_on_stderr"),
    [
        (["--pass", "Q"], 2, "explain: there is no pass Q; `gehost passes` lists them"),
        (
            ["--pass", "P", "--node", "yy"],
            2,
            'the model has no node "yy" when P runs; did you mean y?',
        ),
        (["--pass", "P", "--node", ""], 2, "a node's name cannot be empty"),
        (["--pass", "P", "--disable", "Off"], 2, "--enable/--disable: there is no pass Off"),
    ],
)
@pytest.mark.usefixtures("acme")
def test_a_wrong_name_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told_on_stderr: str
) -> None:
    actual, out, err = command(capsys, *arguments)
    assert (actual, out) == (code, "")
    assert told_on_stderr in err.splitlines()[-1]


@pytest.mark.usefixtures("acme")
def test_a_file_that_is_no_model_is_the_models_fault(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.onnx").write_text("no model")
    assert command(capsys, "--pass", "P")[:2] == (3, "")


@pytest.mark.usefixtures("acme")
def test_names_of_the_model_have_no_meaning_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = parse(f'<ir_version: 8, opset_import: ["": 17]> g {UNARY} {{ y = Neg(x) }}')
    model.graph.node[0].name = "[red]\x1b[31m\n"
    onnx.save(model, "m.onnx")
    _, out, _ = command(capsys, "--pass", "P")
    assert "[red]\\x1b[31m" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["bert.ts13.onnx"])
def test_on_a_real_model_what_is_told_agrees_with_the_report_of_a_compile(
    name: str, tmp_path: Path
) -> None:
    root = Path(__file__).parents[3]
    model, options = (
        root / "tests" / "models" / name,
        HostOptions(vendors=[root / "vendors"], plugins=False),
    )
    report = Host(options).compile(model, tmp_path / "out.onnx")
    for record in (record for record in report.passes if record.matched):
        counts = explain(model, record.name, options).counts()
        assert counts.get("rewritten", 0) == record.replaced, record.name
        assert ("refused" in counts) == bool(record.rejected), record.name


def test_an_unproven_size_comes_with_its_source_and_both_ways_out(vendors: Any) -> None:
    """Planted: an advice that names the first input of the model instead of the size's source."""
    body = '(float["n"] a, float["m"] b) => (float[?] y) { c = Neg(b) y = Mul(a, c) }'
    wider = Pass("es.Mul(x, y)", 2, "es.Add(x, x)").code()
    (refused,) = told(vendors, wider, body).findings
    assert refused.reason.startswith('at commit: unproven: dimension 0 of "y" was ')
    assert refused.key == "unproven"
    assert 'broadcast(m, n) is computed by the match from "a" [n] and "c" [m]' in refused.advice[0]
    body = '(float["n"] a, float["m"] b) => (float["m"] y) { c = Abs(b) y = Neg(c) }'
    (refused,) = told(vendors, Pass("-x", replacement="es.Reshape(x, [2])").code(), body).findings
    source, equality, proven = refused.advice
    assert 'm is dimension 0 of input "c", made by Abs' in source
    assert "--dim m=SIZE" in equality
    assert "shape_proven = True" in proven


EXP_AND_SIN = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class P(PatternFusionPass):
    def Patterns(self):
        found = []
        for name, op in (("with exp", es.Exp), ("with sin", es.Sin)):
            b = EsGraphBuilder(name)
            x = b.CreateInput(0)
            found.append(Pattern(b.BuildAndReset([es.Neg(es.Abs(es.Relu(op(x))))])))
        return found

    def Replacement(self, match):
        b = EsGraphBuilder("r")
        return b.BuildAndReset([es.Cos(b.CreateInput(0))])
"""


def test_each_node_is_there_once_with_the_variant_of_its_best_result(vendors: Any) -> None:
    actual = told(
        vendors,
        EXP_AND_SIN,
        "(float[2] x) => (float[2] y, float[2] z) { a = Sin(x) b = Relu(a) c = Abs(b) y = Neg(c) d = Exp(x) z = Neg(d) }",
    )
    assert actual.variants == ["with exp", "with sin"]
    best = {
        f.node: (f.outcome.value, f.variant) for group in actual.groups() for f in group.findings
    }
    assert sum(len(group.findings) for group in actual.groups()) == len(best) == 2
    assert best["y"] == ("rewritten", "with sin")
    near, shallow = actual.near_and_shallow()
    assert [group.first.node for group in near] == ["y"]
    assert [group.first.node for group in shallow] == ["z"]


def test_the_deepest_misses_are_shown_where_all_are_shallow(vendors: Any) -> None:
    actual = told(vendors, EXP_AND_SIN, "(float[2] x) => (float[2] y) { a = Exp(x) y = Neg(a) }")
    near, shallow = actual.near_and_shallow()
    assert [group.first.depth for group in near] == [1]
    assert shallow == []
