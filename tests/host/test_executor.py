"""Stages in order, and whatever fails is undone as a whole and named."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import CustomPassStage, Host, PassError, UsageError, VendorError, hookimpl
from gehost.diagnose.report.recorder import RewriteRecorder
from gehost.host import containment
from gehost.ir.graph import Graph
from gehost.ir.model import Model
from gehost.passes import driver
from gehost.stages import RUN_STAGES
from gehost.testing import parse

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Abs(a)
    y = Neg(b)
}"""


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def run_code(
    vendors: Any, *code: str, model: str = CHAIN, **options: Any
) -> tuple[onnx.ModelProto, Any]:
    vendors.write("acme/a.py", *code)
    return vendors.host(**options).run(parse(model))


def fusion(body: str, name: str = "P", stage: str = "kAfterInferShape") -> str:
    """The code of a ``FusionBasePass`` whose ``Run`` is ``body``."""
    return f"""
@REG_FUSION_PASS(stage=CustomPassStage.{stage})
class {name}(FusionBasePass):
    def Run(self, graph, context):
        {body}
"""


# -- order ----------------------------------------------------------------------------------------------------------


def test_stages_run_in_ges_order_whatever_the_order_of_loading(vendors: Any) -> None:
    code = [
        fusion(f"print('{stage.name}')", f"P{k}", stage.name)
        for k, stage in reversed(list(enumerate(RUN_STAGES)))
    ]
    code.insert(0, fusion("print('kAfterInferShape, loaded first')", "P9"))
    _, report = run_code(vendors, *code)
    assert [record.stage for record in report.passes] == [
        "kBeforeInferShape",
        "kAfterInferShape",
        "kAfterInferShape",
        "kAfterBuiltinFusionPass",
        "kAfterOriginGraphOptimize",
    ]
    assert [record.name for record in report.passes] == ["P0", "P9", "P1", "P2", "P3"]
    assert [stage for stage in CustomPassStage if stage not in RUN_STAGES] == [
        CustomPassStage.kAfterAssignLogicStream
    ]


def test_types_are_known_from_after_infer_shape_on_and_clean_up_comes_before_after_builtin(
    vendors: Any,
) -> None:
    look = "context.SetErrorMessage(f'{graph.values[\"a\"].type} {len(graph)}'); return FAILED"
    code = [fusion(look, f"P{k}", stage.name) for k, stage in enumerate(RUN_STAGES)]
    model = CHAIN.replace("y = Neg", "dead = Relu(b) y = Neg")
    _, report = run_code(vendors, *code, model=model, keep_going=True, cleanup=True)
    said = [record.message.rpartition("Run: ")[2] for record in report.passes]
    assert said[0] == "None 4"
    assert said[1].endswith(" 4")
    assert said[1] != said[0]
    assert said[2:] == [said[1].replace("4", "3")] * 2


def test_a_pass_object_is_asked_once_for_patterns_over_all_graphs_and_compiles(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        vendors.swap("P", "Relu", "Abs")
        + "    def __init__(self):\n        print('made')\n        super().__init__()\n"
    )
    nested = """<ir_version: 8, opset_import: ["" : 17]>
    main (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] q) { q = Relu(x) }>
    }"""
    vendors.write(
        "acme/a.py",
        code.replace(
            'builder = EsGraphBuilder("P")\n        return [',
            "print('asked')\n        builder = EsGraphBuilder('P')\n        return [",
        ),
    )
    host = vendors.host()
    for printed in ("made\nasked\n", ""):
        _, report = host.run(parse(nested))
        assert report.passes[0].replaced == 2
        assert capsys.readouterr().err == printed


@pytest.mark.parametrize(
    ("least", "most", "runs"),
    [(17, 17, True), (18, None, False), (None, 16, False), (None, None, True)],
)
def test_opsets_that_a_registration_names(
    vendors: Any, least: int | None, most: int | None, runs: bool
) -> None:
    registration = f"@REG_FUSION_PASS(min_opset={least}, max_opset={most})"
    _, report = run_code(vendors, vendors.swap("P", "Relu", "Abs", registration=registration))
    (record,) = report.passes
    assert (record.status, record.replaced) == (("done", 1) if runs else ("not applicable", 0))
    assert runs or "the model has 17" in record.message


