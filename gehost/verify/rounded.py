"""The rounded form of a model: widened, with a rounding to half behind each computing node.

These are the numbers of a device that computes inside each kernel in float32. ONNX Runtime's CPU
provider drops roundings between neighbouring half nodes, but keeps a pair of casts.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import onnx

from gehost.ir.bodies import unique_names
from gehost.ir.inline import inline_functions
from gehost.ir.schemas import schema_at
from gehost.verify.retype import WIDER, element_types, retyped
from gehost.verify.widen import round_outputs

_KERNELS = frozenset(("com.microsoft", "ai.onnx.contrib"))
"""Domains of the runtime, whose operators are one kernel, with or without a body."""


def rounded(
    model: onnx.ModelProto, base_dir: str | None = None, folder: Path | None = None
) -> onnx.ModelProto:
    """Return the model with half's roundings, as a model of float32."""
    if model.functions:
        model = inline_functions(model, keep=partial(is_kernel, model))
    model = unique_names(model)
    wide = retyped(model, WIDER, base_dir, folder)
    round_outputs(wide, element_types(model), lambda _: True)
    return wide


def is_kernel(model: onnx.ModelProto, function: onnx.FunctionProto) -> bool:
    """Whether a kernel runs in place of a function: ONNX Runtime prefers that of its name."""
    names = ("", "ai.onnx") if function.domain in ("", "ai.onnx") else (function.domain,)
    opset = max((item.version for item in model.opset_import if item.domain in names), default=0)
    return function.domain in _KERNELS or schema_at(names[0], function.name, opset) is not None
