"""A residual sum and the normalization after it, for ONNX Runtime's kernels.

``a, b → Add → s → LayerNormalization``
``==>  a, b → com.microsoft::SkipLayerNormalization → y, s``
``a, b → Add → s → Pow 2 → ReduceMean → Add ε → Sqrt → r;  s, 1/r → Mul scale``
``==>  a, b → com.microsoft::SkipSimplifiedLayerNormalization → y, s``

A constant that was added to a (the bias of a projection) goes to the kernel, too. The sum may have
other readers: it is the kernel's last output. A root mean square with nothing added before it gets
its quotient in the form that the runtime fuses itself:

``s → Pow 2 → ReduceMean → Add ε → Sqrt → Reciprocal → r;  s, r → Mul``
``==>  … → Sqrt → r;  1, r → Div → q;  s, q → Mul``

Which is faster on a CPU depends on the release: microseconds of [1, 128, 768] on one thread, with
the kernel of both, and with Add or Sum and LayerNormalization by itself:

1.21, 1.24 to 1.26: 68 to 72 and 80 to 84; 1.27 to 1.29: 70 and 415; 1.30 to 1.32: 393 to 401 and 50

So ``gehost optimize --for cpu`` uses SkipLayerNormalization before 1.30, and from then on
``OrtResidualSumPass``. Whole models on 1.31.1 with it, other passes equal, at width 64: bert.ts
0.73 (0.73, 0.74) of the speed, gpt2.dynopt 0.73 (0.72, 0.74). SkipSimplifiedLayerNormalization pays
in all of them: llama.ts 1.06 (1.04, 1.09), t5_encoder.ts 1.10 (1.06, 1.12) (CPU time of one thread,
5 to 9 session pairs, 95 % intervals).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, es, hookimpl, ops
from gehost_semantic import NormFusionPass

from ._types import HALVES, dtype_name, no_kernel, not_float

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gehost import EsTensor, Refusal, TensorType
    from gehost_semantic import NormCall

OUTPUTS = ["output", "mean", "inv_std_var", "input_skip_bias_sum"]


def _shape(
    inputs: Sequence[TensorType | None], _attributes: Mapping[str, Any]
) -> Sequence[TensorType | None]:
    """The outputs that are used have the shape of the first input."""
    return [inputs[0], None, None, inputs[0]]


@ops.register(
    "com.microsoft::SkipLayerNormalization",
    outputs=OUTPUTS,
    shape=_shape,
    provided_by="onnxruntime>=1.21.1",
)
def skip_layer_normalization(
    input: EsTensor,  # noqa: A002 - the kernel's signature
    skip: EsTensor,
    gamma: EsTensor,
    beta: EsTensor | None = None,
    bias: EsTensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[EsTensor, EsTensor, EsTensor, EsTensor]:
    """LayerNormalization of input + skip (+ bias) over the last axis, and the sum.

    Shapes: input and skip [B, S, D], the others [D]. All of one type; it normalizes in float32.
    """
    total = input + skip if bias is None else input + skip + bias
    wide = es.Cast(total, to=DataType.FLOAT)
    mean = es.ReduceMean(wide, axes=[-1], keepdims=1)
    apart = wide - mean
    scale = es.Reciprocal(es.Sqrt(es.ReduceMean(apart * apart, axes=[-1], keepdims=1) + epsilon))
    result = es.CastLike(apart * scale, input) * gamma
    return (result if beta is None else result + beta), mean, scale, total


@ops.register(
    "com.microsoft::SkipSimplifiedLayerNormalization",
    outputs=OUTPUTS,
    shape=_shape,
    provided_by="onnxruntime>=1.21.1",
)
def skip_simplified_layer_normalization(
    input: EsTensor,  # noqa: A002 - the kernel's signature
    skip: EsTensor,
    gamma: EsTensor,
    bias: EsTensor | None = None,
    *,
    epsilon: float = 1e-6,
) -> tuple[EsTensor, EsTensor, EsTensor, EsTensor]:
    """RMSNormalization of input + skip (+ bias) over the last axis, and the sum.

    Shapes as above.
    """
    total = input + skip if bias is None else input + skip + bias
    wide = es.Cast(total, to=DataType.FLOAT)
    square = es.ReduceMean(wide * wide, axes=[-1], keepdims=1)
    scale = es.Reciprocal(es.Sqrt(square + epsilon))
    return es.CastLike(wide * scale, input) * gamma, square, scale, total


_BY_ROOT = ("Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul")
_WRITTEN = [Counter(_BY_ROOT), Counter((*_BY_ROOT, "Mul"))]
"""A root mean square as the runtime fuses it: the root divides x, or 1, a factor of x then."""


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtSkipNormPass(NormFusionPass):
    """Fuse a residual sum with the layer normalization after it.

    Forms: as ``gehost_semantic`` describes them, by parts or as an operator; with and without a
    bias before the sum.
    Keeps: the numbers but for rounding; the sum, where others read it.
    Refuses: what the recogniser refuses, by its step; ``dtype``: not float32, float16 or bfloat16,
    or not of one type; ``cast``: the sum is in half, the normalization with its scale in float32,
    as converters keep it; ``kernel``: the target has none of the type; ``precision``: normalized in
    float32, and the kernel is not known to; ``rank``: not [B, S, D]; ``sum``: no two tensors
    [B, S, D] are added before; ``shared``: a tensor inside is read by others, too.
    Source: com.microsoft.SkipLayerNormalization-1.
    """

    kinds = ("layer",)
    takes = frozenset({"bias", "residual", "residual bias"})

    def MeetRequirements(self, norm: NormCall) -> bool | Refusal:
        own = norm.description
        problem = (
            _problem(norm)
            or no_kernel(self.context, _kernel_of(norm), own.x, norm.compute)
            or _no_sum(norm)
        )
        return norm.reject(problem) if problem else True

    def Replacement(self, norm: NormCall) -> Sequence[EsTensor] | Refusal:
        if norm.shared or norm.residual is None:
            return norm.reject("shared: a tensor inside is read by others, too")
        scale, narrow = norm.scale, _narrow(norm)
        if narrow is not None:
            scale = es.Cast(scale, to=DataType.FLOAT)
        bias = (norm.bias,) if norm.kind == "layer" else ()
        operands = (norm.x, norm.residual, scale, *bias, norm.residual_bias)
        count = 4 if norm.sum_is_read else 1
        output = es.op(_kernel_of(norm))(*operands, epsilon=norm.epsilon, num_outputs=count)
        result = output[0] if count == 4 else output
        if narrow is not None:
            result = es.Cast(result, to=narrow)
        if not bias and norm.bias is not None:
            result = result + norm.bias
        return [result, output[3]] if count == 4 else [result]


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtSkipRmsNormPass(OrtSkipNormPass):
    """Fuse a residual sum with the root mean square after it.

    Forms: as ``OrtSkipNormPass``; also a root mean square of float32 that is cast to half before
    its scale, whose product is then rounded once, behind the kernel.
    Keeps, refuses: as ``OrtSkipNormPass``.
    Source: com.microsoft.SkipSimplifiedLayerNormalization-1.
    """

    kinds = ("rms",)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtRmsNormPass(NormFusionPass):
    """Write a root mean square by parts as ``x · (1 / √…) · scale``, which the runtime fuses.

    Forms: what ``gehost_semantic`` describes, but for those that the runtime fuses as they stand.
    Keeps: the numbers but for rounding.
    Refuses: what the recogniser refuses, by its step; ``dtype``: as above, and casts; ``rank``: not
    [B, S, D]; ``scale``: there is none; ``form``: the runtime fuses it as it stands, or it is an
    operator; ``shared``: a tensor inside is read by others, too.
    Source: SimplifiedLayerNormFusion of ONNX Runtime.
    """

    kind = "rms"

    def MeetRequirements(self, norm: NormCall) -> bool | Refusal:
        own, problem = norm.description, _problem(norm)
        if norm.compute != norm.dtype or _narrow(norm) is not None:
            problem = problem or "dtype: float32 inside, cast to half and back"
        if own.scale is None:
            problem = problem or "scale: there is none"
        return norm.reject(problem) if problem else True

    def Replacement(self, norm: NormCall) -> EsTensor | Refusal:
        if norm.shared:
            return norm.reject("shared: a tensor inside is read by others, too")
        assert norm.region is not None
        operators = Counter(node.op for node in norm.region.nodes)
        if operators in _WRITTEN or "Sqrt" not in operators:
            return norm.reject("form: the runtime fuses it as it stands")
        mean = es.ReduceMean(es.Pow(norm.x, 2.0), axes=[-1], keepdims=1)
        return norm.x * es.Div(1.0, es.Sqrt(mean + norm.epsilon)) * norm.scale


def _kernel_of(norm: NormCall) -> str:
    """Return the kernel of a residual sum and a normalization."""
    simplified = "" if norm.kind == "layer" else "Simplified"
    return f"com.microsoft::Skip{simplified}LayerNormalization"


def _narrow(norm: NormCall) -> DataType | None:
    """Return the half type to which a model in float32 casts before the scale."""
    result = norm.description.result.dtype
    is_half = norm.dtype == DataType.FLOAT and result in HALVES and norm.kind == "rms"
    return result if is_half else None


def _problem(norm: NormCall) -> str:
    """Return why the kernels do not compute a normalization, or ""."""
    own = norm.description
    if not_float(own.x):
        return not_float(own.x)
    vectors = [value for value in (own.scale, own.bias) if value is not None]
    kind = _narrow(norm) or norm.dtype
    if kind in HALVES and own.residual and {value.dtype for value in vectors} == {DataType.FLOAT}:
        return f"cast: the sum is {dtype_name(kind)}, and cast to float32 for the norm alone"
    if any(value.dtype != kind for value in (*vectors, own.result)):
        return f"dtype: {dtype_name(norm.dtype)}, but not all of it"
    if len(own.shape) != 3 or norm.size is None:
        return "rank: not [B, S, D]"
    # the kernels refuse 0, and before 1.24.1 also 1
    return f"rank: normalized over {norm.size} elements" if norm.size < 2 else ""


def _no_sum(norm: NormCall) -> str:
    """Return why x is no sum of two tensors that the model computes, or ""."""
    own = norm.description
    parts, node = own.residual, own.x.producer
    if parts is None and node is not None and node.op != "Add":
        return f'sum: {node.op} "{node.label}" makes what is normalized, no Add'
    if parts is None or parts.spreads or parts.x.is_constant or parts.residual.is_constant:
        return "sum: no two tensors [B, S, D] are added before"
    return ""


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Each by itself: often one pays and another does not."""
    registry.add("normalization", ["OrtRmsNormPass"])
    registry.add("residual LayerNormalization", ["OrtSkipNormPass"])
    registry.add("residual root mean square", ["OrtSkipRmsNormPass"])
