"""Compare two models number by number: seeded inputs, one engine without optimizations, stated tolerances."""

from gehost.verify.compare import OutputDifference, Verification, compare, compare_outputs, find_feeds, tolerance
from gehost.verify.feeds import load_feeds, make_feeds
from gehost.verify.run import Runner

__all__ = [
    "OutputDifference",
    "Runner",
    "Verification",
    "compare",
    "compare_outputs",
    "find_feeds",
    "load_feeds",
    "make_feeds",
    "tolerance",
]