# -- what Run returns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["None", "True", "SUCCESS", "NOT_CHANGED"])
@pytest.mark.parametrize("edit", [True, False])
def test_whether_something_changed_is_seen_and_not_believed(
    vendors: Any, value: str, edit: bool
) -> None:
    change = "graph.set_metadata(next(graph.nodes), 'k', 'v')" if edit else "pass"
    _, report = run_code(vendors, fusion(f"{change}\n        return {value}"))
    assert report.passes[0].status == ("done" if edit else "not changed")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("FAILED", "it returned FAILED"),
        ("False", "it returned FAILED"),
        ("'yes'", "it returned 'yes'; wanted"),
    ],
)
def test_failed_and_nonsense_fail_the_compile(vendors: Any, value: str, message: str) -> None:
    with pytest.raises(PassError, match=rf"^P \(.*/a.py:5\): Run: {message}") as caught:
        run_code(vendors, fusion(f"return {value}"))
    assert caught.value.exit_code == 5


def test_a_failure_in_a_body_says_in_which(vendors: Any) -> None:
    nested = """<ir_version: 8, opset_import: ["" : 17]>
    main (bool c, float[2] x) => (float[2] y) {
        [choice] y = If(c) <then_branch = t () => (float[2] p) { p = Abs(x) }, else_branch = e () => (float[2] q) { q = Neg(x) }>
    }"""
    with pytest.raises(PassError, match=r'Run in graph "e" of node "choice": it returned FAILED'):
        run_code(vendors, fusion("return graph.name != 'e'"), model=nested)


