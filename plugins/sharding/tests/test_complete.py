"""Completion: a part of the annotations becomes a whole plan that has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from gehost import GehostError, ModelError, UsageError
from gehost_sharding.annotations import annotate
from gehost_sharding.assignment import Assignment
from gehost_sharding.check import read_annotations, read_partial
from gehost_sharding.cli import shard
from gehost_sharding.demands import Specs
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.plan import Planner
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import shardings_of

from .conftest import SLOW, assert_equal, feeds_of, graph_of, reread, split_run, whole_run
from .models import block

MESH = Mesh(("data", "model"), (2, 2))


def annotated(seed: int) -> onnx.ModelProto:
    """Random annotations of the whole block."""
    graph = block()
    rng = np.random.default_rng(seed)
    strategies = OperatorStrategies(graph, MESH, RuleTable())
    chosen = [int(rng.integers(len(strategies[operator]))) for operator in graph.operators]
    specs = {
        name: shardings_of(MESH, graph.tensors[name].shape)[-1 if rng.random() < 0.5 else 0]
        for name in graph.producer
    }
    return annotate(Assignment(graph, MESH, strategies, chosen, specs))


def keep(model: onnx.ModelProto, rng: np.random.Generator, share: float) -> None:
    """Leave a share of the specs."""
    for node in model.graph.node:
        for entry in node.device_configurations:
            specs = [spec for spec in entry.sharding_spec if rng.random() < share]
            del entry.sharding_spec[:]
            entry.sharding_spec.extend(specs)
        if not any(entry.sharding_spec for entry in node.device_configurations):
            del node.device_configurations[:]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_plan_has_the_annotations_that_it_completes(seed: int, share: float) -> None:
    model = annotated(seed)
    keep(model, np.random.default_rng(seed), share)
    graph = ModelGraph(model)
    partial = read_partial(graph)
    assert not partial.findings
    assert partial.mesh == MESH
    planner = Planner(graph, MESH, SLOW, RuleTable())
    plan = planner.plan(specs=partial.specs)
    assert plan.is_proven
    assert specs_of(plan.assignment).items() >= flat(partial.specs).items()
    free = planner.plan()
    assert plan.solved.minimum.cost >= free.solved.minimum.cost * (1 - 1e-9)
    feeds = feeds_of(graph)
    assert_equal(whole_run(block(), feeds), split_run(reread(plan.assignment), feeds)[0])


def specs_of(assignment: Assignment) -> dict[tuple[int, str], object]:
    again = read_partial(ModelGraph(annotate(assignment)))
    assert not again.findings
    return flat(again.specs)


def flat(specs: Specs) -> dict[tuple[int, str], object]:
    return {(index, name): one for index, own in specs.items() for name, one in own.items()}


PRODUCT = "(float[4,8] x, float[8,4] w) => (float[4,4] z) { z = MatMul (x, w) }"


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            {"x": (0, -1), "w": (1, -1)},
            'annotation "x" 0:data of MatMul "z" and annotation "w" 1:data of MatMul "z" contradict',
        ),
        ({"x": (0, 0), "w": (-1, 0)}, 'annotation "x" 0:data,0:model of .* and annotation "w"'),
    ],
)
def test_annotations_that_contradict_each_other_are_both_named(
    specs: dict[str, tuple[int, ...]], message: str
) -> None:
    planner = Planner(graph_of(PRODUCT), MESH, SLOW, RuleTable())
    with pytest.raises(UsageError, match=message):
        planner.plan(specs={0: specs})


def test_an_annotation_that_no_strategy_has_is_named_alone() -> None:
    graph = graph_of("(float[4,8] x) => (float[4,8] z) { z = Softmax <axis = 1> (x) }")
    planner = Planner(graph, MESH, SLOW, RuleTable())
    with pytest.raises(UsageError, match='"x" 1:data of Softmax "z" cannot hold'):
        planner.plan(specs={0: {"x": (1, -1)}})


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.toml").write_text("flops = 2e9\nmemory_bandwidth = 1e9\nlink_bandwidth = 1e9")
    return tmp_path


def refused(*arguments: str) -> GehostError:
    result = CliRunner().invoke(shard, ["complete", *arguments, "-o", "out.onnx"])
    assert isinstance(result.exception, GehostError), result.output
    return result.exception


def test_the_command_completes_two_annotations_and_a_pin(work: Path) -> None:
    model = annotated(0)
    for position, node in enumerate(model.graph.node):
        if node.op_type != "Gelu":
            del model.graph.node[position].device_configurations[:]
    onnx.save(model, "some.onnx")
    arguments = ["some.onnx", "-o", "out.onnx", "--hardware", "slow.toml", "--pin", "x=1:data"]
    result = CliRunner().invoke(shard, ["complete", *arguments])
    assert result.exit_code == 0, result.output
    assert "2 annotations and 1 pin completed to 25 operators" in result.output
    whole = read_annotations(ModelGraph(onnx.load("out.onnx")), RuleTable())
    assert not whole.findings
    assert whole.mesh == MESH


def test_models_that_the_command_refuses(work: Path) -> None:
    onnx.save(block().proto, "plain.onnx")
    assert "give --mesh" in str(refused("plain.onnx"))
    assert "nothing to complete" in str(refused("plain.onnx", "--mesh", "x=2"))
    onnx.save(annotated(0), "whole.onnx")
    error = refused("whole.onnx", "--mesh", "x=2")
    assert isinstance(error, ModelError)
    assert "1 finding" in str(error)
