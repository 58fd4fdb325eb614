"""What is kept of each rewrite: the matched nodes, what took their place, one step around; equal ones together."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from gehost import PassRecord
from gehost.diagnose.report.recorder import RewriteRecorder
from gehost.passes.snapshots import Picture, RewriteGroup
from gehost.testing import parse

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


@pytest.fixture
def recorded(vendors: Any) -> Any:
    """Compiles ONNX text with passes given as code; returns what the passes did."""

    def run(
        code: str, text: str, weights: dict[str, Any] | None = None, **options: Any
    ) -> list[PassRecord]:
        vendors.write("acme/a.py", code)
        model = text if isinstance(text, onnx.ModelProto) else parse(HEAD + text, weights)
        return (
            vendors.host(plugins=[("recorder", RewriteRecorder())], **options).run(model)[1].passes
        )

    return run


def fusion(pattern: str, replacement: str, inputs: int = 1, extra: str = "") -> str:
    """A pass that replaces ``pattern`` by ``replacement``, both lines of Python that set ``made`` from inputs ``x``."""
    return f"""
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class P(PatternFusionPass):
    def Patterns(self):
        b = EsGraphBuilder("p")
        x = b.CreateInputs({inputs})
        made = {pattern}
        return [Pattern(b.BuildAndReset(made))]

    def Replacement(self, match):
        b = EsGraphBuilder("r")
        x = b.CreateInputs({inputs})
        made = {replacement}
        return b.BuildAndReset(made)
{extra}"""


RELU_TO_ABS = fusion("[es.Relu(x[0])]", "[es.Abs(x[0])]")


def only(records: list[PassRecord]) -> RewriteGroup:
    (record,) = records
    (group,) = record.rewrites
    return group


def nodes(picture: Picture) -> list[tuple[str, str, str]]:
    return [(node.name, node.op, node.role) for node in picture.nodes]


def edges(picture: Picture) -> set[tuple[str, str, str]]:
    """Maker (or source), tensor and reader of everything that is read in a picture."""
    actual: set[tuple[str, str, str]] = set()
    for index, tensor in enumerate(picture.tensors):
        makers = [node.op for node in picture.nodes if index in node.outputs] or [tensor.source]
        actual.update(
            (makers[0], tensor.name, node.op) for node in picture.nodes if index in node.inputs
        )
    return actual


def test_a_rewrite_is_kept_with_its_neighbours(recorded: Any) -> None:
    group = only(
        recorded(
            RELU_TO_ABS,
            "main (float[N, 2] x) => (float[N, 2] y) { [first] a = Neg(x) [mid] b = Relu(a) [last] y = Exp(b) }",
        )
    )
    assert nodes(group.before) == [
        ("mid", "Relu", "matched"),
        ("last", "Exp", "around"),
        ("first", "Neg", "around"),
    ]
    assert nodes(group.after) == [
        ("P_Abs_0", "Abs", "new"),
        ("last", "Exp", "around"),
        ("first", "Neg", "around"),
    ]
    assert edges(group.before) == {("Neg", "a", "Relu"), ("Relu", "b", "Exp")}
    assert edges(group.after) == {("Neg", "a", "Abs"), ("Abs", "b", "Exp")}
    assert {tensor.type for tensor in group.before.tensors} == {"float[N,2]"}
    assert [(one.number, one.nodes, one.made) for one in group.matches] == [
        (1, ("mid",), ("P_Abs_0",))
    ]


def test_tensors_of_the_world_outside_are_told_from_made_ones(recorded: Any) -> None:
    group = only(recorded(RELU_TO_ABS, "main (float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert [(tensor.name, tensor.source, tensor.is_output) for tensor in group.before.tensors] == [
        ("x", "input", False),
        ("y", "node", True),
    ]
    assert group.after.tensors == group.before.tensors


def test_rewrites_that_look_alike_are_one_group(recorded: Any) -> None:
    text = """main (float[2] x) => (float[2] y, float[4] z) {
        [r1] a = Relu(x)  [e1] b = Exp(a)  [r2] c = Relu(b)  [n1] y = Neg(c)
        [u] d = Concat<axis = 0>(x, x)  [r3] z = Relu(d)
    }"""
    group = only(recorded(RELU_TO_ABS, text))
    assert [(one.number, one.nodes) for one in group.matches] == [
        (1, ("r1",)),
        (2, ("r2",)),
        (3, ("r3",)),
    ]
    assert [name for name, _, role in nodes(group.before) if role == "matched"] == ["r1"]


@pytest.mark.parametrize(
    ("body", "groups"),
    [
        (
            "a = Add(x, x) y = Relu(a) b = Add(x, y) z = Relu(b)",
            2,
        ),  # the same operators, wired otherwise
        ("a = Add(x, w) y = Relu(a) b = Add(x, y) z = Relu(b)", 2),  # a constant here, none there
        ("a = Add(x, c) y = Relu(a) b = Add(c, y) z = Relu(b)", 1),
    ],
)
def test_wiring_and_constants_make_groups(recorded: Any, body: str, groups: int) -> None:
    weights = {"w": np.ones(2, np.float32)} if "w" in body else {}
    text = f"main (float[2] x, float[2] c{', float[2] w' if weights else ''}) => (float[2] y, float[2] z) {{ {body} }}"
    code = fusion("[es.Relu(es.Add(x[0], x[1]))]", "[es.Abs(es.Add(x[0], x[1]))]", inputs=2)
    (record,) = recorded(code, text, weights)
    assert len(record.rewrites) == groups
    assert sum(len(group.matches) for group in record.rewrites) == record.replaced == 2


def test_different_matches_that_became_the_same_are_different_groups(recorded: Any) -> None:
    text = "main (float[2] x) => (float[2] c) { a = Relu(x)  b = Sigmoid(a)  c = Relu(b) }"
    (record,) = recorded(fusion('[es.AnyOf("Relu", "Sigmoid")(x[0])]', "[es.Abs(x[0])]"), text)
    assert [[one.number for one in group.matches] for group in record.rewrites] == [[1, 3], [2]]


def test_what_two_passes_did_alike_is_told_apart(recorded: Any, vendors: Any) -> None:
    refuse = "return match.GetMatchedNodes()[0].label == 'a' or match.reject('place: no')"
    code = vendors.swap("P", "Relu", "Abs", meet=refuse) + vendors.swap(
        "Q", "Relu", "Abs", meet=refuse.replace("'a'", "'b'")
    )
    passes = recorded(
        code, "main (float[2] x) => (float[2] c) { a = Relu(x)  b = Relu(a)  c = Relu(b) }"
    )
    assert [
        [one.nodes for group in record.rewrites for one in group.matches] for record in passes
    ] == [[("a",)], [("b",)]]
    assert [[refusal.nodes for refusal in record.refusals] for record in passes] == [
        [["b", "c"]],
        [["c"]],
    ]


def test_a_forwarded_input_leaves_the_nodes_around(recorded: Any) -> None:
    text = "main (float[2] x) => (float[2] y) { [n] a = Neg(x) [r] b = Relu(a) [e] y = Exp(b) }"
    group = only(recorded(fusion("[es.Relu(x[0])]", "[x[0]]"), text))
    assert edges(group.after) == {("Neg", "a", "Exp")}
    assert group.matches[0].made == ()


def test_a_matched_node_that_stays_is_told_from_those_that_go(recorded: Any) -> None:
    text = "main (float[4] x) => (float[4] y, bool[4] z) { [d] t, m = Dropout(x)  y = Neg(t)  z = Not(m) }"
    group = only(recorded(fusion("[es.Neg(es.Dropout(x[0]))]", "[es.Abs(x[0])]"), text))
    assert nodes(group.after) == [("d", "Dropout", "kept"), ("P_Abs_0", "Abs", "new")]


def test_small_constants_show_their_elements_and_large_ones_do_not(recorded: Any) -> None:
    weights = {
        "s": np.float32(0.1),
        "v": np.arange(2, dtype=np.int64),
        "w": np.ones((8, 8), np.float32),
    }
    text = """main (float[8, 8] x, float s, int64[2] v, float[8, 8] w) => (float[8, 8] y) {
        a = Mul(x, s)  b = Add(a, w)  c = Unsqueeze(b, v)  d = Squeeze(c, v)  y = Relu(d)
    }"""
    pattern = "[es.Relu(es.Squeeze(es.Unsqueeze(es.Add(es.Mul(x[0], x[1]), x[2]), axes=[0, 1]), axes=[0, 1]))]"
    group = only(
        recorded(
            fusion(pattern, "[es.Abs(es.Add(es.Mul(x[0], x[1]), x[2]))]", inputs=3), text, weights
        )
    )
    values = {
        tensor.name: tensor.value for tensor in group.before.tensors if tensor.source == "constant"
    }
    assert values == {"s": "0.1", "v": "[0, 1]", "w": ""}


def test_attributes_are_kept_as_text(recorded: Any) -> None:
    text = "main (float[2, 3] x) => (float[3, 2] y) { y = Transpose<perm = [1, 0]>(x) }"
    group = only(recorded(fusion("[es.Transpose(x[0])]", "[es.Reshape(x[0], [3, 2])]"), text))
    assert group.before.nodes[0].attributes == {"perm": "[1, 0]"}


def test_many_readers_are_counted(recorded: Any) -> None:
    readers = "  ".join(f"y{i} = Neg(b)" for i in range(5))
    outputs = ", ".join(f"float[2] y{i}" for i in range(5))
    group = only(
        recorded(RELU_TO_ABS, f"main (float[2] x) => ({outputs}) {{ b = Relu(x)  {readers} }}")
    )
    for picture in (group.before, group.after):
        assert [name for name, _, role in nodes(picture) if role == "around"] == ["y0", "y1", "y2"]
        assert [tensor.other_uses for tensor in picture.tensors if tensor.name == "b"] == [2]


def test_a_body_that_captures_a_tensor_reads_it_through_its_node(recorded: Any) -> None:
    text = """main (bool c, float[2] x) => (float[2] y) {
        b = Relu(x)
        y = If(c) <then_branch = t () => (float[2] p) { p = Neg(b) }, else_branch = e () => (float[2] q) { q = Exp(b) }>
    }"""
    group = only(recorded(RELU_TO_ABS, text))
    assert ("Relu", "b", "If") in edges(group.before)
    assert ("Abs", "b", "If") in edges(group.after)


def test_inside_a_body_captured_tensors_come_from_outside(recorded: Any) -> None:
    text = """main (bool c, float[2] x) => (float[2] y) {
        b = Neg(x)
        y = If(c) <then_branch = t () => (float[2] p) { p = Relu(b) }, else_branch = e () => (float[2] q) { q = Exp(b) }>
    }"""
    group = only(recorded(RELU_TO_ABS, text))
    assert [(tensor.name, tensor.source, tensor.is_output) for tensor in group.before.tensors] == [
        ("b", "outer", False),
        ("p", "node", True),
    ]


BY_HAND = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class P(FusionBasePass):
    def Run(self, graph, context):
        nodes = list(graph.nodes)
        boundary = SubgraphBoundary()
        boundary.AddInput(0, SubgraphInput([NodeIo(nodes[0], slot) for slot in range(len(nodes[0].inputs))]))
        boundary.AddOutput(0, SubgraphOutput(NodeIo(nodes[-1], 0)))
        b = EsGraphBuilder("r")
        SubgraphRewriter.Replace(boundary, b.BuildAndReset([es.Sin(b.CreateInput(0))]))
"""