def test_a_body_that_went_with_its_node_is_not_visited(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    nested = """<ir_version: 8, opset_import: ["" : 17]>
    main (bool c, float[2] x) => (float[2] y) {
        y = Abs(x)
        unread = If(c) <
            then_branch = t () => (float[2] p) {
                p = If(c) <then_branch = tt () => (float[2] r) { r = Abs(x) }, else_branch = te () => (float[2] s) { s = Neg(x) }>
            },
            else_branch = e () => (float[2] q) { q = Relu(x) }
        >
    }"""
    body = "print(graph.name)\n        for node in graph.nodes_of('If'):\n            graph.remove_node(node)"
    result, _ = run_code(vendors, fusion(body), model=nested)
    assert capsys.readouterr().err == "main\n"
    assert op_types(result) == ["Abs"]


# -- undone and named -----------------------------------------------------------------------------------------------

BREAKERS = {
    "raises": "graph.set_attribute(next(graph.nodes), 'k', 1); 1 / 0",
    "fails": "graph.set_attribute(next(graph.nodes), 'k', 1); return FAILED",
    "wrong order": "graph.move_after(next(graph.nodes), graph.tail)",
    "reads nothing": "graph.set_input(graph.tail, 0, graph.new_value('nothing'))",
    "interface": "graph.proto.input[0].name = 'renamed'; graph.set_metadata(graph.tail, 'k', 'v')",
}


@pytest.mark.parametrize("how", [how for how in BREAKERS if how != "interface"])
def test_with_keep_going_a_pass_is_undone_as_a_whole_and_later_ones_run(
    vendors: Any, how: str
) -> None:
    code = [
        fusion(f"graph.set_metadata(graph.tail, 'first', 'edit'); {BREAKERS[how]}", "Breaks"),
        vendors.swap("After", "Relu", "Abs"),
    ]
    result, report = run_code(vendors, *code, keep_going=True)
    assert op_types(result) == ["Abs", "Abs", "Neg"]
    untouched = parse(CHAIN).graph.node
    assert list(result.graph.node)[1:] == list(untouched)[1:]
    assert [(record.name, record.status, record.replaced) for record in report.passes] == [
        ("Breaks", "failed", 0),
        ("After", "done", 1),
    ]
    assert report.problems == [report.passes[0].message]
    assert re.match(r"Breaks \(.*/a.py:\d+\)", report.problems[0])


@pytest.mark.parametrize(("how", "message"), [
    ("wrong order", "left an invalid graph: .*before it is made"),
    ("reads nothing", 'left an invalid graph: .*"nothing" has no producer|left an invalid graph'),
    ("interface", "left an invalid graph: .*inputs or outputs were changed"),
])  # fmt: skip
def test_a_pass_that_leaves_an_invalid_graph_fails_the_compile_and_is_named(
    vendors: Any, how: str, message: str
) -> None:
    with pytest.raises(PassError, match=rf"^P \(.*/a.py:3\): it {message}") as caught:
        run_code(vendors, fusion(BREAKERS[how]))
    assert (caught.value.subject, str(caught.value.where)[-7:]) == ("P", "/a.py:3")


def test_a_pattern_pass_with_a_run_of_its_own_is_checked_too(vendors: Any) -> None:
    run = f"    def Run(self, graph, context):\n        {BREAKERS['wrong order']}\n"
    with pytest.raises(PassError, match=r"^P \(.*\): it left an invalid graph"):
        run_code(vendors, vendors.swap("P", "Relu", "Abs") + run)


def test_a_pattern_pass_that_fails_on_its_second_match_keeps_nothing_of_its_first(
    vendors: Any,
) -> None:
    meet = "return 1 / (match.GetMatchedNodes()[0].label != 'b') > 0"
    model = CHAIN.replace("Abs(a)", "Relu(a)")
    result, report = run_code(
        vendors, vendors.swap("P", "Relu", "Sigmoid", meet=meet), model=model, keep_going=True
    )
    assert op_types(result) == ["Relu", "Relu", "Neg"]
    (record,) = report.passes
    assert (record.status, record.matched, record.replaced) == ("failed", 2, 0)
    assert 'MeetRequirements at node "b" (Relu): ZeroDivisionError' in record.message


def test_rewrites_that_were_undone_do_not_count_towards_the_limit(vendors: Any) -> None:
    meet = "return 1 / (match.GetMatchedNodes()[0].label != 'b') > 0"
    code = [vendors.swap("P", "Relu", "Sigmoid", meet=meet), vendors.swap("Q", "Relu", "Abs")]
    result, _ = run_code(
        vendors, *code, model=CHAIN.replace("Abs(a)", "Relu(a)"), keep_going=True, rewrite_limit=2
    )
    assert op_types(result) == ["Abs", "Abs", "Neg"]


def test_a_model_that_onnx_refuses_in_the_end_is_the_fault_of_passes(vendors: Any) -> None:
    with pytest.raises(
        PassError, match=r"^the model is not valid after P \(.*\.py:\d+\): .*NoSuchOp"
    ):
        run_code(
            vendors,
            fusion("graph.add_node('NoSuchOp', [], ['new'], after=graph.tail)"),
            vendors.swap("Q", "Cos", "Sin"),
        )


def test_a_pass_that_wrote_the_graph_and_then_failed_ends_the_compile_even_with_keep_going(
    vendors: Any,
) -> None:
    body = "graph.set_metadata(graph.tail, 'k', 'v'); graph.model.flush(); {}"
    result, report = run_code(vendors, fusion(body.format("pass")), keep_going=True)
    assert report.passes[0].status == "done"
    assert result.graph.node[-1].metadata_props[0].key == "k"
    with pytest.raises(
        PassError,
        match=r"^P \(.*\): Run: ZeroDivisionError: .*; its edits cannot be undone, so the compile",
    ):
        run_code(vendors, fusion(body.format("1 / 0")), keep_going=True)
    with pytest.raises(
        PassError, match=r"^P \(.*\): it left an invalid graph: .* cannot be undone"
    ):
        run_code(vendors, fusion(body.format(BREAKERS["wrong order"])), keep_going=True)


# -- hooks ----------------------------------------------------------------------------------------------------------


def hook(name: str, body: str) -> str:
    return f"@hookimpl\ndef {name}(graph):\n    {body}\n"


def test_a_stage_hook_of_a_vendor_file_edits_the_graph(vendors: Any) -> None:
    code = hook(
        "gehost_after_infershape",
        "graph.set_metadata(graph.tail, 'seen', str(graph.values['a'].shape))",
    )
    result, _ = run_code(vendors, code)
    assert [entry.value for entry in result.graph.node[-1].metadata_props] == ["(2,)"]


@pytest.mark.parametrize("how", ["raises", "wrong order", "reads nothing"])
def test_a_stage_hook_that_fails_is_undone_and_its_plugin_named(vendors: Any, how: str) -> None:
    vendors.write("acme/a.py", hook("gehost_after_infershape", BREAKERS[how]))
    vendors.write(
        "acme/b.py", hook("gehost_after_infershape", "graph.set_metadata(graph.tail, 'b', 'ran')")
    )
    with pytest.raises(PassError, match=r"^plugin acme/a") as caught:
        vendors.host().run(parse(CHAIN))
    assert "gehost_after_infershape" in str(caught.value)
    line = {"raises": 4}.get(how, 2)  # where it raised, else where it is defined
    assert re.search(rf"/acme/custom_fusion_passes/a.py:{line}$", str(caught.value.where))
    assert caught.value.subject == "plugin acme/a"
    assert how != "raises" or re.search(r"/a.py:4\): .*ZeroDivisionError", str(caught.value))
    result, report = vendors.host(keep_going=True).run(parse(CHAIN))
    assert report.problems == [str(caught.value)]
    assert op_types(result) == op_types(parse(CHAIN))
    assert [entry.key for entry in result.graph.node[-1].metadata_props] == ["b"]


LOOKING = [
    "gehost_compile_started",
    "gehost_stage_finished",
    "gehost_compile_finished",
    "gehost_before_pass",
    "gehost_after_pass",
]


@pytest.mark.parametrize("name", LOOKING)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", ".*ZeroDivisionError"),
        ("graph.set_metadata(graph.tail, 'k', 'v')", " edited the graph; this hook is read-only"),
    ],
)
def test_a_hook_that_may_only_look_is_held_to_it(
    vendors: Any, name: str, body: str, message: str
) -> None:
    vendors.write("acme/a.py", hook(name, body))
    vendors.write("acme/p.py", vendors.swap("P", "Relu", "Abs"))
    with pytest.raises(VendorError, match=rf"^plugin acme/a.*{name}:?{message}") as caught:
        vendors.host().run(parse(CHAIN))
    assert re.search(r"/a.py:\d+$", str(caught.value.where))
    result, report = vendors.host(keep_going=True).run(parse(CHAIN))
    assert op_types(result) == ["Abs", "Abs", "Neg"]
    assert not any(entry.key == "k" for node in result.graph.node for entry in node.metadata_props)
    assert len(report.problems) == (4 if name == "gehost_stage_finished" else 1)


