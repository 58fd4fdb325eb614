"""What a run notes down, and what ``Run`` is given."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import (
    FAILED,
    CustomPassContext,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    FusionBasePass,
    NodeIo,
    PassError,
    Refusal,
    Region,
    SubgraphBoundary,
    SubgraphInput,
    SubgraphOutput,
    SubgraphRewriter,
    es,
)
from gehost.diagnose.report.recorder import RewriteRecorder
from gehost.host.registry import PassSpec
from gehost.passes.context import RewriteLimit, current_context
from gehost.testing import parse, run_pass

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Relu(a)
    y = Neg(b)
}"""


def replace_by_abs(node: Any) -> list[Any]:
    builder = EsGraphBuilder("abs")
    graph = builder.BuildAndReset([es.Abs(builder.CreateInput(0))])
    boundary = SubgraphBoundary().AddInput(0, SubgraphInput([NodeIo(node, 0)]))
    return SubgraphRewriter.Replace(boundary.AddOutput(0, SubgraphOutput(NodeIo(node, 0))), graph)


class ByHand(FusionBasePass):
    def Run(self, graph: Any, context: Any) -> Any:
        for node in graph.nodes_of("Relu"):
            replace_by_abs(node)


def test_rewrites_by_hand_are_counted() -> None:
    result, record = run_pass(CHAIN, ByHand)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Abs", "Neg"]
    assert (record.matched, record.replaced, record.status, record.kind) == (2, 2, "done", "fusion")
    assert {entry.key for entry in result.graph.node[0].metadata_props} >= {
        "gehost.pass",
        "gehost.origin_nodes",
    }


def test_rewrites_by_hand_stop_at_the_limit_and_those_before_stay(vendors: Any) -> None:
    host = vendors.host(rewrite_limit=1)
    run: list[str] = []

    class Counting(ByHand):
        def Run(self, graph: Any, context: Any) -> Any:
            run.append("start")
            super().Run(graph, context)
            run.append("end")

    _add(host, Counting, "First")
    _add(host, ByHand, "Second")
    result, report = host.run(parse(CHAIN))
    assert [node.op_type for node in result.graph.node] == ["Abs", "Relu", "Neg"]
    assert [(record.status, record.replaced) for record in report.passes] == [
        ("done", 1),
        ("not changed", 0),
    ]
    assert run == ["start"]
    assert "reached its limit of rewrites" in report.passes[1].message


def _add(host: Any, factory: Any, name: str) -> None:
    host.passes.add(
        PassSpec(name, CustomPassStage.kAfterInferShape, f"{__file__}:1", "fusion", factory)
    )


def test_outside_a_pass_there_is_nothing_to_rewrite() -> None:
    assert current_context() is None
    with pytest.raises(PassError, match=r"SubgraphRewriter.Replace works inside a pass"):
        SubgraphRewriter.Replace(SubgraphBoundary(), EsGraph("empty"))


