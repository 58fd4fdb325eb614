"""Wide sequences act as tuples, and edits of a wide node do not walk through its inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from gehost import Host, HostOptions, Model
from gehost.errors import ModelError
from gehost.ir import wide
from gehost.ir.node import Node, Value
from gehost.ir.wide import WIDE, Slots, Wide, with_entry

VENDORS = Path(__file__).resolve().parents[2] / "vendors"


def _info(name: str, size: int | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size])


def _model(nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "wide",
        [_info(name, 1 if name != "all" else None) for name in inputs],
        [_info(name, None) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _named(stem: str, count: int) -> list[str]:
    return [f"{stem}{number}" for number in range(count)]


def concat(count: int, op: str = "Identity") -> onnx.ModelProto:
    """``count`` nodes of an operator, each of an input of its own, joined by one Concat."""
    result, value = _named("r", count), _named("x", count)
    nodes = [helper.make_node(op, [x], [r]) for x, r in zip(value, result, strict=True)]
    nodes.append(helper.make_node("Concat", result, ["y"], axis=0))
    return _model(nodes, value, ["y"])


def concat_relu(count: int) -> onnx.ModelProto:
    value = _named("x", count)
    nodes = [
        helper.make_node("Concat", value, ["c"], axis=0),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return _model(nodes, value, ["y"])


def equal_nodes(count: int) -> onnx.ModelProto:
    result = _named("r", count)
    nodes = [helper.make_node("Neg", ["x0"], [name]) for name in result]
    nodes.append(helper.make_node("Concat", result, ["y"], axis=0))
    return _model(nodes, ["x0"], ["y"])


def body(count: int) -> onnx.ModelProto:
    """An If, both of whose branches join ``count`` tensors of the graph around."""
    result, value = _named("r", count), _named("x", count)
    nodes = [helper.make_node("Identity", [x], [r]) for x, r in zip(value, result, strict=True)]
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Concat", result, [f"{name}_out"], axis=0)],
            name,
            [],
            [_info(f"{name}_out", None)],
        )
        for name in ("then", "else")
    }
    nodes.append(helper.make_node("If", ["condition"], ["y"], **branches))
    model = _model(nodes, value, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, []))
    return model


@pytest.mark.parametrize("count", [WIDE + 1, 256, 257, 1000])
def test_a_wide_sequence_acts_as_the_tuple_of_its_entries(count: int) -> None:
    rng = np.random.default_rng(count)
    plain = tuple(range(count))
    actual = Wide[int].of(plain)
    for _ in range(50):
        slot = int(rng.integers(count))
        before, old = plain, actual
        plain = (*plain[:slot], -slot, *plain[slot + 1 :])
        actual = with_entry(actual, slot, -slot)
        assert tuple(old) == before
        assert isinstance(actual, Wide)
        assert list(actual) == list(plain)
        assert (len(actual), hash(actual)) == (len(plain), hash(plain))
        assert actual == plain
        assert plain == actual
        assert actual == Wide.of(plain)
        assert actual != old or plain == before
        index = int(rng.integers(-count, count))
        assert actual[index] == plain[index]
        assert actual[index:] == plain[index:]
        assert actual.index(plain[index]) == plain.index(plain[index])
    assert actual + (1,) == (*plain, 1)
    assert (1,) + actual == (1, *plain)
    assert repr(actual) == repr(plain)
    for outside in (count, -count - 1):
        with pytest.raises(IndexError):
            actual[outside]
    with pytest.raises(IndexError):
        actual.replaced(count, 0)


def test_a_short_sequence_stays_a_tuple() -> None:
    assert type(with_entry(tuple(range(WIDE)), 3, -1)) is tuple


def test_slots_are_those_of_a_walk_after_any_edits() -> None:
    rng = np.random.default_rng(5)
    values = [str(number) for number in rng.integers(20, size=200)]
    slots = Slots[str](values)
    for _ in range(500):
        slot, value = int(rng.integers(200)), str(rng.integers(20))
        for _ in range(int(rng.integers(1, 3))):  # an edit may be done twice
            slots.put(slot, value, values[slot])
        values[slot] = value
        assert slots == Slots(values)
        assert slots.of(value) == [place for place, read in enumerate(values) if read == value]
    assert "absent" not in slots
    assert slots.of("absent") == []


def test_random_edits_of_a_wide_node_keep_the_index_and_are_undone(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    model = Model(concat(200))
    graph = model.graph
    joined = graph.nodes_of("Concat")[0]
    values = [value for value in graph.values.values() if value.producer is not joined]
    model.save(tmp_path / "before.onnx")
    mark = model.journal.mark()
    for _ in range(300):
        graph.set_input(joined, int(rng.integers(200)), values[int(rng.integers(len(values)))])
        one = values[int(rng.integers(len(values)))]
        assert [use for use in one.uses if use[0] is joined] == [
            (joined, slot) for slot, read in enumerate(joined.inputs) if read is one
        ]
        assert (joined in one.readers) == (one in tuple(joined.inputs)) == joined.reads(one)
    model.check()
    model.journal.undo(mark)
    model.check()
    model.save(tmp_path / "after.onnx")
    assert (tmp_path / "after.onnx").read_bytes() == (tmp_path / "before.onnx").read_bytes()


def test_the_check_finds_a_wrong_index_of_slots() -> None:
    model = Model(concat(200))
    joined = model.graph.nodes_of("Concat")[0]
    assert joined.slots_of(_input(joined, 7)) == [7]
    assert joined.slots is not None
    joined.slots.put(3, _input(joined, 7), _input(joined, 3))
    with pytest.raises(ModelError, match="index of its slots"):
        model.check()


def _input(node: Node, slot: int) -> Value:
    value = node.input(slot)
    assert value is not None
    return value


def _walks(model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a compile with the shipped vendors walks through a wide sequence, or copies one."""
    count = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal count
            count += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Wide, "__iter__", counted(Wide.__iter__))
        patch.setattr(Slots, "__init__", counted(Slots.__init__))
        patch.setattr(Wide, "of", counted(Wide.of))
        onnx.save(model, tmp_path / "wide.onnx")
        host = Host(HostOptions(vendors=[VENDORS], plugins=False))
        host.compile(tmp_path / "wide.onnx", tmp_path / "out.onnx")
    return count


@pytest.mark.parametrize("result", [concat, concat_relu, equal_nodes, body])
def test_a_compile_walks_through_a_wide_node_equally_often_at_any_width(
    result: Callable[[int], onnx.ModelProto], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = _walks(result(100), tmp_path, monkeypatch)
    assert few == _walks(result(400), tmp_path, monkeypatch)
    assert few > 0 or result is concat_relu
    monkeypatch.setattr(wide, "_CHUNK", 8)  # the chunks' size changes nothing
    assert few == _walks(result(400), tmp_path, monkeypatch)


def test_the_numbers_of_a_wide_model_stay(tmp_path: Path) -> None:
    for number, result in enumerate((concat, concat_relu, equal_nodes, body)):
        path = tmp_path / f"{number}.onnx"
        onnx.save(result(150), path)
        host = Host(HostOptions(vendors=[VENDORS], plugins=False, verify=True))
        report = host.compile(path, tmp_path / "out.onnx")
        assert report.verify["equal"]
