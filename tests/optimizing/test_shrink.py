"""What shrink removes, and what it keeps."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from gehost.optimizing.shrink import shrink
from gehost.testing import parse


def model() -> onnx.ModelProto:
    result = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
    m (float[64, 64] x, bool c) => (float[64, 64] y, float[64, 64] w2) {
        a = MatMul(x, w)
        b = MatMul(a, w1)
        d = MatMul(b, w2)
        y = If(c) <then_branch = t () => (float[64, 64] p) { p = MatMul(d, w1) },
                   else_branch = e () => (float[64, 64] q) { q = Identity(d) }>
    }""")
    weight = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    for name in ("w", "w1", "w2"):
        result.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    for item in (result, result.graph.node[0], result.graph.initializer[0], result.graph.input[0]):
        item.metadata_props.add(key="source", value="export.py:3")
        item.doc_string = "a text"
    branch = result.graph.node[3].attribute[0].g
    branch.node[0].metadata_props.add(key="source", value="export.py:4")
    return result


def test_notes_go_and_those_of_the_model_stay() -> None:
    result = model()
    shrink(result)
    assert [entry.key for entry in result.metadata_props] == ["source"]
    assert result.doc_string == "a text"
    branch = result.graph.node[3].attribute[0].g
    for item in (result.graph.node[0], result.graph.initializer[0], branch.node[0]):
        assert not item.metadata_props
        assert not item.doc_string


def test_equal_weights_become_one_also_in_bodies_but_not_an_output() -> None:
    result = model()
    shrink(result)
    assert [tensor.name for tensor in result.graph.initializer] == ["w", "w2"]
    branch = result.graph.node[3].attribute[0].g
    assert [node.input[1] for node in (*result.graph.node[:3], branch.node[0])] == [
        "w", "w", "w2", "w",
    ]  # fmt: skip
    onnx.checker.check_model(result, full_check=True)


