"""Fresh processes for measurements: CPU seconds, peak memory, an end to those that take too long."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass
class Outcome:
    """A median of runs, or why there is none."""

    seconds: float | None = None
    """CPU time, user and system."""
    wall: float | None = None
    rewrites: int | None = None
    peak: float | None = None
    """MiB at the most."""
    resident: float | None = None
    """MiB before the measured block."""
    runs: int = 0
    failure: str = ""
    note: str = ""


def run(command: Sequence[str], limit: float) -> Outcome:
    """Run a command to its end; one that takes more than ``limit`` CPU seconds, or twice that by the clock, is killed.

    Python keeps the bytecode of what it imports, as installing a package does: nobody compiles its source at each start.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *(ROOT / "plugins").iterdir()])),
                "PYTHONDONTWRITEBYTECODE": "",
            },
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        stopped = threading.Event()
        timers = [
            threading.Timer(limit / (os.cpu_count() or 1), _limit_cpu_time, (child.pid, limit)),
            threading.Timer(2 * limit, lambda: (stopped.set(), child.kill())),
        ]
        for timer in timers:
            timer.start()
        try:
            _, status, used = os.wait4(child.pid, 0)
        finally:
            for timer in timers:
                timer.cancel()
        child.returncode = code = os.waitstatus_to_exitcode(status)
        if (
            stopped.is_set()
            or code == -signal.SIGXCPU
            or (code == -signal.SIGKILL and used.ru_utime + used.ru_stime > limit)
        ):
            return Outcome(failure=f"> {limit:.0f} s")
        if code:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            return Outcome(failure=f"exit {code}: {lines[-1] if lines else 'no message'}"[:160])
    seconds, wall = used.ru_utime + used.ru_stime, time.perf_counter() - start
    return Outcome(seconds, wall, peak=used.ru_maxrss / 1024, runs=1)


def _limit_cpu_time(pid: int, seconds: float) -> None:
    """Not set from the start: while there is such a limit, Linux advances the process's clock by whole ticks, of 4 ms."""
    if hasattr(resource, "prlimit"):  # elsewhere the clock alone stops it
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))


def run_task(task: str, model: Path, scratch: Path, limit: float) -> Outcome:
    """Run one task of ``gehost_tasks`` or ``peer_tasks``."""
    result = scratch / "result.json"
    result.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "tools.benchmarks.worker",
        task,
        str(model),
        str(scratch / "out.onnx"),
        str(result),
    ]
    whole = run(command, limit)
    if whole.failure:
        return whole
    return Outcome(**json.loads(result.read_text(encoding="utf-8")), wall=whole.wall, runs=1)


def medians(
    names: Iterable[str], measure: Callable[[str], Outcome], repeat: int
) -> dict[str, Outcome]:
    """Measure each name ``repeat`` times in turns, so that noise meets all alike; a failure is not repeated."""
    runs: dict[str, list[Outcome]] = {name: [] for name in names}
    for _ in range(repeat):
        for name, run in runs.items():
            if not (run and run[-1].failure):
                run.append(measure(name))
    return {name: _median(run) for name, run in runs.items()}


def _median(runs: Sequence[Outcome]) -> Outcome:
    if runs[-1].failure:
        return runs[-1]
    results: Mapping[str, Any] = {
        key: None
        if getattr(runs[0], key) is None
        else statistics.median(getattr(run, key) for run in runs)
        for key in ("seconds", "wall", "peak", "resident")
    }
    counts = {run.rewrites for run in runs}
    failure = "" if len(counts) == 1 else f"rewrites differ from run to run: {counts}"
    return Outcome(
        **results, rewrites=runs[0].rewrites, runs=len(runs), failure=failure, note=runs[0].note
    )
