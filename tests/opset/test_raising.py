"""``--opset``: the converter's nodes, and everything of the file that the converter drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, ModelError, UsageError
from gehost.cli import run
from gehost.ir.model import Model
from gehost.opset import raise_opset

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
    actual = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            actual |= nodes_of(attribute.g)
    return actual


def annotations(node: onnx.NodeProto) -> tuple[Any, ...]:
    devices = [entry.configuration_id for entry in node.device_configurations]
    return node.name, node.doc_string, [item.value for item in node.metadata_props], devices


def test_annotations_of_converted_nodes_stay():
    before = annotated(SOFTMAX)
    after = onnx.ModelProto()
    after.CopyFrom(before)
    raise_opset(Model(after), 23)
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
    for field in ("metadata_props", "configuration", "producer_name"):
        assert getattr(after, field) == getattr(before, field)
    for field in ("input", "output", "initializer", "metadata_props", "name", "value_info"):
        assert getattr(after.graph, field) == getattr(before.graph, field)
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
    raise_opset(Model(model), 23)
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
    def wrong(model: Model, version: int) -> None:
        raise_opset(model, version)
        nodes_of(model.proto.graph)["y"].op_type = "Neg"

    monkeypatch.setattr("gehost.host.preparations.raise_opset", wrong)
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
    raise_opset(Model(model), 17)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("text", "opset", "error", "message"),
    [
        ('"": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }', 12, UsageError,
         "--opset 12: the model has opset 17, and an opset can only be raised"),
        ('"": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }', 999, UsageError,
         "--opset 999: the installed onnx knows opsets up to"),
        ('"": 8]> g (float[1, 3, 4] x, float[3] a) => (float[1, 3, 4] y) { t = Relu(x) y = BatchNormalization<spatial = 0>(t, a, a, a, a) }',
         23, ModelError, '--opset 23: cannot convert node "y" (BatchNormalization) to opset 23: spatial = 0 has no newer form'),
        ('"": 8]> g (float[1, 3, 4] x, float[3] a) => (float[1, 3, 4] y) { y, m, v, s, w = BatchNormalization(x, a, a, a, a) z = Add(m, v) }',
         23, ModelError, 'node "y" (BatchNormalization) to opset 23: it computes in training mode'),
        ('"": 10]> g (float[4] x) => (float[4] y, bool[4] m) { y, m = Dropout(x) }',
         13, ModelError, 'node "y" (Dropout) to opset 13: something reads its mask, which is another one at newer opsets'),
        ('"": 8]> g (float[2, 3] i, float[2, 5, 3] x) => (float[2, 3] f, float[2, 5, 3] y) { f, y = Scan<num_scan_inputs = 1, body = b (float[3] p, float[3] q) '
         '=> (float[3] r, float[3] s) { r = Add(p, q) s = Identity(r) }>(, i, x) }', 13, ModelError, 'node "f" (Scan) to opset 13: it has a batch dimension'),
        ('"": 4]> g (float[2, 3] x) => (float[3, 2] y) { y = Reshape<shape = [3, 2]>(x) }', 8, ModelError, "(Reshape) to opset 8: it needs a constant of int64"),
        ('"": 9]> g (int32[4] x) => (int32[4] y) { y = Erf(x) }', 13, ModelError, "(Erf) to opset 13: input 0 is tensor(int32), which it does not take there"),
        ('"": 10, "f": 1]> g (float[2] x) => (float[2] y) { u = f.Unknown(x) y = Clip<min = 0.0>(u) }',
         13, ModelError, '(Clip) to opset 13: the element type of "u" is not known (from opset 15 on it can be converted)'),
        ('"": 10]> g (float[1, 1, 4, 4] x, float[4] s) => (float[A, B, C, D] y) { y = Resize(x, s) }',
         13, ModelError, "(Resize) to opset 13: its scales are not constant, on which rounding depends"),
        ('"": 11]> g (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y) <float[0] r = {}, float[4] s = {1, 1, 2, 2}> '
         '{ y = Resize<coordinate_transformation_mode = "tf_half_pixel_for_nn", mode = "linear">(x, r, s) }',
         13, ModelError, "tf_half_pixel_for_nn with mode linear and nearest_mode round_prefer_floor has no newer form"),
        ('"": 11, "f": 1]> g (float[2, 3] x) => (float[2, 3] y) { y = f.F<a = 1>(x) } <domain: "f", opset_import: ["": 11]> '
         'F <a> (p) => (q) { q = Softmax<axis: int = @a>(p) }', 13, ModelError, "(Softmax) to opset 13: its axis is an attribute of the function around it; inline functions"),
    ],
)  # fmt: skip
def test_refused_in_one_line(text, opset, error, message):
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{text}")
    with pytest.raises(error) as raised:
        Host(HostOptions(opset=opset, plugins=False)).run(model)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


FUNCTION = '<domain: "f", opset_import: ["": {}]>'


@pytest.mark.parametrize(
    "text",
    [
        f'"": 11, "f": 1]> g (float[2, 3] x) => (float[2, 3] y) {{ y = f.F(x) }} {FUNCTION.format(11)} F (p) => (q) {{ q = Softmax(p) }}',
        f'"": 11, "f": 1]> g (float[2, 3] x, bool c) => (float[2, 3] y) {{ y = If(c) <then_branch = t () => (float[2, 3] a) {{ a = f.F(x) }}, '
        f'else_branch = e () => (float[2, 3] b) {{ b = Neg(x) }}> }} {FUNCTION.format(11)} F (p) => (q) {{ q = LogSoftmax<axis = 0>(p) }}',
        '"": 11]> g (float[2] x, bool c) => (float[2] y) { s = Softmax<axis = 0>(x) t = Neg(x) y = If(c) <then_branch = a () => (float[2] p) { p = Abs(s) }, '
        'else_branch = b () => (float[2] q) { q = Neg(s) }> }',
        '"": 9]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y_before = Abs(x) y_shape = Abs(y_before) y = Softmax(y_shape) }',
        '"": 11]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Hardmax(x) }',
        '"": 11]> g (float[2, 3, 4] x, bool c) => (float[A, B, C] y) { s = Softmax(x) y = If(c) <then_branch = p () => (float[2, 3, 4] s2) { s2 = Softmax(s) }, '
        'else_branch = q () => (float[2, 3, 4] v) { u = Softmax(s) v = Softmax(u) }> }',
        '"": 10]> g (float[2] x) => (float[3] y) { y = Pad<mode = "reflect", pads = [0, 1], value = 2.0>(x) }',
        '"": 13]> g (float[4] x) => (float[2] y, float[2] z) { y, z = Split(x, ) }',
        '"": 13]> g (float[3] x) => (float[1] y, float[2] z) <int64[2] s = {1, 2}> { y, z = Split(x, s) }',
    ],
)  # fmt: skip
@pytest.mark.parametrize("opset", [14, 18, 23])
def test_converted_with_equal_numbers(text: str, opset: int) -> None:
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{text}")
    options = HostOptions(opset=opset, cleanup=False, plugins=False, verify=True)
    result, report = Host(options).run(model)
    assert report.verify["equal"]
    onnx.checker.check_model(result, full_check=True)


def test_bodies_of_other_domains_are_converted() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 11, "f": 1]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) {
        y = f.Map <body = b (float[2, 3, 4] p) => (float[2, 3, 4] q) { q = Softmax(p) }> (x) }"""
    )
    raise_opset(Model(model), 13)
    body = model.graph.node[0].attribute[0].g
    assert [node.op_type for node in body.node] == ["Shape", "Flatten", "Softmax", "Reshape"]


