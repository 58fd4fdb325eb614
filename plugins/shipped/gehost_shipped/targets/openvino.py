"""OpenVINO on the CPU: ONNX's own operators, and the attention that its importer takes."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from gehost import optimizing


class OpenVino(optimizing.Target):
    """OpenVINO's CPU plugin."""

    name = "openvino"
    vendors = ("gehost:onnx", "gehost:onnxruntime")
    passes = (
        "OrtSizesPass",
        "OrtProjectionPass",
        "OrtAttentionPass",
        "OrtPackedAttentionPass",
        "SlicesToSplitPass",
    )
    kernels = "cpu"
    standard = True
    operators = ("com.microsoft::Attention", "com.microsoft::MultiHeadAttention")

    def missing(self) -> str:
        try:
            importlib.import_module("openvino")
        except ImportError:
            return "OpenVINO is not installed: pip install 'openvino>=2025.1'"
        return ""

    def title(self) -> str:
        version: str = importlib.import_module("openvino").__version__
        return f"OpenVINO {version.partition('-')[0]}"

    def load(self, path: str, libraries: tuple[str, ...] = ()) -> None:
        del libraries  # of ONNX Runtime
        _compiled(path, 1)

    def runner(
        self,
        path: str,
        feeds: Mapping[str, Any],
        *,
        threads: int = 1,
        libraries: tuple[str, ...] = (),
    ) -> Callable[[], Callable[[], object]]:
        del libraries

        def make() -> Callable[[], object]:
            request = _compiled(path, threads).create_infer_request()
            arguments = dict(feeds)
            return lambda: request.infer(arguments, share_inputs=True, share_outputs=True)

        return make

    def clock(self, threads: int) -> Callable[[], float] | None:
        return time.process_time if threads == 1 else time.perf_counter

    def loaded(self, path: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        model = _compiled(path, 1)
        proto = onnx.ModelProto.FromString(Path(path).read_bytes())
        # behind a copy a result has two names, of which any_name is one or the other
        names = [value.name for value in proto.graph.output]

        def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
            results = model(dict(feeds))
            return {name: results[port] for name, port in zip(names, model.outputs, strict=True)}

        return run


def _compiled(path: str, threads: int) -> Any:
    """Compile a file for the CPU, in the precision of its types."""
    openvino: Any = importlib.import_module("openvino")
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    return openvino.Core().compile_model(path, "CPU", settings)
