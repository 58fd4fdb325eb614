"""``gehost tune``: measure which kinds of fusion pay off on this machine."""

from __future__ import annotations

import os
from typing import Any

import click

from gehost.cli.options import (
    compile_options,
    library_option,
    options_of,
    provider_option,
    tolerances,
)
from gehost.cli.output import print_line, print_notes, writing_output
from gehost.errors import OutputError, UsageError, one_line


@click.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="The switch file to write.")
@compile_options
@click.option(
    "--feeds", type=click.Path(), metavar="FILE.npz", help="Inputs to use instead of seeded ones."
)
@library_option
@tolerances
@provider_option
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads per operator."
)
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    help="Time for loading, compiling and all comparisons, as 90s or 2m.",
)
def tune(
    model: str,
    output: str,
    feeds: str | None,
    threads: int,
    provider: str,
    rtol: float | None,
    atol: float | None,
    budget: str,
    **choices: Any,
) -> None:
    """Measure on this machine which kinds of fusion make MODEL faster.

    Writes the switches. For authors of passes; who only has a model: gehost optimize.

    Kinds that make the model faster are on in the file, all others off. Compile with
    --fusion-switch-file FILE, and run with gehost.runtime_options(FILE). --dim gives the sizes of
    the inputs to measure with.
    """
    from gehost.host.containment import output_on_stderr
    from gehost.ir.files.save import write_bytes_atomic
    from gehost.tune import run

    directory = os.path.dirname(os.path.realpath(output))
    if not os.path.isdir(directory):
        raise OutputError(f"{output}: there is no directory {directory}")
    read = [model, *([] if feeds is None else [feeds])]
    if os.path.realpath(output) in map(os.path.realpath, read):
        raise UsageError("is read, too; name another file for the switches", where=output)
    libraries = choices.pop("ort_libraries")
    seconds = run.seconds_of(budget)
    with output_on_stderr():
        tuning = run.tune(
            model,
            options_of(choices),
            feeds=feeds,
            libraries=libraries,
            threads=threads,
            provider=provider,
            rtol=rtol,
            atol=atol,
            budget=seconds,
            progress=lambda line: print_notes([line]),
        )
    write_bytes_atomic(output, tuning.to_json().encode())
    with writing_output():
        for line in run.picture(tuning):
            print_line(line)
        if tuning.original_differs:
            problem = one_line(tuning.original_differs)
            print_line(f"the original with ONNX Runtime's optimizations: {problem}")
        if tuning.placement:
            print_line(tuning.placement)
        if tuning.short:
            print_line(one_line(tuning.short))
        passes = sum(tuning.passes.values())
        runtime = tuning.runtime
        alone = not passes and runtime.level == "all" and not runtime.disabled_optimizers
        print_line(
            f"{one_line(output)}: {passes} of {len(tuning.passes)} passes on"
            f"{'; the clean-up alone pays' if alone else ''}"
            if tuning.pays
            else f"{one_line(output)}: nothing{' measured' if tuning.short else ''} pays on this "
            "machine; all passes are off"
        )
