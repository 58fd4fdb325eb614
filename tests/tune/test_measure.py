"""Statistics of paired times on recorded samples, and the order in which sessions are made and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost.tune import Comparison, dead_zone_of, measure_pairs, verdict_of

# Ratios of pairs as measured on a busy machine: bert.ts against itself, with attention fused, with a slow node.
SAME = (1.004, 0.991, 1.012)
FASTER = (1.31, 1.28, 1.33)
SLOWER = (0.71, 0.74, 0.70)
UNSURE = (1.09, 0.97, 1.05)


def test_the_dead_zone_is_the_widest_gain_of_equal_things() -> None:
    assert dead_zone_of(Comparison(SAME)) == pytest.approx(1.012)
    assert dead_zone_of(Comparison((0.97, 1.0, 1.0))) == pytest.approx(1 / 0.97)
    assert dead_zone_of(Comparison((1.0, 1.0, 1.0))) == pytest.approx(1.005)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        (SAME, "noise"),
        (FASTER, "keep"),
        (SLOWER, "drop"),
        (UNSURE, "noise"),
        ((1.30, 1.31), "keep"),
        ((1.3,), "noise"),
        ((1.30, 1.05), "noise"),
    ],
)
def test_verdicts(ratios: tuple[float, ...], verdict: str) -> None:
    assert verdict_of(Comparison(ratios), 1.012) == verdict


def test_a_gain_inside_the_dead_zone_is_noise() -> None:
    assert verdict_of(Comparison(FASTER), 1.4) == "noise"
    assert verdict_of(Comparison(SLOWER), 1.6) == "noise"


def test_the_interval_is_students() -> None:
    from scipy import stats  # here, as it takes a second to import

    for count in (2, 3, 11, 31):
        ratios = np.random.default_rng(count).uniform(0.9, 1.3, count)
        logs = np.log(ratios)
        expected = stats.t.interval(0.95, count - 1, logs.mean(), stats.sem(logs))
        assert Comparison(tuple(ratios)).interval == pytest.approx(np.exp(expected), rel=1e-3)
    assert Comparison((1.1,) * 40).interval == pytest.approx((1.1, 1.1))
    assert Comparison((1.1, 1.3, 1.2)).median == 1.2


class Machine:
    """A clock that runs by what sessions cost, and a log of what is made and run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def thing(self, name: str, cost: float) -> Any:
        def make() -> Any:
            self.log.append(f"make {name}")

            def run() -> None:
                self.log.append(name)
                self.now += cost

            return run

        return make


def test_pairs_alternate_in_creation_and_in_runs() -> None:
    machine = Machine()
    actual = measure_pairs(
        machine.thing("a", 3.0), machine.thing("b", 2.0), pairs=3, clock=lambda: machine.now
    )
    assert actual.ratios == pytest.approx((1.5, 1.5, 1.5))
    assert (actual.first, actual.second) == pytest.approx((3.0, 2.0))
    assert [line for line in machine.log if line.startswith("make")] == [
        *("make a", "make b"),
        *("make b", "make a"),
        *("make a", "make b"),
    ]
    runs = "".join(line for line in machine.log if not line.startswith("make"))
    assert runs.startswith("ab" + "abba")


def test_a_drift_of_the_machine_is_no_gain() -> None:
    machine = Machine()

    def drifting() -> Any:
        def run() -> None:
            machine.now += 1.0 + machine.now / 1e4

        return run

    actual = measure_pairs(
        lambda: drifting(), lambda: drifting(), pairs=3, clock=lambda: machine.now
    )
    assert verdict_of(actual, 1.005) == "noise"


def test_further_pairs_until_it_is_decided() -> None:
    machine = Machine()
    counts: list[int] = []

    def decided(actual: Comparison) -> bool:
        counts.append(len(actual.ratios))
        return len(actual.ratios) == 5

    measure_pairs(
        machine.thing("a", 1.0),
        machine.thing("b", 1.0),
        seconds=60.0,
        decided=decided,
        clock=lambda: machine.now,
    )
    assert counts == [3, 4, 5]


def test_no_more_pairs_than_the_budget_has_time_for() -> None:
    machine = Machine()
    actual = measure_pairs(
        machine.thing("a", 1.0),
        machine.thing("b", 1.0),
        seconds=0.0,
        decided=lambda _: False,
        clock=lambda: machine.now,
    )
    assert len(actual.ratios) == 3
