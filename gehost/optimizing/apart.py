"""Keep a large model's weights in one file while candidates are built, so that all map it.

A candidate is then as small as its nodes. The result has the weights inside again, as the model had
them.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import onnx

from gehost.ir.files.external import OWN_WEIGHTS, external_tensors, is_external

LARGE = 64 << 20
"""Bytes of a file from which it pays."""
_LEAST = 1 << 12
"""Bytes of a weight that moves; smaller ones decide what passes do, and are read often."""
_PAGE = 4096


def put_apart(model: onnx.ModelProto, place: str) -> None:
    """Move large weights of the main graph to ``{place}{OWN_WEIGHTS}``, equal ones once."""
    import hashlib  # `from gehost import *` comes by here

    path = place + OWN_WEIGHTS
    at: dict[bytes, int] = {}
    with open(path, "wb") as file:
        for tensor in model.graph.initializer:
            if is_external(tensor) or len(tensor.raw_data) < _LEAST:
                continue
            digest = hashlib.sha256(tensor.raw_data).digest()
            if digest not in at:
                file.write(b"\0" * (-file.tell() % _PAGE))
                at[digest] = file.tell()
                file.write(tensor.raw_data)
            entries = {
                "location": os.path.basename(path),
                "offset": str(at[digest]),
                "length": str(len(tensor.raw_data)),
            }
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.ClearField("raw_data")


def put_back(model: onnx.ModelProto, place: str) -> None:
    """Read the weights that were put apart into the model again."""
    path = Path(place + OWN_WEIGHTS)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for tensor in external_tensors(model):
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries["location"] != path.name:
                continue
            offset = int(entries["offset"])
            tensor.raw_data = data[offset : offset + int(entries["length"])]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def size_inside(model: onnx.ModelProto) -> int:
    """Return the bytes of a model once the weights that were put apart are in it again."""
    more = 0
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries.get("location") != OWN_WEIGHTS:
            continue
        length, apart = int(entries["length"]), tensor.ByteSize()
        bare = onnx.TensorProto()
        bare.CopyFrom(tensor)
        bare.ClearField("external_data")
        bare.ClearField("data_location")
        inside = bare.ByteSize() + 1 + _varint(length) + length
        more += inside + _varint(inside) - apart - _varint(apart)
    graph = model.graph.ByteSize()
    return model.ByteSize() + more + _varint(graph + more) - _varint(graph)


def _varint(number: int) -> int:
    """Return the bytes of a length in protobuf's form."""
    return max(1, -(-number.bit_length() // 7))
