"""``python -m tools.backend``: every case in every variant, with the shipped vendors; a table of what was seen.

Fails if a case that gave its expected outputs before does not give them afterwards, or if anything else is found.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tools.backend import cases
from tools.backend.check import Outcome, check
from tools.backend.variants import VARIANTS

Outcomes = Mapping[str, Outcome]
"""By name of the case; those that have the variant."""


@click.command()
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=click.Choice(list(VARIANTS)),
    help="Only these; all by default.",
)
@click.option("-k", "part", default="", help="Only cases with this in their names.")
@click.option(
    "--vendors/--no-vendors",
    default=True,
    help="With the passes of the repository, or inference and clean-up alone.",
)
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes.")
def main(variants: tuple[str, ...], part: str, *, vendors: bool, jobs: int) -> None:
    """Run the backend test cases of the onnx wheel through gehost."""
    start = time.perf_counter()
    names = [name for name in cases.names() if part in name]
    variants = variants or tuple(VARIANTS)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        work = [(name, variant) for variant in variants for name in names]
        outcomes = pool.map(partial(check, vendors=vendors), *zip(*work, strict=True), chunksize=64)
        results: dict[str, dict[str, Outcome]] = {variant: {} for variant in variants}
        for (name, variant), outcome in zip(work, outcomes, strict=True):
            if outcome is not None:
                results[variant][name] = outcome
    console = Console(width=110, highlight=False)
    console.print(_summary(results))
    _print_never_right(console, results[variants[0]])
    for variant, visited in results.items():
        for name, outcome in visited.items():
            for finding in outcome.findings:
                console.print(f"{name} [{variant}]: {finding}", style="red", markup=False)
    models, seconds = sum(map(len, results.values())), time.perf_counter() - start
    console.print(f"{len(names)} cases, {models} models, {seconds:.0f} s on {jobs} processes")
    sys.exit(any(outcome.findings for visited in results.values() for outcome in visited.values()))


def _summary(results: Mapping[str, Outcomes]) -> Table:
    titles = (
        "models",
        "right\nbefore",
        "in ORT",
        "in ref.",
        "right\nafter",
        "re-\nwritten",
        "cleaned",
        "folded",
        "same\nbits",
    )
    table = Table("variant", *titles, "types\nheld", "findings", box=SIMPLE, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for variant, visited in results.items():
        outcomes = visited.values()
        engines = Counter(outcome.engine for outcome in outcomes)
        right = sum(bool(outcome.engine and not outcome.wrong) for outcome in outcomes)
        changed = (
            sum(bool(getattr(outcome, what)) for outcome in outcomes)
            for what in ("rewritten", "cleaned", "folded", "exact")
        )
        typed, findings = (
            sum(outcome.typed for outcome in outcomes),
            sum(len(outcome.findings) for outcome in outcomes),
        )
        row = (
            len(visited),
            len(visited) - engines[""],
            engines["onnxruntime"],
            engines["reference"],
            right,
            *changed,
            typed,
            findings,
        )
        table.add_row(variant, *map(str, row))
    return table


def _print_never_right(console: Console, visited: Outcomes) -> None:
    """List the models that no engine runs as expected before the compile, by the reasons."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for name, outcome in visited.items():
        if not outcome.engine:
            reasons[
                "; ".join(f"{engine}: {text[:150]}" for engine, text in outcome.failures.items())
            ].append(name)
    for reason, names in reasons.items():
        console.print(
            f"{len(names)} not right before: {reason}\n  {', '.join(names)}", markup=False
        )


if __name__ == "__main__":
    main()
