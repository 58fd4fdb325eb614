"""Strict readers of a model: what each of them refuses."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

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
