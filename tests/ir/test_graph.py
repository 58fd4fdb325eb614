"""The index stays in step with the protobuf through every edit, and an undo leaves nothing behind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from gehost.errors import GehostError
from gehost.ir.edits import ORDER_GAP
from gehost.ir.graph import Node, Value
from gehost.ir.model import Model
from gehost.ir.types import DataType, TensorType

HEAD = '<ir_version: 10, opset_import: ["": 17, "local": 1]>'

NESTED = """g (float[2, 3] x, bool c, float[3] given) => (float[2, 3] y, float[2, 3] z, float[2, 3] a)
<float[3] w = {1, 2, 3}, float[3] unread = {4, 5, 6}, float[3] given = {7, 8, 9}, float[2, 3] b>
{
    [first] a = Relu(x)
    [second] b = Add(a, w)
    k = Constant<value = float[3] {1, 1, 2}>()
    [branch] d = If(c) <
        then_branch = yes () => (float[2, 3] p) {
            [inner] q = Add(b, k)
            p = If(c) <then_branch = deep () => (float[2, 3] r) { r = Mul(q, a) }, else_branch = flat () => (float[2, 3] a) { }>
        },
        else_branch = no () => (float[2, 3] b) { }
    >
    [scaled] e = LeakyRelu<alpha = 0.5>(d)
    [pair] f, mask = Dropout(e)
    [clip] h = Clip(f, , w)
    [last] y = Add(h, given)
    z = local.Twice<first = 1, second = 2.5, third = "three">(b)
}"""


def load(text: str = NESTED, head: str = HEAD) -> Model:
    return Model(onnx.parser.parse_model(head + text))


def node(model: Model, name: str) -> Node:
    return next(
        node for graph in model.graphs for node in graph.nodes if name in (node.name, node.label)
    )


def value(model: Model, name: str) -> Value:
    return next(graph.values[name] for graph in model.graphs if name in graph.values)


# -- looking --------------------------------------------------------------------------------------------------------


def test_consumers_stand_in_the_order_in_which_they_run():
    model = load()
    readers = [(reader.label, slot) for reader, slot in value(model, "a").consumers()]
    assert readers == [("second", 0), ("r", 1)]
    assert [reader.label for reader, _ in value(model, "b").consumers()] == ["inner", "z"]
    assert [(reader.label, slot) for reader, slot in value(model, "w").consumers()] == [
        ("second", 1),
        ("clip", 2),
    ]


def test_consumers_in_two_branches_keep_the_order_of_the_branches_after_an_undo():
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <then_branch = yes () => (float[2] p) { p = Neg(x) }, else_branch = no () => (float[2] q) { q = Abs(x) }> }"""
    model = load(text)
    mark = model.mark()
    model.graph.set_input(node(model, "p"), 0, None)
    model.undo(mark)
    assert [reader.op for reader, _ in value(model, "x").consumers()] == ["Neg", "Abs"]


def test_a_graph_is_a_networkx_graph_with_an_edge_for_each_tensor_and_user():
    model = load(
        "g (float[2] x, bool c) => (float[2] y) { a, unused = Split <num_outputs = 2> (x) b = Mul(a, a) "
        "y = If(c) <then_branch = t () => (float[2] p) { p = Neg(b) }, else_branch = e () => (float[2] x) { }> }"
    )
    graph = model.graph.to_networkx()
    assert [(node.op, data) for node, data in graph.nodes(data=True)] == [
        (op, {"op": op}) for op in ("Split", "Mul", "If")
    ]
    edges = [(a.op, b.op, tensor.name) for a, b, tensor in graph.edges(data="tensor")]
    assert edges == [("Split", "Mul", "a"), ("Mul", "If", "b")]


def test_graph_outputs_of_bodies_count_as_uses():
    model = load()
    assert value(model, "a").is_graph_output
    assert value(model, "b").is_graph_output, "the else branch hands it on"
    assert not value(model, "e").is_graph_output


@pytest.mark.parametrize(("ir", "overridable"), [(10, False), (4, False), (3, True)])
def test_an_initializer_that_is_an_input_is_constant_only_where_nobody_can_override_it(
    ir, overridable
):
    model = load(head=f'<ir_version: {ir}, opset_import: ["": 17, "local": 1]>')
    assert value(model, "w").is_constant
    assert value(model, "given").is_constant is overridable
    assert (value(model, "given").array is not None) is overridable


