"""Parts of a graph: what is inside, what may enter and leave, and when joining them would close a cycle."""

from __future__ import annotations

import onnx
import pytest

from gehost.errors import PassError
from gehost.ir.ge import NodeIo
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.ir.region import Region, SubgraphBoundary, SubgraphInput, SubgraphOutput
from gehost.refusal import Refusal

HEAD = '<ir_version: 10, opset_import: ["": 17]>'
CHAIN = """g (float[2] x, float[2] v) => (float[2] y, float[2] m) <float[2] w = {1, 2}> {
    a = Relu(x) b = Add(a, w) c = Mul(b, v) y = Neg(c) n = Exp(w) m = Abs(n) }"""
BRANCH = """g (float[2] x, bool c) => (float[2] y) {
    a = Relu(x)
    b = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = e () => (float[2] a) { }>
    y = Abs(b) }"""


def load(text: str) -> Graph:
    return Model(onnx.parser.parse_model(HEAD + text)).graph


def node(graph: Graph, output: str) -> Node:
    producer = graph.values[output].producer
    assert producer is not None
    return producer


def boundary(
    graph: Graph, inputs: list[list[tuple[str, int]]], outputs: list[str]
) -> SubgraphBoundary:
    """Inputs as their readers, ``(output of the reading node, slot)``; outputs by name."""
    actual = SubgraphBoundary()
    for index, readers in enumerate(inputs):
        actual.AddInput(
            index, SubgraphInput([NodeIo(node(graph, name), slot) for name, slot in readers])
        )
    for index, name in enumerate(outputs):
        actual.AddOutput(index, SubgraphOutput(NodeIo(node(graph, name), 0)))
    return actual


def region(graph: Graph, inputs: list[str], outputs: list[str], nodes: list[str]) -> Region:
    values: list[Value] = [graph.values[name] for name in inputs]
    return Region(
        graph,
        values,
        [graph.values[name] for name in outputs],
        [node(graph, name) for name in nodes],
    )


# -- boundaries -----------------------------------------------------------------------------------------------------


def test_what_lies_between():
    graph = load(CHAIN)
    actual = boundary(graph, [[("b", 0)], [("c", 1)]], ["c"]).region()
    assert [value.name for value in actual.inputs] == ["a", "v"]
    assert [value.name for value in actual.outputs] == ["c"]
    assert actual.nodes == [node(graph, "b"), node(graph, "c")]
    assert actual.graph is graph


def test_a_boundary_made_from_a_region_gives_it_back():
    graph = load(
        "g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Add(a, x) z = Mul(x, x) }"
    )
    first = region(graph, ["x", "x"], ["y", "z"], ["a", "y", "z"])
    result = SubgraphBoundary.of_region(first)
    assert [(io.node.op, io.index) for io in result.GetInput(0).GetAllInputs()] == [
        ("Relu", 0),
        ("Add", 1),
        ("Mul", 0),
        ("Mul", 1),
    ]
    assert result.GetOutput(1).GetOutput() == NodeIo(node(graph, "z"), 0)
    again = result.region()
    assert (again.graph, again.inputs, again.outputs, again.nodes) == (
        graph,
        first.inputs,
        first.outputs,
        first.nodes,
    )


def test_built_step_by_step():
    graph = load(CHAIN)
    entry = SubgraphInput().AddInput(NodeIo(node(graph, "b"), 0))
    actual = (
        SubgraphBoundary()
        .AddInput(0, entry)
        .AddOutput(0, SubgraphOutput().SetOutput(NodeIo(node(graph, "b"), 0)))
    )
    assert actual.region().nodes == [node(graph, "b")]


