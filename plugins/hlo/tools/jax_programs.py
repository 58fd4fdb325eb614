"""Programs that XLA compiles for the tests; needs jax. Every program is a function of arrays and a list of inputs."""

from __future__ import annotations

from collections.abc import Callable
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
        lax.while_loop(
            lambda c: jnp.sum(c[0]) < 10, lambda c: (c[0] + jnp.abs(y), c[1] + 1), (jnp.abs(x), 0)
        ),
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
        h = jax.nn.relu(
            lax.with_sharding_constraint(x, data) @ lax.with_sharding_constraint(w, model)
        )
        return lax.with_sharding_constraint(h @ v, data)

    return run, [draw(1, 16, 32), draw(2, 32, 64), draw(3, 64, 32)]


def corpus(scale: float = 1.0, width: int = 32) -> dict[str, Program]:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    return {
        "mlp": (
            mlp,
            [[(draw(k, 16, 16), draw(k + 9, 16)) for k in range(3)], draw(20, 8, 16, scale=scale)],
        ),
        "block": (block, [block_weights(0, width, scale), draw(50, 2, 16, width, scale=scale)]),
        "block_step": (
            jax.jit(block_step, donate_argnums=0),
            [
                block_weights(0, width, scale),
                draw(50, 2, 16, width, scale=scale),
                draw(51, 2, 16, width, scale=scale),
            ],
        ),
        "scan": (
            scan_rnn,
            [
                draw(1, 8, 8, scale=scale),
                draw(2, 4, 8, scale=scale),
                draw(3, 10, 2, 4, scale=scale),
            ],
        ),
        "conv_net": (
            conv_net,
            [
                draw(1, 2, 12, 12, 3),
                draw(2, 3, 3, 3, 8, scale=0.3),
                draw(3, 3, 3, 8, 16, scale=0.1),
                draw(4, 16, 5),
            ],
        ),
        "zoo": (zoo, [draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6)]),
        "sharded": sharded(mesh),
        "deep_step": (
            jax.jit(deep_step, donate_argnums=0),
            [
                deep_weights(24, width, scale),
                draw(50, 2, 16, width, scale=scale),
                draw(51, 2, 16, width, scale=scale),
            ],
        ),
    }


# Small programs, one subject each.


