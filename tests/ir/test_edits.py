"""Names that are new in a whole model, and stay what they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from gehost.ir.constants import added_bytes
from gehost.ir.model import Model


def load(text: str) -> Model:
    return Model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}'))


PLAIN = "g (float[2] x, bool c) => (float[2] y) { a = Relu(x) y = Neg(a) }"


def test_names_are_unique_in_the_whole_model():
    text = """g (float[2] n_0, bool c) => (float[2] y) <float[2] n_1 = {1, 2}, float[2] n_6> {
        [n_2] n_3 = Add(n_0, n_1)
        y = If(c) <
            then_branch = yes () => (float[2] n_4) <float[2] n_5 = {1, 2}> { n_4 = Add(n_3, n_5) },
            else_branch = no () => (float[2] q) { [n_7] q = Neg(n_3) }>
    }"""
    model = load(text)
    assert [model.fresh_name("n"), model.fresh_name("n"), model.fresh_name("m")] == [
        "n_8",
        "n_9",
        "m_0",
    ]


def test_names_that_somebody_else_gives_are_used_too():
    model = load(PLAIN)
    values = model.graph.values
    mark = model.mark()
    model.graph.add_node("Relu", [values["a"]], ["p_0"], name="p_1")
    body = onnx.parser.parse_graph("more () => (float[2] p_2) { [p_3] p_2 = Abs(x) }")
    model.graph.add_node("If", [values["c"]], ["o"], {"then_branch": body})
    assert model.fresh_name("p") == "p_4"
    model.undo(mark)
    assert model.fresh_name("p") == "p_0"


def test_a_name_stays_used_when_its_tensor_is_gone():
    model = load(PLAIN)
    values = model.graph.values
    name = model.fresh_name("p")
    result = model.graph.add_node("Relu", [values["a"]], [name])
    model.graph.remove_node(result)
    assert model.fresh_name("p") == "p_1"


def test_the_first_free_number_is_taken_for_each_stem():
    model = load("g (float[2] p_1) => (float[2] p_3) { [q_0] p_3 = Relu(p_1) }")
    assert [model.fresh_name("p") for _ in range(3)] == ["p_0", "p_2", "p_4"]
    assert [model.fresh_name("q") for _ in range(2)] == ["q_1", "q_2"]


def test_a_name_that_a_node_of_the_file_has_stays_used_after_an_undo():
    model = load("g (float[2] x) => (float[2] y) { [p_1] y = Relu(x) }")
    mark = model.mark()
    model.graph.add_node("Neg", [model.graph.values["x"]], ["o"], name="p_1")
    assert [model.fresh_name("p") for _ in range(2)] == ["p_0", "p_2"]
    model.undo(mark)
    assert [model.fresh_name("p") for _ in range(2)] == ["p_0", "p_2"]


@pytest.mark.parametrize("before", [0, 99, 100, 300])
def test_names_of_nodes_are_used_however_many_stems_were_asked_for_before(before):
    model = load("g (float[2] x) => (float[2] y) { [p_0] a = Relu(x) [q_1] y = Neg(a) }")
    assert [model.fresh_name(f"s{count}") for count in range(before)] == [
        f"s{count}_0" for count in range(before)
    ]
    assert [model.fresh_name(stem) for stem in ("p", "q", "q")] == ["p_1", "q_0", "q_2"]


def test_a_node_s_name_may_have_line_feeds():
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    proto.graph.node[0].name = "p\nq_0"
    model = Model(proto)
    assert [model.fresh_name(stem) for stem in ("q", "p\nq")] == ["q_0", "p\nq_1"]


def test_names_of_what_comes_back_by_an_undo_are_used_though_they_were_read_while_it_was_away():
    model = load("""g (float[2] x, bool c) => (float[2] y) <float[2] p_0 = {1, 2}> {
        [p_1] p_2 = Neg(x)
        u = If(c) <then_branch = t () => (float[2] p_3) { [p_4] p_3 = Abs(x) }, else_branch = e () => (float[2] q) { q = Exp(x) }>
        y = Relu(x)
    }""")
    mark = model.mark()
    model.graph.remove_nodes(model.graph.nodes_of("Neg", "If"))
    model.graph.remove_initializer(model.graph.values["p_0"])
    assert model.fresh_name("p") == "p_0"
    model.undo(mark)
    assert model.fresh_name("p") == "p_5"


def test_bytes_that_edits_add_are_those_of_initializers_and_constants():
    model = load(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}>"
        "{ c = Constant <value_floats = [1.0, 2.0]> () d = Constant <value = int64[3] {1, 2, 3}> ()"
        " y = Add(x, w) }"
    )
    graph, mark = model.graph, model.mark()
    assert added_bytes(model, mark) == 0
    new = graph.add_initializer(np.ones(5, np.float32), "v")
    assert added_bytes(model, mark) == 20
    tensor = onnx.numpy_helper.from_array(np.ones(4, np.int64))
    graph.add_node("Constant", [], ["e"], {"value": tensor})
    assert added_bytes(model, mark) == 20 + 32
    graph.remove_nodes([graph.values[name].producer for name in "cd"])
    assert added_bytes(model, mark) == 20 + 32 - 24
    graph.remove_initializer(new)
    assert added_bytes(model, mark) == 32 - 24
    model.undo(mark)
    assert added_bytes(model, mark) == 0
