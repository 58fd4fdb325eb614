"""A sum that is divided by the number of its elements.

``x → ReduceSum → Div n   ==>   x → ReduceMean``
``x → ReduceSum → Mul 1/n   ==>   x → ReduceMean``
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es

from ._conditions import TOLERANCE, node_of, number, reduced_axes, static_shape

if TYPE_CHECKING:
    from gehost import EsGraph, MatchResult, Refusal


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class MeanOfSumPass(PatternFusionPass):
    """Replace ``ReduceSum(x) / n``, n the number of added elements, by ``ReduceMean(x)``.

    Forms: Div by n; Mul by 1/n, in any order. With and without ``keepdims``.
    Shapes: x static; the result that of the sum.
    Keeps: dtype, axes, ``keepdims``.
    Refuses: ``dtype``: not floating point, where division is another one; ``axes``: not constant,
    or none;
    ``count``: x is not static, or the number is another one; ``scalar``: the number has more axes
    than the sum, which it would widen. A sum with other readers does not match.
    Source: ONNX ReduceMean-13.
    """

    def Patterns(self) -> list[Pattern]:
        patterns: list[Pattern] = []
        for divides in (True, False):
            builder = EsGraphBuilder("div" if divides else "mul")
            total = es.ReduceSum(builder.CreateInput(0))
            count = builder.CreateScalar(2.0)
            mean = es.Div(total, count) if divides else es.Commutative(es.Mul(total, count))
            patterns.append(
                Pattern(builder.BuildAndReset([mean])).CaptureTensor(count).CaptureTensor(total)
            )
        return patterns

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        if x.dtype is None or not x.dtype.is_float:
            return match.reject(f'dtype: "{x.name}" is not known to be floating point')
        axes = reduced_axes(node_of(match, "ReduceSum"), x)
        if not axes:
            return match.reject("axes: they are not constant, or there are none")
        shape = static_shape(x)
        factor, total = (match.GetCapturedTensor(index).value for index in (0, 1))
        value = number(factor)
        if shape is None or value is None or not value:
            return match.reject("count: the shape is not static, or the factor is no number")
        count = prod(shape[axis] for axis in axes)
        divides = any(node.op == "Div" for node in match.GetMatchedNodes())
        expected = float(count) if divides else 1.0 / count if count else 0.0
        if not count or abs(value - expected) > (0.0 if divides else TOLERANCE * expected):
            return match.reject(f"count: the factor is {value}, wanted {expected}")
        if (factor.rank or 0) > (total.rank or 0):
            return match.reject("scalar: the factor has more axes than the sum")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        (x,) = match.inputs
        reduction = node_of(match, "ReduceSum")
        axes = reduced_axes(reduction, x) or ()
        builder = EsGraphBuilder("mean")
        operand = builder.CreateInput(0)
        retained = reduction.attrs.get("keepdims", 1)
        return builder.BuildAndReset([es.ReduceMean(operand, axes=list(axes), keepdims=retained)])
