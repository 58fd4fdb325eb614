"""The command line. Everything heavy is imported inside the commands, so that ``gehost --help`` is quick."""

from __future__ import annotations

import copy
import errno
import io
import math
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from gehost import __version__
from gehost.errors import GehostError, NumbersDifferError, OutputError, PassError, UsageError, VendorError, one_line

if TYPE_CHECKING:
    from gehost.diagnose.reproduce import FailureKeeper
    from gehost.options import HostOptions

_EXIT_CODES = """
Exit codes: 0 done, 1 internal error, 2 wrong usage or unwritable output, 3 the model is at fault, 4 a vendor or plugin
file is at fault, 5 a pass failed, 6 numbers differ, 130 interrupted, 143 terminated.
"""

_LONGEST = 4000
"""Characters of an error; models and vendors choose the names in it."""

_vendors = click.option(
    "--vendors",
    multiple=True,
    type=click.Path(),
    metavar="DIR",
    help="Directory that holds <vendor>/custom_fusion_passes/; repeatable. Else GEHOST_VENDORS, else ./vendors.",
)


@click.group(epilog=_EXIT_CODES, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--traceback", is_flag=True, expose_value=False, help="Show the Python traceback of an error.")
@click.version_option(__version__)
def cli() -> None:
    """Run vendor fusion passes over ONNX models."""


@cli.command("compile")
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Where the compiled model goes.")
@_vendors
@click.option("--dump", type=click.Path(), metavar="DIR", help="Write the graph after each stage there.")
@click.option("--dump-level", type=click.IntRange(1, 3), help="1: with weights, 2: without (default), 3: structure only.")
@click.option("--dump-format", type=click.Choice(["pbtxt", "onnx"]), help="pbtxt (default) or onnx; Netron opens both.")
@click.option("--dump-passes", is_flag=True, help="One more dump after each pass that changed something.")
@click.option("--enable", multiple=True, metavar="PASS", help="Run a pass that the switch file turns off; repeatable.")
@click.option("--disable", multiple=True, metavar="PASS", help="Do not run a pass; repeatable.")
@click.option("--fusion-switch-file", type=click.Path(), metavar="FILE", help="GE's JSON file of switches.")
@click.option("--no-cleanup", is_flag=True, help="Leave out the built-in clean-up.")
@click.option("--verify", is_flag=True, help="Compare the numbers of the compiled model with the original's.")
@click.option("--feeds", type=click.Path(), metavar="FILE.npz", help="Inputs for --verify, instead of seeded ones.")
@click.option("--report", type=click.Path(), metavar="FILE.json", help="Write what was done as JSON.")
@click.option("--keep-going", is_flag=True, help="Undo a pass that fails, skip a vendor file that does not load, and go on.")
@click.option("--rewrite-limit", type=click.IntRange(0), metavar="N", help="Stop rewriting after N rewrites.")
@click.option("--inline-functions", is_flag=True, help="Inline the model's local functions first.")
@click.option("--reproducer", type=click.Path(), metavar="DIR", help="Where a pass that fails leaves what replays it.")
@click.option("-v", "--verbose", is_flag=True, help="Also list the files below the vendors that were passed over.")
def compile_(model: str, output: str, **given: Any) -> None:
    """Compile MODEL: run the vendors' passes at their stages and write the result."""
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host
    from gehost.tables import Progress, print_report

    report_path, verbose, reproducer = given.pop("report"), given.pop("verbose"), given.pop("reproducer")
    given["cleanup"] = not given.pop("no_cleanup")
    options = _options(given)
    if report_path is not None and not report_path.endswith(".json"):
        raise UsageError(f"--report {report_path}: wanted a file name that ends in .json")
    if report_path is not None:
        _check_report(report_path, model, output)
    progress = Progress()
    plugins: list[tuple[str, Any]] = [("progress", progress)]
    keeper = None if reproducer is None else _failure_keeper(reproducer, options)
    with output_on_stderr(), _with_reproducer(keeper):
        host = Host(options, plugins=[*plugins, *([("reproducer", keeper)] if keeper else [])])
        for passed_over in host.skipped if verbose else ():
            click.echo(one_line(f"skipped: {passed_over}"), err=True)
        with progress.showing(len(host.passes)):
            report = host.compile(model, output)
    if report_path is not None:
        from gehost.ir.save import write_bytes_atomic

        write_bytes_atomic(report_path, report.to_json().encode())
    with _telling():
        print_report(report, output)
    if report.verify and not report.verify["equal"]:
        raise NumbersDifferError(
            f"{output}: the numbers differ from those of {model}: {report.verify['summary']}; gehost bisect finds the rewrite"
        )


@cli.command()
@_vendors
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def passes(vendors: tuple[str, ...], *, as_json: bool) -> None:
    """List the passes that the vendors bring, in the order in which they run."""
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host
    from gehost.stages import RUN_STAGES

    with output_on_stderr():
        host = Host(_options({"vendors": vendors}))
    listed = [spec for stage in RUN_STAGES for spec in host.passes.at(stage)]
    if not as_json:
        from gehost.tables import print_passes

        with _telling():
            print_passes(listed)
        return
    import json

    rows = [
        {
            "name": spec.name,
            "stage": spec.stage.name,
            "vendor": spec.vendor,
            "kind": spec.kind,
            "origin": spec.origin,
            "min_opset": spec.min_opset,
            "max_opset": spec.max_opset,
        }
        for spec in listed
    ]
    with _telling():
        click.echo(json.dumps(rows, indent=2))


def _failure_keeper(directory: str, options: HostOptions) -> FailureKeeper:
    """Make the plugin that writes a reproducer; refuse a directory in which something stands before anything is done."""
    from gehost.diagnose.directory import check_fresh
    from gehost.diagnose.reproduce import FailureKeeper

    check_fresh(directory)
    return FailureKeeper(directory, options)


@contextmanager
def _with_reproducer(keeper: FailureKeeper | None) -> Generator[None]:
    """Say of a failure where its reproducer is, or why there is none."""
    try:
        yield
    except PassError as error:
        told = "" if keeper is None else f"; {keeper.told or 'no reproducer: it is not the failure of one pass'}"
        raise PassError(f"{error}{told}") from error
    if keeper is not None and keeper.told:
        click.echo(one_line(keeper.told), err=True)


def _check_report(path: str, model: str, output: str) -> None:
    """Refuse a report that would have nowhere to go, or take the place of a model, before anything is done."""
    real = os.path.realpath(path)
    if real in (os.path.realpath(model), os.path.realpath(output)):
        raise UsageError(f"--report {path}: this is the model; choose another name")
    if not os.path.isdir(os.path.dirname(real)):
        raise UsageError(f"--report {path}: there is no directory {os.path.dirname(real)}")


@contextmanager
def _telling() -> Generator[None]:
    """Where a command writes to standard output: a reader that went away ends it quietly, a full disk with an error."""
    try:
        yield
        if sys.__stdout__ is not None:  # it is, where the process was started without one
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # else what is left over is an error again at the end
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error


def _tolerance(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is no tolerance; wanted a number from 0")
    return value


@cli.command()
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option("--rtol", type=float, callback=_tolerance, help="Relative tolerance; by dtype unless given.")
@click.option("--atol", type=float, callback=_tolerance, help="Absolute tolerance; by dtype unless given.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the inputs.")
@click.option("--feeds", type=click.Path(), metavar="FILE.npz", help="Inputs to use instead of seeded ones.")
def verify(a: str, b: str, rtol: float | None, atol: float | None, seed: int, feeds: str | None) -> None:
    """Compare the numbers of models A and B on the same inputs."""
    from gehost.ir.model import Model
    from gehost.verify import compare, load_feeds

    Model.load(b).close()  # a file that is no model is not a model with other numbers
    given = None if feeds is None else [load_feeds(feeds)]
    result = compare(a, b, given, rtol=rtol, atol=atol, seed=seed)
    if not result.equal:
        raise NumbersDifferError(result.summary())
    with _telling():
        click.echo(result.summary())


@cli.command()
@click.argument("name", metavar="VENDOR/PASS")
@click.option("--vendors", type=click.Path(), default="vendors", show_default=True, metavar="DIR", help="Where it goes.")
def new(name: str, vendors: str) -> None:
    """Write a new pass and its test: `gehost new acme/fuse_matmul_add`."""
    from gehost.scaffold import write_pass

    with _telling():
        for path in write_pass(name, vendors):
            click.echo(f"wrote {path}")


@cli.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="DIR",
    help="Where the reproducer goes; the first free of MODEL.bisect, MODEL.bisect-2, … unless given.",
)
@_vendors
@click.option("--enable", multiple=True, metavar="PASS", help="As of compile; repeatable.")
@click.option("--disable", multiple=True, metavar="PASS", help="As of compile; repeatable.")
@click.option("--fusion-switch-file", type=click.Path(), metavar="FILE", help="As of compile.")
@click.option("--no-cleanup", is_flag=True, help="As of compile.")
@click.option("--inline-functions", is_flag=True, help="As of compile.")
@click.option("--rtol", type=float, callback=_tolerance, help="Relative tolerance; by dtype unless given.")
@click.option("--atol", type=float, callback=_tolerance, help="Absolute tolerance; by dtype unless given.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the inputs.")
@click.option("--feeds", type=click.Path(), metavar="FILE.npz", help="Inputs to use instead of seeded ones.")
def bisect(
    model: str, output: str | None, rtol: float | None, atol: float | None, seed: int, feeds: str | None, **given: Any
) -> None:
    """Find the first rewrite of MODEL's compile that changes the numbers, and write it as files that run alone."""
    from gehost.diagnose import bisect as search
    from gehost.diagnose import match_files
    from gehost.diagnose.directory import check_fresh, free_name
    from gehost.host.containment import output_on_stderr
    from gehost.verify import load_feeds

    directory = output or free_name(f"{os.path.splitext(os.path.basename(model))[0]}.bisect")
    check_fresh(directory)
    given["cleanup"] = not given.pop("no_cleanup")
    options = _options(given)
    read = None if feeds is None else [load_feeds(feeds)]
    with output_on_stderr(), match_files.shown_on_terminals() as tell:
        found = search.bisect(model, options, feeds=read, rtol=rtol, atol=atol, seed=seed, tell=tell)
        answer = match_files.answer(found, model)
        if found.captured is not None:
            match_files.write_match(found.captured, directory, answer, (rtol, atol))
    with _telling():
        for line in match_files.account(found, directory, (rtol, atol)):
            click.echo(line)
    if found.wrong is not None:
        raise NumbersDifferError(answer)
    click.echo(answer)


def _options(given: dict[str, Any]) -> HostOptions:
    from gehost.options import from_environment

    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"the working directory cannot be used: {error.strerror}; change into another one") from error
    return from_environment(given)


