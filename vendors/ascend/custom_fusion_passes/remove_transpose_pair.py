"""Transposes in pairs  ==>  none.

``x → Transpose[0, 3, 1, 2], w, b → Conv → Transpose[0, 2, 3, 1]   ==>   x, w, b → ge::ConvNHWC``
``x → Transpose[p] → Transpose[p⁻¹]   ==>   x``
"""

from collections.abc import Sequence

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    EsTensor,
    MatchResult,
    Pattern,
    PatternFusionPass,
    Refusal,
    es,
    ops,
)

TO_NCHW = [0, 3, 1, 2]
TO_NHWC = [0, 2, 3, 1]


@ops.register("ge::ConvNHWC", outputs=["y"])
def conv_nhwc(
    x: EsTensor,
    w: EsTensor,
    b: EsTensor | None = None,
    *,
    auto_pad: str | None = None,
    dilations: Sequence[int] | None = None,
    group: int | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> EsTensor:
    """Conv of an image with its channels last.

    x [N, H, W, C], w [M, C/group, kH, kW], b [M]; result [N, oH, oW, M].
    """
    y = es.Conv(
        es.Transpose(x, perm=TO_NCHW),
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return es.Transpose(y, perm=TO_NHWC)


@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class RemoveTransposePairAroundConvPass(PatternFusionPass):
    """Let a Conv take over the Transposes around it.

    The new Conv works on the other layout.

    Needs no shapes, and runs before any pass that looks at single Convs or Transposes.

    Shapes: x [N, H, W, C], w [M, C/group, kH, kW], b [M] or absent; result [N, oH, oW, M].
    Keeps: dtype, every attribute of the Conv.
    Refuses: other perms than from and to NHWC, so also other numbers of spatial axes; a transposed
    image or result that is read elsewhere. All of these do not match.
    Source: GE's example "Transposes around a Conv".
    """

    def Patterns(self) -> list[Pattern]:
        return [self._pattern(bias) for bias in (True, False)]

    def _pattern(self, bias: bool) -> Pattern:
        builder = EsGraphBuilder("nhwc_conv_bias" if bias else "nhwc_conv")
        x, w, *b = builder.CreateInputs(3 if bias else 2)
        image = es.constrain(es.Transpose(x), perm=TO_NCHW)
        result = es.constrain(es.Transpose(es.Conv(image, w, *b)), perm=TO_NHWC)
        return Pattern(builder.BuildAndReset([result]))

    def Replacement(self, match: MatchResult) -> EsGraph:
        (conv,) = (node for node in match.GetMatchedNodes() if node.op == "Conv")
        builder = EsGraphBuilder("conv_nhwc")
        operands = builder.CreateInputs(len(match.inputs))
        return builder.BuildAndReset([es.ConvNHWC(*operands, **conv.attrs)])


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class RemoveTransposePairPass(PatternFusionPass):
    """Replace ``Transpose(Transpose(x))`` by x where the second undoes the first.

    Shapes: x any; result that of x.
    Keeps: dtype; a graph output keeps its name behind an Identity.
    Refuses: perms that are not each other's inverse; a first result that is read elsewhere (does
    not match). An absent perm is all axes in reverse.
    Source: p⁻¹ ∘ p = id.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("transpose_pair")
        x = builder.CreateInput(0)
        return [Pattern(builder.BuildAndReset([es.Transpose(es.Transpose(x))]))]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        first, second = (node.attrs.get("perm") for node in match.GetMatchedNodes())
        entry = second if first is None else first
        if entry is None:
            return True
        reverse = list(reversed(range(len(entry))))
        first, second = (reverse if perm is None else perm for perm in (first, second))
        if len(first) != len(second) or any(
            first[axis] != place for place, axis in enumerate(second)
        ):
            return match.reject("perm: the second does not undo the first")
        return True

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("x")
        return builder.BuildAndReset([builder.CreateInput(0)])
