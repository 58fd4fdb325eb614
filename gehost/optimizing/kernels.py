"""Generated kernels: the passes that group a file's nodes, and the library for the groups.

A package names its writer in the entry point group ``gehost.kernels``: a function without
parameters that returns a ``KernelWriter``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from gehost.errors import UsageError, VendorError, described
from gehost.products import how_to_get

GROUP = "gehost.kernels"


@dataclass(frozen=True)
class KernelWriter:
    """What writes the library of a file's groups of nodes."""

    passes: tuple[str, ...]
    """Those that make the groups; off by default."""
    write: Callable[[str, str], int]
    """Writes the library for a model: both paths; returns how many nodes have a kernel.

    Raises a ``GehostError`` where it cannot be built, as without a C compiler.
    """


def kernel_writer() -> KernelWriter:
    """Return the writer of the installed package that has one.

    Raises:
        UsageError: there is none.
        VendorError: it cannot be loaded.
    """
    for entry in entry_points(group=GROUP):
        try:
            writer: Any = entry.load()()
        except Exception as error:
            raise VendorError(
                f"the kernels of {entry.name} ({entry.value}) cannot be loaded: {described(error)}"
            ) from error
        return writer
    raise UsageError(f"--kernels: nothing here writes any; {how_to_get('kernels')}")
