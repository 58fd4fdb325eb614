"""Compare two models number by number: seeded inputs, unoptimized engine, stated tolerances."""

from gehost.verify.compare import (
    Baseline,
    OutputDifference,
    Verification,
    compare,
    compare_outputs,
    find_feeds,
)
from gehost.verify.feeds import load_feeds, make_feeds, save_feeds
from gehost.verify.run import Runner
from gehost.verify.tolerance import tolerance

__all__ = [
    "Baseline",
    "OutputDifference",
    "Runner",
    "Verification",
    "compare",
    "compare_outputs",
    "find_feeds",
    "load_feeds",
    "make_feeds",
    "save_feeds",
    "tolerance",
]
