"""Batch MatMul + Add  ==>  Gemm.

``x, w → MatMul, b → Add   ==>   (x → Flatten), w, b → Gemm → Reshape``
"""

from collections.abc import Sequence
from typing import TypeAlias

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
    Value,
    es,
    shapes,
)

Size: TypeAlias = int | str | None
"""A number, a name, or unknown."""
DTYPES = (DataType.FLOAT16, DataType.FLOAT, DataType.DOUBLE)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, min_opset=7, default=False)
class FlattenBatchMatMulAddPass(PatternFusionPass):
    """Replace ``Add(MatMul(x, w), b)`` by one Gemm over all rows of x.

    The operands of Add may be in either order.

    Off by default: where no other pass takes the Gemm up, the model has two more nodes.
    The rows of x are independent: row i of the flattened product is row i of x times w. Writes
    ONNX's own Gemm, whose one kernel every runtime has; w and b need not be constant.

    Shapes: x [d₁, …, dₙ, K] with n ≥ 2, w [K, N], b [N], [1, N], [1] or []; Flatten gives [d₁·…·dₙ,
    K] (also where a size is 0), Gemm [d₁·…·dₙ, N], Reshape [d₁, …, dₙ, N]. The shape that Reshape
    is given: all numbers where the dᵢ are numbers; -1 for a single unknown one; else ``Shape(x)``
    without its last entry, and N. b does not widen the product, whose shape therefore is
    [d₁, …, dₙ, N] by the rule of MatMul, and each of the three ways gives exactly that: the third
    by construction, the second because a Reshape keeps the number of elements and no other size is
    0. The host proves it.
    Keeps: dtype, and the name of the result.
    Refuses: x of rank 2 and less (``fuse_matmul_add.py``) or unknown; w that is no matrix of known
    sizes; b that does more than broadcast along the last axis; dtypes other than ``DTYPES``; a
    known size that is 0 (Reshape reads 0 as "copy", and cannot compute -1 then); two unknown sizes
    below opset 14 (no ``allowzero``, and one of them may be 0 at run time).
    Source: GE's example "batch MatMul + Add flattened to 2-D"; ONNX MatMul-13, Gemm-13, Reshape-14.
    """

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("batch_matmul_add")
        x, w, b = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.Commutative(es.Add(es.MatMul(x, w), b))]))]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, w, b = match.inputs
        if x.rank is None or x.rank < 3:
            return match.reject("rank: x is no stack of matrices, or of unknown rank")
        if w.rank != 2 or not shapes.is_static(w):
            return match.reject("weights: no matrix of known sizes")
        if not _along_last_axis(b, w.shape[1]):
            return match.reject("bias: not known to broadcast along the last axis alone")
        if match.outputs[0].dtype not in DTYPES:
            return match.reject("dtype: Gemm is run in float16, float32 and float64")
        batch = _batch(x)
        if 0 in batch or 0 in w.shape:
            return match.reject("empty: a size is 0")
        if _unknown(batch) > 1 and (match.graph.model.opset() or 0) < 14:
            return match.reject("opset: two unknown sizes need the allowzero of opset 14")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        batch, columns = _batch(match.inputs[0]), match.inputs[1].shape[1]
        builder = EsGraphBuilder("flatten_gemm_reshape")
        x, w, b = builder.CreateInputs(3)
        product = es.Gemm(es.Flatten(x, axis=len(batch)), w, b)
        if _unknown(batch) > 1:
            sizes = es.Slice(es.Shape(x), starts=[0], ends=[len(batch)])
            return builder.BuildAndReset(
                [es.Reshape(product, es.Concat(sizes, [columns], axis=0), allowzero=1)]
            )
        shape = [size if isinstance(size, int) else -1 for size in batch]
        return builder.BuildAndReset([es.Reshape(product, [*shape, columns])])


def _batch(x: Value) -> Sequence[Size]:
    """All sizes of x but the last."""
    assert x.shape is not None
    return x.shape[:-1]


def _along_last_axis(bias: Value, columns: Size) -> bool:
    """Whether ``bias`` is one row of numbers, or a single one.

    The row has ``columns`` numbers, as far as Gemm takes it.
    """
    if bias.shape is None or len(bias.shape) > 2:
        return False
    return all(size == 1 for size in bias.shape[:-1]) and all(
        size in (1, columns) for size in bias.shape[-1:]
    )


def _unknown(sizes: Sequence[Size]) -> int:
    return sum(not isinstance(size, int) for size in sizes)
