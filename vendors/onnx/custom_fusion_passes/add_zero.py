"""Sums with zeros  ==>  the other operand.

``x, 0 → Add   ==>   x``
``x, 0 → Sub   ==>   x``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraphBuilder,
    Pattern,
    PatternFusionPass,
    es,
    shapes,
)

if TYPE_CHECKING:
    from gehost import EsGraph, MatchResult, Refusal


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, min_opset=7)
class AddZeroPass(PatternFusionPass):
    """Replace ``Add(x, 0)``, ``Add(0, x)`` and ``Sub(x, 0)`` with x.

    Shapes: x any; the zeros broadcast into x without widening it.
    Keeps: dtype; a graph output keeps its name behind an Identity. Numbers are equal: at most the
    sign of a zero changes, as -0.0 + 0.0 is 0.0. (Where it cannot, the clean-up does the same.)
    Refuses: ``zeros``: they widen x, or may. Zeros that are no constant do not match.
    Source: x + 0 = x.
    """

    def Patterns(self) -> list[Pattern]:
        patterns: list[Pattern] = []
        for op in (es.Add, es.Sub):
            builder = EsGraphBuilder("zero")
            total = op(builder.CreateInput(0), 0)
            patterns.append(
                Pattern(builder.BuildAndReset([es.Commutative(total) if op is es.Add else total]))
            )
        return patterns

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        for operand in match.GetMatchedNode(0).inputs:
            if operand is None or operand is x or operand.rank == 0:
                continue
            if not shapes.broadcasts_into(operand, x):
                return match.reject("zeros: they widen x, or may")
        return True

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("x")
        return builder.BuildAndReset([builder.CreateInput(0)])
