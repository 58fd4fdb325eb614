"""Passes ask for kernels of the types that a compile with ``half`` leaves in the file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import DataType, Host, kernels
from gehost.cli import run as command
from gehost.kernels import Target

from .test_past import ASSUMED
from .test_past import model as cached

RUNTIME = "onnxruntime"
SIMPLIFIED = "com.microsoft::SkipSimplifiedLayerNormalization"


def norm(kind: str, *, dtype: str = "float", extra: str = "") -> onnx.ModelProto:
    """Return a residual sum and its norm."""
    parts = {
        "layer": "y = LayerNormalization <epsilon = 1e-5> (s, g, b)",
        "rms": """p = Pow (s, two) m = ReduceMean <axes = [-1]> (p) e = Add (m, eps) r = Sqrt (e)
            n = Div (s, r) y = Mul (n, g)""",
    }
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g ({dtype}[2, 3, 8] x, {dtype}[2, 3, 8] z) => ({dtype}[2, 3, 8] y)
        <{dtype}[8] g = {{1, 2, 3, 4, 5, 6, 7, 8}}, {dtype}[8] b = {{1, 2, 3, 4, 5, 6, 7, 8}},
        float two = {{2}}, float eps = {{1e-5}}>
        {{ {extra} s = Add (x, z) {parts[kind]} }}"""
    )


def count(model: onnx.ModelProto, op: str) -> int:
    return Counter(node.op_type for node in model.graph.node)[op]


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


@pytest.mark.parametrize("text", ["", "cpu", "cpu:1.24", "cuda", "cuda:1.22", "cuda:1.24"])
def test_each_kernel_is_that_of_the_type_in_the_file(text: str) -> None:
    """Rows of the table differ by type: releases, precision, attributes, or no kernel at all."""
    plain = Target.of(text)
    half = plain.in_half()
    for operator in sorted({row.operator for row in kernels.kernels()}):
        for before, after in (
            (DataType.FLOAT, DataType.FLOAT16),
            (DataType.FLOAT16, DataType.FLOAT16),
            (DataType.BFLOAT16, DataType.BFLOAT16),
            (None, None),
        ):
            expected = plain.kernel(operator, after, RUNTIME)
            assert half.kernel(operator, before, RUNTIME) == expected
            for arguments in ({}, {"empty": True}, {"attributes": ["local_window_size"]}):
                reason: Any = plain.why_not(operator, after, RUNTIME, **arguments)
                assert half.why_not(operator, before, RUNTIME, **arguments) == reason
        for name in (operator, operator.rpartition("::")[2]):
            stays = plain.in_half([name])
            expected = plain.kernel(operator, DataType.FLOAT, RUNTIME)
            assert stays.kernel(operator, DataType.FLOAT, RUNTIME) == expected


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("io", [False, True])
def test_residual_norms_need_the_precision_of_half(host: Host, kind: str, io: bool) -> None:
    """Older kernels of CUDA hold epsilon in half."""
    op = f"Skip{'' if kind == 'layer' else 'Simplified'}LayerNormalization"
    for target, fused in (("cuda:1.24", 0), ("cuda", 1), ("cpu:1.24", 1)):
        there = host.with_options(target=target)
        result, report = there.with_options(half=True, keep_io_types=io).run(norm(kind))
        assert count(result, op) == fused, target
        expected = {"cuda": "onnxruntime>=1.31.1", "cpu:1.24": "onnxruntime>=1.21.1"}.get(target)
        assert metadata(result).get("gehost.needs") == expected
        assert report.needs == ([expected] if expected else [])
        refused = {key for record in report.passes for key in record.rejected}
        assert fused or "precision" in refused
        plain, _ = there.run(norm(kind))
        assert count(plain, op) == 1


def test_an_operator_that_stays_in_float32_has_its_kernel(host: Host) -> None:
    options = replace(host.options, target="cuda:1.24", half=True, keep_float32=[SIMPLIFIED])
    result, report = Host(options).run(norm("rms"))
    assert count(result, "SkipSimplifiedLayerNormalization") == 1
    assert report.needs == ["onnxruntime>=1.21.1"]


def test_a_norm_out_of_range_needs_the_kernel_of_float32(host: Host, tmp_path: Path) -> None:
    """What the file needs is known when it is: numbers decide what stays in float32."""
    x = np.full((2, 3, 8), 7e4, np.float32)
    np.savez(tmp_path / "feeds.npz", x=x, z=x)
    options = replace(host.options, target="cuda", half=True, verify=True)
    result, report = Host(replace(options, feeds=tmp_path / "feeds.npz")).run(norm("layer"))
    assert count(result, "SkipLayerNormalization") == 1
    (kept,) = report.kept_float32["numbers outside of float16's range"]
    assert kept.startswith("SkipLayerNormalization ")
    assert report.needs == ["onnxruntime>=1.21.1"]


def test_attention_that_cuda_has_in_half_alone(host: Host) -> None:
    options = replace(host.options, target="cuda", assume=ASSUMED)
    model = cached(batch="1")
    assert not count(Host(options).run(model)[0], "GroupQueryAttention")
    half = replace(options, half=True)
    result, report = Host(half).run(model)
    assert count(result, "GroupQueryAttention") == 1
    assert report.needs == ["onnxruntime>=1.21.1"]
    result, report = Host(replace(half, keep_float32=["GroupQueryAttention"])).run(model)
    assert not count(result, "GroupQueryAttention")


def test_a_kernel_of_half_alone_that_stays_in_float32_is_named(host: Host) -> None:
    """The name of the node is known after the pass only."""
    options = replace(host.options, target="cuda", assume=ASSUMED, half=True)
    model = cached(batch="1")
    result, _ = Host(options).run(model)
    (node,) = [node for node in result.graph.node if node.op_type == "GroupQueryAttention"]
    _, report = Host(replace(options, keep_float32=[node.name])).run(model)
    expected = f'half: GroupQueryAttention "{node.name}" has no kernel of float32 on cuda'
    assert any(note.startswith(expected) for note in report.notes)


def test_a_model_in_half_is_fused_by_its_own_types(host: Host) -> None:
    """It is not converted, also where its half tensors are dead and the clean-up removes them."""
    options = replace(host.options, target="cuda:1.24", half=True)
    result, _ = Host(options).run(norm("layer", dtype="float16"))
    assert not count(result, "SkipLayerNormalization")
    model = norm("layer", extra="unread = Cast <to = 10> (x)")
    result, report = Host(options).run(model)
    assert count(result, "SkipLayerNormalization") == 1
    assert result.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert any("tensors of float16 already" in note for note in report.notes)
    assert report.needs == ["onnxruntime>=1.21.1"]


def test_the_command_line_says_and_writes_the_same(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(norm("layer"), tmp_path / "m.onnx")
    vendors, passes = host.options.vendors, ["--enable", "OrtSkipNormPass"]
    for target, needs in (("cuda:1.24", None), ("cuda", "onnxruntime>=1.31.1")):
        words = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), *passes]
        words += ["--vendors", str(next(iter(vendors))), "--half", "--target", target]
        assert command(words) == 0
        assert (f"needs {needs}, target cuda" in capsys.readouterr().out) == bool(needs)
        assert metadata(onnx.load(tmp_path / "o.onnx")).get("gehost.needs") == needs
