"""``python -m tools.fuzz.attention``: random attention graphs through the passes for ONNX Runtime.

Each graph is compiled without the passes, with all of them, with random subsets, and with passes
alone: each that rewrote something until then, and a few others. What ONNX Runtime loads and runs
before must load and run after, with equal numbers; exit code 1 where not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from gehost import Host, HostOptions
from gehost.kernels import release
from gehost.verify import compare_outputs, onnx_runtime
from tools.fuzz.attention_graphs import AttentionGraph, attention_graph
from tools.fuzz.workers import Outcome, outcomes

SHIPPED = ("ascend", "onnx", "onnxruntime", "openxla", "paddle")
FEEDS, SUBSETS, EVERY = 4, 3, 250
ALONE = 3
"""Passes alone that rewrote nothing yet: most of them would give a graph that was run already."""
RUNS_EMPTY = release(onnx_runtime().__version__) >= release("1.29.0")
"""Older ones end the process in MultiHeadAttention of empty tensors; the file names what it needs."""
Outputs = dict[str, np.ndarray]
Run = tuple[dict[str, np.ndarray], Outputs]
"""Feeds and what a graph makes of them."""


class BrokenAttention(AssertionError):
    """A compiled graph does not load, does not run, or computes other numbers."""


@dataclass
class Tally:
    """What was compiled and run."""

    counts: Counter[str] = field(default_factory=Counter[str])
    features: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Tally) -> None:
        self.counts += other.counts
        self.features += other.features


def names_of(vendors: Sequence[str]) -> list[str]:
    """The passes that this check turns on."""
    names = [spec.name for spec in _host(tuple(vendors)).passes]
    return [name for name in names if name.startswith("Ort") or name == "FlattenBatchMatMulAddPass"]


@cache
def _host(vendors: tuple[str, ...]) -> Host:
    return Host(HostOptions(vendors=[f"gehost:{name}" for name in vendors]))


def choices_of(
    seed: int, vendors: Sequence[str], fired: Collection[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the passes to turn on: none, all, random subsets, some alone.

    ``fired`` is read late: the passes that have rewritten something until then.
    """
    names, rng = names_of(vendors), random.Random(~seed)
    yield ()
    yield tuple(names)
    for _ in range(SUBSETS):
        yield tuple(name for name in names if rng.random() < 0.6)
    idle = [name for name in names if name not in fired]
    chosen = {*fired, *rng.sample(idle, min(ALONE, len(idle)))}
    yield from ((name,) for name in names if name in chosen)


def run_case(seed: int) -> Tally:
    """Compile the graph of a seed in all ways, and compare.

    Raises:
        BrokenAttention: something held before and does not after.
    """
    tally, result = Tally(), attention_graph(seed)
    tally.counts["graphs"] += 1
    tally.features.update(result.features)
    runs = list(runs_of(result, seed))
    if not runs:
        tally.counts["graphs that do not load or run"] += 1
        return tally
    tally.counts["feeds"] += len(runs)
    tally.counts["feeds with an empty tensor"] += sum(map(_is_empty, runs))
    vendors = ("onnxruntime",) if seed % 4 == 0 else SHIPPED
    checked, fired = set[bytes](), set[str]()
    for enable in choices_of(seed, vendors, fired):
        compiled, report = _host(vendors).with_options(enable=enable).run(result.proto)
        tally.counts["compiles"] += 1
        names = {record.name for record in report.passes if record.replaced}
        fired |= names
        tally.counts.update(f"fired: {name}" for name in names)
        data = compiled.SerializeToString(deterministic=True)
        if data not in checked:
            checked.add(data)
            tally.counts["compiled graphs that were run"] += 1
            how = f"vendors {' '.join(vendors)}, enabled {' '.join(enable)}"
            tally.counts["empty feeds that the runtime's own fusions refuse"] += compare(
                compiled, runs, how
            )
    return tally


def runs_of(result: AttentionGraph, seed: int) -> Iterator[Run]:
    """Yield the feeds that the graph takes with and without optimizations, and its outputs."""
    try:
        plain, optimized = _Session(result.proto, optimized=False), _Session(result.proto)
    except Exception:  # noqa: BLE001 - the runtime's errors have no common type
        return
    for feeds in result.feeds(seed, FEEDS):
        if _is_empty((feeds, {})) and not RUNS_EMPTY:
            continue
        try:
            expected, match = plain.run(feeds), optimized.run(feeds)
        except Exception:  # noqa: BLE001 - the graph does not take these sizes
            continue
        if not _difference(expected, match):  # else the runtime's own fusions change numbers
            yield feeds, expected


