"""Nodes that give back their input go, each only where that is proven."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from gehost.ir.types import DataType, TensorType


def test_a_chain_of_identities(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = Identity(x)  b = Identity(a)  c = Identity(b)  y = Add(c, a) }"
    )
    assert cleaned.ops == ["Add"]
    assert cleaned.counts == {"identities": 3}


def test_the_identity_of_a_graph_output_stays(clean: Any) -> None:
    for body in ("y = Identity(x)", "a = Neg(x)  y = Identity(a)", "y = Identity(x)  z = Neg(y)"):
        outputs = "(float[2] y, float[2] z)" if "z" in body else "(float[2] y)"
        assert clean(f"g (float[2] x) => {outputs} {{ {body} }}").result.total == 0


def test_identity_of_an_initializer_and_of_a_graph_output(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] a, float[2] y) <float[2] w = {1, 2}> "
        "{ a = Neg(x)  b = Identity(a)  v = Identity(w)  y = Add(b, v) }"
    )
    assert cleaned.ops == ["Neg", "Add"]
    assert cleaned.counts == {"identities": 2}


@pytest.mark.parametrize("cast", ["Cast <to = 1> (c)", "CastLike(c, x)"])
def test_a_cast_of_a_constant_with_a_bare_number_is_folded(clean: Any, cast: str) -> None:
    """onnxslim reads ``value_float`` without the cast behind it as a double."""
    cleaned = clean(
        "g (float[2] x) => (float[2] y) "
        f"{{ c = Constant <value_float = 6.0> ()  d = {cast}  y = Min(x, d) }}"
    )
    assert cleaned.ops == ["Min"]
    assert cleaned.counts == {"folded": 1, "dead_nodes": 1}


def test_sequences_and_optionals(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[4] y) { s = SequenceConstruct(x, x)  t = Identity(s)  y = ConcatFromSequence <axis = 0> (t) }"
    )
    assert cleaned.counts == {"identities": 1}


IF = (
    "g (float[2] x, bool c) => (float[2] y) {{ a = Neg(x)  o = Identity(a)  "
    "y = If (c) <then_branch = t () => (float[2] p) {{ {0} }}, else_branch = e () => (float[2] q) {{ q = Abs(o) }}> }}"
)


def test_readers_in_bodies_follow(clean: Any) -> None:
    cleaned = clean(IF.format("i = Identity(o)  p = Exp(i)"))
    assert cleaned.ops == ["Neg", "If"]
    assert cleaned.counts == {"identities": 2}
    assert {
        value.name for body in cleaned.model.graph.tail.bodies for _, _, value in body.captured()
    } == {"a"}


def test_an_outer_value_that_is_a_body_output_keeps_its_identity(clean: Any) -> None:
    cleaned = clean(IF.format("p = Identity(o)"))
    assert cleaned.counts == {"identities": 1}
    assert [node.op for node in cleaned.model.graph.tail.bodies[0].nodes] == ["Identity"]


def test_identities_in_loops(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, int64 n, bool c) => (float[2] y) { z = Identity(x)  y = Loop (n, c, x) <body = b "
        "(int64 i, bool go, float[2] s) => (bool again, float[2] t) "
        "{ again = Identity(go)  u = Identity(s)  v = Identity(z)  t = Add(u, v) }> }"
    )
    assert cleaned.counts == {"identities": 3}


def test_a_body_that_hides_the_name_keeps_the_identity(clean: Any) -> None:
    """Inside, ``x`` is the body's own: a reader there cannot be given the outer ``x``."""

    def hide(model: onnx.ModelProto) -> None:
        body = model.graph.node[1].attribute[0].g
        body.node[0].output[0] = body.node[1].input[0] = "x"

    text = (
        "g (float[2] x, bool c) => (float[2] y) { a = Identity(x)  y = If (c) <then_branch = t () => (float[2] p) "
        "{ h = Neg(a)  p = Add(h, a) }, else_branch = e () => (float[2] q) { q = Abs(a) }> }"
    )
    assert clean(text).counts == {"identities": 1}
    assert clean(text, edit=hide, runs=False, check=False, infer=False).counts == {}


def test_readers_keep_what_they_know(clean: Any) -> None:
    def forget(model: onnx.ModelProto) -> None:
        model.graph.value_info.add(name="b").type.CopyFrom(
            onnx.helper.make_tensor_type_proto(1, [2, 3])
        )

    text = (
        "g (float[N, M] x) => (float[N, M] y) { a = acme.Unknown(x)  b = Identity(a)  y = Relu(b) }"
    )
    cleaned = clean(text, edit=forget, runs=False)
    assert cleaned.counts == {"identities": 1}
    assert cleaned.model.graph.values["a"].type == TensorType(DataType.FLOAT, (2, 3))


