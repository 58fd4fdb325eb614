"""The corpus: programs as people write them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .inputs import Program, draw, ints
from .models import block, block_step, block_weights, conv_net, mlp, scan_rnn


def zoo(x: Any, y: Any, i: Any) -> Any:
    """Rare opcodes."""
    return (
        jnp.cbrt(x) + jnp.expm1(y) + jnp.log1p(jnp.abs(x)),
        lax.rem(x, y),
        jnp.arctan2(x, y),
        lax.population_count(i),
        lax.clz(i),
        jnp.sort(x, axis=0),
        lax.top_k(x, 3),
        lax.cumsum(x, 1),
        lax.cummax(x, 0),
        lax.pad(x, 0.5, [(1, 2, 1), (-1, 0, 0)]),
        lax.rev(x, (0,)),
        x.at[i[0] % 3].add(1.0),
        lax.switch(jnp.clip(i[0, 0], 0, 2), [jnp.sin, jnp.cos, jnp.tan], x),
        lax.while_loop(
            lambda c: jnp.sum(c[0]) < 10, lambda c: (c[0] + jnp.abs(y), c[1] + 1), (jnp.abs(x), 0)
        ),
        lax.clamp(-0.5, x, 0.5),
        jnp.floor(x) + jnp.ceil(y) + jnp.round(x) + jnp.sign(y),
        lax.nextafter(x, y),
        lax.reduce_precision(x, 8, 7),
        jax.random.uniform(jax.random.PRNGKey(3), (4,)),
        jnp.argmax(x, 1),
        lax.erf(x),
        lax.is_finite(x / (x - x[:1])),
    )


def deep_weights(layers: int, width: int, scale: float = 1.0) -> list[dict[str, Any]]:
    return [block_weights(100 * layer, width, scale) for layer in range(layers)]


def deep_step(layers: Any, x: Any, y: Any) -> Any:
    def loss(layers: Any) -> Any:
        h = x
        for p in layers:
            h = block(p, h)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(layers)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, layers, gradients)


def sharded(mesh: Mesh) -> Program:
    data = NamedSharding(mesh, P("data", None))
    model = NamedSharding(mesh, P(None, "model"))

    def run(x: Any, w: Any, v: Any) -> Any:
        h = jax.nn.relu(
            lax.with_sharding_constraint(x, data) @ lax.with_sharding_constraint(w, model)
        )
        return lax.with_sharding_constraint(h @ v, data)

    return run, [draw(1, 16, 32), draw(2, 32, 64), draw(3, 64, 32)]


def corpus(scale: float = 1.0, width: int = 32) -> dict[str, Program]:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    return {
        "mlp": (
            mlp,
            [[(draw(k, 16, 16), draw(k + 9, 16)) for k in range(3)], draw(20, 8, 16, scale=scale)],
        ),
        "block": (block, [block_weights(0, width, scale), draw(50, 2, 16, width, scale=scale)]),
        "block_step": (
            jax.jit(block_step, donate_argnums=0),
            [
                block_weights(0, width, scale),
                draw(50, 2, 16, width, scale=scale),
                draw(51, 2, 16, width, scale=scale),
            ],
        ),
        "scan": (
            scan_rnn,
            [
                draw(1, 8, 8, scale=scale),
                draw(2, 4, 8, scale=scale),
                draw(3, 10, 2, 4, scale=scale),
            ],
        ),
        "conv_net": (
            conv_net,
            [
                draw(1, 2, 12, 12, 3),
                draw(2, 3, 3, 3, 8, scale=0.3),
                draw(3, 3, 3, 8, 16, scale=0.1),
                draw(4, 16, 5),
            ],
        ),
        "zoo": (zoo, [draw(1, 4, 6), draw(2, 4, 6), ints(3, 4, 6)]),
        "sharded": sharded(mesh),
        "deep_step": (
            jax.jit(deep_step, donate_argnums=0),
            [
                deep_weights(24, width, scale),
                draw(50, 2, 16, width, scale=scale),
                draw(51, 2, 16, width, scale=scale),
            ],
        ),
    }
