"""Exports in half precision and with integer weights: kernels of their float32 twins, equal numbers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
import pytest

from gehost import GehostError, Host, HostOptions
from gehost.verify import Baseline, compare
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
        assert is_older(needs.partition(">=")[2])
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


def in_four_bits(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose products with weights are MatMulNBits, with no declared type inside."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    result.opset_import.add(domain="com.microsoft", version=1)
    weights = {tensor.name: tensor for tensor in result.graph.initializer}
    for node in result.graph.node:
        tensor = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if tensor is None:
            continue
        array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        (depth, width), size = array.shape, 32
        blocks = array.T.reshape(width, depth // size, size)
        scales = np.abs(blocks).max(axis=2) / 7
        numbers = np.rint(blocks / scales[..., None] + 8).astype(np.uint8)
        packed = numbers[..., ::2] | numbers[..., 1::2] << 4
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        for suffix, data in (("4 bits", packed), ("scales", scales.reshape(-1).astype(dtype))):
            result.graph.initializer.append(
                onnx.numpy_helper.from_array(data, f"{tensor.name} ({suffix})")
            )
        node.op_type, node.domain = "MatMulNBits", "com.microsoft"
        node.input[1:] = [f"{tensor.name} (4 bits)", f"{tensor.name} (scales)"]
        attributes = {"K": depth, "N": width, "bits": 4, "block_size": size}
        node.attribute.extend(
            map(onnx.helper.make_attribute, *zip(*attributes.items(), strict=True))
        )
    return result


@pytest.mark.parametrize("name", ["llama_int4", "llama_eager_int4f16", "llama_eager_f16ts"])
def test_four_bits_without_declared_types(host: Host, name: str) -> None:
    """As TorchScript writes them: the same kernels, and a planted fault is found."""
    model = in_four_bits(half_cases.load(name))
    compiled, _ = host.run(model)
    counts = Counter(LETTERS.get(node.op_type) for node in compiled.graph.node)
    assert {letter: counts[letter] for letter in "MSNR"} == DECODER
    assert sum(node.op_type == "MatMulNBits" for node in compiled.graph.node) == 15
    baseline = Baseline.of(model, list(half_cases.feeds(model)))
    result = baseline.against(compiled)
    assert result.equal, result.summary()
    assert not result.unjudged
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    place, softmax = next(
        (i, node) for i, node in enumerate(wrong.graph.node) if node.op_type == "Softmax"
    )
    dtype = np.float32 if name == "llama_int4" else np.float16
    wrong.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1.1, dtype), "factor"))
    scaled = onnx.helper.make_node("Mul", [softmax.input[0], "factor"], ["scaled"])
    softmax.input[0] = "scaled"
    wrong.graph.node.insert(place, scaled)
    assert not baseline.against(wrong).equal
