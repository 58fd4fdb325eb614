"""Programs that XLA compiles for the tests; needs jax. Every program is a function of arrays and a list of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Program = tuple[Callable[..., Any], list[Any]]


def draw(seed: int, *shape: int, scale: float = 1.0, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def ints(seed: int, *shape: int, low: int = -20, high: int = 20, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


# The corpus: programs as people write them.


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * g + b


def attention(x: Any, wqkv: Any, wo: Any, heads: int) -> Any:
    batch, length, width = x.shape
    q, k, v = (t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for t in jnp.split(x @ wqkv, 3, axis=-1))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(width // heads)
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ wo


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
        x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def conv_net(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
    x = jax.nn.relu(conv(x, w1))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(conv(x, w2, 2))
    return jax.nn.softmax(x.mean((1, 2)) @ w3)


def zoo(x: Any, y: Any, i: Any) -> Any:
    """Rare opcodes."""
    return (
        jnp.cbrt(x) + jnp.expm1(y) + jnp.log1p(jnp.abs(x)),
        lax.rem(x, y),
        jnp.arctan2(x, y),
        lax.population_count(i),
        lax.clz(i),
        jnp.sort(x, axis=0),
        lax.top_k(x, 3),
        lax.cumsum(x, 1),
        lax.cummax(x, 0),
        lax.pad(x, 0.5, [(1, 2, 1), (-1, 0, 0)]),
        lax.rev(x, (0,)),
        x.at[i[0] % 3].add(1.0),
        lax.switch(jnp.clip(i[0, 0], 0, 2), [jnp.sin, jnp.cos, jnp.tan], x),
        lax.while_loop(lambda c: jnp.sum(c[0]) < 10, lambda c: (c[0] + jnp.abs(y), c[1] + 1), (jnp.abs(x), 0)),
        lax.clamp(-0.5, x, 0.5),
        jnp.floor(x) + jnp.ceil(y) + jnp.round(x) + jnp.sign(y),
        lax.nextafter(x, y),
        lax.reduce_precision(x, 8, 7),
        jax.random.uniform(jax.random.PRNGKey(3), (4,)),
        jnp.argmax(x, 1),
        lax.erf(x),
        lax.is_finite(x / (x - x[:1])),
    )


def deep_weights(layers: int, width: int, scale: float = 1.0) -> list[dict[str, Any]]:
    return [block_weights(100 * layer, width, scale) for layer in range(layers)]


def deep_step(layers: Any, x: Any, y: Any) -> Any:
    def loss(layers: Any) -> Any:
        h = x
        for p in layers:
            h = block(p, h)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(layers)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, layers, gradients)


def sharded(mesh: Mesh) -> Program:
    data = NamedSharding(mesh, P("data", None))
    model = NamedSharding(mesh, P(None, "model"))

    def run(x: Any, w: Any, v: Any) -> Any:
        h = jax.nn.relu(lax.with_sharding_constraint(x, data) @ lax.with_sharding_constraint(w, model))
        return lax.with_sharding_constraint(h @ v, data)

    return run, [draw(1, 16, 32), draw(2, 32, 64), draw(3, 64, 32)]


def corpus(scale: float = 1.0) -> dict[str, Program]:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    width = 32
    return {
        "mlp": (mlp, [[(draw(k, 16, 16), draw(k + 9, 16)) for k in range(3)], draw(20, 8, 16, scale=scale)]),
        "block": (block, [block_weights(0, width, scale), draw(50, 2, 16, width, scale=scale)]),
        "block_step": (
            jax.jit(block_step, donate_argnums=0),
            [block_weights(0, width, scale), draw(50, 2, 16, width, scale=scale), draw(51, 2, 16, width, scale=scale)],
        ),
        "scan": (scan_rnn, [draw(1, 8, 8, scale=scale), draw(2, 4, 8, scale=scale), draw(3, 10, 2, 4, scale=scale)]),
        "conv_net": (conv_net, [draw(1, 2, 12, 12, 3), draw(2, 3, 3, 3, 8), draw(3, 3, 3, 8, 16), draw(4, 16, 5)]),
        "zoo": (zoo, [draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6)]),
        "sharded": sharded(mesh),
        "deep_step": (
            jax.jit(deep_step, donate_argnums=0),
            [deep_weights(24, width, scale), draw(50, 2, 16, width, scale=scale), draw(51, 2, 16, width, scale=scale)],
        ),
    }


# Small programs, one subject each.


def small() -> dict[str, Program]:
    x, y, i = draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6)
    image, kernel = draw(4, 2, 8, 8, 4), draw(5, 3, 3, 4, 6)
    half = x.astype(jnp.bfloat16)
    key = np.array([3, 7], np.uint32)
    return {
        "conv_net": (conv_net, [draw(1, 2, 12, 12, 3), draw(2, 3, 3, 3, 8), draw(3, 3, 3, 8, 16), draw(4, 16, 5)]),
        "depthwise": (lambda a, w: conv(a, w, 1, "SAME", 4), [image, draw(6, 3, 3, 1, 8)]),
        "gather_rows": (lambda a, j: a[j], [x, np.array([3, 0, -1, 2, 9], np.int32)]),
        "gather_two": (lambda a, j, k: a[j, k], [x, np.array([3, 0, 1], np.int32), np.array([5, -2, 0], np.int32)]),
        "gather_windows": (
            lambda a, j: jax.vmap(lambda s: lax.dynamic_slice(a, (s, 1), (2, 3)))(j),
            [x, np.array([0, 2, 7, -4], np.int32)],
        ),
        "scatter_add": (lambda a, j, v: a.at[j].add(v), [x, np.array([1, 1, 9, 0], np.int32), y]),
        "scatter_set": (lambda a, j, v: a.at[j, 2].set(v), [x, np.array([1, 2, 17], np.int32), draw(7, 3)]),
        "top_k": (lambda a: lax.top_k(a, 3), [x]),
        "argmax": (lambda a: (jnp.argmax(a, 1), jnp.argmin(a, 0)), [i]),
        "cumsum": (lambda a: jnp.cumsum(a, 1), [x]),
        "dynamic_update": (lambda a, u, s: lax.dynamic_update_slice(a, u, (s, s + 1)), [x, y[:2, :2], np.int32(3)]),
        "cond": (lambda p, a: lax.cond(p > 0, lambda v: v * 2, lambda v: v - 1, a), [np.float32(1), x]),
        "scan": (scan_rnn, [draw(1, 8, 8), draw(2, 4, 8), draw(3, 10, 2, 4)]),
        "pad": (lambda a: lax.pad(a, 1.5, [(2, -1, 1), (-1, 3, 2)]), [x]),
        "einsum": (lambda a, b: jnp.einsum("bij,bkj->kbi", a, b), [draw(8, 2, 3, 4), draw(9, 2, 5, 4)]),
        "logsumexp": (lambda a: jax.nn.logsumexp(a, 1), [x]),
        "erf_gelu": (lambda a: jax.nn.gelu(a, approximate=False), [x]),
        "int_rem_div": (lambda a, b: (a % b, a // b, lax.div(a, b), lax.rem(a, b)), [i, np.where(ints(5, 4, 6) == 0, 3, ints(5, 4, 6)).astype(np.int32)]),
        "var_std": (lambda a: (a.var(1), a.std(0, ddof=1)), [x]),
        "one_hot": (lambda j: jax.nn.one_hot(j, 7), [ints(6, 9, low=-1, high=9)]),
        "conv_grad": (jax.grad(lambda w, a: jnp.sum(conv(a, w, 2) ** 2), argnums=(0, 1)), [kernel, image]),
        "sort": (lambda a: (jnp.sort(a, 1), jnp.argsort(a, 0)), [x]),
        "cumprod": (lambda a: jnp.cumprod(a, 1), [x]),
        "switch": (lambda k, a: lax.switch(k, [jnp.sin, jnp.cos, jnp.exp, jnp.tanh], a), [np.int32(2), x]),
        "random_bits": (lambda k: jax.random.bits(k, (5, 3)), [key]),
        "random_uniform": (lambda k: (jax.random.uniform(k, (5, 3)), jax.random.normal(k, (7,))), [key]),
        "float_floordiv": (lambda a, b: (a // b, a % b), [x, y]),
        "take_along_axis": (lambda a, j: jnp.take_along_axis(a, j, 1), [x, ints(7, 4, 3, low=0, high=6)]),
        "bf16": (lambda a, b: (a + b, jnp.tanh(a) * b, a @ b.T, a.sum(1)), [half, y.astype(jnp.bfloat16)]),
        "attention": (lambda a, w, o: attention(a, w, o, 2), [draw(1, 2, 5, 8), draw(2, 8, 24), draw(3, 8, 8)]),
    }
