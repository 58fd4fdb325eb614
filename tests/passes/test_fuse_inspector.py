"""What a pass that edits the graph itself asks and reports, by GE's C++ names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest

from gehost import (
    CustomPassContext,
    CustomPassStage,
    EsGraphBuilder,
    FusionBasePass,
    Graph,
    GraphFuseInspectorUtils,
    Host,
    HostOptions,
    NodeIo,
    PassError,
    PassSpec,
    Report,
    SubgraphBoundary,
    SubgraphInput,
    SubgraphOutput,
    SubgraphRewriter,
    UsageError,
    es,
)
from gehost.testing import parse

MODEL = parse("""<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) { a = Relu(x)  b = Relu(a)  c = Neg(b)  y = Add(c, a) }""")
Body = Callable[[Graph, CustomPassContext], Any]


def run(body: Body, **options: Any) -> tuple[onnx.ModelProto, Report]:
    class Edit(FusionBasePass):
        def Run(self, graph: Graph, context: CustomPassContext) -> Any:
            return body(graph, context)

    host = Host(HostOptions(plugins=False, cleanup=False, **options))
    host.passes.add(PassSpec("Edit", CustomPassStage.kAfterInferShape, "here:1", "fusion", Edit))
    return host.run(MODEL)


def relus(graph: Graph) -> Any:
    return [node for node in graph.nodes if node.op_type == "Relu"]


def skip_second_relu(graph: Graph) -> Any:
    first, second = relus(graph)
    (neg,) = (node for node in graph.nodes if node.op_type == "Neg")
    graph.set_input(neg, 0, first.outputs[0])
    return first, second


def test_an_edit_is_reported_and_counted_once() -> None:
    def body(graph: Graph, context: CustomPassContext) -> None:
        first, second = relus(graph)
        assert GraphFuseInspectorUtils.CanFuse([first, second])
        GraphFuseInspectorUtils.ReportMatch([first, second], context)
        skip_second_relu(graph)
        GraphFuseInspectorUtils.ReportFuse([second], [first], context)
        graph.remove_node(second)
        with pytest.raises(PassError, match=r"ReportFuse: Relu .* is not in the graph"):
            GraphFuseInspectorUtils.ReportFuse([first], [second], context)

    result, report = run(body)
    assert [node.op_type for node in result.graph.node] == ["Relu", "Neg", "Add"]
    (record,) = report.passes
    assert (record.matched, record.replaced, record.status) == (1, 1, "done")


def test_a_report_without_a_match_counts_the_match() -> None:
    def body(graph: Graph, context: CustomPassContext) -> None:
        first, second = skip_second_relu(graph)
        GraphFuseInspectorUtils.ReportFuse([second, first], [first], context)
        graph.remove_node(second)

    (record,) = run(body)[1].passes
    assert (record.matched, record.replaced) == (1, 1)


def nothing_edited(graph: Graph, context: CustomPassContext) -> None:
    GraphFuseInspectorUtils.ReportFuse(relus(graph)[1:], relus(graph)[1:], context)


def reported_twice(graph: Graph, context: CustomPassContext) -> None:
    first, second = skip_second_relu(graph)
    for _ in range(2):
        GraphFuseInspectorUtils.ReportFuse([second], [first], context)


MISTAKES: dict[str, tuple[Body, str]] = {
    "nothing edited": (nothing_edited, "nothing was edited since the last report"),
    "twice": (reported_twice, "nothing was edited since the last report"),
    "still in use": (
        lambda graph, context: GraphFuseInspectorUtils.ReportFuse(relus(graph)[:1], [], context),
        "is still in use; let its users read the new nodes, then report, then remove it",
    ),
    "no node": (
        lambda _, context: GraphFuseInspectorUtils.ReportFuse([], [], context),
        "name the nodes before the rewrite",
    ),
    "no nodes at all": (
        lambda _, context: GraphFuseInspectorUtils.ReportMatch([], context),
        "a match has a node",
    ),
    "a number": (
        lambda *_: GraphFuseInspectorUtils.CanFuse(3),  # type: ignore[arg-type]
        "CanFuse: wanted a list of nodes, got 3",
    ),
    "no context": (
        lambda graph, _: GraphFuseInspectorUtils.ReportMatch(relus(graph), graph),  # type: ignore[arg-type]
        "ReportMatch: wanted the context of the pass, got",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistaken_report_is_an_error_and_counts_nothing(mistake: str) -> None:
    body, message = MISTAKES[mistake]
    with pytest.raises(PassError, match=message):
        run(body)


def test_nodes_with_a_way_back_cannot_be_fused() -> None:
    def body(graph: Graph, _: CustomPassContext) -> None:
        first, _second, _neg, add = graph.nodes
        answer = GraphFuseInspectorUtils.CanFuse([first, add])
        assert not answer
        assert (answer.ok, answer.reason.partition(":")[0]) == (False, "not convex")

    run(body)


@pytest.mark.parametrize("passes_context", [False, True])
def test_a_rewrite_by_boundary_counts_once_with_and_without_a_report(
    passes_context: bool,
) -> None:
    def body(graph: Graph, context: CustomPassContext) -> None:
        second = relus(graph)[1]
        boundary = SubgraphBoundary()
        boundary.AddInput(0, SubgraphInput([NodeIo(second, 0)]))
        boundary.AddOutput(0, SubgraphOutput(NodeIo(second, 0)))
        builder = EsGraphBuilder("abs")
        replacement = builder.BuildAndReset([es.Abs(builder.CreateInput(0))])
        if passes_context:
            result = SubgraphRewriter.Replace(boundary, replacement, context)
        else:
            result = SubgraphRewriter.Replace(boundary, replacement)
        GraphFuseInspectorUtils.ReportFuse([second], result, context)

    (record,) = run(body)[1].passes
    assert (record.matched, record.replaced) == (1, 1)


def test_another_context_is_refused() -> None:
    earlier: list[CustomPassContext] = []
    run(lambda _, context: earlier.append(context))

    def body(graph: Graph, context: CustomPassContext) -> None:
        builder = EsGraphBuilder("replacement")
        replacement = builder.BuildAndReset(es.Relu(builder.CreateInput(0)))
        SubgraphRewriter.Replace(SubgraphBoundary(), replacement, earlier[0])

    with pytest.raises(PassError, match="wanted the context of the running pass, got"):
        run(body)


def test_options_of_ge_and_the_name_of_a_pass() -> None:
    def body(_: Graph, context: CustomPassContext) -> None:
        assert context.GetOptionValue("ge.exec.mode") == "fast"
        context.SetPassName("Other")
        assert context.GetPassName() == "Other"
        context.GetOptionValue("ge.absent")

    with pytest.raises(PassError, match=r'option "ge.absent" has no value; set it: --set ge.ab'):
        run(body, settings={"ge.exec.mode": "fast"})


def nothing(graph: Graph, context: CustomPassContext) -> None:
    del graph, context


def test_a_setting_of_no_pass_stays_an_error() -> None:
    with pytest.raises(UsageError, match="setting gee.mode: there is no pass or importer gee"):
        run(nothing, settings={"gee.mode": "fast"})
    with pytest.raises(UsageError, match="setting ge.: there is no pass or importer ge"):
        run(nothing, settings={"ge.": "fast"})
