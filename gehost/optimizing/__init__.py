"""From a model to the best file for a runtime: ``gehost optimize``."""

from gehost.optimizing.kernels import KernelWriter
from gehost.optimizing.report import OptimizeReport
from gehost.optimizing.run import (
    Optimized,
    OptimizeOptions,
    default_output,
    optimize,
    optimize_file,
)
from gehost.optimizing.target import Switch, Target, find_target, targets

__all__ = [
    "KernelWriter",
    "OptimizeOptions",
    "OptimizeReport",
    "Optimized",
    "Switch",
    "Target",
    "default_output",
    "find_target",
    "optimize",
    "optimize_file",
    "targets",
]
