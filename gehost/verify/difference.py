"""Compare the outputs of two runs element by element.

Two elements agree if both are NaN, both are the same infinity, or their distance is within
``gehost.verify.tolerance``. Names, order, dtypes and shapes of the outputs must be equal.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gehost.errors import UsageError
from gehost.verify.tolerance import scales_of, tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """The comparison of one output on one feed.

    ``index``, ``a``, ``b``, ``atol`` and ``max_abs`` belong to the element with the largest
    ``|a - b|`` among those outside the tolerance, or among all if all are inside. Distances to or
    between NaN and infinity, and between two strings, count as infinite. ``max_rel`` is the largest
    ``|a - b| / |a|`` of the same elements, where ``a`` is not 0. ``telling`` is false if ``a`` has
    no finite element, or several elements of one value: almost any model would agree. ``reason`` is
    not empty if the values could not be compared: another name, dtype or shape.
    """

    output: str
    feed: int
    equal: bool
    rtol: float = 0.0
    atol: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    index: tuple[int, ...] | None = None
    a: Any = None
    b: Any = None
    telling: bool = False
    reason: str = ""
    rule: str = ""
    """The rule of ``gehost.verify.judge`` that decided; "" for tolerances."""
    error: float = 0.0
    """By a rule: the distance of ``b`` to the precise run."""
    bound: float = 0.0
    """By a rule: the allowed error in the row of the element."""
    rows_outside: float = 0.0
    """By a rule: the share of rows with a larger error than allowed."""

    @property
    def place(self) -> str:
        """The name and index of the worst element: ``logits[0,3,17]``."""
        return f"{self.output}[{','.join(map(str, self.index))}]" if self.index else self.output

    @property
    def allowed(self) -> str:
        """What the worst element may differ by, as text."""
        if self.bound:
            return f"(error {self.error:.2g}, allowed {self.bound:.2g})"
        return f"(rtol {self.rtol:g}, atol {self.atol:.3g})"


def compare_outputs(
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    *,
    feed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[OutputDifference]:
    """Compare the outputs of two runs, in order; ``feed`` is only recorded.

    Raises:
        UsageError: the memory does not suffice to compare an output.
    """
    results: list[OutputDifference] = []
    for number, (name, other) in enumerate(itertools.zip_longest(expected, actual)):
        if name != other:
            reason = f"output {number} is {other!r}, wanted {name!r}"
            results.append(OutputDifference(name or other or "", feed, equal=False, reason=reason))
            continue
        target, blank = expected[name], OutputDifference(name, feed, equal=False)
        try:
            results.append(compare_arrays(target, actual[name], blank, rtol, atol))
        except MemoryError as error:
            raise UsageError(
                f"output {name!r}, {target.dtype}{list(target.shape)}, is too large to be compared"
                " in this process's memory",
                hint="give smaller inputs by --feeds",
            ) from error
    return results


def compare_arrays(
    a: Array, b: Array, blank: OutputDifference, rtol: float | None, atol: float | None
) -> OutputDifference:
    """Return ``blank`` with the comparison of two arrays filled in."""
    if a.dtype != b.dtype:
        return dataclasses.replace(blank, reason=f"dtype {b.dtype}, wanted {a.dtype}")
    if a.shape != b.shape:
        return dataclasses.replace(blank, reason=f"shape {list(b.shape)}, wanted {list(a.shape)}")
    if a.size == 0:
        return dataclasses.replace(blank, equal=True)
    wide_a, wide_b = as_wide(a), as_wide(b)
    numbers = finite(a) & finite(b)
    same, distance, magnitude = _distances(wide_a, wide_b)
    bounds, scales = scales_of(magnitude)
    allowed = [tolerance(a.dtype, rtol, atol, scale=scale) for scale in scales]
    rtol = allowed[0][0]
    atols = np.array([absolute for _, absolute in allowed])[
        np.searchsorted(bounds, magnitude, side="right")
    ]
    with np.errstate(invalid="ignore"):  # infinity times an rtol of 0
        agrees = same | (numbers & (distance <= atols + rtol * magnitude))
    equal = bool(agrees.all())
    considered = agrees if equal else ~agrees
    worst = np.unravel_index(int(np.argmax(np.where(considered, distance, -1.0))), a.shape)
    divisible = considered & numbers & (magnitude > 0)
    values = a[finite(a)]
    varies = values.size == a.size == 1 or (values.size and np.any(values != values[0]))
    return dataclasses.replace(
        blank,
        equal=equal,
        rtol=rtol,
        atol=float(atols[worst]),
        max_abs=float(distance[worst]),
        max_rel=float(np.max(distance[divisible] / magnitude[divisible], initial=0.0)),
        index=tuple(int(i) for i in worst),
        a=wide_a[worst] if wide_a.dtype.kind == "O" else wide_a[worst].item(),
        b=wide_b[worst] if wide_b.dtype.kind == "O" else wide_b[worst].item(),
        telling=bool(varies),
    )


def as_wide(array: Array) -> Array:
    """Convert to the widest type of its kind.

    Distances are exact or nearly so in it.
    """
    if array.dtype.kind in "OUS":
        return array.astype(object)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if "float" in array.dtype.name:
        return array.astype(np.float64)
    return array.astype(np.uint64 if array.dtype == np.uint64 else np.int64)


def finite(array: Array) -> NDArray[np.bool_]:
    wide = as_wide(array)
    return np.isfinite(wide) if wide.dtype.kind in "fc" else np.ones(wide.shape, np.bool_)


def _distances(
    a: Array, b: Array
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
    """Return, element by element, how far two widened arrays differ.

    The parts are: whether equal or both NaN; ``|a - b|``; ``|a|``.
    """
    same = np.asarray(a == b, np.bool_)
    if a.dtype.kind == "O":
        return same, np.where(same, 0.0, np.inf), np.zeros(a.shape)
    # subtracts modulo 2**64, which is right here; numpy warns about it for arrays of rank 0
    if a.dtype.kind in "iu":
        with np.errstate(over="ignore"):
            gap = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
        return same, gap.astype(np.float64), np.abs(a.astype(np.float64))
    same |= np.isnan(a) & np.isnan(b)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(a - b)
    gap = np.where(np.isnan(gap), np.inf, gap)
    return same, np.where(same, 0.0, gap), np.abs(a)
