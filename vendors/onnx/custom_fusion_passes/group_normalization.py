"""GroupNormalization from its parts.

``x → Reshape [0, G, −1] → InstanceNormalization → Reshape → Mul scale → Add bias``
``==>   x, scale, bias → GroupNormalization``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, es
from gehost_semantic import NO_EMPTY_INPUTS, NormFusionPass, empty_problem

from ._conditions import dtype_problem

if TYPE_CHECKING:
    from gehost import EsTensor, Refusal
    from gehost_semantic import NormCall


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterInferShape, default=False, min_opset=21, options=[NO_EMPTY_INPUTS]
)
class GroupNormalizationPass(NormFusionPass):
    """Replace a normalization by groups of channels by ``GroupNormalization``.

    Off by default: ONNX Runtime runs the operator by parts, too, and fails at empty tensors.

    Forms: what ``gehost_semantic`` describes: InstanceNormalization between two reshapes, or means
    over [N, G, ·]; with and without scale and bias.
    Shapes: x [N, C, ...], C known.
    Keeps: dtype and shape. In float16 and bfloat16 it computes in float32.
    Refuses: what the recogniser refuses, by its step; ``dtype``: no floating point, float64, which
    runtimes compute in float32, or not of one type; ``form``: it is the operator; ``empty``: sizes
    may be 0: ``--dim`` fixes one, ``--assume no-empty-inputs`` takes it for granted.
    Source: ONNX GroupNormalization-21.
    """

    kind = "group"
    takes = frozenset({"bias"})

    def MeetRequirements(self, norm: NormCall) -> bool | Refusal:
        own = norm.description
        vectors = [value for value in (own.scale, own.bias, own.result) if value is not None]
        problem = dtype_problem(own.x)
        if norm.compute is DataType.DOUBLE or any(value.dtype != norm.dtype for value in vectors):
            problem = problem or "dtype: float64, or not all of one"
        if own.node.op == "GroupNormalization":
            problem = "form: it is the operator"
        sizes = {f"axis {axis}": size for axis, size in enumerate(own.shape)}
        problem = problem or empty_problem(sizes, assumed=self.options["no_empty_inputs"])
        return norm.reject(problem) if problem else True

    def Replacement(self, norm: NormCall) -> EsTensor:
        return es.GroupNormalization(
            norm.x, norm.scale, norm.full_bias, num_groups=norm.groups, epsilon=norm.epsilon
        )
