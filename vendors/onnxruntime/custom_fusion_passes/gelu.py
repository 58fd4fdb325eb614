"""Gelu with a bias, and by a sigmoid, for ONNX Runtime's kernels.

``x, b → Add → Gelu   ==>   x, b → com.microsoft::BiasGelu``
``x → Mul α → Sigmoid → s;  x, s → Mul   ==>   x → com.microsoft::QuickGelu``

The runtime's own optimizer makes both of float32 on a CPU; a file made ahead of time has them in
every type for which the target has a kernel. Without the Mul, α is 1: SiLU.
"""

from __future__ import annotations

from itertools import islice
from math import sqrt
from typing import TYPE_CHECKING, Any

from gehost import REG_FUSION_PASS, CustomPassStage, es, hookimpl, ops
from gehost_semantic import ActivationFusionPass

from ._types import HALVES, no_kernel, not_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from gehost import EsTensor, Refusal
    from gehost_semantic import ActivationCall

BIAS, QUICK = "com.microsoft::BiasGelu", "com.microsoft::QuickGelu"


@ops.register(BIAS, provided_by="onnxruntime>=1.21.1")
def bias_gelu(a: EsTensor, b: EsTensor) -> EsTensor:
    """Gelu, by erf, of a + b.

    Shapes: a [..., D], b [D]. Both of one type.
    """
    x = a + b
    return x * 0.5 * (es.Erf(x / sqrt(2.0)) + 1.0)


@ops.register(QUICK, provided_by="onnxruntime>=1.21.1")
def quick_gelu(x: EsTensor, *, alpha: float = 1.702) -> EsTensor:
    """Product of x and sigmoid(α · x)."""
    return x * es.Sigmoid(x * alpha)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtBiasGeluPass(ActivationFusionPass):
    """Fuse Gelu with the bias that is added before it.

    Forms: Gelu by erf in each spelling that ``gehost_semantic`` describes, and as an operator; the
    bias as either operand.
    Shapes: x [..., D], bias [D].
    Keeps: the numbers but for rounding.
    Refuses: what the recogniser refuses, by its step; ``bias``: no [D] is added before; ``tanh``:
    Gelu is approximated by tanh; ``constants``: of half, several in the place of √2, which the
    kernel does not round; ``precision``: computed in float32, and the kernel is not known to;
    ``shared``: a tensor inside is read by others, too; ``dtype``: not float32, float16 or bfloat16;
    ``kernel``: the target has none of the type.
    Source: com.microsoft.BiasGelu-1.
    """

    kinds = ("gelu", "gelu tanh")
    takes = frozenset({"bias"})

    def MeetRequirements(self, activation: ActivationCall) -> bool | Refusal:
        own = activation.description
        problem = ""
        if own.addend is None:
            problem = "bias: no [D] is added before"
        elif activation.kind != "gelu":
            problem = "tanh: approximated by tanh"
        elif own.compute in HALVES and own.constant is None and own.node.op != "Gelu":
            problem = "constants: of half, several, which the kernel does not round"
        inside = self.context.target.in_file(own.compute, BIAS)
        problem = problem or not_float(own.x) or no_kernel(self.context, BIAS, own.x, inside)
        return activation.reject(problem) if problem else True

    def Replacement(self, activation: ActivationCall) -> EsTensor | Refusal:
        if activation.shared:
            return activation.reject("shared: a tensor inside is read by others, too")
        constant = activation.description.constant
        if constant is not None:
            self.context.replaces_constant(*constant)
        return es.op(BIAS)(activation.x, activation.bias)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield the model of Gelu by erf."""
        return islice(super().Instances(), 1)


@REG_FUSION_PASS(stage=CustomPassStage.kAfterOriginGraphOptimize, default=False)
class OrtQuickGeluPass(ActivationFusionPass):
    """Fuse ``x · sigmoid(α · x)``.

    Forms: with and without α (SiLU), in each spelling that ``gehost_semantic`` describes.
    Keeps: the numbers but for rounding.
    Refuses: what the recogniser refuses, by its step; ``precision``: as above; ``shared``: a tensor
    inside is read by others, too; ``dtype``: not float32, float16 or bfloat16; ``kernel``: the
    target has none of the type.
    Source: com.microsoft.QuickGelu-1.
    """

    kinds = ("silu", "swish")

    def MeetRequirements(self, activation: ActivationCall) -> bool | Refusal:
        own = activation.description
        inside = self.context.target.in_file(own.compute, QUICK)
        problem = not_float(own.x) or no_kernel(self.context, QUICK, own.x, inside)
        return activation.reject(problem) if problem else True

    def Replacement(self, activation: ActivationCall) -> EsTensor | Refusal:
        if activation.shared:
            return activation.reject("shared: a tensor inside is read by others, too")
        return es.op(QUICK)(activation.x, alpha=activation.alpha)


@hookimpl
def gehost_tune_kinds(registry: Any) -> None:
    """Activations."""
    registry.add("activation", ["OrtBiasGeluPass", "OrtQuickGeluPass"])
