"""How far apart two elements may lie: ``|a - b| <= atol + rtol * |a|``, by dtype of the output.

| dtype | rtol | atol, times the scale | but at least |
|---|---|---|---|
| float64, complex128 | 1e-7 | 1e-9 | 1e-9 |
| float32, complex64 | 1e-4 | 1e-5 | 1e-6 |
| float16 | 1e-2 | 1e-3 | 1e-3 |
| bfloat16 | 5e-2 | 1e-2 | 1e-2 |
| float8 and smaller | 2.5e-1 | 1e-1 | 1e-1 |
| integers, bool, string | equal | | |

The scale of an output is the median magnitude of its elements that are finite and not 0. An element that is small because large
terms cancel carries the rounding of these terms, so what an honest rewrite may move it by grows with its neighbours, not with
itself: 50 convolutions in float32 whose results are around 40 and agree to 7e-7 of the largest differ by 2e-4 where one is 0.01.
The other way round, an absolute tolerance that is right for numbers around 1 hides a percent of a softmax over 1,000 classes.
A median is not moved by a few huge elements, such as the -1e9 of a mask. A tolerance that the caller gives is taken as it is.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Default(NamedTuple):
    rtol: float
    atol: float
    least: float


_DOUBLE, _SINGLE = _Default(1e-7, 1e-9, 1e-9), _Default(1e-4, 1e-5, 1e-6)
_DEFAULTS = MappingProxyType(
    {
        "float64": _DOUBLE,
        "complex128": _DOUBLE,
        "float32": _SINGLE,
        "complex64": _SINGLE,
        "float16": _Default(1e-2, 1e-3, 1e-3),
        "bfloat16": _Default(5e-2, 1e-2, 1e-2),
    }
)
_SMALLER = _Default(2.5e-1, 1e-1, 1e-1)


def tolerance(
    dtype: np.dtype[Any], rtol: float | None = None, atol: float | None = None, *, scale: float = 1.0
) -> tuple[float, float]:
    """Give rtol and atol for a dtype; what the caller gave counts for floating point only, and is not scaled."""
    default = _DEFAULTS.get(dtype.name, _SMALLER if dtype.name.startswith("float") else None)
    if default is None:
        return 0.0, 0.0
    return (
        default.rtol if rtol is None else rtol,
        max(default.least, default.atol * scale) if atol is None else atol,
    )


def scale_of(magnitudes: NDArray[np.float64]) -> float:
    """The median of the magnitudes that are finite and not 0; 1 where there is none."""
    counted = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    return float(np.median(counted)) if counted.size else 1.0
