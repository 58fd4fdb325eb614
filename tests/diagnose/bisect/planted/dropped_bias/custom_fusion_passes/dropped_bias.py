"""``x, w → MatMul, b → Add   ==>   x, w → Gemm``: wrong, b is gone."""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    MatchResult,
    Pattern,
    PatternFusionPass,
    es,
)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class DroppedBiasPass(PatternFusionPass):
    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("linear")
        x, w, b = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.Add(es.MatMul(x, w), b)]))]

    def MeetRequirements(self, match: MatchResult) -> bool:
        x, w, b = match.inputs
        return x.rank == w.rank == 2 and b.rank == 1

    def Replacement(self, _match: object) -> EsGraph:
        builder = EsGraphBuilder("gemm")
        x, w, _ = builder.CreateInputs(3)
        return builder.BuildAndReset([es.Gemm(x, w)])
