"""What the command line shows: tables at the end, progress while it takes longer than a second."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import rich.markup
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from gehost.errors import one_line
from gehost.host.hookspecs import hookimpl
from gehost.host.registry import PassSpec
from gehost.host.report import Report

_PATIENCE = 1.0
"""Seconds of work before progress is shown."""
_PIPE_WIDTH = 10_000


class Progress:
    """A plugin that shows which pass is running, on a terminal only."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Bar | None = None
        self._task: Any = None

    @contextmanager
    def showing(self, total: int) -> Generator[None]:
        """Show progress over ``total`` passes once the work has taken a second."""
        if not self._console.is_terminal:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._task = self._bar.add_task("loading", total=total)
        timer = threading.Timer(_PATIENCE, self._bar.start)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it may be starting the bar just now
            self._bar.stop()

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=escape(spec.name))

    @hookimpl
    def gehost_after_pass(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)


def print_report(report: Report, output: str) -> None:
    """Op counts before and after, then what each pass did."""
    console = console_of_stdout()
    console.print(_op_table(report))
    console.print(_pass_table(report))
    for problem in report.problems:
        console.print(f"[red]problem:[/red] {escape(problem)}")
    if report.verify:
        console.print(f"verify: {escape(str(report.verify['summary']))}")
    if report.dumps:
        console.print(f"dumps: {escape(report.dumps[0])} … ({len(report.dumps)} files; open them in Netron)")
    seconds = sum(report.seconds.values())
    console.print(f"{escape(output)}: {report.nodes_before} nodes before, {report.nodes_after} after, {seconds:.2f} s")


def escape(text: str) -> str:
    """A text that models, vendors or plugins bring: on one line, and without meaning to the terminal."""
    return rich.markup.escape(one_line(text))


def console_of_stdout() -> Console:
    """A console that wraps nothing when its output is piped."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def _op_table(report: Report) -> Table:
    table = Table("operator", title="Nodes")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    before, after = report.op_types_before, report.op_types_after
    same = 0
    for op in sorted({*before, *after}, key=lambda op: (-max(before.get(op, 0), after.get(op, 0)), op)):
        if before.get(op, 0) == after.get(op, 0):
            same += before[op]
        else:
            table.add_row(escape(op), str(before.get(op, 0)), str(after.get(op, 0)))
    if same:
        table.add_row("[dim]unchanged operators[/dim]", str(same), str(same))
    table.add_section()
    table.add_row("all", str(report.nodes_before), str(report.nodes_after))
    return table


def _pass_table(report: Report) -> Table:
    table = Table("pass", "vendor", title="Passes")
    for column in ("matched", "replaced"):
        table.add_column(column, justify="right")
    table.add_column("refused")
    table.add_column("ms", justify="right")
    for record in report.passes:
        refused = ", ".join(f"{reason}: {count}" for reason, count in sorted(record.rejected.items()))
        if record.status in ("failed", "not applicable", "disabled"):
            refused = f"{record.status}: {record.message}" if record.message else record.status
        elif record.message:
            refused = f"{refused}; {record.message}" if refused else record.message
        table.add_row(
            escape(record.name),
            escape(record.vendor),
            str(record.matched),
            str(record.replaced),
            escape(refused),
            f"{record.seconds * 1000:.1f}",
        )
    cleaned = ", ".join(f"{what}: {count}" for what, count in report.cleanup.items() if count)
    table.add_section()
    table.add_row("[dim]built-in clean-up[/dim]", "", "", "", escape(cleaned), f"{report.seconds.get('cleanup', 0) * 1000:.1f}")
    return table


def print_passes(specs: Sequence[PassSpec]) -> None:
    """The registered passes in running order."""
    table = Table("stage", "pass", "vendor", "kind", "opsets", "registered at")
    for spec in specs:
        opsets = f"{spec.min_opset or ''}–{spec.max_opset or ''}" if spec.min_opset or spec.max_opset else ""
        table.add_row(spec.stage.name, escape(spec.name), escape(spec.vendor), escape(spec.kind), opsets, escape(spec.origin))
    console_of_stdout().print(table)
