"""Display of a running run: progress, an estimate, failures as they occur."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from gehost import print_line, printable
from gehost_zoo.work import Record

_EVERY = 10.0
"""Seconds between two lines where standard error is no terminal."""


class Progress:
    """Shows a bar on a terminal, else a line now and then."""

    def __init__(self, total: int, pending: int) -> None:
        self._total, self._left = total, pending
        self._done = self._failed = 0
        self._start = self._shown = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    @contextmanager
    def showing(self) -> Generator[None]:
        """Show a bar meanwhile, on a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console  # much to import, for those who watch
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            self._bar = bar
            self._task = bar.add_task("", total=self._total, completed=self._total - self._left)
            yield
        self._bar = None

    def finished(self, record: Record) -> None:
        """Count a model; a failure is shown at once."""
        self._done += 1
        if record["exit_code"]:
            self._failed += 1
            self.line(f"{record['status']}: {record['model']}: {record['error']}")
        if self._bar is not None:
            failed = f"{self._failed} failed," if self._failed else ""
            self._bar.update(self._task, advance=1, description=failed)
        elif time.monotonic() - self._shown >= _EVERY:
            self._shown = time.monotonic()
            self.line(self._estimate())

    def line(self, text: str) -> None:
        """Write a line on standard error, above the bar."""
        shown = printable(f"gehost: {text}")
        if self._bar is not None:
            self._bar.console.print(shown, markup=False, highlight=False, soft_wrap=True)
        else:
            print_line(shown, err=True)

    def _estimate(self) -> str:
        pending = self._left - self._done
        seconds = (time.monotonic() - self._start) / self._done * pending
        finished = self._total - pending
        return (
            f"{finished} of {self._total} models, {self._failed} failed, about {seconds:.0f} s left"
        )
