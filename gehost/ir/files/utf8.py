"""Check that texts of a model are UTF-8.

The protobuf runtime returns other texts as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from gehost.errors import ModelError


def check_utf8(proto: onnx.ModelProto, content: bytes | None = None) -> None:
    """Check that every text is UTF-8, at the cost of one parsing.

    Args:
        proto: the model.
        content: its bytes, or those of a copy without weights, if available.

    Raises:
        ModelError: a text is not; has its place.
    """
    try:
        _strict_model().FromString(proto.SerializeToString() if content is None else content)
    except DecodeError as error:
        where = _first_bytes(proto) or "a text"
        raise ModelError(f"{where} is not UTF-8", hint="export the model again") from error


@cache
def _strict_model() -> Any:
    """Return ONNX's ``ModelProto`` with proto3 rules, whose parser refuses invalid UTF-8."""
    file = FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    _drop_defaults(file.message_type)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(onnx.ModelProto.DESCRIPTOR.full_name))


def _drop_defaults(messages: Iterable[DescriptorProto]) -> None:
    for message in messages:
        for field in message.field:
            field.ClearField("default_value")
            field.ClearField("options")
        _drop_defaults(message.nested_type)


def _first_bytes(message: Message) -> str | None:
    """Return the first text that is not UTF-8, as ``graph.node[3].name``."""
    for descriptor, value in message.ListFields():
        for index, entry in enumerate(value if descriptor.is_repeated else [value]):
            here = f"{descriptor.name}[{index}]" if descriptor.is_repeated else descriptor.name
            if descriptor.type == FieldDescriptor.TYPE_STRING and isinstance(entry, bytes):
                return f"{here} ({entry[:100]!r})"
            if descriptor.type == FieldDescriptor.TYPE_MESSAGE and (inner := _first_bytes(entry)):
                return f"{here}.{inner}"
    return None
