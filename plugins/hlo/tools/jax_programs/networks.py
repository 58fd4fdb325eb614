"""Parts of networks, their gradients, and steps of training."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw
from .models import layer_norm


def networks() -> dict[str, Program]:
    x = draw(1, 4, 6)
    y = draw(2, 4, 6)
    img = draw(8, 2, 7, 7, 4)
    p = x > 0
    return {
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
        "hessian": (jax.hessian(lambda v: jnp.sum(jnp.tanh(v) ** 3)), [draw(51, 4)]),
        "jvp": (lambda a, b: jax.jvp(lambda v: jnp.sin(v) * v.sum(), (a,), (b,)), [x, y]),
    }
