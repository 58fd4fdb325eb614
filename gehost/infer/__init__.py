"""Shape and type inference.

Of a single new node, and of a whole model.
"""

from __future__ import annotations

from gehost.infer.local import Inferrer
from gehost.infer.whole import infer_model

__all__ = ["Inferrer", "infer_model"]
