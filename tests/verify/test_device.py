"""Runs on an execution provider, as far as the CPU shows them."""

from __future__ import annotations

import importlib
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gehost import ModelError, UsageError
from gehost.testing import parse
from gehost.verify import Baseline
from gehost.verify.device import Placement, check_provider, placement_of, run_on_device
from gehost.verify.room import NoRoomError

onnxruntime = pytest.importorskip("onnxruntime")
compare_module = importlib.import_module("gehost.verify.compare")  # its function has its name
HEAD = '<ir_version: 10, opset_import: ["": 21]>'


def test_a_provider_that_is_not_there_is_named_with_its_package() -> None:
    with pytest.raises(UsageError) as missing:
        check_provider("dml")
    message = str(missing.value)
    assert message.startswith(f"provider 'dml': ONNX Runtime {onnxruntime.__version__} here has ")
    assert "cpu" in message
    assert "onnxruntime-directml in place of onnxruntime" in message
    assert check_provider("cpu") == check_provider("CPUExecutionProvider")


@pytest.mark.parametrize("name", ["float", "float16", "bfloat16"])
def test_outputs_are_those_of_the_model(name: str) -> None:
    kinds: dict[str, Any] = {"float": np.float32, "bfloat16": ml_dtypes.bfloat16}
    kind = kinds.get(name, np.float16)
    if name == "bfloat16":  # as each kernel of the CPU is of float32, only a cast runs
        body = "a = Cast <to = 1> (x) b = Add (a, a) y = Cast <to = 16> (b)"
    else:
        body = "y = Add (x, x)"
    model = parse(f"{HEAD} g ({name}[n, 2] x) => ({name}[n, 2] y) {{ {body} }}")
    feeds = [{"x": np.full((rows, 2), 1.5).astype(kind)} for rows in (1, 3)]
    outputs, placed = run_on_device(model, None, "cpu", feeds)
    assert [output["y"].shape for output in outputs] == [(1, 2), (3, 2)]
    assert all((output["y"] == 3).all() for output in outputs)
    assert placed.nodes >= 1
    assert not placed.elsewhere


def test_nodes_elsewhere_and_copies_are_counted() -> None:
    def event(name: str, op: str, provider: str) -> dict[str, Any]:
        args = {"op_name": op, "provider": f"{provider}ExecutionProvider"}
        return {"cat": "Node", "name": f"{name}_kernel_time", "args": args}

    events = [
        {"cat": "Session", "name": "model_run"},
        event("a", "MatMul", "CPU"),
        event("b", "Shape", "CUDA"),
        event("c", "Shape", "CUDA"),
        event("Memcpy", "MemcpyToHost", "CUDA"),
    ]
    placed = placement_of(json.dumps(events), "cpu")
    assert placed == Placement(3, (("Shape", "b"), ("Shape", "c")), 1)
    assert str(placed) == "1 of 3 nodes, elsewhere 2 Shape; 1 copy"


