"""MatMul + Add  ==>  GEMM:   a, b → MatMul, c → Add   ==>   a, b, c, 1, 1 → ge::GEMM.

Runs after clean-up, when constants are folded and identities gone, and so takes the sites that the
special passes of this directory (with a Relu behind, with a transposed and scaled product) have
left.
"""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    MatchResult,
    Pattern,
    PatternFusionPass,
    Refusal,
    es,
    shapes,
)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, min_opset=7)
class MatMulAddToGemmPass(PatternFusionPass):
    """Replace ``Add(MatMul(a, b), c)``, operands of Add in either order, with ``GEMM(a, b, c, 1,
    1)``.

    Shapes: a [M, K], b [K, N]; c broadcasts into [M, N] without widening it; result [M, N].
    Keeps: dtype, and the name of the result.
    Refuses: a or b of another or unknown rank (a vector times a stack of matrices is of rank 2
    too); c that widens the product, or may, or is the product; a dtype that is no floating point.
    Source: GE's example "MatMul + Add → GEMM"; Add-7 (before, it did not broadcast so).
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("matmul_add")
        a, b, c = builder.CreateInputs(3)
        product = es.MatMul(a, b)
        pattern = Pattern(builder.BuildAndReset([es.Commutative(es.Add(product, c))]))
        return [pattern.CaptureTensor(product)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        a, b, c = match.inputs
        product = match.GetCapturedTensor(0).value
        if a.rank != 2 or b.rank != 2:
            return match.reject("rank: GEMM takes two matrices")
        if c is product:
            return match.reject("addend: it is the product itself")
        if product.dtype is None or not product.dtype.is_float:
            return match.reject("dtype: GEMM is for floating point")
        return shapes.broadcasts_into(c, product) or match.reject(
            "addend: widens the product, or may"
        )

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("gemm")
        a, b, c = builder.CreateInputs(3)
        one = builder.CreateScalar(1.0)
        return builder.BuildAndReset([es.GEMM(a, b, c, one, one)])
