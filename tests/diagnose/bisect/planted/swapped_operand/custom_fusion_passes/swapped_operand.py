"""``a, b → Sub → Neg   ==>   a, b → Sub``: wrong, it must be ``b, a → Sub``."""

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
class SwappedOperandPass(PatternFusionPass):
    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("negated_difference")
        a, b = builder.CreateInputs(2)
        return [Pattern(builder.BuildAndReset([es.Neg(es.Sub(a, b))]))]

    def Replacement(self, _match: object) -> EsGraph:
        builder = EsGraphBuilder("difference")
        a, b = builder.CreateInputs(2)
        return builder.BuildAndReset([es.Sub(a, b)])
