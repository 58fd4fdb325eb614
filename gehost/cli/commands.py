"""The commands that do the work: ``compile``, ``passes``, ``verify``, ``new``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gehost.cli.base import (
    cli,
    compare_options,
    compile_options,
    importer_option,
    number_options,
    options_of,
    tell_notes,
    telling,
    vendors_option,
)
from gehost.cli.recording import check_report, reported, reproducible
from gehost.errors import NumbersDifferError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gehost.host.report import Report


@cli.command("compile")
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="Where the compiled model goes."
)
@compile_options
@click.option(
    "--dump", type=click.Path(), metavar="DIR", help="Write the graph after each stage there."
)
@click.option(
    "--dump-level",
    type=click.IntRange(1, 3),
    help="1: with weights, 2: without (default), 3: structure only.",
)
@click.option(
    "--dump-format",
    type=click.Choice(["pbtxt", "onnx"]),
    help="pbtxt (default) or onnx; Netron opens both.",
)
@click.option(
    "--dump-passes", is_flag=True, help="One more dump after each pass that changed something."
)
@click.option(
    "--verify",
    is_flag=True,
    help=(
        "Compare the numbers of the compiled model with the original's; where they differ, write "
        "NAME.refused.onnx in place of the output."
    ),
)
@click.option(
    "--feeds",
    type=click.Path(),
    metavar="FILE.npz",
    help="Inputs for --verify, instead of seeded ones.",
)
@number_options
@click.option(
    "--report",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Write what was done, as .json or .html; repeatable.",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="Undo a pass that fails, skip a vendor file that does not load, and go on.",
)
@click.option(
    "--rewrite-limit", type=click.IntRange(0), metavar="N", help="Stop rewriting after N rewrites."
)
@click.option(
    "--reproducer",
    type=click.Path(),
    metavar="DIR",
    help="Where a pass that fails leaves what replays it.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also list the files below the vendors that were passed over.",
)
@click.pass_obj
def compile_(own_process: bool, model: str, output: str, **given: Any) -> int:
    """Compile MODEL: run the vendors' passes at their stages and write the result.

    With --keep-going the exit code is that of the first failure.
    """
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host
    from gehost.tables import Progress, print_report

    report_paths, verbose, reproducer = (
        given.pop("report"),
        given.pop("verbose"),
        given.pop("reproducer"),
    )
    given["cleanup"] = not given.pop("no_cleanup")
    options = options_of(given)
    for path in report_paths:
        check_report(path, model, output)
    progress = Progress()
    plugins: list[tuple[str, Any]] = [("progress", progress)]
    recorded = reported(report_paths, model, options, plugins)
    try:
        with recorded, output_on_stderr(), reproducible(reproducer, options, plugins):
            host = Host(options, plugins, own_process=own_process)
            if verbose:
                _tell_skipped(host.skipped)
            with progress.showing(len(host.passes)):
                report = host.compile(model, output)
    except NumbersDifferError as error:
        _tell_findings(error.report, model)
        with telling():
            print_report(error.report, f"{output} (refused)")
        raise
    _tell_findings(report, model)
    with telling():
        print_report(report, output)
    if report.exit_code:
        tell_notes([f"{output} is written; kept going after: {report.problems[0]}"])
    return report.exit_code


def _tell_findings(report: Report, model: str) -> None:
    """Write the notes and warnings of a compile on standard error."""
    tell_notes(report.notes)
    tell_notes(f"warning: {model}: {warning}" for warning in report.warnings)


def _tell_skipped(skipped: Iterable[str]) -> None:
    for path_and_reason in skipped:
        click.echo(one_line(f"skipped: {path_and_reason}"), err=True)


@cli.command()
@vendors_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also list the options that --set takes, and the files that are skipped.",
)
def passes(vendors: tuple[str, ...], *, as_json: bool, verbose: bool) -> None:
    """List the passes of vendors and plugins, in the order in which they run."""
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host
    from gehost.stages import RUN_STAGES

    with output_on_stderr():
        host = Host(options_of({"vendors": vendors}))
    if verbose:
        _tell_skipped(host.skipped)
    listed = [spec for stage in RUN_STAGES for spec in host.passes.at(stage)]
    if not as_json:
        from gehost.tables import print_options, print_passes

        with telling():
            print_passes(listed)
            if verbose:
                print_options(host.declared_options())
        tell_notes(host.notes)
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
            "default": spec.default,
            "options": [
                {
                    "name": option.name,
                    "type": option.type.__name__,
                    "default": option.default,
                    "help": option.help,
                }
                for option in spec.options
            ],
        }
        for spec in listed
    ]
    with telling():
        click.echo(json.dumps(rows, indent=2))
    tell_notes(host.notes)


@cli.command()
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@importer_option
@compare_options
@click.option(
    "--engine",
    type=click.Choice(["onnxruntime", "reference"]),
    help="What both run on. Else ONNX Runtime, and the reference for types that it lacks.",
)
def verify(
    a: str,
    b: str,
    settings: dict[str, str],
    rtol: float | None,
    atol: float | None,
    seed: int,
    feeds: str | None,
    ort_libraries: tuple[str, ...],
    engine: str | None,
    *,
    special_values: bool,
) -> None:
    """Compare the numbers of models A and B on the same inputs."""
    from gehost.host.containment import output_on_stderr
    from gehost.host.importers import installed_importers
    from gehost.ir.model import Model
    from gehost.verify import compare, load_feeds

    given = None if feeds is None else [load_feeds(feeds)]
    with output_on_stderr():
        importers = installed_importers(settings)
        first, second = importers.original(a, settings), importers.original(b, settings)
    if isinstance(second, str):
        Model.load(second).close()  # a file that is no model is not a model with other numbers
    result = compare(
        first,
        second,
        given,
        rtol=rtol,
        atol=atol,
        seed=seed,
        special_values=special_values,
        libraries=ort_libraries,
        engine=engine,
    )
    if not result.equal:
        raise NumbersDifferError(result.summary())
    with telling():
        click.echo(result.summary())


@cli.command()
@click.argument("name", metavar="VENDOR/PASS")
@click.option(
    "--vendors",
    type=click.Path(),
    default="vendors",
    show_default=True,
    metavar="DIR",
    help="Where it goes.",
)
def new(name: str, vendors: str) -> None:
    """Write a new pass and its test: `gehost new acme/fuse_matmul_add`."""
    from gehost.scaffold import write_pass

    with telling():
        for path in write_pass(name, vendors):
            click.echo(f"wrote {path}")
