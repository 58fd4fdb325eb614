"""Gelu from its parts, exact or by tanh.

``x → Div √2 → Erf → Add 1 → e;  x, e → Mul → Mul ½   ==>   x → Gelu``
``x → Pow 3 → Mul 0.044715 → c;  x, c → Add → Mul √(2/π) → Tanh → Add 1 → e;``
``x → Mul ½ → h;  h, e → Mul   ==>   x → Gelu (tanh)``
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import pi, sqrt
from typing import TYPE_CHECKING

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsGraphBuilder,
    Pattern,
    PatternFusionPass,
    es,
    ops,
)

from ._conditions import FUNCTIONS, dtype_problem, function_problem, is_near, widening_problem

if TYPE_CHECKING:
    from gehost import EsGraph, EsTensor, MatchResult, Refusal, Value

STANDARD_SINCE = 20
CUBIC = 0.044715
TANH_FACTOR = sqrt(2.0 / pi)

_Halved = Callable[["EsTensor", "EsTensor"], "EsTensor"]

HALVED_PRODUCTS: tuple[_Halved, ...] = (
    lambda x, e: es.Commutative(es.Mul(es.Commutative(es.Mul(x, e)), 0.5)),
    lambda x, e: es.Commutative(es.Mul(es.Commutative(es.Mul(x, 0.5)), e)),
    lambda x, e: es.Commutative(es.Mul(x, es.Commutative(es.Mul(e, 0.5)))),
)
"""½ · x · e, however it is bracketed."""


@ops.register("gehost::Gelu")
def gelu(x: EsTensor, *, approximate: str = "none") -> EsTensor:
    """Gelu as of ONNX opset 20.

    ½x(1 + erf(x/√2)), or with ``approximate="tanh"`` ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
    """
    if approximate == "tanh":
        return x * 0.5 * (es.Tanh((x + x * x * x * CUBIC) * TANH_FACTOR) + 1.0)
    return x * 0.5 * (es.Erf(x / sqrt(2.0)) + 1.0)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[FUNCTIONS])
class GeluFusionPass(PatternFusionPass):
    """Fuse ``½ · x · (1 + erf(x / √2))``.

    Forms: the division as Div by √2 or as Mul by 1/√2; the outer product bracketed in each way;
    operands in any order.
    Becomes: Gelu from opset 20 on, below it ``gehost::Gelu`` with a body.
    Keeps: any dtype and shape.
    Refuses:
        no match: 1 and ½ of another value; Erf of another tensor than the one that is
            multiplied; an inner tensor that is a graph output, has other readers or is captured by
            a nested body; ``dtype``: not floating point, or unknown; ``constant``: not √2 (1/√2) to
            the precision of its dtype; ``scalar``: a constant of several elements or of a higher
            rank than x; ``functions``: below opset 20 if the option is off.
    Source: ONNX Gelu-20.
    """

    def Patterns(self) -> list[Pattern]:
        return [_exact(*form) for form in product((es.Div, es.Mul), HALVED_PRODUCTS)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        scaled, constant = (match.GetCapturedTensor(index) for index in (0, 1))
        expected = sqrt(2.0) if scaled.node.op == "Div" else sqrt(0.5)
        problem = (
            dtype_problem(x)
            or widening_problem(match, x)
            or _constant_problem(constant.value, expected, x)
            or function_problem("Gelu", self.options, is_standard=_is_standard(match, "none"))
        )
        return match.reject(problem) if problem else True

    def Replacement(self, match: MatchResult) -> EsGraph:
        scaled, constant = (match.GetCapturedTensor(index) for index in (0, 1))
        match.replaces_constant(constant.value, sqrt(2.0 if scaled.node.op == "Div" else 0.5))
        return _gelu(match, "none")


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[FUNCTIONS])
class GeluTanhFusionPass(PatternFusionPass):
    """Fuse ``½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))``.

    Forms: the cube as Pow or as two Mul; the outer product bracketed in each way; operands in any
    order.
    Becomes: Gelu(approximate="tanh") from opset 20 on, below it ``gehost::Gelu`` with a body; that
        one for float64 at every opset, as the standard operator's constants are float32.
    Keeps: any dtype and shape.
    Refuses: as ``GeluFusionPass``; ``constant``: not √(2/π) and 0.044715 to the precision of their
    dtype.
    Source: ONNX Gelu-20.
    """

    def Patterns(self) -> list[Pattern]:
        return [_by_tanh(*form) for form in product((True, False), HALVED_PRODUCTS)]

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        (x,) = match.inputs
        cubic, factor = (match.GetCapturedTensor(index).value for index in (0, 1))
        problem = (
            dtype_problem(x)
            or widening_problem(match, x)
            or _constant_problem(cubic, CUBIC, x)
            or _constant_problem(factor, TANH_FACTOR, x)
            or function_problem("Gelu", self.options, is_standard=_is_standard(match, "tanh"))
        )
        return match.reject(problem) if problem else True

    def Replacement(self, match: MatchResult) -> EsGraph:
        if _is_standard(match, "tanh"):  # the body rounds them as the model does
            for index, exact in enumerate((CUBIC, TANH_FACTOR)):
                match.replaces_constant(match.GetCapturedTensor(index).value, exact)
        return _gelu(match, "tanh")


def _exact(scale: Callable[..., EsTensor], halved: _Halved) -> Pattern:
    builder = EsGraphBuilder("gelu")
    x = builder.CreateInput(0)
    constant = builder.CreateScalar(sqrt(2.0))
    scaled = scale(x, constant)
    if scale is es.Mul:
        es.Commutative(scaled)
    e = es.Commutative(es.Add(es.Erf(scaled), 1.0))
    return (
        Pattern(builder.BuildAndReset([halved(x, e)])).CaptureTensor(scaled).CaptureTensor(constant)
    )


def _by_tanh(with_pow: bool, halved: _Halved) -> Pattern:
    builder = EsGraphBuilder("gelu_tanh")
    x = builder.CreateInput(0)
    cubic, factor = builder.CreateScalar(CUBIC), builder.CreateScalar(TANH_FACTOR)
    cube = es.Pow(x, 3.0) if with_pow else es.Commutative(es.Mul(es.Mul(x, x), x))
    inner = es.Commutative(es.Add(x, es.Commutative(es.Mul(cube, cubic))))
    e = es.Commutative(es.Add(es.Tanh(es.Commutative(es.Mul(inner, factor))), 1.0))
    return Pattern(builder.BuildAndReset([halved(x, e)])).CaptureTensor(cubic).CaptureTensor(factor)


def _constant_problem(constant: Value, expected: float, x: Value) -> str:
    return (
        ""
        if is_near(constant, expected, x)
        else f'constant: "{constant.name}" is not {expected:.7g}'
    )


def _is_standard(match: MatchResult, approximate: str) -> bool:
    """Whether the operator of ONNX takes its place, which computes with exact constants."""
    return (match.graph.model.opset() or 0) >= STANDARD_SINCE and (
        approximate == "none" or match.inputs[0].dtype is not DataType.DOUBLE
    )


def _gelu(match: MatchResult, approximate: str) -> EsGraph:
    builder = EsGraphBuilder("gelu")
    x = builder.CreateInput(0)
    op = "Gelu" if _is_standard(match, approximate) else "gehost::Gelu"
    return builder.BuildAndReset([es.op(op)(x, approximate=approximate)])
