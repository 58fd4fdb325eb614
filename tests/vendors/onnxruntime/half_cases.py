"""Exports in half precision and with integer weights: their recorded graphs, with weights that are drawn.

Made by torch 2.13.0, transformers 5.24.0, onnx 1.23.2, onnxconverter-common 1.16.0 and onnxruntime 1.32.0; recorded
by ``tools/models/half_cases.py``. Two layers of width 64 with 4 heads, of llama 2 of keys and values.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper

ARCHIVE = Path(__file__).parent / "half_cases.tar.xz"
BATCH, LENGTH, PAST = 2, 13, 7

Feed = dict[str, np.ndarray[Any, Any]]


def load(name: str) -> onnx.ModelProto:
    """Return a recorded model; its large weights have the mean and deviation of the true ones."""
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile(name)
        assert file is not None
        model = onnx.load_model_from_string(file.read())
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.doc_string:
            mean, deviation = map(float, tensor.doc_string.split())
            array = rng.normal(mean, deviation, tuple(tensor.dims))
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            if np.issubdtype(dtype, np.integer):
                limits = np.iinfo(dtype)
                array = np.clip(np.rint(array), limits.min, limits.max)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(dtype), tensor.name))
    return model


def feeds(model: onnx.ModelProto) -> Iterator[Feed]:
    """Yield inputs without padding, and with padding on the right and on the left of the last row."""
    inputs = {value.name: value.type.tensor_type for value in model.graph.input}
    past = PAST if any(name.startswith("past") for name in inputs) else 0
    third = (past + LENGTH) // 3
    for seed, padding in enumerate((slice(0), slice(-third, None), slice(third))):
        rng = np.random.default_rng(seed)
        results: Feed = {}
        for name, kind in inputs.items():
            shape = [size.dim_value for size in kind.shape.dim]
            if name == "attention_mask":
                array = np.ones((BATCH, past + LENGTH))
                array[-1, padding] = 0
            elif name.startswith("past"):
                array = rng.standard_normal((BATCH, shape[1], PAST, shape[3]))
            elif name == "token_type_ids":
                array = rng.integers(0, 2, (BATCH, LENGTH))
            elif len(shape) > 2:
                array = rng.standard_normal((BATCH, *shape[1:]))
            else:
                array = rng.integers(3, 200, (BATCH, LENGTH))
            results[name] = array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        yield results
