"""Each operator under GE's name: what a call writes matches again and says its attributes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from gehost import Host, HostOptions
from gehost_ge.forms import FORMS, RENAMED, SAME

from .operator_calls import CALLS, NOT_CALLED

HERE = Path(__file__).parent


def model_of(name: str, opset: int, dtype: int, batch: int | str) -> onnx.ModelProto:
    """Return a model of one Relu, which the pass takes for the operator."""
    x, y = (make_tensor_value_info(v, dtype, [batch, 4, 4, 4]) for v in "xy")
    node = make_node("Relu", ["x"], ["y"], name=name)
    ir = 8 if opset < 22 else 11
    return make_model(
        make_graph([node], "g", [x], [y]), opset_imports=[make_opsetid("", opset)], ir_version=ir
    )


def cut(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model up to the operator's results, which are its outputs."""
    graph = model.graph
    ends = {
        initializer.name
        for initializer in graph.initializer
        if onnx.numpy_helper.to_array(initializer).tolist() == [1, -1, 1, 1, 1, 1]
    }
    results = [node.input[0] for node in graph.node if {*node.input[1:2]} & ends]
    producers = {output: node for node in graph.node for output in node.output}
    needed: list[onnx.NodeProto] = []

    def visit(name: str) -> None:
        node = producers.get(name)
        if node is not None and node not in needed:
            for read in node.input:
                visit(read)
            needed.append(node)

    for result in results:
        visit(result)
    del graph.node[:], graph.output[:], graph.value_info[:]
    graph.node.extend(needed)
    read = {name for node in needed for name in node.input}
    for initializer in list(graph.initializer):
        if initializer.name not in read:
            graph.initializer.remove(initializer)
    types = {
        value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    for result in dict.fromkeys(results):
        element = types[result].type.tensor_type.elem_type
        graph.output.append(make_tensor_value_info(result, element, None))
    return model


def run(model: onnx.ModelProto, batch: int) -> list[Any] | None:
    """Return the outputs, None if the runtime does not run the model."""
    x = np.random.default_rng(0).uniform(-0.9, 0.9, (batch, 4, 4, 4))
    (value,) = model.graph.input
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, {"x": x.astype(dtype)})
    except Exception:  # noqa: BLE001 - of a kernel that it lacks, or a size of 0
        return None


def check(host: Host, folder: Path, name: str, opset: int, dtype: int, batch: int | str) -> str:
    """Return what happened: ``equal``, ``refused: …``, or why nothing could be compared."""
    os.environ["OPERATOR"] = name
    os.environ.pop("CHANGED", None)
    onnx.save(model_of(name, opset, dtype, batch), folder / "relu.onnx")
    report = host.compile(folder / "relu.onnx", folder / "operator.onnx")
    records = {record.name: record for record in report.passes}
    if not records["Build"].replaced:
        return f"not written: {dict(records['Build'].rejected)}"
    model = cut(onnx.load(folder / "operator.onnx"))
    onnx.save(model, folder / "operator.onnx")
    if (refused := _again(host, folder)) != {"no change": 1}:
        return f"refused: {refused}"
    os.environ["CHANGED"] = "1"
    if refused := _again(host, folder):
        return f"refused when it changes: {refused}"
    size = batch if isinstance(batch, int) else 2
    outputs = run(model, size)
    if outputs is None:
        return "not run"
    repeated = run(onnx.load(folder / "again.onnx"), size)
    assert repeated is not None, f"{name}: the result does not run"
    for first, second in zip(outputs, repeated, strict=True):
        assert first.dtype == second.dtype, name
        assert np.array_equal(first, second, equal_nan=first.dtype.kind == "f"), name
    return "equal"


def _again(host: Host, folder: Path) -> dict[str, int]:
    """Let the pass take its turn; return why it replaced nothing."""
    report = host.compile(folder / "operator.onnx", folder / "again.onnx")
    record = {record.name: record for record in report.passes}["Again"]
    return {} if record.replaced else dict(record.rejected) or {"not matched": 1}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    passes = tmp_path_factory.mktemp("passes") / "round_trip.py"
    passes.write_text((HERE / "round_trip.py.txt").read_text())
    return Host(HostOptions(pass_paths=[passes], cleanup=False))


FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
SMALL = [
    (
        name,
        18 if name == "Resize" else (11, 13, 17, 21)[index % 4],
        (FLOAT, FLOAT16)[index % 2],
        "N",
    )
    for index, name in enumerate(sorted(CALLS.keys() - SAME.keys() - RENAMED.keys()))
]
"""Operators with attributes once; ``make nightly`` has all, and all opsets, types and sizes."""
ALL = [
    (opset, dtype, batch)
    for opset in (11, 13, 17, 21, 24)
    for dtype in (FLOAT, FLOAT16)
    for batch in (2, 0, "N")
]


def test_each_operator_has_a_call() -> None:
    assert CALLS.keys() | NOT_CALLED == FORMS.keys()
    for name, form in FORMS.items():
        parameters = form.signature.parameters
        attributes = {key for key, entry in parameters.items() if not form.is_input(entry)}
        structure = {"outputs", "alpha", "beta"} if name in ("Split", "GEMM") else set[str]()
        if name not in NOT_CALLED and form.onnx:
            assert attributes - structure - {"offset_w"} == form.attributes.keys() - {"offset_w"}


def test_each_operator_matches_what_it_writes(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR", "")
    monkeypatch.setenv("CHANGED", "")
    outcomes = {case[0]: check(host, tmp_path, *case) for case in SMALL}
    assert [name for name, outcome in outcomes.items() if outcome.startswith("refused")] == []
    assert outcomes["Resize"] == "equal"
    assert sum(outcome == "equal" for outcome in outcomes.values()) > 60


@pytest.mark.nightly
@pytest.mark.parametrize(("opset", "dtype", "batch"), ALL)
def test_each_operator_matches_at_every_opset(
    opset: int,
    dtype: int,
    batch: int | str,
    host: Host,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPERATOR", "")
    monkeypatch.setenv("CHANGED", "")
    outcomes = {name: check(host, tmp_path, name, opset, dtype, batch) for name in sorted(CALLS)}
    refused = {name for name, outcome in outcomes.items() if outcome.startswith("refused")}
    assert refused == ({"Resize"} if opset == 11 else set()), outcomes  # where it has roi
    assert sum(outcome == "equal" for outcome in outcomes.values()) > 110
