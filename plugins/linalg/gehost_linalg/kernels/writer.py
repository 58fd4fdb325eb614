"""Kernels for ``gehost optimize --kernels``."""

from __future__ import annotations

from gehost import optimizing


def kernel_writer() -> optimizing.KernelWriter:
    """Return what groups element-wise operators and writes their library."""
    return optimizing.KernelWriter(("FuseElementwisePass",), write)


def write(model: str, library: str) -> int:
    """Build the library of a model's groups; return how many nodes have a kernel in it."""
    from gehost_linalg.kernels.library import write_library

    result = write_library(model, library)
    names = {kernel.name for kernel in result.kernels}
    return sum(name in names for name in result.nodes)
