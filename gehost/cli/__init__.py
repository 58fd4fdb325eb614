"""The command line.

Commands import heavy modules inside their functions, so that ``gehost --help`` is quick.
"""

from __future__ import annotations

import copy
import io
import signal
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import click

from gehost import __version__
from gehost.cli.bisect import bisect
from gehost.cli.blame import blame
from gehost.cli.check_pass import check_pass
from gehost.cli.compile import compile_
from gehost.cli.crash import run_in_child, runs_models
from gehost.cli.explain import explain
from gehost.cli.new import new
from gehost.cli.optimize import optimize
from gehost.cli.output import print_line, print_text
from gehost.cli.passes import passes
from gehost.cli.show import show
from gehost.cli.tune import tune
from gehost.cli.verify import verify
from gehost.errors import UsageError, VendorError, one_line, outcome
from gehost.options import leave_telemetry_off, let_idle_threads_sleep
from gehost.products import how_to_get
from gehost.spelling import hint

__all__ = ["cli", "main", "run"]

_EXIT_CODES = """
Exit codes: 0 done, 1 internal error, 2 wrong usage, unwritable output, or not enough memory or
file descriptors, 3 the model is at fault, 4 a vendor or plugin file is at fault, 5 a pass failed,
6 numbers differ, 7 a process of a split model or of a zoo died or exceeded a limit, 130
interrupted, 141 the reader of the output has gone, 143 terminated.
"""

_IR = Path(__file__).parents[1] / "ir"
_MACHINE_CODE = (
    ", machine code"
    if any((_IR / f"graph{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    else ""
)

_COMMANDS = (
    *(optimize, compile_, passes, verify, new, show, explain, blame, check_pass, bisect, tune),
)

_LONGEST = 4000
"""Longest error message in characters; names in it come from models and vendors."""


def _advice(command: str, commands: Iterable[str]) -> str:
    """Return how to get a product's command, else the nearest name."""
    return f"; {advice}" if (advice := how_to_get(command)) else hint(command, commands)


class _Group(click.Group):
    """A command group with whole summaries, and suggestions for unknown commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises ``UsageError`` for an unknown command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            message = f"{error.message.rstrip('.')}{_advice(args[0], self.commands)}"
            raise click.UsageError(message, ctx) from error


@click.group(
    cls=_Group,
    epilog=_EXIT_CODES,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--traceback", is_flag=True, expose_value=False, help="Show the Python traceback of an error."
)
@click.version_option(__version__, message=f"%(prog)s, version %(version)s{_MACHINE_CODE}")
def cli() -> None:
    """Run vendor fusion passes over ONNX models."""


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command, as ``gehost COMMAND --help``."""
    assert ctx.parent is not None
    shown, context = ctx.parent.command, ctx.parent
    for name in command:
        inner = shown.get_command(context, name) if isinstance(shown, click.Group) else None
        if inner is None:
            commands = shown.commands if isinstance(shown, click.Group) else ()
            raise UsageError(
                f"{context.command_path} has no command {name}{_advice(name, commands)}"
            )
        shown, context = inner, click.Context(inner, info_name=name, parent=context)
    print_text(shown.get_help(context))


for _command in (*_COMMANDS, help_):
    cli.add_command(_command)


def _show_whole_summaries(group: click.Group) -> None:
    """List each command's whole first sentence, which click would cut."""
    for command in group.commands.values():
        # click adds "(DEPRECATED)" to short_help each time it shows it
        deprecated, command.deprecated = command.deprecated, False
        command.short_help = command.get_short_help_str(limit=1000)
        command.deprecated = deprecated
        if isinstance(command, click.Group):
            _show_whole_summaries(command)


def _with_plugin_commands() -> click.Group:
    """Return the group with the commands of installed plugins.

    Their output goes to stderr.

    Raises:
        VendorError: a plugin cannot be loaded, or redefines a built-in command.
    """
    from gehost.host.plugins import Plugins, installed_plugins

    group = copy.copy(cli)
    group.commands = dict(cli.commands)
    with redirect_stdout(sys.stderr):
        Plugins(installed_plugins()).call("gehost_register_commands", cli=group)
    replaced = [
        name for name, command in cli.commands.items() if group.commands.get(name) is not command
    ]
    if replaced:
        raise VendorError(
            f"a plugin replaces the command `gehost {replaced[0]}`",
            hint="uninstall it or rename its command",
        )
    _show_whole_summaries(group)
    return group


def main() -> None:
    """Run ``gehost``.

    Each error that a user can cause has one line and an exit code.
    """
    signal.signal(signal.SIGTERM, _terminate)
    let_idle_threads_sleep()
    leave_telemetry_off()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # names may have characters that the encoding lacks
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:]

    def run_here() -> int:
        return run(arguments, own_process=True)

    sys.exit(run_in_child(run_here) if runs_models(arguments) else run_here())


class _Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C.

    No handler of authors' errors catches it, and temporary files are removed.
    """


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


def run(arguments: list[str], *, own_process: bool = False) -> int:
    """Run the command line; return the exit code.

    Args:
        arguments: those after ``gehost``.
        own_process: see ``Host``.
    """
    show_traceback = "--traceback" in arguments
    try:
        code = _with_plugin_commands().main(
            arguments, prog_name="gehost", standalone_mode=False, obj=own_process
        )
    except click.ClickException as error:
        usage = error.ctx if isinstance(error, click.UsageError) else None
        message = error.format_message()
        if usage is not None:
            message = f"{message.removesuffix('.')}. See `{usage.command_path} --help`."
        return _fail(message, 2)
    except SystemExit as error:
        if error.code != 1:
            raise
        return 141  # click ends a command so when the reader of its output has gone
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = isinstance(error.__cause__ or error, _Terminated)
        return _fail("terminated", 143) if terminated else _fail("interrupted", 130)
    except Exception as error:  # noqa: BLE001 - the last resort: a user gets one line, not a traceback
        code, message = outcome(error)
        if code == 1:
            message += " (run `gehost --traceback …` and report it)"
        return _fail(message, code, error if show_traceback else None)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int, error: BaseException | None = None) -> int:
    if error is not None:
        import traceback

        traceback.print_exception(error)
    line = one_line(message)
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
    print_line(f"gehost: {line}", err=True)
    return code
