"""What an index of many nodes holds, and for how long."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx
import pytest

from gehost.infer import infer_model
from gehost.ir import gc_policy
from gehost.ir.gc_policy import gc_disabled, gc_frozen_models, gc_unfrozen
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.rewrite.provenance import provenance

CHAIN = "g (float[2] x) => (float[2] o) { [n0] a = Relu(x) [n1] b = Abs(a) [n2] c = Elu<alpha = 2.0>(b) [n3] o = Exp(c) }"


def parsed(text: str = CHAIN) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}')


def alive() -> int:
    return sum(isinstance(actual, Node | Value) for actual in gc.get_objects())


# -- protobufs of nodes ---------------------------------------------------------------------------------------------


def views() -> int:
    gc.collect()
    return sum(isinstance(actual, onnx.NodeProto) for actual in gc.get_objects())


def test_no_node_holds_its_protobuf_whatever_is_asked_of_it():
    before = views()
    model = Model(parsed())
    infer_model(model)
    model.check()
    model.fresh_name("n")
    provenance(list(model.graph.nodes))
    added = model.graph.add_node(
        "Neg", [model.graph.values["a"]], ["d"], name="added", after=next(model.graph.nodes)
    )
    assert [node.name for node in model.graph.nodes if node.attrs or node.metadata] == ["n2"]
    assert added.name == "added"
    model.graph.remove_node(added)
    assert (provenance([added]).origin_nodes, views()) == ('["added"]', before)
    model.flush()
    assert views() == before + 1  # that of the removed node, which somebody may ask


@pytest.mark.parametrize("seed", range(6))
def test_each_node_has_its_own_protobuf_after_any_edits_and_flushes(seed):
    rng = random.Random(seed)
    model = Model(parsed())
    if seed % 2:
        model.fresh_name("all names are read")
    graph, nodes = model.graph, list(model.graph.nodes)
    extra: list[Node] = []
    for step in range(60):
        match rng.randrange(4):
            case 0:
                extra.append(
                    graph.add_node(
                        "Neg",
                        [graph.values["x"]],
                        [f"v{step}"],
                        name=f"v{step}",
                        after=rng.choice([*extra, None]),
                    )
                )
            case 1 if extra:
                graph.remove_node(extra.pop(rng.randrange(len(extra))))
            case 2:
                mark = model.mark()
                graph.remove_nodes(extra)
                graph.add_node("Neg", [graph.values["x"]], ["gone"])
                model.undo(mark)
            case _:
                model.flush()
        model.check()
        assert [node.name for node in nodes] == ["n0", "n1", "n2", "n3"]
        assert [node.name for node in extra] == [node.proto.output[0] for node in extra]
    assert [proto.name for proto in model.flush().graph.node] == [node.name for node in graph.nodes]


def test_a_node_that_went_keeps_its_protobuf():
    model = Model(parsed())
    graph = model.graph
    removed = graph.add_node("Neg", [graph.values["x"]], ["p"], name="removed")
    model.flush()
    graph.remove_node(removed)
    mark = model.mark()
    undone = graph.add_node("Neg", [graph.values["x"]], ["q"], name="undone")
    model.undo(mark)
    model.flush()
    assert (removed.name, undone.name, removed.op_type) == ("removed", "undone", "Neg")


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("stop", range(11))
def test_a_flush_that_is_interrupted_can_be_repeated(monkeypatch, stop):
    model = Model(parsed())
    graph = model.graph
    graph.add_node("Neg", [graph.values["x"]], ["p"], name="added")
    graph.remove_node(graph.add_node("Neg", [graph.values["x"]], ["q"]))
    count, nodes = itertools.count(), Graph.nodes.fget
    assert nodes is not None

    def interrupted(self: Graph) -> Iterator[Node]:
        for node in nodes(self):
            if next(count) == stop:
                raise KeyboardInterrupt
            yield node

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Graph, "nodes", property(interrupted))
        model.flush()
    assert next(count) == min(stop + 1, 10)
    names = ["added", "n0", "n1", "n2", "n3"]
    assert (
        [proto.name for proto in model.flush().graph.node]
        == [node.name for node in graph.nodes]
        == names
    )
    model.check()


# -- who made a node ------------------------------------------------------------------------------------------------


@contextmanager
def saved(tmp_path: Path, proto: onnx.ModelProto) -> Generator[Model]:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    model = Model.load(path)
    yield model
    model.close()


def origins(node: Node) -> str:
    return provenance([node]).origin_nodes


def test_what_a_file_s_nodes_come_from_is_read(tmp_path):
    proto = parsed("g (float[2] x, bool c) => (float[2] o) { o = If(c) <then_branch = t () => (float[2] p) { [i] p = Abs(x) },"
                   " else_branch = e () => (float[2] q) { [j] q = Neg(x) }> }")  # fmt: skip
    inner = proto.graph.node[0].attribute[0].g.node[0]
    for key, text in (
        ("gehost.pass", "P"),
        ("gehost.origin_nodes", '["old"]'),
        ("gehost.origin_types", '["Old"]'),
    ):
        inner.metadata_props.add(key=key, value=text)
    with saved(tmp_path, proto) as model:
        assert [origins(node) for body in model.graph.subgraphs() for node in body.nodes] == [
            '["old"]',
            '["j"]',
        ]


@pytest.mark.parametrize("flushed", [False, True])
def test_what_passes_made_since_a_file_without_metadata_was_read_is_read(tmp_path, flushed):
    with saved(tmp_path, parsed()) as model:
        graph = model.graph
        marks = {
            "gehost.pass": "P",
            "gehost.origin_nodes": '["old"]',
            "gehost.origin_types": '["Old"]',
        }
        result = graph.add_node("Neg", [graph.values["x"]], ["p"], name="made", metadata=marks)
        if flushed:
            model.flush()
        assert [origins(node) for node in (result, *graph.nodes_of("Relu", "Exp"))] == [
            '["old"]',
            '["n0"]',
            '["n3"]',
        ]


def test_metadata_that_a_node_of_the_file_is_given_is_read(tmp_path):
    with saved(tmp_path, parsed()) as model:
        node = next(model.graph.nodes)
        model.graph.set_metadata(node, "gehost.origin_nodes", '["old"]')
        assert origins(node) == '["old"]'


def test_a_value_with_few_readers_has_no_table_of_them():
    model = Model(parsed())
    graph = model.graph
    value, first = graph.values["a"], *graph.nodes_of("Abs")
    others = [graph.add_node("Neg", [value], [f"p{count}"], after=graph.tail) for count in range(6)]
    for gone in range(len(others), 0, -1):
        readers = [first, *others[:gone]]
        assert (list(value.readers), isinstance(value.read_by, dict)) == (readers, gone > 3)
        graph.remove_node(others[gone - 1])
    assert value.read_by is first
    graph.set_input(first, 0, None)
    assert value.read_by is None


@pytest.mark.parametrize("seed", range(5))
def test_readers_are_told_in_the_order_in_which_they_came_however_many_there_are(seed):
    rng = random.Random(seed)
    graph = Model(parsed()).graph
    value, expected = graph.values["x"], dict.fromkeys(graph.nodes_of("Relu"))
    nodes = [graph.add_node("Neg", [None], [f"p{count}"]) for count in range(12)]
    for _ in range(300):
        node = rng.choice(nodes)
        if rng.random() < rng.choice([0.2, 0.8]):
            value.add_reader(node)
            expected[node] = None
        else:
            value.drop_reader(node)
            expected.pop(node, None)
        assert list(value.readers) == list(expected)


# -- the collector --------------------------------------------------------------------------------------------------


def test_what_was_removed_goes_with_the_commit_and_needs_no_collector():
    gc.collect()
    before = alive()
    model = Model(parsed())
    graph = model.graph
    with gc_disabled():
        last = graph.add_node("Neg", [graph.values["x"]], [graph.values["o"]])
        graph.remove_nodes(graph.nodes_of("Relu", "Abs", "Elu", "Exp"))
        assert alive() == before + 5 + 5
        model.commit()
        assert alive() == before + 1 + 2
    assert last.in_graph


@pytest.fixture
def thresholds():
    before = gc.get_threshold()
    gc.unfreeze()
    yield before
    gc.set_threshold(*before)
    gc.freeze()


@pytest.mark.usefixtures("interpreted")
def test_the_collector_stays_away_while_a_model_is_flushed(monkeypatch):
    noted: list[bool] = []
    monkeypatch.setattr(Graph, "flush", lambda _: noted.append(gc.isenabled()))
    Model(parsed()).flush()
    assert noted == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("value", [(700, 10, 10), (700, 10, 1000), (0, 10, 10)])
def test_all_generations_are_collected_seldom_and_a_large_model_is_frozen(
    thresholds, monkeypatch, value
):
    monkeypatch.setattr(gc_policy, "LARGE", 4)
    gc.set_threshold(*value)
    with suppress(KeyError), gc_frozen_models(own_process=True) as spare:
        assert gc.get_threshold() == (20_000 if value[0] else 0, 10, max(100, value[2]))
        spare(Model(parsed("g (float[2] x) => (float[2] o) { o = Exp(x) }")))
        assert gc_unfrozen()
        spare(Model(parsed()))
        assert not gc_unfrozen()
        raise KeyError
    assert gc.get_threshold() == value
    assert gc_unfrozen()


def test_a_small_model_does_not_count_frozen_objects(monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("walks the heap"))
    with gc_frozen_models(own_process=False) as freeze:
        freeze(Model(parsed()))


def test_what_python_itself_keeps_from_the_collector_is_nobody_s_plan(monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    assert gc_unfrozen()
