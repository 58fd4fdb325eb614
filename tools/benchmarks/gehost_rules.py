"""The rules that are measured, written as a pass author would: methods with checks, no switches turned off."""

from __future__ import annotations

from math import isclose, sqrt

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
    Value,
    es,
    shapes,
)
from tools.benchmarks.near_misses import (
    ABSENT_PAIR,
    BINARY,
    IDLE_COPIES,
    PRESENT_PAIR,
    Chain,
    chains,
)

PassClass = type[PatternFusionPass]


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class MatMulAdd(PatternFusionPass):
    """``Add(MatMul(a, b), c)`` of matrices to Gemm, where c does not widen the product."""

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("matmul_add")
        a, b, c = builder.CreateInputs(3)
        product = es.MatMul(a, b)
        return [
            Pattern(builder.BuildAndReset([es.Add(product, c)]))
            .CaptureTensor(product)
            .CaptureTensor(c)
        ]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        product, addend = (match.GetCapturedTensor(i).value for i in (0, 1))
        if product.rank != 2:
            return match.reject("rank: Gemm takes matrices")
        return shapes.broadcasts_into(addend, product) or match.reject(
            "addend: widens the product, or may"
        )

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("gemm")
        return builder.BuildAndReset([es.Gemm(*builder.CreateInputs(3))])


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class LayerNorm(PatternFusionPass):
    """Nine nodes to LayerNormalization over the last axis."""

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("layer_norm")
        x, scale, bias = builder.CreateInputs(3)
        epsilon = builder.CreateScalar(1e-5)
        centred = es.Sub(x, _mean(x))
        root = es.Sqrt(es.Add(_mean(es.Pow(centred, 2.0)), epsilon))
        result = es.Add(es.Mul(es.Div(centred, root), scale), bias)
        return [Pattern(builder.BuildAndReset([result])).CaptureTensor(epsilon)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, scale, bias = match.inputs
        if _scalar(match.GetCapturedTensor(0).value) is None:
            return match.reject("epsilon: not one number")
        return (_fits(scale, x) and _fits(bias, x)) or match.reject(
            "vector: not as long as the last axis"
        )

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("layer_normalization")
        epsilon = _scalar(match.GetCapturedTensor(0).value)
        return builder.BuildAndReset(
            [es.LayerNormalization(*builder.CreateInputs(3), axis=-1, epsilon=epsilon)]
        )


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Gelu(PatternFusionPass):
    """Five nodes to Gelu."""

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("gelu_parts")
        x = builder.CreateInput(0)
        root = builder.CreateScalar(sqrt(2.0))
        result = es.Mul(es.Mul(x, es.Add(es.Erf(es.Div(x, root)), 1.0)), 0.5)
        return [Pattern(builder.BuildAndReset([result])).CaptureTensor(root)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        result = _scalar(match.GetCapturedTensor(0).value)
        return (result is not None and isclose(result, sqrt(2.0), rel_tol=1e-5)) or match.reject(
            "constant: not the root of 2"
        )

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("gelu")
        return builder.BuildAndReset([es.Gelu(builder.CreateInput(0))])


class _Siblings(PatternFusionPass):
    """Two projections of one tensor, taken together: two outputs."""

    mirrored = False

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("siblings")
        x, b, c, d, e = builder.CreateInputs(5)
        second = es.MatMul(x, d)
        outputs = [
            es.Add(es.MatMul(x, b), c),
            es.Add(e, second) if self.mirrored else es.Add(second, e),
        ]
        return [Pattern(builder.BuildAndReset(outputs))]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        weights = [value.shape for value in match.inputs[1:]]
        ranks = [None if shape is None else len(shape) for shape in weights]
        return ranks == [2, 1, 2, 1] or match.reject("rank: Gemm takes matrices and vectors")

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("gemms")
        x, b, c, d, e = builder.CreateInputs(5)
        return builder.BuildAndReset([es.Gemm(x, b, c), es.Gemm(x, d, e)])


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Siblings(_Siblings):
    """Both projections look alike: only a matcher that takes each node once finds the right pairs."""


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class MirroredSiblings(_Siblings):
    """The second one has the operands of its Add swapped."""

    mirrored = True


def near_miss(name: str, chain: Chain) -> PassClass:
    """A pass that looks for a chain, and would put an Identity in its place."""

    class NearMiss(PatternFusionPass):
        def Patterns(self) -> list[Pattern]:
            builder = EsGraphBuilder(name)
            return [Pattern(builder.BuildAndReset([_chain(builder, chain)]))]

        def Replacement(self, match: MatchResult) -> EsGraph:
            builder = EsGraphBuilder(name)
            return builder.BuildAndReset([es.Identity(builder.CreateInput(0))])

    return REG_FUSION_PASS(name=name, stage=CustomPassStage.kAfterInferShape)(NearMiss)


THREE: list[PassClass] = [MatMulAdd, LayerNorm, Gelu]


def mixed(count: int) -> list[PassClass]:
    """So many rules in one stage: near misses first, while the graph is at its largest, then the three that match."""
    return [
        *(near_miss(f"NearMiss{i}", chain) for i, chain in enumerate(chains(count - len(THREE)))),
        *THREE,
    ]


def idle(*, absent: bool) -> list[PassClass]:
    """Equal rules that match nothing, so many that what the first one loads does not count."""
    return [
        near_miss(f"Idle{i}", ABSENT_PAIR if absent else PRESENT_PAIR) for i in range(IDLE_COPIES)
    ]


def _chain(builder: EsGraphBuilder, chain: Chain) -> EsTensor:
    tensor, placeholders = builder.CreateInput(0), 1
    for op, slot in reversed(chain):
        inputs = [tensor]
        if op in BINARY:
            inputs.insert(1 - slot, builder.CreateInput(placeholders))
            placeholders += 1
        tensor = es.op(op)(*inputs)
    return tensor


def _mean(x: EsTensor) -> EsTensor:
    return es.constrain(es.ReduceMean(x), axes=[-1], keepdims=1)


def _scalar(constant: Value) -> float | None:
    array = constant.array
    return None if array is None or array.ndim else float(array)


def _fits(vector: Value, x: Value) -> bool:
    return bool(
        vector.shape
        and x.shape
        and len(vector.shape) == 1
        and shapes.same_dim(vector.shape[0], x.shape[-1])
    )
