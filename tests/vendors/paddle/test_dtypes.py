"""Which element types hold which, against what numpy does with every value."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from gehost import DataType

SMALL = (
    DataType.BOOL,
    DataType.INT8,
    DataType.UINT8,
    DataType.INT16,
    DataType.UINT16,
    DataType.FLOAT16,
    DataType.BFLOAT16,
)
LARGE = (
    DataType.INT32,
    DataType.UINT32,
    DataType.INT64,
    DataType.UINT64,
    DataType.FLOAT,
    DataType.DOUBLE,
)


def values_of(dtype: DataType) -> np.ndarray[Any, Any]:
    """Every value of a small type that is finite; of a large one the ends, and numbers of as many digits as it has."""
    if dtype is DataType.BOOL:
        return np.array([False, True])
    if dtype in SMALL:
        bits = np.arange(1 << (8 * dtype.numpy.itemsize), dtype=np.uint32).astype(
            f"u{dtype.numpy.itemsize}"
        )
        every = bits.view(dtype.numpy)
        with np.errstate(invalid="ignore"):  # ml_dtypes looks at signalling NaNs too
            return every[np.isfinite(every)]
    if dtype in (DataType.FLOAT, DataType.DOUBLE):
        limits = np.finfo(dtype.numpy)
        return np.array(
            [limits.max, limits.min, limits.smallest_subnormal, 1 + limits.eps, 1 / 3], dtype.numpy
        )
    limits = np.iinfo(dtype.numpy)
    return np.array([limits.min, limits.max, limits.max - 1, limits.max // 3], dtype.numpy)


def goes_and_comes_back(narrow: DataType, wide: DataType) -> bool:
    values = values_of(narrow)
    with np.errstate(all="ignore"):
        there = values.astype(wide.numpy)
        if narrow.numpy.kind in "iub" and wide.numpy.kind in "fV":
            # A float that is out of range comes back as anything: compare as exact numbers.
            return [int(value) for value in values] == [
                int(value) if np.isfinite(value) else None for value in there.astype(np.float64)
            ]
        if narrow.numpy.kind in "iu" and wide.numpy.kind in "iu":
            return [int(value) for value in values] == [int(value) for value in there]
        return bool(np.array_equal(there.astype(narrow.numpy), values))


@pytest.mark.parametrize(
    ("narrow", "wide"), list(product((*SMALL, *LARGE), repeat=2)), ids=lambda dtype: dtype.name
)
def test_what_holds_all_values_gives_them_back(
    module: Any, narrow: DataType, wide: DataType
) -> None:
    assert module("_dtypes").holds(narrow, wide) == goes_and_comes_back(narrow, wide)


@pytest.mark.parametrize("other", [DataType.STRING, DataType.FLOAT8E4M3FN, DataType.COMPLEX64])
def test_of_other_types_nothing_is_claimed(module: Any, other: DataType) -> None:
    holds = module("_dtypes").holds
    assert not holds(other, DataType.DOUBLE)
    assert not holds(DataType.BOOL, other)
    assert not holds(other, other)


@pytest.mark.parametrize(
    ("start", "way", "end", "same"),
    [
        (DataType.FLOAT16, DataType.FLOAT, DataType.BFLOAT16, True),
        (DataType.FLOAT, DataType.FLOAT16, DataType.FLOAT, False),
        (DataType.FLOAT, DataType.DOUBLE, DataType.INT32, False),
        (DataType.FLOAT, DataType.DOUBLE, DataType.BOOL, True),
        (DataType.INT32, DataType.INT64, DataType.INT8, True),
        (DataType.UINT8, DataType.FLOAT, DataType.INT8, False),
        (DataType.UINT8, DataType.FLOAT, DataType.INT16, True),
        (DataType.INT64, DataType.DOUBLE, DataType.FLOAT, False),
        (DataType.FLOAT, DataType.DOUBLE, DataType.STRING, False),
        (None, DataType.DOUBLE, DataType.FLOAT, False),
    ],
)
def test_a_way_round_is_left_out_where_it_changes_nothing(
    module: Any, start: Any, way: Any, end: Any, same: bool
) -> None:
    assert module("_dtypes").cast_by_way_of(start, way, end) is same
