"""Workarounds for wrong results of ONNX's own inference.

1. ``STFT``: it treats an absent ``onesided`` as 0, though the operator's default is 1. So the
   default is written out.
2. It refuses a node whose first output is absent. So absent outputs get names.
3. ``Attention``: it computes with sizes that are not numbers as if they were 0 (the past's length
   plus the present's, heads times their size). So it runs twice with different numbers in their
   place; sizes that are equal both times, or stand for the same symbol, are right.

Source: onnx 1.23, found by ``tools/backend``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import onnx

from gehost.ir.types import Dim, TensorType, ValueType

_COMPUTED = frozenset({"Attention"})
_UNIT = 2**10 * 45045
"""Trial sizes are multiples of it, so that they are divisible by the number of heads."""

Types = Sequence[ValueType | None]


def spelled_out(proto: onnx.NodeProto) -> onnx.NodeProto:
    """Write out what inference gets wrong: a default, absent outputs."""
    lacks_onesided = (
        proto.op_type == "STFT"
        and proto.domain in ("", "ai.onnx")
        and all(entry.name != "onesided" for entry in proto.attribute)
    )
    if not lacks_onesided and "" not in proto.output:
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    if lacks_onesided:
        copy.attribute.append(onnx.helper.make_attribute("onesided", 1))
    copy.output[:] = [name or f"absent{slot}" for slot, name in enumerate(proto.output)]
    return copy


def checked(op: str, types: Types, inferred: Types, ask: Callable[[Types], Types | None]) -> Types:
    """Return the correct part of ``inferred``, the types of a node's outputs.

    Args:
        op: the operator's name.
        types: of the inputs.
        inferred: the result of inference for them.
        ask: runs inference for other input types; None if it refuses them.
    """
    if op not in _COMPUTED or all(
        value_type is None or (isinstance(value_type, TensorType) and value_type.size is not None)
        for value_type in types
    ):
        return inferred
    numbers: list[dict[int, str | None]] = [{}, {}]
    answers = [ask(_numbered(types, offset, numbering)) for offset, numbering in enumerate(numbers)]
    if (
        any(isinstance(value_type, TensorType) and value_type.shape is None for value_type in types)
        or None in answers
    ):
        return [
            TensorType(value_type.dtype, None) if isinstance(value_type, TensorType) else value_type
            for value_type in inferred
        ]
    return [
        _agreed(value_type, pair, numbers)
        for value_type, *pair in zip(inferred, *filter(None, answers), strict=True)
    ]


def _numbered(types: Types, offset: int, numbering: dict[int, str | None]) -> Types:
    """Return types with a number for each symbol and unknown size.

    ``numbering`` gets the symbol for each number.
    """
    factors = count(2 + offset, 2)
    named: dict[str, int] = {}

    def number(dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        size = named.get(dim) if dim is not None else None
        if size is None:
            size = _UNIT * next(factors)
            numbering[size] = dim
            if dim is not None:
                named[dim] = size
        return size

    return [
        TensorType(value_type.dtype, tuple(map(number, value_type.shape)))
        if isinstance(value_type, TensorType) and value_type.shape is not None
        else value_type
        for value_type in types
    ]


def _agreed(
    inferred: ValueType | None, pair: Types, numbers: Sequence[dict[int, str | None]]
) -> ValueType | None:
    """Combine the results for two different sets of numbers."""
    shapes = [
        value_type.shape if isinstance(value_type, TensorType) else None for value_type in pair
    ]
    if (
        not isinstance(inferred, TensorType)
        or shapes[0] is None
        or shapes[1] is None
        or len(shapes[0]) != len(shapes[1])
    ):
        return TensorType(inferred.dtype, None) if isinstance(inferred, TensorType) else inferred
    dims: list[Dim] = []
    for first, second in zip(*shapes, strict=True):
        symbols = [
            name.get(dim) if isinstance(dim, int) else None
            for name, dim in zip(numbers, (first, second), strict=True)
        ]
        dims.append(first if first == second else symbols[0] if symbols[0] == symbols[1] else None)
    return TensorType(inferred.dtype, tuple(dims))
