"""All shipped vendors together: one vendor's pass takes no part of what another fuses as a whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from gehost import Host, HostOptions

MODELS = Path(__file__).parents[1] / "models"
ALONE = ("gehost:onnx", "gehost:onnxruntime")
ALL = ("gehost:ascend", "gehost:onnx", "gehost:onnxruntime", "gehost:openxla", "gehost:paddle")
FUSED = ("Attention", "MultiHeadAttention", "Softmax", "SkipLayerNormalization")


def operators(model: Path, vendors: tuple[str, ...]) -> Counter[str]:
    names = [spec.name for spec in Host(HostOptions(vendors=vendors)).passes]
    enable = [name for name in names if name.startswith("Ort")]
    result, _ = Host(HostOptions(vendors=vendors, enable=enable)).run(onnx.load(model))
    return Counter(node.op_type for node in result.graph.node)


@pytest.mark.parametrize("name", ["bert.ts17", "bert.dyn20", "gpt2.ts17", "vit.ts13"])
def test_as_many_layers_are_fused_with_more_vendors(name: str) -> None:
    """paddle's linear layer is a MatMul and an Add, as each projection of attention."""
    path = MODELS / f"{name}.onnx"
    alone, together = operators(path, ALONE), operators(path, ALL)
    assert {one: together[one] for one in FUSED} == {one: alone[one] for one in FUSED}
    assert together["Attention"] == 2
    rest = ("Gelu", "BiasGelu", "fused_gemm_epilogue")  # what the other layers become
    assert any(together[one] for one in rest)