def test_contradictory_types_keep_the_node(clean: Any) -> None:
    def contradict(model: onnx.ModelProto) -> None:
        for name, shape in (("a", [2, 3]), ("b", [3, 2])):
            model.graph.value_info.add(name=name).type.CopyFrom(
                onnx.helper.make_tensor_type_proto(1, shape)
            )

    text = (
        "g (float[N, M] x) => (float[N, M] y) { a = acme.Unknown(x)  b = Identity(a)  y = Relu(b) }"
    )
    assert clean(text, edit=contradict, runs=False, infer=False).result.total == 0


GOES = {
    "cast": "a = Cast <to = 1> (x)",
    "cast_like": "a = CastLike(x, other)",
    "perm": "a = Transpose <perm = [0, 1]> (x)",
    "reshape": "s = Constant <value = int64[2] {2, 3}> ()  a = Reshape(x, s)",
    "reshape_minus_one": "s = Constant <value = int64[2] {-1, 3}> ()  a = Reshape(x, s)",
    "reshape_zero": "s = Constant <value = int64[2] {0, 3}> ()  a = Reshape(x, s)",
    "reshape_allowzero": "s = Constant <value = int64[2] {2, 3}> ()  a = Reshape <allowzero = 1> (x, s)",
    "expand": "s = Constant <value = int64[2] {2, 3}> ()  a = Expand(x, s)",
    "expand_ones": "s = Constant <value = int64[2] {1, 1}> ()  a = Expand(x, s)",
    "expand_short": "s = Constant <value = int64[1] {3}> ()  a = Expand(x, s)",
    "concat": "a = Concat <axis = 0> (x)",
    "dropout": "a = Dropout(x)",
    "dropout_false": "r = Constant <value = float {0.9}> ()  f = Constant <value = bool {0}> ()  a = Dropout(x, r, f)",
    "dropout_mask_unread": "a, mask = Dropout(x)",
}


@pytest.mark.parametrize("node", GOES.values(), ids=GOES)
def test_goes(clean: Any, node: str) -> None:
    cleaned = clean(
        f"g (float[2, 3] x, float[1] other) => (float[2, 3] y) {{ {node}  y = Neg(a) }}"
    )
    assert cleaned.ops == ["Neg"]
    assert cleaned.result.identities == 1
    assert cleaned.result.folded == 0