def compare(compiled: onnx.ModelProto, runs: Sequence[Run], how: str) -> int:
    """Load and run a compiled graph, with the runtime's optimizations off and on.

    Returns how many empty feeds only the runtime's own fusions refuse: ReshapeFusion puts -1 for a
    computed size, which fails beside a 0, in graphs with fewer Shape nodes only; before 1.32
    MatMulAddFusion does not load some graphs whose inputs are declared with a size of 0.

    Raises:
        BrokenAttention: it does not load, does not run, or computes other numbers.
    """
    refused = 0
    for optimized in (False, True):
        where = f"{how}, runtime's optimizations {'on' if optimized else 'off'}"
        try:
            session = _Session(compiled, optimized=optimized)
        except Exception as error:
            if optimized and _declares_empty(compiled) and "ShapeInferenceError" in str(error):
                refused += len(runs)
                continue
            raise BrokenAttention(f"{where}: does not load: {error}") from error
        for feeds, expected in runs:
            sizes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            try:
                result = session.run(feeds)
            except Exception as error:
                if (
                    optimized
                    and _is_empty((feeds, expected))
                    and "cannot be reshaped" in str(error)
                ):
                    refused += 1
                    continue
                raise BrokenAttention(f"{where}: does not run at {sizes}: {error}") from error
            difference = _difference(expected, result)
            if difference:
                raise BrokenAttention(f"{where}: other numbers at {sizes}: {difference}")
    return refused


def _is_empty(run: Run) -> bool:
    return any(not array.size for array in run[0].values())


def _declares_empty(model: onnx.ModelProto) -> bool:
    return any(
        dim.HasField("dim_value") and not dim.dim_value
        for value in model.graph.input
        for dim in value.type.tensor_type.shape.dim
    )


def _difference(expected: Outputs, result: Outputs) -> str:
    compared = compare_outputs(expected, result, rtol=1e-3, atol=1e-4)
    return "; ".join(str(one) for one in compared if not one.equal)


class _Session:
    def __init__(self, model: onnx.ModelProto, *, optimized: bool = True) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        levels = onnxruntime.GraphOptimizationLevel
        level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
        options.graph_optimization_level = level
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, feeds: dict[str, np.ndarray]) -> Outputs:
        return dict(zip(self._names, self._session.run(self._names, feeds), strict=True))


def main() -> int:
    arguments = _arguments()
    tally, failures, start = Tally(), Counter[str](), time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.graphs)
    within = (seed for seed in seeds if not _over(arguments.seconds, start))
    cases = outcomes(run_case, within, arguments.processes, arguments.patience)
    for index, outcome in enumerate(cases, start=1):
        if outcome.failure:
            failures[_save(outcome, arguments.out)] += 1
        else:
            tally.add(outcome.result)
        if index % EVERY == 0:
            print(f"{index} graphs, {sum(failures.values())} failures", flush=True)
    for name, count in sorted((tally.counts + tally.features).items()):
        print(f"{count:8} {name}")
    print(f"{sum(failures.values())} failures in {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


def _over(seconds: float | None, start: float) -> bool:
    return seconds is not None and time.monotonic() - start > seconds


def _save(outcome: Outcome, out: Path) -> str:
    """Leave the graph and what happened; return the last line."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"seed{outcome.number}.onnx"
    onnx.save(attention_graph(outcome.number).proto, path)
    path.with_suffix(".txt").write_text(outcome.failure, encoding="utf-8")
    line = next(
        (one for one in outcome.failure.splitlines() if "BrokenAttention:" in one),
        outcome.failure.strip().rpartition("\n")[2],
    )
    print(f"seed {outcome.number}: {line[:400]}\n  {path}", flush=True)
    return line


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz.attention",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--graphs", type=int, default=1000, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, help="of the first one; others count on")
    parser.add_argument("--seconds", type=float, help="begin no more graphs after so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for one graph")
    parser.add_argument("--out", type=Path, default=Path("build/attention"), help="for failures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
