"""Values of literals."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_hlo import Shape
from gehost_hlo.literals import array_of


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("5", Shape("s32"), np.int32(5)),
        ("{1, -2, 3}", Shape("s8", (3,)), np.array([1, -2, 3], np.int8)),
        (
            "{ { 1, inf }, /*i0=1*/ { nan, -0 } }",
            Shape("f32", (2, 2)),
            np.array([[1, np.inf], [np.nan, -0.0]], np.float32),
        ),
        ("{true, false}", Shape("pred", (2,)), np.array([True, False])),
        ("18446744073709551615", Shape("u64"), np.uint64(2**64 - 1)),
        ("-9223372036854775808", Shape("s64"), np.int64(-(2**63))),
        ("1e-45", Shape("f32"), np.float32(1e-45)),
        ("nan(0x7)", Shape("f64"), np.float64(np.nan)),
        ("{}", Shape("f32", (0,)), np.zeros(0, np.float32)),
        ("s32[] 5", Shape("s32"), np.int32(5)),
        ("f32[2]{0} {1, 2}", Shape("f32", (2,)), np.array([1, 2], np.float32)),
    ],
)
def test_values(text: str, shape: Shape, expected: np.ndarray) -> None:
    actual = array_of(text, shape)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == np.asarray(expected).tobytes() or np.isnan(expected).all()


@pytest.mark.parametrize(
    ("text", "shape", "problem"),
    [
        ("{1, 2}", Shape("f32", (3,)), "expected 3 values, found 2"),
        ("s32[2] 5", Shape("s32"), r"it has the shape s32\[2\]"),
        ("256", Shape("u8"), "256 does not fit into u8"),
        ("-1", Shape("u32"), "-1 does not fit"),
        ("maybe", Shape("pred"), "expected true or false"),
        ("(1, 2)", Shape("c64"), "c64 has no ONNX type"),
        ("one", Shape("f32"), "could not convert"),
        ("9" * 5000, Shape("s32"), "limit"),
    ],
)
def test_texts_that_are_no_values(text: str, shape: Shape, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        array_of(text, shape)
