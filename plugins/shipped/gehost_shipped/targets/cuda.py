"""ONNX Runtime on a GPU of NVIDIA."""

from __future__ import annotations

from gehost_shipped.targets._onnxruntime import OnnxRuntimeTarget, starts


class Cuda(OnnxRuntimeTarget):
    """Fusions that CUDA has kernels for, in float32 and in half."""

    name = "cuda"
    kernels = "cuda"
    next = "gehost tune --provider cuda tries a CUDA graph"
    provider = "cuda"
    least = "CUDAExecutionProvider"
    package = "onnxruntime-gpu>=1.21.1"
    passes = (
        "OrtSizesPass",
        "OrtProjectionPass",
        "OrtRotaryPass",
        "OrtAttentionPass",
        "OrtPackedAttentionPass",
        "OrtCausalAttentionPass",
        "OrtRmsNormPass",
        "OrtSkipNormPass",
        "OrtSkipRmsNormPass",
        "OrtBiasGeluPass",
        "OrtQuickGeluPass",
        "SlicesToSplitPass",
    )

    def missing(self) -> str:
        return super().missing() or ("" if starts("cuda") else "CUDA does not start here")
