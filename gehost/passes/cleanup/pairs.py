"""Merge a node with the one before it.

1. ``Transpose(Transpose(x))``             ==>   x, or one Transpose
2. ``Cast(Cast(x))``: the type between holds all values of x   ==>   x, or one Cast
3. ``Slice(Slice(x))``: constant, of other axes, or in steps of 1 from the front   ==>   one Slice
4. ``Concat(Split(x))``: all parts, in order, on the same axis   ==>   x
5. ``Neg(Neg(x))``, ``Not(Not(x))``        ==>   x
6. ``f(f(x))``: f one of Abs, Ceil, Floor, Relu, Round, Sign    ==>   f(x)
7. ``Conv(Pad(x))``: zeros around the spatial axes   ==>   Conv with these pads
8. two nodes that only give another shape: ``views``
Keeps: every bit, and the name of the result.
Refused, where a node is left: a first result with other users, or to which something else refers by
name. Casts of floats to integers by way of another type, which runtimes cut off differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gehost.ir.constants import elements
from gehost.ir.graph import Node, Value
from gehost.ir.types import DataType, Dim
from gehost.passes.cleanup.dead import reap
from gehost.passes.cleanup.identity import forward_operand
from gehost.passes.cleanup.state import State
from gehost.passes.cleanup.views import VIEWS, merge_views

_Merge = Callable[[State, Node, Node], bool]


def merge_with_first(state: State, node: Node) -> bool:
    """Merge a node with the producer of its first input; returns False if both stay."""
    rule = _MERGES.get(node.op)
    if rule is None:
        return False
    merge, firsts = rule
    between = node.input(0)
    first = None if between is None else between.producer
    if first is None or first.op not in firsts:
        return False
    if (
        first.graph is not node.graph
        or node.outputs[0] is None
        or not all(map(state.purity.is_builtin, (node.op, first.op)))
        or not all(map(state.purity.is_well_formed, (node, first)))
    ):
        return False
    return merge(state, node, first)


def _skip(state: State, node: Node, first: Node) -> bool:
    """Let a node read what the first one reads, which goes."""
    between, source = node.input(0), first.input(0)
    assert between is not None
    if source is None or not state.is_only_reader(node, between):
        return False
    node.graph.set_input(node, 0, source)
    state.counts.identities += 1
    state.push(node)
    reap(state, [between])
    return True


def _transposes(state: State, node: Node, first: Node) -> bool:
    source = first.input(0)
    perms = [item.attrs.get("perm") for item in (first, node)]
    rank = next((len(perm) for perm in perms if perm is not None), None)
    if rank is None and source is not None:
        rank = source.rank
    if rank is None or source is None:
        return False
    inner, outer = ([*reversed(range(rank))] if perm is None else list(perm) for perm in perms)
    if sorted(inner) != sorted(outer) or sorted(inner) != [*range(rank)]:
        return False
    perm = [inner[axis] for axis in outer]
    if perm == sorted(perm) and forward_operand(state, node, source):
        return True
    if not _skip(state, node, first):
        return False
    node.graph.set_attribute(node, "perm", perm)
    return True


def _casts(state: State, node: Node, first: Node) -> bool:
    source = first.input(0)
    start = None if source is None else source.dtype
    if source is None or start is None:
        return False
    try:
        way, end = (DataType(item.attrs.get("to", 0)) for item in (first, node))
    except ValueError:
        return False
    if not _holds(way, start):
        return False
    if end == start:
        return forward_operand(state, node, source)
    if not (end in _FLOATS or end is DataType.BOOL) and start in _FLOATS:
        return False
    if end in _HALVES and not _holds(DataType.FLOAT, start):
        return False  # runtimes may round twice, via float32
    return (end in _DIGITS or end is DataType.BOOL) and _skip(state, node, first)


_FLOATS: Mapping[DataType, tuple[int, int]] = MappingProxyType(
    {
        DataType.FLOAT16: (11, 5),
        DataType.BFLOAT16: (8, 8),
        DataType.FLOAT: (24, 8),
        DataType.DOUBLE: (53, 11),
    }
)
"""Bits of the significand and of the exponent."""
_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)
_DIGITS: Mapping[DataType, int] = MappingProxyType(
    {dtype: bits for dtype, (bits, _) in _FLOATS.items()}
    | {
        dtype: 8 * dtype.numpy.itemsize - (dtype.numpy.kind == "i")
        for dtype in DataType
        if dtype.name in {f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
    }
)
"""Bits of the largest whole number up to which a type holds each."""


def _holds(wide: DataType, dtype: DataType) -> bool:
    """Whether a type holds every value of another: a cast there and back changes nothing."""
    if wide not in _DIGITS or (dtype not in _DIGITS and dtype is not DataType.BOOL):
        return False
    if dtype is DataType.BOOL:
        return True
    if dtype in _FLOATS:
        return wide in _FLOATS and all(
            most >= bits for most, bits in zip(_FLOATS[wide], _FLOATS[dtype], strict=True)
        )
    signed = dtype.numpy.kind == "i"
    if wide in _FLOATS:  # float16 ends at 65504, before the largest of 16 bits
        return _DIGITS[dtype] <= _DIGITS[wide]
    return _DIGITS[dtype] <= _DIGITS[wide] and (wide.numpy.kind == "i" or not signed)


def _repeated(state: State, node: Node, first: Node) -> bool:
    between = node.input(0)
    assert between is not None
    return forward_operand(state, node, between) or _skip(state, node, first)


def _undone(state: State, node: Node, first: Node) -> bool:
    source = first.input(0)
    return source is not None and forward_operand(state, node, source)


def _split_parts(state: State, node: Node, first: Node) -> bool:
    source = first.input(0)
    if source is None or list(node.inputs) != list(first.outputs):
        return False
    axes = [node.attrs.get("axis"), first.attrs.get("axis", 0)]
    rank = source.rank
    if rank is not None:
        axes = [axis + rank if isinstance(axis, int) and axis < 0 else axis for axis in axes]
    return axes[0] == axes[1] and forward_operand(state, node, source)


def _slices(state: State, node: Node, first: Node) -> bool:
    ranges = [_ranges(state, item) for item in (first, node)]
    inner, outer = ranges
    between = node.input(0)
    assert between is not None
    if inner is None or outer is None or not state.is_only_reader(node, between):
        return False
    merged = dict(inner)
    for axis, (start, end, step) in outer.items():
        before = inner.get(axis)
        if before is None:
            merged[axis] = (start, end, step)
        elif min(start, end, *before) >= 0 and step == before[2] == 1:
            first_place = min(before[0] + start, before[1])  # beyond the end there is nothing
            merged[axis] = (first_place, min(before[1], before[0] + end), 1)
        else:
            return False
    source = first.input(0)
    if source is None or not _set_ranges(state, node, source, merged):
        return False
    state.counts.identities += 1
    return True


_Ranges = dict[int, tuple[int, int, int]]
"""Axis → start, end and step."""


def _ranges(state: State, node: Node) -> _Ranges | None:
    """Return the ranges that a ``Slice`` takes, None if they are not constant."""
    lists = (
        [_numbers(node.attrs.get(name)) for name in ("starts", "ends", "axes")]
        if state.opset < _SLICES_BY_INPUTS
        else [_constant_numbers(node.input(slot)) for slot in range(1, 5)]
    )
    starts, ends, axes, steps = (*lists, None)[:4]
    if not starts or not ends:
        return None
    axes = [*range(len(starts))] if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    source = node.input(0)
    rank = None if source is None else source.rank
    ranges: _Ranges = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = axis if axis >= 0 or rank is None else axis + rank
        if place < 0 or place in ranges:
            return None
        ranges[place] = (start, end, step)
    return ranges


def _constant_numbers(value: Value | None) -> list[int] | None:
    """Return the integers of a constant; an empty list if it is none."""
    if value is None:
        return None
    return _numbers(value.elements) if value.is_constant else []


def _numbers(entries: Sequence[Dim] | None) -> list[int] | None:
    if entries is None:
        return None
    return [entry for entry in entries if isinstance(entry, int)]


def _set_ranges(state: State, node: Node, source: Value, ranges: _Ranges) -> bool:
    """Let a ``Slice`` take ranges of another tensor; they are attributes or constants, by opset."""
    graph, axes = node.graph, sorted(ranges)
    starts, ends, steps = ([ranges[axis][place] for axis in axes] for place in range(3))
    if state.opset < _SLICES_BY_INPUTS:
        attributes = {"starts": starts, "ends": ends, "axes": axes}
        reap(state, state.replace(node, "Slice", [source], attributes))
        return True
    if not graph.takes_constant(np.dtype(np.int64)):
        return False
    lists = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    if steps == [1] * len(steps):
        del lists["steps"]
    constants = [state.add_integers(graph, numbers, name) for name, numbers in lists.items()]
    reap(state, state.replace(node, "Slice", [source, *constants]))
    return True


def _pads_of_conv(state: State, node: Node, first: Node) -> bool:
    pads = _zeros_around(state, first)
    auto = node.attrs.get("auto_pad", "NOTSET")
    if pads is None or len(pads) < 6 or auto not in ("NOTSET", "VALID"):
        return False
    rank = len(pads) // 2
    begins, ends = pads[:rank], pads[rank:]
    own = node.attrs.get("pads") if auto == "NOTSET" else None
    own = [0] * 2 * (rank - 2) if own is None else own
    if any((*begins[:2], *ends[:2])) or len(own) != 2 * (rank - 2):
        return False
    if not _skip(state, node, first):
        return False
    sums = [number + more for number, more in zip(own, (*begins[2:], *ends[2:]), strict=True)]
    node.graph.set_attribute(node, "auto_pad", None)
    node.graph.set_attribute(node, "pads", sums)
    return True


def _zeros_around(state: State, pad: Node) -> list[int] | None:
    """Return how many zeros a ``Pad`` adds before and after each axis; None if others."""
    if pad.attrs.get("mode", "constant") != "constant":
        return None
    if state.opset < _PADS_BY_INPUTS:
        pads = pad.attrs.get("pads")
        return None if pad.attrs.get("value", 0.0) or pads is None else _not_negative(pads)
    amounts, value, axes = (pad.input(slot) for slot in (1, 2, 3))
    if amounts is None or not amounts.is_constant or amounts.elements is None:
        return None
    if value is not None:
        fill = elements(value) if value.is_constant else None
        if fill is None or fill.size != 1 or fill.astype(np.float64).any():
            return None
    if axes is None:
        return _not_negative(amounts.elements)
    source = pad.input(0)
    rank = None if source is None else source.rank
    places = axes.elements if axes.is_constant else None
    if rank is None or places is None or len(amounts.elements) != 2 * len(places):
        return None
    pads = [0] * 2 * rank
    for slot, axis in enumerate(places):
        for half in range(2):
            number = amounts.elements[slot + half * len(places)]
            if not isinstance(axis, int) or not isinstance(number, int) or not -rank <= axis < rank:
                return None
            pads[axis % rank + half * rank] = number
    return _not_negative(pads)


def _not_negative(pads: Sequence[Dim]) -> list[int] | None:
    numbers = [number for number in pads if isinstance(number, int) and number >= 0]
    return numbers if len(numbers) == len(pads) and len(pads) % 2 == 0 else None


_SLICES_BY_INPUTS = 10
_PADS_BY_INPUTS = 11
"""The first opsets where ranges and pads are inputs."""

_MERGES: Mapping[str, tuple[_Merge, frozenset[str]]] = MappingProxyType(
    {
        "Cast": (_casts, frozenset(("Cast",))),
        "Concat": (_split_parts, frozenset(("Split",))),
        "Conv": (_pads_of_conv, frozenset(("Pad",))),
        "Slice": (_slices, frozenset(("Slice",))),
        "Transpose": (_transposes, frozenset(("Transpose",))),
        **{op: (_undone, frozenset((op,))) for op in ("Neg", "Not")},
        **{
            op: (_repeated, frozenset((op,)))
            for op in ("Abs", "Ceil", "Floor", "Relu", "Round", "Sign")
        },
        **dict.fromkeys(VIEWS, (merge_views, VIEWS)),
    }
)
"""Operator → the rule, and the operators before it."""

OPERATORS: frozenset[str] = frozenset(_MERGES)
