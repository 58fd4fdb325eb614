"""Scales and shifts by channel go into the weights; near misses with their reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import assert_equal_numbers, parse
from gehost.verify import compare

CONV = "c = Conv <kernel_shape = [3], pads = [1, 1], group = 2> (x, w, b)"
NORM = "y = BatchNormalization <epsilon = 0.001> (c, s, beta, m, v)"
WEIGHTS = {
    "w": np.arange(24, dtype=np.float32).reshape(4, 2, 3) / 10 - 1,
    "wt": np.arange(36, dtype=np.float32).reshape(4, 3, 3) / 10 - 1,
    "b": np.array([1, -2, 3, -4], np.float32),
    "s": np.array([1, 2, -3, 4], np.float32),
    "beta": np.array([0.5, -0.5, 1, 2], np.float32),
    "m": np.array([0.1, -0.2, 3, 4], np.float32),
    "v": np.array([0.5, 1, 2, 1e-3], np.float32),
    "k": np.array([[0.5], [2], [-1], [3]], np.float32),
    "k6": np.array([[[0.5], [2], [-1], [3], [4], [0.25]]], np.float32),
    "row": np.array([0.5, 2, -1], np.float32),
    "one": np.array([1.5], np.float32),
    "number": np.array(0.25, np.float32),
    "zero": np.array(0, np.float32),
    "high": np.ones((1, 1, 1, 1), np.float32),
    "p": np.arange(12, dtype=np.float32).reshape(4, 3) / 7 - 1,
    "q": np.arange(3, dtype=np.float32) - 1,
}


@pytest.fixture(scope="session")
def host(alone: Path) -> Host:
    return Host(HostOptions(vendors=[alone], plugins=False))


def model(
    product: str = CONV,
    affine: str = NORM,
    *,
    inputs: str = "float[N, 4, L] x",
    outputs: str = "float[N, C, L] y",
    opset: int = 17,
    **weights: Any,
) -> onnx.ModelProto:
    lines = product + " " + affine
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]> main ({inputs}) => ({outputs}) {{ {lines} }}"""
    return parse(
        text,
        {
            name: array
            for name, array in {**WEIGHTS, **weights}.items()
            if any(f"{before}{name}{end}" in lines for before in (" ", "(") for end in ",)")
        },
    )


def ops(compiled: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in compiled.graph.node]


@pytest.mark.parametrize("opset", [7, 9, 13, 17])
@pytest.mark.parametrize("conv", [CONV, CONV.replace(", b)", ")")], ids=["bias", "no bias"])
def test_batch_normalization(host: Host, conv: str, opset: int) -> None:
    inputs = model(conv, opset=opset)
    compiled, _ = host.run(inputs)
    (node,) = compiled.graph.node
    assert node.op_type == "Conv"
    assert len(node.input) == 3
    result = compare(inputs, compiled)
    assert result.equal, result.summary()


@pytest.mark.parametrize(
    "affine",
    [
        "y = Mul (c, k)",
        "y = Mul (k, c)",
        "y = Div (c, k)",
        "y = Add (c, k)",
        "y = Sub (c, k)",
        "y = Sub (k, c)",
        "y = Mul (c, number)",
        "y = Add (one, c)",
        "d = Mul (c, k) y = Add (d, k)",
        "d = Mul (c, k) e = Sub (d, one) y = BatchNormalization (e, s, beta, m, v)",
    ],
)
@pytest.mark.parametrize("conv", [CONV, "c = Conv (x, wf)"], ids=["bias", "no bias"])
def test_by_channel(host: Host, affine: str, conv: str) -> None:
    inputs = model(conv, affine, wf=np.repeat(WEIGHTS["w"], 2, axis=1))
    compiled, _ = host.run(inputs)
    assert ops(compiled) == ["Conv"]
    assert_equal_numbers(inputs, compiled)


@pytest.mark.parametrize("affine", ["y = Mul (c, k6)", "y = Add (c, k6)", "y = Div (c, number)"])
def test_conv_transpose(host: Host, affine: str) -> None:
    inputs = model("c = ConvTranspose <group = 2, strides = [2]> (x, wt)", affine)
    compiled, _ = host.run(inputs)
    assert ops(compiled) == ["ConvTranspose"]
    assert_equal_numbers(inputs, compiled)


