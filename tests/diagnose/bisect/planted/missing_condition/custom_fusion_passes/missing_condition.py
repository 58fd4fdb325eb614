"""``x, x → Mul → Sqrt   ==>   x``: wrong where x may be negative, which nobody asks."""

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
class MissingConditionPass(PatternFusionPass):
    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("root_of_square")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Sqrt(es.Mul(x, x))]))]

    def Replacement(self, _match: object) -> EsGraph:
        builder = EsGraphBuilder("x")
        return builder.BuildAndReset([builder.CreateInput(0)])
