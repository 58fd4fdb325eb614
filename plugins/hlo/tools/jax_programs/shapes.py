"""Movements of elements, and reductions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw, ints


def shapes() -> dict[str, Program]:
    x = draw(1, 4, 6)
    i = ints(3, 4, 6)
    return {
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
    }
