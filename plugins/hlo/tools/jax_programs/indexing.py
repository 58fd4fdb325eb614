"""Gathers, scatters and updates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw, ints


def indexing() -> dict[str, Program]:
    x = draw(1, 4, 6)
    i = ints(3, 4, 6)
    p = x > 0
    return {
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
    }
