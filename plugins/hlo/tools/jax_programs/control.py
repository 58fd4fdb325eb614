"""Loops, scans and conditions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw


def control() -> dict[str, Program]:
    x = draw(1, 4, 6)
    return {
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
    }
