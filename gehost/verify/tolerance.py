"""The allowed distance of two elements, by output dtype.

``|a - b| <= atol + rtol * |a|``

| dtype | rtol | atol, times the scale | but at least |
|---|---|---|---|
| float64, complex128 | 1e-7 | 1e-9 | 1e-9 |
| float32, complex64 | 1e-4 | 1e-5 | 1e-6 |
| float16 | 1e-2 | 1e-3 | 1e-3 |
| bfloat16 | 5e-2 | 1e-2 | 1e-2 |
| float8 and smaller | 2.5e-1 | 1e-1 | 1e-1 |
| integers, bool, string | equal | | |

The scale of an element is the median magnitude of the elements of similar size in the output. An
element that is small because large terms cancel carries the rounding errors of these terms, so its
error grows with its neighbours, not with itself: 50 float32 convolutions with results around 40
that agree to 7e-7 of the largest differ by 2e-4 where one is 0.01. Conversely, an absolute
tolerance that is right for numbers around 1 hides a percent of a softmax over 1,000 classes.

Fill values of masks, such as -1e9 or -1e4, are not neighbours: a magnitude that more than an eighth
of the elements have does not count, and a gap of a factor of 100 separates sizes. At least four
elements must be below the gap, as fewer may be that small by chance. A tolerance given by the
caller is not scaled.
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
_GAP, _FEW = 100, 4
_OFTEN = 2
"""A value that occurs at most this often counts in an output of any size."""


def tolerance(
    dtype: np.dtype[Any],
    rtol: float | None = None,
    atol: float | None = None,
    *,
    scale: float = 1.0,
) -> tuple[float, float]:
    """Return rtol and atol for a dtype.

    The caller's values apply to floating point only, and are not scaled.
    """
    default = _DEFAULTS.get(dtype.name, _SMALLER if dtype.name.startswith("float") else None)
    if default is None:
        return 0.0, 0.0
    return (
        default.rtol if rtol is None else rtol,
        max(default.least, default.atol * scale) if atol is None else atol,
    )


def scales_of(magnitudes: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[float]]:
    """Group elements by size.

    Returns the least magnitude of each group but the first, and all scales.

    NaN, infinities, zeros and values of more than an eighth of the elements do not count; if none
    is left the scale is 1.
    """
    counted = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    values, counts = np.unique(counted, return_counts=True)
    rare = counts <= max(_OFTEN, magnitudes.size / 8)
    values = np.repeat(values[rare], counts[rare])
    if not values.size:
        return values, [1.0]
    starts = [0]
    for start in (np.flatnonzero(values[1:] / _GAP > values[:-1]) + 1).tolist():
        if start - starts[-1] >= _FEW:
            starts.append(start)
    return values[starts[1:]], [
        float(part[(part.size - 1) // 2]) for part in np.split(values, starts[1:])
    ]
