"""A reduction that is reshaped to keep its axes.

``x → Reduce*(axes, keepdims=0) → Reshape   ==>   x → Reduce*(axes, keepdims=1)``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es

from ._conditions import kept_shape, node_of, reduced_axes, static_shape

if TYPE_CHECKING:
    from gehost import EsGraph, MatchResult, Refusal

REDUCTIONS = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean")


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class KeepReducedAxesPass(PatternFusionPass):
    """Replace ``Reshape(Reduce*(x, axes, keepdims=0))`` by a reduction with ``keepdims=1``.

    Shapes: x static; the result is x with size 1 in each reduced axis, as the Reshape makes it.
    Keeps: dtype, operator, axes.
    Refuses: ``shape``: a shape is not known, or the Reshape makes another one; ``axes``: they are
    not constant, or there are none. A reduction that keeps its axes, or has other readers, does
    not match.
    Source: HLO's reduce drops the axes; jax adds them back by a reshape.
    """

    def Patterns(self) -> list[Pattern]:
        patterns: list[Pattern] = []
        for op in REDUCTIONS:
            builder = EsGraphBuilder(op)
            x, shape = builder.CreateInputs(2)
            reduced = es.constrain(es.op(op)(x), keepdims=0)
            patterns.append(Pattern(builder.BuildAndReset([es.Reshape(reduced, shape)])))
        return patterns

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, _ = match.inputs
        axes = reduced_axes(node_of(match, *REDUCTIONS), x)
        if not axes:
            return match.reject("axes: they are not constant, or there are none")
        expected = kept_shape(x, axes)
        result = static_shape(match.outputs[0])
        if expected is None or result != expected:
            return match.reject(f"shape: the Reshape makes {result}, the kept axes are {expected}")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        x = match.inputs[0]
        reduction = node_of(match, *REDUCTIONS)
        axes = reduced_axes(reduction, x)
        builder = EsGraphBuilder("kept")
        operand, _ = builder.CreateInputs(2)
        reduced = es.op(reduction.op)(operand, axes=list(axes or ()), keepdims=1)
        return builder.BuildAndReset([reduced])
