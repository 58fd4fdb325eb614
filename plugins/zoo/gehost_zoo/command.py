"""``gehost zoo``: compile many models, and show the results."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gehost import UsageError, print_line, print_notes, print_text

if TYPE_CHECKING:
    from gehost_zoo.engine import Engine, Limits
    from gehost_zoo.progress import Progress
    from gehost_zoo.work import Record

_SHARED = (
    "vendors",
    "enable",
    "disable",
    "only",
    "settings",
    "fusion_switch_file",
    "dims",
    "opset",
    "assume",
    "no_cleanup",
    "inline_functions",
    "verify",
    "ort_libraries",
    "special_values",
    "rtol",
    "atol",
    "provider",
    "keep_going",
    "rewrite_limit",
)
"""Options of ``gehost compile`` that hold for each model."""

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _bytes(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]iB|)", value, re.IGNORECASE)
    size = 0 if match is None else int(float(match[1]) * _UNITS[match[2].upper()])
    if not size:
        raise click.BadParameter(f'"{value}": wanted a size such as 4GiB or 500MiB')
    return size


def _seconds(
    _context: click.Context, _option: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise click.BadParameter(f"{value:g}: wanted a number of seconds")
    return value


def _budget(_context: click.Context, _option: click.Parameter, text: str) -> float:
    from gehost import tune

    return tune.seconds_of(text)


def _note(line: str) -> None:
    print_notes([line])


def _command(
    name: str,
    callback: Callable[..., int],
    own: list[click.Parameter],
    shared: Collection[str],
    compile_: click.Command,
    text: str,
) -> click.Command:
    """Make a command over MODELS; options for each are those of ``gehost compile``."""
    models = click.Argument(["models"], nargs=-1, required=True, type=click.Path())
    of_compile = [option for option in compile_.params if option.name in shared]
    return click.Command(name, callback=callback, params=[models, *own, *of_compile], help=text)


def zoo_command(compile_: click.Command) -> click.Command:
    """Make the command that compiles many models."""
    own: list[click.Parameter] = [
        click.Option(
            ["-o", "--output"],
            required=True,
            type=click.Path(),
            metavar="DIR",
            help="Directory of the run: zoo.jsonl, models/ and, with --report, reports/.",
        ),
        click.Option(
            ["--jobs"],
            type=click.IntRange(1),
            metavar="N",
            help="Worker processes; one for each core unless given.",
        ),
        click.Option(
            ["--dask"], metavar="ADDRESS", help="Run on the workers of a Dask scheduler instead."
        ),
        click.Option(
            ["--send"],
            is_flag=True,
            help="Send models and vendors to Dask's workers, which share no paths.",
        ),
        click.Option(
            ["--report"], type=click.Path(), metavar="FILE.html", help="Write a page about the run."
        ),
        click.Option(
            ["--against"], type=click.Path(), metavar="DIR", help="Compare with an earlier run."
        ),
        click.Option(
            ["--resume"], is_flag=True, help="Continue the run of the directory where it stopped."
        ),
        click.Option(
            ["--memory"],
            metavar="SIZE",
            callback=_bytes,
            help="End a model whose worker process grows beyond it, as in 4GiB.",
        ),
        click.Option(
            ["--timeout"],
            type=float,
            metavar="SECONDS",
            callback=_seconds,
            help="End a model that takes longer.",
        ),
        click.Option(
            ["--optimize"],
            is_flag=True,
            help="Write the best file of each model for a runtime, as gehost optimize does.",
        ),
        click.Option(
            ["--for", "target"],
            default="",
            metavar="TARGET",
            help="With --optimize: cpu, cuda, openvino or any; default: what is installed.",
        ),
        click.Option(
            ["--budget"],
            callback=_budget,
            default="60s",
            show_default=True,
            help="With --optimize: time for each model, as 90s or 2m.",
        ),
        click.Option(
            ["--no-measure"], is_flag=True, help="With --optimize: keep all fusions, unmeasured."
        ),
    ]
    return _command(
        "zoo",
        _zoo,
        own,
        _SHARED,
        compile_,
        "Compile many MODELS in warm worker processes: files, directories, globs, or manifests"
        " (*.jsonl, a model a line).\n\nThe exit code is that of the first failed model, 2 if"
        " only lines of manifests are invalid.",
    )


def _zoo(models: tuple[str, ...], output: str, **choices: Any) -> int:
    for package in ("pebble", "psutil", "distributed"):
        if find_spec(package) is None:
            raise UsageError(f"gehost zoo needs {package}: pip install pebble psutil distributed")
    from gehost import Host, from_environment, optimizing
    from gehost_zoo.engine import Limits
    from gehost_zoo.manifest import find_models
    from gehost_zoo.progress import Progress
    from gehost_zoo.results import NAME, ResultFile, read_results
    from gehost_zoo.run import (
        Tasks,
        check_directory,
        exit_code,
        run_tasks,
        split_done,
    )

    own = {name: choices.pop(name) for name in ("jobs", "dask", "send", "report", "against")}
    resume = choices.pop("resume")
    limits = Limits(choices.pop("timeout"), choices.pop("memory"))
    optimize = _optimize_options(choices)
    choices["cleanup"] = not choices.pop("no_cleanup")
    _check_arguments(output, own)
    if optimize is not None:  # the target's vendors stand in for those of the environment
        choices["vendors"] = [
            *optimizing.find_target(optimize["target"]).vendors,
            *choices["vendors"],
        ]
    options = replace(from_environment(choices, note=_note), dump=None)  # models would share it
    earlier = read_results(own["against"]) if own["against"] else None
    results: dict[str, Record] = {}
    if Path(output, NAME).exists():
        if not resume:
            raise UsageError(
                "holds the results of a run",
                where=output,
                hint="--resume continues it, or name another directory",
            )
        results = read_results(output)
    elif os.path.lexists(output) and (not os.path.isdir(output) or os.listdir(output)):
        raise UsageError(
            "exists and is no directory of a run", where=output, hint="name another one"
        )

    host = Host(options)  # reports faults of the vendors once, before anything runs
    print_notes(host.notes)
    importers = host.importers
    zoo = find_models(
        models,
        lambda path: path.endswith(".onnx") or importers.find(path) is not None,
        outside=output,
    )
    check_directory(output, zoo.entries, results)
    paged = own["report"] is not None
    tasks = Tasks(output, options, paged=paged, optimize=optimize)
    old_records, pending = split_done(zoo.entries, tasks, results, limits, paged=paged)
    progress = Progress(len(zoo.entries), len(pending))
    for line in zoo.invalid:
        progress.line(f"invalid: {line}")
    for line in zoo.duplicates:
        progress.line(f"duplicate: {line}")
    previous = {record["model"]: record for record in old_records}

    def finished(record: Record) -> None:
        previous[record["model"]] = record
        progress.finished(record)

    with ExitStack() as stack:
        engine = _engine(own, limits, progress) if pending else None
        if engine is not None:
            stack.callback(engine.close)
        file = stack.enter_context(ResultFile(output, old_records))
        stack.enter_context(progress.showing())
        try:
            if engine is not None:
                run_tasks(map(tasks.of, pending), engine, file, finished)
        except KeyboardInterrupt:
            progress.line(f"{len(previous)} of {len(zoo.entries)} models done; --resume continues")
            raise
    _show(output, [previous[entry.name] for entry in zoo.entries], zoo.invalid, earlier, own)
    return exit_code(zoo.entries, previous, zoo.invalid)


def _optimize_options(choices: dict[str, Any]) -> dict[str, Any] | None:
    """Return target, budget and whether to measure; None to compile.

    Raises:
        UsageError: an option has no effect, or the target is not installed.
    """
    from gehost import optimizing

    is_on, target = choices.pop("optimize"), choices.pop("target")
    budget, measured = choices.pop("budget"), not choices.pop("no_measure")
    if not is_on:
        if target or not measured:
            raise UsageError("--for and --no-measure are for --optimize")
        return None
    unused = [name for name in ("verify", "only", "fusion_switch_file") if choices[name]]
    if unused:
        option = unused[0].replace("_", "-")
        raise UsageError(f"--{option} is for compiles; leave it out with --optimize")
    name = optimizing.find_target(target).name
    return {"target": name, "budget": budget, "measured": measured}


def _check_arguments(output: str, own: dict[str, Any]) -> None:
    """Raises ``UsageError`` for arguments that would end the run, at once or at its end."""
    for name in ("dask", "report", "against"):
        if own[name] == "":
            raise UsageError("must not be empty", subject=f"--{name}")
    if not output:
        raise UsageError("must not be empty", subject="--output")
    if own["send"] and not own["dask"]:
        raise UsageError("--send is for the workers of --dask")
    if own["dask"] and own["jobs"]:
        raise UsageError("--jobs is for this machine; --dask uses the workers of its scheduler")
    page: str | None = own["report"]
    if page is None:
        return
    if not page.endswith(".html"):
        raise UsageError("wanted a file name that ends in .html", subject=f"--report {page}")
    folder = os.path.realpath(os.path.dirname(page))
    if folder != os.path.realpath(output) and not os.access(folder, os.W_OK):
        raise UsageError("there is no such directory to write to", where=os.path.dirname(page))
    if os.path.isdir(page):
        raise UsageError("is a directory", where=page)


def _engine(own: dict[str, Any], limits: Limits, progress: Progress) -> Engine:
    if own["dask"]:
        from gehost_zoo.cluster import DaskEngine

        return DaskEngine(own["dask"], limits, send=own["send"], tell=progress.line)
    from gehost_zoo.engine import LocalEngine

    return LocalEngine(own["jobs"] or os.cpu_count() or 1, limits)


def _show(
    output: str,
    records: list[Record],
    invalid: list[str],
    earlier: dict[str, Record] | None,
    own: dict[str, Any],
) -> None:
    """Print the summary, and write the page."""
    from gehost_zoo.summary import Comparison, summary_lines

    comparison = None if earlier is None else Comparison.of(earlier, records)
    if own["report"]:
        from gehost_zoo.page import render, write_page

        path, against = own["report"], own["against"]
        write_page(path, render(path, output, records, invalid, comparison, against))
    for line in summary_lines(records, invalid, comparison):
        print_text(line)
    if own["report"]:
        print_line(f"wrote {own['report']}")


def tune_command(compile_: click.Command) -> click.Command:
    """Make the command that tunes a family of models."""
    own: list[click.Parameter] = [
        click.Option(["-o", "--output"], required=True, type=click.Path(), help="The switch file."),
        click.Option(
            ["--threads"],
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Of an operator.",
        ),
        click.Option(
            ["--budget"],
            callback=_budget,
            default="60s",
            show_default=True,
            help="Time for loading, compiling and all comparisons of each model, as 90s or 2m.",
        ),
    ]
    return _command(
        "tune-zoo",
        _tune,
        own,
        (
            "vendors",
            "enable",
            "disable",
            "only",
            "settings",
            "dims",
            "opset",
            "assume",
            "no_cleanup",
            "inline_functions",
        ),
        compile_,
        "Tune each of MODELS as `gehost tune` does, and write one switch file for all: a kind"
        " of fusion is on where it pays on a model and costs none.\n\nModels are given as to"
        " `gehost zoo`. The exit code is that of the first model that cannot be tuned; it does"
        " not count.",
    )


def _tune(
    models: tuple[str, ...], output: str, threads: int, budget: float, **settings: Any
) -> int:
    from gehost import GehostError, OutputError, from_environment, read_model, tune
    from gehost_zoo.family import choose, family_file
    from gehost_zoo.manifest import find_models
    from gehost_zoo.progress import Progress

    settings["cleanup"] = not settings.pop("no_cleanup")
    options = replace(from_environment(settings, note=_note), dump=None)
    zoo = find_models(models, lambda path: path.endswith(".onnx"), outside=output)
    progress = Progress(len(zoo.entries), len(zoo.entries))
    for line in [*zoo.invalid, *zoo.duplicates]:
        progress.line(line)
    tunings: dict[str, tune.Tuning] = {}
    code = 0
    for number, entry in enumerate(zoo.entries, 1):
        progress.line(f"{number} of {len(zoo.entries)}: {entry.name}, at most {budget:g} s")
        chosen = replace(options, dims={**options.dims, **entry.dims}, **entry.options)
        try:
            if entry.path.endswith(".onnx"):
                read_model(entry.path)  # one line where it is no model
            tunings[entry.name] = tune.tune(
                entry.path, chosen, feeds=entry.feeds, threads=threads, budget=budget
            )
        except GehostError as error:
            progress.line(f"failed: {entry.name}: {error}")
            code = code or error.exit_code
    if tunings:
        choices = choose(tunings)
        try:
            Path(output).write_text(family_file(tunings, choices), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=output) from error
        for choice in choices:
            print_line(choice.line)
        print_line(f"{output}: {sum(c.on for c in choices)} of {len(choices)} kinds on")
    return code or (2 if zoo.invalid else 0)
