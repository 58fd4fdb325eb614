"""Rows are judged by the original's own error: its other sums pass, other functions do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost.verify.difference import OutputDifference
from gehost.verify.judge import NOT_LESS_PRECISE, SAME_FUNCTION, Rule, Yardstick, judge_outputs

Array = np.ndarray[Any, Any]
PRECISE = np.linspace(1, 2, 80).reshape(10, 8)


def judged(
    b: Array,
    *,
    a: Array | None = None,
    runs: tuple[Array, ...] = (),
    rule: Rule = SAME_FUNCTION,
    steps: dict[str, float] | None = None,
    precise: Array = PRECISE,
) -> OutputDifference:
    a = a if a is not None else (precise + 1e-6).astype(np.float32)
    yardstick = Yardstick({"y": precise}, [{"y": run} for run in runs])
    (result,) = judge_outputs(
        {"y": a}, {"y": b.astype(a.dtype)}, yardstick, rule, feed=0, steps=steps or {}
    )
    return result


def test_a_row_may_be_eight_times_as_far_off_as_the_original() -> None:
    assert judged(PRECISE - 7e-6).equal
    off = PRECISE.copy()
    off[3, 1] += 2e-5
    result = judged(off)
    assert (result.equal, result.index, result.rule) == (False, (3, 1), "same function")
    assert result.error > result.bound > 7e-6
    assert "allowed" in result.allowed


def test_the_bound_is_of_the_row_or_of_the_median_row() -> None:
    a = PRECISE.astype(np.float32)
    a[0] += 1e-3  # the original is that far off in this row alone
    b = PRECISE + 1e-6
    b[0] += 5e-3
    assert not judged(b, a=a).equal
    b = PRECISE.copy()
    b[0] += 5e-3
    assert judged(b, a=a).equal
    b[1] += 5e-3
    assert judged(b, a=a).index[:1] == (1,)


def test_the_error_of_the_original_is_that_of_its_worst_run() -> None:
    off = PRECISE + 5e-5
    assert not judged(off).equal
    assert judged(off, runs=((PRECISE + 1e-5).astype(np.float32),)).equal


@pytest.mark.parametrize("number", [0.51, 0.96, 1.0, 1.01, 1.9, 1e-20, -3e20])
def test_where_the_original_is_exact_a_unit_in_the_last_place_is_left(number: float) -> None:
    a = np.full((4, 4), number, np.float32)
    for towards in (-np.inf, np.inf):
        off = np.nextafter(a, np.float32(towards))
        assert judged(off, a=a, precise=a.astype(np.float64)).equal
        off = np.nextafter(np.nextafter(off, np.float32(towards)), np.float32(towards))
        assert not judged(off, a=a, precise=a.astype(np.float64)).equal


@pytest.mark.parametrize("rule", [SAME_FUNCTION, NOT_LESS_PRECISE])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_new_infinity_is_a_difference(rule: Rule, value: float) -> None:
    b = PRECISE.copy()
    b[9, 3] = value
    assert not judged(b, rule=rule).equal
    a = PRECISE.astype(np.float32)
    a[9, 3] = value
    assert judged(b, a=a, rule=rule).equal
    assert judged(PRECISE, a=a, rule=rule).equal  # the second is more precise


def test_a_number_in_place_of_the_originals_nan_is_a_difference() -> None:
    a, precise = PRECISE.astype(np.float32), PRECISE.copy()
    a[2, 2] = precise[2, 2] = np.nan
    assert judged(a.copy(), a=a, precise=precise).equal
    assert not judged(PRECISE, a=a, precise=precise).equal


def test_a_tenth_of_the_rows_may_round_the_other_way() -> None:
    b = PRECISE.copy()
    b[0] += 1
    assert judged(b, rule=NOT_LESS_PRECISE).equal
    assert not judged(b).equal
    b[1] += 1
    assert not judged(b, rule=NOT_LESS_PRECISE).equal


def test_integers_are_equal_or_one_quantization_step_off() -> None:
    a = np.arange(8, dtype=np.int8)
    yardstick = Yardstick({}, ())
    for steps, expected in (({}, False), ({"y": 1.0}, True)):
        (result,) = judge_outputs(
            {"y": a}, {"y": a + np.int8(1)}, yardstick, SAME_FUNCTION, feed=0, steps=steps
        )
        assert result.equal is expected
    (result,) = judge_outputs(
        {"y": a}, {"y": a + np.int8(2)}, yardstick, SAME_FUNCTION, feed=0, steps={"y": 1.0}
    )
    assert not result.equal


def test_short_rows_are_joined() -> None:
    """Of one element a row's error may be none by luck; eight have one."""
    precise = np.linspace(1, 2, 64).reshape(2, 32, 1, 1)
    a = (precise + 1e-6 * (np.arange(64) % 8).reshape(precise.shape)).astype(np.float32)
    assert judged(precise + 2e-5, a=a, precise=precise).equal
    assert not judged(precise + 2e-4, a=a, precise=precise).equal


def test_a_scalar_is_a_row() -> None:
    precise = np.array(1.0)
    a = np.array(1 + 1e-6, np.float32)
    assert judged(np.array(1 - 5e-6), a=a, precise=precise).equal
    assert not judged(np.array(1.001), a=a, precise=precise).equal
