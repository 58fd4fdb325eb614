"""Layers and models that several programs use."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import draw


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * g + b


def attention(x: Any, wqkv: Any, wo: Any, heads: int) -> Any:
    batch, length, width = x.shape
    q, k, v = (
        t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
        for t in jnp.split(x @ wqkv, 3, axis=-1)
    )
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(width // heads)
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return (
        jnp.einsum("bhqk,bhkd->bhqd", weights, v)
        .transpose(0, 2, 1, 3)
        .reshape(batch, length, width)
        @ wo
    )


def block(p: Any, x: Any, heads: int = 4) -> Any:
    x = x + attention(layer_norm(x, p["g1"], p["b1"]), p["wqkv"], p["wo"], heads)
    hidden = layer_norm(x, p["g2"], p["b2"])
    return x + jax.nn.gelu(hidden @ p["w1"], approximate=True) @ p["w2"]


def block_weights(seed: int, width: int, scale: float = 1.0) -> dict[str, Any]:
    s = scale / np.sqrt(width)
    return {
        "b1": draw(seed, width, scale=scale),
        "b2": draw(seed + 1, width, scale=scale),
        "g1": 1 + draw(seed + 2, width, scale=0.1 * scale),
        "g2": 1 + draw(seed + 3, width, scale=0.1 * scale),
        "w1": draw(seed + 4, width, 4 * width, scale=s),
        "w2": draw(seed + 5, 4 * width, width, scale=s / 2),
        "wo": draw(seed + 6, width, width, scale=s),
        "wqkv": draw(seed + 7, width, 3 * width, scale=s),
    }


def block_step(p: Any, x: Any, y: Any) -> Any:
    loss, gradients = jax.value_and_grad(lambda p: jnp.mean((block(p, x) - y) ** 2))(p)
    return loss, jax.tree.map(lambda w, g: w - 0.1 * g, p, gradients)


def mlp(ws: Any, x: Any) -> Any:
    for w, b in ws[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = ws[-1]
    return jax.nn.log_softmax(x @ w + b)


def scan_rnn(w: Any, u: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x @ u)
        return h, h.sum(-1)

    return lax.scan(step, jnp.zeros((xs.shape[1], w.shape[0]), xs.dtype), xs)


def conv(x: Any, w: Any, stride: int = 1, padding: str = "SAME", groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def conv_net(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
    x = jax.nn.relu(conv(x, w1))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(conv(x, w2, 2))
    return jax.nn.softmax(x.mean((1, 2)) @ w3)
