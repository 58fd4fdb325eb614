"""ONNX Runtime on the CPU."""

from __future__ import annotations

from gehost import optimizing
from gehost_shipped.targets._onnxruntime import OnnxRuntimeTarget, without_skip_norm


class Cpu(OnnxRuntimeTarget):
    """Fusions that the CPU has float32 kernels for."""

    name = "cpu"
    kernels = "cpu"
    next = "--for any for other runtimes; on a GPU --for cuda --half"
    passes = (
        "OrtSizesPass",
        "OrtProjectionPass",
        "OrtMaskedFillPass",
        "OrtWindowMaskPass",
        "OrtMaskSumPass",
        "OrtRotaryPass",
        "OrtAttentionPass",
        "OrtPackedAttentionPass",
        "OrtCausalAttentionPass",
        "OrtRmsNormPass",
        "OrtSkipNormPass",
        "OrtBiasGeluPass",
        "OrtQuickGeluPass",
        "SlicesToSplitPass",
        "OrtConvActivationPass",
    )

    def switches(self) -> tuple[optimizing.Switch, ...]:
        return (without_skip_norm(),)
