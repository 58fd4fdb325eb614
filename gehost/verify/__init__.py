"""Compare two models number by number, judged by the original's own rounding errors."""

from gehost.verify.compare import Baseline, Verification, compare
from gehost.verify.device import run_on_device
from gehost.verify.difference import OutputDifference, compare_outputs
from gehost.verify.feeds import load_feeds, make_feeds, save_feeds
from gehost.verify.onnx_runtime import INSTALL, is_onnx_runtime, onnx_runtime
from gehost.verify.run import Runner
from gehost.verify.search import find_feeds
from gehost.verify.tolerance import tolerance

__all__ = [
    "INSTALL",
    "Baseline",
    "OutputDifference",
    "Runner",
    "Verification",
    "compare",
    "compare_outputs",
    "find_feeds",
    "is_onnx_runtime",
    "load_feeds",
    "make_feeds",
    "onnx_runtime",
    "run_on_device",
    "save_feeds",
    "tolerance",
]
