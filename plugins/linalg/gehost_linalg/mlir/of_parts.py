"""Operations on tensors in generic form, made as their own assembly makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from gehost_linalg.generic import Value
from gehost_linalg.mlir import carried, tensors
from gehost_linalg.mlir.function import Parts, Statement
from gehost_linalg.mlir.reader import Make, Reader
from gehost_linalg.reshape import COLLAPSE, EXPAND
from gehost_mlir.attributes import DYNAMIC, integers


def _sizes(text: str, computed: Iterator[Value]) -> list[int | Value]:
    """Static numbers with the computed ones in their places."""
    return [next(computed) if integer == DYNAMIC else integer for integer in integers(text)]


def _one(reader: Reader, statement: Statement, parts: Parts) -> tuple[Value, Value]:
    """The first operand and the one result."""
    if not parts.operands or len(parts.results) != 1:
        raise reader.error(f"{statement.name} has operands and one result", statement.start)
    return parts.operands[0], parts.results[0]


def _computed(
    reader: Reader, statement: Statement, parts: Parts, *names: str, skip: int
) -> Iterator[Value]:
    """The computed numbers, as many as the static ones leave open."""
    expected = sum(integers(parts.attributes.get(name, "")).count(DYNAMIC) for name in names)
    argument = parts.operands[skip:]
    if len(argument) != expected:
        raise reader.error(
            f"{statement.name} needs {expected} computed numbers, got {len(argument)}",
            statement.start,
        )
    return iter(argument)


_GROUPS = re.compile(r"\[\s*(?:\[\s*\d+(?:\s*,\s*\d+)*\s*\](?:\s*,\s*(?=\[))?)*\s*\]")
_LISTS = ("static_offsets", "static_sizes", "static_strides")


def _empty(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    if len(parts.results) != 1:
        raise reader.error("tensor.empty has one result", statement.start)
    return [tensors.make_empty(reader, parts.results[0], parts.operands, statement.start)]


def _dim(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    source, _ = _one(reader, statement, parts)
    return tensors.make_dim(reader, statement, source, parts.operands[-1], statement.start)


def _concat(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    _, result = _one(reader, statement, parts)
    axis = integers(parts.attributes.get("dim", "0"))[0]
    return tensors.make_concat(reader, parts.operands, axis, result, statement.start)


def _extract_slice(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    source, result = _one(reader, statement, parts)
    computed = _computed(reader, statement, parts, *_LISTS, skip=1)
    begins, sizes, steps = [_sizes(parts.attributes.get(item, ""), computed) for item in _LISTS]
    places = (statement.start, statement.start)
    return tensors.make_extract_slice(reader, source, (begins, sizes, steps), result, places)


def _insert_slice(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    part, result = _one(reader, statement, parts)
    computed = _computed(reader, statement, parts, *_LISTS, skip=2)
    lists = [_sizes(parts.attributes.get(item, ""), computed) for item in _LISTS]
    text = " ".join(map(carried.shown_list, lists))
    whole = parts.operands[1]
    return carried.make_insert_slice(
        reader, (part, whole), (text, parts.operands[2:]), result, statement.start
    )


def _extract(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    source, _ = _one(reader, statement, parts)
    return carried.make_extract(reader, statement, source, parts.operands[1:], statement.start)


def _cast(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    return tensors.make_cast(reader, *_one(reader, statement, parts), statement.start)


def _reshape(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
    source, result = _one(reader, statement, parts)
    text = parts.attributes.get("reassociation", "[]").replace(" : i64", "")
    if not _GROUPS.fullmatch(text):
        raise reader.error(f"{text} is no list of groups of axes", statement.start)
    groups = json.loads(text)
    sizes: list[int | Value] = []
    if statement.name == EXPAND:
        computed = _computed(reader, statement, parts, "static_output_shape", skip=1)
        sizes = _sizes(parts.attributes.get("static_output_shape", ""), computed)
    places = (statement.start, statement.start)
    return tensors.make_reshape(reader, statement, source, result, (groups, sizes), places)


MAKE: Mapping[str, Make] = {
    "arith.constant": tensors.constant_of_parts,
    "tensor.empty": _empty,
    "tensor.dim": _dim,
    "tensor.concat": _concat,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.extract": _extract,
    "tensor.cast": _cast,
    EXPAND: _reshape,
    COLLAPSE: _reshape,
}
"""By name; ``tensor.pad`` is read with its region."""


def pad_with_region(
    reader: Reader, statement: Statement, operands: list[Value], attributes: dict[str, str]
) -> Make:
    """Read the block of a ``tensor.pad`` that yields a value from outside.

    Raises:
        KeptAsText: the value is computed inside.
    """
    fill = carried.read_border(reader)

    def make(reader: Reader, statement: Statement, parts: Parts) -> list[Value]:
        source, result = _one(reader, statement, parts)
        computed = _computed(reader, statement, parts, "static_low", "static_high", skip=1)
        low, high = [
            _sizes(parts.attributes.get(name, ""), computed)
            for name in ("static_low", "static_high")
        ]
        nofold = "nofold" in parts.attributes
        return carried.make_pad(
            reader, (source, fill), (low, high), result, statement.start, nofold=nofold
        )

    del statement, operands, attributes
    return make
