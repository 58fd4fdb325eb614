"""What a model file must be; tests/hostile has what is refused, here is what is not."""

from __future__ import annotations

import cProfile
import tracemalloc
from pathlib import Path
from types import FunctionType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gehost import Host, HostOptions
from gehost.errors import ModelError
from gehost.ir.files import external
from gehost.ir.files.validate import deprecated_operators, validate
from gehost.ir.model import Model

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Add(x, w) }'


def model(text: str = TEXT, **fields: object) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(
        TensorProto(**{"name": "w", "data_type": 1, "dims": [2], "raw_data": bytes(8), **fields})
    )
    return proto


@pytest.mark.parametrize(
    "shape",
    [None, [2], ["N"], [None]],
    ids=["of any rank", "of its shape", "of a named size", "of an unknown size"],
)
def test_an_initializer_may_be_an_input_whose_type_it_has(shape):
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, shape))
    validate(Model(proto))


def test_below_ir_version_4_it_has_to_be_one():
    proto = model(TEXT.replace("ir_version: 8", "ir_version: 3"))
    with pytest.raises(
        ModelError,
        match='initializer "w" is not among the graph\'s inputs, where IR version 3 wants it',
    ):
        validate(Model(proto))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    validate(Model(proto))


def test_nodes_may_stand_in_any_order():
    validate(
        Model(onnx.parser.parse_model(TEXT.replace("y = Add(x, w)", "y = Neg(a) a = Relu(x)")))
    )


def test_a_domain_that_onnx_does_not_know_may_have_any_version():
    text = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1000]> g (float[N] x) => (float[N] y) { y = acme.Op(x) }'
    validate(Model(onnx.parser.parse_model(text)))


def test_the_model_is_as_it_was():
    proto = model()
    before = proto.SerializeToString(deterministic=True)
    validate(Model(proto))
    assert proto.SerializeToString(deterministic=True) == before


def test_bits_that_are_left_over_must_be_zero():
    validate(Model(model(data_type=TensorProto.INT4, dims=[3], raw_data=b"\x21\x03")))
    with pytest.raises(ModelError, match=r"^the model: onnx.checker: .*tensor name: w.*padding"):
        validate(Model(model(data_type=TensorProto.FLOAT6E2M3, dims=[1], raw_data=b"\xff")))


def external_model(directory: Path, count: int) -> Path:
    """A model whose nodes stand in a body, with ``count`` tensors in one file there and in attributes."""
    np.arange(2, dtype=np.float32).tofile(directory / "w.bin")
    proto = model(name="w", raw_data=b"")
    del proto.graph.initializer[:]
    for number in range(count):
        tensor = proto.graph.initializer.add(
            name=f"w{number or ''}", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value="w.bin")
    constant = proto.graph.node.add(op_type="Constant", output=["k"]).attribute.add(
        name="value", type=onnx.AttributeProto.TENSOR
    )
    constant.t.CopyFrom(proto.graph.initializer[0])
    onnx.save(proto, directory / "m.onnx")
    return directory / "m.onnx"


