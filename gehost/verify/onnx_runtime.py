"""Imports ONNX Runtime, without its telemetry."""

from __future__ import annotations

import importlib
from typing import Any

from gehost.options import leave_telemetry_off

INSTALL = "pip install 'onnxruntime>=1.21.1'"
"""How to get it: older releases compute other numbers for padded batches."""


def onnx_runtime() -> Any:
    """Import the module ``onnxruntime``, untyped: its stubs leave most types open.

    Raises:
        ImportError: it is not installed.
    """
    leave_telemetry_off()
    return importlib.import_module("onnxruntime")


def is_onnx_runtime(provided_by: str) -> bool:
    """Whether the runtime that an operator names is the one that runs models here."""
    return provided_by.partition(">=")[0] == "onnxruntime"
