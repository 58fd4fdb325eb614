"""Windows and running results: pools, cumulative operations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .inputs import Program, draw, ints


def windows() -> dict[str, Program]:
    x = draw(1, 4, 6)
    i = ints(3, 4, 6)
    img = draw(8, 2, 7, 7, 4)
    return {
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
    }
