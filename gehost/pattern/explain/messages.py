"""Messages about near misses, with the nodes and tensors of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np

from gehost.es.functions import COMMUTATIVE
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.types import TYPE_ATTRIBUTES, DataType, dtype_from_number
from gehost.pattern.fits import (
    ABSENT,
    UNREADABLE,
    has_other_attributes,
    parameter,
    parameter_holds,
)
from gehost.pattern.source import Kind, OpPattern, TensorPattern

_SHOWN = 16
"""Largest number of elements of a constant that are written out."""

_NAME_A_TYPE = TYPE_ATTRIBUTES | {"stash_type"}

Mismatch: TypeAlias = tuple[str, str, str]
"""Wanted, found and a remark about a node or tensor; the latter two may be "".
"""


def join_mismatches(
    about: Node | Value | None, tried: Sequence[tuple[int | None, Mismatch]]
) -> str:
    """Join mismatches at one place, equally close, into one sentence.

    Args:
        about: the node or tensor.
        tried: each attempt's input of the node, or None, and its mismatch.
    """
    if isinstance(about, Node):
        subject = f'"{about.label}":' if tried[0][0] is None else named(about)
    else:
        subject = f'tensor "{name_of(about)}":'
    return f"{subject} {_wishes(tuple(tried))}"


@lru_cache(maxsize=1024)
def _wishes(tried: tuple[tuple[int | None, Mismatch], ...]) -> str:
    """Return the sentence without its subject.

    Most misses of a pattern differ only in it.
    """
    by_wanted: dict[str, dict[int | None, str]] = {}
    for slot, (expected, actual, _) in sorted(tried, key=lambda item: item[0] or 0):
        by_wanted.setdefault(expected, {})[slot] = actual
    parts: list[str] = []
    while by_wanted:
        there = next(iter(by_wanted.values()))
        wishes = [item for item, at in by_wanted.items() if at == there]
        by_wanted = {item: at for item, at in by_wanted.items() if at != there}
        actual = f", got {_listed(list(there.values()))}" if any(there.values()) else ""
        slots = [str(slot) for slot in there if slot is not None]
        place = f"input{'s' if len(slots) > 1 else ''} {_listed(slots)}: " if slots else ""
        parts.append(f"{place}wanted {' or '.join(wishes)}{actual}")
    rest = next((rest for _, (_, _, rest) in tried if rest), "")
    return f"{'; '.join(parts)}{rest}"


def _listed(parts: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``.

    A list whose parts contain commas gets ", and".
    """
    last = ", and " if any("," in part for part in parts) else " and "
    return last.join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def named(node: Node) -> str:
    """Return a node's name for messages: ``Add "/l0/add"``."""
    return f'{node.op} "{node.label}"'


def node_problem(node: Node, problem: str) -> str:
    """Return the message of a problem with a node as a whole."""
    return f"{named(node)} {problem}"


def operator_problem(op: OpPattern, node: Node) -> Mismatch:
    """Return the mismatch of a node with another operator."""
    return op.label, node.op, ""


def count_problem(op: OpPattern, node: Node) -> str:
    """Return the message of a node with another number of inputs."""
    return node_problem(
        node,
        f"inputs: wanted {len(op.inputs)}, got {sum(value is not None for value in node.inputs)}",
    )


def parameter_problem(op: OpPattern, node: Node, bound: dict[str, Any]) -> str:
    """Return the first mismatch of a node's parameters, or "".

    Values of variables are added to ``bound``.
    """
    if op.exact_attributes is not None and has_other_attributes(op, node):
        return (
            f"attributes: wanted none but {sorted(op.exact_attributes)}, got {sorted(node.attrs)}"
        )
    signature = op.ops[node.op]
    for constraint in op.constraints:
        before = bound.get(constraint.wanted) if constraint.kind is Kind.BIND else constraint.wanted
        if not parameter_holds(constraint, node, signature, bound):
            actual = parameter(node, constraint.name, signature)
            actual_text = (
                "no constant"
                if actual is UNREADABLE
                else "nothing"
                if actual is ABSENT
                else parameter_text(node.op, constraint.name, actual)
            )
            expected = parameter_text(node.op, constraint.name, before)
            wish = {
                Kind.ABSENT: "nothing",
                Kind.AS_ABSENT: "its default",
                Kind.BIND: "a known value" if before is None else expected,
                Kind.PREDICATE: "a value that its condition accepts",
            }.get(constraint.kind, expected)
            return f"{constraint.name}: wanted {wish}, got {actual_text}"
    return ""