@pytest.mark.parametrize(
    ("product", "affine", "rest"),
    [
        ("c = Gemm (x, p)", "y = Mul (c, row)", ["Gemm"]),
        ("c = Gemm <alpha = 0.5, beta = 3.0> (x, p, q)", "y = Mul (c, row)", ["Gemm"]),
        ("c = Gemm <beta = 3.0> (x, p, one)", "y = Add (c, row)", ["Gemm"]),
        ("c = Gemm (x, p)", "d = Mul (c, number) y = Sub (d, row)", ["Gemm"]),
        ("c = Gemm (x, p, q)", "y = BatchNormalization (c, bs, bs, bs, bs)", ["Gemm"]),
        ("c = MatMul (x, p)", "y = Mul (c, number)", ["MatMul"]),
        ("c = MatMul (x, p)", "y = Div (c, row)", ["MatMul"]),
        ("c = MatMul (x, p)", "y = Add (c, row)", ["MatMul", "Add"]),
        ("c = MatMul (x, p)", "d = Add (c, row) y = Mul (d, number)", ["MatMul", "Add", "Mul"]),
    ],
)
def test_products_of_matrices(host: Host, product: str, affine: str, rest: list[str]) -> None:
    inputs = model(
        product,
        affine,
        inputs="float[N, 4] x",
        outputs="float[N, C] y",
        bs=np.array([1, 0.5, 2], np.float32),
    )
    compiled, _ = host.run(inputs)
    assert ops(compiled) == rest
    assert_equal_numbers(inputs, compiled)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types_are_rounded_once(host: Host, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    weights = {name: array.astype(kind) for name, array in WEIGHTS.items()}
    inputs = model(
        inputs=f"{'double' if dtype == 'float64' else dtype}[N, 4, L] x",
        outputs=f"{'double' if dtype == 'float64' else dtype}[N, C, L] y",
        opset=22,
        **weights,
    )
    compiled, _ = host.run(inputs)
    assert ops(compiled) == ["Conv"]
    w, scale, variance = (weights[name].astype(np.float64) for name in ("w", "s", "v"))
    factor = scale / np.sqrt(variance + np.float32(0.001))
    named = {tensor.name: tensor for tensor in compiled.graph.initializer}
    result = onnx.numpy_helper.to_array(named[compiled.graph.node[0].input[1]])
    assert result.astype(np.float64).tolist() == (
        (w * factor.reshape(-1, 1, 1)).astype(kind).astype(np.float64).tolist()
    )


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "read by others": (
        "shared",
        {"affine": NORM + " z = Relu (c)", "outputs": "float[N, C, L] y, float[N, C, L] z"},
    ),
    "an output": ("shared", {"outputs": "float[N, C, L] y, float[N, C, L] c"}),
    "weights of two": (
        "weights",
        {
            "affine": NORM + " z = Conv <pads = [1, 1], group = 2> (x, w)",
            "outputs": "float[N, C, L] y, float[N, C, L] z",
        },
    ),
    "a weight that is not finite": ("overflow", {"v": np.array([1, 1, 1, -1], np.float32)}),
    "a weight that is too small": ("underflow", {"s": np.array([1, 1, 1, 1e-40], np.float32)}),
    "computed weights": (
        "weights",
        {
            "affine": "vx = ReduceMean <axes = [0, 2], keepdims = 0> (x) "
            + NORM.replace(" v)", " vx)")
        },
    ),
    "training": (
        "training",
        {
            "affine": NORM.replace("epsilon = 0.001", "training_mode = 1").replace(
                "y =", "y, m2, v2 ="
            )
        },
    ),
    "by position": ("channel", {"affine": "y = Mul (c, row)"}),
    "more axes": ("channel", {"affine": "y = Mul (c, high)", "outputs": "float[O, N, C, L] y"}),
    "a division of the constant": ("channel", {"affine": "y = Div (k, c)"}),
    "a division by 0": ("overflow", {"affine": "y = Div (c, zero)"}),
    "computed": ("weights", {"affine": "y = Mul (c, x)"}),
    "itself": ("shared", {"affine": "y = Mul (c, c)"}),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, key: str, changes: Any) -> None:
    inputs = model(**changes)
    compiled, report = host.run(inputs)
    assert len(compiled.graph.node) == len(inputs.graph.node)
    (record,) = [record for record in report.passes if record.name == "FoldIntoConvPass"]
    assert list(record.rejected) == [key]


def test_quantized_chains_stay(host: Host) -> None:
    """The weights of a DequantizeLinear are no constant, and what follows is left to the runtime."""
    inputs = model(
        "d = DequantizeLinear (wq, number) c = Conv <group = 2> (x, d)",
        "i = QuantizeLinear (c, number) r = DequantizeLinear (i, number) y = Mul (r, k)",
        wq=np.arange(24, dtype=np.int8).reshape(4, 2, 3),
    )
    compiled, _ = host.run(inputs)
    assert ops(compiled) == [
        "DequantizeLinear",
        "Conv",
        "QuantizeLinear",
        "DequantizeLinear",
        "Mul",
    ]
