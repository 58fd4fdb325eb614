"""``python -m tools.fuzz``: random models, random rewrites, every check; exit code 1 when one does not hold."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tools.fuzz.cases import model_of, run_case
from tools.fuzz.checks import Tally
from tools.fuzz.workers import Outcome, outcomes

EVERY = 1000


def main() -> int:
    arguments = _arguments()
    console = Console(highlight=False)
    tally, failed = Tally(), list[Outcome]()
    start = time.monotonic()
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        line = progress.add_task("starting")
        for index, outcome in enumerate(
            outcomes(run_case, _seeds(arguments), arguments.processes, arguments.patience), start=1
        ):
            if outcome.failure:
                failed.append(outcome)
                console.print(_reproducer(outcome, arguments.out), markup=False)
            else:
                tally.add(outcome.result)
            message = f"{index} models, {tally.counts['rewrites']} rewrites, {len(failed)} failures"
            progress.update(line, description=message)
            if not console.is_terminal and index % EVERY == 0:
                console.print(f"{message}, {time.monotonic() - start:.0f} s")
    _summarize(tally, failed, time.monotonic() - start, console)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument(
        "--graphs", type=int, default=1000, help="how many models (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the first one; the next ones count on (default: %(default)s)",
    )
    parser.add_argument("--seconds", type=float, help="begin no more models after so long")
    parser.add_argument(
        "--processes", type=int, default=min(2, os.cpu_count() or 1), help="default: %(default)s"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        help="seconds until a model counts as hanging (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/fuzz"),
        help="where failing models go (default: %(default)s)",
    )
    return parser.parse_args()


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    seeds = range(arguments.seed, arguments.seed + arguments.graphs)
    return itertools.takewhile(lambda _: end is None or time.monotonic() < end, seeds)


def _reproducer(outcome: Outcome, out: Path) -> str:
    """Leave the model and what happened; returns what to type."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"seed{outcome.number}.onnx"
    onnx.save(model_of(outcome.number).proto, path)
    path.with_suffix(".txt").write_text(outcome.failure, encoding="utf-8")
    reason = outcome.failure.strip().rpartition("\n")[2][:300]
    command = f"python -m tools.fuzz --graphs 1 --seed {outcome.number}"
    return f"seed {outcome.number}: {reason}\n  model {path}, traceback beside it; again: {command}"


def _summarize(tally: Tally, failed: list[Outcome], seconds: float, console: Console) -> None:
    table = Table(
        "what",
        "how many",
        title=f"{tally.counts['graphs']} random models in {seconds:.0f} s",
        title_justify="left",
    )
    _rows(table, tally.counts)
    table.add_section()
    _rows(table, tally.checks, "check: ")
    table.add_section()
    _rows(table, tally.refused, "not done: ")
    table.add_section()
    table.add_row("failures", str(len(failed)))
    console.print(table)
    if failed:
        console.print(f"failing seeds: {', '.join(str(outcome.number) for outcome in failed)}")


def _rows(table: Table, counter: Counter[str], prefix: str = "") -> None:
    for name, count in counter.most_common():
        table.add_row(prefix + name, str(count))


if __name__ == "__main__":
    sys.exit(main())
