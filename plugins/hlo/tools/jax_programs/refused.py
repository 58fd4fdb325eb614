"""Programs that have no translation."""

from __future__ import annotations

import jax.numpy as jnp

from .inputs import Program, draw


def refused() -> dict[str, Program]:
    x = draw(1, 4, 6)
    return {
        "complex": (lambda a: jnp.abs(a + 1j * a), [x]),
        "fft": (lambda a: jnp.abs(jnp.fft.rfft(a)), [x]),
        "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(4)), [x]),
    }