def test_constants_are_read():
    model = load()
    assert value(model, "w").numpy().tolist() == [1, 2, 3]
    assert value(model, "k").numpy().tolist() == [1, 1, 2]
    assert value(model, "w").array is value(model, "w").array
    with pytest.raises(GehostError, match='"a" is not a constant'):
        value(model, "a").numpy()


def test_a_value_that_changes_hands_is_no_longer_the_constant_that_was_read():
    model = load()
    constant = value(model, "k")
    assert constant.numpy().tolist() == [1, 1, 2]
    mark = model.mark()
    model.graph.set_attribute(node(model, "k"), "value", np.array([5, 6, 7], np.float32))
    assert constant.numpy().tolist() == [5, 6, 7]
    model.graph.release(constant)
    model.graph.add_node("Relu", [value(model, "w")], [constant])
    assert constant.array is None
    model.undo(mark)
    assert constant.numpy().tolist() == [1, 1, 2]


def test_the_type_of_an_initializer_is_its_own_whatever_the_file_says_beside_it():
    proto = onnx.parser.parse_model(
        HEAD + "g () => (float[N] y) <float[3] w = {1, 2, 3}, float[M] v> { y = Identity(w) }"
    )
    proto.graph.value_info[0].name = "w"
    assert str(value(Model(proto), "w").type) == "float[3]"


def test_an_output_that_is_an_input_keeps_the_input_s_type():
    model = load("g (float[2, 3] x) => (float[N, M] x) { }")
    assert str(value(model, "x").type) == "float[2,3]"


def test_looking_around():
    model = load()
    graph = model.graph
    yes, deep, flat, no = graph.subgraphs()
    assert [body.name for body in (yes, deep, flat, no)] == ["yes", "deep", "flat", "no"]
    assert [body.depth for body in (graph, yes, deep, no)] == [0, 1, 2, 1]
    assert deep.find("q") is yes.values["q"]
    assert deep.find("a") is graph.values["a"]
    assert deep.find("p") is yes.values["p"]
    assert deep.find("nowhere") is None
    assert graph.level_of(node(model, "r")) is node(model, "branch")
    assert yes.level_of(node(model, "r")) is node(model, "p")
    assert graph.reading_node(flat) is node(model, "branch")
    assert graph.reading_node(graph) is None
    with pytest.raises(GehostError, match="not inside"):
        yes.level_of(node(model, "first"))
    assert [(reader.name, v.name) for reader, _, v in yes.captured()] == [
        ("inner", "b"), ("inner", "k"), ("", "c"), ("", "a"), ("flat", "a")
    ]  # fmt: skip
    assert [actual.label for actual in graph.nodes_of("If", "Add", "Relu")] == [
        "first",
        "second",
        "branch",
        "last",
    ]
    assert graph.nodes_of("Conv") == []
    assert graph.GetDirectNode() == list(graph.nodes)
    assert bool(load("g () => () { }").graph)


def test_a_removed_body_s_nodes_are_not_in_the_graph():
    model = load()
    inner, branch = node(model, "inner"), node(model, "branch")
    mark = model.mark()
    model.graph.redirect(value(model, "d"), value(model, "b"))
    model.graph.remove_node(branch)
    assert (branch.in_graph, inner.in_graph) == (False, False)
    model.undo(mark)
    assert (branch.in_graph, inner.in_graph) == (True, True)


# -- every edit -----------------------------------------------------------------------------------------------------


def _add_node(model: Model) -> None:
    graph = model.graph
    attributes = {"alpha": 0.25, "axes": [1, 2], "t": np.ones(2)}
    result = graph.add_node(
        "local::New", [value(model, "a"), None, value(model, "w")], ["new_0", None, "new_1"], attributes,
        name="new", after=node(model, "first"), metadata={"gehost.pass": "P"},
    )  # fmt: skip
    assert result.attrs["axes"] == [1, 2]
    assert result.op == "local::New"
    assert result.metadata == {"gehost.pass": "P"}
    assert result.prev is node(model, "first")


def _add_node_with_a_body(model: Model) -> None:
    body = onnx.parser.parse_graph("more () => (float[2, 3] s, float[2, 3] e) { s = Add(e, w) }")
    result = model.graph.add_node(
        "If",
        [value(model, "c")],
        ["s0", "s1"],
        {"then_branch": body, "else_branch": body},
        after=node(model, "pair"),
    )
    assert result.attrs["then_branch"] is result.bodies[0]
    assert [reader.graph for reader, _ in value(model, "e").consumers()] == [
        model.graph,
        *result.bodies,
    ]
    assert value(model, "e").is_graph_output


