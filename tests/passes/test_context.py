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
    PassRecord,
    SubgraphBoundary,
    SubgraphInput,
    SubgraphOutput,
    SubgraphRewriter,
    es,
)
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


def test_refusals_are_counted_by_key() -> None:
    record = PassRecord("P", "kAfterInferShape", "p.py:1", "pattern")
    for reason in ("rank: 3", "rank : 4", "rank", "a: b: c", "", ":"):
        record.reject(reason)
    assert record.rejected == {"rank": 3, "a": 1, "unspecified": 2}


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
    assert "as many rewrites as it may" in report.passes[1].message


def _add(host: Any, factory: Any, name: str) -> None:
    host.passes.add(
        PassSpec(name, CustomPassStage.kAfterInferShape, f"{__file__}:1", "fusion", factory)
    )


def test_outside_a_pass_there_is_nothing_to_rewrite() -> None:
    assert current_context() is None
    with pytest.raises(PassError, match=r"SubgraphRewriter.Replace works inside a pass"):
        SubgraphRewriter.Replace(SubgraphBoundary(), EsGraph("empty"))


def test_run_is_given_the_pass_and_says_why_it_failed() -> None:
    seen: list[CustomPassContext] = []

    class Failing(FusionBasePass):
        def Run(self, graph: Any, context: Any) -> Any:
            seen.append(context)
            context.SetErrorMessage("the tiles do not fit")
            return FAILED

    with pytest.raises(PassError, match=r"^Failing \(.*:1\): Run: the tiles do not fit$"):
        run_pass(CHAIN, Failing)
    (context,) = seen
    assert context.GetPassName() == context.pass_name == "Failing"
    assert context.GetErrorMessage() == "the tiles do not fit"
    assert context.stage is CustomPassStage.kAfterInferShape
    assert current_context() is None


def test_a_limit_of_none_is_never_reached() -> None:
    limit = RewriteLimit()
    limit.count()
    assert (limit.done, limit.reached) == (1, False)
    limit = RewriteLimit(1)
    limit.count()
    assert limit.reached
