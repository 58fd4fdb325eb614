"""``x → Transpose p → Transpose q   ==>   x → Transpose q[p[i]]``: wrong, it must be ``p[q[i]]``."""

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
class WrongPermPass(PatternFusionPass):
    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("two_transposes")
        return [
            Pattern(builder.BuildAndReset([es.Transpose(es.Transpose(builder.CreateInput(0)))]))
        ]

    def MeetRequirements(self, match: MatchResult) -> bool:
        return all("perm" in node.attrs for node in match.GetMatchedNodes())

    def Replacement(self, match: MatchResult) -> EsGraph:
        first, second = (node.attrs["perm"] for node in match.GetMatchedNodes())
        builder = EsGraphBuilder("one_transpose")
        return builder.BuildAndReset(
            [es.Transpose(builder.CreateInput(0), perm=[second[axis] for axis in first])]
        )
