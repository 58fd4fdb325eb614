"""Five rules, each said in three styles: GE's classes, DRR and traced pairs. They ask and make the same.

A refusal by an author's condition is counted as ``condition`` in each style, one for want of an attribute as ``unknown``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gehost import (
    CustomPassStage,
    DataType,
    EsGraph,
    EsGraphBuilder,
    EsTensor,
    MatchResult,
    PassSpec,
    Pattern,
    PatternFusionPass,
    Refusal,
    es,
)
from gehost_drr import DrrRule, attr, drr
from gehost_register_pass import MappedPattern, RegisteredPass, RegisterPass, native, op

# -- x → Transpose p1 → Transpose p2   ==>   x → Transpose p1[p2] ------------------------------------------------------


class Transposes(PatternFusionPass):
    """Refuses: a perm left out."""

    def Patterns(self) -> Sequence[Pattern]:
        builder = EsGraphBuilder("transposes")
        first = es.constrain(es.Transpose(builder.CreateInput(0)), perm=es.Bind("p1"))
        return [
            Pattern(builder.BuildAndReset([es.constrain(es.Transpose(first), perm=es.Bind("p2"))]))
        ]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        return None not in match.attributes.values() or match.reject("unknown: a perm is left out")

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("transposes")
        first, second = match.attributes["p1"], match.attributes["p2"]
        return builder.BuildAndReset(
            [es.Transpose(builder.CreateInput(0), perm=[first[axis] for axis in second])]
        )


@drr.rule(name="transposes")
def drr_transposes(pat: Any, res: Any) -> None:
    pat.y = pat.Transpose(perm=attr.p2)(pat.Transpose(perm=attr.p1)(pat.x))
    pat.RequireNativeCall(
        lambda m: m.p1 is not None and m.p2 is not None, "unknown: a perm is left out"
    )
    res.y = res.Transpose(perm=lambda m: [m.p1[axis] for axis in m.p2])(res.x)


@native
def compose(first: list[int], second: list[int]) -> list[int]:
    return [first[axis] for axis in second]


@RegisterPass(name="transposes")
def traced_transposes() -> Any:
    def result(x: Any) -> Any:
        return op.Transpose(
            x,
            perm=compose(
                MappedPattern("Transpose", 0, "perm"), MappedPattern("Transpose", 1, "perm")
            ),
        )

    return lambda x: op.Transpose(op.Transpose(x)), result


# -- x, 0 → Add   ==>   x ------------------------------------------------------------------------------------------------


class AddZero(PatternFusionPass):
    """Refuses: a zero that widens x, by the host's proof of shapes."""

    def Patterns(self) -> Sequence[Pattern]:
        builder = EsGraphBuilder("add_zero")
        return [Pattern(builder.BuildAndReset([es.Commutative(es.Add(builder.CreateInput(0), 0))]))]

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("add_zero")
        return builder.BuildAndReset([builder.CreateInput(0)])


@drr.rule(name="add_zero")
def drr_add_zero(pat: Any, res: Any) -> None:
    pat.y = pat.Commutative(pat.Add(pat.x, 0))
    res.y = res.x


@RegisterPass(name="add_zero")
def traced_add_zero() -> Any:
    return lambda x: op.Add(x, 0).Commutative(), lambda x: x


# -- x → Cast → Cast t   ==>   x → Cast t --------------------------------------------------------------------------------


