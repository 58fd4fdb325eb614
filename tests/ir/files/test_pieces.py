"""What is written of a model with edits is what its protobuf would be serialized to."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost.errors import ModelError, OutputError
from gehost.ir import model as model_module
from gehost.ir.files import save
from gehost.ir.files.pieces import pieces_with_nodes
from gehost.ir.graph import Value
from gehost.ir.model import Model

MODELS = Path(__file__).parents[1] / "models"
TEXT = '<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] o) { [n0] a = Relu(x) [n1] b = Abs(a) o = Exp(b) }'


def parsed(text: str = TEXT) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def in_pieces(proto: onnx.ModelProto) -> bytes | None:
    pieces = pieces_with_nodes(proto, proto.graph.node)
    return None if pieces is None else b"".join(pieces)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_models_are_the_same_in_pieces(path: Path) -> None:
    proto = onnx.load(path, load_external_data=False)
    assert in_pieces(proto) == proto.SerializeToString()


def _zeros(proto: onnx.ModelProto) -> None:
    proto.ir_version, proto.model_version, proto.doc_string, proto.graph.name = 0, 0, "", ""


def _negative(proto: onnx.ModelProto) -> None:
    proto.model_version = -1


def _empty_messages(proto: onnx.ModelProto) -> None:
    graph = proto.graph
    for entries in (
        graph.node,
        graph.initializer,
        graph.sparse_initializer,
        graph.input,
        graph.value_info,
    ):
        entries.add()
    for entries in (
        graph.quantization_annotation,
        graph.metadata_props,
        proto.functions,
        proto.training_info,
    ):
        entries.add()


def _long_ones(proto: onnx.ModelProto) -> None:
    graph = proto.graph
    for length in (127, 128, 16_383, 16_384, 2_097_152):
        graph.node.add(op_type="Relu", doc_string="d" * length)
        graph.initializer.add(name="w", raw_data=bytes(length))
    graph.doc_string = "ü" * 100


def _no_graph(proto: onnx.ModelProto) -> None:
    proto.ClearField("graph")


def _empty_graph(proto: onnx.ModelProto) -> None:
    proto.graph.Clear()


def _nothing(proto: onnx.ModelProto) -> None:
    proto.Clear()


def _later_fields(proto: onnx.ModelProto) -> None:
    proto.metadata_props.add(key="k", value="v")
    proto.functions.add(name="f", domain="d").node.add(op_type="Relu")
    proto.training_info.add().initialization.name = "t"
    proto.graph.sparse_initializer.add().values.name = "s"


def _not_utf8(proto: onnx.ModelProto) -> None:
    proto.MergeFromString(b"\x12\x02\xff\xfe")  # producer_name
    proto.graph.MergeFromString(b"\x52\x01\xff")  # doc_string
    assert isinstance(proto.producer_name, bytes)


def _unknown_in_a_node(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].MergeFromString(UNKNOWN)


UNKNOWN = b"\xf8\x3f\x07"  # field 1023 is 7
CASES = [
    _zeros,
    _negative,
    _empty_messages,
    _long_ones,
    _empty_graph,
    _later_fields,
    _not_utf8,
    _unknown_in_a_node,
]


@pytest.mark.parametrize(
    "change", [*CASES, _no_graph, _nothing], ids=lambda change: change.__name__[1:]
)
def test_what_protobuf_can_hold_is_the_same_in_pieces(
    change: Callable[[onnx.ModelProto], None],
) -> None:
    proto = parsed()
    change(proto)
    assert in_pieces(proto) == proto.SerializeToString()


def test_fields_that_onnx_does_not_know_are_left_to_protobuf() -> None:
    in_model, in_graph = parsed(), parsed()
    in_model.MergeFromString(UNKNOWN)
    in_graph.graph.MergeFromString(UNKNOWN)
    assert (in_pieces(in_model), in_pieces(in_graph)) == (None, None)


def _unknown(proto: onnx.ModelProto) -> None:
    proto.MergeFromString(UNKNOWN)
    proto.graph.MergeFromString(UNKNOWN)


@pytest.mark.parametrize(
    "change",
    [_zeros, _negative, _later_fields, _not_utf8, _unknown],
    ids=lambda change: change.__name__[1:],
)
def test_a_loaded_model_holds_all_that_the_file_has(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    proto, path = parsed(), tmp_path / "m.onnx"
    change(proto)
    path.write_bytes(proto.SerializeToString())
    assert Model.load(path).proto.SerializeToString() == path.read_bytes()


@pytest.fixture
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "LARGE", 0)


def edited(seed: int, proto: onnx.ModelProto) -> Model:
    rng, model = random.Random(seed), Model(proto)
    graph = model.graph
    extra = [graph.add_node("Neg", [graph.values["x"]], ["m"], after=next(graph.nodes))]
    constants: list[Value] = []
    for step in range(30):
        if rng.random() < 0.6:
            after = rng.choice([*extra, None])
            extra.append(
                graph.add_node(
                    "Neg", [graph.values["x"]], [f"v{step}"], name=f"v{step}", after=after
                )
            )
            constants.append(graph.add_initializer(np.full(2, step, np.float32), f"c{step}"))
        elif extra and constants:
            graph.remove_node(extra.pop(rng.randrange(len(extra))))
            graph.remove_initializer(constants.pop(rng.randrange(len(constants))))
    return model


@pytest.mark.parametrize("large", [0, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_a_model_with_edits_is_written_as_it_would_be_once_its_protobuf_is_in_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, large: int
) -> None:
    monkeypatch.setattr(model_module, "LARGE", large)
    path, proto = tmp_path / "m.onnx", parsed()
    if seed == 4:
        proto.graph.MergeFromString(UNKNOWN)
    model = edited(seed, proto)
    model.save(path)
    assert model.graph.dirty == (seed != 4 and not large)
    model.check()
    assert path.read_bytes() == model.flush().SerializeToString()
    model.save(path)
    assert path.read_bytes() == model.proto.SerializeToString()


@pytest.mark.usefixtures("_large")
def test_edits_in_bodies_and_new_functions_are_written_too(tmp_path: Path) -> None:
    model = Model(
        parsed("""<ir_version: 10, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] o) {
            o = If(c) <then_branch = t () => (float[2] p) { q = Abs(x) p = Neg(x) }, else_branch = e () => (float[2] r) { r = Neg(x) }>
        }""")
    )
    body = model.graph.subgraphs()[0]
    body.remove_nodes(body.nodes_of("Abs"))
    body.add_node("d::F", [model.graph.values["x"]], ["s"])
    model.offer_function(
        "d::F", onnx.FunctionProto(name="F", domain="d", input=["a"], output=["b"])
    )
    model.graph.add_node("Neg", [model.graph.values["x"]], ["m"])
    model.save(tmp_path / "m.onnx")
    assert model.graph.dirty
    assert (tmp_path / "m.onnx").read_bytes() == model.flush().SerializeToString()
    assert len(model.proto.functions) == 1
    assert [node.op_type for node in model.proto.graph.node[1].attribute[0].g.node] == ["F", "Neg"]


@pytest.mark.usefixtures("_large")
def test_external_data_of_a_model_with_edits_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    proto = parsed()
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.arange(2, dtype=np.float32), "w")
    )
    proto.graph.node.add(op_type="Add", input=["a", "w"], output=["u"])
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0
    )
    model = Model.load(tmp_path / "m.onnx")
    model.graph.remove_nodes(model.graph.nodes_of("Add"))
    model.save(tmp_path / "out" / "m.onnx")
    saved = onnx.load(tmp_path / "out" / "m.onnx")
    assert onnx.numpy_helper.to_array(saved.graph.initializer[0]).tolist() == [0, 1]


@pytest.mark.usefixtures("_large")
def test_what_keeps_a_model_with_edits_from_being_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = edited(0, parsed())
    with pytest.raises(OutputError, match="there is no directory"):
        model.save(tmp_path / "none" / "m.onnx")
    monkeypatch.setattr(save, "_PROTOBUF_LIMIT", 100)
    with pytest.raises(ModelError, match="2 GiB"):
        model.save(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