def test_inputs_may_come_in_any_order_but_leave_no_gap():
    graph = load(CHAIN)
    entry, other = (
        SubgraphInput([NodeIo(node(graph, "b"), 0)]),
        SubgraphInput([NodeIo(node(graph, "c"), 1)]),
    )
    leave = SubgraphOutput(NodeIo(node(graph, "c"), 0))
    assert [
        v.name
        for v in SubgraphBoundary()
        .AddInput(1, entry)
        .AddInput(0, other)
        .AddOutput(0, leave)
        .region()
        .inputs
    ] == [
        "v",
        "a",
    ]
    with pytest.raises(PassError, match=r"inputs \[0, 2\] leave a gap"):
        SubgraphBoundary().AddInput(0, entry).AddInput(2, other).AddOutput(0, leave).region()
    with pytest.raises(PassError, match=r"outputs \[1\] leave a gap"):
        SubgraphBoundary().AddInput(0, entry).AddOutput(1, leave).region()
    with pytest.raises(PassError, match="input 0 was added already"):
        SubgraphBoundary().AddInput(0, entry).AddInput(0, other)
    with pytest.raises(PassError, match="output 0 was added already"):
        SubgraphBoundary().AddOutput(0, leave).AddOutput(0, leave)
    with pytest.raises(PassError, match="no output was set"):
        SubgraphBoundary().AddInput(0, entry).AddOutput(0, SubgraphOutput()).region()
    with pytest.raises(PassError, match="it has no output"):
        SubgraphBoundary().AddInput(0, entry).region()


def test_the_readers_of_one_input_read_one_tensor():
    graph = load(CHAIN)
    with pytest.raises(PassError, match="the readers of input 0 read 2 tensors"):
        boundary(graph, [[("b", 0), ("c", 1)]], ["c"]).region()
    with pytest.raises(PassError, match="the readers of input 0 read 0 tensors"):
        boundary(graph, [[]], ["c"]).region()


def test_constants_may_enter_unsaid_but_nothing_else():
    graph = load(CHAIN)
    assert boundary(graph, [], ["m"]).region().nodes == [node(graph, "n"), node(graph, "m")]
    with pytest.raises(PassError, match='tensor "x" enters at <Node a> but is no input'):
        boundary(graph, [[("c", 1)]], ["c"]).region()


def test_what_stands_behind_a_constant_is_inside_too():
    graph = load(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Relu(x) y = Add(w, a) }"
    )
    assert boundary(graph, [[("a", 0)]], ["y"]).region().nodes == [
        node(graph, "a"),
        node(graph, "y"),
    ]


def test_an_inner_tensor_that_is_read_outside_must_be_an_output():
    graph = load("g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Neg(a) z = Exp(a) }")
    with pytest.raises(PassError, match='inner tensor "a" is also used outside'):
        boundary(graph, [[("a", 0)]], ["y"]).region()
    assert boundary(graph, [[("a", 0)]], ["y", "a"]).region().nodes == [
        node(graph, "a"),
        node(graph, "y"),
    ]
    graph = load("g (float[2] x) => (float[2] y, float[2] a) { a = Relu(x) y = Neg(a) }")
    with pytest.raises(PassError, match='inner tensor "a" is also used outside'):
        boundary(graph, [[("a", 0)]], ["y"]).region()


def test_a_tensor_that_nobody_inside_reads_may_be_read_outside():
    graph = load(
        "g (float[2] x) => (float[2] y, bool[2] z) { a, mask = Dropout(x) y = Neg(a) z = Identity(mask) }"
    )
    assert boundary(graph, [[("a", 0)]], ["y"]).region().nodes == [
        node(graph, "a"),
        node(graph, "y"),
    ]


def test_nodes_that_are_gone_are_refused():
    graph = load(CHAIN)
    result = boundary(graph, [[("b", 0)], [("c", 1)]], ["c"])
    gone = node(graph, "y")
    graph.add_node("Neg", [graph.values["c"]], [graph.values["y"]], after=gone)
    graph.remove_node(gone)
    assert result.region().nodes
    with pytest.raises(PassError, match=r"<Node y> is not in the graph \(any more\)"):
        SubgraphBoundary().AddInput(0, SubgraphInput([NodeIo(gone, 0)])).AddOutput(
            0, result.GetOutput(0)
        ).region()
    with pytest.raises(PassError, match="is not in the graph"):
        SubgraphBoundary().AddOutput(0, SubgraphOutput(NodeIo(gone, 0))).region()
    with pytest.raises(PassError, match="is not in the graph"):
        SubgraphBoundary().AddOutput(0, SubgraphOutput(NodeIo(None, 0))).region()


