"""Measure which kinds of fusion pay on this machine: ``gehost tune``."""

from gehost.host.switches import machine, read_switch_file
from gehost.tune.measure import (
    FEWEST_PAIRS,
    Comparison,
    Verdict,
    dead_zone_of,
    measure_pairs,
    verdict_of,
)
from gehost.tune.run import Tuning, seconds_of, tune
from gehost.tune.sessions import Runtime, outputs_of, runtime_options, satisfies

__all__ = [
    "FEWEST_PAIRS",
    "Comparison",
    "Runtime",
    "Tuning",
    "Verdict",
    "dead_zone_of",
    "machine",
    "measure_pairs",
    "outputs_of",
    "read_switch_file",
    "runtime_options",
    "satisfies",
    "seconds_of",
    "tune",
    "verdict_of",
]
