"""What nobody reads goes, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest

from gehost.ops import OpDef, OpRegistry


def registry_with(name: str, *traits: str) -> OpRegistry:
    registry = OpRegistry()
    registry.add(OpDef(name, 1, ("x",), 1, ("y",), {}, None, None, frozenset(traits), "test:1"))
    return registry


def test_a_chain_goes_with_its_initializers(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}, float[2] lonely = {5, 6}> "
        "{ a = Mul(x, w)  b = Exp(a)  c = Add(b, v)  y = Add(x, v) }"
    )
    assert cleaned.ops == ["Add"]
    assert cleaned.initializers == {"v"}
    assert cleaned.counts == {"dead_nodes": 3, "dead_initializers": 2}
    assert cleaned.result.total == 5


def test_a_node_with_several_outputs_stays_while_one_is_read(clean: Any) -> None:
    text = "g (float[4] x) => (float[2] y) {{ a, b = Split <axis = 0, num_outputs = 2> (x)  y = Relu({0}) }}"
    assert clean(text.format("b")).ops == ["Split", "Relu"]
    cleaned = clean(
        "g (float[4] x) => (float[4] y) { a, b = Split <axis = 0, num_outputs = 2> (x)  y = Relu(x) }"
    )
    assert cleaned.counts == {"dead_nodes": 1}


def test_graph_inputs_stay(clean: Any) -> None:
    assert (
        clean("g (float[2] x, float[2] unread) => (float[2] y) { y = Relu(x) }").result.total == 0
    )


def test_initializers_that_are_inputs_stay(clean: Any) -> None:
    head = '<ir_version: {0}, opset_import: ["": 9]>'
    body = (
        "g (float[2] x, float[2] w = {1, 2}, float[2] v = {3, 4}) => (float[2] y) { y = Add(x, v) }"
    )
    for version in (3, 8):
        cleaned = clean(head.format(version) + body)
        assert cleaned.result.total == 0
        assert cleaned.initializers == {"w", "v"}


def test_an_initializer_that_is_the_output_stays(clean: Any) -> None:
    assert (
        clean(
            "g (float[2] x) => (float[2] y, float[2] w) <float[2] w = {1, 2}> { y = Relu(x) }"
        ).result.total
        == 0
    )


def test_dead_random_nodes_go(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { r = RandomNormalLike(x)  b = Bernoulli(x)  y = Relu(x) }"
    )
    assert cleaned.counts == {"dead_nodes": 2}


@pytest.mark.parametrize(
    ("registry", "gone"),
    [
        (None, False),
        (registry_with("acme::Log"), True),
        (registry_with("acme::Log", "stateful"), False),
        (registry_with("acme::Log", "random"), False),
    ],
    ids=["unknown", "registered", "stateful", "random"],
)
def test_custom_operators(clean: Any, registry: OpRegistry | None, gone: bool) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = Neg(x)  b = acme.Log(a)  y = Relu(x) }",
        registry=registry,
        runs=False,
    )
    assert cleaned.counts == ({"dead_nodes": 2} if gone else {})


def test_an_operator_that_the_opset_lacks_is_unknown(clean: Any) -> None:
    model = "g (float[2] x) => (float[2] y) { a = Gelu(x)  y = Relu(x) }"
    assert clean(model, opset=20).counts == {"dead_nodes": 1}
    assert clean(model, opset=17, runs=False, edit=None, infer=False, check=False).counts == {}


def test_a_renamed_custom_operator_keeps_its_traits(clean: Any) -> None:
    def rename(model: onnx.ModelProto) -> None:
        node = model.graph.node[0]
        node.op_type = "Log__1a2b"
        node.metadata_props.add(key="gehost.op", value="acme::Log")

    text = (
        "g (float[2] x) => (float[2] y) { a = acme.Log(x)  y = Relu(x) }"
        '<domain: "acme", opset_import: ["": 21]> Log__1a2b (x) => (y) { y = Neg(x) }'
    )
    assert clean(text, edit=rename).counts == {"dead_nodes": 1}
    assert clean(text, edit=rename, registry=registry_with("acme::Log", "stateful")).counts == {}


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ("q = Neg(p)", True),
        ("q = acme.Print(p)", False),
        ("q = RandomNormalLike(p)", True),
        ("q = local.f(p)", False),
    ],
)
def test_a_function_is_trusted_as_its_body_is(clean: Any, body: str, gone: bool) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = local.f(x)  y = Relu(x) }"
        f'<domain: "local", opset_import: ["": 21, "acme": 1, "local": 1]> f (p) => (q) {{ {body} }}',
        runs=False,
        infer="local" not in body,
        check=False,
    )
    assert cleaned.counts == ({"dead_nodes": 1} if gone else {})


@pytest.mark.parametrize(
    ("inner", "gone"), [("Exp(x)", True), ("acme.Print(x)", False), ("RandomNormalLike(x)", True)]
)
def test_a_dead_if_goes_with_its_bodies(clean: Any, inner: str, gone: bool) -> None:
    cleaned = clean(
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { a = Neg(x)  "
        f"b = If (c) <then_branch = t () => (float[2] p) {{ p = Add(a, w) }}, "
        f"else_branch = e () => (float[2] q) {{ q = {inner} }}>  y = Relu(x) }}",
        runs=False,
    )
    assert cleaned.counts == ({"dead_nodes": 2, "dead_initializers": 1} if gone else {})


def test_dead_nodes_in_bodies_and_what_only_they_capture(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { a = Exp(x) "
        "y = If (c) <then_branch = t () => (float[2] p) { u = Mul(a, w)  p = Neg(x) }, "
        "else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    )
    assert cleaned.ops == ["If"]
    assert cleaned.counts == {"dead_nodes": 2, "dead_initializers": 1}


def test_what_a_body_captures_is_read(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { a = Exp(x) "
        "y = If (c) <then_branch = t () => (float[2] p) { p = Mul(a, w) }, "
        "else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    )
    assert cleaned.result.total == 0


def test_outputs_of_a_body_are_read(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, int64 n, bool c) => (float[2] y) { y, unread = Loop (n, c, x) <body = b "
        "(int64 i, bool go, float[2] s) => (bool again, float[2] t, float[2] scan) "
        "{ again = Identity(go)  t = Add(s, s)  scan = Exp(s) }> }"
    )
    assert cleaned.result.total == 0


def test_bodies_of_unknown_operators_are_closed(clean: Any) -> None:
    """A payload graph may mean anything: nothing is edited in it, and what its names refer to keeps them."""
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = Identity(x)  y = acme.Kernel (x) <payload = k () => (float[2] p) "
        "{ d = Exp(x)  p = Neg(a) }> }",
        runs=False,
    )
    assert cleaned.result.total == 0


def test_quantization_annotations_keep_what_they_name(clean: Any) -> None:
    def annotate(model: onnx.ModelProto) -> None:
        annotation = model.graph.quantization_annotation.add(tensor_name="a")
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
        model.graph.quantization_annotation.add(tensor_name="unread")

    text = (
        "g (float[2] x) => (float[2] y) <float[1] scale = {0.5}, float[1] other = {0.25}> "
        "{ a = Identity(x)  b = Neg(a)  unread = Abs(b)  y = Add(b, other) }"
    )
    cleaned = clean(text, edit=annotate)
    assert cleaned.result.total == 0
    assert cleaned.initializers == {"scale", "other"}
    assert clean(text).counts == {"identities": 1, "dead_initializers": 1, "dead_nodes": 1}


def test_device_configurations_keep_what_they_name(clean: Any) -> None:
    def place(model: onnx.ModelProto) -> None:
        model.configuration.add(name="two", num_devices=2)
        entry = model.graph.node[1].device_configurations.add(configuration_id="two")
        entry.sharding_spec.add(tensor_name="a", device=[0])
        model.graph.node[2].device_configurations.add(configuration_id="two")

    text = "g (float[2] x) => (float[2] y) { a = Identity(x)  y = Neg(a)  placed = Exp(x)  dead = Abs(x) }"
    cleaned = clean(text, edit=place, runs=False)
    assert cleaned.counts == {"dead_nodes": 1}


def test_a_model_with_training_information_is_left_alone(clean: Any) -> None:
    def train(model: onnx.ModelProto) -> None:
        model.training_info.add().update_binding.add(key="w", value="a")

    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Identity(w)  y = Relu(x) }"
    assert clean(text, edit=train, runs=False, check=False).result.total == 0
    assert clean(text).counts == {"dead_nodes": 1, "dead_initializers": 1}


def test_a_sparse_initializer_goes_too(clean: Any) -> None:
    def add_sparse(model: onnx.ModelProto) -> None:
        values = onnx.numpy_helper.from_array(np.array([1.0], np.float32), "s")
        indices = onnx.numpy_helper.from_array(np.array([1], np.int64), "s_indices")
        model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4]))

    cleaned = clean("g (float[2] x) => (float[2] y) { y = Relu(x) }", edit=add_sparse)
    assert cleaned.counts == {"dead_initializers": 1}


def test_an_if_that_dies_on_the_way(clean: Any) -> None:
    """Folding the Shape leaves it unread; with it goes what only its bodies capture, and what waited in them."""
    cleaned = clean(
        "g (float[2] x, bool c) => (float[2] y) <int64[1] large = {5000}> { a = Exp(x)  "
        "z = If (c) <then_branch = t () => (float[2] p) { f = ConstantOfShape(large)  "
        "m = NonZero(f)  n = Cast <to = 1> (m)  o = ReduceMax <keepdims = 0> (n)  p = Mul(a, o) }, "
        "else_branch = e () => (float[2] q) { q = Abs(x) }>  s = Shape(z)  k = Cast <to = 1> (s)  y = Mul(x, k) }"
    )
    assert cleaned.ops == ["Mul"]
    assert cleaned.counts == {"dead_nodes": 2, "dead_initializers": 1, "folded": 2}


def test_a_gradient_refers_to_tensors_by_name(clean: Any) -> None:
    def add_gradient(model: onnx.ModelProto) -> None:
        model.opset_import.add(domain="ai.onnx.preview.training", version=1)
        model.graph.node.add(
            op_type="Gradient",
            domain="ai.onnx.preview.training",
            input=["x"],
            output=["unread"],
            attribute=[
                onnx.helper.make_attribute("xs", ["a"]),
                onnx.helper.make_attribute("y", "y"),
            ],
        )

    text = "g (float[2] x) => (float[2] y) { a = Identity(x)  y = Neg(a) }"
    assert clean(text, edit=add_gradient, runs=False, check=False, infer=False).result.total == 0
    assert clean(text).result.total == 1
