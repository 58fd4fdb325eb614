"""Add of zero  ==>  nothing:   x, 0 → Add   ==>   x."""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraph,
    EsGraphBuilder,
    MatchResult,
    Pattern,
    PatternFusionPass,
    Refusal,
    es,
    shapes,
)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, min_opset=7)
class RemoveAddZeroPass(PatternFusionPass):
    """Replace ``Add(x, 0)`` or ``Add(0, x)`` with x.

    It works on the root graph and on every nested body.

    Shapes: x any; the zeros broadcast into x without widening it.
    Keeps: dtype; a graph output keeps its name behind an Identity. Numbers are equal: at most the
    sign of a zero changes (-0.0 + 0.0 is 0.0).
    Refuses: zeros that give the sum more or larger dimensions than x has, or may (a dimension of x
    that is not known can be 1 at run time); bool, which has no zero to add. Zeros that are no
    constant do not match.
    Source: GE's example "remove Add of zero"; x + 0 = x.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("add_zero")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Commutative(es.Add(x, 0))]))]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        operands = match.GetMatchedNode(0).inputs
        if any(operand is not None and operand.dtype is DataType.BOOL for operand in operands):
            return match.reject("dtype: bool has no zero to add")
        for zero in operands:
            if (
                zero is not None
                and zero is not x
                and zero.rank != 0
                and not shapes.broadcasts_into(zero, x)
            ):
                return match.reject("zeros: they widen x, or may")
        return True

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("x")
        return builder.BuildAndReset([builder.CreateInput(0)])
