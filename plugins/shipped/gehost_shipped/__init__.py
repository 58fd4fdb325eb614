"""The vendors that come with gehost, for ``--vendors gehost:onnx``; entry points name them.

A wheel holds a copy of ``vendors/`` in this package; a clone has it at its root.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
_INSIDE = _HERE / "vendors"
_ROOT = _INSIDE if _INSIDE.is_dir() else _HERE.parents[2] / "vendors"

ascend = _ROOT / "ascend"
onnx = _ROOT / "onnx"
onnxruntime = _ROOT / "onnxruntime"
openxla = _ROOT / "openxla"
paddle = _ROOT / "paddle"
