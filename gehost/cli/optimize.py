"""``gehost optimize``: one command from a model to the best file for a runtime."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gehost.cli.options import (
    assume_option,
    dim_option,
    disable_option,
    enable_option,
    library_option,
    opset_option,
    settings_option,
)
from gehost.cli.output import print_json, print_line, writing_output
from gehost.cli.recording import check_report
from gehost.errors import UsageError, one_line

if TYPE_CHECKING:
    from gehost.optimizing import OptimizeReport


def _sizes(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Read ``NAME=1,128,512``."""
    sizes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        parts = numbers.split(",")
        if not equals or not name or not all(part.strip().isdecimal() for part in parts):
            raise click.BadParameter(f'"{text}": wanted NAME=SIZE or NAME=SIZE,SIZE,…')
        sizes[name] = tuple(int(part) for part in parts)
    return sizes


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), help="File for the result; default: NAME.opt.onnx."
)
@click.option(
    "--for",
    "target",
    default="",
    metavar="TARGET",
    help="cpu, cuda, openvino or any (every runtime); default: what is installed.",
)
@dim_option
@click.option(
    "--measure",
    multiple=True,
    metavar="NAME=SIZE,…",
    callback=_sizes,
    help="Sizes to measure with, which change nothing in the file; repeatable.",
)
@click.option(
    "--feeds",
    type=click.Path(),
    metavar="FILE.npz",
    help="Inputs to check and measure with, instead of seeded ones.",
)
@opset_option
@click.option("--budget", default="60s", show_default=True, help="Time for all, as 90s or 2m.")
@click.option(
    "--half", is_flag=True, help="Convert to float16; inputs and outputs keep their types."
)
@click.option(
    "--kernels",
    is_flag=True,
    help="Write a library of generated C kernels beside the result, where it pays.",
)
@click.option("--no-measure", is_flag=True, help="Keep all fusions of the target, unmeasured.")
@click.option("--keep-metadata", is_flag=True, help="Keep the notes of exporters on nodes.")
@click.option(
    "--vendors",
    multiple=True,
    metavar="DIR",
    help="Further vendors, as a directory or PACKAGE:VENDOR; repeatable.",
)
@enable_option
@disable_option
@settings_option
@assume_option
@library_option
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads per operator."
)
@click.option(
    "--report",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Write a report, as .json or .html; repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print one line.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def optimize(
    model: str,
    output: str | None,
    target: str,
    report: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Write the best file of MODEL for a runtime: cleaned, fused, checked, measured.

    The result is one file that the runtime's plain session runs. Fusions that change numbers or
    do not pay on this machine are left out.

    For authors of passes: compile runs passes, tune chooses among them.
    """
    from gehost.cli.progress import Progress
    from gehost.host.containment import output_on_stderr
    from gehost.optimizing import OptimizeOptions, default_output, optimize_file
    from gehost.options import HostOptions
    from gehost.tune import seconds_of

    target_path = output or default_output(model)
    if os.path.realpath(target_path) == os.path.realpath(model):
        raise UsageError("this is the model; name another output (-o)", where=target_path)
    for path in report:
        check_report(path, model, target_path)
    host_options = HostOptions(
        vendors=choices.pop("vendors"),
        enable=choices.pop("enable"),
        disable=choices.pop("disable"),
        assume=choices.pop("assume"),
        settings=choices.pop("settings"),
        dims=choices.pop("dims"),
        opset=choices.pop("opset"),
    )
    progress = Progress()
    options = OptimizeOptions(
        target=target,
        output=target_path,
        measured=not choices.pop("no_measure"),
        budget=seconds_of(choices.pop("budget")),
        libraries=choices.pop("ort_libraries"),
        progress=progress.update,
        **choices,
    )
    with output_on_stderr(), progress.showing(what="read"):
        report_, _ = optimize_file(model, options, host_options)
    for path in report:
        _write(path, report_)
    if as_json:
        print_json(report_.as_dict())
        return
    with writing_output():
        for line in [report_.headline()] if quiet else report_.lines():
            print_line(line)


def _write(path: str, report: OptimizeReport) -> None:
    from gehost import __version__
    from gehost.diagnose.report.file import versions, write_report
    from gehost.host.report import Report
    from gehost.ir.files.save import write_bytes_atomic

    if path.endswith(".json"):
        write_bytes_atomic(path, (json.dumps(report.as_dict(), indent=2) + "\n").encode())
        return
    compiled = report.compile or Report()
    rest = sum(report.seconds.values()) - sum(compiled.seconds.values())
    page = replace(
        compiled,
        model=report.model,
        nodes_before=report.before.nodes,
        nodes_after=report.after.nodes,
        op_types_before=dict(report.before.operators),
        op_types_after=dict(report.after.operators),
        seconds={**compiled.seconds, "other files, numbers and measuring": max(rest, 0.0)},
        verify=report.verify,
        notes=[one_line(line) for line in report.lines() if line.strip()] + compiled.notes,
    )
    page.versions = versions(__version__)
    write_report(path, page, "optimize")
