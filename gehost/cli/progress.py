"""The progress bar of ``gehost compile``, on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gehost.cli.output import is_terminal
from gehost.errors import one_line
from gehost.host.hookspecs import hookimpl
from gehost.host.registry import PassSpec

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_PATIENCE = 1.0
"""Seconds of work before the bar is shown."""


class Progress:
    """A plugin that shows the running pass, on a terminal only."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: Any = None

    @contextmanager
    def showing(self, total: int) -> Generator[None]:
        """Show progress over ``total`` passes once the work has taken a second."""
        if not is_terminal(sys.stderr):
            yield
            return
        from rich.console import Console  # slow to import, and only needed on a terminal
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Bar(
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("loading", total=total)
        timer = threading.Timer(_PATIENCE, self._bar.start)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # the timer may be starting the bar right now
            self._bar.stop()

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=one_line(spec.name))

    @hookimpl
    def gehost_after_pass(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)