def test_equal_small_weights_stay_apart() -> None:
    result = parse("""<ir_version: 10, opset_import: ["" : 17]>
    m (float[4] x) => (float[4] y) <float[4] a = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}> {
        s = Add(x, a)
        y = Mul(s, b)
    }""")
    shrink(result)
    assert len(result.graph.initializer) == 2


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_equal_biases_of_convolutions_stay_apart(operator: str) -> None:
    """OpenVINO fuses none that two convolutions read."""
    result = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17]>
    m (float[1, 512, 2, 2] x) => (float[1, 512, 2, 2] y) {{
        s = {operator}(x, w, a)
        y = {operator}(s, v, b)
    }}""")
    weight = np.eye(512, dtype=np.float32).reshape(512, 512, 1, 1)
    for name, array in (("w", weight), ("v", weight), ("a", weight[0]), ("b", weight[0])):
        shaped = array.reshape(-1) if name in "ab" else array
        result.graph.initializer.append(onnx.numpy_helper.from_array(shaped, name))
    shrink(result)
    assert [tensor.name for tensor in result.graph.initializer] == ["w", "a", "b"]


def test_weights_of_equal_bytes_and_other_types_stay_apart() -> None:
    result = onnx.ModelProto()
    zeros = np.zeros(1024, np.float32)
    for name, array in (("a", zeros), ("b", zeros.view(np.int32)), ("c", zeros.reshape(32, 32))):
        result.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    shrink(result)
    assert [tensor.name for tensor in result.graph.initializer] == ["a", "b", "c"]


def test_a_name_of_a_body_hides_a_weight() -> None:
    result = model()
    branch = result.graph.node[3].attribute[0].g
    branch.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w1"))
    shrink(result)
    assert branch.node[0].input[1] == "w1"


def test_notes_of_graphs_and_types_of_weights_go() -> None:
    result = model()
    result.graph.metadata_props.add(key="signature", value="long")
    for name in ("w", "a"):
        result.graph.value_info.add().CopyFrom(
            onnx.helper.make_tensor_value_info(name, 1, [64, 64])
        )
    shrink(result)
    assert not result.graph.metadata_props
    assert [value.name for value in result.graph.value_info] == ["a"]


@pytest.mark.parametrize("version", [3, 8])
def test_constant_nodes_become_weights_but_not_an_output(version: int) -> None:
    result = onnx.parser.parse_model(f"""<ir_version: {version}, opset_import: ["" : 17]>
    m (float[2] x) => (float[2] y, float[2] c) {{
        k = Constant<value = float[2] {{1, 2}}>()
        n = Constant<value_float = 3.0>()
        c = Constant<value = float[2] {{3, 4}}>()
        s = Add(x, k)
        y = Mul(s, n)
    }}""")
    expected = ReferenceEvaluator(result).run(None, {"x": np.ones(2, np.float32)})
    shrink(result)
    onnx.checker.check_model(result, full_check=True)
    lifted = [] if version == 3 else ["k"]
    assert [tensor.name for tensor in result.graph.initializer] == lifted
    assert sum(node.op_type == "Constant" for node in result.graph.node) == 3 - len(lifted)
    actual = ReferenceEvaluator(result).run(None, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(actual, expected)


def test_a_copy_into_an_output_goes_where_the_name_can_move() -> None:
    """Not from an input, a weight, another output or what a body reads; once from each result."""
    result = parse("""<ir_version: 10, opset_import: ["" : 17]>
    m (float[2] x, bool c) => (float[2] y, float[2] y2, float[2] i, float[2] v, float[2] o, float[2] p)
    <float[2] w = {1, 2}> {
        a = Exp(x) b = Neg(a) y = Identity(a) y2 = Identity(a)
        i = Identity(x) v = Identity(w) o = Identity(y2)
        d = Abs(b) p = Identity(d)
        unused = If(c) <then_branch = t () => (float[2] q) { q = Neg(d) },
                        else_branch = e () => (float[2] r) { r = Neg(d) }>
    }""")
    copy = onnx.ModelProto()
    copy.CopyFrom(result)
    shrink(result)
    onnx.checker.check_model(result, full_check=True)
    written = [(node.op_type, *node.input, *node.output) for node in result.graph.node]
    assert written[:3] == [("Exp", "x", "y2"), ("Neg", "y2", "b"), ("Identity", "y2", "y")]
    assert [node for node in written if node[0] == "Identity"] == [
        ("Identity", "y2", "y"), ("Identity", "x", "i"), ("Identity", "w", "v"),
        ("Identity", "y2", "o"), ("Identity", "d", "p"),
    ]  # fmt: skip
    feeds = {"x": np.array([0.5, -1], np.float32), "c": np.array(True)}
    for before, after in zip(
        ReferenceEvaluator(copy).run(None, feeds),
        ReferenceEvaluator(result).run(None, feeds),
        strict=True,
    ):
        np.testing.assert_array_equal(before, after)


def test_a_copy_stays_where_a_body_has_the_name_of_its_output() -> None:
    """Both may have it as long as the body comes first, which the result would not."""
    model = parse("""<ir_version: 10, opset_import: ["" : 17]>
    m (float[2] x, bool c) => (float[2] y, float[2] z) {
        t = Exp(x)
        z = If(c) <then_branch = a () => (float[2] y) { y = Neg(x) },
                   else_branch = b () => (float[2] r) { r = Abs(x) }>
        y = Identity(t)
    }""")
    shrink(model)
    assert [node.op_type for node in model.graph.node] == ["Exp", "If", "Identity"]
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("name", ["out", "a_long_name_of_an_output", "n" * 300])
def test_a_longer_name_never_takes_more_bytes(name: str) -> None:
    for uses in range(1, 5):
        readers = " ".join(f"r{i} = Neg(t) s{i} = Exp(r{i})" for i in range(uses))
        outputs = ", ".join(f"float[2] s{i}" for i in range(uses))
        model = parse(f"""<ir_version: 10, opset_import: ["" : 17]>
        m (float[2] x) => (float[2] {name}, {outputs}) {{ t = Exp(x) {readers} {name} = Identity(t) }}""")
        before = model.ByteSize()
        shrink(model)
        assert model.ByteSize() <= before


@pytest.mark.parametrize(("own", "rest"), [("ours", {"strides"}), ("", {"strides", "group"})])
def test_convolutions_leave_out_ones(own: str, rest: set[str]) -> None:
    """Unless a function of the model has the operator's name."""
    result = parse(
        f"""<ir_version: 10, opset_import: ["": 20, "ours": 1]>
        m (float[1, 4, 5, 5] x, float[4, 4, 1, 1] w, bool c) => (float[1, 4, 5, 5] y) {{
            a = Conv <group = 1, dilations = [1, 1], strides = [1, 1]> (x, w)
            b = Relu (a)
            d = Conv <group = 2, dilations = [1, 2], pads = [0, 0, 0, 0]> (b, w)
            e = ours.Conv <group = 1> (d)
            y = If(c) <then_branch = t () => (float[1, 4, 5, 5] p) {{
                p = Conv <group = 1, strides = [1, 1]> (e, w) }},
                else_branch = u () => (float[1, 4, 5, 5] q) {{ q = Identity(e) }}>
        }}
        <domain: "{own}", opset_import: ["": 20]> Conv <group> (i) => (o) {{ o = Identity(i) }}"""
    )
    shrink(result)
    names = [{attribute.name for attribute in node.attribute} for node in result.graph.node]
    body = result.graph.node[4].attribute[0].g.node[0]
    kept = {"group", "dilations"} if rest == {"strides", "group"} else set()
    assert names[:4] == [
        {"strides"} | kept,
        set(),
        {"group", "dilations", "pads"},
        {"group"},
    ]
    assert {attribute.name for attribute in body.attribute} == rest
