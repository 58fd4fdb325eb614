"""Measure which kinds of fusion pay on this machine: ``gehost tune``."""

from gehost.tune.measure import Comparison, Verdict, dead_zone_of, measure_pairs, verdict_of
from gehost.tune.run import Tuning, seconds_of, tune
from gehost.tune.sessions import runtime_options

__all__ = [
    "Comparison",
    "Tuning",
    "Verdict",
    "dead_zone_of",
    "measure_pairs",
    "runtime_options",
    "seconds_of",
    "tune",
    "verdict_of",
]
