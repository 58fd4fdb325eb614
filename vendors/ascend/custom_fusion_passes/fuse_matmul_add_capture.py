"""MatMul + Add + Relu  ==>  GEMM + Relu.

``a, b → MatMul, c → Add → Relu   ==>   a, b, c, 1, 1 → ge::GEMM → Relu``

The same fusion as ``fuse_matmul_add.py`` where an activation follows, written the way GE's
documentation does: conditions read captured tensors through ``NodeIo`` and ``TensorDesc``. Runs
before that one and only where sizes and dtype are those for which a kernel is chosen at compile
time; sites that it refuses are left to that one.
"""

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraph,
    EsGraphBuilder,
    MatchResult,
    NodeIo,
    Pattern,
    PatternFusionPass,
    Refusal,
    es,
    shapes,
)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, min_opset=7)
class FuseMatMulAddReluCapturePass(PatternFusionPass):
    """Replace ``Relu(Add(MatMul(a, b), c))`` with ``Relu(GEMM(a, b, c, 1, 1))``.

    Shapes: a [M, K], b [K, N], all numbers; c broadcasts into [M, N] without widening it; result
    [M, N].
    Keeps: dtype, and the name of the result.
    Refuses: dtypes other than float16 and float32; a or b that are no matrices; a size that is not
    known; c that widens the product, or may, or is the product; a product or sum that is read
    elsewhere (does not match).
    Source: GE's example "MatMul + Add → GEMM" with captured tensors.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("matmul_add_relu")
        a, b, c = builder.CreateInputs(3)
        product = es.MatMul(a, b)
        relu = es.Relu(es.Commutative(es.Add(product, c)))
        pattern = Pattern(builder.BuildAndReset([relu]))
        return [
            pattern.CaptureTensor(NodeIo(product.GetProducer(), 0)).CaptureTensor(
                NodeIo(c.GetProducer(), 0)
            )
        ]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        product, addend = match.GetCapturedTensor(0), match.GetCapturedTensor(1)
        desc = product.node.GetOutputDesc(product.index)
        if desc.GetDataType() not in (DataType.DT_FLOAT, DataType.DT_FLOAT16):
            return match.reject("dtype: only float16 and float32")
        if any(product.node.GetInputDesc(slot).GetShape().GetDimNum() != 2 for slot in (0, 1)):
            return match.reject("rank: GEMM takes two matrices")
        if desc.GetShape().GetShapeSize() == -1:
            return match.reject("size: the product's is not known")
        if addend.value is product.value:
            return match.reject("addend: it is the product itself")
        return shapes.broadcasts_into(addend.value, product.value) or match.reject(
            "addend: widens the product, or may"
        )

    def Replacement(self, _match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("gemm_relu")
        a, b, c = builder.CreateInputs(3)
        one = builder.CreateScalar(1.0)
        return builder.BuildAndReset([es.Relu(es.GEMM(a, b, c, one, one))])
