"""Scaled product + Add  ==>  GEMM.

``a, (b → Transpose[1, 0]) → MatMul, 2⁻ⁿ → Mul, c → Add``
``==>   a, b, c, 2⁻ⁿ, 1 → ge::GEMM[transpose_b]``

Attention scores are ``q · kᵀ / √d + mask``; for heads of size 16, 64 and 256 exporters write the
factor as a constant 2⁻ⁿ. Constants must match by value and attributes by equality, which the pass
asks of the matcher in its constructor. The sum is one of a Mul, so that ``fuse_matmul_add.py`` does
not see these sites.
"""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraph,
    EsGraphBuilder,
    MatchResult,
    Pattern,
    PatternFusionPass,
    PatternMatcherConfigBuilder,
    Refusal,
    es,
    shapes,
)

SCALES = (0.25, 0.125, 0.0625)
"""1/√d for d = 16, 64, 256."""
DTYPES = (DataType.FLOAT, DataType.FLOAT16, DataType.DOUBLE)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, min_opset=7)
class FuseScaledMatMulAddPass(PatternFusionPass):
    """Replace ``Add(Mul(MatMul(a, Transpose(b)), 2⁻ⁿ), c)`` with ``GEMM(a, b, c, 2⁻ⁿ, 1,
    transpose_b=1)``.

    Shapes: a [M, K], b [N, K]; c broadcasts into [M, N] without widening it; result [M, N].
    Keeps: dtype, the name of the result, and every bit of it: the body of GEMM scales the product
    as Mul did.
    Refuses: a factor that is not exactly one of ``SCALES``, of rank 0 and in a dtype of ``DTYPES``;
    a perm other than [1, 0] (an absent one is not equal to it); a or b that are no matrices; c that
    widens the product, or may, or is the scaled product.
    Source: GE's example "MatMul + Add → GEMM" with constant and attribute match.
    """

    def __init__(self) -> None:
        super().__init__(
            PatternMatcherConfigBuilder().EnableConstValueMatch().EnableIrAttrMatch().Build()
        )

    def Patterns(self) -> list[Pattern]:
        return [self._pattern(scale, dtype) for scale in SCALES for dtype in DTYPES]

    def _pattern(self, scale: float, dtype: DataType) -> Pattern:
        builder = EsGraphBuilder(f"scaled_matmul_add_{scale}_{dtype.name.lower()}")
        a, b, c = builder.CreateInputs(3)
        product = es.MatMul(a, es.Transpose(b, perm=[1, 0]))
        factor = builder.CreateScalar(scale, dtype)
        scaled = es.Commutative(es.Mul(product, factor))
        pattern = Pattern(builder.BuildAndReset([es.Commutative(es.Add(scaled, c))]))
        return pattern.CaptureTensor(scaled).CaptureTensor(factor)

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        a, b, c = match.inputs
        if a.rank != 2 or b.rank != 2:
            return match.reject("rank: GEMM takes two matrices")
        scaled = match.GetCapturedTensor(0).value
        if c is scaled:
            return match.reject("addend: it is the product itself")
        return shapes.broadcasts_into(c, scaled) or match.reject(
            "addend: widens the product, or may"
        )

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("gemm")
        a, b, c = builder.CreateInputs(3)
        factor = builder.CreateConst(match.GetCapturedTensor(1).value.numpy())
        return builder.BuildAndReset(
            [es.GEMM(a, b, c, factor, builder.CreateScalar(1.0), transpose_b=1)]
        )
