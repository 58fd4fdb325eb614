"""Splits run on all ranks: equal numbers, predicted bytes, and controls that must fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import UsageError
from gehost_sharding.assignment import Assignment
from gehost_sharding.collectives import Collective
from gehost_sharding.mesh import Mesh
from gehost_sharding.partition import split_rank, write_split
from gehost_sharding.plan import Plan, Planner
from gehost_sharding.redistribution import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from gehost_sharding.rules.table import RuleTable

from .conftest import (
    SLOW,
    Array,
    LockStep,
    assert_equal,
    differs,
    feeds_of,
    graph_of,
    reread,
    split_run,
    whole_run,
)
from .models import block


def plan_of(mesh: str) -> Plan:
    return Planner(block(), Mesh.parse(mesh), SLOW, RuleTable()).plan()


@pytest.mark.parametrize("mesh", ["x=2", "x=4", "data=2,model=2", "data=1,model=4", "a=2,b=2,c=2"])
def test_the_split_is_equal_and_sends_the_predicted_bytes(mesh: str) -> None:
    plan = plan_of(mesh)
    graph = plan.assignment.graph
    feeds = feeds_of(graph)
    actual, lock_step = split_run(reread(plan.assignment), feeds)
    assert_equal(whole_run(graph, feeds), actual)
    assert lock_step.sent == [plan.solved.wire_bytes] * plan.assignment.mesh.devices
    assert plan.solved.wire_bytes > 0


@pytest.mark.parametrize("dialect", ["gehost", "tensorrt", "onnxruntime"])
def test_dialects_are_equal_and_send_the_same_bytes(dialect: str) -> None:
    plan = plan_of("x=4")
    graph = plan.assignment.graph
    feeds = feeds_of(graph)
    actual, lock_step = split_run(plan.assignment, feeds, dialect=dialect)
    assert_equal(whole_run(graph, feeds), actual)
    assert lock_step.sent == [plan.solved.wire_bytes] * 4


def test_tensorrt_writes_distributed_collectives_of_its_own_group() -> None:
    plan = plan_of("data=2,model=2")
    part = split_rank(plan.assignment, 3, dialect="tensorrt", table=RuleTable())
    nodes = [node for node in part.model.graph.node if node.op_type == "DistCollective"]
    assert nodes
    assert all(not node.domain for node in nodes)
    for node in nodes:
        attributes = {
            entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute
        }
        assert attributes["group_size"] == attributes["nb_rank"] == 2
        assert attributes["groups"] in ([1, 3], [2, 3])
        reduces = attributes["collective_operation"] in {b"all_reduce", b"reduce_scatter"}
        assert attributes["reduce_op"] == (b"sum" if reduces else b"none")


def test_onnxruntime_needs_the_world_as_the_one_group() -> None:
    plan = plan_of("data=2,model=2")
    with pytest.raises(UsageError, match="runs in 2 groups; com.microsoft has the whole world"):
        split_rank(plan.assignment, 0, dialect="onnxruntime", table=RuleTable())


def test_onnxruntime_only_sums() -> None:
    graph = graph_of(
        "(float[4,8] x) => (float[1,8] z) { z = ReduceMax <axes = [0]> (x) }", opset=17
    )
    planner = Planner(graph, Mesh.parse("x=4"), SLOW, RuleTable())
    chosen = [
        number
        for number, strategy in enumerate(planner.strategies[0].choices)
        if strategy.is_partial
    ]
    assignment = Assignment(graph, planner.mesh, planner.strategies, chosen, {"z": (-1,)})
    with pytest.raises(UsageError, match="reduces by max"):
        split_rank(assignment, 0, dialect="onnxruntime", table=RuleTable())
    feeds = feeds_of(graph)
    assert_equal(whole_run(graph, feeds), split_run(assignment, feeds)[0])


# -- controls: each error must show in the numbers -------------------------------------------


def spoiled(mesh: str, kind: str) -> bool:
    """Leave out one collective of a kind on all ranks; True if the numbers differ."""
    plan = plan_of(mesh)
    graph = plan.assignment.graph
    feeds = feeds_of(graph)
    lock_step = LockStep(plan.assignment.mesh.devices)

    def leave_out(collective: Collective, value: Array) -> Array | None:
        if collective.kind != kind:
            return None
        size = collective.group_size
        if kind == ALL_GATHER:
            return np.concatenate([value] * size, axis=collective.concat_axis)
        if kind == ALL_REDUCE:
            return value
        first = np.split(value, size, axis=collective.split_axis)[0]
        if kind == REDUCE_SCATTER:
            return first
        return np.concatenate([first] * size, axis=collective.concat_axis)

    lock_step.spoil = leave_out
    try:
        actual, _ = split_run(plan.assignment, feeds, lock_step=lock_step)
    except AssertionError:  # replicas that are no longer equal
        return True
    return differs(whole_run(graph, feeds), actual)


@pytest.mark.parametrize("kind", [ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL])
def test_a_collective_that_is_left_out_gives_wrong_numbers(kind: str) -> None:
    assert kind in plan_of("x=4").solved.by_collective()
    assert spoiled("x=4", kind)


def test_two_swapped_devices_give_wrong_numbers() -> None:
    plan = plan_of("data=2,model=2")
    graph = plan.assignment.graph
    feeds = feeds_of(graph)
    mesh = plan.assignment.mesh

    def swap(rank: int, model: onnx.ModelProto) -> None:
        if rank in {1, 2}:
            model.CopyFrom(split_rank(plan.assignment, 3 - rank, table=RuleTable()).model)

    try:
        actual, _ = split_run(plan.assignment, feeds, edit=swap)
    except AssertionError:
        return
    assert mesh.devices == 4
    assert differs(whole_run(graph, feeds), actual)


# -- files ------------------------------------------------------------------------------------


def test_a_directory_is_written_whole(tmp_path: Path) -> None:
    plan = plan_of("x=2")
    directory = tmp_path / "split"
    write_split(plan.assignment, str(directory), table=RuleTable())
    assert sorted(entry.name for entry in directory.iterdir()) == [
        "rank0.onnx",
        "rank1.onnx",
        "split.json",
    ]
    manifest = json.loads((directory / "split.json").read_text())
    assert manifest["predicted"]["bytes"] == plan.solved.wire_bytes
    assert manifest["predicted"]["output_bytes"] == plan.solved.output_bytes
    write_split(plan.assignment, str(directory), table=RuleTable())  # a split may be replaced
    model = onnx.load(directory / "rank1.onnx")
    weights = {entry.name: tuple(entry.dims) for entry in model.graph.initializer}
    assert sum(np.prod(dims) for dims in weights.values()) < sum(
        plan.assignment.graph.tensors[name].elements for name in plan.assignment.graph.initializers
    )


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and holds other files"):
        write_split(plan_of("x=2").assignment, str(tmp_path), table=RuleTable())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_nothing_is_left_of_a_split_that_fails(tmp_path: Path) -> None:
    plan = plan_of("data=2,model=2")
    with pytest.raises(UsageError):
        write_split(plan.assignment, str(tmp_path / "s"), dialect="onnxruntime", table=RuleTable())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "(float[4,8] x) => (float[4,8] z, int64[2] s) { z = Exp (x) s = Shape (x) }",
        "(float[4,8] x) => (float[2] c) { c = Constant <value = float[2] {1.0, 2.0}> () }",
        "(float[4,8] x) => (float[4,8] y, float[4,8] z) { y = Softmax (x) z = Neg (y) }",
    ],
)
def test_outputs_that_no_operator_or_several_read(text: str) -> None:
    graph = graph_of(text)
    plan = Planner(graph, Mesh.parse("x=2"), SLOW, RuleTable()).plan()
    feeds = feeds_of(graph)
    actual, _ = split_run(reread(plan.assignment), feeds)
    assert_equal(whole_run(graph, feeds), actual)


def test_large_weights_are_written_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gehost_sharding.partition._EXTERNAL", 0)
    plan = plan_of("x=2")
    write_split(plan.assignment, str(tmp_path / "s"), table=RuleTable())
    assert (tmp_path / "s" / "rank1.onnx.data").stat().st_size > 0
    loaded = onnx.load(tmp_path / "s" / "rank1.onnx")
    part = split_rank(plan.assignment, 1, table=RuleTable()).model
    assert loaded.graph.initializer[0].raw_data == part.graph.initializer[0].raw_data
    write_split(plan.assignment, str(tmp_path / "s"), table=RuleTable())


def test_functions_are_kept() -> None:
    from gehost.testing import parse
    from gehost_sharding.model_graph import ModelGraph

    graph = ModelGraph(
        parse(
            """<ir_version: 10, opset_import: ["" : 20, "acme" : 1]>
            main (float[4,8] x) => (float[4,8] z) { y = acme.Twice (x) z = Softmax (y) }
            <domain: "acme", opset_import: ["" : 20]>
            Twice (x) => (z) { z = Add (x, x) }"""
        )
    )
    plan = Planner(graph, Mesh.parse("x=2"), SLOW, RuleTable()).plan()
    part = split_rank(plan.assignment, 0, table=RuleTable())
    assert [function.name for function in part.model.functions] == ["Twice"]
    feeds = feeds_of(graph)
    assert_equal(whole_run(graph, feeds), split_run(reread(plan.assignment), feeds)[0])
