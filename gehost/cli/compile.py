"""``gehost compile``: run the passes of vendors over a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, get_args

import click

from gehost.cli.options import (
    compile_options,
    keep_going_option,
    number_options,
    options_of,
)
from gehost.cli.output import is_terminal, print_notes, print_skipped, writing_output
from gehost.cli.recording import check_report, reported, reproducible
from gehost.errors import NumbersDifferError
from gehost.options import DumpFormat, HostOptions

if TYPE_CHECKING:
    from gehost.host.report import Report


@click.command("compile")
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="File for the compiled model."
)
@compile_options
@click.option(
    "--dump", type=click.Path(), metavar="DIR", help="Write the graph after each stage to DIR."
)
@click.option(
    "--dump-level",
    type=click.IntRange(1, 3),
    help="1: with weights, 2: without (default), 3: structure only.",
)
@click.option(
    "--dump-format",
    type=click.Choice(get_args(DumpFormat)),
    help=f"{HostOptions.dump_format} unless given, which Netron opens, as it does onnx; "
    "it does not open readable.",
)
@click.option(
    "--dump-passes", is_flag=True, help="Also dump the graph after each pass that changed it."
)
@click.option(
    "--export-compile-stat",
    type=click.IntRange(0, 2),
    help="1, 2: write fusion_result.json, how often each pass matched and replaced; 0: do not.",
)
@click.option(
    "--half",
    is_flag=True,
    help=(
        "Convert the compiled model to float16. Positions, masks, squares and epsilons keep "
        "float32; with --verify, so do numbers out of range, and the numbers are compared."
    ),
)
@click.option(
    "--keep-io-types", is_flag=True, help="Keep inputs and outputs in float32 (with --half)."
)
@click.option(
    "--keep-float32",
    multiple=True,
    metavar="NODE",
    help="Keep a node, or an operator, in float32 (with --half); repeatable.",
)
@click.option(
    "--verify",
    is_flag=True,
    help=(
        "Compare the numbers of the compiled model with the original's; if they differ, write "
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
    help="Write a report of the compile, as .json or .html; repeatable.",
)
@keep_going_option
@click.option(
    "--rewrite-limit", type=click.IntRange(0), metavar="N", help="Stop rewriting after N rewrites."
)
@click.option(
    "--reproducer",
    type=click.Path(),
    metavar="DIR",
    help="Write files that replay a failed pass to DIR.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also list the skipped files below the vendors.",
)
@click.pass_obj
def compile_(own_process: bool, model: str, output: str, **choices: Any) -> int:
    """Compile MODEL with the vendors' passes and write the result.

    The passes run at their stages. For authors of passes; who only has a model: gehost optimize.

    With --keep-going the exit code is that of the first failure; 6 if --verify refuses the output.
    """
    from gehost.cli.progress import Progress
    from gehost.cli.tables import print_report
    from gehost.host.containment import output_on_stderr
    from gehost.host.host import Host

    report_paths, verbose, reproducer = (
        choices.pop("report"),
        choices.pop("verbose"),
        choices.pop("reproducer"),
    )
    options = options_of(choices)
    for path in report_paths:
        check_report(path, model, output)
    progress = Progress()
    # each rewrite would call its hooks
    watched = is_terminal(sys.stderr)
    plugins: list[tuple[str, Any]] = [("progress", progress)] if watched else []
    recorded = reported(report_paths, model, options, plugins)
    try:
        with recorded, output_on_stderr(), reproducible(reproducer, options, plugins):
            host = Host(options, plugins, own_process=own_process)
            if verbose:
                print_skipped(host.skipped)
            with progress.showing(len(host.passes)):
                report = host.compile(model, output)
    except NumbersDifferError as error:
        _print_findings(error.report, model)
        with writing_output():
            print_report(error.report, f"{output} (refused)")
        raise
    _print_findings(report, model)
    with writing_output():
        print_report(report, output)
    if report.exit_code:
        print_notes([f"{output} is written; kept going after: {report.problems[0]}"])
    return report.exit_code


def _print_findings(report: Report, model: str) -> None:
    """Print the notes and warnings of a compile to standard error."""
    print_notes(report.notes)
    print_notes(f"warning: {model}: {warning}" for warning in report.warnings)
