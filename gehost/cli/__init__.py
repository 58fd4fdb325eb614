"""The command line. Everything heavy is imported inside the commands, so that ``gehost --help``
is quick.
"""

from __future__ import annotations

import copy
import io
import signal
import sys
from contextlib import redirect_stdout

import click

from gehost.cli import answers, commands
from gehost.cli.base import cli
from gehost.errors import GehostError, VendorError, one_line
from gehost.options import let_idle_threads_sleep

__all__ = ["answers", "cli", "commands", "main", "run"]

_LONGEST = 4000
"""Characters of an error; models and vendors choose the names in it."""


def _with_plugin_commands() -> click.Group:
    """The commands above and those of installed plugins; what a plugin prints while it loads goes
    to stderr.

    Raises:
        VendorError: a plugin cannot be loaded, or takes the name of a command that is here.
    """
    from gehost.host.plugins import Plugins, installed_plugins

    group = copy.copy(cli)
    group.commands = dict(cli.commands)
    with redirect_stdout(sys.stderr):
        Plugins(installed_plugins()).call("gehost_register_commands", cli=group)
    taken = [
        name for name, command in cli.commands.items() if group.commands.get(name) is not command
    ]
    if taken:
        raise VendorError(
            f"a plugin replaces the command `gehost {taken[0]}`; uninstall it or rename its command"
        )
    return group


def main() -> None:
    """The ``gehost`` command: one line for each error a user can cause, and its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    let_idle_threads_sleep()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a name that the encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:], own_process=True))


class _Terminated(KeyboardInterrupt):
    """SIGTERM, on the way of Ctrl-C: nothing takes it for an author's error, and temporary files
    go.
    """


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


def run(arguments: list[str], *, own_process: bool = False) -> int:
    """Run the command line; returns the exit code.

    Args:
        arguments: those behind ``gehost``.
        own_process: as of ``Host``.
    """
    show_traceback = "--traceback" in arguments
    try:
        code = _with_plugin_commands().main(
            arguments, prog_name="gehost", standalone_mode=False, obj=own_process
        )
    except GehostError as error:
        return _fail(str(error), error.exit_code, error if show_traceback else None)
    except click.ClickException as error:
        usage = error.ctx if isinstance(error, click.UsageError) else None
        return _fail(
            f"{error.format_message()}{f' See `{usage.command_path} --help`.' if usage is not None else ''}",
            2,
        )
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = isinstance(error.__cause__ or error, _Terminated)
        return _fail("terminated", 143) if terminated else _fail("interrupted", 130)
    except Exception as error:  # noqa: BLE001 - the last resort: a user meets one line, not a traceback
        told = (
            f"internal error: {type(error).__name__}: {error} (run `gehost --traceback …` and "
            "report it)"
        )
        return _fail(told, 1, error if show_traceback else None)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int, error: BaseException | None = None) -> int:
    if error is not None:
        import traceback

        traceback.print_exception(error)
    told = one_line(message)
    if len(told) > _LONGEST:
        told = f"{told[: _LONGEST // 2]} … {told[-_LONGEST // 2 :]}"
    click.echo(f"gehost: {told}", err=True)
    return code
