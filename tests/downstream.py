"""``python -m tests.downstream``: tools that people run on an output take it where they took the input.

Quantizers of ONNX Runtime and, where it is installed, onnxslim, on every model of the corpus,
compiled by default and with all passes for ONNX Runtime. Exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

from gehost import Host, HostOptions
from gehost.verify import load_feeds, make_feeds

ROOT = Path(__file__).parents[1]
CORPUS = ROOT.parent / "shared" / "corpus"


class _Feeds(CalibrationDataReader):
    def __init__(self, feeds: Mapping[str, np.ndarray]) -> None:
        self._feeds: Iterator[Mapping[str, np.ndarray]] = iter([feeds])

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self._feeds, None)


def dynamic(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    quantize_dynamic(source, target)


def static(source: Path, target: Path, feeds: Mapping[str, np.ndarray]) -> None:
    quantize_static(source, target, _Feeds(feeds))


def slim(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    with redirect_stdout(io.StringIO()):  # a table
        importlib.import_module("onnxslim").slim(str(source), str(target))


def is_installed(tool: str) -> bool:
    return tool != "onnxslim" or importlib.util.find_spec(tool) is not None


TOOLS: dict[str, Callable[[Path, Path, Mapping[str, np.ndarray]], None]] = {
    "quantize_dynamic": dynamic,
    "quantize_static": static,
    "onnxslim": slim,
}


def failure(tool: str, source: Path, target: Path, feeds: Mapping[str, np.ndarray]) -> str:
    """Return how a tool fails, or ONNX Runtime at the tool's result; "" if neither does."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        TOOLS[tool](source, target, feeds)
        onnxruntime.InferenceSession(target, options, ["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - whatever a tool raises
        return f"{type(error).__name__}: {error}"
    return ""


@cache
def hosts() -> dict[str, Host]:
    shipped = Host(HostOptions(vendors=[ROOT / "vendors"]))
    runtime = [spec.name for spec in shipped.passes if spec.vendor == "onnxruntime"]
    return {"default": Host(), "passes for ONNX Runtime": shipped.with_options(enable=runtime)}


def feeds_of(model: Path) -> Mapping[str, np.ndarray]:
    """Feeds that lie beside a model of the corpus, else generated ones."""
    stored = model.parents[1] / "feeds" / f"{model.stem}.A.npz"
    return load_feeds(stored) if stored.exists() else make_feeds(onnx.load(model))


def new_failures(
    tool: str, model: Path, feeds: Mapping[str, np.ndarray], directory: Path
) -> Iterator[str]:
    """Yield how a tool fails at outputs of a model that it takes."""
    logging.disable(logging.ERROR)  # the tools log to the root
    try:
        for name, host in hosts().items():
            output, target = directory / "output.onnx", directory / "target.onnx"
            if onnx.load(model, load_external_data=False).ir_version < 4:
                host = host.with_options(opset=13)  # else new weights are Constant nodes
            host.compile(model, output)
            after = failure(tool, output, target, feeds)
            if after and not failure(tool, model, target, feeds):
                yield f"{model.stem}, {name}, {tool}: {after}"
    finally:
        logging.disable(logging.NOTSET)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.downstream", description=__doc__)
    parser.add_argument("--models", default="*", help="a pattern of names; default: %(default)s")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    given = parser.parse_args()
    count = failed = 0
    for path in sorted(CORPUS.glob(f"models/{given.models}.onnx")):
        feeds = feeds_of(path)
        for tool in filter(is_installed, given.tools):
            with tempfile.TemporaryDirectory() as directory:
                for line in new_failures(tool, path, feeds, Path(directory)):
                    failed += 1
                    print(line[:500], flush=True)
            count += 1
    print(f"{failed} failures in {count} runs of tools on models")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
