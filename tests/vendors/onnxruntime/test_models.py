"""Every layer of the exports in ``tests/models`` runs in the kernels, with equal numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from gehost import Host
from gehost.verify import compare

MODELS = Path(__file__).parents[2] / "models"
KERNELS = {
    "bert.raw18": {"Attention": 2, "SkipLayerNormalization": 4, "LayerNormalization": 1},
    "bert.ts13": {"Attention": 2, "SkipLayerNormalization": 4},
    "gpt2.dyn20": {"Attention": 2, "SkipLayerNormalization": 4, "LayerNormalization": 1},
    "llama.ts17": {
        "MultiHeadAttention": 2,
        "RotaryEmbedding": 4,
        "SkipSimplifiedLayerNormalization": 4,
    },
    "vit.ts17": {"Attention": 2, "SkipLayerNormalization": 4, "LayerNormalization": 1},
}
"""Kernels of each; without a sum, normalization by parts is left to the runtime."""
NAMES = {name for kernels in KERNELS.values() for name in kernels}


@pytest.mark.parametrize("name", KERNELS)
def test_every_layer_is_fused(host: Host, name: str) -> None:
    path = MODELS / f"{name}.onnx"
    inputs = onnx.load(path)
    compiled, _ = host.run(inputs)
    counts = Counter(node.op_type for node in compiled.graph.node)
    assert {op: count for op, count in counts.items() if op in NAMES} == KERNELS[name]
    assert not counts["Softmax"]
    result = compare(inputs, compiled)
    assert result.equal, result.summary()


def test_each_pass_is_in_one_kind_of_tune(host: Host) -> None:
    kinds = host.tune_kinds()
    grouped = [name for _, passes in kinds for name in passes]
    assert sorted(grouped) == sorted(spec.name for spec in host.passes)
    assert dict(kinds)["attention"][-1] == "OrtPackedAttentionPass"
