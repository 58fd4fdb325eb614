"""Shape and type inference, of a single new node and whole models."""

from __future__ import annotations

from gehost.infer.local import Inferrer
from gehost.infer.whole import infer_model

__all__ = ["Inferrer", "infer_model"]
