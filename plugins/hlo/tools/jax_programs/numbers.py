"""Elements: casts, integers, functions, bits, small floats."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .inputs import Program, draw, ints, large_unsigned, odd


def numbers() -> dict[str, Program]:
    x = draw(1, 4, 6)
    y = draw(2, 4, 6)
    i = ints(3, 4, 6)
    u = large_unsigned()
    s8 = ints(6, 4, 6, low=-128, high=127, dtype=np.int8)
    u8 = ints(7, 4, 6, low=0, high=255, dtype=np.uint8)
    shifts = np.array([[0, 1, 5, 31, 32, 40]] * 4, np.int32)
    p = x > 0
    return {
        "casts": (
            lambda a: [
                a.astype(t)
                for t in (
                    jnp.int32,
                    jnp.uint8,
                    jnp.int8,
                    jnp.int16,
                    jnp.uint32,
                    bool,
                    jnp.bfloat16,
                    jnp.float16,
                )
            ],
            [odd() * 100],
        ),
        "int_casts": (
            lambda a: [a.astype(t) for t in (jnp.int8, jnp.uint8, jnp.int16, jnp.float32, bool)],
            [i * 37],
        ),
        "pred_ops": (
            lambda a, b: (
                a & b,
                a | b,
                a ^ b,
                ~a,
                a == b,
                a != b,
                a < b,
                a <= b,
                jnp.where(a, b, ~b),
                a.sum(1),
                a.all(0),
                a.any(1),
            ),
            [p, y > 0],
        ),
        "signed_shift": (
            lambda a, k: (a << k, a >> k, lax.shift_right_logical(a, k)),
            [i * 1000, shifts],
        ),
        "unsigned_ops": (
            lambda a, b: (
                a + b,
                a - b,
                a * b,
                a // b,
                a % b,
                jnp.maximum(a, b),
                a > b,
                a >> 3,
                ~a,
                a.max(1),
                a.min(0),
                a.sum(),
            ),
            [u, u[::-1].copy()],
        ),
        "narrow_ints": (
            lambda a, b: (
                a + a,
                a * a,
                a // 3,
                a.max(0),
                b + b,
                b * b,
                jnp.minimum(b, 7),
                b.sum(0),
                a.sum(0),
                jnp.sort(a, 1),
                -a,
            ),
            [s8, u8],
        ),
        "zero_division": (
            lambda a, b: (lax.div(a, b), lax.rem(a, b)),
            [
                np.array([7, -7, 0, -(2**31), -(2**31)], np.int32),
                np.array([0, 0, 0, -1, 3], np.int32),
            ],
        ),
        "nan_extrema": (
            lambda a: (
                a.max(1),
                a.min(0),
                jnp.nanmax(a, 1),
                jnp.argmax(a, 1),
                jnp.argmin(a, 0),
                jnp.maximum(a, 0),
                lax.clamp(-1.0, a, 1.0),
            ),
            [odd()],
        ),
        "functions": (
            lambda a: (
                jnp.sinh(a),
                jnp.cosh(a),
                jnp.arctan(a),
                jnp.arcsin(jnp.tanh(a)),
                jnp.arccos(jnp.tanh(a)),
                jnp.arcsinh(a),
                jnp.arctanh(jnp.tanh(a) * 0.9),
                jnp.tan(a),
                jnp.exp2(a),
                jnp.log2(jnp.abs(a) + 1),
                jnp.log10(jnp.abs(a) + 1),
                jnp.sinc(a),
                jax.nn.softplus(a),
                jax.nn.silu(a),
                jax.nn.elu(a),
                jax.nn.selu(a),
                jax.nn.mish(a),
                jax.nn.sigmoid(a),
            ),
            [x],
        ),
        "odd_functions": (
            lambda a: (
                jnp.sign(a),
                jnp.floor(a),
                jnp.round(a),
                jnp.ceil(a),
                jnp.trunc(a),
                jnp.isnan(a),
                jnp.isinf(a),
                jnp.isfinite(a),
                jnp.abs(a),
                jnp.sqrt(a),
                lax.rsqrt(a),
                jnp.tanh(a),
                lax.round(a),
                jnp.exp(a),
                jnp.cbrt(a),
            ),
            [odd()],
        ),
        "small_functions": (
            lambda a: (jnp.expm1(a), jnp.log1p(a), jnp.sinh(a), jnp.tanh(a), lax.erf(a)),
            [(np.logspace(-12, -1, 24) * np.array([1, -1] * 12)).astype(np.float32)],
        ),
        "powers": (
            lambda a, b: (
                jnp.power(jnp.abs(a), b),
                a**2,
                a**3,
                a**-1,
                a**7,
                jnp.abs(a) ** 0.5,
                jnp.hypot(a, b),
                jnp.arctan2(a, b),
            ),
            [x, y],
        ),
        "int_power": (
            lambda a, b: (a**2, a**5, jnp.power(a, b)),
            [i, ints(12, 4, 6, low=0, high=5)],
        ),
        "bits": (
            lambda a, b: (
                lax.population_count(a),
                lax.clz(a),
                jnp.bitwise_count(b),
                a & 7,
                a | 8,
                a ^ -1,
                ~a,
            ),
            [i, u],
        ),
        "frexp": (
            lambda a: (
                jnp.frexp(a),
                jnp.signbit(a),
                jnp.nextafter(a, 0.0),
                jnp.copysign(1.0, a),
                jnp.ldexp(a, 3),
                jnp.modf(a),
            ),
            [x],
        ),
        "erf_family": (
            lambda a: (
                lax.erf(a),
                lax.erfc(a),
                jax.scipy.special.erfinv(jnp.tanh(a)),
                lax.lgamma(jnp.abs(a) + 0.5),
                lax.digamma(jnp.abs(a) + 0.5),
                jax.scipy.special.i0(a),
            ),
            [x],
        ),
        "polynomial": (
            lambda a: (
                jnp.polyval(jnp.array([1.0, -2, 3]), a),
                jnp.vander(a[0], 3),
                jnp.convolve(a[0], a[1]),
                jnp.correlate(a[0], a[1], "same"),
            ),
            [x],
        ),
        "f16": (
            lambda a, b: (
                a + b,
                a @ b.T,
                jnp.exp(a),
                a.sum(1),
                a.max(0),
                jax.nn.softmax(a),
                jnp.tanh(a),
                jnp.sign(a),
            ),
            [x.astype(np.float16), y.astype(np.float16)],
        ),
        "bf16_more": (
            lambda a, b: (
                jnp.where(a > b, a, b),
                jnp.concatenate([a, b]),
                a[::2],
                jnp.pad(a, 1),
                a.max(1),
                jax.nn.softmax(a),
                jnp.sort(a, 1),
                a.at[0].set(b[0]),
                a[jnp.array([2, 1])],
                jnp.argmax(a, 1),
                lax.rsqrt(jnp.abs(a) + 1),
                a.astype(jnp.float32) * 2,
                jnp.broadcast_to(a[0], (3, 6)),
            ),
            [x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)],
        ),
    }
