"""Planning as a stage hook of a compile."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, PassError, hookimpl
from gehost_sharding.check import read_annotations
from gehost_sharding.hook import PlanningHook
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW
from .models import block


class Failing(PlanningHook):
    """Fails after its edits."""

    @hookimpl
    def gehost_after_origin_graph_optimize(self, graph: Any, context: Any) -> None:
        super().gehost_after_origin_graph_optimize(graph, context)
        assert next(iter(graph.nodes)).device_configurations
        assert context.model.ir_version == 11
        raise ValueError("too late")


def run(hook: PlanningHook, **options: Any) -> onnx.ModelProto:
    model, _ = Host(HostOptions(**options), [("planning", hook)]).run(block().proto)
    return model


def test_a_compile_ends_with_the_plan() -> None:
    hook = PlanningHook("data=2,model=2", SLOW, pins=["w1=1:model"], table=RuleTable())
    model = run(hook)
    assert model.ir_version == 11
    assert [entry.name for entry in model.configuration] == ["data=2,model=2"]
    annotated = read_annotations(ModelGraph(model), RuleTable())
    assert (annotated.findings, annotated.assignment is None) == ([], False)
    assert annotated.assignment is not None
    assert hook.plan is not None
    expected = hook.plan.assignment
    assert annotated.assignment.chosen == expected.chosen
    assert annotated.assignment.specs == expected.specs
    assert hook.plan.solved.wire_bytes > 0


def test_its_edits_are_undone_with_the_stage() -> None:
    model = run(Failing("x=2", SLOW), keep_going=True)
    plain, _ = Host(HostOptions()).run(block().proto)
    assert model == plain


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"memory": 1}, "holds 1 bytes"), ({}, "IR version 3")],
)
def test_what_cannot_be_planned_ends_the_compile(arguments: Any, reason: str) -> None:
    proto = block().proto
    if not arguments:
        proto.ir_version = 3
        proto.graph.input.extend(
            onnx.helper.make_tensor_value_info(entry.name, entry.data_type, entry.dims)
            for entry in proto.graph.initializer
        )
    host = Host(HostOptions(), [("planning", PlanningHook("x=2", SLOW, **arguments))])
    with pytest.raises(PassError, match=reason):
        host.run(proto)
