"""A Dask scheduler and workers as processes of their own, on the loopback interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Cluster:
    """Processes that are ended, and waited for, with the block that made them."""

    home: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def _file(self) -> Path:
        return self.home / "scheduler.json"

    @property
    def address(self) -> str:
        """The scheduler's address; empty until its file is there, and written to its end."""
        try:
            return json.loads(self._file.read_text(encoding="utf-8"))["address"]
        except (FileNotFoundError, json.JSONDecodeError):
            return ""

    def start(self, *words: str, path: str = "") -> subprocess.Popen[bytes]:
        """Start ``dask WORDS``; ``path`` goes before Python's own."""
        paths = [path, os.environ.get("PYTHONPATH", "")]
        with open(self.home / f"{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, "--scheduler-file", str(self._file)],
                stdout=log,
                stderr=log,
                cwd=self.home,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self.processes.append(process)
        return process

    def worker(self, name: str, *, path: str = "", nanny: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker for one model at a time; a nanny starts it in a process of its own."""
        home = str(self.home / name)
        words = ["--nthreads", "1", "--no-dashboard", "--local-directory", home]
        words += [] if nanny else ["--no-nanny"]
        return self.start("worker", "--name", name, *words, path=path)

    def logs(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in sorted(self.home.glob("*.log")))


@contextmanager
def cluster(home: Path) -> Generator[Cluster]:
    """A scheduler on a free port; workers are started on it."""
    home.mkdir()
    running = Cluster(home)
    try:
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        scheduler = running.start("scheduler", *words)
        while not running.address:
            assert scheduler.poll() is None, running.logs()
            time.sleep(0.1)
        yield running
    finally:
        # the scheduler last: a worker that loses it first tries for long to find it again
        for process in reversed(running.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
