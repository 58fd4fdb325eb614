"""Orders: sorts, ranks, searches."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw, ints, large_unsigned, odd


def sorting() -> dict[str, Program]:
    x = draw(1, 4, 6)
    i = ints(3, 4, 6)
    u = large_unsigned()
    s8 = ints(6, 4, 6, low=-128, high=127, dtype=np.int8)
    return {
        "nan_sort": (
            lambda a: (
                jnp.sort(a, 1),
                jnp.argsort(a, 1),
                jnp.sort(a, 0, descending=True),
                lax.top_k(jnp.where(jnp.isnan(a), 9.0, a), 3),
            ),
            [odd()],
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
        "beam": (lambda a: (lambda v, k: (v, k // 6, k % 6))(*lax.top_k(a.reshape(-1), 5)), [x]),
    }