def _take_over(model: Model) -> None:
    value_e = value(model, "e")
    spare = model.graph.release(value_e)
    assert (spare.producer, spare.uses, spare.known_type) == (
        node(model, "scaled"),
        [],
        value_e.known_type,
    )
    assert (value_e.producer, value_e.index) == (None, 0)
    model.graph.add_node("Neg", [value(model, "d")], [value_e], after=node(model, "scaled"))


def _replace(model: Model) -> None:
    old = node(model, "second")
    model.graph.add_node("Sub", list(old.inputs), list(old.outputs), after=old)
    model.graph.remove_node(old)


def _remove_branch(model: Model) -> None:
    model.graph.redirect(value(model, "d"), value(model, "b"))
    model.graph.remove_node(node(model, "branch"))
    assert "inner" not in [reader.label for reader, _ in value(model, "b").consumers()]


def _edit_inside(model: Model) -> None:
    inner = node(model, "inner")
    inner.graph.set_input(inner, 1, value(model, "a"))
    inner.graph.add_initializer(np.arange(6, dtype=np.float32).reshape(2, 3), "inside")
    inner.graph.redirect(value(model, "q"), value(model, "inside"))
    inner.graph.remove_node(inner)


def _inputs(model: Model) -> None:
    graph = model.graph
    graph.set_input(node(model, "clip"), 2, None)
    graph.set_input(node(model, "clip"), 1, value(model, "w"))
    graph.set_input(node(model, "last"), 1, value(model, "given"))


def _attributes(model: Model) -> None:
    graph, twice = model.graph, node(model, "z")
    graph.set_attribute(twice, "first", None)
    assert list(twice.attrs) == ["second", "third"]
    graph.set_attribute(twice, "second", [1, 2])
    graph.set_attribute(twice, "fourth", "new")
    graph.set_attribute(twice, "second", None)
    assert dict(twice.attrs) == {"third": "three", "fourth": "new"}


def _metadata(model: Model) -> None:
    model.graph.set_metadata(node(model, "first"), "k", "1")
    model.graph.set_metadata(node(model, "first"), "k", "2")
    model.graph.set_metadata(node(model, "first"), "l", "3")
    assert node(model, "first").metadata == {"k": "2", "l": "3"}


def _initializers(model: Model) -> None:
    graph = model.graph
    graph.remove_initializer(value(model, "unread"))
    added = graph.add_initializer(np.array([[1, 2]], np.int64), "added")
    assert (str(added.type), added.numpy().tolist(), added.is_constant) == (
        "int64[1,2]",
        [[1, 2]],
        True,
    )
    graph.add_initializer(np.array(1.5, np.float16), "unread")
    graph.remove_initializer(added)


def _types(model: Model) -> None:
    model.graph.set_type(value(model, "d"), TensorType(DataType.FLOAT, ("N", None)))
    model.graph.set_type(value(model, "b"), None)


def _moves(model: Model) -> None:
    model.graph.move_after(node(model, "z"), node(model, "second"))
    model.graph.move_after(node(model, "k"), None)


def _model_edits(model: Model) -> None:
    model.import_domain("acme", 3)
    model.import_domain("local", 9)
    assert (model.opset("acme"), model.opset("local")) == (3, 1)
    model.offer_function("acme::F", onnx.FunctionProto(name="F", domain="acme"))
    assert model.function("acme::F") is not None
    model.fresh_name("fresh")