def test_of_a_large_match_the_first_nodes_are_shown_and_the_others_counted(recorded: Any) -> None:
    body = "  ".join(f"t{i + 1} = Neg(t{i})" for i in range(100))
    group = only(recorded(BY_HAND, f"main (float[2] t0) => (float[2] t100) {{ {body} }}"))
    shown = sum(role == "matched" for _, _, role in nodes(group.before))
    assert (shown, group.before.left_out) == (40, 60)
    assert len(group.matches[0].nodes) == 100


def test_of_many_inputs_the_first_are_shown_and_the_others_counted(recorded: Any) -> None:
    model = parse(
        HEAD
        + f"main (float[2] x) => (float[400] y) {{ y = Concat<axis = 0>({', '.join(['x'] * 200)}) }}"
    )
    group = only(
        recorded(
            BY_HAND.replace("es.Sin(b.CreateInput(0))", "es.Tile(b.CreateInput(0), [200])"), model
        )
    )
    (node,) = [node for node in group.before.nodes if node.role == "matched"]
    assert len(node.inputs) + node.more_inputs == 200
    assert len(node.inputs) < 20


def test_refusals_are_kept_by_their_whole_reason(recorded: Any) -> None:
    meet = """
    def MeetRequirements(self, match):
        name = match.GetMatchedNodes()[0].label
        return name == "c" or match.reject(f"name: it starts with {name[0]}")
"""
    text = "main (float[2] x) => (float[2] c) { a1 = Relu(x)  a2 = Relu(a1)  b = Relu(a2)  c = Relu(b) }"
    (record,) = recorded(fusion("[es.Relu(x[0])]", "[es.Abs(x[0])]", extra=meet), text)
    assert record.rejected == {"name": 3}
    assert [(refusal.reason, refusal.nodes) for refusal in record.refusals] == [
        ("name: it starts with a", ["a1", "a2"]),
        ("name: it starts with b", ["b"]),
    ]


