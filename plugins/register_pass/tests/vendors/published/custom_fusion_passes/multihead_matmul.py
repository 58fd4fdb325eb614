"""Multi-head attention over one input as one operator with packed weights.

``x → MatMul wq → Add bq → Reshape → Transpose → Mul scale → q;   x → … wk, bk … → k;   x → … wv, bv … → v``
``q, k → MatMul [→ Add mask] → Softmax → MatMul v → Transpose → Reshape``
``==>   x, w [H, 3, N], bias [3, N] [, mask] → multihead_matmul``
"""

from __future__ import annotations

from functools import partial

from gehost import es, ops
from gehost_register_pass import ParamAttr, RegisterPass, op


@ops.register("published::multihead_matmul")
def multihead_matmul(x, w, bias, mask=None, *, alpha: float = 1.0, head_number: int = 1):
    """What the operator computes.

    Shapes: x [B, S, H], w [H, 3, N] (the three projections side by side for each of H), bias [3, N], mask broadcast into
        [B, heads, S, S]; result [B, S, N].
    """
    projected = es.MatMul(x, es.Reshape(w, [0, -1])) + es.Reshape(bias, [-1])
    by_head = es.Transpose(es.Reshape(projected, [0, 0, 3, head_number, -1]), perm=[2, 0, 3, 1, 4])
    q, k, v = (es.Squeeze(part, axes=[0]) for part in es.Split(by_head, axis=0, num_outputs=3))
    scores = es.MatMul(q * alpha, es.Transpose(k, perm=[0, 1, 3, 2]))
    weights = es.Softmax(scores if mask is None else scores + mask, axis=-1)
    return es.Reshape(es.Transpose(es.MatMul(weights, v), perm=[0, 2, 1, 3]), [0, 0, -1])


_CONSTANTS = (
    "wq",
    "wk",
    "wv",
    "bq",
    "bk",
    "bv",
    "q_shape",
    "k_shape",
    "v_shape",
    "out_shape",
    "scale",
)


@RegisterPass(input_specs=dict.fromkeys(_CONSTANTS, ParamAttr()), min_opset=5)
def multihead_matmul_fuse():
    """Fuse attention with and without a mask; k transposed in one step or in two.

    Shapes: x [B, S, H]; wq, wk, wv [H, N]; bq, bk, bv [N]; N = heads × size; mask broadcasts into [B, heads, S, S].
    Becomes: ``published::multihead_matmul``; ``alpha`` is the scale, ``head_number`` the third entry of the shape of q. Weights
        are stacked on a new axis 1, [H, 3, N], biases on a new axis 0, [3, N]; clean-up packs them once.
    Keeps: dtype, shape, and the order of multiplication, q being scaled before it meets k.
    Refuses:
        no match: another perm, or softmax over another axis; k scaled instead of q, or nothing; projections of several inputs;
            other readers of an inner tensor;
        ``weight``: a weight, bias, scale or shape that is no constant;
        ``condition``: x not float32 or not [B, S, H]; a bias that is not as long as its weight is wide; shapes by which heads
            are split or joined otherwise; several scales;
        ``unknown``: sizes that are needed for these and not known.
    Source: Paddle's operator multihead_matmul, with ONNX's operators; numbers are those of the body above.
    """
    return [
        (
            partial(_attention, mask_given=masked, **unmasked, k_in_one_step=one),
            partial(_packed, **unmasked),
        )
        for masked, unmasked in ((True, {}), (False, {"mask": None}))
        for one in (True, False)
    ]


def _attention(
    x,
    wq,
    bq,
    q_shape,
    scale,
    wk,
    bk,
    k_shape,
    wv,
    bv,
    v_shape,
    out_shape,
    mask,
    *,
    mask_given,
    k_in_one_step,
):
    x.Attr("dtype").EQ("float32")
    x.Attr("shape").Size().EQ(3)
    scale.Attr("value").Size().EQ(1)
    scale.Attr("shape").Size().LE(4)

    q_heads = _heads(x, wq, bq, q_shape)
    k_heads = _heads(x, wk, bk, k_shape)
    v_heads = _heads(x, wv, bv, v_shape)
    q_sizes = q_heads.Output().Attr("shape")
    for position in (0, 1):
        q_sizes[position].EQ(x.Attr("shape")[position])
    q_shape.Attr("value")[2].EQ(q_sizes[2])
    v_heads.Output().Attr("shape").EQ(
        q_sizes
    )  # and so has k, and all weights have one shape: else the products would not fit

    q = op.Mul(op.Transpose(q_heads, perm=[0, 2, 1, 3]), scale).Commutative()
    if k_in_one_step:
        k = op.Transpose(k_heads, perm=[0, 2, 3, 1])
    else:
        k = op.Transpose(op.Transpose(k_heads, perm=[0, 2, 1, 3]), perm=[0, 1, 3, 2])
    v = op.Transpose(v_heads, perm=[0, 2, 1, 3])
    scores = op.MatMul(q, k)
    if mask_given:
        scores = op.Add(scores, mask).Commutative()
    joined = op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    result = op.Reshape(joined, out_shape)
    for position in (0, 1):
        result.Output().Attr("shape")[position].EQ(x.Attr("shape")[position])
    return result


def _heads(x, weight, bias, shape):
    """One projection, [B, S, heads, size]."""
    weight.Attr("shape").Size().EQ(2)
    bias.Attr("shape").Size().EQ(1)
    bias.Attr("shape")[0].EQ(weight.Attr("shape")[1])
    return op.Reshape(op.Add(op.MatMul(x, weight), bias).Commutative(), shape)


def _packed(x, wq, bq, q_shape, scale, wk, bk, wv, bv, mask):
    w = op.Concat(*(op.Unsqueeze(weight, axes=[1]) for weight in (wq, wk, wv)), axis=1)
    bias = op.Concat(*(op.Unsqueeze(vector, axes=[0]) for vector in (bq, bk, bv)), axis=0)
    attention = op("published::multihead_matmul")
    attention.SetAttr("alpha", scale.Attr("value")[0])
    attention.SetAttr("head_number", q_shape.Attr("value")[2])
    return attention(x, w, bias) if mask is None else attention(x, w, bias, mask)
