"""Record models for ``tests/vendors/onnxruntime/test_half_cases.py``: their graphs, without large weights.

How to run: ``python -m tools.models.half_cases DIR``, with DIR of the models. Of a weight of 512 or more elements the
archive holds mean and deviation, of which the test draws another; smaller ones, integers of 64 bits and booleans stay.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx

from tests.vendors.onnxruntime.half_cases import ARCHIVE

LARGE = 512
EXACT = (onnx.TensorProto.BOOL, onnx.TensorProto.INT64)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace the data of large weights by a text with their mean and deviation; drop metadata."""
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims) < LARGE or tensor.data_type in EXACT:
            continue
        array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        for data in ("raw_data", "float_data", "int32_data"):
            tensor.ClearField(data)
        tensor.doc_string = f"{array.mean():.3g} {array.std():.3g}"
    for value in model.graph.value_info:
        del value.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    return model


def main() -> int:
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
            data = without_weights(onnx.load(path)).SerializeToString()
            entry = tarfile.TarInfo(path.stem)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