def test_run_is_given_the_pass_and_says_why_it_failed() -> None:
    contexts: list[CustomPassContext] = []

    class Failing(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> Any:
            contexts.append(context)
            context.SetErrorMessage("the tiles do not fit")
            return FAILED

    line = Failing.Run.__code__.co_firstlineno
    with pytest.raises(PassError, match=rf"^Failing \(.*:{line}\): Run: the tiles do not fit$"):
        run_pass(CHAIN, Failing)
    (context,) = contexts
    assert context.GetPassName() == context.pass_name == "Failing"
    assert context.GetErrorMessage() == "the tiles do not fit"
    assert context.stage is CustomPassStage.kAfterInferShape
    assert current_context() is None


SHARED = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y, float[2] z) {
    a = Relu(x)
    b = Neg(a)
    y = Exp(b)
    z = Abs(a)
}"""


def fusing(*ops: str, outputs: int = 1, **value: Any) -> tuple[type[FusionBasePass], list[Any]]:
    """A pass that replaces the nodes of some operators by one Sin for each output, and what it got."""
    answers: list[Any] = []

    class Fusing(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> Any:
            region = Region.of_nodes(graph.nodes_of(*ops))
            if not region:
                return
            builder = EsGraphBuilder("r")
            x = builder.CreateInput(0)
            result = builder.BuildAndReset([es.Sin(x) for _ in range(outputs)])
            answers.append(context.replace(region, result, **value))

    return Fusing, answers


def ops_of(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_a_run_replaces_a_region() -> None:
    pass_, answers = fusing("Relu", "Neg", "Exp", outputs=2)
    result, record = run_pass(SHARED, pass_)
    assert ops_of(result) == ["Sin", "Sin", "Abs"]
    assert (record.matched, record.replaced, record.status) == (1, 1, "done")
    assert [node.op for node in answers[0]] == ["Sin", "Sin"]
    assert [node.output[0] for node in result.graph.node] == ["a", "y", "z"]


def test_nodes_that_others_read_are_kept_where_the_run_asks_for_it() -> None:
    pass_, _ = fusing("Relu", "Neg", "Exp", keep_shared=True)
    result, _ = run_pass(SHARED, pass_)
    assert [(node.op_type, *node.input, *node.output) for node in result.graph.node] == [
        ("Relu", "x", "a"),
        ("Sin", "x", "y"),
        ("Abs", "a", "z"),
    ]


def test_a_refusal_is_returned_and_counted_and_changes_nothing() -> None:
    answers: list[Any] = []

    class Casting(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> Any:
            (node,) = graph.nodes_of("Neg")
            builder = EsGraphBuilder("r")
            cast = builder.BuildAndReset([es.Cast(builder.CreateInput(0), to=6)])
            answers.append(context.replace(Region.of_nodes([node]), cast))
            context.refuse(node, "own: reason")

    result, record = run_pass(CHAIN, Casting)
    assert ops_of(result) == ["Relu", "Relu", "Neg"]
    (answer,) = answers
    assert isinstance(answer, Refusal)
    assert answer.reason == 'dtype: "y" was float[2], would be int32[2]'
    assert (record.matched, record.replaced, record.status) == (1, 0, "not changed")
    assert dict(record.rejected) == {"dtype": 1, "own": 1}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "the graph has 1 outputs, wanted 2, region.outputs"),
        (
            {"outputs": 2, "keep_shared": True},
            "the graph has 2 outputs, wanted 1, region.results",
        ),
    ],
)
def test_a_graph_with_other_outputs_than_the_region_fails_the_pass(
    value: dict[str, Any], message: str
) -> None:
    pass_, _ = fusing("Relu", "Neg", "Exp", **value)
    with pytest.raises(PassError, match=f"Fusing .*: context.replace: {message}$"):
        run_pass(SHARED, pass_)


def test_a_region_that_is_out_of_date_fails_the_pass() -> None:
    class Stale(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> Any:
            region = Region.of_nodes(graph.nodes_of("Relu"))
            for _ in range(2):
                builder = EsGraphBuilder("r")
                result = builder.BuildAndReset([es.Abs(builder.CreateInput(0))])
                context.replace(region, result)

    with pytest.raises(PassError, match=r'context.replace: Relu "a" is not in the graph any more'):
        run_pass(CHAIN, Stale)


def test_runs_stop_at_the_limit(vendors: Any) -> None:
    host = vendors.host(rewrite_limit=0)
    pass_, answers = fusing("Relu", "Neg", "Exp", outputs=2)
    _add(host, pass_, "Fusing")
    _, report = host.run(parse(SHARED))
    assert answers == []
    assert (report.passes[0].replaced, report.problems) == (0, [])


def test_a_limit_of_none_is_never_reached() -> None:
    limit = RewriteLimit()
    limit.count()
    assert (limit.done, limit.reached) == (1, False)
    limit = RewriteLimit(1)
    limit.count()
    assert limit.reached


def test_the_report_has_the_refusals_of_a_run_with_their_nodes(vendors: Any) -> None:
    class Refusing(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> Any:
            for node in graph.nodes_of("Relu"):
                context.refuse(node, f"size: {node.label} is too small")

    host = vendors.host(plugins=[("recorder", RewriteRecorder())])
    _add(host, Refusing, "Refusing")
    _, report = host.run(parse(CHAIN))
    (record,) = report.passes
    assert dict(record.rejected) == {"size": 2}
    assert [(item.reason, item.nodes) for item in record.refusals] == [
        ("size: a is too small", ["a"]),
        ("size: b is too small", ["b"]),
    ]


def test_the_proof_of_an_inner_pass_is_not_that_of_the_outer_one(vendors: Any) -> None:
    """A pass that runs another one by itself vouches for its own rewrites alone."""
    vendors.write(
        "acme/a.py",
        """
        class Inner(PatternFusionPass):
            shape_proven = True

            def Patterns(self):
                builder = EsGraphBuilder("inner")
                return [Pattern(builder.BuildAndReset([es.Abs(builder.CreateInput(0))]))]

            def MeetRequirements(self, match):
                return match.reject("never: not here")

            def Replacement(self, match):
                raise AssertionError

        @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
        class Outer(FusionBasePass):
            def Run(self, graph, context):
                Inner().Run(graph, context)
                builder = EsGraphBuilder("outer")
                made = builder.BuildAndReset([es.Slice(builder.CreateInput(0), [0], [2])])
                context.replace(Region.of_nodes(list(graph.nodes_of("Abs"))), made)
        """,
    )
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[M] y) { y = Abs(x) }'
    result, report = vendors.host().run(parse(text))
    assert [node.op_type for node in result.graph.node] == ["Abs"]
    assert report.passes[0].rejected["unproven"] == 1