def test_the_numbers_of_a_device_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is wrong for one model: rule 1 does not see it, the run there does."""
    head = f"{HEAD} g (float[n, 8] x) => (float[n, 8] y)"
    model, other = (
        parse(f"{head} {{ {body} }}")
        for body in ("a = Exp (x) y = Neg (a)", "a = Exp (x) b = Neg (a) y = Identity (b)")
    )
    monkeypatch.setattr(compare_module, "check_provider", lambda name: name)
    placed = Placement(2, (("Neg", "n"),), 1)
    factor = 1.0

    def on_device(source: Any, *_: Any) -> Any:
        wrong = factor if len(source.graph.node) == 3 else 1.0
        runs = compare_module.Runner(source)
        return [{"y": runs.run(feeds)["y"] * np.float32(wrong)} for feeds, _ in base.runs], placed

    monkeypatch.setattr(compare_module, "run_on_device", on_device)
    base = Baseline.of(model, provider="cuda")
    result = base.against(other)
    assert result.equal
    assert "on cuda: 1 of 2 nodes, elsewhere 1 Neg; 1 copy, and 1 of 2 nodes" in result.summary()
    factor = 1.1
    result = Baseline.of(model, provider="cuda").against(other)
    assert not result.equal
    assert result.rule == "rows, also on cuda"


def test_a_failure_on_the_device_is_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"{HEAD} g (float[n, 8] x) => (float[n, 8] y)"
    model, other = (parse(f"{head} {{ y = {op} (x) }}") for op in ("Exp", "Exp"))
    monkeypatch.setattr(compare_module, "check_provider", lambda name: name)
    broken = other

    def on_device(source: Any, *_: Any) -> Any:
        if source is broken:
            raise ModelError("does not run on cuda: no kernel")
        runs = compare_module.Runner(source)
        return [runs.run(feeds) for feeds, _ in base.runs], Placement(1, (), 0)

    monkeypatch.setattr(compare_module, "run_on_device", on_device)
    base = Baseline.of(model, provider="cuda")
    result = base.against(other)
    assert not result.equal
    assert "model 'g' does not run on cuda: no kernel" in result.summary()
    broken = model
    with pytest.raises(ModelError, match="model 'g' does not run on cuda: no kernel"):
        Baseline.of(model, provider="cuda").against(other)


@pytest.mark.parametrize(
    ("kind", "options", "rule"),
    [
        ("float", {"rtol": 1e-2}, "the given tolerances, also on cuda"),
        ("double", {}, "tolerances by type, also on cuda"),
        ("float", {}, "rows, also on cuda"),
    ],
)
def test_each_rule_also_decides_on_the_device(
    kind: str, options: dict[str, float], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = f"{HEAD} g ({kind}[n, 8] x) => ({kind}[n, 8] y)"
    model, other = (parse(f"{head} {{ y = {body} }}") for body in ("Neg (x)", "Sub (x, x)"))
    same = parse(f"{head} {{ a = Neg (x) y = Identity (a) }}")
    monkeypatch.setattr(compare_module, "check_provider", lambda name: name)
    factor = 1.0

    def on_device(source: Any, *_: Any) -> Any:
        runs = compare_module.Runner(source)
        wrong = factor if len(source.graph.node) == 2 else 1.0
        return [{"y": runs.run(f)["y"] * wrong} for f, _ in base.runs], Placement(1, (), 0)

    monkeypatch.setattr(compare_module, "run_on_device", on_device)
    base = Baseline.of(model, provider="cuda", **options)
    result = base.against(same)
    assert result.equal
    assert f"decided by {rule}" in result.summary()
    differ = base.against(other)
    assert not differ.equal
    assert "not compared on cuda, as they differ on the CPU" in differ.summary()
    factor = 1.1
    base = Baseline.of(model, provider="cuda", **options)
    result = base.against(same)
    assert not result.equal
    assert result.rule == rule


def test_a_device_that_is_not_judged_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(f"{HEAD} g (float[n, 8] x) => (float[n, 8] y) {{ y = Neg (x) }}")
    monkeypatch.setattr(compare_module, "check_provider", lambda name: name)

    def on_device(source: Any, *_: Any) -> Any:
        runs = compare_module.Runner(source)
        return [runs.run(feeds) for feeds, _ in base.runs], Placement(1, (), 0)

    def no_room(_: Any) -> Any:
        raise NoRoomError("its run in float64 needs 1 GiB of memory, and 0 MiB are free")

    monkeypatch.setattr(compare_module, "run_on_device", on_device)
    monkeypatch.setattr(compare_module.Forms, "precise", no_room)
    base = Baseline.of(model, provider="cuda")
    assert "not judged on cuda: its run in float64 needs 1 GiB" in base.against(model).summary()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("cuda", "install the package onnxruntime-gpu in place of onnxruntime"),
        ("cud", "did you mean cuda? install the package onnxruntime-gpu in place of onnxruntime"),
        ("gpu", "did you mean cuda? install the package onnxruntime-gpu in place of onnxruntime"),
        ("OpenVIN", "did you mean openvino? install the package onnxruntime-openvino"),
        ("cpuu", "did you mean cpu?"),
        ("nosuch", "other packages have others: cuda in onnxruntime-gpu, dml in"),
    ],
)
def test_a_provider_that_is_not_there_comes_with_advice(
    monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    names = ["CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    with pytest.raises(UsageError) as error:
        check_provider(name)
    assert f"here has cpu; {advice}" in str(error.value)
