"""A difference that is computed twice.

``x, m → Sub → d;  x, m → Sub → e   ==>   x, m → Sub → d, e``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es

if TYPE_CHECKING:
    from gehost import EsGraph


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class ShareDifferencesPass(PatternFusionPass):
    """Compute ``x - mean(x)`` once for two readers.

    It is squared in one place and divided in another.

    jax writes the difference twice, before XLA's passes; the passes that know a normalization look
    for one.

    Shapes: x, m any; results that of the difference.
    Keeps: dtype; the numbers exactly.
    Refuses: no match: differences of other operands, or of no ReduceMean.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("differences")
        x, mean = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Sub(x, mean), es.Sub(x, mean)]))]

    def Replacement(self, _match: object) -> EsGraph:
        builder = EsGraphBuilder("difference")
        x, mean = builder.CreateInputs(2)
        difference = es.Sub(x, mean)
        return builder.BuildAndReset([difference, difference])