def small() -> dict[str, Program]:
    x, y, i = draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6)
    image, kernel = draw(4, 2, 8, 8, 4), draw(5, 3, 3, 4, 6)
    half = x.astype(jnp.bfloat16)
    key = np.array([3, 7], np.uint32)
    return {
        "conv_net": (
            conv_net,
            [
                draw(1, 2, 12, 12, 3),
                draw(2, 3, 3, 3, 8, scale=0.3),
                draw(3, 3, 3, 8, 16, scale=0.1),
                draw(4, 16, 5),
            ],
        ),
        "depthwise": (lambda a, w: conv(a, w, 1, "SAME", 4), [image, draw(6, 3, 3, 1, 8)]),
        "gather_rows": (lambda a, j: a[j], [x, np.array([3, 0, -1, 2, 9], np.int32)]),
        "gather_two": (
            lambda a, j, k: a[j, k],
            [x, np.array([3, 0, 1], np.int32), np.array([5, -2, 0], np.int32)],
        ),
        "gather_windows": (
            lambda a, j: jax.vmap(lambda s: lax.dynamic_slice(a, (s, 1), (2, 3)))(j),
            [x, np.array([0, 2, 7, -4], np.int32)],
        ),
        "scatter_add": (lambda a, j, v: a.at[j].add(v), [x, np.array([1, 1, 9, 0], np.int32), y]),
        "scatter_set": (
            lambda a, j, v: a.at[j, 2].set(v),
            [x, np.array([1, 2, 17], np.int32), draw(7, 3)],
        ),
        "top_k": (lambda a: lax.top_k(a, 3), [x]),
        "argmax": (lambda a: (jnp.argmax(a, 1), jnp.argmin(a, 0)), [i]),
        "cumsum": (lambda a: jnp.cumsum(a, 1), [x]),
        "dynamic_update": (
            lambda a, u, s: lax.dynamic_update_slice(a, u, (s, s + 1)),
            [x, y[:2, :2], np.int32(3)],
        ),
        "cond": (
            lambda p, a: lax.cond(p > 0, lambda v: v * 2, lambda v: v - 1, a),
            [np.float32(1), x],
        ),
        "scan": (scan_rnn, [draw(1, 8, 8), draw(2, 4, 8), draw(3, 10, 2, 4)]),
        "pad": (lambda a: lax.pad(a, 1.5, [(2, -1, 1), (-1, 3, 2)]), [x]),
        "einsum": (
            lambda a, b: jnp.einsum("bij,bkj->kbi", a, b),
            [draw(8, 2, 3, 4), draw(9, 2, 5, 4)],
        ),
        "logsumexp": (lambda a: jax.nn.logsumexp(a, 1), [x]),
        "erf_gelu": (lambda a: jax.nn.gelu(a, approximate=False), [x]),
        "int_rem_div": (
            lambda a, b: (a % b, a // b, lax.div(a, b), lax.rem(a, b)),
            [i, np.where(ints(5, 4, 6) == 0, 3, ints(5, 4, 6)).astype(np.int32)],
        ),
        "var_std": (lambda a: (a.var(1), a.std(0, ddof=1)), [x]),
        "one_hot": (lambda j: jax.nn.one_hot(j, 7), [ints(6, 9, low=-1, high=9)]),
        "conv_grad": (
            jax.grad(lambda w, a: jnp.sum(conv(a, w, 2) ** 2), argnums=(0, 1)),
            [kernel, image],
        ),
        "sort": (lambda a: (jnp.sort(a, 1), jnp.argsort(a, 0)), [x]),
        "cumprod": (lambda a: jnp.cumprod(a, 1), [x]),
        "switch": (
            lambda k, a: lax.switch(k, [jnp.sin, jnp.cos, jnp.exp, jnp.tanh], a),
            [np.int32(2), x],
        ),
        "random_bits": (lambda k: jax.random.bits(k, (5, 3)), [key]),
        "random_uniform": (
            lambda k: (jax.random.uniform(k, (5, 3)), jax.random.normal(k, (7,))),
            [key],
        ),
        "float_floordiv": (lambda a, b: (a // b, a % b), [x, y]),
        "take_along_axis": (
            lambda a, j: jnp.take_along_axis(a, j, 1),
            [x, ints(7, 4, 3, low=0, high=6)],
        ),
        "bf16": (
            lambda a, b: (a + b, jnp.tanh(a) * b, a @ b.T, a.sum(1)),
            [half, y.astype(jnp.bfloat16)],
        ),
        "attention": (
            lambda a, w, o: attention(a, w, o, 2),
            [draw(1, 2, 5, 8), draw(2, 8, 24), draw(3, 8, 8)],
        ),
    }


def more() -> dict[str, Program]:
    """Further programs: corners of the meaning of each opcode, and ordinary code of several kinds."""
    x, y, i, j = draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6), ints(4, 4, 6)
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    odd = np.array(
        [
            [nan, 1, -inf, 0, -0.0, 3],
            [2, nan, inf, -2, 0.5, -0.5],
            [1e30, -1e30, 1e-30, -1e-30, 2.5, 3.5],
        ],
        np.float32,
    )
    u = ints(5, 4, 6, low=0, high=2**31 - 1).astype(np.uint32) * np.uint32(2) + np.uint32(1)
    s8, u8 = (
        ints(6, 4, 6, low=-128, high=127, dtype=np.int8),
        ints(7, 4, 6, low=0, high=255, dtype=np.uint8),
    )
    shifts = np.array([[0, 1, 5, 31, 32, 40]] * 4, np.int32)
    img, ker = draw(8, 2, 7, 7, 4), draw(9, 3, 3, 4, 3, scale=0.2)
    p = x > 0
    key = np.array([3, 7], np.uint32)
    dn = ("NHWC", "HWIO", "NHWC")
    return {
        "casts": (
            lambda a: [
                a.astype(t)
                for t in (
                    jnp.int32,
                    jnp.uint8,
                    jnp.int8,
                    jnp.int16,
                    jnp.uint32,
                    bool,
                    jnp.bfloat16,
                    jnp.float16,
                )
            ],
            [odd * 100],
        ),
        "int_casts": (
            lambda a: [a.astype(t) for t in (jnp.int8, jnp.uint8, jnp.int16, jnp.float32, bool)],
            [i * 37],
        ),
        "pred_ops": (
            lambda a, b: (
                a & b,
                a | b,
                a ^ b,
                ~a,
                a == b,
                a != b,
                a < b,
                a <= b,
                jnp.where(a, b, ~b),
                a.sum(1),
                a.all(0),
                a.any(1),
            ),
            [p, y > 0],
        ),
        "signed_shift": (
            lambda a, k: (a << k, a >> k, lax.shift_right_logical(a, k)),
            [i * 1000, shifts],
        ),
        "unsigned_ops": (
            lambda a, b: (
                a + b,
                a - b,
                a * b,
                a // b,
                a % b,
                jnp.maximum(a, b),
                a > b,
                a >> 3,
                ~a,
                a.max(1),
                a.min(0),
                a.sum(),
            ),
            [u, u[::-1].copy()],
        ),
        "narrow_ints": (
            lambda a, b: (
                a + a,
                a * a,
                a // 3,
                a.max(0),
                b + b,
                b * b,
                jnp.minimum(b, 7),
                b.sum(0),
                a.sum(0),
                jnp.sort(a, 1),
                -a,
            ),
            [s8, u8],
        ),
        "zero_division": (
            lambda a, b: (lax.div(a, b), lax.rem(a, b)),
            [
                np.array([7, -7, 0, -(2**31), -(2**31)], np.int32),
                np.array([0, 0, 0, -1, 3], np.int32),
            ],
        ),
        "nan_extrema": (
            lambda a: (
                a.max(1),
                a.min(0),
                jnp.nanmax(a, 1),
                jnp.argmax(a, 1),
                jnp.argmin(a, 0),
                jnp.maximum(a, 0),
                lax.clamp(-1.0, a, 1.0),
            ),
            [odd],
        ),
        "nan_sort": (
            lambda a: (
                jnp.sort(a, 1),
                jnp.argsort(a, 1),
                jnp.sort(a, 0, descending=True),
                lax.top_k(jnp.where(jnp.isnan(a), 9.0, a), 3),
            ),
            [odd],
        ),
        "lexsort": (
            lambda a, b: (jnp.lexsort((a, b)), lax.sort((a, b, a + b), num_keys=2)),
            [ints(10, 20, low=0, high=4), ints(11, 20, low=0, high=4)],
        ),
        "sort_kinds": (
            lambda a, b, c: (
                jnp.sort(a, 0),
                jnp.argsort(b, 1),
                jnp.sort(c, 1),
                jnp.sort(a, 1, descending=True),
            ),
            [i, u, s8],
        ),
        "unique_median": (
            lambda a: (jnp.median(a, 1), jnp.quantile(a, 0.3, axis=0), jnp.percentile(a, 70)),
            [x],
        ),
        "functions": (
            lambda a: (
                jnp.sinh(a),
                jnp.cosh(a),
                jnp.arctan(a),
                jnp.arcsin(jnp.tanh(a)),
                jnp.arccos(jnp.tanh(a)),
                jnp.arcsinh(a),
                jnp.arctanh(jnp.tanh(a) * 0.9),
                jnp.tan(a),
                jnp.exp2(a),
                jnp.log2(jnp.abs(a) + 1),
                jnp.log10(jnp.abs(a) + 1),
                jnp.sinc(a),
                jax.nn.softplus(a),
                jax.nn.silu(a),
                jax.nn.elu(a),
                jax.nn.selu(a),
                jax.nn.mish(a),
                jax.nn.sigmoid(a),
            ),
            [x],
        ),
        "odd_functions": (
            lambda a: (
                jnp.sign(a),
                jnp.floor(a),
                jnp.round(a),
                jnp.ceil(a),
                jnp.trunc(a),
                jnp.isnan(a),
                jnp.isinf(a),
                jnp.isfinite(a),
                jnp.abs(a),
                jnp.sqrt(a),
                lax.rsqrt(a),
                jnp.tanh(a),
                lax.round(a),
                jnp.exp(a),
                jnp.cbrt(a),
            ),
            [odd],
        ),
        "small_functions": (
            lambda a: (jnp.expm1(a), jnp.log1p(a), jnp.sinh(a), jnp.tanh(a), lax.erf(a)),
            [(np.logspace(-12, -1, 24) * np.array([1, -1] * 12)).astype(np.float32)],
        ),
        "powers": (
            lambda a, b: (
                jnp.power(jnp.abs(a), b),
                a**2,
                a**3,
                a**-1,
                a**7,
                jnp.abs(a) ** 0.5,
                jnp.hypot(a, b),
                jnp.arctan2(a, b),
            ),
            [x, y],
        ),
        "int_power": (
            lambda a, b: (a**2, a**5, jnp.power(a, b)),
            [i, ints(12, 4, 6, low=0, high=5)],
        ),
        "bits": (
            lambda a, b: (
                lax.population_count(a),
                lax.clz(a),
                jnp.bitwise_count(b),
                a & 7,
                a | 8,
                a ^ -1,
                ~a,
            ),
            [i, u],
        ),
        "frexp": (
            lambda a: (
                jnp.frexp(a),
                jnp.signbit(a),
                jnp.nextafter(a, 0.0),
                jnp.copysign(1.0, a),
                jnp.ldexp(a, 3),
                jnp.modf(a),
            ),
            [x],
        ),
        "erf_family": (
            lambda a: (
                lax.erf(a),
                lax.erfc(a),
                jax.scipy.special.erfinv(jnp.tanh(a)),
                lax.lgamma(jnp.abs(a) + 0.5),
                lax.digamma(jnp.abs(a) + 0.5),
                jax.scipy.special.i0(a),
            ),
            [x],
        ),
        "avg_pool": (
            lambda a: (
                lax.reduce_window(a, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
                lax.reduce_window(
                    a, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), [(0, 0), (1, 0), (0, 1), (0, 0)]
                ),
            ),
            [img],
        ),
        "max_pool": (
            lambda a: (
                lax.reduce_window(a, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
                lax.reduce_window(a, 0.0, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME"),
                lax.reduce_window(a, jnp.inf, lax.min, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
            ),
            [img],
        ),
        "window_dilated": (
            lambda a: (
                lax.reduce_window(
                    a,
                    -jnp.inf,
                    lax.max,
                    (1, 2, 2, 1),
                    (1, 1, 1, 1),
                    "VALID",
                    window_dilation=(1, 2, 3, 1),
                ),
                lax.reduce_window(
                    a,
                    0.0,
                    lax.add,
                    (1, 2, 2, 1),
                    (1, 2, 1, 1),
                    [(0, 0), (1, 1), (0, 2), (0, 0)],
                    base_dilation=(1, 2, 1, 1),
                ),
            ),
            [img],
        ),
        "window_init": (
            lambda a: lax.reduce_window(a, 1.0, lax.add, (1, 3), (1, 1), [(0, 0), (1, 1)]),
            [x],
        ),
        "max_pool_grad": (
            jax.grad(
                lambda a: jnp.sum(
                    lax.reduce_window(a, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2
                )
            ),
            [img],
        ),
        "avg_pool_grad": (
            jax.grad(
                lambda a: jnp.sum(
                    lax.reduce_window(a, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2
                )
            ),
            [img],
        ),
        "cumulative": (
            lambda a, b: (
                jnp.cumsum(a, 0),
                lax.cumsum(a, 1, reverse=True),
                lax.cummax(a, 0),
                lax.cummin(a, 1),
                lax.cumlogsumexp(a, 1),
                jnp.cumsum(b, 1),
                jnp.cumprod(b, 0),
            ),
            [x, i],
        ),
        "associative_scan": (
            lambda a: (
                lax.associative_scan(jnp.add, a, axis=1),
                lax.associative_scan(
                    lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, a + 1), axis=0
                ),
            ),
            [x],
        ),
        "conv_kinds": (
            lambda a, w: (
                lax.conv_general_dilated(a, w, (2, 1), [(1, 2), (0, 1)], dimension_numbers=dn),
                lax.conv_general_dilated(
                    a, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=dn
                ),
                lax.conv_general_dilated(
                    a, w, (1, 1), [(0, 0), (1, 2)], lhs_dilation=(2, 3), dimension_numbers=dn
                ),
                lax.conv_transpose(a, w, (2, 2), "SAME", dimension_numbers=dn),
                lax.conv_general_dilated(a, w, (1, 1), [(-1, 0), (2, -1)], dimension_numbers=dn),
            ),
            [img, ker],
        ),
        "conv_groups": (
            lambda a, w: lax.conv_general_dilated(
                a, w, (1, 1), "SAME", dimension_numbers=dn, feature_group_count=2
            ),
            [img, draw(13, 3, 3, 2, 6)],
        ),
        "conv_batch_groups": (
            lambda a, w: lax.conv_general_dilated(
                a, w, (1, 1), "VALID", dimension_numbers=dn, batch_group_count=2
            ),
            [draw(14, 4, 6, 6, 3), draw(15, 3, 3, 3, 8)],
        ),
        "conv_1d_3d": (
            lambda a, w, b, v: (
                lax.conv_general_dilated(
                    a, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
                ),
                lax.conv_general_dilated(b, v, (1, 1, 1), "VALID"),
            ),
            [
                draw(16, 2, 9, 3),
                draw(17, 3, 3, 5),
                draw(18, 1, 2, 4, 4, 4),
                draw(19, 3, 2, 2, 2, 2),
            ],
        ),
        "depthwise_grad": (
            jax.grad(lambda w, a: jnp.sum(conv(a, w, 1, "SAME", 4) ** 2), argnums=(0, 1)),
            [draw(6, 3, 3, 1, 8), img],
        ),
        "conv_int_f64": (
            lambda a, w: lax.conv_general_dilated(a, w, (1, 1), "SAME", dimension_numbers=dn),
            [ints(20, 1, 5, 5, 2), ints(21, 3, 3, 2, 3)],
        ),
        "dots": (
            lambda a, b, v: (
                a @ b,
                a @ v,
                v @ b,
                v @ v,
                a.T @ a,
                jnp.einsum("ij,kj->ik", a, a),
                jnp.tensordot(a, b, 1),
                jnp.outer(v, v),
                jnp.inner(a, a),
            ),
            [draw(22, 5, 6), draw(23, 6, 7), draw(24, 6)],
        ),
        "batch_dots": (
            lambda a, b: (
                jnp.einsum("bij,bjk->bik", a, b),
                jnp.einsum("bij,bkj->bik", a, a),
                jnp.einsum("bij,bij->b", a, a),
                jnp.einsum("bij,bij->bi", a, a),
                jnp.einsum("bij,cjk->bcik", a, b),
                jnp.einsum("bij,bjk->kb", a, b),
                jnp.einsum("bji,bj->bi", a, a[:, :, 0]),
            ),
            [draw(25, 3, 4, 4), draw(26, 3, 4, 4)],
        ),
        "int_dots": (
            lambda a, b: (
                a @ b.T,
                jnp.einsum("ij,ij->i", a, b),
                lax.dot(a.astype(jnp.int8), b.astype(jnp.int8).T, preferred_element_type=jnp.int32),
            ),
            [i, j],
        ),
        "mixed_dots": (
            lambda a, b: (lax.dot(a, b, preferred_element_type=jnp.float32), a @ b),
            [draw(27, 4, 8).astype(jnp.bfloat16), draw(28, 8, 5).astype(jnp.bfloat16)],
        ),
        "scatter_windows": (
            lambda a, s, v: lax.scatter(
                a, s, v, lax.ScatterDimensionNumbers((1, 2), (), (0, 1)), mode="drop"
            ),
            [
                draw(29, 6, 7),
                np.array([[0, 0], [4, 5], [3, 4], [-1, 2], [2, 6]], np.int32),
                draw(30, 5, 2, 3),
            ],
        ),
        "scatter_kinds": (
            lambda a, k, v: (
                a.at[k].mul(v),
                a.at[k].max(v),
                a.at[k].min(v),
                a.at[k, k].set(1.0),
                a.at[:, k].add(1.0),
                a.at[1:3, 2:4].set(0.0),
                a.at[..., -1].add(2.0),
                a.at[::2].set(3.0),
            ),
            [x, np.array([1, 3, 0], np.int32), draw(31, 3, 6)],
        ),
        "scatter_modes": (
            lambda a, k: (
                a.at[k].set(1.0, mode="clip"),
                a.at[k].get(mode="fill", fill_value=-1.0),
                a.at[k].get(mode="clip"),
                a.at[k].apply(jnp.sin),
            ),
            [x, np.array([-9, 2, 11], np.int32)],
        ),
        "scatter_bool": (
            lambda a, k: (a.at[k].set(True), a.at[k, k].set(False)),
            [p, np.array([1, 3, 9], np.int32)],
        ),
        "segment": (
            lambda a, s: (
                jax.ops.segment_sum(a, s, 3),
                jax.ops.segment_max(a, s, 3),
                jnp.bincount(s, length=4),
                jnp.histogram(a[:, 0], 4)[0],
            ),
            [x, np.array([0, 2, 2, 1], np.int32)],
        ),
        "indexing": (
            lambda a, b, k: (
                a[k][:, k],
                a[:, None, k],
                a[k, ::2],
                a[-1],
                a[1:, :-1],
                a[::-1],
                a[:, ::2],
                a[b],
                jnp.take(a, b, axis=1),
                jnp.take_along_axis(a, b[:, :1], 0),
                a[jnp.array([[0, 1], [2, 3]]), 1],
            ),
            [x, ints(32, 4, 3, low=0, high=4), np.array([2, 0, 3], np.int32)],
        ),
        "gather_grads": (
            jax.grad(
                lambda a, k: (
                    jnp.sum(a[k] ** 2) + jnp.sum(jnp.take_along_axis(a, k[:, None], 1) ** 3)
                )
            ),
            [x, np.array([2, 0, 3, 3], np.int32)],
        ),
        "vmap_gather": (
            lambda a, k: (
                jax.vmap(lambda r, s: r[s])(a, k),
                jax.vmap(lambda r, s: r.at[s].set(0.0))(a, k),
                jax.vmap(lambda r, s: lax.dynamic_slice(r, (s,), (2,)))(a, k[:, 0]),
            ),
            [x, ints(33, 4, 2, low=0, high=6)],
        ),
        "dynamic": (
            lambda a, s: (
                lax.dynamic_slice(a, (s, 0), (2, 6)),
                lax.dynamic_slice(a, (s, s), (2, 3)),
                lax.dynamic_update_slice(a, a[:1] * 0, (s, 0)),
                lax.dynamic_index_in_dim(a, s, 1),
                lax.dynamic_slice(a, (-s, 9), (3, 2)),
            ),
            [x, np.int32(2)],
        ),
        "update_bool_int": (
            lambda a, b, s: (
                lax.dynamic_update_slice(a, a[:1], (s, 0)),
                lax.dynamic_update_slice(b, b[:2, :2] + 1, (s, s)),
            ),
            [p, i, np.int32(1)],
        ),
        "loops": (
            lambda a, n: (
                lax.fori_loop(0, 5, lambda k, c: c * 0.5 + k, a),
                lax.while_loop(lambda c: c[1] < n, lambda c: (c[0] + c[1], c[1] + 1), (a, 0)),
                lax.fori_loop(0, n, lambda k, c: c.at[k].set(k), a),
            ),
            [x, np.int32(3)],
        ),
        "nested_loops": (
            lambda a: lax.scan(
                lambda c, r: (lax.fori_loop(0, 3, lambda k, q: jnp.tanh(q + r[k]), c), c.sum()),
                a[0],
                a,
            ),
            [x],
        ),
        "scan_kinds": (
            lambda a: (
                lax.scan(lambda c, r: (c + r, None), a[0], a)[0],
                lax.scan(lambda c, r: (c, c * r), a[0], a, reverse=True)[1],
                lax.map(lambda r: r.sum(), a),
                lax.scan(lambda c, _: (c * 2, c), 1.0, None, length=4),
            ),
            [x],
        ),
        "scan_grad": (
            jax.grad(
                lambda w, xs: lax.scan(
                    lambda h, r: (jnp.tanh(h @ w + r), h.sum()), jnp.zeros((3,)), xs
                )[1].sum()
            ),
            [draw(34, 3, 3), draw(35, 5, 3)],
        ),
        "conds": (
            lambda q, k, a: (
                lax.cond(q, jnp.sin, jnp.cos, a),
                lax.switch(k, [lambda v: (v, 1), lambda v: (v * 2, 2), lambda v: (-v, 3)], a),
                lax.cond(a.sum() > 0, lambda v: v[0], lambda v: v[1], (a, -a)),
            ),
            [np.bool_(False), np.int32(7), x],
        ),
        "cond_in_loop": (
            lambda a: lax.fori_loop(
                0, 4, lambda k, c: lax.cond(k % 2 == 0, lambda v: v + 1, lambda v: v * 2, c), a
            ),
            [x],
        ),
        "random_kinds": (
            lambda k: (
                jax.random.normal(k, (3, 4)),
                jax.random.randint(k, (5,), 0, 100),
                jax.random.bernoulli(k, 0.3, (6,)),
                jax.random.permutation(k, 8),
                jax.random.categorical(k, jnp.zeros((3, 4))),
                jax.random.split(k, 3),
                jax.random.fold_in(k, 5),
                jax.random.gumbel(k, (4,)),
                jax.random.exponential(k, (3,)),
                jax.random.choice(k, 10, (4,), replace=False),
            ),
            [key],
        ),
        "random_truncated": (
            lambda k: (
                jax.random.truncated_normal(k, -2, 2, (3, 4)),
                jax.random.laplace(k, (4,)),
                jax.random.uniform(k, (3,), jnp.bfloat16),
            ),
            [key],
        ),
        "dropout": (
            lambda k, a: jnp.where(jax.random.bernoulli(k, 0.9, a.shape), a / 0.9, 0.0),
            [key, x],
        ),
        "layer_norm": (lambda a, g, b: layer_norm(a, g, b), [x, draw(36, 6), draw(37, 6)]),
        "rms_norm": (
            lambda a, g: a * lax.rsqrt(jnp.mean(a * a, -1, keepdims=True) + 1e-6) * g,
            [x, draw(38, 6)],
        ),
        "batch_norm": (
            lambda a, g: (a - a.mean((0, 1, 2))) / jnp.sqrt(a.var((0, 1, 2)) + 1e-5) * g,
            [img, draw(39, 4)],
        ),
        "losses": (
            lambda a, t: (
                -(jax.nn.log_softmax(a) * jax.nn.one_hot(t, 6)).sum(-1).mean(),
                jnp.mean(jnp.abs(a)),
                jax.nn.relu(1 - a).sum(),
                jnp.linalg.norm(a),
                jnp.logaddexp(a, 0.0).sum(),
            ),
            [x, np.array([1, 0, 5, 2], np.int32)],
        ),
        "softmax_masked": (lambda a, m: jax.nn.softmax(jnp.where(m, a, -jnp.inf), axis=-1), [x, p]),
        "adam": (
            lambda w, g, m, v: (
                w - 0.01 * (0.9 * m + 0.1 * g) / (jnp.sqrt(0.999 * v + 0.001 * g * g) + 1e-8),
                0.9 * m + 0.1 * g,
                0.999 * v + 0.001 * g**2,
            ),
            [x, y, x * 0.1, y * y],
        ),
        "rotary": (
            lambda q, t: jnp.concatenate(
                [
                    q[..., :3] * jnp.cos(t) - q[..., 3:] * jnp.sin(t),
                    q[..., 3:] * jnp.cos(t) + q[..., :3] * jnp.sin(t),
                ],
                -1,
            ),
            [x, draw(40, 4, 3)],
        ),
        "kv_cache": (
            lambda cache, new, pos: (
                lax.dynamic_update_slice(cache, new, (0, pos, 0, 0)),
                jnp.einsum(
                    "bqhd,bkhd->bhqk", new, lax.dynamic_update_slice(cache, new, (0, pos, 0, 0))
                ),
            ),
            [draw(41, 2, 8, 2, 4), draw(42, 2, 1, 2, 4), np.int32(5)],
        ),
        "shapes": (
            lambda a: (
                jnp.stack([a, a * 2], 1),
                jnp.tile(a, (2, 3)),
                jnp.repeat(a, 2, 1),
                jnp.roll(a, 2, 1),
                jnp.flip(a, 0),
                jnp.moveaxis(a.reshape(2, 2, 6), 0, 2),
                jnp.pad(a, 1, mode="edge"),
                jnp.pad(a, ((1, 0), (0, 2)), constant_values=3.0),
                jnp.tril(a),
                jnp.triu(a, 1),
                jnp.diag(a[:, 0]),
                jnp.trace(a),
                jnp.eye(3, 4),
                jnp.linspace(0, 1, 5) * a[0, 0],
                jnp.meshgrid(a[0], a[:, 0]),
                jnp.squeeze(a[None]),
                jnp.kron(a[:2, :2], a[:2, :1]),
            ),
            [x],
        ),
        "reductions": (
            lambda a, k: (
                a.sum(),
                a.prod(1),
                a.mean((0, 1)),
                a.max(),
                jnp.ptp(a, 0),
                a.std(),
                jnp.argmax(a),
                jnp.count_nonzero(a > 0),
                k.sum(0),
                k.prod(1),
                k.max(1),
                k.min(),
                jnp.average(a, 0, jnp.abs(a) + 1),
                jnp.cov(a),
                jnp.bitwise_and.reduce(k, axis=0),
            ),
            [x, i],
        ),
        "variadic": (
            lambda a, k: lax.reduce(
                (a, k),
                (np.float32(0), np.int32(0)),
                lambda p, q: (p[0] + q[0], jnp.maximum(p[1], q[1])),
                (1,),
            ),
            [x, i],
        ),
        "reduce_custom": (
            lambda a: lax.reduce(
                a, np.float32(0.25), lambda p, q: p * 0.0 + jnp.maximum(p, q), (0,)
            ),
            [x],
        ),
        "empty": (
            lambda a: (a[:0].sum(), a[:0], a[:, :0].sum(1), jnp.concatenate([a[:0], a])),
            [x],
        ),
        "f16": (
            lambda a, b: (
                a + b,
                a @ b.T,
                jnp.exp(a),
                a.sum(1),
                a.max(0),
                jax.nn.softmax(a),
                jnp.tanh(a),
                jnp.sign(a),
            ),
            [x.astype(np.float16), y.astype(np.float16)],
        ),
        "bf16_more": (
            lambda a, b: (
                jnp.where(a > b, a, b),
                jnp.concatenate([a, b]),
                a[::2],
                jnp.pad(a, 1),
                a.max(1),
                jax.nn.softmax(a),
                jnp.sort(a, 1),
                a.at[0].set(b[0]),
                a[jnp.array([2, 1])],
                jnp.argmax(a, 1),
                lax.rsqrt(jnp.abs(a) + 1),
                a.astype(jnp.float32) * 2,
                jnp.broadcast_to(a[0], (3, 6)),
            ),
            [x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)],
        ),
        "checkpoint": (
            jax.grad(lambda w, a: jnp.sum(jax.checkpoint(lambda v: jnp.tanh(v @ w))(a))),
            [draw(43, 6, 6), x],
        ),
        "gelu_grad": (
            jax.grad(lambda a: jnp.sum(jax.nn.gelu(a) + jax.nn.gelu(a, approximate=False))),
            [x],
        ),
        "interp": (
            lambda a, q: (
                jnp.interp(q, jnp.arange(6.0), a[0]),
                jnp.searchsorted(jnp.sort(a[0]), q),
                jnp.digitize(q, jnp.array([0.0, 0.5, 1.0])),
            ),
            [x, draw(44, 5)],
        ),
        "resize": (
            lambda a: (
                jax.image.resize(a, (2, 5, 5, 4), "bilinear"),
                jax.image.resize(a, (2, 18, 18, 4), "nearest"),
            ),
            [img],
        ),
        "polynomial": (
            lambda a: (
                jnp.polyval(jnp.array([1.0, -2, 3]), a),
                jnp.vander(a[0], 3),
                jnp.convolve(a[0], a[1]),
                jnp.correlate(a[0], a[1], "same"),
            ),
            [x],
        ),
        "group_norm": (
            lambda a: (
                (a.reshape(2, 7, 7, 2, 2) - a.reshape(2, 7, 7, 2, 2).mean((1, 2, 4), keepdims=True))
                / a.reshape(2, 7, 7, 2, 2).std((1, 2, 4), keepdims=True)
            ).reshape(a.shape),
            [img],
        ),
        "lstm": (
            lambda w, h, c, v: (
                lambda z: (
                    jax.nn.sigmoid(z[:, 3:6])
                    * jnp.tanh(
                        jax.nn.sigmoid(z[:, :3]) * c
                        + jax.nn.sigmoid(z[:, 6:9]) * jnp.tanh(z[:, 9:])
                    )
                )
            )(jnp.concatenate([h, v], 1) @ w),
            [draw(45, 6, 12), draw(46, 2, 3), draw(47, 2, 3), draw(48, 2, 3)],
        ),
        "moe": (
            lambda a, r, w: jnp.einsum(
                "te,tei->ti",
                jax.nn.softmax(lax.top_k(a @ r, 2)[0]),
                jnp.take(w, lax.top_k(a @ r, 2)[1], axis=0).sum(2),
            ),
            [x, draw(49, 6, 4), draw(50, 4, 5, 3)],
        ),
        "beam": (lambda a: (lambda v, k: (v, k // 6, k % 6))(*lax.top_k(a.reshape(-1), 5)), [x]),
        "hessian": (jax.hessian(lambda v: jnp.sum(jnp.tanh(v) ** 3)), [draw(51, 4)]),
        "jvp": (lambda a, b: jax.jvp(lambda v: jnp.sin(v) * v.sum(), (a,), (b,)), [x, y]),
        "complex": (lambda a: jnp.abs(a + 1j * a), [x]),
        "fft": (lambda a: jnp.abs(jnp.fft.rfft(a)), [x]),
        "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(4)), [x]),
        "rbg": (lambda k: lax.rng_bit_generator(k, (4,)), [np.array([1, 2, 3, 4], np.uint32)]),
    }


def wide() -> dict[str, Program]:
    """Programs of 64-bit types, and numbers at the ends of each integer type; run with JAX_ENABLE_X64=1."""
    programs: dict[str, Program] = {}
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        limits = np.iinfo(kind)
        ends = [
            limits.min,
            limits.max,
            0,
            1,
            2,
            3,
            7,
            limits.max - 1,
            limits.max // 2,
            limits.max // 2 + 1,
        ]
        if limits.min < 0:
            ends += [-1, -2, limits.min + 1]
        if limits.bits == 64:
            ends += [2**31, 2**31 - 1, 2**32 - 1, 2**32, 2**33 + 5, 2**53 + 1]
        a = np.array(ends * 4, dtype=np.uint64 if kind == "uint64" else np.int64).astype(kind)
        b = np.random.default_rng(1).permutation(a)
        k = np.random.default_rng(2).integers(0, limits.bits + 3, a.shape).astype(kind)
        square, other = a.reshape(4, -1), b.reshape(4, -1)
        programs[f"ends_{kind}"] = (
            lambda a, b, k: (
                [
                    a + b,
                    a - b,
                    a * b,
                    lax.div(a, b),
                    lax.rem(a, b),
                    jnp.maximum(a, b),
                    jnp.minimum(a, b),
                    a < b,
                    a >= b,
                    a == b,
                ],
                [
                    a & b,
                    a | b,
                    a ^ b,
                    ~a,
                    a << k,
                    lax.shift_right_logical(a, k),
                    lax.shift_right_arithmetic(a, k),
                ],
                [
                    jnp.abs(a),
                    lax.sign(a),
                    lax.neg(a),
                    lax.population_count(a),
                    lax.clz(a),
                    lax.clamp(k, a, b),
                ],
                [
                    a.astype(t)
                    for t in (
                        jnp.int8,
                        jnp.uint8,
                        jnp.int16,
                        jnp.uint16,
                        jnp.int32,
                        jnp.uint32,
                        jnp.int64,
                        jnp.uint64,
                        jnp.float32,
                        jnp.float64,
                        bool,
                    )
                ],
                jnp.where(a > b, a, b),
            ),
            [a, b, k],
        )
        programs[f"reduce_{kind}"] = (
            lambda s, o: (
                [lax.reduce(s, np.array(0, s.dtype), lax.add, (d,)) for d in (0, 1)],
                [lax.reduce(s, np.array(1, s.dtype), lax.mul, (d,)) for d in (0, 1)],
                [s.max(d) for d in (0, 1)],
                [s.min(d) for d in (0, 1)],
                [
                    jnp.argmax(s, 1),
                    jnp.argmin(s, 0),
                    jnp.sort(s, 1),
                    jnp.argsort(o, 1),
                    lax.top_k(s, 3),
                ],
                [lax.cumsum(s, 1), lax.cummax(o, 0), lax.dot(s, o.T), jnp.einsum("ij,ij->i", s, o)],
                [
                    s.at[np.array([0, 0, 1])].add(o[:3]),
                    s.at[np.array([0, 0, 1])].max(o[:3]),
                    s.at[np.array([1, 2])].mul(o[:2]),
                ],
                [
                    lax.reduce(s, np.array(0, s.dtype), lax.bitwise_xor, (0,)),
                    jnp.bitwise_or.reduce(s, axis=1),
                ],
            ),
            [square, other],
        )
        programs[f"index_{kind}"] = (
            lambda x, i: (
                x[i],
                lax.dynamic_slice(x, (i[0], i[1]), (2, 2)),
                x.at[i].set(0.5, mode="drop"),
                lax.dynamic_update_slice(x, x[:1, :1], (i[1], i[2])),
                jnp.take(x, i, axis=1, mode="clip"),
            ),
            [draw(60, 5, 6), a],
        )
    x, y = draw(61, 4, 6, dtype=np.float64), draw(62, 4, 6, dtype=np.float64)
    f = np.array(
        [
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            2.0**31,
            -(2.0**31),
            2.0**32,
            2.0**63,
            -(2.0**63),
            2.0**64,
            1e20,
            -1e20,
            np.inf,
            -np.inf,
            np.nan,
            2.0**62,
            2.0**63 + 2.0**20,
            127.9,
            -128.9,
            255.9,
            65535.5,
        ],
        np.float64,
    )
    programs["double_casts"] = (
        lambda a: [
            [
                v.astype(t)
                for t in (
                    jnp.int8,
                    jnp.uint8,
                    jnp.int16,
                    jnp.uint16,
                    jnp.int32,
                    jnp.uint32,
                    jnp.int64,
                    jnp.uint64,
                )
            ]
            for v in (a, a.astype(jnp.float32))
        ],
        [f],
    )
    programs["doubles"] = (
        lambda a, b: (
            a + b,
            a @ b.T,
            jnp.tanh(a),
            jnp.exp(a),
            jnp.sin(a),
            jax.nn.softmax(a),
            a.max(1),
            jnp.sort(a, 1),
            jnp.expm1(a),
            jnp.log1p(jnp.abs(a)),
            jnp.cbrt(a),
            a // b,
            a % b,
            jnp.argmax(a, 1),
            a.sum(),
            jnp.tan(a),
        ),
        [x, y],
    )
    programs["double_conv"] = (
        lambda a, w: conv(a, w),
        [draw(63, 1, 5, 5, 2, dtype=np.float64), draw(64, 3, 3, 2, 3, dtype=np.float64)],
    )
    programs["double_erf"] = (lambda a: (lax.erf(a), jnp.arctan(a)), [x])
    return programs


# Programs as other people write them: variants of attention, recurrences, loops, searches.


def grouped_attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    """Attention with rotary positions, four heads of queries and two of keys."""
    batch, length, width = x.shape
    size = width // 4
    q = (x @ wq).reshape(batch, length, 4, size)
    k, v = (jnp.repeat((x @ w).reshape(batch, length, 2, size), 2, axis=2) for w in (wk, wv))
    positions = jnp.arange(length)
    angle = positions[:, None] / (10000 ** (jnp.arange(0, size, 2) / size))
    cos, sin = jnp.cos(angle)[None, :, None], jnp.sin(angle)[None, :, None]

    def rotated(a: Any) -> Any:
        even, odd = a[..., ::2], a[..., 1::2]
        return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(a.shape)

    scores = jnp.einsum("bqhe,bkhe->bhqk", rotated(q), rotated(k)) / np.sqrt(size)
    scores = jnp.where(positions[:, None] >= positions, scores, -jnp.inf)
    heads = jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores, -1), v)
    return heads.reshape(batch, length, width) @ wo


def cached_step(keys: Any, values: Any, q: Any, k: Any, v: Any, position: Any) -> Any:
    keys = lax.dynamic_update_slice(keys, k, (0, position, 0))
    values = lax.dynamic_update_slice(values, v, (0, position, 0))
    visible = jnp.arange(keys.shape[1]) <= position
    scores = jnp.where(visible[None], jnp.einsum("be,bte->bt", q, keys), -1e9)
    return jnp.einsum("bt,bte->be", jax.nn.softmax(scores), values), keys, values


def blockwise_attention(q: Any, k: Any, v: Any) -> Any:
    """Attention over blocks of keys with a running maximum and sum."""

    def step(j: Any, carry: Any) -> Any:
        top, total, out = carry
        keys, values = (lax.dynamic_slice(a, (j * 2, 0), (2, a.shape[1])) for a in (k, v))
        scores = q @ keys.T
        new = jnp.maximum(top, scores.max(-1))
        weights, scale = jnp.exp(scores - new[:, None]), jnp.exp(top - new)
        return new, total * scale + weights.sum(-1), out * scale[:, None] + weights @ values

    rows = q.shape[0]
    start = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros(q.shape))
    return lax.fori_loop(0, k.shape[0] // 2, step, start)


def lstm(w: Any, u: Any, b: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[0]))
    return lax.scan(step, (zero, zero), xs, reverse=True)


def linear_recurrence(a: Any, b: Any) -> Any:
    def join(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return lax.associative_scan(join, (a, b), axis=1)


def alignment(scores: Any, labels: Any) -> Any:
    count = labels.shape[0]

    def step(carry: Any, row: Any) -> Any:
        moved = jnp.concatenate([jnp.full((1,), -1e5), carry[:-1]])
        carry = jnp.logaddexp(carry, moved) + row[labels]
        return carry, carry[-1]

    return lax.scan(step, jnp.where(jnp.arange(count) == 0, 0.0, -1e5), scores)


def roots(x: Any) -> Any:
    return lax.while_loop(
        lambda c: (jnp.abs(c[0] * c[0] - x).max() > 1e-4) & (c[1] < 30),
        lambda c: (0.5 * (c[0] + x / c[0]), c[1] + 1),
        (x, 0),
    )


def outside() -> dict[str, Program]:
    x, i = draw(1, 4, 6), ints(3, 4, 6)
    positive = np.abs(draw(1, 2, 9, 3)) * 0.5
    return {
        "grouped_attention": (
            grouped_attention,
            [draw(1, 1, 4, 16), *(draw(k, 16, n, scale=0.3) for k, n in enumerate((16, 8, 8, 16)))],
        ),
        "cached_step": (
            cached_step,
            [
                draw(1, 2, 8, 4),
                draw(2, 2, 8, 4),
                draw(3, 2, 4),
                *(draw(k, 2, 1, 4) for k in (4, 5)),
                np.int32(5),
            ],
        ),
        "blockwise_attention": (blockwise_attention, [draw(1, 3, 4), draw(2, 6, 4), draw(3, 6, 4)]),
        "local_attention": (
            lambda q, k, v: jax.nn.dot_product_attention(q, k, v, local_window_size=2),
            [draw(1, 1, 5, 4, 4), draw(2, 1, 5, 2, 4), draw(3, 1, 5, 2, 4)],
        ),
        "lstm": (
            lstm,
            [
                draw(1, 3, 16, scale=0.4),
                draw(2, 4, 16, scale=0.4),
                draw(3, 16),
                draw(4, 5, 2, 3),
            ],
        ),
        "linear_recurrence": (linear_recurrence, [positive, draw(2, 2, 9, 3)]),
        "alignment": (
            alignment,
            [np.log(np.abs(draw(1, 6, 5)) + 0.1), np.array([1, 0, 3, 2], np.int32)],
        ),
        "roots": (roots, [np.abs(draw(1, 5)) + 0.5]),
        "nested_while": (
            lambda a: lax.fori_loop(
                0,
                3,
                lambda k, c: lax.while_loop(lambda d: d.sum() < k * 10.0, lambda d: d + 1, c),
                a,
            ),
            [np.abs(x)],
        ),
        "nested_cond": (
            lambda p, a: lax.cond(
                p > 0,
                lambda v: lax.cond(
                    v.sum() > 0, lambda z: (z * 2, z.sum()), lambda z: (z - 1, z.max()), v
                ),
                lambda v: (v, v.min()),
                a,
            ),
            [np.float32(1), x],
        ),
        "windows": (
            lambda a: (
                lax.reduce_window(a, 0.0, lax.add, (2, 3), (1, 2), "SAME"),
                lax.reduce_window(a, 1.0, lax.mul, (1, 2), (1, 1), "VALID"),
                lax.reduce_window(
                    a, -jnp.inf, lax.max, (2, 2), (2, 2), [(1, 1), (0, 0)], window_dilation=(1, 2)
                ),
                lax.reduce_window(a, 0.0, lax.add, (2, 2), (1, 1), "VALID", base_dilation=(2, 1)),
            ),
            [x],
        ),
        "sorts": (
            lambda a, b: (
                lax.sort((a, b), num_keys=1),
                jnp.argsort(-a, axis=0),
                jnp.sort(b)[::-1],
                jnp.unique(b.ravel(), size=8, fill_value=0),
            ),
            [x, i],
        ),
    }
