"""Estimate the memory that a run needs, before it is used."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gehost.errors import UsageError

COPIES_OF_FILE, COPIES_IN_MEMORY = 2, 3
"""Of weights while a session is created: the model as read and the session; of a model in memory
also its serialized form. External data is mapped.
"""
COPIES_OF_ONE = 2
"""Of a weight, in its new type, while it is written to the file that it is mapped from."""


class NoRoomError(UsageError):
    """A run does not fit into memory, or its weights onto the disk."""


def check_room(
    what: str, weights: int, folder: Path | None = None, *, copies: int = COPIES_IN_MEMORY
) -> None:
    """Raise ``NoRoomError`` where a run does not fit.

    Args:
        what: is run, for the message.
        weights: their bytes, or those of other tensors.
        folder: where they are written and mapped from, instead of held in memory.
        copies: how often they are in memory at a time.
    """
    needed = weights if folder is not None else copies * weights
    free = _free_on_disk(folder) if folder is not None else available_memory()
    if free is not None and needed > free:
        place = "on disk" if folder is not None else "of memory"
        raise NoRoomError(f"{what} needs {_size(needed)} {place}, and {_size(free)} are free")


def available_memory() -> int | None:
    """Return the bytes that this process may still take; None where that is not known."""
    free: list[int] = []
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) * 1024)
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        if limit != resource.RLIM_INFINITY:
            free.append(max(limit - pages * resource.getpagesize(), 0))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            used = int((group / "memory.current").read_text(encoding="ascii"))
            free.append(max(int(limit) - used, 0))
    return min(free, default=None)


def _free_on_disk(folder: Path) -> int | None:
    with suppress(OSError):
        result = os.statvfs(folder)
        return result.f_bavail * result.f_frsize
    return None


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
