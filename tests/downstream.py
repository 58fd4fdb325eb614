"""``python -m tests.downstream``: tools that people run on an output take it where they took the input.

Quantizers and the float16 converter of ONNX Runtime, onnx's version converter and, where it is
installed, onnxslim, on every model of the corpus, compiled by default, with all passes for ONNX
Runtime, and by ``gehost optimize --for any``. Exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import logging
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

from tests.validity import ANY, CORPUS, feeds_of, ways


class _Feeds(CalibrationDataReader):
    def __init__(self, feeds: Mapping[str, np.ndarray]) -> None:
        self._feeds: Iterator[Mapping[str, np.ndarray]] = iter([feeds])

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self._feeds, None)


def dynamic(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    quantize_dynamic(source, target)


def static(source: Path, target: Path, feeds: Mapping[str, np.ndarray]) -> None:
    quantize_static(source, target, _Feeds(feeds))


def four_bits(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    module = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    quantizer = module.MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


def float16(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    module = importlib.import_module("onnxruntime.transformers.float16")
    onnx.save(module.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def newer(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    onnx.save(onnx.version_converter.convert_version(onnx.load(source), 21), target)


def slim(source: Path, target: Path, _feeds: Mapping[str, np.ndarray]) -> None:
    with redirect_stdout(io.StringIO()):  # a table
        importlib.import_module("onnxslim").slim(str(source), str(target))


def is_installed(tool: str) -> bool:
    return tool != "onnxslim" or importlib.util.find_spec(tool) is not None


TOOLS: dict[str, Callable[[Path, Path, Mapping[str, np.ndarray]], None]] = {
    "quantize_dynamic": dynamic,
    "quantize_static": static,
    "4-bit weights": four_bits,
    "float16": float16,
    "version converter": newer,
    "onnxslim": slim,
}

CONVERTERS = ("4-bit weights", "float16", "version converter")
"""They know ONNX's own operators alone, and drop functions: they take what ``--for any`` writes."""


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


def new_failures(
    tool: str,
    model: Path,
    feeds: Mapping[str, np.ndarray],
    directory: Path,
    names: Collection[str] = (),
) -> Iterator[str]:
    """Yield how a tool fails at outputs of a model that it takes."""
    logging.disable(logging.ERROR)  # the tools log to the root
    try:
        old = onnx.load(model, load_external_data=False).ir_version < 4
        for name in names or ([ANY] if tool in CONVERTERS else ways()):
            output, target = directory / "output.onnx", directory / "target.onnx"
            # of an old model new weights are Constant nodes
            ways()[name](model, output, 13 if old else None)
            after = failure(tool, output, target, feeds)
            if after and not failure(tool, model, target, feeds):
                yield f"{model.stem}, {name}, {tool}: {after}"
    finally:
        logging.disable(logging.NOTSET)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.downstream", description=__doc__)
    parser.add_argument("--models", default="*", help="a pattern of names; default: %(default)s")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--ways", nargs="+", default=(), choices=list(ways()))
    value = parser.parse_args()
    count = failed = 0
    for path in sorted(CORPUS.glob(f"models/{value.models}.onnx")):
        feeds = feeds_of(path)[0]
        for tool in filter(is_installed, value.tools):
            with tempfile.TemporaryDirectory() as directory:
                for line in new_failures(tool, path, feeds, Path(directory), value.ways):
                    failed += 1
                    print(line[:500], flush=True)
            count += 1
    print(f"{failed} failures in {count} runs of tools on models")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
