"""Small programs, one subject each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw, ints
from .models import attention, conv, conv_net, scan_rnn


def small() -> dict[str, Program]:
    x, y, i = draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6)
    image, kernel = draw(4, 2, 8, 8, 4), draw(5, 3, 3, 4, 6)
    half = x.astype(jnp.bfloat16)
    key = np.array([3, 7], np.uint32)
    return {
        "conv_net": (
            conv_net,
            [
                draw(1, 2, 12, 12, 3),
                draw(2, 3, 3, 3, 8, scale=0.3),
                draw(3, 3, 3, 8, 16, scale=0.1),
                draw(4, 16, 5),
            ],
        ),
        "depthwise": (lambda a, w: conv(a, w, 1, "SAME", 4), [image, draw(6, 3, 3, 1, 8)]),
        "gather_rows": (lambda a, j: a[j], [x, np.array([3, 0, -1, 2, 9], np.int32)]),
        "gather_two": (
            lambda a, j, k: a[j, k],
            [x, np.array([3, 0, 1], np.int32), np.array([5, -2, 0], np.int32)],
        ),
        "gather_windows": (
            lambda a, j: jax.vmap(lambda s: lax.dynamic_slice(a, (s, 1), (2, 3)))(j),
            [x, np.array([0, 2, 7, -4], np.int32)],
        ),
        "scatter_add": (lambda a, j, v: a.at[j].add(v), [x, np.array([1, 1, 9, 0], np.int32), y]),
        "scatter_set": (
            lambda a, j, v: a.at[j, 2].set(v),
            [x, np.array([1, 2, 17], np.int32), draw(7, 3)],
        ),
        "top_k": (lambda a: lax.top_k(a, 3), [x]),
        "argmax": (lambda a: (jnp.argmax(a, 1), jnp.argmin(a, 0)), [i]),
        "cumsum": (lambda a: jnp.cumsum(a, 1), [x]),
        "dynamic_update": (
            lambda a, u, s: lax.dynamic_update_slice(a, u, (s, s + 1)),
            [x, y[:2, :2], np.int32(3)],
        ),
        "cond": (
            lambda p, a: lax.cond(p > 0, lambda v: v * 2, lambda v: v - 1, a),
            [np.float32(1), x],
        ),
        "scan": (scan_rnn, [draw(1, 8, 8), draw(2, 4, 8), draw(3, 10, 2, 4)]),
        "pad": (lambda a: lax.pad(a, 1.5, [(2, -1, 1), (-1, 3, 2)]), [x]),
        "einsum": (
            lambda a, b: jnp.einsum("bij,bkj->kbi", a, b),
            [draw(8, 2, 3, 4), draw(9, 2, 5, 4)],
        ),
        "logsumexp": (lambda a: jax.nn.logsumexp(a, 1), [x]),
        "erf_gelu": (lambda a: jax.nn.gelu(a, approximate=False), [x]),
        "int_rem_div": (
            lambda a, b: (a % b, a // b, lax.div(a, b), lax.rem(a, b)),
            [i, np.where(ints(5, 4, 6) == 0, 3, ints(5, 4, 6)).astype(np.int32)],
        ),
        "var_std": (lambda a: (a.var(1), a.std(0, ddof=1)), [x]),
        "one_hot": (lambda j: jax.nn.one_hot(j, 7), [ints(6, 9, low=-1, high=9)]),
        "conv_grad": (
            jax.grad(lambda w, a: jnp.sum(conv(a, w, 2) ** 2), argnums=(0, 1)),
            [kernel, image],
        ),
        "sort": (lambda a: (jnp.sort(a, 1), jnp.argsort(a, 0)), [x]),
        "cumprod": (lambda a: jnp.cumprod(a, 1), [x]),
        "switch": (
            lambda k, a: lax.switch(k, [jnp.sin, jnp.cos, jnp.exp, jnp.tanh], a),
            [np.int32(2), x],
        ),
        "random_bits": (lambda k: jax.random.bits(k, (5, 3)), [key]),
        "random_uniform": (
            lambda k: (jax.random.uniform(k, (5, 3)), jax.random.normal(k, (7,))),
            [key],
        ),
        "float_floordiv": (lambda a, b: (a // b, a % b), [x, y]),
        "take_along_axis": (
            lambda a, j: jnp.take_along_axis(a, j, 1),
            [x, ints(7, 4, 3, low=0, high=6)],
        ),
        "bf16": (
            lambda a, b: (a + b, jnp.tanh(a) * b, a @ b.T, a.sum(1)),
            [half, y.astype(jnp.bfloat16)],
        ),
        "attention": (
            lambda a, w, o: attention(a, w, o, 2),
            [draw(1, 2, 5, 8), draw(2, 8, 24), draw(3, 8, 8)],
        ),
    }
