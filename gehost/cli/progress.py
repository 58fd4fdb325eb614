"""Progress on a terminal, for everything that takes longer than a second."""

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
"""Seconds of work before progress is shown."""
_EVERY = 32
"""Matches of a pass between two updates."""


class Progress:
    """A progress bar.

    It shows the time that is left where the total is known, else the time so far.

    It is a plugin, too: then it follows the passes of a compile and the matches in each.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: Any = None
        self._pass = ""
        self._replaced = self._refused = 0

    @contextmanager
    def showing(self, total: int | None = None, what: str = "loading") -> Generator[None]:
        """Show progress once the work has taken a second.

        Args:
            total: steps of the work; None where it is not known.
            what: the first step.
        """
        if not is_terminal(sys.stderr):
            yield
            return
        from rich.console import Console  # slow to import, and needed on a terminal only
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        counted = (BarColumn(), MofNCompleteColumn()) if total is not None else ()
        columns = (TextColumn("left:"), TimeRemainingColumn()) if total is not None else ()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            *counted,
            TimeElapsedColumn(),
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(what, total=total)
        timer = threading.Timer(_PATIENCE, self._bar.start)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it may be starting the bar just now
            self._bar.stop()
            self._bar = None

    def update(self, what: str, count: int | None = None, total: int | None = None) -> None:
        """Name the step at work.

        Args:
            what: the step.
            count: how much of all is done; None leaves it.
            total: a new total; None leaves it.
        """
        if self._bar is not None:
            self._bar.update(
                self._task, description=one_line(what)[:100], completed=count, total=total
            )

    # -- as a plugin
    # ---------------------------------------------------------------------------------------------

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec) -> None:
        self._pass, self._replaced, self._refused = spec.name, 0, 0
        self.update(spec.name)

    @hookimpl
    def gehost_after_rewrite(self) -> None:
        self._replaced += 1
        self._show_matches()

    @hookimpl
    def gehost_match_refused(self) -> None:
        self._refused += 1
        self._show_matches()

    def _show_matches(self) -> None:
        if (self._replaced + self._refused) % _EVERY == 0:
            refused = f", {self._refused} refused" if self._refused else ""
            self.update(f"{self._pass}: {self._replaced} replaced{refused}")

    @hookimpl
    def gehost_after_pass(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    @hookimpl
    def gehost_compile_finished(self) -> None:
        self.update("checking and saving")