def test_absent_places_are_refused():
    graph = load("g (float[2] x) => (float[2] y) { y = Clip(x, , x) }")
    for slot in (1, 3):
        with pytest.raises(PassError, match=f"input {slot} of <Node y> is absent"):
            boundary(graph, [[("y", slot)]], ["y"]).region()
    with pytest.raises(PassError, match="output 1 of <Node y> is absent"):
        SubgraphBoundary().AddOutput(0, SubgraphOutput(NodeIo(node(graph, "y"), 1))).region()


def test_outputs_are_of_one_graph():
    graph = load(BRANCH)
    body = graph.subgraphs()[0]
    result = boundary(graph, [], ["b"]).AddOutput(1, SubgraphOutput(NodeIo(node(body, "p"), 0)))
    with pytest.raises(PassError, match="of more than one graph"):
        result.region()


def test_what_a_body_reads_enters_too():
    graph = load(BRANCH)
    with pytest.raises(PassError, match='tensor "x" enters at <Node a>'):
        boundary(graph, [[("b", 0)]], ["b"]).region()
    whole = boundary(graph, [[("b", 0)], [("a", 0)]], ["y"]).region()
    assert [actual.op for actual in whole.nodes] == ["Relu", "If", "Abs"]


# -- cycles ---------------------------------------------------------------------------------------------------------


def test_readers_that_stand_before():
    text = """g (float[2] x) => (float[2] y, float[2] z, float[2] s, float[2] r) {
        a = Relu(x) r = Abs(a) s = Neg(r) u = Exp(x) z = Sqrt(u) y = Mul(a, u) }"""
    graph = load(text)
    actual = region(graph, ["x"], ["a", "u"], ["a", "u"])
    last = node(graph, "u").order
    assert [reader.label for reader in actual.readers_before(last)] == ["r", "s"]
    assert [reader.label for reader in actual.readers_before(last + 1)] == ["r", "s"]
    assert not actual.closes_cycle()


def test_a_way_out_and_in_again_is_a_cycle():
    graph = load(
        "g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) b = Neg(a) c = Abs(b) y = Exp(c) }"
    )
    assert region(graph, ["x", "c"], ["a", "y"], ["a", "y"]).closes_cycle()
    assert not region(graph, ["a"], ["b", "c"], ["b", "c"]).closes_cycle()


def test_a_way_through_a_body_is_a_cycle_too():
    text = """g (float[2] x, bool c) => (float[2] a, float[2] y) { a = Relu(x)
        b = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = e () => (float[2] x) { }>
        y = Exp(b) }"""
    assert region(load(text), ["x", "b"], ["a", "y"], ["a", "y"]).closes_cycle()


def test_an_output_that_is_an_input_is_a_cycle():
    graph = load("g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) y = Exp(a) }")
    assert region(graph, ["x", "a"], ["a", "y"], ["a", "y"]).closes_cycle()
    assert not region(graph, ["x"], ["a", "y"], ["a", "y"]).closes_cycle()


def test_a_body_that_hands_a_tensor_on_reads_it():
    """Relu and Neg in one node would feed the If that feeds them."""
    graph = load(
        """g (bool c, float[2] x) => (float[2] y, float[2] w) { r = Relu(x) y = Neg(z) w = Abs(r)
             z = If (c) <then_branch = t () => (float[2] r) { p = Neg(x) }, else_branch = e () => (float[2] q) { q = Neg(x) }> }"""
    )
    actual = region(graph, ["x", "z"], ["r", "y"], ["r", "y"])
    assert [reader.op for reader in actual.readers_before(actual.last.order + 1)] == [
        "Abs",
        "If",
        "Neg",
    ]
    assert actual.closes_cycle()


# -- regions of nodes -------------------------------------------------------------------------------------------------


def of_nodes(graph: Graph, *names: str) -> tuple[list[str], list[str], list[str]] | str:
    """Inputs, outputs and results by name, or the reason why there is no region."""
    actual = Region.of_nodes([node(graph, name) for name in names])
    if isinstance(actual, Refusal):
        assert not actual
        return actual.reason
    assert all(value is not None for value in actual.inputs)
    named = [value.name for value in actual.inputs if value is not None]
    return named, [v.name for v in actual.outputs], [v.name for v in actual.results]


