"""What Host.run takes and gives, and how a Report and the modules present themselves."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import gehost
from gehost import Host, ModelError, Report, es
from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] z) <float[2] w = {3.0, 5.0}> { y = Add(x, w)  z = Relu(y) }"""


@pytest.fixture
def swapping(vendors: Any) -> Host:
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs"))
    return vendors.host()


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("kind", [str, Path])
def test_run_takes_a_path_and_gives_a_model_with_its_weights(
    swapping: Host, tmp_path: Path, kind: Any
) -> None:
    path = tmp_path / "m.onnx"
    proto = parse(MODEL)
    weight = onnx.numpy_helper.to_array(proto.graph.initializer[0])
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = path.read_bytes()
    result, report = swapping.run(kind(path))
    assert ops(result) == ["Add", "Abs"]
    assert report.model == str(path)
    (tmp_path / "w.bin").unlink()
    assert onnx.numpy_helper.to_array(result.graph.initializer[0]).tolist() == [3.0, 5.0]
    assert path.read_bytes() == before


def test_a_file_that_is_no_model_is_an_error(swapping: Host, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("no")
    with pytest.raises(ModelError):
        swapping.run(tmp_path / "m.onnx")


def test_run_gives_an_onnx_ir_model_for_one(
    swapping: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model:
        def __init__(self, proto: onnx.ModelProto) -> None:
            self.proto = proto

    stand_in = SimpleNamespace(Model=Model, to_proto=lambda m: m.proto, from_proto=Model)
    monkeypatch.setitem(sys.modules, "onnx_ir", stand_in)
    value = Model(parse(MODEL))
    result, _ = swapping.run(value)
    assert isinstance(result, Model)
    assert (ops(result.proto), ops(value.proto)) == (["Add", "Abs"], ["Add", "Relu"])


def test_a_real_onnx_ir_model_comes_back_compiled(swapping: Host) -> None:
    onnx_ir = pytest.importorskip("onnx_ir")
    value = onnx_ir.from_proto(parse(MODEL))
    result, _ = swapping.run(value)
    assert isinstance(result, onnx_ir.Model)
    assert [node.op_type for node in result.graph] == ["Add", "Abs"]
    assert [node.op_type for node in value.graph] == ["Add", "Relu"]


def test_a_report_is_one_line_and_a_page_in_a_notebook(swapping: Host) -> None:
    _, report = swapping.run(parse(MODEL))
    assert repr(report) == "<Report main: 2 nodes before, 2 after, 1 rewrite>"
    assert repr(Report("m", error="no\nluck")).count("\n") == 0
    page = report._repr_html_()
    assert page.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert "gehost report" in page


def test_dir_lists_the_public_names() -> None:
    assert set(gehost.__all__) <= set(dir(gehost))
    assert {"MatMul", "Softmax", "EsGraphBuilder"} <= set(dir(es))


def test_the_signature_of_an_operator_has_its_inputs_and_attributes() -> None:
    assert str(inspect.signature(es.Relu)) == "(X, *, consumed_inputs=None, num_outputs=None)"
    gemm = inspect.signature(es.Gemm).parameters
    assert list(gemm)[:3] == ["A", "B", "C"]
    assert gemm["C"].default is None
    assert gemm["transB"].kind is inspect.Parameter.KEYWORD_ONLY
    assert str(inspect.signature(es.Concat)).startswith("(*inputs, axis=None")
    assert str(inspect.signature(es.op("acme::SiLU"))) == "(*inputs, **params)"
    for name in es.operator_names(""):
        inspect.signature(getattr(es, name))


def test_nodes_have_a_length_and_positions() -> None:
    graph = gehost.Model(parse(MODEL)).graph
    assert len(graph.nodes) == 2
    assert [graph.nodes[0].op, graph.nodes[-1].op] == ["Add", "Relu"]
    assert [node.op for node in graph.nodes[::-1]] == ["Relu", "Add"]
    assert graph.nodes[np.int64(1)] is next(reversed(graph.nodes))
    assert next(graph.nodes) is graph.nodes[0]
    with pytest.raises(IndexError, match="has 2 nodes, so no index 2"):
        graph.nodes[2]
