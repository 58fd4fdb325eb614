"""Heads of keys and values that a model repeats, read once by kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._shapes import all_same, shape_of

if TYPE_CHECKING:
    from gehost import Node, Value


@dataclass
class Heads:
    """A kernel's keys or values [B, M, T, H]; each head serves N/M of q."""

    value: Value
    count: int
    apart: bool
    """Whether it is [B, M, T, H], not [B, T, M·H]."""
    nodes: list[Node] = field(default_factory=list["Node"])
    """They repeat the heads."""


def keys_and_values(kernel: Node) -> tuple[Heads, Heads]:
    """Return k and v of a MultiHeadAttention without the repeats of heads."""
    heads = int(kernel.attrs["num_heads"])
    plain: list[Heads] = []
    for value in kernel.inputs[1:3]:
        assert value is not None
        plain.append(Heads(value, heads, len(shape_of(value) or ()) == 4))
    few = [_unrepeated(one) for one in plain]
    keys, values = few if few[0].count == few[1].count else plain
    return keys, values


def _unrepeated(plain: Heads) -> Heads:
    """Return the heads [B, M, T, H] that [B, N, T, H] repeats."""
    nodes: list[Node] = []
    given: Value | None = plain.value
    for op in ("Reshape", "Expand", "Unsqueeze"):
        node = None if given is None else given.producer
        if node is None or node.op != op:
            return plain
        nodes.append(node)
        given = node.inputs[0]
    assert given is not None
    after, between, single = (shape_of(node.outputs[0]) for node in nodes)
    before = shape_of(given)
    if before is None or between is None or len(before) != 4 or len(between) != 5:
        return plain
    count, times = before[1], between[2]
    if not isinstance(count, int) or not isinstance(times, int) or count * times != plain.count:
        return plain
    fits = (
        all_same(single, (*before[:2], 1, *before[2:]))
        and all_same(between, (*before[:2], times, *before[2:]))
        and all_same(after, (before[0], plain.count, *before[2:]))
    )
    return Heads(given, count, plain.apart, nodes) if fits else plain
