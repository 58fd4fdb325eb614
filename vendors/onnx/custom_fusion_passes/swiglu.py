"""SwiGLU, the gated activation of ONNX's opset 28, from its parts.

``a → Mul α → Sigmoid → s;  a, s → Mul → g;  g, b → Mul   ==>   a, b → SwiGLU``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx.parser

from gehost import REG_FUSION_PASS, CustomPassStage, es
from gehost_semantic import ActivationFusionPass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gehost import EsTensor, Refusal
    from gehost_semantic import ActivationCall


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, default=False, min_opset=28)
class SwiGLUFusionPass(ActivationFusionPass):
    """Fuse ``a · sigmoid(α · a) · b``.

    Off by default: no release of ONNX Runtime runs a model of opset 28 yet.

    Forms: what ``gehost_semantic`` describes, with and without α, and the operator Swish.
    Shapes: a and b of one shape.
    Keeps: the numbers but for rounding; any dtype.
    Refuses: what the recogniser refuses, by its step; ``gate``: nothing of its shape is multiplied;
    ``dtype``: a, b and what the model computes in are not of one type; ``shared``: an inner tensor
    has other readers.
    Source: ONNX SwiGLU-28.
    """

    kinds = ("silu", "swish")
    takes = frozenset({"gate"})

    def MeetRequirements(self, activation: ActivationCall) -> bool | Refusal:
        own = activation.description
        if own.gate is None:
            return activation.reject("gate: no tensor of its shape is multiplied")
        if {own.x.dtype, own.result.dtype, own.gate.value.dtype} != {own.compute}:
            return activation.reject(f"dtype: not all of it is {own.compute}")
        return True

    def Replacement(self, activation: ActivationCall) -> EsTensor | Refusal:
        if activation.shared:
            return activation.reject("shared: a tensor inside is read by others, too")
        return es.SwiGLU(activation.x, activation.gate, alpha=activation.alpha)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of opset 28 with and without a factor of the sigmoid's argument."""
        for line in ("g = Sigmoid (a)", "m = Mul (a, alpha) g = Sigmoid (m)"):
            yield onnx.parser.parse_model(
                f"""<ir_version: 14, opset_import: ["" : 28]>
                g (float[B, S, 8] a, float[B, S, 8] b) => (float[B, S, 8] y)
                <float alpha = {{1.5}}> {{ {line} s = Mul (a, g) y = Mul (s, b) }}"""
            )
