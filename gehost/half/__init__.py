"""Convert a model of float32 to float16, after its fusions."""

from gehost.half.convert import HalfConversion, stays, to_float16
from gehost.half.judge import HalfVerification, Rounding, judge, rounding, too_large

__all__ = [
    "HalfConversion",
    "HalfVerification",
    "Rounding",
    "judge",
    "rounding",
    "stays",
    "to_float16",
    "too_large",
]
