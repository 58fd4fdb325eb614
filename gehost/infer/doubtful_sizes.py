"""Written by ``make sizes``: see ``doubts``."""

from __future__ import annotations

from gehost.infer.doubts import Doubt

VERSIONS = {"onnx": "1.23.2", "onnxruntime": "1.31.1"}
DOUBTS: dict[str, tuple[Doubt, ...]] = {}
