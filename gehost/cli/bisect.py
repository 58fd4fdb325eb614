"""``gehost bisect``: the first rewrite of a compile that changes the numbers."""

from __future__ import annotations

import os
from typing import Any

import click

from gehost.cli.options import compare_options, compile_options, json_option, options_of
from gehost.cli.output import print_json, print_line, print_notes, writing_output
from gehost.errors import NumbersDifferError, one_line


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="DIR",
    help=(
        "Directory of the reproducer; default: the first free of MODEL.bisect, MODEL.bisect-2, …"
    ),
)
@compile_options
@compare_options
@json_option
def bisect(
    model: str,
    output: str | None,
    rtol: float | None,
    atol: float | None,
    seed: int,
    feeds: str | None,
    ort_libraries: tuple[str, ...],
    provider: str,
    *,
    special_values: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Find the first rewrite in MODEL's compile that changes the numbers.

    Writes a reproducer of it.

    The reproducer is a directory of files that run on their own.
    """
    from gehost.cli.progress import Progress
    from gehost.diagnose.bisect import files as match_files
    from gehost.diagnose.bisect import run as search
    from gehost.diagnose.directory import check_fresh, free_name
    from gehost.host.containment import output_on_stderr
    from gehost.verify import load_feeds

    directory = output or free_name(f"{os.path.splitext(os.path.basename(model))[0]}.bisect")
    check_fresh(directory)
    options = options_of(choices)
    read = None if feeds is None else [load_feeds(feeds)]
    progress = Progress()
    with output_on_stderr(), progress.showing(1, "all rewrites"):
        bisection = search.bisect(
            model,
            options,
            feeds=read,
            rtol=rtol,
            atol=atol,
            seed=seed,
            special_values=special_values,
            libraries=ort_libraries,
            provider=provider,
            on_trial=lambda trial, number, most: progress.update(
                match_files.trial_line(trial), number, most
            ),
            on_note=lambda line: print_notes([line]),
        )
        answer = match_files.answer(bisection, model)
        if bisection.captured is not None:
            match_files.write_match(bisection.captured, directory, answer, (rtol, atol))
    if as_json:
        print_json(
            {
                **bisection.as_dict(),
                "answer": answer,
                "directory": directory if bisection.captured else None,
            }
        )
    else:
        with writing_output():
            for line in match_files.account(bisection, directory, (rtol, atol)):
                print_line(one_line(line))
    if bisection.wrong is not None:
        raise NumbersDifferError(answer)
    if not as_json:
        with writing_output():
            print_line(one_line(answer))
