"""Ways for a worker process to end that the fuzzer must see; a module of their own, as another process imports them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn


def dies(_directory: Path) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def hangs(_directory: Path) -> NoReturn:
    while True:
        signal.pause()
