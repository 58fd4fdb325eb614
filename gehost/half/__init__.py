"""Convert a model of float32 to float16, after its fusions."""

from gehost.half.convert import HalfConversion, to_float16

__all__ = ["HalfConversion", "to_float16"]
