"""``gehost check-pass``: test a pass on random instances of its own pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gehost.cli.completion import complete_passes
from gehost.cli.options import json_option, provider_option, settings_option, tolerances
from gehost.cli.output import print_json, print_line, writing_output
from gehost.errors import NumbersDifferError, PassError, one_line

if TYPE_CHECKING:
    from gehost.diagnose.check_pass.verdict import PassCheck


@click.command("check-pass")
@click.argument("file", type=click.Path())
@click.option(
    "--vendors",
    multiple=True,
    type=click.Path(),
    metavar="DIR",
    help="Directories of vendors to load; default: the one that FILE is in.",
)
@click.option(
    "--pass",
    "name",
    shell_complete=complete_passes,
    metavar="PASS",
    help="Check this pass of the file only.",
)
@settings_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the random instances.",
)
@click.option(
    "--instances",
    type=click.IntRange(1),
    default=12,
    show_default=True,
    help="Number of instances for each pass.",
)
@click.option(
    "--mutations",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Largest number of mutations of each instance.",
)
@click.option(
    "--save",
    type=click.Path(),
    metavar="DIR",
    help="Write the models of each finding to this directory.",
)
@tolerances
@provider_option
@click.option("--strict", is_flag=True, help="Exit code 5 when a pass was not checked.")
@json_option
def check_pass(
    file: str,
    vendors: tuple[str, ...],
    name: str | None,
    settings: dict[str, str],
    seed: int,
    instances: int,
    mutations: int,
    save: str | None,
    rtol: float | None,
    atol: float | None,
    provider: str,
    strict: bool,
    as_json: bool,
) -> None:
    """Check each pass of a vendor FILE, or of a directory; also of one in ASCEND_GE_PY_PASS_PATH.

    Runs it on random instances of its own pattern and on mutations of them; no model is needed.

    The exit code is 6 when numbers differ, 5 when a pass fails or a class is not registered. A pass
    for which no instance was found is listed as not checked, with the reason; the exit code stays 0
    unless --strict is given.
    """
    from gehost.cli.progress import Progress
    from gehost.diagnose.check_pass.pass_file import read_pass_file
    from gehost.diagnose.check_pass.run import check_pass
    from gehost.diagnose.check_pass.trial import Comparing
    from gehost.diagnose.check_pass.verdict import Wrong, save_findings
    from gehost.host.containment import output_on_stderr
    from gehost.options import paths_of_passes
    from gehost.verify.device import check_provider

    if provider != "cpu":
        check_provider(provider)
    with output_on_stderr():
        unregistered, trials = read_pass_file(
            file, vendors, name, settings, Comparing(rtol, atol, provider), paths_of_passes()
        )
    wrong: dict[str, set[Wrong]] = {}
    unchecked: list[str] = []
    results: list[PassCheck] = []
    progress = Progress()

    def next_result() -> PassCheck | None:
        if unregistered:
            return unregistered.pop(0)
        with output_on_stderr(), progress.showing(instances, "loading"):
            trial = next(trials, None)
            if trial is None:
                return None
            return check_pass(
                trial,
                seed=seed,
                instances=instances,
                mutations=mutations,
                progress=progress.update,
            )

    while (result := next_result()) is not None:
        results.append(result)
        if not as_json:
            with writing_output():
                for line in result.lines():
                    print_line(one_line(line))
        if result.ok and not result.instances:
            unchecked.append(result.name)
        if result.findings:
            wrong[result.name] = {finding.wrong for finding in result.findings}
            if save is not None:
                with writing_output():
                    for path in save_findings(result, save):
                        print_line(f"wrote {one_line(str(path))}", err=as_json)
    if as_json:
        print_json([result.as_dict() for result in results])
    elif unchecked:
        with writing_output():
            print_line(one_line(f"not checked: {', '.join(unchecked)}"))
    differing = [name_ for name_, kinds in wrong.items() if Wrong.DIFFERS in kinds]
    others = [name_ for name_ in wrong if name_ not in differing]
    problems = [f"the numbers change by {', '.join(differing)}"] if differing else []
    problems += [f"something is wrong with {', '.join(others)}"] if others else []
    if strict and unchecked:
        problems.append(f"not checked (--strict): {', '.join(unchecked)}")
    if problems:
        raise (NumbersDifferError if differing else PassError)(f"{file}: {'; '.join(problems)}")
