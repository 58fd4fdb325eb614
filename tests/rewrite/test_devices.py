"""Device configurations go from matched nodes to the one node that replaces them, or the match is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import EsGraphBuilder, FusionBasePass, Host, HostOptions, Region, es, hookimpl
from gehost.testing import parse, run_pass

ROOT = Path(__file__).parents[2]
MODEL = """<ir_version: 11, opset_import: ["" : 17]>
main (float[2, 4] x, float[4, 8] w, float[8] b) => (float[2, 8] y) {
    p = MatMul(x, w)
    s = Add(p, b)
    y = Relu(s)
}"""


def placed(text: str = MODEL) -> onnx.ModelProto:
    """A model whose every node has a spec of each of its tensors; the last dimension is split in two."""
    model = parse(text)
    model.configuration.add(name="two", num_devices=2)
    for node in model.graph.node:
        place(node)
    return model


def place(node: onnx.NodeProto, stage: int | None = None) -> None:
    entry = node.device_configurations.add(configuration_id="two", pipeline_stage=stage)
    for name in (*node.input, *node.output):
        split(entry.sharding_spec.add(tensor_name=name, device=[0, 1]), axis=-1)


def split(spec: onnx.ShardingSpecProto, axis: int) -> None:
    spec.sharded_dim.add(axis=axis).simple_sharding.add(num_shards=2)


class Fuse(FusionBasePass):
    """MatMul + Add  ==>  Gemm, or what a subclass builds."""

    def Run(self, graph: Any, context: Any) -> Any:
        region = Region.of_nodes(graph.nodes_of("MatMul", "Add"))
        builder = EsGraphBuilder("r")
        inputs = builder.CreateInputs(len(region.inputs))
        context.replace(region, builder.BuildAndReset([self.build(*inputs)]))

    def build(self, x: Any, w: Any, b: Any) -> Any:
        return es.Gemm(x, w, b)


def specs_of(node: onnx.NodeProto) -> dict[str, onnx.ShardingSpecProto]:
    (entry,) = node.device_configurations
    assert entry.configuration_id == "two"
    return {spec.tensor_name: spec for spec in entry.sharding_spec}


def test_one_new_node_takes_over_the_specs_at_the_boundary() -> None:
    model = placed()
    result, record = run_pass(model, Fuse)
    gemm, relu = result.graph.node
    assert (record.replaced, gemm.op_type) == (1, "Gemm")
    assert list(specs_of(gemm)) == ["x", "w", "b", "s"]
    old = specs_of(model.graph.node[0]) | specs_of(model.graph.node[1])
    assert all(spec == old[name] for name, spec in specs_of(gemm).items())
    assert relu == model.graph.node[2]
    assert result.configuration == model.configuration


def test_the_pipeline_stage_is_taken_over() -> None:
    model = placed()
    for node, stage in zip(model.graph.node, (3, 3, 4), strict=True):
        node.device_configurations[0].pipeline_stage = stage
    result, _ = run_pass(model, Fuse)
    assert [node.device_configurations[0].pipeline_stage for node in result.graph.node] == [3, 4]


class Two(Fuse):
    def build(self, x: Any, w: Any, b: Any) -> Any:
        return es.Add(b, es.MatMul(x, w))


class Without(Fuse):
    def build(self, x: Any, w: Any, b: Any) -> Any:
        return es.Gemm(x, w)


def other_spec(model: onnx.ModelProto) -> None:
    """``Add`` reads ``x`` as well, split along another dimension than ``MatMul`` has it."""
    add = model.graph.node[1]
    add.input[1] = "x"
    add.device_configurations[0].sharding_spec[1].tensor_name = "x"
    add.device_configurations[0].sharding_spec[1].sharded_dim[0].axis = 0


def other_stage(model: onnx.ModelProto) -> None:
    for stage, node in enumerate(model.graph.node):
        node.device_configurations[0].pipeline_stage = stage


class Watch:
    """A plugin that keeps the reasons of refusals."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    @hookimpl
    def gehost_match_refused(self, reason: str) -> None:
        self.reasons.append(reason)


SQUARE = MODEL.replace("float[4, 8] w", "float[4, 4] w").replace("8]", "4]")


@pytest.mark.parametrize(
    ("pass_", "edit", "reason"),
    [
        (Two, None, "sharding: MatMul has device configurations, which one new node can take over"),
        (Without, None, 'sharding: Gemm does not have "b", which is split'),
        (Fuse, other_stage, "sharding: the matched nodes are of pipeline stages 0 and 1"),
    ],
)
def test_any_other_replacement_is_refused(pass_: Any, edit: Any, reason: str) -> None:
    model = placed()
    if edit is not None:
        edit(model)
    watch = Watch()
    result, record = run_pass(model, pass_, plugins=[("watch", watch)])
    assert [text[: len(reason)] for text in watch.reasons] == [reason]
    assert dict(record.rejected) == {"sharding": 1}
    assert result == model


def test_a_tensor_that_is_split_in_two_ways_refuses() -> None:
    model = placed(SQUARE)
    other_spec(model)

    class Fused(Fuse):
        def build(self, x: Any, w: Any) -> Any:
            return es.Gemm(x, w, x)

    result, record = run_pass(model, Fused)
    assert dict(record.rejected) == {"sharding": 1}
    assert result == model


class Forward(FusionBasePass):
    """Identity(a)  ==>  a."""

    def Run(self, graph: Any, context: Any) -> Any:
        region = Region.of_nodes(graph.nodes_of("Identity"))
        builder = EsGraphBuilder("r")
        context.replace(region, builder.BuildAndReset([builder.CreateInput(0)]))


@pytest.mark.parametrize("annotated", ["Identity", "Relu"])
def test_a_tensor_that_a_spec_names_does_not_go(annotated: str) -> None:
    model = parse(
        """<ir_version: 11, opset_import: ["" : 17]>
        main (float[2] x) => (float[2] y) { a = Identity(x) y = Relu(a) }"""
    )
    _, record = run_pass(model, Forward)
    assert record.replaced == 1
    place(next(node for node in model.graph.node if node.op_type == annotated))
    result, record = run_pass(model, Forward)
    assert dict(record.rejected) == {"sharding": 1}
    assert result == model


def test_every_annotation_of_a_model_is_there_after_a_compile() -> None:
    """A BERT of which every node has a spec for each of its tensors, with all shipped vendors."""
    model = onnx.load(ROOT / "tests" / "models" / "bert.ts17.onnx")
    model.ir_version = 11
    model.configuration.add(name="two", num_devices=2)
    for node in model.graph.node:
        place(node)
    plain = onnx.load(ROOT / "tests" / "models" / "bert.ts17.onnx")
    options = HostOptions(vendors=[ROOT / "vendors"], plugins=False)
    replaced = sum(record.replaced for record in Host(options).run(plain)[1].passes)
    result, report = Host(options).run(model)
    total = sum(record.replaced for record in report.passes)
    refused = sum(record.rejected["sharding"] for record in report.passes)
    assert replaced > 0
    assert refused > 0
    assert total < replaced
    for node in result.graph.node:
        named = set(specs_of(node))
        assert named <= {*node.input, *node.output}
        assert {name for name in node.output if name} <= named
