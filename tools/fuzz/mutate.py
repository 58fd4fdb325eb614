"""Damaged model files: bytes, wire format and messages of real models changed at random, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

EXTREMES = (
    0,
    1,
    -1,
    2,
    7,
    16,
    99,
    127,
    128,
    255,
    1 << 16,
    1 << 31,
    -(1 << 31),
    (1 << 32) - 1,
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
)
HOSTILE_TEXTS = (
    "",
    "\0",
    "a\nb",
    "../../x",
    "<script>",
    "\x1b[31m",
    "x" * 5000,
    "ünï",
    "ai.onnx",
    "local",
    "If",
    "Concat",
    "Shape",
    "value",
)

_VARINT, _BYTES = 0, 2
_INTEGERS = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_ENUM,
    }
)
_FLOATS = frozenset({FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE})


@dataclass
class Seed:
    """A model to damage, and what its messages and texts are, by type, to put in the place of others."""

    content: bytes
    messages: dict[str, list[Message]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        texts: dict[str, None] = {}
        waiting: list[Message] = [onnx.ModelProto.FromString(self.content)]
        while waiting:
            message = waiting.pop()
            self.messages.setdefault(message.DESCRIPTOR.full_name, []).append(message)
            for descriptor, value in message.ListFields():
                values = value if descriptor.is_repeated else [value]
                if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
                    waiting.extend(values)
                elif descriptor.type == FieldDescriptor.TYPE_STRING:
                    texts.update(dict.fromkeys(values))
        self.texts = [*texts, *HOSTILE_TEXTS]


def mutated(seed: Seed, rng: random.Random) -> bytes:
    """The seed's file with one to four changes of one kind."""
    times = rng.choice((1, 1, 1, 2, 4))
    kind = rng.choice((_in_bytes, _in_wire_format, _in_messages, _in_messages, _in_messages))
    return kind(seed, rng, times)


# -- bytes ----------------------------------------------------------------------------------------------------------


def _flip(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _insert(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content) + 1)
    content[at:at] = rng.randbytes(rng.choice((1, 2, 8)))


