"""Programs as other people write them: variants of attention, recurrences, loops, searches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw, ints


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
