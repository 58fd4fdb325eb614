"""Sizes that ONNX's inference states and that need not be those of the tensor that is computed.

A doubt is an operator, a range of opsets, and a condition on one node. Where it holds, the sizes
are unknown to all of gehost: clean-up folds none of them, and no proof uses them. Which operators
have which doubts is measured: ``make sizes`` compares inferred sizes with those of ONNX Runtime
and of ``onnx.reference``, and writes ``doubtful_sizes``. Here are the conditions it chooses from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gehost.ir.types import Dim, TensorType, ValueType


class Doubt(NamedTuple):
    """Sizes of an operator that are unknown under a condition.

    Attributes:
        op: the operator.
        first: the first opset.
        last: the last opset; None where the newest has the doubt too.
        when: the name of a condition.
        certain: how many leading sizes of each output hold all the same; -1 where not even the
            rank does.
    """

    op: str
    first: int
    last: int | None
    when: str
    certain: int


class Statement(NamedTuple):
    """What inference states of one node, and from what.

    Attributes:
        attributes: with the defaults of the operator.
        types: of the inputs.
        arrays: of the inputs that are small constants.
        present: inputs that are not absent.
        stated: types of the outputs.
    """

    op: str
    attributes: Mapping[str, Any]
    types: Sequence[ValueType | None]
    arrays: Sequence[np.ndarray[Any, Any] | None]
    present: Sequence[bool]
    stated: Sequence[ValueType | None]

    def shape(self, slot: int) -> tuple[Dim, ...] | None:
        """The dimensions of an input; None where it is absent or its rank unknown."""
        return _shape(self.types, slot)

    def result(self, slot: int = 0) -> tuple[Dim, ...] | None:
        """The dimensions stated of an output."""
        return _shape(self.stated, slot)

    def has(self, slot: int) -> bool:
        """Whether an input is present."""
        return slot < len(self.present) and self.present[slot]

    def array(self, slot: int) -> np.ndarray[Any, Any] | None:
        """The elements of an input, where they are a small constant."""
        return self.arrays[slot] if slot < len(self.arrays) else None


def _shape(types: Sequence[ValueType | None], slot: int) -> tuple[Dim, ...] | None:
    known = types[slot] if slot < len(types) else None
    return known.shape if isinstance(known, TensorType) else None


def believed(
    doubts: Sequence[Doubt], version: int, statement: Statement
) -> Sequence[ValueType | None]:
    """The stated types, without the sizes that are in doubt."""
    stated = statement.stated
    for doubt in doubts:
        if doubt.first <= version <= (doubt.last or version) and CONDITIONS[doubt.when](statement):
            stated = [_without(known, doubt.certain) for known in stated]
    return stated


def _without(known: ValueType | None, certain: int) -> ValueType | None:
    if not isinstance(known, TensorType) or known.shape is None:
        return known
    if certain < 0:
        return TensorType(known.dtype, None)
    rest = max(len(known.shape) - certain, 0)
    return TensorType(known.dtype, known.shape[:certain] + (None,) * rest)


CONDITIONS: Mapping[str, Callable[[Statement], bool]] = MappingProxyType(
    {
        "always": lambda _: True,
    }
)
