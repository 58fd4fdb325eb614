"""One divided by a root.

``x → Sqrt → r;  1, r → Div   ==>   x → Sqrt → Reciprocal``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, es

if TYPE_CHECKING:
    from gehost import EsGraph, MatchResult, Refusal


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class ReciprocalSqrtPass(PatternFusionPass):
    """Replace ``1 / Sqrt(x)`` by ``Reciprocal(Sqrt(x))``, as normalizations are written in ONNX.

    Shapes: x any; result that of x.
    Keeps: dtype; the numbers exactly.
    Refuses: ``dtype``: not floating point, or unknown; ``scalar``: the 1 has more axes than x,
    which it would widen. Another numerator, and a root with other readers, do not match.
    Source: ONNX Reciprocal-13.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("reciprocal")
        root = es.Sqrt(builder.CreateInput(0))
        return [Pattern(builder.BuildAndReset([es.Div(1.0, root)]))]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        if x.dtype is None or not x.dtype.is_float:
            return match.reject(f'dtype: "{x.name}" is not known to be floating point')
        (one,) = (
            value
            for node in match.GetMatchedNodes()
            if node.op == "Div"
            for value in node.inputs[:1]
            if value is not None
        )
        if one.rank != 0 and (
            one.array is None or one.array.size != 1 or (one.rank or 0) > (x.rank or 0)
        ):
            return match.reject("scalar: the 1 has several elements or more axes than x")
        return True

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("reciprocal")
        return builder.BuildAndReset([es.Reciprocal(es.Sqrt(builder.CreateInput(0)))])
