"""Measure gehost beside its peers: ``python -m tools.benchmarks``; see the README for what is measured and how."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.benchmarks import tables
from tools.benchmarks.check_passes import check_pass_table, measure_check_pass
from tools.benchmarks.commands import (
    PEERS,
    CorpusModel,
    installed,
    measure_corpus,
    measure_external,
)
from tools.benchmarks.comparison import Graph, compared, growth
from tools.benchmarks.figures import (
    FIGURES,
    OPTIMIZERS,
    QUICK_MODELS,
    QUICK_SIZES,
    SIZES,
    STYLES_LARGEST,
    WIDE,
    WIDE_SIZES,
)
from tools.benchmarks.processes import ROOT, Outcome, medians, run, run_task
from tools.benchmarks.style_models import compare_styles

SECTIONS = ("graph", "memory", "styles", "wide", "optimizers", "corpus", "check-pass", "external")
PACKAGES = (
    "onnx",
    "onnxruntime",
    "onnxscript",
    "onnx-ir",
    "onnxsim",
    "onnxslim",
    "onnxoptimizer",
    "numpy",
    "protobuf",
)
_IMPORTED_AS = {"ort": "onnxruntime"}


def main(arguments: Sequence[str] | None = None) -> None:
    argument = _parser().parse_args(arguments)
    sections = argument.only or [name for name in SECTIONS if name != "external"]
    sizes = argument.sizes or (QUICK_SIZES if argument.quick else SIZES)
    repeat = argument.repeat or (1 if argument.quick else 3)
    results: dict[str, Any] = {"about": _about(repeat, argument.limit)}
    console = Console(width=None if sys.stdout.isatty() else 200)
    with tempfile.TemporaryDirectory(prefix="gehost-bench-", dir=argument.scratch) as scratch:
        bench = _Bench(
            Path(scratch), repeat, argument.limit, argument.tasks or (), peers=argument.peers
        )
        for section in (
            _graphs(bench, sections, sizes),
            _styles(sections, argument),
            _corpus(bench, sections, argument),
            _check_pass(sections),
            _external(bench, sections, argument),
        ):
            for table, measured in section:
                results |= measured
                console.print(table)
                if argument.json:
                    argument.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


_Tables = Iterator[tuple[Table, dict[str, Any]]]
"""Tables, and what the JSON says of them; each is shown and written as soon as it is there."""


def _graphs(bench: _Bench, sections: Sequence[str], sizes: Sequence[int]) -> _Tables:
    if not {"graph", "memory", "styles", "wide", "optimizers"} & set(sections):
        return
    graphs = bench.graphs(sections, sizes)
    measured = {
        "graphs": [
            {"kind": kind, "size": size, **asdict(graph)} for (kind, size), graph in graphs.items()
        ]
    }
    rows = compared(graphs, sections)
    for table, expected in ((tables.figures_table, False), (tables.styles_table, True)):
        shown = [row for row in rows if row.is_style is expected]
        if shown:
            yield table(shown), measured | {"figures": [asdict(row) for row in rows]}
    grown = growth(graphs)
    if grown:
        yield tables.growth_table(grown), {"growth": grown}
    if "optimizers" in sections:
        yield tables.optimizers_table(graphs), measured


def _corpus(bench: _Bench, sections: Sequence[str], argument: argparse.Namespace) -> _Tables:
    if "corpus" in sections and argument.corpus.is_dir():
        names = argument.models or (QUICK_MODELS if argument.quick else ())
        corpus = bench.corpus(argument.corpus, names)
        yield (
            tables.corpus_table(corpus),
            {"corpus": {name: asdict(model) for name, model in corpus.items()}},
        )
    elif "corpus" in sections:
        print(f"no corpus at {argument.corpus}; give --corpus DIR", file=sys.stderr)


def _styles(sections: Sequence[str], argument: argparse.Namespace) -> _Tables:
    if "styles" in sections:
        names = argument.models or (QUICK_MODELS if argument.quick else ())
        compared_models = compare_styles(argument.corpus, names)
        results = {
            name: {rule: asdict(item) for rule, item in rules.items()}
            for name, rules in compared_models.items()
        }
        yield tables.agreement_table(compared_models), {"styles": results}


def _check_pass(sections: Sequence[str]) -> _Tables:
    if "check-pass" in sections:
        result = measure_check_pass()
        measured = {"check-pass": {name: asdict(checked) for name, checked in result.items()}}
        yield check_pass_table(result), measured


def _external(bench: _Bench, sections: Sequence[str], argument: argparse.Namespace) -> _Tables:
    if "external" in sections:
        external = bench.external(argument.gib)
        yield (
            tables.external_table(external),
            {"external": {tool: asdict(result) for tool, result in external.items()}},
        )


class _Bench:
    """Makes models below ``scratch`` and measures tasks on them."""

    def __init__(
        self, scratch: Path, repeat: int, limit: float, names: Sequence[str], *, peers: bool
    ) -> None:
        self._scratch = scratch
        self._repeat = repeat
        self._limit = limit
        self._names = names
        self._peers = peers
        self._exceeded: dict[str, str] = {}
        """Tasks that took too long, and at which size; they are not tried on larger graphs."""

    def graphs(self, sections: Sequence[str], sizes: Sequence[int]) -> dict[tuple[str, int], Graph]:
        """Each kind of graph at each size, with the outcomes of the tasks that the sections want."""
        chosen = [figure for figure in FIGURES if figure.section in sections]
        measured: dict[tuple[str, int], Graph] = {}
        for kind in ("decoder", "siblings", "mirrored", "styles", *WIDE):
            tasks = dict.fromkeys(
                task for figure in chosen if figure.graph == kind for task in figure.tasks
            )
            if kind == "decoder" and "optimizers" in sections:
                tasks |= dict.fromkeys(("gehost.compile", *OPTIMIZERS))
            expected = [task for task in tasks if self._wants(task)]
            for size in (
                (WIDE_SIZES if kind in WIDE and sizes is SIZES else sizes) if expected else ()
            ):
                if kind == "styles" and size > STYLES_LARGEST:
                    continue
                model = self._generate(kind, size)
                outcomes = medians(
                    expected,
                    lambda task, model=model, size=size, kind=kind: self._task(
                        task, kind, size, model
                    ),
                    self._repeat,
                )
                measured[kind, size] = Graph(
                    **json.loads(Path(f"{model}.json").read_text(encoding="utf-8")), tasks=outcomes
                )
                model.unlink()
        return measured

    def _wants(self, task: str) -> bool:
        named = not self._names or any(name in task for name in self._names)
        return named and (self._peers or task.startswith("gehost."))

    def corpus(self, folder: Path, names: Sequence[str]) -> dict[str, CorpusModel]:
        tools = ["gehost", *(PEERS if self._peers else ())]
        return measure_corpus(folder, names, tools, self._scratch, self._repeat, self._limit)

    def external(self, gibibytes: float) -> dict[str, Outcome]:
        model = self._generate("external", gibibytes)
        tools = ["gehost", "gehost dump", *(("onnxscript", "onnxslim") if self._peers else ())]
        return measure_external(model, tools, self._scratch, self._repeat, self._limit)

    def _task(self, task: str, kind: str, size: int, model: Path) -> Outcome:
        tool = task.partition(".")[0]
        if tool != "gehost" and not installed(_IMPORTED_AS.get(tool, tool)):
            return Outcome(failure="not installed")
        if task in self._exceeded:
            return Outcome(failure=self._exceeded[task])
        outcome = run_task(task, model, self._scratch, self._limit)
        message = outcome.failure or f"{outcome.seconds:.3f} s"
        print(f"{kind}, {size:,} nodes, {task}: {message}", file=sys.stderr, flush=True)
        if outcome.failure.startswith(">"):
            self._exceeded[task] = f"{outcome.failure} at {size:,}"
        return outcome

    def _generate(self, kind: str, amount: float) -> Path:
        folder = self._scratch / f"{kind}-{amount}"
        folder.mkdir()
        result = run(
            [
                sys.executable,
                "-m",
                "tools.benchmarks.generate",
                kind,
                str(amount),
                str(folder / "model.onnx"),
            ],
            1000,
        )
        if result.failure:
            raise SystemExit(f"cannot make a {kind} graph of {amount}: {result.failure}")
        return folder / "model.onnx"


def _about(repeat: int, limit: float) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "compiled": any((ROOT / "gehost").rglob("*.so")),
        "versions": versions,
        "repeat": repeat,
        "limit": limit,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes, four models, one run each")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="default: all but external")
    parser.add_argument(
        "--tasks",
        nargs="+",
        metavar="TEXT",
        help="only tasks on graphs whose name contains one of these",
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, help=f"nodes; default: {' '.join(map(str, SIZES))}"
    )
    parser.add_argument("--repeat", type=int, help="runs of each measurement; default 3")
    parser.add_argument(
        "--limit",
        type=float,
        default=120,
        help="CPU seconds after which a run is stopped; default 120",
    )
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus")
    parser.add_argument("--models", nargs="+", help="names of the corpus's manifest; default: all")
    parser.add_argument(
        "--gib",
        type=float,
        default=3,
        help="external weights, GiB; a peer that copies them needs the disk space",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        help="where models are made; default: the system's temporary directory",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    return parser


if __name__ == "__main__":
    main()
