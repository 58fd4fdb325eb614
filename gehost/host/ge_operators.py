"""Operators of GE's documentation that ONNX lacks.

Every vendor file has them; today ``ge::GEMM``.

A vendor file that declares one of them uses its own declaration.

``a, b, c, alpha, beta → GEMM   =   a, b → MatMul, alpha → Mul, (c, beta → Mul) → Add``

Shapes: op(a) [M, K], op(b) [K, N], c broadcasts into [M, N]; alpha and beta are scalars of any
numeric dtype; result [M, N].
Keeps: the dtype of a, to which alpha and beta are cast.
Refuses: below opset 15, an ``a`` of unknown dtype (there is no CastLike).
Source: GE's operator GEMM; ONNX Gemm-13 with alpha and beta as inputs.
"""

from __future__ import annotations

from gehost import es, ops
from gehost.es.graph import EsTensor


@ops.register("ge::GEMM", outputs=["y"])
def gemm(
    a: EsTensor,
    b: EsTensor,
    c: EsTensor,
    alpha: EsTensor,
    beta: EsTensor,
    *,
    transpose_a: int = 0,
    transpose_b: int = 0,
) -> EsTensor:
    """Alpha · op(a) · op(b) + beta · c.

    op transposes when its attribute is not zero.
    """
    left = es.Transpose(a, perm=[1, 0]) if transpose_a else a
    right = es.Transpose(b, perm=[1, 0]) if transpose_b else b
    return es.MatMul(left, right) * es.CastLike(alpha, a) + c * es.CastLike(beta, a)
