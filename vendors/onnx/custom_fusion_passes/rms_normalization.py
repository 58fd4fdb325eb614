"""RMSNormalization from its parts.

``x → Pow 2 → ReduceMean → Add ε → Sqrt → r;  x, r → Div → Mul scale``
``==>   x, scale → RMSNormalization``
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import onnx
import onnx.parser

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
    from collections.abc import Iterator

    from gehost import EsGraph, EsTensor, MatchResult, Refusal, Value

STANDARD_SINCE = 23


class Casts(Enum):
    """Where exporters cast.

    They cast x before it is squared, and the normalized x back before it is scaled. TorchScript
    casts x for each of its two readers.
    """

    BOTH = "both"
    TWICE = "twice"
    BACK = "back"
    NONE = "none"


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
class RMSNormalizationFusionPass(PatternFusionPass):
    """Fuse ``x / sqrt(mean(x²) + ε) * scale``.

    Forms: the square as Pow or as Mul; the quotient as Div, or as Mul with Reciprocal or 1/√;
        operands of Mul and Add in any order; x cast before (once, or once for each reader) and
        back after, or a cast back alone that changes nothing.
    Shapes: x [..., D], scale [D].
    Becomes: RMSNormalization from opset 23 on, below it ``gehost::RMSNormalization`` with a body
        whose ``stash_type`` is the dtype in which the model normalizes; that one at every opset
        where the standard operator would be less precise.
    Keeps: dtype and shape. In float16 and bfloat16 the standard operator normalizes in float32:
        not equal bit by bit where the model does not, but closer.
    Refuses:
        no match: a mean over another axis than the last, or without keepdims; a quotient of
            another tensor than the squared one; an exponent other than 2; an inner tensor that is a
            graph output, has other readers or is captured by a nested body; ``dtype``: not floating
            point, or unknown; a result of another dtype than x (casts that do not lead back);
            ``epsilon``: not one constant number above 0; ``scalar``: a constant of several elements
            or of a higher rank than x; ``scale``: not [D], or D not known to be the last dimension
            of x and above 1; ``functions``: a function, if the option is off.
    Source: ONNX RMSNormalization-23.
    """

    def Patterns(self) -> list[Pattern]:
        return [_pattern(casts) for casts in Casts]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, scale = match.inputs
        epsilon, normalized = (match.GetCapturedTensor(index).value for index in (0, 1))
        problem = (
            dtype_problem(x)
            or dtype_problem(normalized)
            or _cast_problem(x, match.outputs[0])
            or epsilon_problem(epsilon, x)
            or widening_problem(match, x)
            or vector_problem("scale", scale, x)
            or function_problem("RMSNormalization", self.options, is_standard=_is_standard(match))
        )
        return match.reject(problem) if problem else True

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("rms_normalization")
        x, scale = builder.CreateInputs(2)
        epsilon = float(match.GetCapturedTensor(0).value.numpy().reshape(-1)[0])
        stash_type = match.GetCapturedTensor(1).value.dtype or DataType.FLOAT
        if _is_standard(match):
            result = es.op("RMSNormalization")(
                x, scale, axis=-1, epsilon=epsilon, stash_type=int(DataType.FLOAT)
            )
        else:
            result = es.op("gehost::RMSNormalization")(
                x, scale, axis=-1, epsilon=epsilon, stash_type=int(stash_type)
            )
        return builder.BuildAndReset([result])

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of half with a cast for each reader, which draws seldom hit."""
        yield onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]>
            g (float16[2, 8] x, float16[8] scale) => (float16[2, 8] y)
            <float two = {2}, float eps = {1e-5}> {
                u = Cast <to = 1> (x) v = Cast <to = 1> (x) p = Pow (u, two)
                m = ReduceMean <axes = [-1]> (p) e = Add (m, eps) r = Sqrt (e) q = Div (v, r)
                n = Cast <to = 10> (q) y = Mul (n, scale)
            }"""
        )


def _cast_problem(x: Value, result: Value) -> str:
    """Return why casts do not lead back to the input's dtype."""
    if result.dtype is x.dtype:
        return ""
    return f'dtype: "{x.name}" is {x.type}, "{result.name}" {result.type}'


def _is_standard(match: MatchResult) -> bool:
    """Whether the operator of ONNX takes its place."""
    return (match.graph.model.opset() or 0) >= STANDARD_SINCE and _no_wider_than_float(match)


def _no_wider_than_float(match: MatchResult) -> bool:
    """Whether float32 holds all numbers of x's and the model's own dtype.

    The standard operator normalizes in float32.
    """
    normalized = match.GetCapturedTensor(1).value.dtype
    return normalized is DataType.FLOAT or (
        normalized is match.inputs[0].dtype and normalized is not DataType.DOUBLE
    )


def _pattern(casts: Casts) -> Pattern:
    builder = EsGraphBuilder("rms_normalization")
    x, scale = builder.CreateInputs(2)
    epsilon = builder.CreateScalar(1e-5)
    wide = es.Cast(x) if casts in (Casts.BOTH, Casts.TWICE) else x
    mean = mean_of_last_axis(square_of(es.Cast(x) if casts is Casts.TWICE else wide))
    root = es.Sqrt(es.Commutative(es.Add(mean, epsilon)))
    normalized = quotient_of(wide, root)
    back = normalized if casts is Casts.NONE else es.Cast(normalized)
    result = es.Commutative(es.Mul(back, scale))
    return Pattern(builder.BuildAndReset([result])).CaptureTensor(epsilon).CaptureTensor(normalized)
