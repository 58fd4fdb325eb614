"""Any runtime: ONNX's own operators at the model's opset, and no functions."""

from __future__ import annotations

from gehost_shipped.targets._onnxruntime import OnnxRuntimeTarget


class Any(OnnxRuntimeTarget):
    """What every runtime loads; measured in ONNX Runtime."""

    name = "any"
    vendors = ("gehost:onnx",)
    passes = ("SlicesToSplitPass",)
    domains = ()
    standard = True
    next = "--for cpu or --for cuda uses ONNX Runtime's own kernels"
