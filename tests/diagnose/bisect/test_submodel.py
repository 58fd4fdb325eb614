"""A part of a live graph stands alone: constants, captured tensors, functions, bodies as they are now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost.diagnose.bisect.submodel import submodel
from gehost.ir.model import Model
from gehost.verify import Runner

MODELS = Path(__file__).parents[2] / "models"
HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'
CHAIN = f"""{HEAD} g (float[n, 2] x, float[2] b) => (float[n, 2] y) <float[2] w = {{1, 2}}> {{
    k = Constant <value = float {{3}}> ()
    p = Mul(x, w)
    q = Add(p, k)
    r = local.Plus(q, b)
    y = Neg(r)
}}
<domain: "local", opset_import: ["": 21, "deep": 1]> Plus (i, j) => (o) {{ t = deep.Id(i) o = Add(t, j) }}
<domain: "deep", opset_import: ["": 21]> Id (i) => (o) {{ o = Identity(i) }}
<domain: "deep", opset_import: ["": 21]> Unused (i) => (o) {{ o = Neg(i) }}"""


def part(model: Model, *outputs: str, inputs: tuple[str, ...] = ()) -> onnx.ModelProto:
    values = model.graph.values
    actual = submodel(
        model, [(name, values[name]) for name in outputs], [values[name] for name in inputs]
    )
    onnx.checker.check_model(actual, full_check=True)
    return actual


def ops(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def interface(proto: onnx.ModelProto) -> tuple[list[str], list[str], list[str]]:
    graph = proto.graph
    return (
        [v.name for v in graph.input],
        [v.name for v in graph.output],
        [t.name for t in graph.initializer],
    )


def model(text: str = CHAIN) -> Model:
    return Model(onnx.parser.parse_model(text))


def test_the_walk_ends_at_the_inputs_and_takes_constants_along() -> None:
    loaded = model()
    loaded.graph.set_type(loaded.graph.values["q"], loaded.graph.inputs[0].type)
    actual = part(loaded, "q", inputs=("x",))
    assert ops(actual) == ["Constant", "Mul", "Add"]
    assert interface(actual) == (["x"], ["q"], ["w"])
    assert not actual.functions


def test_functions_that_are_called_go_along_and_no_others() -> None:
    loaded = model()
    loaded.graph.set_type(loaded.graph.values["q"], loaded.graph.inputs[0].type)
    actual = part(loaded, "y", inputs=("q",))
    assert interface(actual)[0] == ["q", "b"]  # b was met on the way
    assert [(function.domain, function.name) for function in actual.functions] == [
        ("deep", "Id"),
        ("local", "Plus"),
    ]
    assert "deep" in {entry.domain for entry in actual.opset_import}
    value = {"q": np.array([[1, 2]], np.float32), "b": np.array([10, 20], np.float32)}
    assert Runner(actual).run(value)["y"].tolist() == [[-11, -22]]


def test_an_output_of_another_name_is_an_identity() -> None:
    loaded = model()
    x = loaded.graph.inputs[0]
    actual = submodel(loaded, [("there", x), ("x too", x)], [x])
    assert ops(actual) == ["Identity", "Identity"]
    assert interface(actual) == (["x"], ["there", "x too"], [])


def test_edits_that_are_not_in_the_protobuf_yet_are_in_the_part_and_the_model_is_left_alone() -> (
    None
):
    loaded = Model.load(MODELS / "if.onnx")
    (body, *_) = loaded.graph.subgraphs()
    node = body.head
    assert node is not None
    body.add_node("Neg", [node.inputs[0]], ["spare"], after=node)
    mark, before = loaded.mark(), loaded.proto.SerializeToString()
    actual = submodel(loaded, [(value.name, value) for value in loaded.graph.outputs])
    assert (loaded.mark(), loaded.proto.SerializeToString()) == (mark, before)
    bodies = [entry.g for n in actual.graph.node for entry in n.attribute if entry.HasField("g")]
    output = [[inner.output[0] for inner in one.node] for one in bodies]
    assert [inner.outputs[0].name for inner in body.nodes if inner.outputs[0]] in output
    onnx.checker.check_model(actual)


@pytest.mark.parametrize("name", ["if", "loop", "scan", "ir3", "local_function", "bert.ts13"])
def test_a_whole_model_as_a_part_gives_the_same_numbers(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    loaded = Model.load(path)
    free = [value for value in loaded.graph.inputs if value.initializer is None]
    actual = submodel(loaded, [(value.name, value) for value in loaded.graph.outputs], free)
    onnx.checker.check_model(actual)
    with np.load(next((MODELS / "feeds").glob(f"{name}.A.npz"))) as archive:
        feeds = dict(archive)
    for expected, answer in zip(
        Runner(path).run(feeds).values(), Runner(actual).run(feeds).values(), strict=True
    ):
        assert np.array_equal(expected, answer)


def test_external_data_stays_where_it_is() -> None:
    loaded = Model.load(MODELS / "external.onnx")
    actual = submodel(loaded, [(value.name, value) for value in loaded.graph.outputs])
    assert len(actual.SerializeToString()) < 1000
    assert Runner(actual, base_dir=loaded.base_dir).engine == "onnxruntime"
