"""What XLA computed: texts, inputs and outputs of ``make_texts.py``, and ONNX Runtime on an import of a text."""

from __future__ import annotations

import functools
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from gehost_hlo import Settings, import_module, parse

ARCHIVE = Path(__file__).parent / "recorded.tar.xz"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Recorded:
    """A program: its text before XLA's passes, the text after them ("" where it is not recorded), inputs and XLA's outputs."""

    text: str
    after: str
    inputs: list[Array]
    outputs: list[Array]


@functools.cache
def programs() -> dict[str, Recorded]:
    """Return all programs by ``set/name``."""
    texts: dict[str, str] = {}
    arrays: dict[str, dict[str, Array]] = {}
    with tarfile.open(ARCHIVE) as file:
        for entry in file:
            content = file.extractfile(entry)
            assert content is not None
            if entry.name.endswith(".hlo"):
                texts[entry.name.removesuffix(".hlo")] = content.read().decode()
            else:
                name, _, key = entry.name.removesuffix(".npy").rpartition("/")
                arrays.setdefault(name, {})[key] = np.load(io.BytesIO(content.read()))
    return {
        name: Recorded(
            texts[name], texts.get(f"{name}.after", ""), _list(array, "in_"), _list(array, "out_")
        )
        for name, array in arrays.items()
    }


def _list(arrays: dict[str, Array], start: str) -> list[Array]:
    return [arrays[f"{start}{k}"] for k in range(sum(key.startswith(start) for key in arrays))]


def imported(text: str, **settings: Any) -> onnx.ModelProto:
    model = import_module(parse(text), Settings(**settings))
    onnx.checker.check_model(model)
    return model


def run(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Run a model without ONNX Runtime's optimizations; bfloat16 comes in and goes out as float32."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        _with_float_outputs(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds: dict[str, Any] = {}
    for entry, array in zip(model.graph.input, inputs, strict=True):
        if entry.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            bits = array.astype(ml_dtypes.bfloat16).view(np.uint16)
            feeds[entry.name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                bits, TensorProto.BFLOAT16
            )
        else:
            feeds[entry.name] = onnxruntime.OrtValue.ortvalue_from_numpy(
                np.ascontiguousarray(array).reshape(array.shape)  # else a scalar gets a dimension
            )
    return [value.numpy() for value in session.run_with_ort_values(None, feeds)]


def _with_float_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.graph.output:
        if entry.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            copy.graph.node.append(
                helper.make_node(
                    "Cast", [entry.name], [f"{entry.name}:float"], to=TensorProto.FLOAT
                )
            )
            entry.name = f"{entry.name}:float"
            entry.type.tensor_type.elem_type = TensorProto.FLOAT
    return copy


def difference(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference in units of the largest finite number of each output; inf where integers or nan differ."""
    worst = 0.0
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        if right.dtype.kind in "biu":
            if not np.array_equal(left, right):
                return float("inf")
            continue
        a, b = left.astype(np.float64), right.astype(np.float64)
        odd = ~np.isfinite(a) | ~np.isfinite(b)
        if not np.array_equal(a[odd], b[odd], equal_nan=True):
            return float("inf")
        scale = np.abs(b[~odd]).max(initial=0.0)
        if scale:
            worst = max(worst, float((np.abs(a[~odd] - b[~odd]) / scale).max()))
        elif np.abs(a[~odd]).max(initial=0.0):
            return float("inf")
    return worst
