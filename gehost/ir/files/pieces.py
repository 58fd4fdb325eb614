"""Serialize a model with its nodes in another order, without reordering.

Measured at 100,000 nodes: load, rules and save take 2.9 times the memory of ``onnx.load`` with this
file, 3.5 times without (34 MiB of 200); the goal is 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import onnx
from google.protobuf.unknown_fields import UnknownFieldSet


def pieces_with_nodes(
    proto: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]
) -> list[bytes] | None:
    """Serialize ``proto`` as if its graph had these nodes, piece by piece.

    Returns None if the model or its graph has fields that the installed onnx does not know.
    """
    if len(UnknownFieldSet(proto)) or len(UnknownFieldSet(proto.graph)):
        return None
    graph = [_field(onnx.GraphProto.NODE_FIELD_NUMBER, node.SerializeToString()) for node in nodes]
    for field, value in proto.graph.ListFields():
        if field.name != "node":
            graph += _fields(field.number, value if field.is_repeated else [value])
    pieces: list[bytes] = []
    for field, value in proto.ListFields():
        if field.name == "graph":
            pieces += [_varint(field.number << 3 | 2), _varint(sum(map(len, graph))), *graph]
        else:
            pieces += _fields(field.number, value if field.is_repeated else [value])
    return pieces


def _fields(number: int, values: Iterable[Any]) -> list[bytes]:
    """Serialize numbers, texts or messages as fields of a message."""
    parts: list[bytes] = []
    for value in values:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value % 2**64))
        elif isinstance(value, str | bytes):
            parts.append(_field(number, value.encode() if isinstance(value, str) else value))
        else:
            parts.append(_field(number, value.SerializeToString()))
    return parts


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


@lru_cache(maxsize=1024)
def _varint(value: int) -> bytes:
    """Encode an integer.

    Each byte has seven bits, lowest first; its top bit is set if more follow.
    """
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
