"""Programs of 64-bit types, and numbers at the ends of each integer type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw
from .models import conv


def wide() -> dict[str, Program]:
    """Programs of 64-bit types, and numbers at the ends of each integer type; run with JAX_ENABLE_X64=1."""
    programs: dict[str, Program] = {}
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        limits = np.iinfo(kind)
        ends = [
            limits.min,
            limits.max,
            0,
            1,
            2,
            3,
            7,
            limits.max - 1,
            limits.max // 2,
            limits.max // 2 + 1,
        ]
        if limits.min < 0:
            ends += [-1, -2, limits.min + 1]
        if limits.bits == 64:
            ends += [2**31, 2**31 - 1, 2**32 - 1, 2**32, 2**33 + 5, 2**53 + 1]
        a = np.array(ends * 4, dtype=np.uint64 if kind == "uint64" else np.int64).astype(kind)
        b = np.random.default_rng(1).permutation(a)
        k = np.random.default_rng(2).integers(0, limits.bits + 3, a.shape).astype(kind)
        square, other = a.reshape(4, -1), b.reshape(4, -1)
        programs[f"ends_{kind}"] = (
            lambda a, b, k: (
                [
                    a + b,
                    a - b,
                    a * b,
                    lax.div(a, b),
                    lax.rem(a, b),
                    jnp.maximum(a, b),
                    jnp.minimum(a, b),
                    a < b,
                    a >= b,
                    a == b,
                ],
                [
                    a & b,
                    a | b,
                    a ^ b,
                    ~a,
                    a << k,
                    lax.shift_right_logical(a, k),
                    lax.shift_right_arithmetic(a, k),
                ],
                [
                    jnp.abs(a),
                    lax.sign(a),
                    lax.neg(a),
                    lax.population_count(a),
                    lax.clz(a),
                    lax.clamp(k, a, b),
                ],
                [
                    a.astype(t)
                    for t in (
                        jnp.int8,
                        jnp.uint8,
                        jnp.int16,
                        jnp.uint16,
                        jnp.int32,
                        jnp.uint32,
                        jnp.int64,
                        jnp.uint64,
                        jnp.float32,
                        jnp.float64,
                        bool,
                    )
                ],
                jnp.where(a > b, a, b),
            ),
            [a, b, k],
        )
        programs[f"reduce_{kind}"] = (
            lambda s, o: (
                [lax.reduce(s, np.array(0, s.dtype), lax.add, (d,)) for d in (0, 1)],
                [lax.reduce(s, np.array(1, s.dtype), lax.mul, (d,)) for d in (0, 1)],
                [s.max(d) for d in (0, 1)],
                [s.min(d) for d in (0, 1)],
                [
                    jnp.argmax(s, 1),
                    jnp.argmin(s, 0),
                    jnp.sort(s, 1),
                    jnp.argsort(o, 1),
                    lax.top_k(s, 3),
                ],
                [lax.cumsum(s, 1), lax.cummax(o, 0), lax.dot(s, o.T), jnp.einsum("ij,ij->i", s, o)],
                [
                    s.at[np.array([0, 0, 1])].add(o[:3]),
                    s.at[np.array([0, 0, 1])].max(o[:3]),
                    s.at[np.array([1, 2])].mul(o[:2]),
                ],
                [
                    lax.reduce(s, np.array(0, s.dtype), lax.bitwise_xor, (0,)),
                    jnp.bitwise_or.reduce(s, axis=1),
                ],
            ),
            [square, other],
        )
        programs[f"index_{kind}"] = (
            lambda x, i: (
                x[i],
                lax.dynamic_slice(x, (i[0], i[1]), (2, 2)),
                x.at[i].set(0.5, mode="drop"),
                lax.dynamic_update_slice(x, x[:1, :1], (i[1], i[2])),
                jnp.take(x, i, axis=1, mode="clip"),
            ),
            [draw(60, 5, 6), a],
        )
    x, y = draw(61, 4, 6, dtype=np.float64), draw(62, 4, 6, dtype=np.float64)
    f = np.array(
        [
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            2.0**31,
            -(2.0**31),
            2.0**32,
            2.0**63,
            -(2.0**63),
            2.0**64,
            1e20,
            -1e20,
            np.inf,
            -np.inf,
            np.nan,
            2.0**62,
            2.0**63 + 2.0**20,
            127.9,
            -128.9,
            255.9,
            65535.5,
        ],
        np.float64,
    )
    programs["double_casts"] = (
        lambda a: [
            [
                v.astype(t)
                for t in (
                    jnp.int8,
                    jnp.uint8,
                    jnp.int16,
                    jnp.uint16,
                    jnp.int32,
                    jnp.uint32,
                    jnp.int64,
                    jnp.uint64,
                )
            ]
            for v in (a, a.astype(jnp.float32))
        ],
        [f],
    )
    programs["doubles"] = (
        lambda a, b: (
            a + b,
            a @ b.T,
            jnp.tanh(a),
            jnp.exp(a),
            jnp.sin(a),
            jax.nn.softmax(a),
            a.max(1),
            jnp.sort(a, 1),
            jnp.expm1(a),
            jnp.log1p(jnp.abs(a)),
            jnp.cbrt(a),
            a // b,
            a % b,
            jnp.argmax(a, 1),
            a.sum(),
            jnp.tan(a),
        ),
        [x, y],
    )
    programs["double_conv"] = (
        lambda a, w: conv(a, w),
        [draw(63, 1, 5, 5, 2, dtype=np.float64), draw(64, 3, 3, 2, 3, dtype=np.float64)],
    )
    programs["double_erf"] = (lambda a: (lax.erf(a), jnp.arctan(a)), [x])
    return programs
