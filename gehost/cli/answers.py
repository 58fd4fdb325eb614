"""The commands that answer questions about a compile or a pass: ``explain``, ``blame``,
``check-pass``, ``bisect``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gehost.cli.base import (
    cli,
    compare_options,
    compile_options,
    importer_option,
    options_of,
    settings_option,
    telling,
)
from gehost.errors import NumbersDifferError, PassError, one_line


@cli.command()
@click.argument("model", type=click.Path())
@click.option("--pass", "pass_name", required=True, metavar="PASS", help="The pass to explain.")
@click.option(
    "--node",
    metavar="NAME",
    help="Tell of this node only: its name, or that of a tensor that it makes.",
)
@compile_options
@click.option(
    "--keep-going",
    is_flag=True,
    help="Undo a pass that fails, skip a vendor file that does not load, and go on.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, with every node.")
def explain(model: str, pass_name: str, node: str | None, *, as_json: bool, **given: Any) -> None:
    """Tell why PASS did not match in MODEL: the nearest miss of each candidate, in the graph
    that it meets.
    """
    from gehost.diagnose.explain.run import explain as explain_pass
    from gehost.host.containment import output_on_stderr

    given["cleanup"] = not given.pop("no_cleanup")
    with output_on_stderr():
        told = explain_pass(model, pass_name, options_of(given), node)
    with telling():
        if as_json:
            import json

            click.echo(json.dumps(told.as_dict(), indent=2))
        else:
            from gehost.diagnose.show import print_explanation

            print_explanation(told)


@cli.command()
@click.argument("model", type=click.Path())
@click.argument("node")
@importer_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def blame(model: str, node: str, settings: dict[str, str], *, as_json: bool) -> None:
    """Tell what NODE of MODEL was before: which passes made it, step by step, from which
    original nodes.
    """
    from gehost.diagnose.blame import blame as history_of
    from gehost.host.containment import output_on_stderr

    with output_on_stderr():
        found = history_of(model, node, settings)
    with telling():
        if as_json:
            import json

            click.echo(json.dumps([ancestry.as_dict() for ancestry in found], indent=2))
        else:
            from gehost.diagnose.show import print_ancestries

            print_ancestries(found)


def _progress(line: str) -> None:
    """Replace the line on a terminal that shows how far a check is; "" clears it."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{one_line(line)[:100]}", nl=False, err=True)


@cli.command("check-pass")
@click.argument("file", type=click.Path())
@click.option(
    "--vendors",
    multiple=True,
    type=click.Path(),
    metavar="DIR",
    help="Vendors to load; else those FILE is among.",
)
@click.option("--pass", "name", metavar="PASS", help="Check this pass of the file only.")
@settings_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of all that is drawn.",
)
@click.option(
    "--instances",
    type=click.IntRange(1),
    default=12,
    show_default=True,
    help="Wanted for each pass.",
)
@click.option(
    "--mutations",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Changes of each, at most.",
)
@click.option(
    "--save",
    type=click.Path(),
    metavar="DIR",
    help="Write the models that show what is wrong there.",
)
@click.option("--strict", is_flag=True, help="Exit code 5 when a pass was not checked.")
def check_pass(
    file: str,
    vendors: tuple[str, ...],
    name: str | None,
    settings: dict[str, str],
    seed: int,
    instances: int,
    mutations: int,
    save: str | None,
    strict: bool,
) -> None:
    """Check each pass of a vendor FILE on random instances of its own pattern, and on changed ones;
    no model is needed.

    The exit code is 6 when numbers differ, 5 when a pass fails. A pass for which no instance was
    found is listed as not checked, with the reason; the exit code stays 0 unless --strict is given.
    """
    from gehost.diagnose.check_pass.pass_file import trials_of
    from gehost.diagnose.check_pass.run import check_pass
    from gehost.diagnose.check_pass.verdict import Wrong, save_findings
    from gehost.host.containment import output_on_stderr

    with output_on_stderr():
        trials = trials_of(file, vendors, name, settings)
    wrong: dict[str, set[Wrong]] = {}
    unchecked: list[str] = []
    while True:
        with output_on_stderr():
            trial = next(trials, None)
            result = (
                None
                if trial is None
                else check_pass(
                    trial,
                    seed=seed,
                    instances=instances,
                    mutations=mutations,
                    progress=_progress,
                )
            )
        if result is None:
            break
        _progress("")
        with telling():
            for line in result.lines():
                click.echo(one_line(line))
        if result.ok and not result.instances:
            unchecked.append(result.name)
        if result.findings:
            wrong[result.name] = {finding.wrong for finding in result.findings}
            if save is not None:
                with telling():
                    for path in save_findings(result, save):
                        click.echo(f"wrote {one_line(str(path))}")
    if unchecked:
        with telling():
            click.echo(one_line(f"not checked: {', '.join(unchecked)}"))
    differing = [found for found, kinds in wrong.items() if Wrong.DIFFERS in kinds]
    others = [found for found in wrong if found not in differing]
    told = [f"the numbers change by {', '.join(differing)}"] if differing else []
    told += [f"something is wrong with {', '.join(others)}"] if others else []
    if strict and unchecked:
        told.append(f"not checked (--strict): {', '.join(unchecked)}")
    if told:
        raise (NumbersDifferError if differing else PassError)(f"{file}: {'; '.join(told)}")


@cli.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="DIR",
    help=(
        "Where the reproducer goes; the first free of MODEL.bisect, MODEL.bisect-2, … unless given."
    ),
)
@compile_options
@compare_options
def bisect(
    model: str,
    output: str | None,
    rtol: float | None,
    atol: float | None,
    seed: int,
    feeds: str | None,
    ort_libraries: tuple[str, ...],
    *,
    special_values: bool,
    **given: Any,
) -> None:
    """Find the first rewrite of MODEL's compile that changes the numbers, and write it as files
    that run alone.
    """
    from gehost.diagnose.bisect import files as match_files
    from gehost.diagnose.bisect import run as search
    from gehost.diagnose.directory import check_fresh, free_name
    from gehost.host.containment import output_on_stderr
    from gehost.verify import load_feeds

    directory = output or free_name(f"{os.path.splitext(os.path.basename(model))[0]}.bisect")
    check_fresh(directory)
    given["cleanup"] = not given.pop("no_cleanup")
    options = options_of(given)
    read = None if feeds is None else [load_feeds(feeds)]
    with output_on_stderr(), match_files.shown_on_terminals() as tell:
        found = search.bisect(
            model,
            options,
            feeds=read,
            rtol=rtol,
            atol=atol,
            seed=seed,
            special_values=special_values,
            libraries=ort_libraries,
            tell=tell,
        )
        answer = match_files.answer(found, model)
        if found.captured is not None:
            match_files.write_match(found.captured, directory, answer, (rtol, atol))
    with telling():
        for line in match_files.account(found, directory, (rtol, atol)):
            click.echo(line)
    if found.wrong is not None:
        raise NumbersDifferError(answer)
    click.echo(answer)
