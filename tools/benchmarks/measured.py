"""What a task measures inside its process: CPU time of a block, and memory before and at its peak."""

from __future__ import annotations

import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Measured:
    """CPU seconds, rewrites and MiB."""

    seconds: float = 0.0
    rewrites: int | None = None
    resident: float = 0.0
    """Before the first block, all imports done."""

    @contextmanager
    def timing(self) -> Generator[None]:
        """Add the CPU time of a block, children's included."""
        self.resident = self.resident or status("VmRSS")
        start = cpu_seconds()
        yield
        self.seconds += cpu_seconds() - start


def cpu_seconds() -> float:
    """User and system time of this process, all its threads, and the children it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def status(key: str) -> float:
    """A figure of this process in MiB: VmRSS is what it holds now, VmHWM the most it held.

    ``ru_maxrss`` is no substitute: it starts at what the parent held when it forked.
    """
    path = Path("/proc/self/status")
    if not path.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(
        line for line in path.read_text(encoding="ascii").splitlines() if line.startswith(f"{key}:")
    )
    return int(line.split()[1]) / 1024