EDITS: list[Callable[[Model], None]] = [
    _add_node, _add_node_with_a_body, _take_over, _replace, _remove_branch, _edit_inside, _inputs, _attributes, _metadata,
    _initializers, _types, _moves, _model_edits,
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_keeps_the_index_in_step_and_is_undone_without_a_trace(edit, describe):
    model = load()
    before, index = model.flush().SerializeToString(deterministic=True), describe(model)
    mark = model.mark()
    edit(model)
    assert model.mark() > mark
    model.check()
    model.undo(mark)
    model.check()
    assert model.mark() == mark
    assert describe(model) == index == describe.fresh(model)
    assert model.flush().SerializeToString(deterministic=True) == before
    assert (model.opset("acme"), model.function("acme::F"), model.fresh_name("fresh")) == (
        None,
        None,
        "fresh_0",
    )
    edit(model)
    model.flush()
    assert describe(model, types=False) == describe.fresh(model, types=False)


@pytest.mark.parametrize("seed", range(12))
def test_edits_in_any_order_are_undone_to_any_mark(seed, describe):
    chosen = random.Random(seed).sample(EDITS, 6)
    model = load()
    marks = [(model.mark(), describe(model))]
    for edit in chosen:
        try:
            edit(model)
        except (
            GehostError,
            StopIteration,
        ):  # an earlier edit took what this one wants; what it did so far is undone too
            model.undo(marks[-1][0])
            assert describe(model) == marks[-1][1]
            continue
        marks.append((model.mark(), describe(model)))
    for mark, index in reversed(marks):
        model.undo(mark)
        assert describe(model) == index
    assert model.flush().SerializeToString(deterministic=True) == load().flush().SerializeToString(
        deterministic=True
    )


# -- refusals -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_edited_is_refused_and_leaves_nothing(describe):
    model = load()
    graph, before, mark = model.graph, describe(model), model.mark()
    with pytest.raises(GehostError, match='tensor "a" is still read'):
        graph.remove_node(node(model, "first"))
    with pytest.raises(GehostError, match='has a tensor "b" already'):
        graph.add_node("Split", [value(model, "a")], ["new", "b"])
    with pytest.raises(GehostError, match='has a tensor "a" already'):
        graph.subgraphs()[1].new_value("a")
    with pytest.raises(TypeError, match="ONNX has no type for values of object"):
        graph.add_node("Relu", [value(model, "a")], ["new"], {"what": object()})
    with pytest.raises(GehostError, match="nested graph"):
        graph.set_attribute(node(model, "branch"), "then_branch", None)
    with pytest.raises(GehostError, match="nested graph"):
        graph.set_attribute(node(model, "first"), "body", onnx.GraphProto())
    for name in ("w", "given"):
        with pytest.raises(GehostError, match=f'initializer "{name}" cannot be removed'):
            graph.remove_initializer(value(model, name))
    assert (model.mark(), describe(model), describe.fresh(model)) == (mark, before, before)


# -- order ----------------------------------------------------------------------------------------------------------


def test_the_front_never_needs_new_numbers():
    model = load()
    for number in range(100):
        model.graph.add_node("Constant", [], [f"front_{number}"], {"value_int": number})
    assert model.renumbered == 0
    assert [actual.outputs[0].name for actual in model.graph.nodes][:2] == ["front_99", "front_98"]
    model.check()


def test_a_crowded_place_gets_new_numbers(describe):
    model = load()
    mark, before = model.mark(), describe(model)
    behind = node(model, "first")
    for number in range(60):
        model.graph.add_node("Relu", [value(model, "a")], [f"crowd_{number}"], after=behind)
    assert model.renumbered > 0
    names = [actual.label for actual in model.graph.nodes]
    assert names[:3] == ["first", "crowd_59", "crowd_58"]
    assert behind.order % ORDER_GAP == 0
    model.check()
    model.undo(mark)
    assert describe(model) == before


def test_nodes_may_be_removed_while_they_are_walked():
    model = load("g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(x) c = Abs(x) y = Exp(x) }")
    for actual in model.graph.nodes:
        if actual.op != "Exp":
            model.graph.remove_node(actual)
    assert [actual.op for actual in model.graph.nodes] == ["Exp"]


# -- writing --------------------------------------------------------------------------------------------------------


def test_flush_orders_nodes_and_drops_what_was_removed():
    model = load()
    protos = {actual.label: actual.proto.SerializeToString() for actual in model.graph.nodes}
    _remove_branch(model)
    _moves(model)
    model.graph.remove_initializer(value(model, "unread"))
    graph = model.flush().graph
    assert [proto.name or proto.output[0] for proto in graph.node] == [
        "k",
        "first",
        "second",
        "z",
        "scaled",
        "pair",
        "clip",
        "last",
    ]
    for proto in graph.node:
        if proto.name != "scaled":
            assert proto.SerializeToString() == protos[proto.name or proto.output[0]]
    assert [tensor.name for tensor in graph.initializer] == ["w", "given"]
    assert model.flush() is model.proto
    assert not model.graph.dirty


def test_flush_drops_an_initializer_alone():
    model = load()
    model.graph.remove_initializer(value(model, "unread"))
    assert [tensor.name for tensor in model.flush().graph.initializer] == ["w", "given"]


def test_what_the_file_says_of_a_removed_tensor_does_not_stay_for_another_of_its_name():
    model = load(
        "g (float[2] x) => (float[2] y) <float[2] a, int64[7] gone> { a = Relu(x) y = Neg(a) }"
    )
    model.graph.redirect(value(model, "a"), value(model, "x"))
    model.graph.remove_node(node(model, "a"))
    model.graph.add_node("Shape", [value(model, "x")], ["a"])
    assert list(model.flush().graph.value_info) == []
    assert model.fresh_name("gone") == "gone_0"


def test_nor_for_one_that_an_undo_brings_back():
    model = load("g (float[2] x) => (float[2] y) <float[2] a> { a = Relu(x) y = Neg(a) }")
    graph = model.graph
    graph.redirect(value(model, "a"), value(model, "x"))
    graph.remove_node(node(model, "a"))
    result = graph.add_node("Shape", [value(model, "x")], ["a"])
    mark = model.mark()
    graph.remove_node(result)
    graph.add_node("Size", [value(model, "x")], ["a"])
    model.undo(mark)
    assert result.in_graph
    assert list(model.flush().graph.value_info) == []


@pytest.mark.parametrize(("ir", "is_node"), [(3, True), (4, False)])
def test_below_ir_version_4_a_new_constant_is_a_node(ir, is_node):
    model = load(head=f'<ir_version: {ir}, opset_import: ["": 17, "local": 1]>')
    added = model.graph.add_initializer(np.array([1, 2], np.int32), "added")
    assert (added.numpy().tolist(), str(added.type), added.is_constant) == (
        [1, 2],
        "int32[2]",
        True,
    )
    assert (added.producer is not None and added.producer.op == "Constant") is is_node
    assert ("added" in {tensor.name for tensor in model.flush().graph.initializer}) is not is_node


def test_nodes_are_removed_together_in_whatever_order_they_are_given(describe):
    model = load(
        "g (float[2] x) => (float[2] o) { a = Relu(x) b = Abs(a) c = Neg(b) d = Sigmoid(x) o = Exp(x) }"
    )
    graph, before = model.graph, describe(model)
    nodes = graph.nodes_of("Relu", "Abs", "Neg", "Sigmoid")
    for value in itertools.permutations(nodes):
        mark = model.mark()
        members = list(value)
        graph.remove_nodes(members)
        assert [node.op for node in graph.nodes] == ["Exp"]
        members.clear()
        model.undo(mark)
        model.check()
        assert describe(model) == before
    with pytest.raises(GehostError, match="still read"):
        graph.remove_nodes([node for node in nodes if node.op != "Neg"])
    assert describe(model) == before


def test_a_removal_alone_is_undone_and_what_was_taken_over_stays_so():
    model = load("g (float[2] x) => (float[2] o) { a = Relu(x) o = Exp(a) }")
    graph = model.graph
    (old,) = graph.nodes_of("Exp")
    taker = graph.add_node("Neg", [graph.values["x"]], [graph.values["o"]], after=old)
    mark = model.mark()
    graph.remove_nodes(graph.nodes_of("Relu", "Exp"))
    model.undo(mark)
    assert (value(model, "o").producer, value(model, "a").producer) == (
        taker,
        *graph.nodes_of("Relu"),
    )


def test_encoded_attributes_are_those_that_a_node_has_now_also_in_its_bodies():
    model = load("""g (float[2] x, bool c) => (float[2] y) {
        a = Elu<alpha = 2.0>(x)
        y = If(c) <then_branch = t () => (p) { p = Neg(a) }, else_branch = e () => (q) { q = Elu<alpha = 3.0>(a) }>
    }""")
    nodes = [*model.graph.nodes, *model.graph.subgraphs()[1].nodes]
    mark = model.mark()

    def message() -> list[list[bytes]]:
        actual = [list(node.encoded_attrs) for node in nodes]
        assert actual == [
            [entry.SerializeToString() for entry in node.proto.attribute] for node in nodes
        ]
        return actual

    first = message()
    for node in (nodes[0], nodes[2]):
        model.graph.set_attribute(node, "alpha", 4.0)
    assert all(one != other for one, other in zip(first, message(), strict=True))
    model.undo(mark)
    assert message() == first
