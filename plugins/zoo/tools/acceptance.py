"""``make zoo``: a zoo of 2,000 models, run in every way, with the same results each time.

``python -m plugins.zoo.tools.acceptance [--models 2000] [--jobs 2]`` compiles the backend models of
the onnx wheel, random models of ``tools/fuzz`` and the corpus (where ``../shared/corpus`` is): in
one process, in several, with processes killed every few seconds, interrupted and resumed five
times, and on a Dask cluster. It fails where a model is lost or counted twice, where results differ
but for ``measured``, or where outputs differ by a byte.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import psutil

from tools.backend import cases
from tools.fuzz.cases import model_of

from ..tests.cluster import cluster

ROOT = Path(__file__).parents[3]
CORPUS = ROOT.parent / "shared" / "corpus" / "models"
HOME = ROOT / "build" / "zoo"

Results = dict[str, dict[str, Any]]


def write_models(count: int) -> list[str]:
    """Write backend models, and random ones up to a number; returns what to compile."""
    home = HOME / "models"
    if home.exists():
        shutil.rmtree(home)
    total = 0
    for name in cases.names():
        path = home / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(cases.load(name).model, path)
        total += 1
        if total == count // 2:
            break
    (home / "random").mkdir()
    for seed in range(count - total):
        onnx.save(model_of(seed).proto, home / "random" / f"{seed:04}.onnx")
    return [str(home), *([str(CORPUS)] if CORPUS.is_dir() else [])]


@dataclass
class Run:
    """What a run of ``gehost zoo`` left, and took."""

    code: int
    results: Results
    seconds: float
    cpu: float
    """Of the process and all that it waited for."""
    measured: float
    """CPU seconds that the models took in their workers."""
    others: float
    """Cores that other processes of the machine kept busy meanwhile."""


def zoo(
    models: list[str],
    directory: Path,
    *words: str,
    meanwhile: Callable[[psutil.Process], None] | None = None,
) -> Run:
    """Run ``gehost zoo`` in a process; ``meanwhile`` may disturb it."""
    command = [sys.executable, "-m", "gehost", "zoo", *models, "-o", str(directory), *words]
    command += ["--vendors", str(ROOT / "vendors")]
    # as installed: with byte code, which a developer's environment may not write
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(HOME / "pycache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    busy = _busy()
    with open(HOME / f"{directory.name}.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        if meanwhile is not None:
            meanwhile(psutil.Process(process.pid))
        code = process.wait()
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    cpu = sum(getattr(after, key) - getattr(before, key) for key in ("ru_utime", "ru_stime"))
    others = (_busy() - busy - cpu) / seconds
    lines = (directory / "zoo.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    twice = [name for name, count in Counter(r["model"] for r in records).items() if count > 1]
    check(not twice, f"{directory.name}: counted twice: {twice[:3]}")
    measured = sum(record.pop("measured", {"cpu": 0.0})["cpu"] for record in records)
    return Run(code, {r["model"]: r for r in records}, seconds, cpu, measured, others)


def _busy() -> float:
    """CPU seconds of all processes of the machine since it started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0)


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(f"zoo: {message}")


def same(name: str, run: Run, expected: Run) -> None:
    """Fail unless two runs have the same models, results and exit code."""
    lost = expected.results.keys() - run.results.keys()
    check(not lost, f"{name}: {len(lost)} models lost, such as {sorted(lost)[:3]}")
    other = [model for model, row in expected.results.items() if run.results[model] != row]
    check(not other, f"{name}: {len(other)} other results, such as {other[:1]}")
    check(run.code == expected.code, f"{name}: exit code {run.code}, wanted {expected.code}")
    print(f"{name}: {len(run.results)} models, the same results, {run.seconds:.0f} s", flush=True)


def outputs(directory: Path) -> dict[str, bytes]:
    root = directory / "models"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def killing(every: float) -> Callable[[psutil.Process], None]:
    """Kill one of the worker processes every few seconds."""

    def kill(process: psutil.Process) -> None:
        draw, killed = random.Random(0), 0
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(every)
            try:
                workers = [
                    child for child in process.children() if "spawn_main" in str(child.cmdline())
                ]
                draw.choice(workers).kill()
                killed += 1
            except (psutil.NoSuchProcess, IndexError):
                continue
        print(f"killed {killed} processes", flush=True)

    return kill


def interrupting(results: Path, lines: int) -> Callable[[psutil.Process], None]:
    """Press Ctrl-C once the results have so many lines."""

    def interrupt(process: psutil.Process) -> None:
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.2)
            if results.exists() and results.read_bytes().count(b"\n") >= lines:
                process.send_signal(signal.SIGINT)
                return

    return interrupt


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m plugins.zoo.tools.acceptance")
    parser.add_argument("--models", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two kills")
    arguments = parser.parse_args()
    if HOME.exists():
        shutil.rmtree(HOME)
    HOME.mkdir(parents=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    models = write_models(arguments.models)
    for step in steps(models, arguments.jobs, arguments.every):
        print(step, flush=True)


def steps(models: list[str], jobs: int, every: float) -> Iterator[str]:
    """The runs one after another; yields a line for each."""
    count = sum(len(list(Path(place).rglob("*.onnx"))) for place in models)
    zoo(models[-1:], HOME / "first", "--jobs", "1")  # writes byte code, which is no overhead
    alone = zoo([f"{CORPUS if CORPUS.is_dir() else models[0]}"], HOME / "start", "--jobs", "1")
    single = zoo(models, HOME / "single", "--jobs", "1")
    check(len(single.results) == count, f"{len(single.results)} results of {count} models")
    status = Counter(row["status"] for row in single.results.values())
    yield f"single: {count} models, {dict(status)}, exit code {single.code}, {single.seconds:.0f} s"
    extra = (single.cpu - single.measured - alone.cpu + alone.measured) / (
        count - len(alone.results)
    )
    yield f"overhead: {extra * 1000:.1f} ms of CPU a model over its compile (wanted: at most 30)"
    check(extra <= 0.030, "overhead: more than 30 ms a model")
    several = zoo(models, HOME / "several", "--jobs", str(jobs))
    same("several", several, single)
    yield (
        f"speed: {jobs} processes take {single.seconds / several.seconds:.2f} × less time, CPU ×"
        f" {several.cpu / single.cpu:.2f}; others kept {single.others:.2f} and"
        f" {several.others:.2f} of {os.cpu_count()} cores busy"
    )
    same(
        "killed",
        zoo(models, HOME / "killed", "--jobs", str(jobs), meanwhile=killing(every)),
        single,
    )
    directory = HOME / "resumed"
    for number in range(1, 6):
        meanwhile = interrupting(directory / "zoo.jsonl", number * count // 6)
        part = zoo(
            models,
            directory,
            "--jobs",
            str(jobs),
            *["--resume"] * (number > 1),
            meanwhile=meanwhile,
        )
        check(part.code == 130, f"resumed: exit code {part.code} of an interrupted run, wanted 130")
    same("resumed", zoo(models, directory, "--jobs", str(jobs), "--resume"), single)
    with cluster(HOME / "dask") as dask:
        dask.worker("one")
        dask.worker("two", nanny=True)
        same("dask", zoo(models, HOME / "cluster", "--dask", dask.address), single)
    expected = outputs(HOME / "single")
    for name in ("several", "killed", "resumed", "cluster"):
        check(outputs(HOME / name) == expected, f"{name}: the outputs differ by bytes")
    yield f"outputs: {len(expected)} files, equal in all runs"


if __name__ == "__main__":
    main()
