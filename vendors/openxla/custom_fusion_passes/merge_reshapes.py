"""A Reshape of a Reshape.

``x → Reshape → Reshape   ==>   x → Reshape``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es

from ._conditions import static_shape

if TYPE_CHECKING:
    from gehost import EsGraph, MatchResult, Refusal


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class MergeReshapesPass(PatternFusionPass):
    """Replace ``Reshape(Reshape(x, a), b)`` by one Reshape, or by x.

    It is x where that has the shape already.

    Shapes: the result static, from which the new shape is written: 0 and -1 in b would count from
    another operand.
    Keeps: dtype, the order of the elements.
    Refuses: ``shape``: the result is not static, or has no elements. A first result with other
    readers does not match.
    Source: a Reshape keeps the elements in order.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("reshapes")
        x, a, b = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.Reshape(es.Reshape(x, a), b)]))]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        shape = static_shape(match.outputs[0])
        if shape is None or 0 in shape:
            return match.reject("shape: the result is not static, or empty")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        shape = static_shape(match.outputs[0]) or ()
        builder = EsGraphBuilder("reshape")
        x, _, _ = builder.CreateInputs(3)
        if static_shape(match.inputs[0]) == shape:
            return builder.BuildAndReset([x])
        return builder.BuildAndReset([es.Reshape(x, builder.CreateVector(list(shape)))])
