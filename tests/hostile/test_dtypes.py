"""Tensors of every element type go through a compile with every bit as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from gehost.ir.tensors import nbytes
from tests.hostile.conftest import without_warnings

DTYPES = {name: number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"}
COUNT = 8
"""Of any element size it fills whole bytes."""


def tensor(name: str, number: int, *, raw: bool) -> TensorProto:
    """Bits at random in the raw field, zeros and ones in the typed one."""
    result = TensorProto(name=name, data_type=number, dims=[2, COUNT // 2])
    if number == TensorProto.STRING:
        result.string_data.extend(
            [b"", b"a", b"\xff\xfe", "ünï".encode(), b"\0", b"a\0", b"\n", b"x" * 1000]
        )
        return result
    content = (
        np.random.default_rng(number)
        .integers(0, 2 if number == TensorProto.BOOL else 256, nbytes(result), np.uint8)
        .tobytes()
    )
    result.raw_data = content
    if not raw:
        field = helper.tensor_dtype_to_field(number)
        entries = {
            "int32_data": np.int32,
            "int64_data": np.int64,
            "uint64_data": np.uint64,
            "float_data": np.float32,
        }
        result.ClearField("raw_data")
        getattr(result, field).extend(
            (np.arange(_entries(number)) % 2).astype(entries.get(field, np.float64)).tolist()
        )
    return result


def _entries(number: int) -> int:
    bits = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}.get(
        TensorProto.DataType.Name(number), 8
    )
    return (
        COUNT * bits // 8 * (2 if number in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1)
    )


def model(number: int, *, raw: bool) -> ModelProto:
    """An initializer, a ``Constant``, one in a body, an input and their outputs, of one element type."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["p"])], "b", [], [_info("p", number)]
    )
    body.initializer.append(tensor("inner", number, raw=raw))
    nodes = [
        helper.make_node("Identity", ["x"], ["from_input"]),
        helper.make_node("Identity", ["w"], ["from_initializer"]),
        helper.make_node("Constant", [], ["from_constant"], value=tensor("k", number, raw=raw)),
        helper.make_node("If", ["c"], ["from_body"], then_branch=body, else_branch=body),
    ]
    inputs = [_info("x", number), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    outputs = [_info(node.output[0], number) for node in nodes]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [tensor("w", number, raw=raw)])
    newest = onnx.defs.onnx_opset_version()
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", newest)], ir_version=onnx.IR_VERSION
    )


def _info(name: str, number: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, number, [2, COUNT // 2])


def payloads(proto: ModelProto) -> set[bytes]:
    """The elements of all tensors, with the fields that hold them, whatever the tensors are called."""
    actual: set[bytes] = set()
    waiting: list[GraphProto] = [proto.graph]
    while waiting:
        graph = waiting.pop()
        tensors = list(graph.initializer)
        for node in graph.node:
            tensors += [entry.t for entry in node.attribute if entry.HasField("t")]
            waiting += [entry.g for entry in node.attribute if entry.HasField("g")]
        for entry in tensors:
            entry.ClearField("name")
            actual.add(entry.SerializeToString(deterministic=True))
    return actual


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("number", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("options", [(), ("--no-cleanup",)], ids=["cleaned", "as it is"])
def test_every_element_type_keeps_its_bits(gehost_run, tmp_path: Path, number, raw, options):
    proto = model(number, raw=raw)
    onnx.checker.check_model(proto)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    dump = ("--dump", tmp_path / "dumps", "--dump-level", "1", "--dump-format", "onnx")
    code, _, err = gehost_run(
        "compile", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx", *dump, *options
    )
    assert (code, without_warnings(err)) == (0, "")
    compiled = onnx.load(tmp_path / "out.onnx")
    assert list(compiled.graph.input) == list(proto.graph.input)
    assert list(compiled.graph.output) == list(proto.graph.output)
    onnx.checker.check_model(compiled)
    expected = payloads(proto)
    assert payloads(compiled) == expected
    assert (
        payloads(onnx.load(tmp_path / "dumps" / "ge_onnx_00000005_graph_0_Build.onnx")) == expected
    )


@pytest.mark.parametrize("number", [1, 10, 11, 7, 6, 9, 14, 2, 8], ids=TensorProto.DataType.Name)
def test_sparse_tensors_keep_their_bits(gehost_run, tmp_path: Path, number):
    values = tensor("s", number, raw=True)
    del values.dims[:]
    values.dims.append(COUNT)
    indices = numpy_helper.from_array(np.arange(COUNT, dtype=np.int64) * 3, "i")
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", number, [50])],
    )
    for sparse in (graph.sparse_initializer.add(dims=[50]),):
        sparse.values.CopyFrom(values)
        sparse.indices.CopyFrom(indices)
    graph.node.add(op_type="Constant", output=["k"]).attribute.append(
        helper.make_attribute("sparse_value", graph.sparse_initializer[0])
    )
    graph.output.append(helper.make_tensor_value_info("k", number, [50]))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    code, _, err = gehost_run("compile", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx")
    assert (code, err) == (0, "")
    compiled = onnx.load(tmp_path / "out.onnx").graph
    assert compiled.sparse_initializer[0] == graph.sparse_initializer[0]
    (rest,) = (node for node in compiled.node if node.output[0] == "k")
    assert rest.attribute[0].sparse_tensor == graph.sparse_initializer[0]
