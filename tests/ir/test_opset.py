"""``--opset``: the converter's nodes, and everything of the file that the converter drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, ModelError, UsageError
from gehost.cli import run
from gehost.ir.opset import raise_opset

MODELS = Path(__file__).parents[1] / "models"
SOFTMAX = """<ir_version: 8, opset_import: ["": 11, "foo": 1]> g (float[N, 3, 4] x, bool c) => (float[N, 3, 4] y)
    <float[4] w = {1, 2, 3, 4}> { s = Softmax(x) r = If(c) <
        then_branch = p () => (float[N, 3] a) { a = ReduceSum<axes = [2], keepdims = 0>(x) },
        else_branch = q () => (float[N, 3] b) { b = ReduceMax<axes = [2], keepdims = 0>(x) }>
    v = Mul(s, w) y = Exp(v) }"""


def annotated(text: str) -> onnx.ModelProto:
    model = annotated_nodes(onnx.parser.parse_model(text))
    onnx.checker.check_model(model)
    model.graph.metadata_props.add(key="graph", value="1")
    model.graph.initializer[0].doc_string = "a weight"
    model.metadata_props.add(key="model", value="2")
    return model


def annotated_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    def annotate(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.name = f"node_{node.output[0]}"
            node.doc_string = f"about {node.output[0]}"
            node.metadata_props.add(key="source", value=node.output[0])
            node.device_configurations.add(configuration_id="mesh")
            for attribute in node.attribute:
                annotate(attribute.g)

    annotate(model.graph)
    model.configuration.add(name="mesh", num_devices=2)
    return model


def nodes_of(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    found = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            found |= nodes_of(attribute.g)
    return found


def annotations(node: onnx.NodeProto) -> tuple[Any, ...]:
    devices = [entry.configuration_id for entry in node.device_configurations]
    return node.name, node.doc_string, [each.value for each in node.metadata_props], devices


def test_annotations_of_converted_nodes_stay():
    before = annotated(SOFTMAX)
    after = onnx.ModelProto()
    after.CopyFrom(before)
    raise_opset(after, 23)
    old, new = nodes_of(before.graph), nodes_of(after.graph)
    assert {name: annotations(new[name]) for name in old} == {
        name: annotations(node) for name, node in old.items()
    }
    assert (new["s"].op_type, new["a"].input[1] != "", old["a"].input[:]) == (
        "Reshape",
        True,
        ["x"],
    )
    names = [node.name for node in new.values() if node.name]
    assert len(set(names)) == len(names) == len(old)
    for kept in ("metadata_props", "configuration", "producer_name"):
        assert getattr(after, kept) == getattr(before, kept)
    for kept in ("input", "output", "initializer", "metadata_props", "name", "value_info"):
        assert getattr(after.graph, kept) == getattr(before.graph, kept)
    assert {entry.domain: entry.version for entry in after.opset_import} == {"": 23, "foo": 1}
    assert after.ir_version == 11


def test_annotations_of_nodes_without_a_first_output_stay():
    """The first output is absent, or the node has none at all."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "c": 1]>
        g (float[4] x) => (bool[4] m, bool[4] k) { , m = Dropout(x) , k = Dropout(x) }"""
    )
    for name in ("x", "m", "x"):
        model.graph.node.add(op_type="Log", domain="c", input=[name])
    for number, node in enumerate(model.graph.node):
        node.name = node.doc_string = f"node {number}"
    raise_opset(model, 23)
    assert [
        (node.op_type, *node.input, node.name, node.doc_string) for node in model.graph.node
    ] == [
        (op, value, f"node {number}", f"node {number}")
        for number, (op, value) in enumerate(
            [("Dropout", "x"), ("Dropout", "x"), ("Log", "x"), ("Log", "m"), ("Log", "x")]
        )
    ]


def test_numbers_are_verified_on_request():
    options = HostOptions(opset=23, verify=True, plugins=False)
    result, report = Host(options).run(onnx.parser.parse_model(SOFTMAX))
    assert report.verify["equal"]
    named = annotated(SOFTMAX)
    del named.configuration[:]
    for node in nodes_of(named.graph).values():
        del node.device_configurations[:]
    assert Host(options).run(named)[1].verify["equal"], "ONNX Runtime wants one node of a name"
    assert {entry.domain: entry.version for entry in result.opset_import}[""] == 23


def test_a_wrong_conversion_is_found(monkeypatch: pytest.MonkeyPatch):
    convert = onnx.version_converter.convert_version

    def wrong(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        converted = convert(model, version)
        next(node for node in converted.graph.node if node.op_type == "Exp").op_type = "Neg"
        return converted

    monkeypatch.setattr(onnx.version_converter, "convert_version", wrong)
    model = onnx.parser.parse_model(SOFTMAX)
    with pytest.raises(Exception, match="other numbers"):
        Host(HostOptions(opset=23, verify=True, plugins=False)).run(model)


@pytest.mark.parametrize(
    "name", ["bert.ts13", "llama.ts17", "if", "loop", "scan", "ir3", "external"]
)
def test_models(name, tmp_path):
    path = MODELS / f"{name}.onnx"
    options = HostOptions(opset=23, cleanup=False, plugins=False, verify=name in ("ir3", "loop"))
    Host(options).compile(path, tmp_path / "out.onnx")
    before, after = onnx.load(path, load_external_data=False), onnx.load(tmp_path / "out.onnx")
    weights = {tensor.name for tensor in before.graph.initializer}
    assert [
        entry for entry in before.graph.input if entry.name not in weights
    ] == after.graph.input[:]
    assert before.graph.output == after.graph.output
    assert set(nodes_of(before.graph)) <= set(nodes_of(after.graph))
    onnx.checker.check_model(after, full_check=True)


OTHER_DOMAINS = """<ir_version: 8, opset_import: ["": 11, "com.microsoft": 1, "ai.onnx.ml": 2, "acme": 3]>
g (float[2, 3] x, float[3] b) => (float[2, 3] y) {
    s = Softmax<axis = 1>(x)
    k = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(s)
    y = com.microsoft.BiasGelu(k, b)
    unread = acme.F<text = "a", number = 2, list = [1.5], tensor = float[2] {1, 2}>(s, , y)
}"""


def test_operators_of_other_domains_stay_with_their_annotations():
    model = annotated_nodes(onnx.parser.parse_model(OTHER_DOMAINS))
    result, _ = Host(HostOptions(opset=23, cleanup=False, plugins=False)).run(model)
    imports = {entry.domain: entry.version for entry in result.opset_import}
    assert imports == {"": 23, "com.microsoft": 1, "ai.onnx.ml": 2, "acme": 3}
    before, after = nodes_of(model.graph), nodes_of(result.graph)
    for name in ("k", "y", "unread"):
        assert after[name] == before[name]


def test_operators_of_other_domains_keep_their_numbers():
    model = onnx.parser.parse_model(OTHER_DOMAINS)
    del model.graph.node[3]
    result, report = Host(HostOptions(opset=23, verify=True, plugins=False)).run(model)
    assert report.verify["equal"]
    assert [node.op_type for node in result.graph.node] == ["Softmax", "Scaler", "BiasGelu"]


def test_the_same_opset_changes_nothing():
    model = onnx.load(MODELS / "bert.ts17.onnx")
    before = model.SerializeToString(deterministic=True)
    raise_opset(model, 17)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("text", "opset", "error", "message"),
    [
        ('"": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }', 12, UsageError,
         "--opset 12: the model has opset 17, and an opset can only be raised"),
        ('"": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }', 999, UsageError,
         "--opset 999: the installed onnx knows opsets up to"),
        ('"": 17, "f": 1]> g (float[2] x) => (float[2] y) { y = f.F(x) } <domain: "f", opset_import: ["": 17]> F (p) => (q) { q = Relu(p) }',
         23, ModelError, '--opset 23: node "y" calls the function f.F, whose body cannot be converted; inline functions'),
        ('"": 17, "f": 1]> g (float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] a) { a = f.F(x) }, '
         'else_branch = e () => (float[2] b) { b = Neg(x) }> } <domain: "f", opset_import: ["": 17]> F (p) => (q) { q = Relu(p) }',
         23, ModelError, 'node "a" calls the function f.F'),
        ('"": 8]> g (float[1, 3, 4] x, float[3] a) => (float[1, 3, 4] y) { t = Relu(x) y = BatchNormalization<spatial = 0>(t, a, a, a, a) }',
         23, ModelError, 'converter cannot convert node "y" (BatchNormalization): Attribute spatial must have value 1'),
        ('"": 11]> g (float[2] x, bool c) => (float[2] y) { s = Softmax(x) t = Neg(x) y = If(c) <then_branch = a () => (float[2] p) { p = Abs(s) }, '
         'else_branch = b () => (float[2] q) { q = Neg(s) }> }', 23, ModelError, 'converter cannot convert node "y" (If): '),
        ('"": 9]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y_intermediate = Abs(x) y = Softmax(y_intermediate) }',
         23, ModelError, '--opset 23: the converted model is not valid: tensor "y_intermediate" is defined twice'),
        ('"": 11, "f": 1]> g (float[2, 3] x) => (float[2, 3] y) { y = f.Map <body = b (float[2, 3] p) => (float[2, 3] q) { q = Softmax(p) }> (x) }',
         23, ModelError, 'node "y" (f::Map) has a body of opset 11, which ONNX\'s version converter does not convert'),
        ('"": 11]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Hardmax(x) }',
         13, ModelError, 'converter cannot convert node "y" (Hardmax): its result changes at opset 13'),
    ],
)  # fmt: skip
def test_refused_in_one_line(text, opset, error, message):
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{text}")
    with pytest.raises(error) as raised:
        Host(HostOptions(opset=opset, plugins=False)).run(model)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 9, 10])
def test_upsampling_keeps_its_numbers(opset: int, mode: str) -> None:
    scales = "scales = [1.0, 1.0, 2.5, 1.5]" if opset == 7 else f'mode = "{mode}"'
    op = "Resize" if opset == 10 else "Upsample"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[1, 1, 4, 6] x) => (float[1, 1, 10, 9] y)'
        f" <float[4] s = {{1, 1, 2.5, 1.5}}> {{ y = {op}<{scales}>({'x' if opset == 7 else 'x, s'}) }}"
    )
    if opset == 7:
        model.graph.node[0].attribute.add(name="mode", s=mode.encode(), type=3)
        del model.graph.initializer[:]
    options = HostOptions(opset=23, plugins=False, verify=True)
    _, report = Host(options).run(model)
    assert report.verify["equal"]


def test_branches_that_compute_shapes_of_one_name_are_converted() -> None:
    text = """<ir_version: 8, opset_import: ["": 11]> g (float[2, 3, 4] x, bool c) => (float[2, 3, 4] y) {
        y = If(c) <then_branch = p () => (float[2, 3, 4] a) { a = Softmax(x) },
                   else_branch = q () => (float[2, 3, 4] b) { b = LogSoftmax(x) }> }"""
    options = HostOptions(opset=13, plugins=False, verify=True)
    assert Host(options).run(onnx.parser.parse_model(text))[1].verify["equal"]


def test_annotations_that_would_be_lost_are_refused(monkeypatch: pytest.MonkeyPatch):
    convert = onnx.version_converter.convert_version

    def without_last(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        converted = convert(model, version)
        del converted.graph.node[-1]
        return converted

    monkeypatch.setattr(onnx.version_converter, "convert_version", without_last)
    with pytest.raises(ModelError, match=r'node "node_y" \(Exp\) has annotations'):
        raise_opset(annotated(SOFTMAX), 23)


def test_inlined_functions_are_converted():
    model = onnx.load(MODELS / "local_function.onnx")
    options = HostOptions(opset=23, inline_functions=True, verify=True, plugins=False)
    result, report = Host(options).run(model)
    assert (report.verify["equal"], len(result.functions)) == (True, 0)


def test_weights_that_no_caller_could_override_stay_constants():
    weights = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")
    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["": 9]> g (float[3] x, float[3] w) => (float[3] y) { y = Add(x, w) }'
    )
    model.graph.initializer.append(weights)
    raise_opset(model, 23)
    onnx.checker.check_model(model)
    assert [entry.name for entry in model.graph.input] == ["x"]


def test_initializers_stay_inputs_where_the_ir_version_wants_them():
    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["": 7]> g (float[3] x, float[3] w) => (float[3] y) { y = Add(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    raise_opset(model, 8)
    onnx.checker.check_model(model)
    assert (model.ir_version, [entry.name for entry in model.graph.input]) == (3, ["x", "w"])


def test_command_line(capsys, tmp_path):
    output = tmp_path / "out.onnx"
    given = ["compile", str(MODELS / "ir3.onnx"), "-o", str(output), "--opset"]
    assert run([*given, "8"]) == 2
    assert (
        "--opset 8: the model has opset 9, and an opset can only be raised"
        in capsys.readouterr().err
    )
    assert not output.exists()
    assert run([*given, "23", "--verify"]) == 0
    assert onnx.load(output).opset_import[0].version == 23
