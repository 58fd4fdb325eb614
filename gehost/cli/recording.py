"""Files beside ``compile``'s model: reports and a failed pass's reproducer."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gehost import __version__
from gehost.cli.output import print_line
from gehost.errors import GehostError, OutputError, PassError, UsageError, one_line

if TYPE_CHECKING:
    from gehost.options import HostOptions


def check_report(path: str, model: str, output: str) -> None:
    """Refuse a report's unwritable path, or a model's, before the compile."""
    if not path.endswith((".json", ".html")):
        raise UsageError(f"--report {path}: wanted a file name that ends in .json or .html")
    real = os.path.realpath(path)
    if real in (os.path.realpath(model), os.path.realpath(output)):
        raise UsageError(f"--report {path}: this is the model", hint="choose another name")
    if not os.path.isdir(os.path.dirname(real)):
        raise UsageError(f"--report {path}: there is no directory {os.path.dirname(real)}")


@contextmanager
def reported(
    paths: Sequence[str], model: str, options: HostOptions, plugins: list[tuple[str, Any]]
) -> Generator[None]:
    """Record the compile; write the reports at its end, also after errors."""
    if not paths:
        yield
        return
    from gehost.diagnose.report.file import versions, write_report
    from gehost.diagnose.report.recorder import RewriteRecorder
    from gehost.host.report import Report

    recorder = RewriteRecorder()
    plugins.append(("recorder", recorder))

    def write(error: str = "") -> None:
        report = recorder.report or Report(model=model, options=options.as_dict())
        report.versions, report.error = versions(__version__), error
        for path in paths:
            write_report(path, report)

    try:
        yield
    except GehostError as error:
        try:
            write(str(error))
        except OutputError as failure:  # the compile's own error follows
            print_line(f"gehost: {one_line(str(failure))}", err=True)
        raise
    write()


@contextmanager
def reproducible(
    directory: str | None, options: HostOptions, plugins: list[tuple[str, Any]]
) -> Generator[None]:
    """Write a failed pass's reproducer; report its directory or the obstacle.

    Raises:
        UsageError: the directory is not empty.
    """
    if directory is None:
        yield
        return
    from gehost.diagnose.directory import check_fresh
    from gehost.diagnose.reproduce import FailureKeeper

    check_fresh(directory)
    keeper = FailureKeeper(directory, options)
    plugins.append(("reproducer", keeper))
    try:
        yield
    except PassError as error:
        raise PassError(
            f"{error}; {keeper.message or 'no reproducer: it is not the failure of one pass'}"
        ) from error
    if keeper.message:
        print_line(one_line(keeper.message), err=True)
