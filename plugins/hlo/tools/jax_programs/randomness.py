"""Random numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw


def randomness() -> dict[str, Program]:
    x = draw(1, 4, 6)
    key = np.array([3, 7], np.uint32)
    return {
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
        "rbg": (lambda k: lax.rng_bit_generator(k, (4,)), [np.array([1, 2, 3, 4], np.uint32)]),
    }