STAYS = {
    "other_dtype": "a = Cast <to = 10> (x)  b = Cast <to = 1> (a)",
    "swapped": "b = Transpose <perm = [1, 0]> (x)",
    "default_perm": "b = Transpose(x)",
    "reshape_other": "s = Constant <value = int64[2] {3, 2}> ()  b = Reshape(x, s)",
    "reshape_rank": "s = Constant <value = int64[3] {1, 2, 3}> ()  b = Reshape(x, s)",
    "reshape_two_to_one": "s = Constant <value = int64[2] {3, -1}> ()  b = Reshape(x, s)",
    "reshape_dynamic": "b = Reshape(x, given)",
    "expand_wider": "s = Constant <value = int64[3] {2, 2, 3}> ()  b = Expand(x, s)",
    "expand_one": "t = Constant <value = int64[1] {1}> ()  o = ReduceSum(x, t)  "
    "s = Constant <value = int64[2] {2, 3}> ()  b = Expand(o, s)",
    "concat_two": "b = Concat <axis = 0> (x, x)",
    "dropout_dynamic": "r = Constant <value = float {0.5}> ()  b = Dropout(x, r, flag)",
    "dropout_training": "r = Constant <value = float {0.5}> ()  t = Constant <value = bool {1}> ()  b = Dropout(x, r, t)",
    "dropout_mask": "d, mask = Dropout(x)  m = Cast <to = 1> (mask)  b = Add(d, m)",
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(clean: Any, name: str) -> None:
    cleaned = clean(
        f"g (float[2, 3] x, int64[2] given, bool flag) => (float[Q, R] y) {{ {STAYS[name]}  y = Neg(b) }}",
        runs=False,
    )
    assert cleaned.counts == {}


@pytest.mark.parametrize(
    ("shape", "target", "goes"),
    [
        ("N, 4", "0, 4", True),
        ("N, 4", "-1, 4", True),
        ("N, 4", "0, 0", True),
        ("N, M", "0, 0", True),
        ("N, M", "0, -1", True),  # beside a size of 0 it fails
        ("N, 4", "-1, 0", True),
        ("N, 4", "-1, -1", False),
        ("N, 4", "3, 4", False),
        ("N, 0", "-1, 0", False),
    ],
)
def test_reshape_of_unknown_sizes(clean: Any, shape: str, target: str, goes: bool) -> None:
    cleaned = clean(
        f"g (float[{shape}] x) => (float[P, Q] y) "
        f"{{ s = Constant <value = int64[2] {{{target}}}> ()  a = Reshape(x, s)  y = Neg(a) }}",
        runs=goes,
        infer=target != "-1, -1",
    )
    assert cleaned.result.identities == int(goes)


def test_reshape_with_allowzero_makes_zeros(clean: Any) -> None:
    text = (
        "g (float[N, 0] x) => (float[P, Q] y) {{ s = Constant <value = int64[2] {{{0}}}> ()  "
        "a = Reshape <allowzero = 1> (x, s)  y = Neg(a) }}"
    )
    assert clean(text.format("0, 0")).counts == {}
    assert clean(text.format("3, 0")).counts == {}
    assert clean(text.replace("[N, 0]", "[3, 0]").format("3, 0")).result.identities == 1


@pytest.mark.parametrize(
    ("opset", "goes"), [(7, True), (9, True), (10, True), (12, True), (13, True)]
)
def test_dropout_by_opset(clean: Any, opset: int, goes: bool) -> None:
    head = f'<ir_version: 7, opset_import: ["": {opset}]>'
    cleaned = clean(head + "g (float[2, 3] x) => (float[2, 3] y) { a = Dropout(x)  y = Neg(a) }")
    assert cleaned.result.identities == int(goes)


def test_dropout_before_opset_7_may_train(clean: Any) -> None:
    head = '<ir_version: 3, opset_import: ["": 6]>'
    cleaned = clean(
        head + "g (float[2, 3] x) => (float[2, 3] y) { a = Dropout(x)  y = Neg(a) }",
        runs=False,
        infer=False,
    )
    assert cleaned.counts == {}


def test_a_dropout_goes_once_its_mask_is_dead(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a, mask = Dropout(x)  m = Cast <to = 1> (mask)  n = Exp(m)  y = Neg(a) }"
    )
    assert cleaned.counts == {"dead_nodes": 2, "identities": 1}
    assert cleaned.ops == ["Neg"]


LATE = "s = Shape(mask)  k = Cast <to = 1> (s)  m = acme.F(k)"


def test_a_dropout_whose_mask_dies_on_the_way(clean: Any) -> None:
    cleaned = clean(
        f"g (float[2] x) => (float[2] y) {{ a, mask = Dropout(x)  b = Neg(a)  {LATE}  y = Mul(b, m) }}",
        runs=False,
    )
    assert cleaned.ops == ["Neg", "acme::F", "Mul"]
    assert cleaned.counts == {"folded": 2, "identities": 1}


def test_its_readers_are_looked_at_again(clean: Any) -> None:
    """Exp(a) was no second when it was met; now it is the first, and stays before what reads it."""
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a, mask = Dropout(x)  b = Exp(a)  n = Neg(b)  c = Exp(x)  "
        f"{LATE}  d = Mul(n, m)  y = Sub(d, c) }}",
        runs=False,
    )
    assert cleaned.ops == ["Exp", "Neg", "acme::F", "Mul", "Sub"]
    assert cleaned.counts == {"folded": 2, "identities": 1, "merged": 1}


def test_a_function_in_the_place_of_an_operator(clean: Any) -> None:
    def replace(model: onnx.ModelProto) -> None:
        for entry in (model.graph.node[0], model.graph.node[1], *model.functions):
            entry.domain = ""

    functions = "".join(
        f'<domain: "local", opset_import: ["": 21]> {name} (p) => (q) {{ q = Exp(p) }}'
        for name in ("Identity", "Neg")
    )
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = local.Identity(x)  b = local.Neg(w)  y = Mul(a, b) }"
    assert (
        clean(text + functions, edit=replace, runs=False, check=False, infer=False).result.total
        == 0
    )


def test_a_function_of_an_operator_s_name(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) { a = local.Identity(x)  y = Neg(a) }"
        '<domain: "local", opset_import: ["": 21]> Identity (p) => (q) { q = Exp(p) }'
    )
    assert cleaned.result.total == 0
