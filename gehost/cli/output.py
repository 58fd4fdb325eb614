"""Output of commands.

Results go to standard output, notes and progress to standard error.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TextIO

import click

from gehost.errors import OutputError, one_line, printable


@contextmanager
def writing_output() -> Generator[None]:
    """Write to standard output.

    A closed pipe ends the command quietly, a full disk is an error.
    """
    try:
        yield
        if sys.__stdout__ is not None:  # None: the process was started without one
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        with open(os.devnull, "wb") as nowhere:
            # otherwise Python fails again at exit, on the unwritten rest
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error


def print_line(line: str = "", *, err: bool = False) -> None:
    """Write a line to standard output, or to standard error; see ``printable``."""
    click.echo(printable(line), err=err)


def print_text(text: str) -> None:
    """Write a text of several lines to standard output, each as ``print_line``."""
    for line in text.removesuffix("\n").split("\n"):
        print_line(line)


def print_notes(notes: Iterable[str]) -> None:
    """Write each note on a line of standard error."""
    for note in notes:
        print_line(f"gehost: {one_line(note)}", err=True)


def print_json(data: Any) -> None:
    """Write data as JSON to standard output."""
    with writing_output():
        click.echo(json.dumps(data, indent=2))


def print_skipped(skipped: Iterable[str]) -> None:
    """Write each skipped vendor file, with the reason, to standard error."""
    for path_and_reason in skipped:
        print_line(one_line(f"skipped: {path_and_reason}"), err=True)


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None: the process was started without one
