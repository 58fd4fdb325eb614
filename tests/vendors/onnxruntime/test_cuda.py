"""Kernels that no CPU has, and half precision, on a GPU; skipped where CUDA does not start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.verify import compare
from gehost.verify.device import run_on_device
from gehost_shipped.targets._onnxruntime import starts
from tests.vendors.onnxruntime.conftest import OWN

pytestmark = pytest.mark.skipif(
    "CUDAExecutionProvider" not in pytest.importorskip("onnxruntime").get_available_providers()
    or not starts("cuda"),
    reason="needs ONNX Runtime with CUDA, and a GPU",
)
TYPES = {"float": np.float32, "float16": np.float16}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host for CUDA with this vendor alone, all of its passes on."""
    root = tmp_path_factory.mktemp("vendors")
    (root / OWN.name).symlink_to(OWN)
    names = [spec.name for spec in Host(HostOptions(vendors=[root], plugins=False)).passes]
    return Host(
        HostOptions(
            vendors=[root],
            plugins=False,
            target="cuda",
            enable=names,
            assume=["no-empty-inputs"],
        )
    )


def same_on_the_device(host: Host, model: onnx.ModelProto, *expected: str) -> None:
    """Compile a model; it has the operators, which the device runs, with the same numbers."""
    output, _ = host.run(model)
    operators = {node.op_type for node in output.graph.node}
    assert set(expected) <= operators, operators
    result = compare(model, output, provider="cuda")
    assert result.equal, result.summary()
    assert not result.unjudged, result.summary()
    assert not set(expected) & set(result.elsewhere), result.summary()


def constants(model: onnx.ModelProto, dtype: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """Draw constants of a type into a model."""
    draw = np.random.default_rng(0)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(draw.standard_normal(shape).astype(TYPES[dtype]), name)
        for name, shape in shapes.items()
    )
    return model


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("addend", ["", "[N, C, H, W]", "[N, C, 1, 1]"])
@pytest.mark.parametrize(("channels", "groups"), [(8, 2), (320, 32), (512, 32), (48, 3)])
def test_group_norm(
    host: Host, channels: int, groups: int, addend: str, silu: bool, dtype: str
) -> None:
    image = f"[N, {channels}, 6, 5]"
    other = addend.replace("C", str(channels)).replace("H, W", "6, 5") or image
    first = "s = Add (x, z)" if addend else "s = Relu (x)"
    last = "g = Sigmoid (n) y = Mul (n, g)" if silu else "y = Neg (n)"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g ({dtype}{image} x, {dtype}{other} z) => ({dtype}{image} y, {dtype}{image} t) {{
          {first} t = Neg (s)
          n = GroupNormalization <num_groups = {groups}, epsilon = 1e-5> (s, gamma, beta) {last} }}"""
    )
    constants(model, dtype, gamma=(channels,), beta=(channels,))
    result, _ = host.run(model)
    expected = "SkipGroupNorm" if addend else "GroupNorm"
    assert expected in {node.op_type for node in result.graph.node}
    draw = np.random.default_rng(1)
    sizes = {"x": (2, channels, 6, 5), "z": (2, channels, 6, 5)}
    sizes["z"] = (2, channels, 1, 1) if addend.endswith("1, 1]") else sizes["z"]
    names = [value.name for value in result.graph.input]
    feeds = {name: draw.standard_normal(sizes[name]).astype(TYPES[dtype]) for name in names}
    (before,), _ = run_on_device(model, None, "cuda", [feeds])
    (after,), placed = run_on_device(result, None, "cuda", [feeds])
    assert expected not in {op for op, _ in placed.elsewhere}, str(placed)
    near = 1e-4 if dtype == "float" else 1e-2
    for name, array in before.items():
        assert np.ptp(array) > 1
        np.testing.assert_allclose(after[name], array, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["BiasGelu", "QuickGelu", "SkipLayerNormalization"])
def test_activations_and_norms(host: Host, name: str, dtype: str) -> None:
    body = {
        "BiasGelu": "b = Add (x, c) y = Gelu (b)",
        "QuickGelu": "s = Mul (x, k) g = Sigmoid (s) y = Mul (x, g)",
        "SkipLayerNormalization": "s = Add (x, z) n = LayerNormalization (s, c, d) y = Relu (n)",
    }[name]
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        g ({dtype}[B, S, 64] x, {dtype}[B, S, 64] z) => ({dtype}[B, S, 64] y)
        {{ {body} }}"""
    )
    scale = onnx.numpy_helper.from_array(np.array(1.702, TYPES[dtype]), "k")
    model.graph.initializer.extend([scale] if name == "QuickGelu" else [])
    shapes = {item: (64,) for item in ("c", "d") if f" {item})" in body or f" {item}," in body}
    same_on_the_device(host, constants(model, dtype, **shapes), name)


MODELS = Path(__file__).parents[2] / "models"
CASES = Path(__file__).parents[4] / "shared" / "cases" / "half"


@pytest.mark.parametrize(
    "name", ["bert.ts17", "bert.dyn20", "vit.dyn20", "gpt2.ts17", "llama.ts17"]
)
def test_float32_models(host: Host, name: str) -> None:
    same_on_the_device(host, onnx.load(MODELS / f"{name}.onnx"))


CASE_NAMES = (
    "bert_autof16",
    "bert_autof16ts",
    "bert_dynq",
    "bert_f16dyn",
    "bert_occ_keep",
    "bert_qdq",
    "bert_ts_ortc_keep",
    "gpt2_past_f16dyn",
    "llama_bf16dyn",
    "llama_eager_f16dyn",
    "llama_eager_f16ts",
    "llama_eager_int4f16",
    "llama_int4",
    "llama_ortc_keep",
    "vit_f16dyn",
    "vit_occ_nokeep",
)


@pytest.mark.skipif(not CASES.exists(), reason="needs ../shared/cases/half")
@pytest.mark.parametrize("name", CASE_NAMES)
def test_half_models(host: Host, name: str) -> None:
    same_on_the_device(host, onnx.load(CASES / f"{name}.onnx"))
