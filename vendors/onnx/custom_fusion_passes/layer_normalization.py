"""LayerNormalization from its parts.

``x → ReduceMean → m;  x, m → Sub → d → Pow 2 → ReduceMean → Add ε → Sqrt → r;``
``d, r → Div → Mul scale → Add bias``
``==>   x, scale, bias → LayerNormalization``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, EsTensor, es, ops
from gehost_semantic import NormFusionPass

from ._conditions import (
    FUNCTIONS,
    SHARED,
    dtype_of,
    function_problem,
    is_as_precise,
    norm_problem,
    normalized,
)

if TYPE_CHECKING:
    from gehost import Refusal
    from gehost_semantic import NormCall

STANDARD_SINCE = 17


@ops.register("gehost::LayerNormalization")
def layer_normalization(
    x: EsTensor,
    scale: EsTensor,
    bias: EsTensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> EsTensor:
    """LayerNormalization as of ONNX opset 17.

    Computed in the dtype of x; ``axis`` counts from the end.
    """
    axes = list(range(axis, 0))
    difference = x - es.ReduceMean(x, axes=axes, keepdims=1)
    variance = es.ReduceMean(difference * difference, axes=axes, keepdims=1)
    scaled = difference / es.Sqrt(variance + epsilon) * scale
    return scaled if bias is None else scaled + bias


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[FUNCTIONS])
class LayerNormalizationFusionPass(NormFusionPass):
    """Fuse ``(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε) * scale + bias``.

    Forms: what ``gehost_semantic`` describes, with and without bias, also where only the addition
        of the bias cannot be taken.
    Shapes: x [..., D], scale [D], bias [D].
    Becomes: LayerNormalization from opset 17 on, below it ``gehost::LayerNormalization`` with a
        body; that one for float64 at every opset, as the standard operator computes its first
        stage in float32.
    Keeps: dtype and shape. In float16 and bfloat16 the standard operator computes in float32: not
        equal bit by bit, but closer.
    Refuses:
        what the recogniser refuses, by its step; ``scale``: none
            [D], or D not known to be above 1; ``dtype``: scale and bias of two types, or the model
            normalizes in a wider one; ``functions``: a function, if the option is off; ``shared``:
            an inner tensor has other readers.
    Source: ONNX LayerNormalization-17.
    """

    kind = "layer"
    by_parts = True
    takes = frozenset({"bias"})

    def MeetRequirements(self, norm: NormCall) -> bool | Refusal:
        is_standard = _is_standard(norm)
        problem = norm_problem(norm)
        inside = DataType.FLOAT if is_standard else dtype_of(norm)
        if not (is_as_precise(inside, norm.compute) or is_as_precise(dtype_of(norm), norm.compute)):
            problem = problem or f"dtype: the model normalizes in {norm.compute}"
        problem = problem or function_problem(
            "LayerNormalization", self.options, is_standard=is_standard
        )
        return norm.reject(problem) if problem else True

    def Replacement(self, norm: NormCall) -> EsTensor | Refusal:
        if norm.shared:
            return norm.reject(SHARED)
        domain = "" if _is_standard(norm) else "gehost::"
        return normalized(f"{domain}LayerNormalization", norm)


def _is_standard(norm: NormCall) -> bool:
    """Whether the operator of ONNX takes its place."""
    return norm.opset >= STANDARD_SINCE and dtype_of(norm) is not DataType.DOUBLE
