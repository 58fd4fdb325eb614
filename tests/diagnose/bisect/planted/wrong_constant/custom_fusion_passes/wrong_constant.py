"""``x → Div 1.7   ==>   x → Mul 0.59``: wrong, the reciprocal is rounded to two digits."""

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
class WrongConstantPass(PatternFusionPass):
    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("quotient")
        return [Pattern(builder.BuildAndReset([es.Div(builder.CreateInput(0), 1.7)]))]

    def Replacement(self, _match: object) -> EsGraph:
        builder = EsGraphBuilder("product")
        return builder.BuildAndReset([es.Mul(builder.CreateInput(0), 0.59)])