def operand_problem(
    node: Node,
    slot: int,
    tensor: TensorPattern | None,
    value: Value | None,
    bound: Mapping[int, Value | None],
) -> str | Mismatch:
    """Return why a value does not fit an operand.

    The result is a text if it depends on the operands' order.
    """
    if tensor is None:
        return f'{named(node)} input {slot}: wanted none, got "{name_of(value)}"'
    if value is None:
        return f"{named(node)} input {slot}: it is absent"
    if tensor.index in bound and bound[tensor.index] is not value:
        return (
            f'{named(node)} input {slot}: wanted "{name_of(bound[tensor.index])}" again, got '
            f'"{value.name}"'
        )
    if tensor.constant is None:
        wishes = {
            "dtype": tensor.dtype and tensor.dtype.name,
            "rank": tensor.rank,
            "shape": tensor.shape,
        }
        wanted_text = ", ".join(
            f"{what} {wish}" for what, wish in wishes.items() if wish is not None
        )
        return wanted_text, f'"{value.name}", {value.type or "of which nothing is known"}', ""
    if not value.is_constant:
        return "a constant", f'"{value.name}", {maker(value)}', ""
    array = tensor.constant.array
    wish = (
        "a constant"
        if array is None
        else f"the constant {_shown(array.tolist())}"
        if array.size <= _SHOWN
        else "another constant"
    )
    constant_array = value.array
    actual = (
        "sparse"
        if constant_array is None
        else _shown(constant_array.tolist())
        if constant_array.size <= _SHOWN
        else str(value.type)
    )
    return wish, f'"{value.name}", {actual}', ""


def producer_problem(
    op: OpPattern,
    output: int,
    value: Value,
    node: Node,
    slot: int,
    reading: OpPattern | None = None,
) -> Mismatch:
    """Return the mismatch between ``value``'s producer and output ``output`` of ``op``.

    Args:
        node: reads it at input ``slot``.
        reading: the operator that ``node`` is already bound to, if any.
    """
    producer = value.producer
    if producer is not None and producer.op in op.ops:
        expected, actual = f"output {output} of {op.label}", f'"{value.name}", output {value.index}'
    else:
        expected, actual = (
            op.label,
            maker(value) if producer is not None else f'"{value.name}", {maker(value)}',
        )
    hint = ""
    if (
        reading is not None
        and not reading.commutative
        and node.op in COMMUTATIVE
        and len(node.inputs) == 2
    ):
        other = node.inputs[1 - slot]
        if other is not None and other.producer is not None and other.producer.op in op.ops:
            hint = f"; input {1 - slot} is {other.producer.op}: es.Commutative tries both orders"
    return expected, actual, hint


def reader_problem(op: OpPattern, value: Value) -> Mismatch:
    """Return why no user of ``value`` fits ``op``."""
    readers = list(dict.fromkeys(node.op for node, _ in value.consumers()))
    read = (
        f"it is read by {', '.join(readers[:3])}{' …' if len(readers) > 3 else ''}"
        if readers
        else "no node reads it"
    )
    return op.label, "", f" to read it; {read}"


def leak_problem(value: Value, outside: Sequence[Node | Graph]) -> str:
    """Return the message of an inner tensor with users outside the match."""
    reader = outside[0]
    if isinstance(reader, Node):
        within = "" if reader.graph is value.graph else f' in graph "{reader.graph.name}"'
        reason = f'read by "{reader.label}"{within}'
    else:
        reason = (
            "an output of the graph"
            if reader is value.graph
            else f'an output of graph "{reader.name}"'
        )
    return (
        f'tensor "{value.name}" is also '
        f"{reason}{f' and {len(outside) - 1} more' if len(outside) > 1 else ''}"
    )


def maker(value: Value) -> str:
    """Return the producer of a tensor, with the pass that made it."""
    node = value.producer
    if node is None:
        if value.is_constant:
            return "a constant"
        return (
            "an initializer that callers may override"
            if value.initializer is not None
            else "an input of the graph"
        )
    by = made_by(node)
    return f"{node.op} (made by {by})" if by else node.op


def made_by(node: Node) -> str:
    """Return the pass that made a node, or ""."""
    if node.is_traced:  # runs for each miss: building a dict of all entries would be much slower
        for entry in node.proto.metadata_props:
            if entry.key == "gehost.pass":
                return entry.value
    return ""


def parameter_text(op: str, name: str, value: Any) -> str:
    """Return a parameter's value as text: the name of an element type, not ONNX's number."""
    if name in _NAME_A_TYPE and "::" not in op and isinstance(value, int):
        dtype = dtype_from_number(value)
        # Two calls of str: in machine code one expression of both would be a plain int.
        return str(value) if dtype is DataType.UNDEFINED else str(dtype)
    return _shown(value)


def _shown(value: Any) -> str:
    """Return a parameter or a constant's elements as text.

    Floats are as short as float32 if that is exact.
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, cast('list[Any]', value)))}]"
    if isinstance(value, DataType):
        return str(value)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            short = np.float32(value)
        if float(short) == value:
            return str(short)
    return repr(value)


def name_of(value: Value | None) -> str:
    return "" if value is None else value.name