def _delete(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    del content[at : at + rng.choice((1, 2, 8, 64))]


def _double(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    content[at:at] = content[at : at + rng.choice((1, 8, 64, 512))]


def _cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


_BYTE_CHANGES: Sequence[Callable[[bytearray, random.Random], None]] = (
    _flip,
    _flip,
    _insert,
    _delete,
    _double,
    _cut,
)


def _in_bytes(seed: Seed, rng: random.Random, times: int) -> bytes:
    content = bytearray(seed.content)
    for _ in range(times):
        if content:
            rng.choice(_BYTE_CHANGES)(content, rng)
    return bytes(content)


# -- the wire format ------------------------------------------------------------------------------------------------


@dataclass
class _Field:
    """A field as it is written: number, wire type, and its value or the fields of the message that it is."""

    number: int
    wire: int
    value: int | bytes
    inner: list[_Field] | None = None


def _in_wire_format(seed: Seed, rng: random.Random, times: int) -> bytes:
    root = _Field(0, _BYTES, b"", _fields(seed.content, onnx.ModelProto.DESCRIPTOR))
    for _ in range(times):
        parent = root
        while (
            inner := [entry for entry in parent.inner or () if entry.inner]
        ) and rng.random() < 0.8:
            parent = rng.choice(inner)
        if parent.inner:
            _change_fields(parent.inner, rng)
    return _written(root.inner or [])


def _change_fields(fields: list[_Field], rng: random.Random) -> None:
    at, other = rng.randrange(len(fields)), rng.randrange(len(fields))
    entry = fields[at]
    match rng.randrange(6):
        case 0:
            del fields[at]
        case 1:
            fields.insert(other, entry)
        case 2:
            fields[at], fields[other] = fields[other], entry
        case 3:
            fields[at] = _Field(
                rng.choice((rng.randrange(1, 30), 1000)), entry.wire, entry.value, entry.inner
            )
        case 4:
            fields[at] = _Field(entry.number, _VARINT, rng.choice(EXTREMES) % (1 << 64))
        case _:
            fields[at] = _Field(
                entry.number, _BYTES, rng.choice((b"", b"\xff\xfe", rng.randbytes(9)))
            )


def _fields(content: bytes, message: Descriptor) -> list[_Field]:
    results: list[_Field] = []
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == _VARINT:
            value, at = _varint(content, at)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, at = _varint(content, at)
            value, at = content[at : at + size], at + size
        cached = message.fields_by_number.get(number)
        is_message = (
            cached is not None and cached.message_type is not None and isinstance(value, bytes)
        )
        results.append(
            _Field(number, wire, value, _fields(value, cached.message_type) if is_message else None)
        )
    return results


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _written(fields: list[_Field]) -> bytes:
    parts: list[bytes] = []
    for entry in fields:
        parts.append(_as_varint(entry.number << 3 | entry.wire))
        if isinstance(entry.value, int):
            parts.append(_as_varint(entry.value))
            continue
        value = entry.value if entry.inner is None else _written(entry.inner)
        parts.extend([_as_varint(len(value)), value] if entry.wire == _BYTES else [value])
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    output = bytearray()
    while value > 127:
        output.append(value & 127 | 128)
        value >>= 7
    return bytes([*output, value])


# -- messages -------------------------------------------------------------------------------------------------------


def _in_messages(seed: Seed, rng: random.Random, times: int) -> bytes:
    proto = onnx.ModelProto.FromString(seed.content)
    for _ in range(times):
        message: Message = proto
        while inner := _inner_messages(message):
            if rng.random() < 0.15:
                break
            message = rng.choice(rng.choice(inner))
        _change_message(message, seed, rng)
    return proto.SerializeToString()


def _inner_messages(message: Message) -> list[Any]:
    """The fields of a message that hold messages, each as a sequence of them."""
    return [
        value if descriptor.is_repeated else [value]
        for descriptor, value in message.ListFields()
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE
    ]


def _change_message(message: Message, seed: Seed, rng: random.Random) -> None:
    if rng.random() < 0.15:
        message.CopyFrom(_any_message(message.DESCRIPTOR, seed, rng))
        return
    # A field that is not set is less often of interest than one that is.
    present = [descriptor for descriptor, _ in message.ListFields()]
    descriptor = rng.choice(
        present if present and rng.random() < 0.8 else message.DESCRIPTOR.fields
    )
    if descriptor.is_repeated:
        _change_repeated(getattr(message, descriptor.name), descriptor, seed, rng)
    elif rng.random() < 0.2:
        message.ClearField(descriptor.name)
    elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, descriptor.name).CopyFrom(_any_message(descriptor.message_type, seed, rng))
    else:
        setattr(
            message,
            descriptor.name,
            _any_value(descriptor, getattr(message, descriptor.name), seed, rng),
        )


def _change_repeated(
    values: Any, descriptor: FieldDescriptor, seed: Seed, rng: random.Random
) -> None:
    is_message = descriptor.type == FieldDescriptor.TYPE_MESSAGE
    at = rng.randrange(len(values)) if values else 0
    kind = rng.randrange(4) if values else 3
    if kind == 0:
        del values[at]
    elif kind == 1:  # a node, an input or a dimension goes elsewhere
        moved = [*values]
        moved.insert(rng.randrange(len(moved)), moved.pop(at))
        copies = [
            type(entry).FromString(entry.SerializeToString()) if is_message else entry
            for entry in moved
        ]
        del values[:]
        values.extend(copies)
    elif kind == 2 and not is_message:
        values[at] = _any_value(descriptor, values[at], seed, rng)
    else:
        values.append(
            _any_message(descriptor.message_type, seed, rng)
            if is_message
            else _any_value(descriptor, None, seed, rng)
        )


def _any_message(kind: Descriptor, seed: Seed, rng: random.Random) -> Message:
    cached = seed.messages.get(kind.full_name)
    return rng.choice(cached) if cached else GetMessageClass(kind)()


def _any_value(descriptor: FieldDescriptor, old: Any, seed: Seed, rng: random.Random) -> Any:
    if descriptor.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(seed.texts)
    if descriptor.type == FieldDescriptor.TYPE_BYTES:
        return _any_bytes(old or b"", rng)
    if descriptor.type in _FLOATS:
        return rng.choice((0.0, -1.0, 1e38, float("inf"), float("nan")))
    assert descriptor.type in _INTEGERS
    if descriptor.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice(descriptor.enum_type.values).number
    low, high = (
        (0, 1 << 64) if descriptor.type == FieldDescriptor.TYPE_UINT64 else (-(1 << 63), 1 << 63)
    )
    if descriptor.type == FieldDescriptor.TYPE_INT32:
        low, high = -(1 << 31), 1 << 31
    return rng.choice([number for number in (*EXTREMES, *range(28)) if low <= number < high])


def _any_bytes(old: bytes, rng: random.Random) -> bytes:
    """Of the same length rather often: what is still well-formed gets further."""
    if rng.random() < 0.3 or not old:
        return rng.choice((b"", b"\xff\xfe", old + b"\0", old[:-1]))
    if len(old) % 8 == 0 and rng.random() < 0.7:  # as an int64 somewhere in it
        at = rng.randrange(len(old) // 8) * 8
        return old[:at] + (rng.choice(EXTREMES) % (1 << 64)).to_bytes(8, "little") + old[at + 8 :]
    return rng.randbytes(len(old))


def parses(content: bytes) -> bool:
    """Whether protobuf takes a file for a model."""
    try:
        onnx.ModelProto.FromString(content)
    except DecodeError:
        return False
    return True