class Casts(PatternFusionPass):
    """Refuses: a first Cast that changes the dtype, and so may round or cut off."""

    def Patterns(self) -> Sequence[Pattern]:
        builder = EsGraphBuilder("casts")
        first = es.Cast(builder.CreateInput(0))
        pattern = Pattern(builder.BuildAndReset([es.constrain(es.Cast(first), to=es.Bind("to"))]))
        return [pattern.CaptureTensor(first)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        retained = match.GetCapturedTensor(0).value.dtype == match.inputs[0].dtype is not None
        return retained or match.reject("condition: the first Cast changes the dtype")

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("casts")
        return builder.BuildAndReset([es.Cast(builder.CreateInput(0), to=match.attributes["to"])])


@drr.rule(name="casts")
def drr_casts(pat: Any, res: Any) -> None:
    pat.kept = pat.Cast()(pat.x)
    pat.y = pat.Cast(to=attr.to)(pat.kept)
    pat.where(pat.kept.dtype == pat.x.dtype, "condition: the first Cast changes the dtype")
    res.y = res.Cast(to=attr.to)(res.x)


@RegisterPass(name="casts")
def traced_casts() -> Any:
    def pattern(x: Any) -> Any:
        retained = op.Cast(x)
        retained.Output().Attr("dtype").EQ(x.Attr("dtype"))
        return op.Cast(retained)

    return pattern, lambda x: op.Cast(x, to=MappedPattern("Cast", 1, "to"))


# -- x, w → MatMul, b → Add → Relu   ==>   x, w, b → Gemm → Relu ---------------------------------------------------------


class Linear(PatternFusionPass):
    """Refuses: x or w of rank other than 2; b that is no vector of the result's last size."""

    def Patterns(self) -> Sequence[Pattern]:
        builder = EsGraphBuilder("linear")
        x, w, b = builder.CreateInputs(3)
        return [
            Pattern(builder.BuildAndReset([es.Relu(es.Commutative(es.Add(es.MatMul(x, w), b)))]))
        ]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, w, b = (value.shape for value in match.inputs)
        if x is None or w is None or b is None or (len(x), len(w), len(b)) != (2, 2, 1):
            return match.reject("condition: ranks are not 2, 2 and 1")
        return (b[0] is not None and b[0] == w[1]) or match.reject(
            "condition: b is not as long as the result's last axis"
        )

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("linear")
        return builder.BuildAndReset([es.Relu(es.Gemm(*builder.CreateInputs(3), alpha=1.0))])


@drr.rule(name="linear")
def drr_linear(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.Commutative(pat.Add(pat.MatMul(pat.x, pat.w), pat.b)))
    pat.where(
        (pat.x.rank == 2) & (pat.w.rank == 2) & (pat.b.rank == 1),
        "condition: ranks are not 2, 2 and 1",
    )
    pat.where(
        pat.b.shape[0] == pat.w.shape[1], "condition: b is not as long as the result's last axis"
    )
    res.y = res.Relu(res.Gemm(alpha=1.0)(res.x, res.w, res.b))


@RegisterPass(name="linear")
def traced_linear() -> Any:
    def pattern(x: Any, w: Any, b: Any) -> Any:
        for tensor, rank in ((x, 2), (w, 2), (b, 1)):
            tensor.Attr("shape").Size().EQ(rank)
        b.Attr("shape")[0].EQ(w.Attr("shape")[1])
        return op.Relu(op.Add(op.MatMul(x, w), b).Commutative())

    return pattern, lambda x, w, b: op.Relu(op.Gemm(x, w, b, alpha=1.0))


# -- nine nodes   ==>   LayerNormalization -------------------------------------------------------------------------------


class LayerNorm(PatternFusionPass):
    """Refuses: a dtype other than float32; scale or bias that is no vector of the last axis."""

    def Patterns(self) -> Sequence[Pattern]:
        builder = EsGraphBuilder("layer_norm")
        x, scale, bias = builder.CreateInputs(3)
        centered = es.Sub(x, _mean(x))
        root = es.Sqrt(es.Add(_mean(es.Pow(centered, 2.0)), 1e-5))
        return [
            Pattern(builder.BuildAndReset([es.Add(es.Mul(es.Div(centered, root), scale), bias)]))
        ]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        x, scale, bias = match.inputs
        if x.dtype != DataType.FLOAT:
            return match.reject("condition: the dtype is not float32")
        for vector in (scale.shape, bias.shape):
            if (
                vector is None
                or len(vector) != 1
                or not x.shape
                or vector[0] is None
                or vector[0] != x.shape[-1]
            ):
                return match.reject("condition: scale or bias is not as long as the last axis")
        return True

    def Replacement(self, match: MatchResult) -> EsGraph:
        builder = EsGraphBuilder("layer_norm")
        return builder.BuildAndReset(
            [es.LayerNormalization(*builder.CreateInputs(3), epsilon=1e-5)]
        )


def _mean(x: EsTensor) -> EsTensor:
    return es.constrain(es.ReduceMean(x), axes=[-1], keepdims=1)


@drr.rule(name="layer_norm")
def drr_layer_norm(pat: Any, res: Any) -> None:
    pat.centered = pat.Sub(pat.x, pat.ReduceMean(axes=[-1], keepdims=1)(pat.x))
    variance = pat.ReduceMean(axes=[-1], keepdims=1)(pat.Pow(pat.centered, 2.0))
    scaled = pat.Mul(pat.Div(pat.centered, pat.Sqrt(pat.Add(variance, 1e-5))), pat.scale)
    pat.y = pat.Add(scaled, pat.bias)
    pat.where(pat.x.dtype == DataType.FLOAT, "condition: the dtype is not float32")
    for vector in (pat.scale, pat.bias):
        as_long = (vector.rank == 1) & (vector.shape[0] == pat.x.shape[-1])
        pat.where(as_long, "condition: scale or bias is not as long as the last axis")
    res.y = res.LayerNormalization(epsilon=1e-5)(res.x, res.scale, res.bias)


@RegisterPass(name="layer_norm")
def traced_layer_norm() -> Any:
    def pattern(x: Any, scale: Any, bias: Any) -> Any:
        x.Attr("dtype").EQ(DataType.FLOAT)
        for vector in (scale, bias):
            vector.Attr("shape").Size().EQ(1)
            vector.Attr("shape")[0].EQ(x.Attr("shape")[-1])
        centered = op.Sub(x, op.ReduceMean(x, axes=[-1], keepdims=1))
        variance = op.ReduceMean(op.Pow(centered, 2.0), axes=[-1], keepdims=1)
        return op.Add(op.Mul(op.Div(centered, op.Sqrt(op.Add(variance, 1e-5))), scale), bias)

    return pattern, lambda x, scale, bias: op.LayerNormalization(x, scale, bias, epsilon=1e-5)


# -- all of them ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Styles:
    """One rule as an author writes it in each style; what it leaves in a model is equal, the pass's name too."""

    ge: type[PatternFusionPass]
    drr: DrrRule
    traced: RegisteredPass

    def spec(self, style: str) -> PassSpec:
        """The rule as a pass, said as ``ge``, ``drr`` or ``traced``."""
        if style == "ge":
            return PassSpec(
                self.traced.name,
                CustomPassStage.kAfterInferShape,
                __file__,
                "pattern",
                self.ge,
                trusted=True,
            )
        return self.drr.spec() if style == "drr" else self.traced.spec()


RULES = {
    "transposes": Styles(Transposes, drr_transposes, traced_transposes),
    "add_zero": Styles(AddZero, drr_add_zero, traced_add_zero),
    "casts": Styles(Casts, drr_casts, traced_casts),
    "linear": Styles(Linear, drr_linear, traced_linear),
    "layer_norm": Styles(LayerNorm, drr_layer_norm, traced_layer_norm),
}