def test_weights_are_looked_for_beside_the_model_and_not_in_the_working_directory(
    tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    path = external_model(tmp_path, 1)
    monkeypatch.chdir(tmp_path / "elsewhere")
    validate(Model.load(path))
    monkeypatch.chdir(tmp_path)
    validate(Model.load("m.onnx"))


def test_each_file_is_looked_at_once_and_none_is_read(tmp_path, monkeypatch):
    path = external_model(tmp_path, 50)
    looks = []
    monkeypatch.setattr(
        external.os, "lstat", lambda name, look=external.os.lstat: looks.append(name) or look(name)
    )
    monkeypatch.setattr(external.os, "open", None)
    validate(Model.load(path))
    assert looks == [str(tmp_path / "w.bin")]


_BAD = TensorProto(name="bad", data_type=1, dims=[2], raw_data=bytes(4))
_KINDS = onnx.AttributeProto


@pytest.mark.parametrize(
    "attribute",
    [
        _KINDS(name="__note", type=_KINDS.TENSOR, t=_BAD),  # onnx.checker leaves such names alone
        _KINDS(name="__notes", type=_KINDS.TENSORS, tensors=[_BAD]),
        _KINDS(
            name="__sparse",
            type=_KINDS.SPARSE_TENSOR,
            sparse_tensor=onnx.SparseTensorProto(values=_BAD),
        ),
        _KINDS(name="__old", t=_BAD),
        _KINDS(
            name="__body",
            type=_KINDS.GRAPH,
            g=helper.make_graph([], "b", [], [], initializer=[_BAD]),
        ),
    ],
    ids=lambda attribute: attribute.name,
)
@pytest.mark.parametrize("in_body", [False, True], ids=["main graph", "body"])
def test_the_data_of_any_tensor_is_looked_at(attribute, in_body):
    proto = model()
    node = proto.graph.node[0]
    node.attribute.add(name="first", type=_KINDS.INT, i=1)
    node.attribute.append(attribute)
    if in_body:
        body = helper.make_graph([onnx.NodeProto.FromString(node.SerializeToString())], "b", [], [])
        node.CopyFrom(helper.make_node("Op", ["x"], ["y"], domain="acme", body=body))
    with pytest.raises(ModelError, match="tensor 'bad': its raw data has 4 bytes"):
        validate(Model(proto))


GROUPED = """<ir_version: 8, opset_import: ["" : 18{more}]>
g (float[1, 4, N] x{extra}) => (float[1, 4, N] y) {{ {body} }}"""
NODE = "y = GroupNormalization<num_groups = 2>(x, s, b)"


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (GROUPED.format(more="", extra=", float[2] s, float[2] b", body=NODE), False),
        (GROUPED.format(more="", extra=", float[2] s, float[2] b, bool c", body=(
            f"y = If (c) <then_branch = t () => (float[1, 4, N] u) {{ {NODE.replace('y =', 'u =')} }},"
            " else_branch = e () => (float[1, 4, N] v) { v = Neg(x) }>")), False),
        (GROUPED.format(more=', "l" : 1', extra=", float[2] s, float[2] b", body="y = l.F(x, s, b)")
         + f'\n<domain: "l", opset_import: ["" : 18]> F (x, s, b) => (y) {{ {NODE} }}', True),
    ],
    ids=["graph", "body", "function"],
)  # fmt: skip
def test_a_deprecated_operator_is_no_error(text, inside):
    """ONNX Runtime runs GroupNormalization of opset 18 to 20."""
    model = Model(onnx.parser.parse_model(text))
    validate(model)
    assert deprecated_operators(model) == ([] if inside else ["GroupNormalization (opset 18)"])


def test_another_fault_beside_a_deprecated_operator_is_one():
    text = GROUPED.format(more="", extra=", float[2] s, float[2] b", body="a = Nonsense(x) " + NODE)
    with pytest.raises(ModelError, match="Nonsense"):
        validate(Model(onnx.parser.parse_model(text)))


def test_a_deprecated_operator_is_noted_and_its_result_has_a_type():
    text = GROUPED.format(
        more="", extra=", float[2] s, float[2] b", body=NODE.replace("y =", "n =") + " y = Relu(n)"
    )
    result, report = Host(HostOptions(plugins=False, verify=True)).run(
        onnx.parser.parse_model(text)
    )
    assert [node.op_type for node in result.graph.node] == ["GroupNormalization", "Relu"]
    (note,) = (note for note in report.notes if "deprecated" in note)
    assert note == "GroupNormalization (opset 18) is deprecated; it is left as it is"
    assert report.warnings == []


def test_a_model_is_written_once_and_a_large_one_never():
    """Counting a model's bytes writes them, too, which takes time and memory."""
    if not isinstance(validate, FunctionType):
        pytest.skip("a profile sees no calls of machine code")

    def writes(loaded: Model) -> dict[str, int]:
        profile = cProfile.Profile()
        profile.runcall(validate, loaded)
        counts = {str(entry.code): entry.callcount for entry in profile.getstats()}
        return {
            name: sum(count for code, count in counts.items() if f"'{name}' of 'google" in code)
            for name in ("ByteSize", "SerializeToString")
        }

    assert writes(Model(model())) == {"ByteSize": 0, "SerializeToString": 1}
    proto = model()
    for name in "abcdefgh":
        proto.graph.initializer.add(name=name, data_type=3, dims=[1 << 20], raw_data=bytes(1 << 20))
    large = Model(proto)
    large.size = 1 << 27
    tracemalloc.start()
    try:
        assert writes(large)["ByteSize"] == 0
        assert tracemalloc.get_traced_memory()[1] < 4 << 20  # its weights are read one by one
    finally:
        tracemalloc.stop()
