"""Equal nodes and equal constants become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest


def test_equal_nodes(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = Exp(x)  b = Neg(x)  c = Exp(x)  d = Add(a, b)  e = Add(c, b)  y = Mul(d, e) }"
    )
    assert cleaned.ops == ["Exp", "Neg", "Add", "Mul"]
    assert cleaned.counts == {"merged": 2}
    assert [value.name for value in cleaned.model.graph.tail.inputs] == ["d", "d"]


def test_vectors_of_floats_are_not_shared(clean: Any) -> None:
    """A bias that two Convs read is fused into neither by OpenVINO."""
    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {1, 2}, float s = {2}, float t = {2}> "
        "{ a = Add(x, w)  b = Add(a, v)  c = Mul(b, s)  y = Mul(c, t) }"
    )
    assert cleaned.initializers == {"w", "v", "s"}
    assert cleaned.counts == {"merged": 1}


FILLS = (
    "g (float[1, 4, 8, 8] x) => (float[1, 2000, 8, 8] y) <int64[1] n = {2000}, int64[1] m = {2000}> "
    "{ b = ConstantOfShape <value = float[1] {0.5}> (n)  c = ConstantOfShape <value = float[1] {0.5}> (m) "
)


def _add_weight(model: onnx.ModelProto) -> None:
    weight = np.random.default_rng(0).standard_normal((2000, 4, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))


def test_computed_biases_are_not_shared(clean: Any) -> None:
    """As those of the file, where they stay nodes: written out they would take many bytes."""
    cleaned = clean(
        f"{FILLS} i = Conv(x, w, b)  j = Relu(x)  k = Conv(j, w, c)  y = Sub(i, k) }}",
        edit=_add_weight,
    )
    biases = [node.inputs[2].name for node in cleaned.model.graph.nodes if node.op == "Conv"]
    assert biases == ["b", "c"]


def test_other_computed_vectors_are_shared(clean: Any) -> None:
    """As the four of each BatchNormalization."""
    cleaned = clean(
        "g (float[1, 2000] x) => (float[1, 2000] y) <int64[1] n = {2000}, int64[1] m = {2000}> "
        "{ b = ConstantOfShape <value = float[1] {0.5}> (n)  c = ConstantOfShape <value = float[1] {0.5}> (m) "
        "y = BatchNormalization (x, b, c, c, b) }"
    )
    assert cleaned.ops == ["ConstantOfShape", "BatchNormalization"]


def test_equal_nodes_with_equal_computed_biases_are_one(clean: Any) -> None:
    cleaned = clean(
        f"{FILLS} i = Conv(x, w, b)  j = Conv(x, w, c)  y = Sub(i, j) }}", edit=_add_weight
    )
    assert cleaned.ops == ["ConstantOfShape", "Conv", "Sub"]


def test_equal_nodes_with_equal_vectors_are_one(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {1, 2}> "
        "{ a = Add(x, w)  b = Add(x, v)  y = Mul(a, b) }"
    )
    assert cleaned.counts == {"merged": 1, "dead_initializers": 1}


@pytest.mark.parametrize("where", ["", "start", "end"])
def test_equal_weights_are_shared(clean: Any, where: str) -> None:
    weights = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    other = weights.copy()
    if where:
        other.flat[0 if where == "start" else -1] += 1

    def add(model: onnx.ModelProto) -> None:
        for name, array in (("w", weights), ("v", other)):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))

    cleaned = clean(
        "g (float[40, 40] x) => (float[40, 40] y) { a = MatMul(x, w)  y = MatMul(a, v) }", edit=add
    )
    assert cleaned.counts == ({} if where else {"merged": 1})


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Elu <alpha = 1.0> (x)  b = Elu <alpha = 2.0> (x)",
        "a = Sub(x, z)  b = Sub(z, x)",
        "a = Exp(x)  b = Neg(x)",
        "a = Exp(x)  b = Exp(z)",
        "a = Clip(x, l)  b = Clip(x, , l)",
        "a = RandomNormalLike <seed = 1.0> (x)  b = RandomNormalLike <seed = 1.0> (x)",
        "a = Bernoulli(p)  b = Bernoulli(p)",
        "r = Constant <value = float {0.5}> ()  t = Constant <value = bool {1}> ()  a = Dropout(x, r, t)  b = Dropout(x, r, t)",
        "a = acme.F(x)  b = acme.F(x)",
        "a = local.noise(x)  b = local.noise(x)",
    ],
)
def test_what_differs_or_is_random_stays(clean: Any, nodes: str) -> None:
    cleaned = clean(
        f"g (float[2] x, float[2] z, float[2] p, float l) => (float[2] y) {{ {nodes}  y = Sub(a, b) }}"
        '<domain: "local", opset_import: ["": 21]> noise (p) => (q) { q = RandomNormalLike(p) }',
        runs=False,
    )
    assert cleaned.result.total == 0


def test_function_calls_are_merged(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = local.f(x)  b = local.f(x)  y = Sub(a, b) }"
        '<domain: "local", opset_import: ["": 21]> f (p) => (q) { q = Exp(p) }'
    )
    assert cleaned.counts == {"merged": 1}


def test_overloads_are_not_equal(clean: Any) -> None:
    def overload(model: onnx.ModelProto) -> None:
        model.graph.node[1].overload = "second"
        function = model.functions.add()
        function.CopyFrom(model.functions[0])
        function.overload, function.node[0].op_type = "second", "Neg"

    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = local.f(x)  b = local.f(x)  y = Sub(a, b) }"
        '<domain: "local", opset_import: ["": 21]> f (p) => (q) { q = Exp(p) }',
        edit=overload,
        runs=False,
    )
    assert cleaned.result.total == 0


def test_the_second_must_not_be_a_graph_output(clean: Any) -> None:
    assert (
        clean("g (float[2] x) => (float[2] a, float[2] b) { a = Exp(x)  b = Exp(x) }").result.total
        == 0
    )
    first = clean(
        "g (float[2] x) => (float[2] a, float[2] y) { a = Exp(x)  b = Exp(x)  y = Neg(b) }"
    )
    assert first.counts == {"merged": 1}
    second = clean(
        "g (float[2] x) => (float[2] y, float[2] b) { a = Exp(x)  y = Neg(a)  b = Exp(x) }"
    )
    assert second.counts == {}


def test_one_output_of_several_is_a_graph_output(clean: Any) -> None:
    text = (
        "g (float[4] x) => (float[2] y, float[2] d) { a, b = Split <axis = 0, num_outputs = 2> (x)  "
        "c, d = Split <axis = 0, num_outputs = 2> (x)  e = Add(a, b)  y = Add(e, c) }"
    )
    assert clean(text).result.total == 0
    merged = clean(text.replace("Add(e, c)", "Sub(e, d)").replace(", float[2] d", ""))
    assert merged.counts == {"merged": 1}
    assert [node.op for node in merged.model.graph.nodes] == ["Split", "Add", "Sub"]
    assert merged.model.graph.tail.inputs[1].name == "b"


def test_outputs_must_correspond(clean: Any) -> None:
    cleaned = clean(
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y, int64[1, 1, 2, 2] i) "
        "{ a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)  "
        "b, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)  y = Add(a, b) }"
    )
    assert cleaned.result.total == 0


def test_equal_content_is_the_same_input(clean: Any) -> None:
    """Also where the constants themselves must stay: initializers that are graph inputs, below IR version 4."""
    head = '<ir_version: 3, opset_import: ["": 9]>'
    cleaned = clean(
        head + "g (float[2] x, float[2] w = {1, 2}, float[2] v = {1, 2}) => (float[2] y) "
        "{ a = Mul(x, w)  b = Mul(x, v)  y = Sub(a, b) }"
    )
    assert cleaned.counts == {"merged": 1}
    assert cleaned.initializers == {"w", "v"}


def test_defaults_of_inputs_are_no_constants(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, float[2] w = {1, 2}, float[2] v = {1, 2}) => (float[2] y) { a = Mul(x, w)  b = Mul(x, v)  y = Sub(a, b) }"
    )
    assert cleaned.result.total == 0


def test_equal_constants(clean: Any) -> None:
    cleaned = clean(
        "g (int64[2] x) => (int64[2] y) <int64[2] w = {1, 2}, int64[2] v = {1, 2}, int32[2] i = {1, 2}> "
        "{ k = Constant <value = int64[2] {1, 2}> ()  m = Constant <value_ints = [1, 2]> ()  f = Cast <to = 7> (i)"
        "  a = Add(x, w)  b = Add(a, v)  c = Add(b, k)  d = Add(c, m)  y = Add(d, f) }"
    )
    assert cleaned.ops == ["Add"] * 5
    assert cleaned.initializers == {"w"}
    assert cleaned.counts == {"merged": 3, "folded": 1, "dead_initializers": 1}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.zeros(4, np.float32), np.zeros(4, np.int32)),
        (np.zeros(4, np.float32), np.zeros((2, 2), np.float32)),
        (np.zeros(1, np.float32), -np.zeros(1, np.float32)),
        (np.zeros((0, 4), np.float32), np.zeros((0, 5), np.float32)),
        (np.array(["a", "b"], object), np.array(["a", "c"], object)),
        (np.zeros(1025, np.float32), np.zeros(1025, np.float32)),
    ],
    ids=["dtype", "shape", "sign of zero", "empty", "strings", "large"],
)
def test_constants_that_differ_stay(clean: Any, left: Any, right: Any) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("Equal", ["x", "x"], ["c"]),
                onnx.helper.make_node("Identity", ["l"], ["p"]),
                onnx.helper.make_node("Size", ["l"], ["m"]),
                onnx.helper.make_node("Shape", ["p"], ["y"]),
                onnx.helper.make_node("local_reader", ["l"], ["u"], domain="acme"),
                onnx.helper.make_node("local_reader", ["r"], ["v"], domain="acme"),
            ],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [1])],
            [onnx.helper.make_tensor_value_info("y", 7, [None])],
            [onnx.numpy_helper.from_array(left, "l"), onnx.numpy_helper.from_array(right, "r")],
        ),
        ir_version=10,
        opset_imports=[onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("acme", 1)],
    )
    cleaned = clean(model, runs=False)
    assert cleaned.result.merged == 0
    assert {"l", "r"} <= cleaned.initializers


def test_equal_strings(clean: Any) -> None:
    cleaned = clean(
        'g (string[2] x) => (bool[2] y, bool[2] z) <string[2] w = {"text0", "b c"}, string[2] v = {"text0", "b c"}> '
        "{ y = Equal(x, w)  z = Equal(x, v) }"
    )
    assert cleaned.counts == {"merged": 1}


@pytest.mark.parametrize("dtype", [16, 17, 19, 21, 22], ids=onnx.TensorProto.DataType.Name)
def test_types_of_one_numpy_kind_are_told_apart(clean: Any, dtype: int) -> None:
    def retype(model: onnx.ModelProto) -> None:
        for tensor, kind in zip(
            model.graph.initializer, (dtype, 18 if dtype != 18 else 17), strict=True
        ):
            tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, kind, [2], [0, 0]))

    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 1}, float[2] v = {1, 1}> { a = acme.F(x, w)  y = acme.F(a, v) }"
    assert clean(text, edit=retype, runs=False).counts == {}
    casts = (
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 1}, float[2] v = {1, 1}> "
        "{ a = Cast <to = 1> (w)  b = Cast <to = 1> (v)  y = Sub(a, b) }"
    )
    assert clean(casts, edit=retype, runs=False).result.merged == 0
    assert clean(
        text.replace("float[2] w", "int64[2] w").replace("float[2] v", "int64[2] v"), runs=False
    ).counts == {"merged": 1}


def test_a_constant_that_is_an_output_stays(clean: Any) -> None:
    cleaned = clean(
        "g (int64[2] x) => (int64[2] w, int64[2] k, int64[2] y) <int64[2] w = {1, 2}, int64[2] v = {1, 2}> "
        "{ k = Constant <value = int64[2] {1, 2}> ()  y = Add(x, v) }"
    )
    assert cleaned.counts == {"merged": 1}
    assert cleaned.ops == ["Constant", "Add"]
    assert cleaned.initializers == {"w"}


def test_of_two_initializers_the_output_stays(clean: Any) -> None:
    cleaned = clean(
        "g (int64[2] x) => (int64[2] w, int64[2] y) <int64[2] v = {1, 2}, int64[2] w = {1, 2}> { y = Add(x, v) }"
    )
    assert cleaned.counts == {"merged": 1}
    assert cleaned.initializers == {"w"}


def test_bodies_are_merged_each_for_itself(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { a = Exp(x)  "
        "z = If (c) <then_branch = t () => (float[2] p) { b = Exp(x)  d = Neg(b)  e = Neg(b)  "
        "k = Constant <value = float {2}> ()  l = Constant <value = float {2}> ()  "
        "f = Mul(d, k)  h = Mul(e, l)  p = Sub(f, h) }, "
        "else_branch = e () => (float[2] q) { q = Add(a, w) }>  y = Mul(z, w) }"
    )
    # Neg, the Constant and then Mul; the outer Exp and w are not those of the branch.
    assert cleaned.counts == {"merged": 3}


def test_nodes_with_bodies_stay(clean: Any) -> None:
    branches = "<then_branch = t () => (float[2] p) { p = Exp(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }>"
    cleaned = clean(
        f"g (float[2] x, bool c) => (float[2] y) {{ a = If (c) {branches}  b = If (c) {branches}  y = Add(a, b) }}"
    )
    assert cleaned.result.total == 0


def test_the_later_one_goes_also_when_it_is_found_first(clean: Any) -> None:
    """Once the mask is dead the Dropout goes, and what reads it becomes equal to what stands behind it."""
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { d, mask = Dropout(x)  a = Exp(d)  b = Exp(x)  m = Cast <to = 9> (mask)  "
        "o = Or(mask, m)  s = Cast <to = 1> (o)  t = Mul(s, s)  c = Sub(a, b)  y = Neg(c) }"
    )
    assert cleaned.ops == ["Exp", "Sub", "Neg"]


def test_what_is_known_of_the_second_is_known_of_the_first(clean: Any) -> None:
    def forget(model: onnx.ModelProto) -> None:
        model.graph.value_info.add(name="b").type.CopyFrom(
            onnx.helper.make_tensor_type_proto(1, [2, 3])
        )

    text = "g (float[N] x, int64[2] s) => (float[M] y) { a = Reshape(x, s)  b = Reshape(x, s)  y = Add(a, b) }"
    cleaned = clean(text, edit=forget, runs=False, infer=False)
    assert cleaned.counts == {"merged": 1}
    assert cleaned.model.graph.values["a"].shape == (2, 3)


def test_an_initializer_stays_rather_than_a_node(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, int64[1] i) => (int64[1] y) "
        "{ c = Constant <value = int64[1] {2}> ()  a = Add(i, c)  s = Shape(x)  y = Mul(a, s) }"
    )
    assert cleaned.ops == ["Add", "Mul"]
    assert cleaned.initializers == {"s"}
    assert cleaned.counts == {"folded": 1, "merged": 1}


def test_a_first_that_is_gone_is_no_first(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = Exp(x)  s = Shape(a)  k = Cast <to = 1> (s)  b = Exp(x)  c = Exp(x)  "
        "d = Mul(b, k)  y = Add(d, c) }"
    )
    assert cleaned.ops == ["Exp", "Mul", "Add"]
    assert cleaned.counts == {"dead_nodes": 1, "folded": 2, "merged": 1}


@pytest.mark.parametrize("version", [3, 8])
def test_a_constant_stays_before_its_readers(clean: Any, version: int) -> None:
    """What the Identity knows of a makes its Shape a constant when the equal one behind its reader has been seen."""

    def forget(model: onnx.ModelProto) -> None:
        model.graph.value_info.add(name="b").type.CopyFrom(
            onnx.helper.make_tensor_type_proto(1, [2])
        )

    cleaned = clean(
        f'<ir_version: {version}, opset_import: ["": 9, "acme": 1]>'
        "g (float[N] x, int64[1] i) => (float[2] y) { a = acme.F(x)  s = Shape(a)  r = Add(s, i)  "
        "c = Constant <value = int64[1] {2}> ()  q = Sub(r, c)  b = Identity(a)  y = acme.G(b, q) }",
        edit=forget,
        runs=False,
        infer=False,
    )
    assert cleaned.ops == ["Constant"] * (version == 3) + ["acme::F", "Add", "Sub", "acme::G"]
    assert "c" not in cleaned.model.graph.values
