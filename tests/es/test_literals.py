"""Python numbers in the element type of the tensor beside them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gehost.es.literals import in_dtype

INF = float("inf")


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.complex64]
)
@pytest.mark.parametrize("value", [0.5, 3, True, -1, INF, [1, 2.5]])
def test_a_float_holds_numbers_and_rounds(value, dtype):
    found = in_dtype(np.asarray(value), np.dtype(dtype))
    assert found is not None
    assert (found.dtype, found.shape) == (np.dtype(dtype), np.shape(value))
    assert found.astype(np.complex128).tolist() == np.asarray(value, np.complex128).tolist()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.5, np.int64), ([1, 0.5], np.int32), (-1, np.uint8), (300, np.uint8), (2**40, np.int32), (3, np.bool_), (INF, np.int64),
        (float("nan"), np.int64), (8, ml_dtypes.int4), (-1, ml_dtypes.uint4), (1e9, np.float16), (-1e39, np.float32), (1e39, ml_dtypes.bfloat16),
        (1 + 2j, np.float32), (2j, np.int64),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_bent(value, dtype):
    assert in_dtype(np.asarray(value), np.dtype(dtype)) is None


def test_integers_that_fit():
    assert in_dtype(np.asarray([1.0, 7.0]), np.dtype(ml_dtypes.int4)).tolist() == [1, 7]
    assert in_dtype(np.asarray(2**62 + 1), np.dtype(np.int64)) == 2**62 + 1
    assert in_dtype(np.asarray(7 + 0j), np.dtype(np.int32)) == 7
    assert in_dtype(np.asarray([], float), np.dtype(np.int64)).shape == (0,)
