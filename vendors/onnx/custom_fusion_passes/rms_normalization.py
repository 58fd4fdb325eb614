"""RMSNormalization from its parts.

``x → Pow 2 → ReduceMean → Add ε → Sqrt → r;  x, r → Div → Mul scale``
``==>   x, scale → RMSNormalization``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, EsTensor, es, ops
from gehost_semantic import NormFusionPass

from ._conditions import (
    FUNCTIONS,
    SHARED,
    also_at,
    dtype_of,
    function_problem,
    norm_problem,
    normalized,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import Refusal
    from gehost_semantic import NormCall

STANDARD_SINCE = 23


@ops.register("gehost::RMSNormalization")
def rms_normalization(
    x: EsTensor,
    scale: EsTensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = int(DataType.FLOAT),
) -> EsTensor:
    """RMSNormalization as of ONNX opset 23, normalized in the dtype ``stash_type``; ``axis``
    counts from the end.
    """
    wide = es.Cast(x, to=stash_type)
    mean = es.ReduceMean(wide * wide, axes=list(range(axis, 0)), keepdims=1)
    return es.CastLike(wide / es.Sqrt(mean + epsilon), x) * scale


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[FUNCTIONS])
class RMSNormalizationFusionPass(NormFusionPass):
    """Fuse ``x / sqrt(mean(x²) + ε) * scale``.

    Forms: what ``gehost_semantic`` describes; x cast before (once, or once for each reader) and
        back after, or a cast back alone that changes nothing.
    Shapes: x [..., D], scale [D].
    Becomes: RMSNormalization from opset 23 on, below it ``gehost::RMSNormalization`` with a body
        whose ``stash_type`` is the dtype in which the model normalizes; that one at every opset
        where the standard operator would be less precise.
    Keeps: dtype and shape. In float16 and bfloat16 the standard operator normalizes in float32:
        not equal bit by bit where the model does not, but closer.
    Refuses:
        what the recogniser refuses, by its step; ``scale``: none
            [D], or D not known to be above 1; ``dtype``: the scale has a narrower one than x;
            ``functions``: a function, if the option is off; ``shared``: an inner tensor has other
            readers.
    Source: ONNX RMSNormalization-23.
    """

    kind = "rms"
    by_parts = True

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models without and with the operator of ONNX."""
        return also_at(STANDARD_SINCE, super().Instances())

    def MeetRequirements(self, norm: NormCall) -> bool | Refusal:
        problem = norm_problem(norm) or function_problem(
            "RMSNormalization", self.options, is_standard=_is_standard(norm)
        )
        return norm.reject(problem) if problem else True

    def Replacement(self, norm: NormCall) -> EsTensor | Refusal:
        if norm.shared:
            return norm.reject(SHARED)
        if _is_standard(norm):
            return normalized("RMSNormalization", norm, stash_type=int(DataType.FLOAT))
        return normalized("gehost::RMSNormalization", norm, stash_type=int(norm.compute))


def _is_standard(norm: NormCall) -> bool:
    """Whether the operator of ONNX takes its place.

    It normalizes in float32, which must hold all numbers of the type in which the model does.
    """
    compute = norm.compute
    return norm.opset >= STANDARD_SINCE and (
        compute is DataType.FLOAT or (compute is dtype_of(norm) and compute is not DataType.DOUBLE)
    )
