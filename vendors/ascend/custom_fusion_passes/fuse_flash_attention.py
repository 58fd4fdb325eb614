"""Attention  ==>  npu::FlashAttention, an operator that a device registers.

``q·kᵀ·scale + mask → Softmax → · v   ==>   q, k, v, mask → npu::FlashAttention``
"""

from gehost import REG_FUSION_PASS, CustomPassStage, EsTensor, Refusal, es
from gehost_semantic import AttentionCall, AttentionFusionPass


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, default=False)
class FlashAttentionFusionPass(AttentionFusionPass):
    """Replace each attention, in whatever operators an exporter wrote it.

    Off by default: it is an example, for a device with such a kernel. Elsewhere the operator's body
    runs, which is attention in ONNX's own operators.

    Shapes: q [b, h, s, d], k and v [b, h, t, d]; mask, where there is one, broadcasts to
    [b, h, s, t]; the result is [b, h, s, d].
    Keeps: the numbers for finite inputs.
    Refuses: heads of more than 128, and of another size for v; what ``gehost_semantic`` refuses, by
    its step, and features beyond one mask, by their names.
    Source: own example; the wish of GE's users for one flash attention of every export.
    """

    takes = frozenset({"mask"})

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        if attention.value_size != attention.head_size:
            return attention.reject("value size: that of q and k is another")
        return attention.head_size <= 128 or attention.reject("head size: at most 128")

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        return es.op("npu::FlashAttention")(
            attention.q, attention.k, attention.v, attention.mask, scale=attention.scale
        )
