"""What a compile writes, strict readers take where they took the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, hookimpl
from gehost.ir.model import Model
from gehost.ir.types import DataType, TensorType
from gehost.testing import parse
from tests.validity import new_refusals, refusals
from tools.fuzz.invariants import run_case

MODELS = Path(__file__).parents[1] / "models"
VENDORS = Path(__file__).parents[2] / "vendors"
MERGED = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2, 3, 4, 5] x) => (float[2, 3, 5, 4] y)
<int64[3] s = {6, 4, 5}, int64[4] r = {2, 3, 5, 4}, float[6, 4, 5] m, float[6, 5, 4] t, float[2, 3, 5, 4] u> {
    m = Reshape(x, s) t = Transpose<perm = [0, 2, 1]>(m) u = Reshape(t, r) y = Softmax<axis = -1>(u)
}"""
"""The keys of an attention: two Reshapes that the clean-up removes, with declared types."""
LAST_AXIS = """
@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class LastAxis(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("softmax")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Softmax(x, axis=-1)])).CaptureTensor(x)]

    def MeetRequirements(self, match):
        return match.GetCapturedTensor(0).value.rank == 3 or match.reject("rank: not 3")

    def Replacement(self, match):
        builder = EsGraphBuilder("softmax2")
        return builder.BuildAndReset([es.Softmax(builder.CreateInput(0), axis=2)])
"""
TURNED = """<ir_version: 9, opset_import: ["" : 18]>
g (float[A, 3] x) => (float[3, B] y) <float[3, A] t, float[3, A] n> {
    t = Transpose<perm = [1, 0]>(x) n = Neg(t) y = Abs(n)
}"""
TURN = """
def turn(graph):
    (turned,), (last,) = graph.nodes_of("Transpose"), graph.nodes_of("Abs")
    graph.set_attribute(turned, "perm", [0, 1])
    value = last.inputs[0]
    new = graph.add_node("Transpose", [value], ["again"], {"perm": [1, 0]}, after=value.producer)
    graph.set_input(last, 0, new.outputs[0])
"""
BY_A_PASS = """
@REG_FUSION_PASS(stage=CustomPassStage.{stage})
class Turn(FusionBasePass):
    def Run(self, graph, context):
        turn(graph)
"""
BY_A_HOOK = """
@hookimpl
def gehost_{stage}(graph):
    turn(graph)
"""
LATE = """<ir_version: 9, opset_import: ["" : 18]>
g (float[4, 6] x) => (float[A, B] y) <int64[2] a = {2, 12}, int64[2] z = {0, 0}, float[3, 8] r> {
    s = Max(a, z) r = Reshape(x, s) y = Neg(r)
}"""
"""ONNX's inference knows only after the clean-up that the declared type of r is wrong."""


def saved(model: onnx.ModelProto, path: Path) -> str:
    onnx.save(model, path)
    return str(path)


def assert_valid(host: Host, model: onnx.ModelProto, directory: Path) -> onnx.ModelProto:
    source, once = saved(model, directory / "source.onnx"), str(directory / "once.onnx")
    host.compile(source, once)
    assert "full check" not in refusals(source)
    assert not refusals(once)
    return onnx.load(once)


def types_of(model: onnx.ModelProto) -> dict[str, str]:
    return {
        info.name: onnx.printer.to_text(onnx.helper.make_graph([], "g", [info], []))
        for info in model.graph.value_info
    }


def test_a_transpose_that_takes_the_place_of_reshapes_loses_its_declared_type(
    tmp_path: Path,
) -> None:
    result = assert_valid(Host(), parse(MERGED), tmp_path)
    assert [node.op_type for node in result.graph.node] == ["Transpose", "Softmax"]
    assert "t" not in types_of(result)


def test_a_second_compile_believes_no_type_of_another_tensor(vendors: Any, tmp_path: Path) -> None:
    vendors.write("acme/a.py", LAST_AXIS)
    host = vendors.host(cleanup=True)
    once = assert_valid(host, parse(MERGED), tmp_path)
    twice, report = host.run(once)
    assert not any(record.replaced for record in report.passes)
    assert twice.SerializeToString() == once.SerializeToString()


@pytest.mark.parametrize(
    "stage", ["kBeforeInferShape", "kAfterInferShape", "kAfterOriginGraphOptimize"]
)
def test_an_edit_of_a_pass_replaces_types(vendors: Any, stage: str, tmp_path: Path) -> None:
    vendors.write("acme/a.py", TURN + BY_A_PASS.format(stage=stage))
    result = assert_valid(vendors.host(), parse(TURNED), tmp_path)
    assert not {"t", "n"} & types_of(result).keys()


@pytest.mark.parametrize("stage", ["after_infershape", "after_origin_graph_optimize"])
def test_an_edit_of_a_hook_replaces_types(vendors: Any, stage: str, tmp_path: Path) -> None:
    vendors.write("acme/a.py", TURN + BY_A_HOOK.format(stage=stage))
    result = assert_valid(vendors.host(), parse(TURNED), tmp_path)
    assert not {"t", "n"} & types_of(result).keys()


