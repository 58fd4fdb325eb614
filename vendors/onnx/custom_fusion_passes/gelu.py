"""Gelu from its parts, exact or by tanh.

``x → Div √2 → Erf → Add 1 → e;  x, e → Mul → Mul ½   ==>   x → Gelu``
``x → Pow 3 → Mul 0.044715 → c;  x, c → Add → Mul √(2/π) → Tanh → Add 1 → e;``
``x → Mul ½ → h;  h, e → Mul   ==>   x → Gelu (tanh)``
"""

from __future__ import annotations

from itertools import product
from math import isclose, pi, sqrt
from typing import TYPE_CHECKING

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, EsTensor, es, ops
from gehost_semantic import ActivationFusionPass

from ._conditions import FUNCTIONS, SHARED, also_at, cast, function_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import Refusal
    from gehost_semantic import ActivationCall

STANDARD_SINCE = 20
CUBIC = 0.044715
TANH_FACTOR = sqrt(2.0 / pi)


@ops.register("gehost::Gelu")
def gelu(x: EsTensor, *, approximate: str = "none") -> EsTensor:
    """Gelu as of ONNX opset 20.

    ½x(1 + erf(x/√2)), or with ``approximate="tanh"`` ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
    """
    if approximate == "tanh":
        return x * 0.5 * (es.Tanh((x + x * x * x * CUBIC) * TANH_FACTOR) + 1.0)
    return x * 0.5 * (es.Erf(x / sqrt(2.0)) + 1.0)


class _GeluPass(ActivationFusionPass):
    """Gelu of one kind, in the type in which the model computes."""

    by_parts = True
    approximate = "none"

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models without and with the operator of ONNX."""
        return also_at(STANDARD_SINCE, super().Instances())

    def MeetRequirements(self, activation: ActivationCall) -> bool | Refusal:
        problem = function_problem("Gelu", self.options, is_standard=self._is_standard(activation))
        return activation.reject(problem) if problem else True

    def Replacement(self, activation: ActivationCall) -> EsTensor | Refusal:
        if activation.shared:
            return activation.reject(SHARED)
        own, is_standard = activation.description, self._is_standard(activation)
        if own.constant is not None:
            self.context.replaces_constant(*own.constant)
        if self.approximate == "tanh" and is_standard:
            self._note(activation, CUBIC, TANH_FACTOR)
        x = cast(activation.x, own.x.dtype, own.compute)
        op = "Gelu" if is_standard else "gehost::Gelu"
        return cast(es.op(op)(x, approximate=self.approximate), own.compute, own.result.dtype)

    def _is_standard(self, activation: ActivationCall) -> bool:
        """Whether the operator of ONNX takes its place, which computes with exact constants."""
        is_narrow = activation.description.compute is not DataType.DOUBLE
        return activation.opset >= STANDARD_SINCE and (is_narrow or self.approximate == "none")

    def _note(self, activation: ActivationCall, *exact: float) -> None:
        """Note the numbers that take the place of rounded ones."""
        assert activation.region is not None
        constants = [value for value in activation.region.inputs if value and value.is_constant]
        for value, number in product(constants, exact):
            array = value.array
            if (
                array is not None
                and array.size == 1
                and isclose(float(array.flat[0]), number, rel_tol=0.01)
            ):
                self.context.replaces_constant(value, number)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[FUNCTIONS])
class GeluFusionPass(_GeluPass):
    """Fuse ``½ · x · (1 + erf(x / √2))``.

    Forms: what ``gehost_semantic`` describes.
    Becomes: Gelu from opset 20 on, below it ``gehost::Gelu`` with a body.
    Keeps: any dtype and shape.
    Refuses:
        what the recogniser refuses, by its step, as ``constant``: not √2 (1/√2) or ½ to the
            precision of its dtype; ``functions``: below opset 20 if the option is off; ``shared``:
            an inner tensor has other readers.
    Source: ONNX Gelu-20.
    """

    kind = "gelu"


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[FUNCTIONS])
class GeluTanhFusionPass(_GeluPass):
    """Fuse ``½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))``.

    Forms: what ``gehost_semantic`` describes.
    Becomes: Gelu(approximate="tanh") from opset 20 on, below it ``gehost::Gelu`` with a body; that
        one for float64 at every opset, as the standard operator's constants are float32.
    Keeps: any dtype and shape.
    Refuses: as ``GeluFusionPass``; ``constant``: not √(2/π) and 0.044715 to the precision of their
    dtype.
    Source: ONNX Gelu-20.
    """

    kind = "gelu tanh"
    approximate = "tanh"
