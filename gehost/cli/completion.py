"""Shell completion of names that the vendors and the pipeline give."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress

import click
from click.shell_completion import CompletionItem


def complete_passes(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the passes of plugins and of vendors named so far."""
    from gehost.host.host import Host
    from gehost.options import from_environment

    names: list[str] = []
    with _silent():
        choices = {"vendors": context.params.get("vendors") or ()}
        names = Host(from_environment(choices)).passes.names()
    return _beginning(names, incomplete)


def complete_stages(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The stages at which passes run, in order."""
    from gehost.stages import RUN_STAGES

    return _beginning([stage.name for stage in RUN_STAGES], incomplete)


def complete_styles(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The styles in which ``gehost new --from`` writes a pass."""
    from gehost.scaffold.styles import installed_styles

    names: list[str] = []
    with _silent():
        names = list(installed_styles())
    return _beginning(names, incomplete)


def complete_vendors(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Vendors of installed packages, and directories."""
    from gehost.shipped import shipped_vendors

    names: list[str] = []
    with _silent():
        names = list(shipped_vendors())
    shipped = [CompletionItem(name) for name in _beginning(names, incomplete)]
    return [*shipped, CompletionItem(incomplete, type="dir")]


@contextmanager
def _silent() -> Generator[None]:
    """Discard output and errors of vendors and plugins, which the command reports.

    The user's shell would show both in the middle of the line.
    """
    from gehost.host.containment import output_on_stderr

    with (
        suppress(Exception),
        open(os.devnull, "w", encoding="utf-8") as nothing,
        redirect_stdout(nothing),
        redirect_stderr(nothing),
        output_on_stderr(),  # restores the file descriptors, which native code writes to
    ):
        for number in (1, 2):
            os.dup2(nothing.fileno(), number)
        yield


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.lower().startswith(incomplete.lower())]