def test_an_error_of_gehost_in_a_hook_ends_the_compile_as_it_is(vendors: Any) -> None:
    class Full:
        @hookimpl
        def gehost_compile_started(self) -> None:
            raise UsageError("the disk is full")

    with pytest.raises(UsageError, match=r"^the disk is full$"):
        vendors.host(plugins=[("full", Full())], keep_going=True).run(parse(CHAIN))


def test_hooks_around_a_pass_see_what_it_did(vendors: Any) -> None:
    calls: list[Any] = []

    class Watch:
        @hookimpl
        def gehost_before_pass(self, spec: Any, graph: Any) -> None:
            calls.append((spec.name, len(graph.nodes_of("Relu"))))

        @hookimpl
        def gehost_after_pass(self, spec: Any, graph: Any, record: Any) -> None:
            calls.append((spec.name, len(graph.nodes_of("Relu")), record.status, record.replaced))

    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"), fusion("return FAILED", "Q"))
    vendors.host(plugins=[("watch", Watch())], keep_going=True).run(parse(CHAIN))
    assert calls == [("P", 1), ("P", 0, "done", 1), ("Q", 0), ("Q", 0, "failed", 0)]


class RewriteLog:
    """Keeps what the hooks around rewrites were told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl
    def gehost_before_rewrite(self, rewrite: Any) -> None:
        assert all(node.in_graph for node in rewrite.region.nodes)
        self.seen.append(
            (
                rewrite.number,
                rewrite.record.name,
                [node.op for node in rewrite.region.nodes],
                rewrite.made,
            )
        )

    @hookimpl
    def gehost_after_rewrite(self, rewrite: Any) -> None:
        self.seen.append((rewrite.number, [node.op for node in rewrite.made]))

    @hookimpl
    def gehost_match_refused(self, record: Any, node: Any, reason: str) -> None:
        self.seen.append((record.name, node.op, reason))


def test_hooks_around_rewrites_see_what_is_replaced_by_what_and_what_is_refused(
    vendors: Any,
) -> None:
    boundary = "SubgraphBoundary().AddOutput(0, SubgraphOutput(NodeIo(node, 0))).AddInput(0, SubgraphInput([NodeIo(node, 0)]))"
    by_hand = fusion(
        "node = graph.tail; builder = EsGraphBuilder('r'); x = builder.CreateInput(0); "
        f"SubgraphRewriter.Replace({boundary}, builder.BuildAndReset([es.Sin(x)]))",
        "ByHand",
    )
    refuses = vendors.swap("Refuses", "Abs", "Sin", meet="return match.reject('far: too far')")
    types = vendors.swap("Types", "Abs", "Not")
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"), refuses, types, by_hand)
    log = RewriteLog()
    vendors.host(plugins=[("log", log)]).run(parse(CHAIN))
    assert log.seen[:6] == [
        (1, "P", ["Relu"], ()),
        (1, ["Abs"]),
        ("Refuses", "Abs", "far: too far"),
        ("Refuses", "Abs", "far: too far"),
        (2, "Types", ["Abs"], ()),
        ("Types", "Abs", log.seen[5][2]),
    ]
    assert log.seen[5][2].startswith("types: ")
    assert log.seen[-2:] == [(2, "ByHand", ["Neg"], ()), (2, ["Sin"])]


@pytest.mark.parametrize(
    ("body", "message"),
    [("1 / 0", "ZeroDivisionError"), ("EDIT", "edited the graph; this hook is read-only")],
)
def test_a_hook_around_rewrites_that_fails_fails_the_pass_and_is_named(
    vendors: Any, body: str, message: str
) -> None:
    class Broken:
        @hookimpl
        def gehost_after_rewrite(self, rewrite: Any) -> None:
            if body == "EDIT":
                rewrite.region.graph.set_metadata(rewrite.made[0], "k", "v")
            else:
                raise ZeroDivisionError

    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    result, report = vendors.host(plugins=[("broken", Broken())], keep_going=True).run(parse(CHAIN))
    assert result.graph.node == parse(CHAIN).graph.node
    assert (report.passes[0].status, report.passes[0].replaced) == ("failed", 0)
    at = rf"plugin broken \({re.escape(__file__)}:\d+\): gehost_after_rewrite"
    assert re.match(rf"{at}.*{message}", report.problems[0])


def test_a_hook_around_rewrites_leaves_the_process_to_the_pass_as_it_was(
    vendors: Any, tmp_path: Path
) -> None:
    here, folders = os.getcwd(), []

    class Wanders:
        @hookimpl
        def gehost_before_rewrite(self, rewrite: Any) -> None:
            folders.append(os.getcwd())
            os.chdir(tmp_path)

    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"), vendors.swap("Q", "Neg", "Exp"))
    vendors.host(plugins=[("wanders", Wanders())]).run(parse(CHAIN))
    assert folders == [here, here]


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Host, str], int]:
    """How often the state of the process is restored while a host compiles a text."""
    sizes: list[int] = []
    state = containment._state
    monkeypatch.setattr(containment, "_state", lambda: sizes.append(1) or state())

    def count(host: Host, text: str = CHAIN) -> int:
        sizes.clear()
        host.run(parse(text))
        return len(sizes)

    return count


def test_hooks_that_are_gehosts_own_are_not_contained(vendors: Any, restored: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    without = restored(vendors.host())
    assert restored(vendors.host(plugins=[("recorder", RewriteRecorder())])) == without
    assert restored(vendors.host(plugins=[("log", RewriteLog())])) == without + 2


def test_a_pass_whose_operators_the_graph_lacks_is_not_contained(
    vendors: Any, restored: Any
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    host = vendors.host()
    first = restored(host)
    assert restored(host) == first
    assert restored(host, CHAIN.replace("Relu", "Exp")) == first - 1


def test_passes_that_do_not_run_have_no_hooks_around_them(vendors: Any, tmp_path: Path) -> None:
    vendors.write(
        "acme/a.py", vendors.swap("P", "Relu", "Abs"), hook("gehost_before_pass", "1 / 0")
    )
    _, report = vendors.host(disable=["P"]).run(parse(CHAIN))
    assert report.passes[0].status == "disabled"


def test_nodes_that_a_pass_adds_by_hand_say_whose_they_are(vendors: Any) -> None:
    add = "graph.add_node('Abs', [graph.values['x']], ['more'], name='more', after=None)"
    vendors.write(
        "acme/a.py",
        fusion(f"{add}; graph.remove_node(graph.add_node('Neg', [graph.values['x']], ['gone']))"),
    )
    result, report = vendors.host().run(parse(CHAIN))
    assert report.passes[0].status == "done"
    notes = {
        node.name: {entry.key: entry.value for entry in node.metadata_props}
        for node in result.graph.node
        if node.name
    }
    assert notes["more"] == {"gehost.pass": "P", "gehost.vendor": "acme"}
    assert sum(bool(node.metadata_props) for node in result.graph.node) == 1


# -- pass objects ---------------------------------------------------------------------------------------------------

COUNTING = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class P(PatternFusionPass):
    def Patterns(self):
        print("patterns")
        {patterns}
        builder = EsGraphBuilder("pattern")
        return [Pattern(builder.BuildAndReset([es.{op}(builder.CreateInput(0))]))]

    def MeetRequirements(self, match):
        {meet}
        return True

    def Replacement(self, match):
        builder = EsGraphBuilder("replacement")
        return builder.BuildAndReset([es.Neg(builder.CreateInput(0))])
"""