@pytest.mark.parametrize("own", [11, 13, 17])
@pytest.mark.parametrize("opset", [None, 18, 23])
def test_functions_of_other_opsets_are_inlined(own: int, opset: int | None) -> None:
    """Older and newer ones, which call one another; a file may have them if their operators are the same."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 13, "f": 1]> g (float[2, 3] x, bool c) => (float[A, B] y) {{
        z = f.F<a = 0.25>(x) y = If(c) <then_branch = t () => (float[C, D] d) {{ d = f.F(z) }}, else_branch = e () => (float[C, D] e) {{ e = Neg(z) }}> }}
        <domain: "f", opset_import: ["": {own}, "f": 1]> F <a> (p) => (q) {{ t = LpNormalization(p) q = f.G<a: float = @a>(t) }}
        <domain: "f", opset_import: ["": 11]> G <a> (p) => (q) {{ q = Elu<alpha: float = @a>(p) }}"""
    )
    options = HostOptions(opset=opset, inline_functions=True, plugins=False, verify=True)
    result, report = Host(options).run(model)
    assert (report.problems, len(result.functions), report.verify["equal"]) == ([], 0, True)
    assert result.opset_import[0].version == opset or 13


def test_functions_of_other_operators_at_the_models_opset_stay() -> None:
    """The checker looks at a function's own nodes, not at those of bodies in them."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 15, "f": 1]> g (float[2, 3] x, bool c) => (int64[A] y) {{ y = f.F(x, c) }}
        {FUNCTION.format(14)} F (p, c) => (q) {{ q = If(c) <then_branch = t () => (int64[A] r) {{ r = Shape(p) }}, else_branch = e () => (int64[A] s) {{ s = Shape(p) }}> }}"""
    )
    _, report = Host(HostOptions(inline_functions=True, plugins=False)).run(model)
    assert report.problems == [
        "not inlined, as operators in them are others at the model's opset: f::F"
    ]


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
    raise_opset(Model(model), 23)
    onnx.checker.check_model(model)
    assert [entry.name for entry in model.graph.input] == ["x"]


def test_initializers_stay_inputs_where_the_ir_version_wants_them():
    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["": 7]> g (float[3] x, float[3] w) => (float[3] y) { y = Add(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    raise_opset(Model(model), 8)
    onnx.checker.check_model(model)
    assert (model.ir_version, [entry.name for entry in model.graph.input]) == (3, ["x", "w"])


def test_command_line(capsys, tmp_path):
    output = tmp_path / "out.onnx"
    value = ["compile", str(MODELS / "ir3.onnx"), "-o", str(output), "--opset"]
    assert run([*value, "8"]) == 2
    assert (
        "--opset 8: the model has opset 9, and an opset can only be raised"
        in capsys.readouterr().err
    )
    assert not output.exists()
    assert run([*value, "23", "--verify"]) == 0
    assert onnx.load(output).opset_import[0].version == 23