def test_a_later_pass_sees_the_types_after_an_edit(vendors: Any) -> None:
    vendors.write("acme/a.py", TURN + BY_A_PASS.format(stage="kAfterInferShape"))
    events: list[str] = []

    class Watch:
        @hookimpl
        def gehost_after_pass(self, spec: Any, graph: Any) -> None:
            if spec.name == "Turn":
                events.extend(str(graph.values[name].type) for name in "tn")

    Host(vendors.host().options, plugins=[("watch", Watch())]).run(parse(TURNED))
    assert events == ["float[A,3]", "float[A,3]"]


def test_a_wrong_type_of_the_file_is_not_written_once_it_shows(tmp_path: Path) -> None:
    result = assert_valid(Host(), parse(LATE), tmp_path)
    assert [node.op_type for node in result.graph.node] == ["Reshape", "Neg"]
    assert "r" not in types_of(result)


def test_a_declared_name_of_a_size_that_becomes_known_stays(tmp_path: Path) -> None:
    model = parse(LATE)
    sizes = model.graph.value_info[0].type.tensor_type.shape.dim
    sizes[0].dim_param, sizes[1].dim_param = "A", "B"
    result = assert_valid(Host(), model, tmp_path)
    assert "r" in types_of(result)


def test_an_unchanged_model_keeps_its_types() -> None:
    model = parse(TURNED)
    assert Host().run(model)[0] == model


def test_a_redefinition_is_undone() -> None:
    model = Model(parse(TURNED))
    before = model.flush().SerializeToString()
    value, mark = model.graph.values["t"], model.mark()
    declared = value.type
    model.graph.redefine(value, TensorType(DataType.FLOAT, (1,)))
    model.undo(mark)
    assert value.type == declared
    assert model.flush().SerializeToString() == before


@pytest.fixture(scope="module")
def every_pass() -> Host:
    host = Host(HostOptions(vendors=[VENDORS]))
    return host.with_options(enable=[spec.name for spec in host.passes])


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_strict_readers_take_every_output(path: Path, every_pass: Host, tmp_path: Path) -> None:
    for host in (Host(), every_pass):
        host.compile(path, tmp_path / "out.onnx")
        assert not new_refusals(str(path), str(tmp_path / "out.onnx"))


@pytest.mark.parametrize("seed", range(24))
def test_random_models_keep_every_invariant(seed: int) -> None:
    """``python -m tools.fuzz.invariants --graphs N`` runs more of them."""
    assert run_case(seed)


FEWER_OUTPUTS = """
@ops.register("acme::Inner", outputs=["total", "apart"])
def inner(x):
    return es.Add(x, x), es.Sub(x, 1.0)

@ops.register("acme::Outer", outputs=["y", "mean", "total"])
def outer(x):
    return es.Neg(es.op("acme::Inner")(x, num_outputs=1)), es.Exp(x), es.Abs(x)

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class ToOuter(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("pattern")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Neg(es.Add(x, x))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("replacement")
        x = builder.CreateInput(0)
        return builder.BuildAndReset([es.op("acme::Outer")(x, num_outputs=1)])
"""


def test_a_call_of_a_function_names_all_its_outputs(vendors: Any, tmp_path: Path) -> None:
    """ONNX's inference refuses a call with fewer ("Output 1 is out of bounds")."""
    vendors.write("acme/a.py", FEWER_OUTPUTS)
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[N, 3] x) => (float[N, 3] y, float[N, 3] z) {
        a = Add(x, x) y = Neg(a) r = Relu(x) b = Add(r, r) z = Neg(b) }"""
    result = assert_valid(vendors.host(verify=True), parse(text), tmp_path)
    calls = [node for node in result.graph.node if node.op_type == "Outer"]
    assert [list(node.output) for node in calls] == [["y", "", ""], ["z", "", ""]]
    outer = next(function for function in result.functions if function.name == "Outer")
    (call,) = (node for node in outer.node if node.op_type == "Inner")
    assert call.output[1:] == [""]


TWICE = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize)
class AddShape(FusionBasePass):
    def Run(self, graph, context):
        for node in graph.nodes_of("Softplus"):
            read = node.inputs[0]
            new = graph.add_node("Abs", [read], [f"{node.name}_abs"], after=node.prev)
            graph.set_input(node, 0, new.outputs[0])
"""


def test_equal_nodes_that_late_passes_add_are_one(vendors: Any) -> None:
    """Else the next compile would merge them."""
    vendors.write("acme/a.py", TWICE)
    text = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[3] x) => (float[3] y, float[3] z) {
        p = Softplus(x) q = Softplus(x) y = Neg(p) r = Softplus(x) z = Exp(r) }"""
    model = parse(text)
    for node, name in zip(model.graph.node, "abycz", strict=True):
        node.name = name
    once, _ = vendors.host(cleanup=True).run(model)
    assert [node.op_type for node in once.graph.node] == ["Abs", "Softplus", "Neg", "Exp"]
    alone = Host(HostOptions(plugins=False))
    assert alone.run(once)[0].SerializeToString() == once.SerializeToString()
