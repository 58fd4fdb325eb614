"""Attention of ONNX itself, from its parts.

``q·kᵀ·scale → (softcap) → (causal mask) → Softmax → · v   ==>   q, k, v → Attention``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, es
from gehost_semantic import NO_EMPTY_INPUTS, AttentionFusionPass, empty_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import EsTensor, Refusal
    from gehost_semantic import AttentionCall

_TYPES = frozenset((DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16))


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterInferShape,
    default=False,
    min_opset=23,
    options=[NO_EMPTY_INPUTS],
)
class AttentionOperatorPass(AttentionFusionPass):
    """Replace attention without a mask, or with a causal one alone, by ``Attention``.

    Off by default: ONNX Runtime's kernel refuses a batch or length of 0, and there is none before
    1.28 with the numbers of capped scores.

    Forms: all that ``gehost_semantic`` describes; scores capped by Tanh; heads of k and v that
    serve several heads of q; a mask that is proven to be causal and nothing else.
    Keeps: the numbers but for rounding.
    Refuses: ``mask``: any other; runtimes differ in rows that a mask leaves empty, and
    ``OrtStandardAttentionPass`` proves where they do not. ``dtype``: float64, q, k and v of several
    types, or another one between them; ``kernel``: the target has none; ``empty``: a batch or
    length may be 0: ``--dim`` fixes it, ``--assume no-empty-inputs`` takes it for granted; what the
    recogniser refuses, by its step.
    Source: ONNX Attention-23.
    """

    takes = frozenset({"causal", "groups", "softcap"})

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield the models of an opset that has the operator."""
        for model in super().Instances():
            if model.opset_import[0].version >= 23:
                yield model

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        description = attention.description
        types = {description.q.value.dtype, description.k.value.dtype, attention.value_type}
        inside = {type_ for type_ in attention.inner_types if type_ is not None and type_.is_float}
        if len(types) > 1 or not types <= _TYPES or not inside <= types:
            return attention.reject("dtype: float64, or several ones")
        problem = self.context.target.why_not("Attention", attention.dtype, "onnxruntime")
        sizes = {
            "batch": description.batch,
            "rows": description.queries,
            "length": description.keys,
        }
        problem = problem or empty_problem(sizes, assumed=self.options["no_empty_inputs"])
        return attention.reject(problem) if problem else True

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        softcap = attention.softcap or 0.0
        attributes: dict[str, Any] = {"scale": attention.scale * (softcap or 1.0)}
        if softcap:
            attributes["softcap"] = softcap
        if attention.is_causal:
            attributes["is_causal"] = 1
        return es.Attention(attention.q, attention.k, attention.v, **attributes)
