"""Self-attention with constant projections as one operation with packed weights.

``x, wq, bq → q; x, wk, bk → k; x, wv, bv → v; softmax(q·kᵀ·scale + mask)·v``
``==>   x, w, b [, mask] → paddle::multihead_matmul``
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, EsTensor, Refusal, es, ops
from gehost_semantic import AttentionCall, AttentionFusionPass

_INSTANCE = """<ir_version: 8, opset_import: ["": 17]>
attention (float[2, 5, 12] x{inputs}) => (float[2, 5, 12] y)
<int64[4] heads = {{0, 0, 3, 4}}, int64[3] rows = {{0, 0, 12}}, float scale = {{0.5}}> {{
    pq = MatMul (x, wq) aq = Add (pq, bq) rq = Reshape (aq, heads)
    pk = MatMul (x, wk) ak = Add (pk, bk) rk = Reshape (ak, heads)
    pv = MatMul (x, wv) av = Add (pv, bv) rv = Reshape (av, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (rq) k = Transpose <perm = [0, 2, 3, 1]> (rk)
    v = Transpose <perm = [0, 2, 1, 3]> (rv) s = Mul (q, scale) m = MatMul (s, k) {masked}
    p = Softmax <axis = -1> (a) o = MatMul (p, v) t = Transpose <perm = [0, 2, 1, 3]> (o)
    y = Reshape (t, rows) }}"""


@ops.register("paddle::multihead_matmul", outputs=["out"])
def multihead_matmul(
    input: EsTensor,  # noqa: A002 - the published name
    w: EsTensor,
    bias: EsTensor,
    bias_qk: EsTensor | None = None,
    *,
    alpha: float,
    head_number: int,
    head_size: int,
) -> EsTensor:
    """Self-attention over ``head_number`` heads.

    softmax(alpha · q · kᵀ + bias_qk) · v.

    Shapes: input [B, S, H]; w [H, 3, D], the weights of q, k and v side by side on axis 1; bias [3,
    D]; bias_qk broadcasts to [B, heads, S, S]; result [B, S, D]; D = head_number · head_size. No
    size is left over (-1): B or S may be 0.
    """
    weights, biases = es.Split(w, num_outputs=3, axis=1), es.Split(bias, num_outputs=3, axis=0)
    q, k, v = (
        es.Reshape(
            es.MatMul(input, es.Squeeze(weight, axes=[1])) + one, [0, 0, head_number, head_size]
        )
        for weight, one in zip(weights, biases, strict=True)
    )
    scores = es.MatMul(
        es.Transpose(q, perm=[0, 2, 1, 3]) * alpha, es.Transpose(k, perm=[0, 2, 3, 1])
    )
    if bias_qk is not None:
        scores = scores + bias_qk
    mixed = es.MatMul(es.Softmax(scores, axis=-1), es.Transpose(v, perm=[0, 2, 1, 3]))
    return es.Reshape(es.Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, head_number * head_size])


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterInferShape, name="multihead_matmul_fuse_pass", default=False
)
class MultiheadMatmulFusePass(AttentionFusionPass):
    """Fuse attention of a tensor to itself, with its projections, in any spelling.

    Off by default, so that attention is left to the vendors whose runtime has a kernel.

    Shapes: x [B, S, H]; weights [H, D], biases [D]; heads · d = D; the mask broadcasts to
    [B, heads, S, S]; result [B, S, D].
    Keeps: dtype, and the numbers but for rounding.
    Refuses: what ``gehost_semantic`` refuses, by its step; ``dtype``: not float32 or float16
    throughout, whose numbers ``alpha`` holds; ``value size``: not that of q and k; ``layout``: q, k
    or v is no projection (rotary, repeated heads, past); ``input``: they are projections of
    different tensors; ``weight``: no constant matrix; ``shared``: others read a projection.
    Source: Paddle's multihead_matmul, with ONNX's operators.
    """

    takes = frozenset({"mask"})
    layouts = MappingProxyType(
        {"q": "b s (h d)", "k": "b t (h d)", "v": "b t (h v)", "result": "b s (h v)"}
    )

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        types = {attention.dtype, attention.value_type, *attention.inner_types}
        if len(types) > 1 or attention.dtype not in (DataType.FLOAT, DataType.FLOAT16):
            return attention.reject("dtype: wanted float32 or float16 throughout")
        if attention.value_size != attention.head_size:
            return attention.reject("value size: that of q and k is another")
        return True

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        packed = attention.projections()
        return es.op("paddle::multihead_matmul")(
            attention.input(packed.x),
            packed.weights.reshape(len(packed.weights), 3, -1),
            packed.bias.reshape(3, -1),
            attention.mask,
            alpha=attention.scale,
            head_number=attention.heads,
            head_size=attention.head_size,
        )

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model without and with a mask."""
        random = np.random.default_rng(0)
        for inputs, masked in (
            ("", "a = Identity (m)"),
            (", float[2, 3, 5, 5] mask", "a = Add (m, mask)"),
        ):
            model = onnx.parser.parse_model(_INSTANCE.format(inputs=inputs, masked=masked))
            for name, shape in (("w", (12, 12)), ("b", (12,))):
                model.graph.initializer.extend(
                    onnx.numpy_helper.from_array(
                        random.standard_normal(shape).astype(np.float32), f"{name}{path}"
                    )
                    for path in "qkv"
                )
            yield model