def test_inputs_and_outputs_are_ordered_whatever_the_order_of_the_nodes() -> None:
    graph = load(CHAIN)
    assert of_nodes(graph, "c", "a", "b") == (["x", "w", "v"], ["c"], ["c"])
    assert of_nodes(graph, "m", "c", "n") == (["b", "v", "w"], ["c", "m"], ["c", "m"])
    assert of_nodes(graph, "y") == (["c"], ["y"], ["y"])
    actual = Region.of_nodes([node(graph, name) for name in ("b", "a", "b")])
    assert isinstance(actual, Region)
    assert [item.label for item in actual.nodes] == ["a", "b"]


def test_a_tensor_that_others_read_too_is_an_output_and_no_result() -> None:
    graph = load("g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Neg(a) z = Abs(a) }")
    assert of_nodes(graph, "a", "y") == (["x"], ["a", "y"], ["y"])
    graph = load("g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) y = Neg(a) }")
    assert of_nodes(graph, "a", "y") == (["x"], ["a", "y"], ["y"])


def test_what_bodies_capture_counts_as_read() -> None:
    graph = load(BRANCH)
    assert of_nodes(graph, "a", "b") == (["x", "c"], ["b"], ["b"])
    assert of_nodes(graph, "b") == (["c", "a"], ["b"], ["b"])
    assert of_nodes(graph, "a") == (["x"], ["a"], ["a"])


@pytest.mark.parametrize(
    ("text", "names", "reason"),
    [
        (CHAIN, ["a", "c"], 'not convex: through Add "b"'),
        (CHAIN, ["a", "y"], 'not convex: through Mul "c"'),
        (BRANCH, ["a", "y"], 'not convex: through If "b"'),
        (
            "g (float[2] x) => (float[2] y) { a, b = Split<axis=0>(x) c = Relu(a) y = Concat<axis=0>(c, b) }",
            ["a", "y"],
            'not convex: through Relu "c"',
        ),
        (CHAIN, [], "empty: a region needs a node"),
        (
            "g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) y = Abs(x) }",
            ["a", "b"],
            "dead: no result of the nodes is used outside",
        ),
    ],
)
def test_what_is_no_region_has_a_reason(text: str, names: list[str], reason: str) -> None:
    assert of_nodes(load(text), *names) == reason


def test_nodes_of_two_graphs_or_none_are_no_region() -> None:
    graph = load(BRANCH)
    inner = next(node(graph, "b").bodies[0].nodes)
    actual = Region.of_nodes([node(graph, "a"), inner])
    assert isinstance(actual, Refusal)
    assert actual.reason.startswith("graphs: ")
    graph = load("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(x) }")
    gone = node(graph, "a")
    graph.remove_node(gone)
    actual = Region.of_nodes([gone])
    assert isinstance(actual, Refusal)
    assert actual.reason == 'removed: Relu "a" is not in the graph any more'


def test_a_region_knows_that_it_is_out_of_date() -> None:
    graph = load(CHAIN)
    actual = Region.of_nodes([node(graph, "a"), node(graph, "b")])
    assert isinstance(actual, Region)
    assert actual.stale() == ""
    mark = graph.model.mark()
    graph.set_input(node(graph, "b"), 1, graph.values["v"])
    assert actual.stale() == 'Add "b" reads "v", which is not an input of the region'
    graph.model.undo(mark)
    graph.add_node("Abs", [graph.values["x"]], [graph.values["b"]])
    assert actual.stale() == 'no node of the region produces "b" any more'
    graph.model.undo(mark)
    assert actual.stale() == ""


@pytest.mark.parametrize(
    "value", [lambda node: node, lambda _: [3], lambda node: [[node]], lambda _: 5]
)
def test_a_region_of_anything_but_nodes_is_refused_in_one_line(value):
    with pytest.raises(PassError, match="of_nodes wants a list of nodes, got "):
        Region.of_nodes(value(node(load(CHAIN), "a")))
