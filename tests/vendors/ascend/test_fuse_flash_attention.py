"""One flash attention for every export: fires, keeps numbers, refuses by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.verify import compare

NAME = "FlashAttentionFusionPass"
MODELS = Path(__file__).parents[2] / "models"
CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "models"
LAYERS = {"bert": 12, "gpt2": 12, "llama": 16, "t5_encoder": 12, "vit": 12}


@pytest.fixture(scope="module")
def host(ascend: Any) -> Host:
    return Host(HostOptions(vendors=[ascend.root], plugins=False, enable=[NAME]))


def kernels(model: onnx.ModelProto) -> tuple[int, int]:
    """Calls of the kernel, and Softmax operators that stay."""
    counts = Counter(node.op_type for node in model.graph.node)
    return counts["FlashAttention"], counts["Softmax"]


@pytest.mark.parametrize("name", ["bert.ts17", "bert.dyn20", "gpt2.ts17", "llama.ts17", "vit.ts17"])
def test_every_export_gets_the_kernel(host: Host, name: str, tmp_path: Path) -> None:
    source, target = MODELS / f"{name}.onnx", tmp_path / "out.onnx"
    host.compile(str(source), str(target))
    result = onnx.load(target)
    assert kernels(result) == (2, 0)
    assert compare(source, target).equal
    again, report = host.run(result)
    assert kernels(again) == (2, 0)
    assert not any(record.replaced for record in report.passes)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("name", sorted(path.stem for path in CORPUS.glob("*.onnx")))
def test_the_corpus(host: Host, name: str) -> None:
    layers = LAYERS.get(name.split(".")[0].split("_sdpa")[0].split("_past")[0], 0)
    result, _ = host.run(onnx.load(CORPUS / f"{name}.onnx"))
    assert kernels(result)[0] == layers


@pytest.mark.parametrize(
    ("head", "value", "scores", "reason"),
    [
        (128, 128, "s = MatMul (q, kt)", None),
        (160, 160, "s = MatMul (q, kt)", "head size"),
        (64, 32, "s = MatMul (q, kt)", "value size"),
        (8, 8, "m = MatMul (q, kt) s = Tanh (m)", "softcap"),
    ],
)
def test_what_the_kernel_takes(
    host: Host, ascend: Any, head: int, value: int, scores: str, reason: str | None
) -> None:
    model = ascend.model(
        f"""g (float[B, 2, S, {head}] q, float[B, 2, T, {head}] k, float[B, 2, T, {value}] v)
        => (float[B, 2, S, {value}] y) {{
            kt = Transpose <perm = [0, 1, 3, 2]> (k) {scores} p = Softmax <axis = -1> (s)
            y = MatMul (p, v) }}"""
    )
    result, report = host.run(model)
    (record,) = [one for one in report.passes if one.name == NAME]
    assert list(record.rejected) == ([] if reason is None else [reason])
    assert kernels(result) == ((1, 0) if reason is None else (0, 1))
    rng = np.random.default_rng(0)
    feeds = {
        "q": rng.normal(size=(2, 2, 3, head)).astype(np.float32),
        "k": rng.normal(size=(2, 2, 5, head)).astype(np.float32),
        "v": rng.normal(size=(2, 2, 5, value)).astype(np.float32),
    }
    for output, actual in zip(
        ascend.outputs(model, feeds), ascend.outputs(result, feeds), strict=True
    ):
        np.testing.assert_allclose(actual, output, rtol=1e-3, atol=1e-4)
