"""Cases that end in no result, in a module that a process imports at once: its patience runs from its start."""

from __future__ import annotations

import time


def hang_or_die(number: int) -> int:
    """0 hangs, 1 dies, 2 raises; others are done."""
    if number == 0:
        while True:
            time.sleep(1)
    if number == 1:
        raise SystemExit(3)
    if number == 2:
        raise ValueError("two")
    return number