def _with_plugin_commands() -> click.Group:
    """The commands above and those of installed plugins; what a plugin prints while it loads goes to stderr.

    Raises:
        VendorError: a plugin cannot be loaded, or takes the name of a command that is here.
    """
    from gehost.host.plugins import Plugins, installed_plugins

    group = copy.copy(cli)
    group.commands = dict(cli.commands)
    with redirect_stdout(sys.stderr):
        Plugins(installed_plugins()).call("gehost_register_commands", cli=group)
    taken = [name for name, command in cli.commands.items() if group.commands.get(name) is not command]
    if taken:
        raise VendorError(f"a plugin replaces the command `gehost {taken[0]}`; uninstall it or rename its command")
    return group


def main() -> None:
    """The ``gehost`` command: one line for each error a user can cause, and its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the encoding lacks is no reason to fail
    sys.exit(run(sys.argv[1:]))


class _Terminated(KeyboardInterrupt):
    """SIGTERM, on the way of Ctrl-C: nothing takes it for an author's error, and temporary files go."""


def _terminate(_number: int, _frame: object) -> None:
    raise _Terminated


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    show_traceback = "--traceback" in arguments
    try:
        code = _with_plugin_commands().main(arguments, prog_name="gehost", standalone_mode=False)
    except GehostError as error:
        return _fail(str(error), error.exit_code, error if show_traceback else None)
    except click.ClickException as error:
        usage = error.ctx if isinstance(error, click.UsageError) else None
        return _fail(f"{error.format_message()}{f' See `{usage.command_path} --help`.' if usage is not None else ''}", 2)
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = isinstance(error.__cause__ or error, _Terminated)
        return _fail("terminated", 143) if terminated else _fail("interrupted", 130)
    except Exception as error:  # noqa: BLE001 - the last resort: a user meets one line, not a traceback
        told = f"internal error: {type(error).__name__}: {error} (run `gehost --traceback …` and report it)"
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
