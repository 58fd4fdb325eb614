"""The vendors and targets that come with gehost; entry points name them.

A wheel holds a copy of ``vendors/`` in this package; a clone has it at its root.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gehost import optimizing

_HERE = Path(__file__).parent
_INSIDE = _HERE / "vendors"
_ROOT = _INSIDE if _INSIDE.is_dir() else _HERE.parents[2] / "vendors"

ascend = _ROOT / "ascend"
onnx = _ROOT / "onnx"
onnxruntime = _ROOT / "onnxruntime"
openxla = _ROOT / "openxla"
paddle = _ROOT / "paddle"


def target_cpu() -> optimizing.Target:
    """Return ONNX Runtime on the CPU."""
    from gehost_shipped.targets.cpu import Cpu

    return Cpu()


def target_cuda() -> optimizing.Target:
    """Return ONNX Runtime on a GPU."""
    from gehost_shipped.targets.cuda import Cuda

    return Cuda()


def target_openvino() -> optimizing.Target:
    """Return OpenVINO."""
    from gehost_shipped.targets.openvino import OpenVino

    return OpenVino()


def target_any() -> optimizing.Target:
    """Return any runtime."""
    from gehost_shipped.targets.standard import Any

    return Any()
