"""Further jax programs for ``jax_programs.py``: losses, samplers, state spaces, images, gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

F32, F16, I32 = jnp.float32, jnp.float16, jnp.int32
U8, U32, I8, BOOL = jnp.uint8, jnp.uint32, jnp.int8, jnp.bool_


def of(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def gru(x: Any, w: Any, u: Any) -> Any:
    def step(h: Any, item: Any) -> Any:
        r, z, n = jnp.split(item @ w, 3, axis=-1)
        hr, hz, hn = jnp.split(h @ u, 3, axis=-1)
        z = nn.sigmoid(z + hz)
        h = (1 - z) * jnp.tanh(n + nn.sigmoid(r + hr) * hn) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((2, 8)), x)


def sliding_attention(q: Any, k: Any, v: Any) -> Any:
    place = jnp.arange(8)
    near = (place[:, None] >= place) & (place[:, None] - place < 3)
    scores = jnp.einsum("hqd,hkd->hqk", q, k) - jnp.abs(place[:, None] - place) * 0.5
    return nn.softmax(jnp.where(near, scores, -jnp.inf), -1) @ v


def decode_step(q: Any, k: Any, v: Any, cache: Any, at: Any) -> Any:
    keys = lax.dynamic_update_slice(cache, k, (0, at, 0))
    scores = jnp.where(jnp.arange(8) <= at, jnp.einsum("hd,hkd->hk", q, keys), -1e9)
    return jnp.einsum("hk,hkd->hd", nn.softmax(scores), v), keys


def relative_bias(scores: Any, table: Any) -> Any:
    place = jnp.arange(8)
    near = jnp.clip(place[:, None] - place, -3, 3) + 3
    return nn.softmax(scores + table[near].transpose(2, 0, 1), -1)


def selective_scan(x: Any, a: Any, b: Any) -> Any:
    def join(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return lax.associative_scan(join, (jnp.exp(-nn.softplus(a)), b * x))[1]


def clip_loss(x: Any, y: Any) -> Any:
    x, y = [item / jnp.linalg.norm(item, axis=-1, keepdims=True) for item in (x, y)]
    logits = x @ y.T * 10
    labels = jnp.eye(4)
    return -(labels * (nn.log_softmax(logits) + nn.log_softmax(logits.T))).sum() / 8


def focal_loss(x: Any, y: Any) -> Any:
    p = nn.sigmoid(x)
    return jnp.mean(-y * (1 - p) ** 2 * jnp.log(p) - (1 - y) * p**2 * jnp.log1p(-p))


def overlap(a: Any, b: Any) -> Any:
    low = jnp.maximum(a[:, None, :2], b[None, :, :2])
    high = jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    inside = jnp.clip(high - low, 0).prod(-1)
    areas = [(item[:, 2:] - item[:, :2]).prod(-1) for item in (a, b)]
    return inside / (areas[0][:, None] + areas[1] - inside)


def patches(x: Any, w: Any) -> Any:
    return x.reshape(1, 4, 2, 4, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(1, 16, 12) @ w


def pixel_shuffle(x: Any) -> Any:
    return x.reshape(1, 4, 4, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, 3) * 2


def grouped_weights(x: Any, w: Any, scale: Any, zero: Any) -> Any:
    parts = (w.astype(F32).reshape(2, 4, 16) - zero[:, None]) * scale[:, None]
    return x @ parts.reshape(8, 16)


def sample(key: Any, logits: Any) -> Any:
    values, places = lax.top_k(logits / 0.7, 3)
    return jnp.take(places, jax.random.categorical(jax.random.wrap_key_data(key), values))


def top_p(logits: Any) -> Any:
    ordered = jnp.sort(nn.softmax(logits), -1)[:, ::-1]
    needed = (jnp.cumsum(ordered, -1) < 0.9).sum(-1, keepdims=True)
    return jnp.where(nn.softmax(logits) >= jnp.take_along_axis(ordered, needed, -1), logits, -1e9)


def nested_scan(x: Any) -> Any:
    def inner(c: Any, e: Any) -> Any:
        return jnp.tanh(c + e), c

    return lax.scan(lambda c, row: lax.scan(inner, c, row), x[0, 0], x)


def cond_in_scan(x: Any) -> Any:
    def step(c: Any, e: Any) -> Any:
        return lax.cond(e > 0, lambda: c + jnp.exp(e), lambda: c * 0.5), c

    return lax.scan(step, 0.0, x)


def power_iteration(m: Any) -> Any:
    def step(_: int, v: Any) -> Any:
        v = m @ v
        return v / jnp.sqrt((v * v).sum())

    return lax.fori_loop(0, 4, step, jnp.ones(8))


def collatz(n: Any) -> Any:
    def step(state: Any) -> Any:
        value, count = state
        return jnp.where(value % 2 == 0, value // 2, 3 * value + 1), count + 1

    return lax.while_loop(lambda s: (s[0] > 1) & (s[1] < 50), step, (n, 0))


def quaternions(a: Any, b: Any) -> Any:
    w, v, s, u = a[:, :1], a[:, 1:], b[:, :1], b[:, 1:]
    return jnp.concatenate(
        [w * s - (v * u).sum(-1, keepdims=True), w * u + s * v + jnp.cross(v, u)], -1
    )


def attention_loss(q: Any, k: Any, v: Any) -> Any:
    return (nn.softmax(q @ k.T) @ v).sum()


def convolution_loss(x: Any, w: Any) -> Any:
    result = lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.mean(jnp.tanh(result) ** 2)


KINDS: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gru": (gru, (of(5, 2, 4), of(4, 24), of(8, 24))),
    "sliding_attention": (sliding_attention, (of(2, 8, 4),) * 3),
    "decode_step": (decode_step, (of(2, 4), of(2, 1, 4), of(2, 8, 4), of(2, 8, 4), of(dtype=I32))),
    "relative_bias": (relative_bias, (of(4, 8, 8), of(7, 4))),
    "selective_scan": (selective_scan, (of(8, 4), of(8, 4), of(8, 4))),
    "clip_loss": (clip_loss, (of(4, 8), of(4, 8))),
    "focal_loss": (focal_loss, (of(4, 8), of(4, 8))),
    "divergence": (lambda p, q: (nn.softmax(p) * (nn.log_softmax(p) - nn.log_softmax(q))).sum(-1), (of(4, 8), of(4, 8))),
    "overlap": (overlap, (of(3, 4), of(5, 4))),
    "patches": (patches, (of(1, 8, 8, 3), of(12, 16))),
    "pixel_shuffle": (pixel_shuffle, (of(1, 4, 4, 12),)),
    "nearest": (lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 2) + 1, (of(1, 4, 4, 3),)),
    "image": (lambda x: (x.astype(F32) / 255 - jnp.array([0.5, 0.4, 0.3])) / 0.2, (of(1, 8, 8, 3, dtype=U8),)),
    "grouped_weights": (grouped_weights, (of(4, 8), of(8, 16, dtype=I8), of(2, 16), of(2, 16))),
    "low_rank": (lambda x, w, a, b: x @ w + (x @ a) @ b * 2, (of(4, 8), of(8, 16), of(8, 2), of(2, 16))),
    "sample": (sample, (of(2, dtype=U32), of(8))),
    "top_p": (top_p, (of(2, 8),)),
    "gumbel": (lambda k, x: x + jax.random.gumbel(jax.random.wrap_key_data(k), x.shape), (of(2, dtype=U32), of(8))),
    "nested_scan": (nested_scan, (of(3, 4, 2),)),
    "cond_in_scan": (cond_in_scan, (of(6),)),
    "power_iteration": (power_iteration, (of(8, 8),)),
    "collatz": (collatz, (of(dtype=I32),)),
    "quaternions": (quaternions, (of(3, 4), of(3, 4))),
    "attention_gradient": (jax.grad(attention_loss, (0, 1, 2)), (of(4, 8), of(5, 8), of(5, 8))),
    "convolution_gradient": (jax.grad(convolution_loss, (0, 1)), (of(1, 6, 6, 2), of(3, 3, 2, 4))),
    "jacobian": (jax.jacfwd(lambda x: jnp.sin(x) * x.sum()), (of(4),)),
    "mapped_scan": (jax.vmap(lambda x: jnp.cumsum(jnp.sin(x)) * x), (of(3, 5),)),
    "segments": (lambda x, i: jax.ops.segment_sum(x, i, 4), (of(6, 3), of(6, dtype=I32))),
    "histogram": (lambda i: jnp.bincount(i, length=8), (of(6, dtype=I32),)),
    "interpolation": (lambda x, p, q: jnp.interp(x, p, q), (of(5), of(4), of(4))),
    "search": (lambda a, x: jnp.searchsorted(a, x), (of(8), of(3))),
    "polynomial": (lambda c, x: jnp.polyval(c, x), (of(4), of(5))),
    "kronecker": (lambda x, y: jnp.kron(x, y) + jnp.trace(x), (of(2, 3), of(3, 2))),
    "diagonal": (lambda x: jnp.diag(jnp.diagonal(x)) + jnp.flip(x, 0), (of(4, 4),)),
    "convolve": (lambda x, w: jnp.convolve(x, w, "same"), (of(8), of(3))),
    "logs": (lambda x, y: jnp.logaddexp(x, y) + jnp.hypot(x, y) + jnp.log2(x), (of(4), of(4))),
    "gammas": (lambda x: jax.scipy.special.gammaln(x) + jax.scipy.special.digamma(x), (of(4),)),
    "error_inverse": (lambda x: jax.scipy.special.erfinv(x) + jax.scipy.special.i0e(x), (of(4),)),
    "bits": (lambda i: lax.population_count(i) + lax.clz(i) + (i & 7), (of(4, dtype=U32),)),
    "running_maximum": (lambda x: lax.cummax(x, 1) + lax.cumlogsumexp(x, 1), (of(3, 6),)),
    "argsort": (lambda x: (jnp.argsort(x), jnp.argmin(x)), (of(8),)),
    "pairs": (lambda x, y: lax.reduce((x, y), (0.0, -jnp.inf), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (1,)), (of(4, 8), of(4, 8))),
    "fourier": (lambda x: jnp.abs(jnp.fft.rfft(x)), (of(8),)),
    "spectrum": (lambda x, y: (lax.complex(x, y) * lax.complex(y, -x)).imag + jnp.angle(lax.complex(x, y)), (of(4), of(4))),
    "roots": (lambda x: jnp.sqrt(lax.complex(x, x)).real + jnp.exp(lax.complex(x, -x)).imag, (of(4),)),
    "two_dtypes": (lambda x, y: (x.astype(F16) * y).astype(F32) + (x > 0), (of(4, 8), of(8, dtype=F16))),
}  # fmt: skip
"""Of each: the function and its arguments."""
