"""Where models are compiled: warm processes of this machine, or those of a Dask cluster.

An engine takes a task and gives a future of its record; a process that dies, or exceeds a limit,
costs that model alone.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import psutil
from pebble import ProcessExpired, ProcessPool

from gehost_zoo.work import LOST, Record, Task, compile_model, warm_up

TRIES = 3
"""A model whose process died runs at most twice again."""
_STARTS = 10
"""Processes that may end before they take the model, as long as none was killed."""
_KILLED = 100
"""Processes that may end through no fault of the model where some were killed."""
_KILLS = {-signal.SIGKILL, -signal.SIGTERM, int(signal.SIGTERM)}
"""Exit codes of a process that another one ended; pebble's ends with 15 at SIGTERM."""
_KERNEL_COUNTS = Path("/proc/vmstat")
_SAFE_PATH = "PYTHONSAFEPATH"
_POLL = 0.1
"""Seconds between two looks at a process."""
_GRACE = 10
"""Looks at a process that is gone until its result counts as lost."""
_START = 120.0
"""Seconds that a process may take to import and load vendors."""


@dataclass(frozen=True)
class Limits:
    """Limits for one model; None for any amount."""

    seconds: float | None = None
    bytes: int | None = None
    """Resident size of the worker process while the model is compiled."""

    def as_dict(self) -> Record:
        return {"seconds": self.seconds, "bytes": self.bytes}


class Engine(Protocol):
    """The one interface of all engines."""

    capacity: int
    """Models that run at a time."""

    def submit(self, task: Task) -> Future[Record]:
        """Compile a model some time; errors of the future end the run."""
        ...

    def check(self) -> None:
        """Raise ``UsageError`` where nothing is left that could run the submitted tasks."""
        ...

    def close(self) -> None:
        """End the processes, also in the middle of a model."""
        ...


class LocalEngine:
    """Warm worker processes of this machine, each with a thread that waits for it."""

    def __init__(self, jobs: int, limits: Limits) -> None:
        self.capacity = jobs
        # multiprocessing starts its processes by -c, which would import from the current directory
        self._safe_path = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        self._threads = ThreadPoolExecutor(jobs, "zoo")
        self._workers = [Worker(limits) for _ in range(jobs)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def submit(self, task: Task) -> Future[Record]:
        return self._threads.submit(self.run, task)

    def check(self) -> None:
        """Do nothing: a process that ends is replaced."""

    def run(self, task: Task) -> Record:
        """Compile a model in the next worker that is free.

        Raises:
            OutputError: its output cannot be written.
            CancelledError: the engine was closed.
        """
        worker = self._idle.get()
        try:
            return worker.run(task)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        with ThreadPoolExecutor(self.capacity) as threads:  # each takes a tenth of a second
            list(threads.map(Worker.stop, self._workers))
        if self._safe_path is None:
            os.environ.pop(_SAFE_PATH, None)


class Worker:
    """One worker process, replaced where a model ends it; models run one at a time.

    Each has a ``ProcessPool`` of its own: in a pool of several processes one that is killed
    while it is idle or reads a task takes the others with it.
    """

    def __init__(self, limits: Limits) -> None:
        self.stopping = threading.Event()
        self._limits = limits
        self._pool: ProcessPool | None = None
        self._process: psutil.Process | None = None

    def run(self, task: Task) -> Record:
        """Compile a model; one that takes the process down runs again, at most twice.

        The model is not at fault for a killed process, unless the kernel killed it to free
        memory.

        Raises:
            OutputError: its output cannot be written.
            CancelledError: the worker is stopping.
        """
        deaths = ended = kills = 0
        cause = ""
        while deaths < TRIES and ended < (_KILLED if kills else _STARTS):
            freed = _kills_for_memory()
            try:
                self._start(task)
            except (ProcessExpired, psutil.NoSuchProcess, TimeoutError, RuntimeError) as error:
                ended, cause = ended + 1, _cause(error)
                kills += getattr(error, "exitcode", None) in _KILLS
            else:
                try:
                    return self._compile(task)
                except ProcessExpired as error:
                    cause = _cause(error)
                    if error.exitcode in _KILLS and freed == _kills_for_memory() is not None:
                        ended, kills = ended + 1, kills + 1
                    else:
                        deaths += 1
                except RuntimeError as error:  # pebble's: it died before it took the model
                    ended, cause = ended + 1, _cause(error)
            self.stop()
        if deaths == TRIES:
            what = f"its process died {TRIES} times"
        else:
            what = f"{ended} processes ended before it was done, {kills} of them killed"
        return task.record("died", LOST, f"{what}; {cause}")

    def _start(self, task: Task) -> None:
        """Start the process, unless there is one; it loads everything that models need."""
        if self._pool is None:
            self._pool = ProcessPool(1, context=get_context("spawn"))
            started = self._pool.schedule(warm_up, (task,), timeout=_START)
            self._await(started)
            self._process = psutil.Process(started.result())

    def _compile(self, task: Task) -> Record:
        assert self._pool is not None
        future = self._pool.schedule(compile_model, (task,), timeout=self._limits.seconds)
        over = self._await(future)
        if over:
            if self._process is not None:
                self._process.kill()
            self.stop()
            return self._exceeded(task, "memory", f"its process reached {over / 2**20:.0f} MiB")
        try:
            return future.result()
        except TimeoutError:
            self.stop()
            return self._exceeded(task, "timeout", f"not done after {self._limits.seconds:g} s")

    def _await(self, future: Future[Any]) -> int:
        """Wait for a future; returns the size of the process where that exceeds the limit, else 0.

        Raises:
            CancelledError: the worker is stopping.
            ProcessExpired: the process ended with exit code 0, which pebble does not report.
        """
        most = self._limits.bytes
        gone = 0
        while not wait([future], _POLL).done:
            if self.stopping.is_set():
                raise CancelledError
            if self._process is not None and not self._process.is_running():
                gone += 1
                if gone > _GRACE:
                    raise ProcessExpired("ended without a result", 0)
            if most is not None and self._process is not None:
                with suppress(psutil.NoSuchProcess):
                    size = self._process.memory_info().rss
                    if size > most and not future.done():
                        return size
        return 0

    def _exceeded(self, task: Task, status: str, error: str) -> Record:
        return {**task.record(status, LOST, error), "limits": self._limits.as_dict()}

    def stop(self) -> None:
        """End the process; the next model starts another."""
        pool, self._pool, self._process = self._pool, None, None
        if pool is not None:
            pool.stop()
            pool.join()


def _kills_for_memory() -> int | None:
    """How many processes the kernel killed so far to free memory; None where it is not known."""
    with suppress(OSError):
        for line in _KERNEL_COUNTS.read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def _cause(error: BaseException) -> str:
    code = getattr(error, "exitcode", None)
    if isinstance(code, int) and code < 0:
        with suppress(ValueError):
            return f"the last time by {signal.Signals(-code).name}"
    if isinstance(error, TimeoutError):
        return f"the last time it was not ready after {_START:g} s"
    return f"the last time with exit code {code}" if code is not None else str(error)
