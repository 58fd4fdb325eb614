"""LayerNormalization from its parts.

``x → ReduceMean → m;  x, m → Sub → d → Pow 2 → ReduceMean → Add ε → Sqrt → r;``
``d, r → Div → Mul scale → Add bias``
``==>   x, scale, bias → LayerNormalization``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    Pattern,
    PatternFusionPass,
    es,
    ops,
)

from ._conditions import (
    FUNCTIONS,
    dtype_problem,
    epsilon_problem,
    function_problem,
    mean_of_last_axis,
    quotient_of,
    square_of,
    vector_problem,
    widening_problem,
)

if TYPE_CHECKING:
    from gehost import EsGraph, EsTensor, MatchResult, Refusal

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
class LayerNormalizationFusionPass(PatternFusionPass):
    """Fuse ``(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε) * scale + bias``.

    Forms: the square as Pow or as Mul; the quotient as Div, or as Mul with Reciprocal or 1/√;
        operands of Mul and Add in any order; without bias as well, also where only the addition
        of the bias cannot be taken.
    Shapes: x [..., D], scale [D], bias [D].
    Becomes: LayerNormalization from opset 17 on, below it ``gehost::LayerNormalization`` with a
        body; that one for float64 at every opset, as the standard operator computes its first
        stage in float32.
    Keeps: dtype and shape. In float16 and bfloat16 the standard operator computes in float32: not
    equal bit by bit, but closer.
    Refuses:
        no match: means over another axis than the last, or without keepdims; a mean of another
            tensor; an exponent other than 2; an inner tensor that is a graph output, has other
            readers or is captured by a nested body; ``dtype``: not floating point, or unknown;
            ``epsilon``: not one constant number above 0; ``scalar``: a constant of several elements
            or of a higher rank than x; ``scale``, ``bias``: not [D], or D not known to be the last
            dimension of x and above 1; ``functions``: a function, if the option is off.
    Source: ONNX LayerNormalization-17.
    """

    def Patterns(self) -> list[Pattern]:
        return [_pattern(with_bias=True), _pattern(with_bias=False)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, scale, *bias = match.inputs
        problem = (
            dtype_problem(x)
            or epsilon_problem(match.GetCapturedTensor(0).value, x)
            or widening_problem(match, x)
            or vector_problem("scale", scale, x)
            or next(filter(None, (vector_problem("bias", vector, x) for vector in bias)), "")
            or function_problem("LayerNormalization", self.options, is_standard=_is_standard(match))
        )
        return match.reject(problem) if problem else True

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("layer_normalization")
        inputs = builder.CreateInputs(len(match.inputs))
        normalize = es.op(
            "LayerNormalization" if _is_standard(match) else "gehost::LayerNormalization"
        )
        epsilon = float(match.GetCapturedTensor(0).value.numpy().reshape(-1)[0])
        return builder.BuildAndReset([normalize(*inputs, axis=-1, epsilon=epsilon)])


def _is_standard(match: MatchResult) -> bool:
    """Whether the operator of ONNX takes its place."""
    opset = match.graph.model.opset() or 0
    return opset >= STANDARD_SINCE and match.inputs[0].dtype is not DataType.DOUBLE


def _pattern(*, with_bias: bool) -> Pattern:
    builder = EsGraphBuilder("layer_normalization")
    x, scale = builder.CreateInputs(2)
    epsilon = builder.CreateScalar(1e-5)
    difference = es.Sub(x, mean_of_last_axis(x))
    variance = mean_of_last_axis(square_of(difference))
    root = es.Sqrt(es.Commutative(es.Add(variance, epsilon)))
    result = es.Commutative(es.Mul(quotient_of(difference, root), scale))
    if with_bias:
        result = es.Commutative(es.Add(result, builder.CreateInput(2)))
    return Pattern(builder.BuildAndReset([result])).CaptureTensor(epsilon)