@pytest.mark.parametrize(
    ("patterns", "meet", "built"),
    [
        ("pass", "pass", 1),
        ("self.seen = []", "pass", 3),
        ("pass", "self.seen = match", 3),
        ("pass", "self.__class__.seen = 1", 1),
    ],
)
def test_a_pass_object_without_attributes_serves_all_compiles_of_its_host(
    vendors: Any, capfd: pytest.CaptureFixture[str], patterns: str, meet: str, built: int
) -> None:
    vendors.write("acme/a.py", COUNTING.format(op="Relu", patterns=patterns, meet=meet))
    host = vendors.host()
    for _ in range(3):
        model, report = host.run(parse(CHAIN))
        assert op_types(model) == ["Neg", "Abs", "Neg"]
        assert report.passes[0].replaced == 1
    assert capfd.readouterr().err.count("patterns") == built


def test_a_pass_object_that_failed_is_not_used_again(
    vendors: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    meet = "match.inputs[0].name == 'bad' and 1 / 0"
    vendors.write("acme/a.py", COUNTING.format(op="Relu", patterns="pass", meet=meet))
    host = vendors.host()
    assert host.run(parse(CHAIN))[1].passes[0].replaced == 1
    with pytest.raises(PassError, match="ZeroDivisionError"):
        host.run(parse(CHAIN.replace("x", "bad")))
    assert host.run(parse(CHAIN))[1].passes[0].replaced == 1
    assert capfd.readouterr().err.count("patterns") == 2


def test_a_reused_pass_object_has_its_patterns_at_each_models_opset(vendors: Any) -> None:
    vendors.write("acme/a.py", COUNTING.format(op="Mish", patterns="pass", meet="pass"))
    host = vendors.host()
    new = CHAIN.replace("17", "18").replace("Relu", "Mish")
    expected = [("not applicable", 0), ("done", 1), ("not applicable", 0), ("done", 1), ("done", 1)]
    for model, (status, replaced) in zip([CHAIN, new, CHAIN, new, new], expected, strict=True):
        record = host.run(parse(model))[1].passes[0]
        assert (record.status, record.replaced) == (status, replaced)
        assert ("needs opset 18" in record.message) == (status == "not applicable")


@pytest.mark.usefixtures("interpreted")
def test_patterns_are_lowered_once_for_each_opset(vendors: Any, monkeypatch: Any) -> None:
    real, lowered = driver.LoweredPattern, list[int]()

    def counting(pattern: Any, config: Any, model: Model, registry: Any) -> Any:
        lowered.append(model.opset() or 0)
        return real(pattern, config, model, registry)

    monkeypatch.setattr(driver, "LoweredPattern", counting)
    monkeypatch.setattr(driver, "_MOST_OPSETS", 2)
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    host = vendors.host()
    for opset in (17, 18, 17, 18, 19, 18, 17):
        host.run(parse(CHAIN.replace("17", str(opset))))
    assert lowered == [17, 18, 19, 17]  # 19 takes the place of 17, the least recently used


def test_a_reused_pass_object_finds_operators_under_the_names_of_their_bodies(vendors: Any) -> None:
    vendors.write("acme/a.py", COUNTING.format(op='op("acme::F")', patterns="pass", meet="pass"))
    host = vendors.host()
    text = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
    main (float[2] x) => (float[2] y) {{ y = acme.{name} (x) }}
    <domain: "acme", opset_import: ["" : 17]> {name} (a) => (b) {{ b = Relu (a) }}"""
    for name, replaced in (("F", 1), ("F__1", 1), ("F", 1), ("F__1", 1), ("G", 0)):
        model = parse(text.format(name=name))
        if name == "F__1":
            entry = model.graph.node[0].metadata_props.add()
            entry.key, entry.value = "gehost.op", "acme::F"
        assert host.run(model)[1].passes[0].replaced == replaced, name


def test_a_pass_object_that_waits_for_the_next_compile_keeps_no_model(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    host = vendors.host()
    host.run(parse(CHAIN.replace("main", "kept")))
    gc.collect()
    assert not [
        item for item in gc.get_objects() if isinstance(item, Graph) and item.name == "kept"
    ]
    assert host.passes.get("P") is not None
