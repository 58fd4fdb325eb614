"""Compare two running times in pairs, and judge the difference.

Two sessions of one model differ by 1 to 2 % for as long as they live, and the speed of a machine
drifts by more in a minute. So a pair is two new sessions whose runs alternate; the pair gives one
ratio, of the two medians; the next pair is created in the other order. The ratios of several pairs
give the gain and its interval. Pairs of equal sessions give the dead zone: smaller gains are noise.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["keep", "drop", "noise"]

FEWEST_PAIRS, FEWEST_RUNS = 3, 3
_WARM_UP = 2
_LEAST_DEAD_ZONE = math.log(1.005)
# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Comparison:
    """Times of two candidates.

    A ratio above 1 means that the second is faster.
    """

    ratios: tuple[float, ...]
    """Ratios of the median times of first and second, one per pair."""
    first: float = 0.0
    """Seconds of one run of the first: the median of the pairs' medians."""
    second: float = 0.0
    runs: int = 0
    """Measured runs of each, over all pairs."""

    @property
    def median(self) -> float:
        """The gain (median ratio): 1.1 if the second is a tenth faster."""
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean ratio.

        It is computed in logarithms by Student's t, and is open with one pair.
        """
        logs = [math.log(ratio) for ratio in self.ratios]
        count = len(logs)
        if count < 2:
            return 0.0, math.inf
        mean = statistics.fmean(logs)
        half = _T[min(count - 2, len(_T) - 1)] * statistics.stdev(logs) / math.sqrt(count)
        return math.exp(mean - half), math.exp(mean + half)


def dead_zone_of(same: Comparison) -> float:
    """Return the gain measured between equal sessions, at least 1.005.

    Smaller gains are noise.
    """
    widest = max(abs(math.log(ratio)) for ratio in same.ratios)
    return math.exp(max(widest, _LEAST_DEAD_ZONE))


def verdict_of(comparison: Comparison, dead_zone: float) -> Verdict:
    """Return keep or drop; noise if the interval overlaps the dead zone.

    Args:
        comparison: of the model without and with a fusion.
        dead_zone: a ratio above 1; its inverse is the other end.
    """
    low, high = comparison.interval
    if low > dead_zone:
        return "keep"
    return "drop" if high < 1 / dead_zone else "noise"


def measure_pairs(
    first: Callable[[], Callable[[], object]],
    second: Callable[[], Callable[[], object]],
    *,
    seconds: float = 0.0,
    pairs: int = FEWEST_PAIRS,
    most_pairs: int = 31,
    decided: Callable[[Comparison], bool] = lambda _: True,
    threads: int = 1,
    clock: Callable[[], float] | None = None,
) -> Comparison:
    """Measure two candidates in alternating pairs.

    Args:
        first: creates a session; returns a function that runs it once.
        second: the same for the other candidate.
        seconds: wall time to use; exceeded only for the smallest number of pairs, each with the
            smallest number of runs.
        pairs: the smallest number of pairs.
        most_pairs: the largest number of pairs.
        decided: true if no more pairs are needed, after the smallest number.
        threads: of a session; with one, the CPU time of this thread is measured, else wall time.
        clock: replaces that clock; returns seconds.

    Raises:
        Exception: raised by a session.
    """
    clock = clock or (time.thread_time if threads == 1 else time.perf_counter)
    started = time.perf_counter()
    ratios: list[float] = []
    runs = 0
    medians: tuple[list[float], list[float]] = ([], [])
    while True:
        # the smallest number of pairs shares the time, so slow runs get fewer repetitions
        share = max(seconds, 0.0) / pairs
        one, two, count = _pair(first, second, share, clock, swapped=len(ratios) % 2 == 1)
        medians[0].append(one)
        medians[1].append(two)
        ratios.append(one / two)
        runs += count
        one, two = map(statistics.median, medians)
        result = Comparison(tuple(ratios), one, two, runs)
        if len(ratios) < pairs:
            continue
        used = time.perf_counter() - started
        with_next = used * (1 + 1 / len(ratios))
        if len(ratios) >= most_pairs or decided(result) or with_next > seconds:
            return result


_MOST_RUNS = 400


def _pair(
    first: Callable[[], Callable[[], object]],
    second: Callable[[], Callable[[], object]],
    seconds: float,
    clock: Callable[[], float],
    *,
    swapped: bool,
) -> tuple[float, float, int]:
    """Return two new sessions' median times, and the number of alternating runs."""
    started = time.perf_counter()
    if swapped:
        two = second()
        one = first()
    else:
        one = first()
        two = second()
    for _ in range(_WARM_UP):
        one()
        two()
        if time.perf_counter() - started > seconds / 2:
            break
    times: tuple[list[float], list[float]] = ([], [])
    turns = ((0, one), (1, two))
    for number in range(_MOST_RUNS):
        if number >= FEWEST_RUNS and time.perf_counter() - started > seconds:
            break
        for index, run in turns if number % 2 == 0 else reversed(turns):
            start = clock()
            run()
            times[index].append(clock() - start)
    tick = 1e-9  # a clock may not advance during a very short run
    one_time, two_time = (statistics.median(item) + tick for item in times)
    return one_time, two_time, len(times[0])
