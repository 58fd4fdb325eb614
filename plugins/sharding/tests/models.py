"""Small models that need every kind of collective."""

from __future__ import annotations

import numpy as np

from gehost_sharding.model_graph import ModelGraph

from .conftest import Array, model_of

BLOCK = """(float[1,8,16] x, int64[1,8] ids) => (float[1,8,16] y, float[1] pooled) {
    e = Gather <axis = 0> (table, ids)
    h = Add (x, e)
    n = LayerNormalization <axis = -1> (h, scale, bias)
    q = MatMul (n, wq)
    k = MatMul (n, wk)
    v = MatMul (n, wv)
    heads = Constant <value = int64[4] {1, 8, 4, 4}> ()
    joined = Constant <value = int64[3] {1, 8, 16}> ()
    flat = Constant <value = int64[2] {8, 16}> ()
    qr = Reshape (q, heads)
    kr = Reshape (k, heads)
    vr = Reshape (v, heads)
    qt = Transpose <perm = [0, 2, 1, 3]> (qr)
    kt = Transpose <perm = [0, 2, 3, 1]> (kr)
    vt = Transpose <perm = [0, 2, 1, 3]> (vr)
    s = MatMul (qt, kt)
    p = Softmax <axis = -1> (s)
    c = MatMul (p, vt)
    ct = Transpose <perm = [0, 2, 1, 3]> (c)
    cf = Reshape (ct, flat)
    o = Gemm (cf, wo, bo)
    or = Reshape (o, joined)
    r = Add (h, or)
    u = MatMul (r, w1)
    g = Gelu (u)
    d = MatMul (g, w2)
    y = Add (r, d)
    axes = Constant <value = int64[2] {1, 2}> ()
    pooled = ReduceMean <keepdims = 0> (y, axes)
}"""


def block_weights(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shapes = {
        "table": (12, 16), "scale": (16,), "bias": (16,), "wq": (16, 16), "wk": (16, 16),
        "wv": (16, 16), "wo": (16, 16), "bo": (16,), "w1": (16, 32), "w2": (32, 16),
    }  # fmt: skip
    return {
        name: (rng.standard_normal(shape) * 0.4).astype(np.float32)
        for name, shape in shapes.items()
    }


def block() -> ModelGraph:
    """One transformer layer: a sequence of 8, width 16, 4 heads."""
    return ModelGraph(model_of(BLOCK, block_weights()))
