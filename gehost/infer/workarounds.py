"""Where ONNX's own inference says what is not true, and what it is asked instead.

1. ``STFT``: an absent ``onesided`` is taken for 0, though the operator's default is 1. It is asked
with the default written out. 2. ``Attention``: sizes that are no numbers are computed with as if
they were 0 (the past's length plus the present's, heads
   times their size). It is asked twice with numbers in their place; what comes out equal, or as the
   same symbol, is true.
Source: onnx 1.23, found by ``tests/backend``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import onnx

from gehost.ir.types import Dim, TensorType, ValueType

_COMPUTED = frozenset({"Attention"})
_UNIT = 2**10 * 45045
"""Sizes that are tried are multiples of it, so that whatever number of heads divides them."""

Types = Sequence[ValueType | None]


def spelled_out(proto: onnx.NodeProto) -> onnx.NodeProto:
    """A node with those defaults written out that inference gets wrong."""
    if (
        proto.op_type != "STFT"
        or proto.domain not in ("", "ai.onnx")
        or any(entry.name == "onesided" for entry in proto.attribute)
    ):
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.attribute.append(onnx.helper.make_attribute("onesided", 1))
    return copy


def checked(op: str, types: Types, said: Types, ask: Callable[[Types], Types | None]) -> Types:
    """What is true of ``said``, the types of a node's outputs.

    Args:
        op: the operator's name.
        types: of the inputs.
        said: what inference made of them.
        ask: what inference makes of other types, None where it refuses them.
    """
    if op not in _COMPUTED or all(_is_static(known) for known in types if known is not None):
        return said
    numbers: list[dict[int, str | None]] = [{}, {}]
    answers = [ask(_numbered(types, offset, found)) for offset, found in enumerate(numbers)]
    if (
        any(isinstance(known, TensorType) and known.shape is None for known in types)
        or None in answers
    ):
        return [
            TensorType(known.dtype, None) if isinstance(known, TensorType) else known
            for known in said
        ]
    return [
        _agreed(known, pair, numbers)
        for known, *pair in zip(said, *filter(None, answers), strict=True)
    ]


def _is_static(known: ValueType) -> bool:
    return isinstance(known, TensorType) and known.size is not None


def _numbered(types: Types, offset: int, found: dict[int, str | None]) -> Types:
    """The types with a number for each symbol, and for each size that has none; ``found`` says
    which it stands for.
    """
    factors = count(2 + offset, 2)
    named: dict[str, int] = {}

    def number(dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        size = named.get(dim) if dim is not None else None
        if size is None:
            size = _UNIT * next(factors)
            found[size] = dim
            if dim is not None:
                named[dim] = size
        return size

    return [
        TensorType(known.dtype, tuple(map(number, known.shape)))
        if isinstance(known, TensorType) and known.shape is not None
        else known
        for known in types
    ]


def _agreed(
    said: ValueType | None, pair: Types, numbers: Sequence[dict[int, str | None]]
) -> ValueType | None:
    """What two answers to different numbers say together."""
    shapes = [known.shape if isinstance(known, TensorType) else None for known in pair]
    if (
        not isinstance(said, TensorType)
        or shapes[0] is None
        or shapes[1] is None
        or len(shapes[0]) != len(shapes[1])
    ):
        return TensorType(said.dtype, None) if isinstance(said, TensorType) else said
    dims: list[Dim] = []
    for first, second in zip(*shapes, strict=True):
        symbols = [
            found.get(dim) if isinstance(dim, int) else None
            for found, dim in zip(numbers, (first, second), strict=True)
        ]
        dims.append(first if first == second else symbols[0] if symbols[0] == symbols[1] else None)
    return TensorType(said.dtype, tuple(dims))
