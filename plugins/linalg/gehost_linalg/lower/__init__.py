"""ONNX operators as Generics, one file per family."""

from __future__ import annotations
