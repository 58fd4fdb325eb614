"""Exports in half precision and with integer weights: kernels of their float32 twins, equal numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import pytest

from gehost import GehostError, Host, HostOptions
from gehost.verify import compare
from tests.conftest import is_older
from tests.vendors.onnxruntime import half_cases

LETTERS = {
    "Attention": "A",
    "MultiHeadAttention": "M",
    "SkipLayerNormalization": "S",
    "SkipSimplifiedLayerNormalization": "S",
    "LayerNormalization": "N",
    "SimplifiedLayerNormalization": "N",
    "RMSNormalization": "N",
    "RotaryEmbedding": "R",
}
ENCODER = {"A": 2, "S": 4, "N": 1}
DECODER = {"M": 2, "S": 4, "N": 1, "R": 4}
KERNELS = {
    "bert_f16dyn": ENCODER,
    "llama_bf16dyn": DECODER,
    "gpt2_past_f16dyn": {"M": 2, "S": 4, "N": 1},
    "bert_autof16ts": ENCODER,
    "bert_qdq": {"N": 5},
    "llama_eager_int4f16": DECODER,
    "llama_ortc_keep": DECODER,
    "vit_occ_nokeep": ENCODER,
    "llama_eager_f16dyn": DECODER,
    "llama_eager_f16ts": DECODER,
    "vit_f16dyn": ENCODER,
    "bert_occ_keep": ENCODER,
    "bert_ts_ortc_keep": ENCODER,
    "bert_autof16": ENCODER,
    "bert_dynq": {"M": 2, "S": 4, "N": 1},
    "llama_int4": DECODER,
}
INTEGER = {
    "bert_qdq": {"QLinearMatMul": 8, "QLinearAdd": 2},
    "bert_dynq": {
        "DynamicQuantizeMatMul": 6,
        "MatMulIntegerToFloat": 6,
        "DynamicQuantizeLinear": 2,
    },
    "llama_int4": {"MatMulNBits": 15},
    "llama_eager_int4f16": {"MatMulNBits": 15},
}
"""Kernels of integers in the graph that ONNX Runtime runs."""


@pytest.fixture(scope="module")
def host() -> Host:
    """A host with all vendors, and all passes of this one."""
    vendors = [Path(__file__).parents[3] / "vendors"]
    passes = Host(HostOptions(vendors=vendors, plugins=False)).passes
    names = [spec.name for spec in passes if spec.vendor == "onnxruntime"]
    return Host(
        HostOptions(vendors=vendors, plugins=False, enable=names, assume=["no-empty-inputs"])
    )


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_and_numbers(host: Host, name: str, tmp_path: Path) -> None:
    """Equal, widened and by rows, without padding and with padding on both sides."""
    model = half_cases.load(name)
    compiled, _ = host.run(model)
    counts = Counter(node.op_type for node in compiled.graph.node)
    kernels: Counter[str] = Counter()
    for op, letter in LETTERS.items():
        kernels[letter] += counts[op]
    assert +kernels == Counter(KERNELS[name])
    if name == "llama_bf16dyn" and is_older("1.24.1"):  # which declares its kernels in bfloat16
        (needs,) = (one.value for one in compiled.metadata_props if one.key == "gehost.needs")
        assert "1.24.1" in needs
        return
    result = compare(model, compiled, list(half_cases.feeds(model)))
    assert result.equal, result.summary()
    assert result.feeds == 3
    before, after = (loaded(item, tmp_path / "loaded.onnx") for item in (model, compiled))
    assert (before is None) == (after is None) == (name == "llama_bf16dyn")
    for op, count in INTEGER.get(name, {}).items():
        assert (before or {})[op] == (after or {})[op] == count


def loaded(model: onnx.ModelProto, path: Path) -> Counter[str] | None:
    """Return the operators that ONNX Runtime's CPU provider runs; None where it does not load."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    data = model.SerializeToString()
    try:
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - the runtime's errors have no common class
        return None
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def test_a_model_that_no_runtime_loads_is_refused_with_its_node(host: Host, tmp_path: Path) -> None:
    """A converter left a Cast to float32 in a half graph."""
    model = half_cases.load("llama_occ_invalid")
    assert loaded(model, tmp_path / "loaded.onnx") is None
    with pytest.raises(
        GehostError, match='Cast "node__to_copy_1": "_to_copy_1" is declared float16'
    ):
        host.run(model)
