"""Keep a large model's weights in one file while candidates are built, so that all map it.

A candidate is then as small as its nodes. The result has the weights inside again, as the model had
them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import onnx

from gehost.ir.files.external import OWN_WEIGHTS, is_external
from gehost.ir.files.pieces import fields, varint

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


def pieces_inside(model: onnx.ModelProto, place: str) -> Iterator[bytes]:
    """Serialize a model with the weights that were put apart in it again, one after the other."""
    for kind, value in model.ListFields():
        if kind.name != "graph":
            yield from fields(kind.number, value if kind.is_repeated else [value])
            continue
        yield varint(kind.number << 3 | 2)
        yield varint(model.graph.ByteSize() + _more(model))
        for inner, content in model.graph.ListFields():
            if inner.name == "initializer":
                yield from _initializers(model.graph, Path(place + OWN_WEIGHTS))
            else:
                yield from fields(inner.number, content if inner.is_repeated else [content])


def _initializers(graph: onnx.GraphProto, path: Path) -> Iterator[bytes]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for tensor in graph.initializer:
            if is_external(tensor):
                entries = {entry.key: entry.value for entry in tensor.external_data}
                offset, bare = int(entries["offset"]), _bare(tensor)
                bare.raw_data = data[offset : offset + int(entries["length"])]
                tensor = bare
            yield from fields(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, [tensor])


def size_inside(model: onnx.ModelProto) -> int:
    """Return the bytes of a model once the weights that were put apart are in it again."""
    graph, more = model.graph.ByteSize(), _more(model)
    return model.ByteSize() + more + len(varint(graph + more)) - len(varint(graph))


def _more(model: onnx.ModelProto) -> int:
    """Return how many bytes the graph grows by them."""
    more = 0
    for tensor in model.graph.initializer:
        if not is_external(tensor):
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        length, apart = int(entries["length"]), tensor.ByteSize()
        inside = _bare(tensor).ByteSize() + 1 + len(varint(length)) + length
        more += inside + len(varint(inside)) - apart - len(varint(apart))
    return more


def _bare(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Return a copy without the place of its elements."""
    bare = onnx.TensorProto()
    bare.CopyFrom(tensor)
    bare.ClearField("external_data")
    bare.ClearField("data_location")
    return bare