def test_a_match_that_the_rewriter_refuses_is_a_refusal_and_no_rewrite(recorded: Any) -> None:
    (record,) = recorded(
        fusion("[es.Relu(x[0])]", "[es.Relu(x[0])]"),
        "main (float[2] x) => (float[2] y) { y = Relu(x) }",
    )
    assert (record.rewrites, [refusal.nodes for refusal in record.refusals]) == ([], [["y"]])


def test_rewrites_of_a_pass_that_then_fails_are_kept(recorded: Any) -> None:
    fails = """
    def MeetRequirements(self, match):
        return match.GetMatchedNodes()[0].label == "a" or 1 / 0
"""
    text = "main (float[2] x) => (float[2] b) { a = Relu(x)  b = Relu(a) }"
    (record,) = recorded(
        fusion("[es.Relu(x[0])]", "[es.Abs(x[0])]", extra=fails), text, keep_going=True
    )
    assert (record.status, record.replaced, [len(group.matches) for group in record.rewrites]) == (
        "failed",
        0,
        [1],
    )


def test_a_recorder_that_sees_two_compiles_does_not_mix_them(vendors: Any) -> None:
    vendors.write("acme/a.py", RELU_TO_ABS)
    host = vendors.host(plugins=[("recorder", RewriteRecorder())])
    model = parse(HEAD + "main (float[2] x) => (float[2] y) { y = Relu(x) }")
    reports = [host.run(model)[1] for _ in range(2)]
    assert [[len(group.matches) for group in report.passes[0].rewrites] for report in reports] == [
        [1],
        [1],
    ]
