"""Attributes of a node as Python values, decoded on access; their encoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx

from gehost.ir import tensors

if TYPE_CHECKING:
    from gehost.ir.graph import Graph
    from gehost.ir.node import Node

_KIND = onnx.AttributeProto
_INTEGER: tuple[type[Any], ...] = (bool, int, np.bool_, np.integer)
_NUMBER: tuple[type[Any], ...] = (*_INTEGER, float, np.floating)


class Attributes(Mapping[str, Any]):
    """Read-only mapping: numbers, ``str``, lists; tensors as numpy arrays, bodies as ``Graph``."""

    __slots__ = ("_node", "_protos")

    def __init__(self, node: Node | None, entries: Iterable[onnx.AttributeProto]) -> None:
        self._node = node
        self._protos = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> Any:
        proto = self._protos[name]
        assert self._node is not None
        if proto.type == _KIND.GRAPH:
            return self._body(proto.g)
        if proto.type == _KIND.GRAPHS:
            return [self._body(graph) for graph in proto.graphs]
        return attribute_value(proto, self._node.graph.model.base_dir)

    def __iter__(self) -> Iterator[str]:
        return iter(self._protos)

    def __len__(self) -> int:
        return len(self._protos)

    def __repr__(self) -> str:
        return repr(dict(self))

    def serialized(self) -> tuple[tuple[str, bytes], ...]:
        """Return every attribute's name and bytes, sorted by name.

        The result is a key for equality.
        """
        return tuple(
            sorted(
                (name, proto.SerializeToString(deterministic=True))
                for name, proto in self._protos.items()
            )
        )

    def _body(self, graph: onnx.GraphProto) -> Graph:
        assert self._node is not None
        return next(body for body in self._node.bodies if body.proto is graph)

    def constant_array(self, base_dir: str | None) -> np.ndarray[Any, Any] | None:
        """Return the value of a ``Constant``, None for a sparse one."""
        for name, proto in self._protos.items():
            if name == "value":
                return tensors.to_numpy(proto.t, base_dir)
            if name in ("value_int", "value_ints"):
                return _frozen(np.array(self[name], dtype=np.int64))
            if name in ("value_float", "value_floats"):
                return _frozen(np.array(self[name], dtype=np.float32))
            if name in ("value_string", "value_strings"):
                return _frozen(np.array(self[name], dtype=object))
        return None


NO_ATTRIBUTES = Attributes(None, ())
"""Shared by all nodes without attributes, which most are."""


def attribute_value(proto: onnx.AttributeProto, base_dir: str | None = None) -> Any:
    """Return the Python value of an attribute; graphs stay protobufs."""
    kind = proto.type
    if kind == _KIND.INT:
        return proto.i
    if kind == _KIND.INTS:
        return proto.ints[:]
    if kind == _KIND.FLOAT:
        return proto.f
    if kind == _KIND.FLOATS:
        return proto.floats[:]
    if kind == _KIND.STRING:
        return _text(proto.s)
    if kind == _KIND.STRINGS:
        return [_text(text) for text in proto.strings]
    if kind == _KIND.TENSOR:
        return tensors.to_numpy(proto.t, base_dir)
    if kind == _KIND.TENSORS:
        return [tensors.to_numpy(tensor, base_dir) for tensor in proto.tensors]
    return onnx.helper.get_attribute_value(proto)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def encode_attribute(name: str, value: Any) -> onnx.AttributeProto:
    """Encode a Python value; copy it if it is an ``AttributeProto``.

    Numpy arrays become tensors.

    Raises:
        TypeError: ONNX has no attribute type for the value.
    """
    proto = onnx.AttributeProto()
    if isinstance(value, onnx.AttributeProto):
        proto.CopyFrom(value)
        proto.name = name
        return proto
    proto.name = name
    if isinstance(value, _INTEGER):
        proto.type, proto.i = _KIND.INT, int(value)
    elif isinstance(value, _NUMBER):
        proto.type, proto.f = _KIND.FLOAT, float(value)
    elif isinstance(value, str | bytes):
        proto.type, proto.s = _KIND.STRING, _raw(value)
    elif isinstance(value, onnx.TensorProto):
        proto.type = _KIND.TENSOR
        proto.t.CopyFrom(value)
    elif isinstance(value, np.ndarray):
        proto.type = _KIND.TENSOR
        proto.t.CopyFrom(tensors.from_numpy(cast("np.ndarray[Any, Any]", value), ""))
    elif isinstance(value, onnx.GraphProto):
        proto.type = _KIND.GRAPH
        proto.g.CopyFrom(value)
    elif isinstance(value, onnx.TypeProto):
        proto.type = _KIND.TYPE_PROTO
        proto.tp.CopyFrom(value)
    elif isinstance(value, Sequence):
        items = list(cast("Sequence[Any]", value))
        if all(isinstance(item, _INTEGER) for item in items):
            proto.type = _KIND.INTS
            proto.ints.extend([int(item) for item in items])
        elif all(isinstance(item, _NUMBER) for item in items):
            proto.type = _KIND.FLOATS
            proto.floats.extend([float(item) for item in items])
        elif all(isinstance(item, str | bytes) for item in items):
            proto.type = _KIND.STRINGS
            proto.strings.extend([_raw(item) for item in items])
        else:
            raise TypeError(f'attribute "{name}": ONNX has no type for a list of mixed kinds')
    else:
        raise TypeError(
            f'attribute "{name}": ONNX has no type for values of {type(value).__name__}'
        )
    return proto


def _raw(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
