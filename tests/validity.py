"""``python -m tests.validity [MODEL…]``: what holds of every output, on whole models.

Strict readers take an output where they took the input: onnx's full check, strict inference, and
ONNX Runtime with strict types. Its numbers are equal, and a second compile gives the same bytes.
Each model (default: the corpus, the cases of types and the tests' models) is compiled by default,
with all passes for ONNX Runtime, and by ``gehost optimize --for any``. Exit code 1 where one does
not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from gehost import Host, HostOptions, optimize
from gehost.verify import compare, load_feeds, make_feeds

ANY = "optimize --for any"
ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus"

Way = Callable[[Path, Path, int | None], object]
"""Writes an output of a model, at an opset."""

LEVELS = (
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
)
_FAILURES = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.NotImplemented,
    state.RuntimeException,
)


def refusals(path: str) -> dict[str, str]:
    """Return the message of each reader that refuses a file."""
    actual: dict[str, str] = {}
    for name, read in READERS.items():
        try:
            read(path)
        except _FAILURES as error:
            actual[name] = " ".join(str(error).split())[:400]
    return actual


def new_refusals(before: str, after: str) -> dict[str, str]:
    """Return what refuses the second file, of those that take the first one."""
    actual = refusals(after)
    earlier = refusals(before) if actual else {}
    return {name: error for name, error in actual.items() if name not in earlier}


def _inferred(*, data_prop: bool) -> Callable[[str], object]:
    return lambda path: onnx.shape_inference.infer_shapes(
        onnx.load(path), check_type=True, strict_mode=True, data_prop=data_prop
    )


def _loaded(level: ort.GraphOptimizationLevel) -> Callable[[str], object]:
    def load(path: str) -> object:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.strict_shape_type_inference", "1")
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = level
        return ort.InferenceSession(path, options, ["CPUExecutionProvider"])

    return load


READERS: dict[str, Callable[[str], object]] = {
    "full check": lambda path: onnx.checker.check_model(path, full_check=True),
    "strict inference": _inferred(data_prop=False),
    "strict inference with data": _inferred(data_prop=True),
    **{f"strict load, {level.name}": _loaded(level) for level in LEVELS},
}


# -- whole models


@cache
def ways() -> dict[str, Way]:
    """Return the ways to write an output, by name."""
    shipped = Host(HostOptions(vendors=[ROOT / "vendors"]))
    runtime = [spec.name for spec in shipped.passes if spec.vendor == "onnxruntime"]
    hosts = {"default": Host(), "passes for ONNX Runtime": shipped.with_options(enable=runtime)}

    def compiled(host: Host) -> Way:
        return lambda model, output, opset: host.with_options(opset=opset).compile(model, output)

    def optimized(model: Path, output: Path, opset: int | None) -> object:
        return optimize(model, "any", output=output, measured=False, opset=opset)

    return {**{name: compiled(host) for name, host in hosts.items()}, ANY: optimized}


def stored_feeds(model: Path) -> list[Mapping[str, np.ndarray]]:
    """Return the feeds of the corpus, or of the tests, that belong to a model."""
    for directory in (model.parent / "feeds", model.parents[1] / "feeds"):
        if paths := sorted(directory.glob(f"{model.stem}.[AB].npz")):
            return [load_feeds(path) for path in paths]
    return []


def feeds_of(model: Path) -> list[Mapping[str, np.ndarray]]:
    """Return stored feeds of a model, or else one that is generated."""
    return stored_feeds(model) or [make_feeds(onnx.load(model))]


def failures(model: Path, way: Way, directory: Path) -> Iterator[str]:
    """Yield what does not hold of an output of a model, written into a directory."""
    once, twice = (directory / name / "output.onnx" for name in ("once", "twice"))
    for source, output in ((model.resolve(), once), (once, twice)):
        output.parent.mkdir()
        way(source, output, None)
        for reader, message in new_refusals(str(model), str(output)).items():
            yield f"{output.parent.name} compiled, {reader}: {message}"
    if once.read_bytes() != twice.read_bytes():
        yield "a second compile gives other bytes"
    verdict = compare(model, once, stored_feeds(model) or None)
    if not verdict.equal:
        yield verdict.summary()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.validity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--ways", nargs="+", default=list(ways()), choices=list(ways()))
    value = parser.parse_args()
    folders = (CORPUS / "models", SHARED / "cases" / "types", ROOT / "tests" / "models")
    models = value.models or [path for place in folders for path in sorted(place.glob("*.onnx"))]
    count = failed = 0
    for model in models:
        start = time.monotonic()
        for name in value.ways:
            with tempfile.TemporaryDirectory() as directory:
                for line in failures(model, ways()[name], Path(directory)):
                    failed += 1
                    print(f"{model.name}, {name}: {line}", flush=True)
            count += 1
        print(f"{model.name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"{failed} failures of {count} outputs")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
