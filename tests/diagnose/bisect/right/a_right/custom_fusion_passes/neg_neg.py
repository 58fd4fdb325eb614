"""``x → Neg → Neg   ==>   x``: right; its rewrites come before those of the planted passes."""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    Pattern,
    PatternFusionPass,
    es,
)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class NegNegPass(PatternFusionPass):
    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("twice_negated")
        return [Pattern(builder.BuildAndReset([es.Neg(es.Neg(builder.CreateInput(0)))]))]

    def Replacement(self, _match: object) -> EsGraph:
        builder = EsGraphBuilder("x")
        return builder.BuildAndReset([builder.CreateInput(0)])
