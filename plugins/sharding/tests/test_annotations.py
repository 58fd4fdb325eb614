"""Annotations: written, read back, checked."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from gehost_sharding.annotations import (
    SpecError,
    annotate,
    decode_spec,
    derive_mesh,
    sharding_of,
)
from gehost_sharding.check import read_annotations
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.plan import Planner
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, graph_of, model_of, reread
from .models import block

MESH = Mesh(("data", "model"), (2, 2))


@pytest.fixture(scope="module")
def annotated() -> onnx.ModelProto:
    return annotate(Planner(block(), MESH, SLOW, RuleTable()).plan().assignment)


def findings(model: onnx.ModelProto) -> list[str]:
    return read_annotations(ModelGraph(model), RuleTable()).findings


def test_what_is_written_is_read_back() -> None:
    assignment = Planner(block(), MESH, SLOW, RuleTable()).plan().assignment
    again = reread(assignment)
    assert again.mesh == MESH
    assert again.specs == assignment.specs
    assert [again.strategy(number) for number in range(len(again.chosen))] == [
        assignment.strategy(number) for number in range(len(assignment.chosen))
    ]


def test_every_operand_and_result_has_a_spec(annotated: onnx.ModelProto) -> None:
    assert annotated.ir_version == 11
    (configuration,) = annotated.configuration
    assert (configuration.name, configuration.num_devices) == ("data=2,model=2", 4)
    assert list(configuration.device)[1] == "data=0,model=1"
    for node in annotated.graph.node:
        if node.op_type != "Constant":
            (entry,) = node.device_configurations
            names = [spec.tensor_name for spec in entry.sharding_spec]
            assert set(names) == {*node.input, *node.output}
            assert len(names) == len({*names})
    onnx.checker.check_model(annotated)


def test_a_replica_group_is_written_with_a_negative_number() -> None:
    from gehost_sharding.annotations import _SpecWriter

    spec = _SpecWriter(MESH).spec("t", (0, -1))
    assert list(spec.device) == [-1, -2]
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    assert groups == {-1: [0, 1], -2: [2, 3]}
    assert [
        (dim.axis, [s.num_shards for s in dim.simple_sharding]) for dim in spec.sharded_dim
    ] == [(0, [2])]


@pytest.mark.parametrize(
    "sharding", [(-1, -1), (0, -1), (-1, 0), (0, 0), (0, 1), (1, 0), (1, 1), (2, -1)]
)
def test_shardings_survive_in_specs(sharding: tuple[int, int]) -> None:
    from gehost_sharding.annotations import _SpecWriter

    mesh = Mesh(("data", "model"), (2, 4))
    spec = decode_spec(_SpecWriter(mesh).spec("t", sharding), (8, 8, 8), 8)
    assert sharding_of(mesh, spec) == sharding


def test_the_mesh_of_a_foreign_name_is_derived() -> None:
    assignment = Planner(block(), MESH, SLOW, RuleTable()).plan().assignment
    model = annotate(assignment)
    model.configuration[0].name = "eight chips"
    for node in model.graph.node:
        for entry in node.device_configurations:
            entry.configuration_id = "eight chips"
    annotations = read_annotations(ModelGraph(model), RuleTable())
    assert not annotations.findings
    assert annotations.mesh is not None
    assert annotations.mesh.sizes == (2, 2)
    assert annotations.assignment is not None
    assert annotations.assignment.specs == assignment.specs


def test_axes_of_one_dimension_may_be_one_count() -> None:
    """A spec that says 8 shards in order is both axes on the dimension."""
    spec = onnx.ShardingSpecProto(tensor_name="t", device=range(8))
    spec.sharded_dim.add(axis=0).simple_sharding.add(num_shards=8)
    decoded = decode_spec(spec, (8,), 8)
    assert derive_mesh(8, [decoded]).sizes == (8,)
    assert sharding_of(Mesh(("a", "b"), (2, 4)), decoded) == (0, 0)


def test_a_model_below_ir_4_loses_its_overridable_inputs() -> None:
    import numpy as np
    from onnx import numpy_helper

    model = model_of(
        "(float[4,8] x, float[8] b) => (float[4,8] z) { z = Add (x, b) }", opset=8, ir=3
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones(8, np.float32), "b"))
    graph = ModelGraph(model)
    assert graph.inputs == ["x"]
    annotated = annotate(Planner(graph, Mesh.parse("x=2"), SLOW, RuleTable()).plan().assignment)
    assert [entry.name for entry in annotated.graph.input] == ["x"]
    assert annotated.ir_version == 11
    onnx.checker.check_model(annotated)


Edit = Callable[[onnx.ModelProto], None]


def spec_of(model: onnx.ModelProto, tensor: str, node: int = 0) -> onnx.ShardingSpecProto:
    entry = model.graph.node[node].device_configurations[0]
    return next(spec for spec in entry.sharding_spec if spec.tensor_name == tensor)


def _axis(model: onnx.ModelProto) -> None:
    spec_of(model, "x", 1).sharded_dim.add(axis=99).simple_sharding.add(num_shards=1)


def _shards(model: onnx.ModelProto) -> None:
    spec = spec_of(model, "x", 1)
    del spec.sharded_dim[:]
    spec.sharded_dim.add(axis=0).simple_sharding.add(num_shards=3)


def _uneven(model: onnx.ModelProto) -> None:
    spec = spec_of(model, "x", 1)
    del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
    sharded = spec.sharded_dim.add(axis=0)
    sharded.simple_sharding.add(num_shards=2)
    sharded.simple_sharding.add(num_shards=2)
    spec.device.extend(range(4))


def _missing_device(model: onnx.ModelProto) -> None:
    spec = spec_of(model, "x", 1)
    del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
    spec.device.append(2)


def _device_twice(model: onnx.ModelProto) -> None:
    spec = spec_of(model, "x", 1)
    del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
    spec.device.append(-1)
    spec.index_to_device_group_map.add(key=-1).value.extend([0, 1, 2, 3, 3])


def _device_range(model: onnx.ModelProto) -> None:
    _device_twice(model)
    spec_of(model, "x", 1).index_to_device_group_map[0].value[4] = 7


def _group(model: onnx.ModelProto) -> None:
    del spec_of(model, "x", 1).index_to_device_group_map[:]


def _swapped(model: onnx.ModelProto) -> None:
    spec = spec_of(model, "x", 1)
    del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
    spec.sharded_dim.add(axis=1).simple_sharding.add(num_shards=4)
    spec.device.extend([0, 2, 1, 3][::-1])


def _name(model: onnx.ModelProto) -> None:
    spec_of(model, "x", 1).tensor_name = "nothing"


def _twice(model: onnx.ModelProto) -> None:
    entry = model.graph.node[1].device_configurations[0]
    entry.sharding_spec.append(spec_of(model, "x", 1))


def _configuration(model: onnx.ModelProto) -> None:
    model.graph.node[1].device_configurations[0].configuration_id = "other"


def _unannotated(model: onnx.ModelProto) -> None:
    del model.graph.node[1].device_configurations[:]


def _version(model: onnx.ModelProto) -> None:
    model.ir_version = 10


def _count(model: onnx.ModelProto) -> None:
    del model.configuration[0].device[2:]


def _no_devices(model: onnx.ModelProto) -> None:
    model.configuration[0].num_devices = 0


def _too_many_devices(model: onnx.ModelProto) -> None:
    model.configuration[0].num_devices = 2**31 - 1


def _stage(model: onnx.ModelProto) -> None:
    model.graph.node[1].device_configurations[0].pipeline_stage = 2


def _rule(model: onnx.ModelProto) -> None:
    """LayerNormalization with its axis split."""
    for node in model.graph.node:
        if node.op_type == "LayerNormalization":
            entry = node.device_configurations[0]
            for spec in entry.sharding_spec:
                if spec.tensor_name == "h":
                    del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
                    spec.sharded_dim.add(axis=2).simple_sharding.add(num_shards=4)
                    spec.device.extend(range(4))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_axis, "axis 99, but the tensor has 3 dimensions"),
        (_shards, "device entries for 3 shards"),
        (_uneven, "dimension 0 of size 1 is not divided by 4 shards"),
        (_missing_device, "devices [0, 1, 3] hold no shard"),
        (_device_twice, "devices [3] hold more than one shard"),
        (_device_range, "device 7, but the configuration has 4"),
        (_group, "names no group of replicas"),
        (_swapped, "row-major"),
        (_name, '"nothing" is no operand or result of it'),
        (_twice, 'two specs of "x"'),
        (_configuration, 'no configuration "other"'),
        (_unannotated, "no annotation"),
        (_version, "IR version 10: annotations need 11"),
        (_count, "names 2 devices, but has 4"),
        (_no_devices, "has 0 devices; wanted 1 to 65536"),
        (_too_many_devices, "has 2147483647 devices; wanted 1 to 65536"),
        (_stage, "pipeline stage 2; stages are not supported"),
        (_rule, "its rule allows no such strategy"),
    ],
)
def test_what_is_wrong_is_found(annotated: onnx.ModelProto, edit: Edit, reason: str) -> None:
    assert findings(annotated) == []
    model = onnx.ModelProto.FromString(annotated.SerializeToString())
    # spec "x" of node 1 (the Add) is written anew by the edits, replicated first
    spec = spec_of(model, "x", 1)
    del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
    spec.device.append(-1)
    spec.index_to_device_group_map.add(key=-1).value.extend(range(4))
    edit(model)
    problems = findings(model)
    assert any(reason in problem for problem in problems), problems


def test_all_findings_are_given_not_only_the_first(annotated: onnx.ModelProto) -> None:
    model = onnx.ModelProto.FromString(annotated.SerializeToString())
    _axis(model)
    _version(model)
    _stage(model)
    problems = findings(model)
    for reason in ("axis 99", "IR version", "pipeline stage"):
        assert any(reason in problem for problem in problems)


def test_an_order_of_devices_that_is_refused_hides_no_other_finding(
    annotated: onnx.ModelProto,
) -> None:
    model = onnx.ModelProto.FromString(annotated.SerializeToString())
    _rule(model)
    (rule,) = [problem for problem in findings(model) if "its rule allows" in problem]
    _swapped(model)
    problems = findings(model)
    assert rule in problems
    assert any('"x": its shards do not lie along the axes' in problem for problem in problems)


def test_a_long_list_of_devices_is_cut() -> None:
    from gehost_sharding.annotations import _check_devices

    text: list[str] = []
    _check_devices([(0,)], 100, text)
    assert text == ["devices [1, 2, 3, 4, 5, 6, 7, 8, … (99 in all)] hold no shard"]


def test_a_model_without_operators_needs_none() -> None:
    graph = graph_of("(float[4] x) => (float[4] x) { }")
    planned = Planner(graph, Mesh.parse("x=2"), SLOW, RuleTable()).plan()
    annotated = read_annotations(ModelGraph(annotate(planned.assignment)), RuleTable())
    assert annotated.findings == []
    assert annotated.assignment is not None


def test_a_model_without_annotations_is_not_silently_fine() -> None:
    problems = findings(block().proto)
    assert problems[0] == "no node has an annotation; gehost shard plan writes them"
    assert len(problems) <= 2  # and none for each node


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ([8], ""),
        ([9], "axis 0 has size 9 here, the tensor has 8"),
        ([4, 2], ""),
        ([4, 4], "axis 0 has size 4 × 4 here, the tensor has 8"),
        ([4, None], ""),
        ([3, None], "axis 0 has size 3 here, the tensor has 8"),
        ([0], "axis 0 has size 0 here, the tensor has 8"),
    ],
)
def test_a_written_size_that_the_tensor_does_not_have_is_named(
    sizes: list[int | None], problem: str
) -> None:
    spec = onnx.ShardingSpecProto(tensor_name="t", device=range(2 ** len(sizes)))
    dim = spec.sharded_dim.add(axis=-2)
    for size in sizes:
        dim.simple_sharding.add(num_shards=2, dim_value=size)
    if problem:
        with pytest.raises(SpecError) as caught:
            decode_spec(spec, (8, 3), len(spec.device))
        assert caught.value.findings == [problem]
    else:
        decode_spec(spec, (8, 3), len(spec.device))
