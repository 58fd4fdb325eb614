"""ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from typing import Any

from gehost import optimizing, tune, verify
from gehost_shipped.targets._onnxruntime import OnnxRuntimeTarget

_PYTHON = """\
options = onnxruntime.SessionOptions()
options.register_custom_ops_library({library})
session = onnxruntime.InferenceSession({{path}}, options)"""


class Cpu(OnnxRuntimeTarget):
    """Fusions that the CPU has float32 kernels for."""

    name = "cpu"
    kernels = "cpu"
    next = "--for any for other runtimes; on a GPU --for cuda --half"
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
        "OrtResidualSumPass",
        "OrtBiasGeluPass",
        "OrtQuickGeluPass",
        "SlicesToSplitPass",
        "OrtConvActivationPass",
    )

    def slower_here(self) -> tuple[str, ...]:
        """SkipLayerNormalization is the slower form from ONNX Runtime 1.30 on."""
        is_slow = tune.satisfies(verify.onnx_runtime().__version__, "onnxruntime>=1.30")
        return ("OrtSkipNormPass",) if is_slow else ("OrtResidualSumPass",)

    def with_library(self, library: str) -> optimizing.Switch:
        def options() -> Any:
            return tune.Runtime(libraries=(library,)).options()

        return optimizing.Switch(
            f"{os.path.basename(library)} has its kernels",
            _PYTHON.format(library=repr(library)),
            options,
        )
