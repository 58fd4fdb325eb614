"""Products and convolutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .inputs import Program, draw, ints
from .models import conv


def contractions() -> dict[str, Program]:
    i = ints(3, 4, 6)
    j = ints(4, 4, 6)
    img = draw(8, 2, 7, 7, 4)
    ker = draw(9, 3, 3, 4, 3, scale=0.2)
    dn = ("NHWC", "HWIO", "NHWC")
    return {
        "conv_kinds": (
            lambda a, w: (
                lax.conv_general_dilated(a, w, (2, 1), [(1, 2), (0, 1)], dimension_numbers=dn),
                lax.conv_general_dilated(
                    a, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=dn
                ),
                lax.conv_general_dilated(
                    a, w, (1, 1), [(0, 0), (1, 2)], lhs_dilation=(2, 3), dimension_numbers=dn
                ),
                lax.conv_transpose(a, w, (2, 2), "SAME", dimension_numbers=dn),
                lax.conv_general_dilated(a, w, (1, 1), [(-1, 0), (2, -1)], dimension_numbers=dn),
            ),
            [img, ker],
        ),
        "conv_groups": (
            lambda a, w: lax.conv_general_dilated(
                a, w, (1, 1), "SAME", dimension_numbers=dn, feature_group_count=2
            ),
            [img, draw(13, 3, 3, 2, 6)],
        ),
        "conv_batch_groups": (
            lambda a, w: lax.conv_general_dilated(
                a, w, (1, 1), "VALID", dimension_numbers=dn, batch_group_count=2
            ),
            [draw(14, 4, 6, 6, 3), draw(15, 3, 3, 3, 8)],
        ),
        "conv_1d_3d": (
            lambda a, w, b, v: (
                lax.conv_general_dilated(
                    a, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
                ),
                lax.conv_general_dilated(b, v, (1, 1, 1), "VALID"),
            ),
            [
                draw(16, 2, 9, 3),
                draw(17, 3, 3, 5),
                draw(18, 1, 2, 4, 4, 4),
                draw(19, 3, 2, 2, 2, 2),
            ],
        ),
        "depthwise_grad": (
            jax.grad(lambda w, a: jnp.sum(conv(a, w, 1, "SAME", 4) ** 2), argnums=(0, 1)),
            [draw(6, 3, 3, 1, 8), img],
        ),
        "conv_int_f64": (
            lambda a, w: lax.conv_general_dilated(a, w, (1, 1), "SAME", dimension_numbers=dn),
            [ints(20, 1, 5, 5, 2), ints(21, 3, 3, 2, 3)],
        ),
        "dots": (
            lambda a, b, v: (
                a @ b,
                a @ v,
                v @ b,
                v @ v,
                a.T @ a,
                jnp.einsum("ij,kj->ik", a, a),
                jnp.tensordot(a, b, 1),
                jnp.outer(v, v),
                jnp.inner(a, a),
            ),
            [draw(22, 5, 6), draw(23, 6, 7), draw(24, 6)],
        ),
        "batch_dots": (
            lambda a, b: (
                jnp.einsum("bij,bjk->bik", a, b),
                jnp.einsum("bij,bkj->bik", a, a),
                jnp.einsum("bij,bij->b", a, a),
                jnp.einsum("bij,bij->bi", a, a),
                jnp.einsum("bij,cjk->bcik", a, b),
                jnp.einsum("bij,bjk->kb", a, b),
                jnp.einsum("bji,bj->bi", a, a[:, :, 0]),
            ),
            [draw(25, 3, 4, 4), draw(26, 3, 4, 4)],
        ),
        "int_dots": (
            lambda a, b: (
                a @ b.T,
                jnp.einsum("ij,ij->i", a, b),
                lax.dot(a.astype(jnp.int8), b.astype(jnp.int8).T, preferred_element_type=jnp.int32),
            ),
            [i, j],
        ),
        "mixed_dots": (
            lambda a, b: (lax.dot(a, b, preferred_element_type=jnp.float32), a @ b),
            [draw(27, 4, 8).astype(jnp.bfloat16), draw(28, 8, 5).astype(jnp.bfloat16)],
        ),
    }
