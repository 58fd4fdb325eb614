"""What depends on constants only is computed, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import clean_up

from .conftest import parse

MIB = 1 << 20


def test_a_chain_becomes_one_initializer_of_its_name(clean: Any) -> None:
    cleaned = clean(
        "g (float[2, 3] x) => (float[2, 2] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> "
        "{ s = Constant <value = float {0.5}> ()  a = Transpose <perm = [1, 0]> (w)  packed = Mul(a, s)  y = MatMul(x, packed) }"
    )
    assert cleaned.ops == ["MatMul"]
    assert cleaned.initializers == {"packed"}
    np.testing.assert_array_equal(
        cleaned.array("packed"), np.array([[0.5, 2], [1, 2.5], [1.5, 3]], np.float32)
    )
    assert cleaned.counts == {"folded": 2, "dead_nodes": 1, "dead_initializers": 1}
    assert cleaned.result.grown == 0


def test_a_tied_embedding_gets_no_second_copy(clean: Any) -> None:
    body = (
        "g (int64[2] i) => (float[2, 64] y) {{ w = ConstantOfShape(s)  {}  t = Transpose <perm = [1, 0]> (w)  "
        "y = MatMul(r, t) }}"
    )
    array = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)

    def operators(rows: str) -> list[str]:
        result = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 20]> {body.format(rows)}'
        )
        del result.graph.node[0]
        result.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
        room = np.zeros(1 << 16, np.int8)  # that a copy would have
        result.graph.initializer.append(onnx.numpy_helper.from_array(room, "unused"))
        model = Model(result)
        inferrer = Inferrer(model, OpRegistry())
        infer_model(model, inferrer)
        clean_up(model, OpRegistry(), inferrer)
        return [node.op for node in model.graph.nodes]

    assert operators("r = Gather(w, i)") == ["Gather", "Transpose", "MatMul"]
    # rows that are constants leave the table, and here nothing to compute
    assert operators("k = Constant <value_ints = [3, 5]> ()  r = Gather(w, k)") == ["Constant"]


def test_a_graph_output_becomes_a_constant_node(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { y = Neg(w)  z = Add(x, y) }"
    )
    assert cleaned.ops == ["Constant", "Add"]
    assert cleaned.result.folded == 1


def test_an_initializer_that_may_be_overridden_is_no_constant(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { a = Neg(w)  y = Add(x, a) }"
    )
    assert cleaned.result.total == 0


def test_below_ir_version_4_a_result_is_a_constant_node(clean: Any) -> None:
    head = '<ir_version: 3, opset_import: ["": 9]>'
    cleaned = clean(
        head
        + "g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { a = Neg(w)  b = Exp(x)  c = Sqrt(x)  y = Sum(b, a, c) }"
    )
    assert cleaned.ops == ["Constant", "Exp", "Sqrt", "Sum"]
    assert cleaned.initializers == {"w"}
    np.testing.assert_array_equal(cleaned.array("a"), np.array([-1, -2], np.float32))
    assert 0 < cleaned.result.grown < 30  # w has to stay


def test_where_constants_are_floats_only_no_integers_are_folded(clean: Any) -> None:
    cleaned = clean(
        '<ir_version: 3, opset_import: ["": 8]> g (float[2] x, float[2] w = {1, 2}) => (float[2] y) '
        "{ s = Shape(w)  b = Exp(x)  y = Reshape(b, s) }"
    )
    assert cleaned.counts.get("folded", 0) == 0
    onnx.checker.check_model(cleaned.model.flush(), full_check=True)


def test_what_was_made_on_the_way_is_not_counted_when_it_goes(clean: Any) -> None:
    head = '<ir_version: {0}, opset_import: ["": 9]>'
    body = (
        "g (float[2] x, float[2] w = {4, 9}) => (float[2] y) "
        "{ a = Neg(w)  b = Sqrt(w)  c = Floor(b)  d = Mul(a, c)  y = Add(x, d) }"
    )
    assert clean(head.format(3) + body).counts == {"folded": 4}
    free = body.replace(
        ", float[2] w = {4, 9}) => (float[2] y)", ") => (float[2] y) <float[2] w = {4, 9}>"
    )
    assert clean(head.format(4) + free).counts == {"folded": 4, "dead_initializers": 1}


def test_split_gives_what_is_read(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[6] w = {1, 2, 3, 4, 5, 6}> "
        "{ a, b, c = Split <axis = 0, num_outputs = 3> (w)  d = Add(x, c)  y = Mul(d, a) }"
    )
    assert cleaned.initializers == {"a", "c"}
    np.testing.assert_array_equal(cleaned.array("c"), np.array([5, 6], np.float32))


def test_bodies(clean: Any) -> None:
    cleaned = clean(
        "g (float[2] x, int64 n, bool c) => (float[2] y) <float[2] w = {1, 2}> { y = Loop (n, c, x) <body = b "
        "(int64 i, bool go, float[2] s) => (bool again, float[2] t) "
        "{ again = Identity(go)  u = Neg(w)  v = Mul(u, w)  t = Add(s, v) }> }"
    )
    assert cleaned.counts == {"folded": 2, "dead_initializers": 1}
    body = cleaned.model.graph.tail.bodies[0]
    np.testing.assert_array_equal(body.values["v"].numpy(), np.array([-1, -4], np.float32))


def test_a_name_that_hides_an_outer_one_is_not_given_again(clean: Any) -> None:
    def hide(model: onnx.ModelProto) -> None:
        body = model.graph.node[0].attribute[0].g
        body.node[0].output[0] = body.node[1].input[0] = "x"

    cleaned = clean(
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { y = If (c) <then_branch = t () => (float[2] p) "
        "{ h = Neg(w)  p = Exp(h) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }",
        edit=hide,
        runs=False,
        check=False,
        infer=False,
    )
    assert cleaned.result.total == 0


@pytest.mark.parametrize("result", ["t", "u"])
def test_a_name_that_an_earlier_body_uses_does_not_go_before_it(clean: Any, result: str) -> None:
    # what clean checks: the cleaned model is valid; a body must not use a name from before it
    clean(
        f"g (float[2, 3] x, bool c, int64[2] n) => (float[2, 3] y, int64[2] {result}) {{ y = If (c) <"
        "then_branch = a () => (float[2, 3] t) { t = Abs(x) }, "
        "else_branch = b () => (float[2, 3] v) { v = Neg(x) }> t = Shape(y) u = Add(t, n) }"
    )


# -- from types -----------------------------------------------------------------------------------------------------


def test_shape_and_size_of_known_dimensions(clean: Any) -> None:
    cleaned = clean(
        "g (float[2, 3] x, float[4] z) => (int64[4] y) { a = Shape(x)  b = Size(x)  u = Constant <value = int64[1] {0}> () "
        "c = Unsqueeze(b, u)  d = Shape(z)  e = Concat <axis = 0> (a, c, d)  k = acme.F(e)  y = Neg(k) }",
        runs=False,
    )
    assert cleaned.ops == ["acme::F", "Neg"]
    np.testing.assert_array_equal(cleaned.array("e"), [2, 3, 6, 4])


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("a = Shape(x)", None),
        ("a = Size(x)", None),
        ("a = Shape <start = 1> (x)", [3, 4]),
        ("a = Shape <start = -1> (x)", [4]),
        ("a = Shape <start = 1, end = 2> (x)", [3]),
        ("a = Shape <start = 2, end = 1> (x)", []),
        ("a = Shape <end = 1> (x)", None),
        ("s = Shape(x)  i = Constant <value_int = 1> ()  a = Gather(s, i)", 3),
        ("s = Shape(x)  i = Constant <value_int = -1> ()  a = Gather(s, i)", 4),
        ("s = Shape(x)  i = Constant <value_ints = [2, 1]> ()  a = Gather(s, i)", [4, 3]),
        ("s = Shape(x)  i = Constant <value_ints = [2, 0]> ()  a = Gather(s, i)", None),
        ("s = Shape(x)  i = Constant <value_int = 0> ()  a = Gather(s, i)", None),
        ("s = Shape(x)  i = Constant <value_int = 3> ()  a = Gather(s, i)", None),
        ("s = Shape <start = 1> (x)  i = Constant <value_int = 0> ()  a = Gather(s, i)", 3),
        ("s = Shape(x)  i = Constant <value_int = 1> ()  a = Gather <axis = 1> (s, i)", None),
        ("s = Shape(x)  a = Gather(s, j)", None),
    ],
)
def test_dimensions_that_are_asked_for(clean: Any, node: str, expected: Any) -> None:
    invalid = "value_int = 3" in node or "axis" in node
    cleaned = clean(
        f"g (float[N, 3, 4] x, int64 j) => (int64[Q] y) {{ {node}  u = Constant <value = int64[1] {{-1}}> ()  "
        "b = Reshape(a, u)  y = Neg(b) }",
        infer=not invalid,
        runs=not invalid,
        feeds={"x": np.zeros((3, 3, 4), np.float32), "j": np.array(1)},
    )
    if expected is None:
        assert cleaned.result.folded == 0
    else:
        assert cleaned.ops == ["Constant"]
        np.testing.assert_array_equal(
            cleaned.model.graph.tail.outputs[0].numpy(), -np.reshape(expected, -1)
        )


def test_cast_like_asks_for_a_type_only(clean: Any) -> None:
    cleaned = clean(
        "g (float[N] x) => (float[N] y) { c = Constant <value = int64 {3}> ()  d = CastLike(c, x)  y = Add(x, d) }"
    )
    assert cleaned.ops == ["Add"]
    assert cleaned.array("d").dtype == np.float32
    unknown = "g (float[N] x) => (float[N] y) { z = acme.F(x)  c = Constant <value = int64 {3}> ()  d = CastLike(c, z)  y = Add(z, d) }"
    assert clean(unknown, runs=False).result.total == 0


def test_a_contradiction_is_left_as_it_is(clean: Any) -> None:
    def contradict(model: onnx.ModelProto) -> None:
        model.graph.value_info.add(name="a").type.CopyFrom(
            onnx.helper.make_tensor_type_proto(1, [3])
        )

    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Neg(w)  y = Add(x, a) }",
        edit=contradict,
        infer=False,
        runs=False,
    )
    assert cleaned.result.total == 0


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        "a = Bernoulli(w)",
        "a = RandomNormalLike(w)",
        "a = acme.F(w)",
        "a = local.f(w)",
        "b, c = TopK(w, k)  a = Add(b, w)",
        "z = Sub(w, w)  a = Div(z, z)",  # NaN
        "a = Gather(w, far)",
        "a = Reshape(w, far)",
        "a = Concat <axis = 1> (w, w)",
    ],
)
def test_stays(clean: Any, node: str) -> None:
    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, int64[1] k = {2}, int64[1] far = {7}> "
        f"{{ {node}  y = Add(x, a) }}"
        '<domain: "local", opset_import: ["": 21]> f (p) => (q) { q = Neg(p) }',
        runs=False,
        infer=False,
    )
    assert cleaned.result.folded == (1 if "Sub(w, w)" in node else 0)
    assert len(cleaned.ops) >= 2


# -- growth -----------------------------------------------------------------------------------------------------------


def filled(*sizes: int, freed: int = 0, reduced: bool = False) -> onnx.ModelProto:
    """A model that adds constants of so many bytes, with a constant that nothing reads."""
    shapes = ", ".join(f"int64[1] s{i} = {{{size // 4}}}" for i, size in enumerate(sizes))
    fills = "  ".join(
        f"c{i} = ConstantOfShape(s{i})  "
        + ("" if reduced else f"d{i} = Mul(x, c{i})  ")
        + f"r{i} = ReduceMax <keepdims = 0> ({'c' if reduced else 'd'}{i})"
        for i in range(len(sizes))
    )
    total = ", ".join(f"r{i}" for i in range(len(sizes)))
    model = parse(f"g (float x) => (float y) <{shapes}> {{ {fills}  y = Sum(x, {total}) }}")
    if freed:
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.zeros(freed, np.int8), "free")
        )
    return model


def test_no_model_grows(clean: Any) -> None:
    assert clean(filled(MIB)).counts == {}
    assert clean(filled(400)).counts == {}


def test_a_large_constant_that_a_small_one_is_computed_from(clean: Any) -> None:
    """It is computed, but never stored."""
    cleaned = clean(filled(MIB, reduced=True))
    assert cleaned.ops == ["Sum"]
    assert cleaned.result.grown == 0


def test_constants_take_the_room_of_what_goes(clean: Any) -> None:
    """The smallest first."""
    cleaned = clean(filled(600_000, 500_000, 400_000, 20_000, 4000, freed=MIB))
    assert cleaned.initializers == {"s0", "c1", "c2", "c3", "c4"}
    assert clean(filled(600_000, freed=MIB)).initializers == {"c0"}


def test_all_readers_of_a_constant_free_it(clean: Any) -> None:
    """Each slice alone would be there beside the whole."""

    def large(model: onnx.ModelProto) -> None:
        weights = np.random.default_rng(0).standard_normal((60, 60)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))

    text = (
        "g (float[60] x) => (float[30, 60] y, float[30, 60] z) <int64[1] o = {0}, int64[1] m = {30}, int64[1] n = {60}> "
        "{ a = Slice(w, o, m, o)  b = Slice(w, m, n, o)  y = Mul(x, a)  z = Mul(x, b) }"
    )
    assert clean(text, edit=large).initializers == {"a", "b"}
    beside = text.replace("z = Mul(x, b)", "c = Gemm(b, w)  z = Mul(x, c)")
    assert clean(beside, edit=large).counts == {}


def test_a_constant_that_others_read_counts_as_growth(clean: Any) -> None:
    def large(model: onnx.ModelProto) -> None:
        weights = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))

    text = "g (float[600] x) => (float[600, 600] y) {{ t = Transpose <perm = [1, 0]> (w)  a = Mul(x, t)  y = Add(a, {0}) }}"
    for infer in (False, True):
        assert clean(text.format("w"), edit=large, infer=infer).counts == {}
    assert clean(text.format("x"), edit=large).counts == {"folded": 1, "dead_initializers": 1}


BOMBS = {
    "fill": "b = ConstantOfShape(huge)",
    "expand": "b = Expand(one, huge)",
    "range": "b = Range(zero, end, step)",
    "tile": "b = Tile(line, times)",
    "gather": "b = Gather(wide, many)",
    "outer_product": "b = Mul(column, wide)",
    "outer_where": "b = Where(flags, column, wide)",
    "concat": "b = Concat <axis = 0> (" + ", ".join(["wide"] * 500) + ")",
    "minimum": "b = Min(icolumn, iwide)",
    "negative": "b = ConstantOfShape(negative)",
    "overflow": "b = ConstantOfShape(overflow)",
}


@pytest.mark.parametrize("node", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("lie", [False, True], ids=["untyped", "lied to"])
def test_bombs_are_not_evaluated(node: str, lie: bool) -> None:
    """A result's size is taken from the operands, never from what the file says of it."""
    one, row = np.ones(1, np.float32), np.ones((1, 50_000), np.float32)
    arrays = {
        "huge": np.array([1_000_000, 1_000_000]),
        "negative": np.array([-5, 3]),
        "overflow": np.array([2**62, 2**62, 2**62]),
        "one": one,
        "zero": np.array(0),
        "end": np.array(2**62),
        "step": np.array(1),
        "line": one,
        "times": np.array([2**50]),
        "wide": row,
        "many": np.zeros(50_000, np.int64),
        "column": row.T.copy(),
        "flags": np.ones((1, 1), np.bool_),
        "icolumn": row.T.astype(np.int32),
        "iwide": row.astype(np.int32),
    }
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g () => (float[N] y) {{ {node}  y = Shape(b) }}'
    )
    for name, array in arrays.items():
        if name in node:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model.graph.node[1].op_type = "Abs"
    if lie:
        element = 7 if "range" in node.lower() else 6 if "Min" in node else 1
        model.graph.value_info.add(name="b").type.CopyFrom(
            onnx.helper.make_tensor_type_proto(element, [2])
        )
    indexed = Model(model)
    assert clean_up(indexed, OpRegistry(), Inferrer(indexed, OpRegistry())).folded == 0


