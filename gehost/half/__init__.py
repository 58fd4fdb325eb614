"""Convert a model of float32 to float16, after its fusions."""

from gehost.half.convert import HalfConversion, to_float16
from gehost.half.judge import judge

__all__ = ["HalfConversion", "judge", "to_float16"]
