"""Softmax and normalizations against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from ..models import check, graph

X = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("axis", "opset"), [(-1, 20), (1, 20), (1, 11), (2, 11)])
def test_softmax(op: str, axis: int, opset: int) -> None:
    body = f"s = Mul(x, x)\ny = {op}<axis={axis}>(s)"
    check(graph(body, "float[a,b,c] x", "float[a,b,c] y", opset), {"x": X})


def test_scale_mask_softmax() -> None:
    body = "k = Constant<value = float {0.125}>()\ns = Mul(x, k)\nm = Add(s, mask)\ny = Softmax<axis=-1>(m)"
    check(
        graph(body, "float[2,3,4] x, float[2,1,4] mask", "float[2,3,4] y"),
        {"x": X, "mask": X[:, :1] * 10},
    )


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalization(axis: int, *, bias: bool) -> None:
    shape = X.shape[axis:]
    inputs = f"float[a,b,c] x, float[a,b,c] r, float{list(shape)} s" + (
        f", float{list(shape)} t" if bias else ""
    )
    body = f"z = Add(x, r)\ny = LayerNormalization<axis={axis}, epsilon=0.001>(z, s{', t' if bias else ''})"
    scale = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    feeds = {"x": X, "r": X[::-1].copy(), "s": scale} | ({"t": scale * 2} if bias else {})
    check(graph(body, inputs, "float[a,b,c] y"), feeds, rtol=1e-4, atol=1e-5)


def test_rms_normalization() -> None:
    body = "y = RMSNormalization<axis=-1>(x, s)"
    scale = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    check(
        graph(body, "float[a,b,c] x, float[4] s", "float[a,b,c] y", 23),
        {"x": X, "s": scale},
        rtol=1e-4,
        atol=1e-5,
    )