def test_strings_are_counted_by_their_length(clean: Any) -> None:
    text = "x" * 1000
    cleaned = clean(
        f'g (string[2000] x) => (bool[2000] y) <string[1] s = {{"{text}"}}, int64[1] n = {{2000}}> '
        "{ a = Expand(s, n)  y = Equal(x, a) }",
        runs=False,
    )
    assert cleaned.result.total == 0
    fits = clean(
        'g (string[20] x) => (bool[20] y) <string[1] s = {"text0"}, int64[1] n = {20}> { a = Expand(s, n)  y = Equal(x, a) }'
    )
    assert fits.counts == {"folded": 1, "dead_initializers": 2}
    assert 20 * 5 - 60 < fits.result.grown < 20 * 5


def external(tmp_path: Path, *rows: int) -> Model:
    """A model that multiplies by transposed weights, of 1 KiB a row, which lie in another file."""
    products = "  ".join(
        f"t{i} = Transpose <perm = [1, 0]> (w{i})  p{i} = MatMul(x, t{i})  r{i} = ReduceMax <keepdims = 0> (p{i})"
        for i in range(len(rows))
    )
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N, 256] x) => (float y) '
        f"{{ {products}  y = Sum({', '.join(f'r{i}' for i in range(len(rows)))}) }}"
    )
    for i, count in enumerate(rows):
        weights = np.random.default_rng(i).standard_normal((count, 256)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, f"w{i}"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    loaded = Model.load(path)
    infer_model(loaded)
    return loaded


@pytest.mark.parametrize(("rows", "folded"), [((100,), 1), ((101,), 0), ((60, 60, 40), 2)])
def test_external_data_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], folded: int
) -> None:
    """What is computed from it goes into the model file, which protobuf bounds."""
    monkeypatch.setattr("gehost.passes.cleanup.fold.EXTERNAL_LIMIT", 100 << 10)
    model = external(tmp_path, *rows)
    result = clean_up(model, OpRegistry(), Inferrer(model, OpRegistry()))
    assert result.folded == folded
    assert result.dead_initializers == folded


def test_external_data_that_is_missing_is_not_asked_for(tmp_path: Path) -> None:
    model = external(tmp_path, 64)
    (tmp_path / "m.data").unlink()
    assert clean_up(model, OpRegistry(), Inferrer(model, OpRegistry())).total == 0


def test_a_damaged_initializer_is_left_alone(clean: Any) -> None:
    def damage(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].ClearField("float_data")
        model.graph.initializer[0].raw_data = b"123"

    cleaned = clean(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Neg(w)  y = Add(x, a) }",
        edit=damage,
        runs=False,
        check=False,
        infer=False,
    )
    assert cleaned.result.total == 0


def test_a_result_that_loses_its_reader_while_it_waits_for_room(clean: Any) -> None:
    cleaned = clean(
        "g (float[64] x) => (float[64] y, int64[1] n) <int64[1] many = {5000}, int64[2] parts = {64, 4936}> "
        "{ c = ConstantOfShape <value = float[1] {2.0}> (many)  a, b = Split(c, parts)  y = Add(x, a)  n = Shape(b) }"
    )
    np.testing.assert_array_equal(cleaned.array("n"), [4936])
