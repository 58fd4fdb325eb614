"""Five passes, each right and with a bug as authors make them: the kind of each is in the name of the wrong class."""

from __future__ import annotations

from typing import Any, ClassVar

from gehost import EsGraphBuilder, EsTensor, MatchResult, Pattern, PatternFusionPass, es


class Rewrites(PatternFusionPass):
    """A pattern and a replacement over the same inputs."""

    inputs: ClassVar[int] = 2

    def Patterns(self) -> list[Pattern]:
        builder = EsGraphBuilder("pattern")
        return [Pattern(builder.BuildAndReset([self.before(*builder.CreateInputs(self.inputs))]))]

    def Replacement(self, match: MatchResult) -> Any:
        builder = EsGraphBuilder("replacement")
        return builder.BuildAndReset([self.after(match, *builder.CreateInputs(self.inputs))])

    def before(self, *inputs: EsTensor) -> EsTensor:
        raise NotImplementedError

    def after(self, match: MatchResult, *inputs: EsTensor) -> EsTensor:
        raise NotImplementedError


class TanhOfHalf(Rewrites):
    """½ (tanh(½ x) + 1) is the sigmoid; ``scale`` is what stands before x."""

    inputs = 1
    scale = 1.0

    def before(self, x):
        return es.Commutative(
            es.Mul(es.Commutative(es.Add(es.Tanh(es.Commutative(es.Mul(x, 0.5))), 1.0)), 0.5)
        )

    def after(self, _match, x):
        return es.Sigmoid(x) if self.scale == 1.0 else es.Sigmoid(es.Mul(x, self.scale))


class WrongConstant(TanhOfHalf):
    scale = 1.02


class NegatedDifference(Rewrites):
    def before(self, a, b):
        return es.Neg(es.Sub(a, b))

    def after(self, _match, a, b):
        return es.Sub(b, a)


class SwappedOperand(NegatedDifference):
    def after(self, _match, a, b):
        return es.Sub(a, b)


class MatMulAddRelu(Rewrites):
    inputs = 3

    def before(self, a, b, c):
        return es.Relu(es.Commutative(es.Add(es.MatMul(a, b), c)))

    def MeetRequirements(self, match):
        return (match.inputs[0].rank, match.inputs[1].rank) == (2, 2) or match.reject(
            "rank: Gemm takes matrices"
        )

    def after(self, _match, a, b, c):
        return es.Relu(es.Gemm(a, b, c))


class DroppedBias(MatMulAddRelu):
    def after(self, _match, a, b, c):
        return es.Relu(es.Gemm(a, b))


class TwoTransposes(Rewrites):
    """``Transpose(Transpose(x, p), q)`` has axis p[q[i]] of x at i."""

    inputs = 1

    def before(self, x):
        return es.Transpose(es.Transpose(x))

    def MeetRequirements(self, match):
        return all("perm" in node.attrs for node in match.GetMatchedNodes()) or match.reject(
            "perm: absent"
        )

    def perms(self, match):
        return [node.attrs["perm"] for node in match.GetMatchedNodes()]

    def after(self, match, x):
        first, second = self.perms(match)
        return es.Transpose(x, perm=[first[axis] for axis in second])


class WrongPerm(TwoTransposes):
    def after(self, match, x):
        first, second = self.perms(match)
        return es.Transpose(x, perm=[second[axis] for axis in first])


class ScaledByOne(Rewrites):
    inputs = 1

    def Patterns(self):
        builder = EsGraphBuilder("pattern")
        x, one = builder.CreateInput(0), builder.CreateScalar(1.0)
        return [Pattern(builder.BuildAndReset([es.Mul(x, one)])).CaptureTensor(one)]

    def MeetRequirements(self, match):
        one = match.GetCapturedTensor(0).value.array
        return bool((one == 1).all()) or match.reject("scale: not one")

    def after(self, _match, x):
        return x


class MissingCondition(ScaledByOne):
    def MeetRequirements(self, match):
        return True


PLANTED = [
    (WrongConstant, TanhOfHalf),
    (SwappedOperand, NegatedDifference),
    (DroppedBias, MatMulAddRelu),
    (WrongPerm, TwoTransposes),
    (MissingCondition, ScaledByOne),
]
"""Each wrong pass with the right one."""
