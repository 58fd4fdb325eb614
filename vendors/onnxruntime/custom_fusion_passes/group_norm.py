"""Normalization by groups of channels for CUDA's kernels, with the sum before and SiLU after.

``x → Reshape [0, G, −1] → InstanceNormalization → Reshape → Mul γ → Add β → (SiLU)``
``==>  x → Transpose → com.microsoft::GroupNorm → Transpose``
``a, b → Add → the same   ==>   a, b → Transpose → com.microsoft::SkipGroupNorm → Transpose``

The kernels take [N, H, W, C] alone, and scale and shift in float32 whatever the images are; ONNX
Runtime has them for CUDA, not for the CPU. They sum x and x² in float32, so that where a group's
mean is far above its deviation a float32 model loses digits (half has none there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, es, hookimpl, ops
from gehost_semantic import NO_EMPTY_INPUTS, NormFusionPass, empty_problem

from ._types import dtype_name, no_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gehost import EsTensor, Refusal, TensorType
    from gehost_semantic import NormCall

GROUP, SKIP = "com.microsoft::GroupNorm", "com.microsoft::SkipGroupNorm"
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Permutations that put the channels last, and first again."""


def _like_first(
    inputs: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    """All outputs have the type and the shape of the first input."""
    return [inputs[0], inputs[0]]


@ops.register(GROUP, shape=_like_first, provided_by="onnxruntime>=1.21.1")
def group_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    *,
    epsilon: float = 1e-5,
    groups: int,
    activation: int,
) -> EsTensor:
    """Normalize each of ``groups`` groups of channels; ``activation`` 1 is SiLU.

    Shapes: x [N, H, W, C]; gamma and beta [C], float32. It computes in float32.
    """
    shape = es.Shape(x)
    apart = es.Concat(
        es.Gather(shape, [0]),
        [-1, groups],
        es.Div(es.Gather(shape, [3]), [groups]),
        axis=0,
    )
    wide = es.Reshape(es.Cast(x, to=DataType.FLOAT), apart)
    centered = wide - es.ReduceMean(wide, axes=[1, 3], keepdims=1)
    variance = es.ReduceMean(centered * centered, axes=[1, 3], keepdims=1)
    normal = es.Reshape(centered / es.Sqrt(variance + epsilon), shape) * gamma + beta
    return es.CastLike(normal * es.Sigmoid(normal) if activation else normal, x)


@ops.register(SKIP, outputs=["Y", "S"], shape=_like_first, provided_by="onnxruntime>=1.21.1")
def skip_group_norm(
    x: EsTensor,
    gamma: EsTensor,
    beta: EsTensor,
    skip: EsTensor,
    *,
    epsilon: float = 1e-5,
    groups: int,
    activation: int,
) -> tuple[EsTensor, EsTensor]:
    """GroupNorm of x + skip, and the sum.

    Shapes: as above; skip [N, H, W, C] or [N, 1, 1, C].
    """
    total = x + skip
    result = group_norm(total, gamma, beta, epsilon=epsilon, groups=groups, activation=activation)
    return result, total


@REG_FUSION_PASS(
    stage=CustomPassStage.kAfterBuiltinFusionPass, default=False, options=[NO_EMPTY_INPUTS]
)
class OrtGroupNormPass(NormFusionPass):
    """Fuse a normalization by groups of channels, with the sum before it and the SiLU after.

    Forms: what ``gehost_semantic`` describes, among it InstanceNormalization between two reshapes,
    with or without scale and shift behind, and GroupNormalization from opset 21 on; SiLU.
    Shapes: x [N, C, H, W], C known; of two addends one has the shape of the sum, the other, too, or
    [N, C, 1, 1].
    Keeps: the numbers but for rounding; the sum, where others read it.
    Refuses: what the recogniser refuses, by its step; ``dtype``: not float32 or float16, or not of
    one type; ``kernel``: the target has none of the type; ``rank``: not [N, C, H, W]; ``groups``:
    they have an odd number of channels; ``empty``: sizes may be 0; ``shared``: a tensor inside is
    read by others, too.
    Source: com.microsoft.GroupNorm-1, SkipGroupNorm-1.
    """

    kind = "group"
    takes = frozenset({"bias", "residual", "spread residual", "silu"})

    def MeetRequirements(self, norm: NormCall) -> bool | Refusal:
        own = norm.description
        if norm.dtype not in (DataType.FLOAT, DataType.FLOAT16):
            return norm.reject(f"dtype: {dtype_name(norm.dtype)}, wanted float32 or float16")
        if own.result.dtype != norm.dtype:
            return norm.reject(f"dtype: {dtype_name(norm.dtype)}, but not all of it")
        if len(own.shape) != 4 or not isinstance(own.shape[1], int):
            return norm.reject("rank: not [N, C, H, W] with C known")
        batch, channels, height, width = own.shape
        if channels % norm.groups or (channels // norm.groups) % 2:
            return norm.reject(
                f"groups: {channels} channels in {norm.groups}, not an even number in each"
            )
        sizes = {"batch": batch, "height": height, "width": width}
        problem = no_kernel(self.context, GROUP, own.x) or empty_problem(
            sizes, assumed=self.context.options["no_empty_inputs"]
        )
        return norm.reject(problem) if problem else True

    def Replacement(self, norm: NormCall) -> Sequence[EsTensor] | Refusal:
        if norm.shared:
            return norm.reject("shared: a tensor inside is read by others, too")
        norm.vector_type = DataType.FLOAT
        attributes: dict[str, Any] = {
            "epsilon": norm.epsilon,
            "groups": norm.groups,
            "activation": int(norm.activation == "silu"),
        }
        x = es.Transpose(norm.x, perm=LAST)
        if norm.residual is None:
            return [
                es.Transpose(es.op(GROUP)(x, norm.scale, norm.full_bias, **attributes), perm=FIRST)
            ]
        skip = es.Transpose(norm.residual, perm=LAST)
        results = es.op(SKIP)(x, norm.scale, norm.full_bias, skip, **attributes, num_outputs=2)
        return [es.Transpose(result, perm=FIRST) for result in results]


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """By itself: its transposes may cost more than it saves."""
    registry.add("normalization by groups", ["OrtGroupNormPass"])
