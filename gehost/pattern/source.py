"""A pattern at the opset of one model, as the matchers see it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from gehost.es.graph import EsNode
from gehost.es.literals import in_dtype
from gehost.es.schemas import Signature
from gehost.ir.types import DataType, Dim
from gehost.location import SourceLocation

MAX_VARIANTS = 64
"""How many combinations of alternatives one pattern may have."""


class Kind(Enum):
    """What a constraint asks of an operator's parameter."""

    EQUALS = "equals"
    PREDICATE = "predicate"
    BIND = "bind"
    ABSENT = "absent"


class Constraint(Struct, frozen=True):
    """One condition on a parameter: an attribute, or the constant at the input that the opset has
    in its place.

    ``wanted`` is the value (EQUALS), the function (PREDICATE) or the variable's name (BIND: equal
    at every use).
    """

    name: str
    kind: Kind
    wanted: Any = None

    def __str__(self) -> str:
        if self.kind is Kind.EQUALS:
            return f"{self.name}={self.wanted!r}"
        return f"{self.name}: {self.kind.value} {self.wanted if self.kind is Kind.BIND else ''}".rstrip()


class ConstantPattern(Struct, frozen=True, eq=False):
    """What a constant must be: any (``array`` None), this one exactly, or by value in whatever
    dtype it has.
    """

    array: np.ndarray[Any, Any] | None = None
    by_value: bool = False
    rtol: float = 0.0
    atol: float = 0.0
    _in_dtypes: dict[np.dtype[Any], np.ndarray[Any, Any] | None] = field(default_factory=dict)

    def in_dtype(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
        """The wanted numbers in a dtype; None where it cannot hold them."""
        assert self.array is not None
        if dtype not in self._in_dtypes:
            self._in_dtypes[dtype] = in_dtype(self.array, dtype)
        return self._in_dtypes[dtype]


class TensorPattern(Struct, frozen=True, eq=False):
    """A tensor of a source pattern: a placeholder, a constant, or output ``slot`` of op pattern
    ``producer``.
    """

    index: int
    producer: int | None = None
    slot: int = 0
    constant: ConstantPattern | None = None
    dtype: DataType | None = None
    rank: int | None = None
    shape: tuple[Dim, ...] | None = None
    name: str = ""

    @property
    def is_input(self) -> bool:
        return self.producer is None and self.constant is None


ANY: Final = TensorPattern(-1, name="any")
"""An operand of which nothing is asked, not even that it is there."""


class OpPattern(Struct, frozen=True, eq=False):
    """An operator of a source pattern.

    ``inputs`` are matched by position: a tensor, None (must be absent) or ``ANY``; further inputs
    must be absent, unless the operator's signature has a parameter there that other opsets hold in
    an attribute.
    """

    index: int
    ops: dict[str, Signature | None]
    inputs: tuple[TensorPattern | None, ...]
    outputs: tuple[TensorPattern, ...]
    constraints: tuple[Constraint, ...]
    exact_attributes: frozenset[str] | None
    """When set, the node may carry no attribute besides these (operators that have no schema)."""
    commutative: bool
    origin: SourceLocation

    @property
    def label(self) -> str:
        return "|".join(self.ops)


class SourcePattern(Struct, frozen=True, eq=False):
    """A pattern at one opset: its operators, its tensors, which of them are inputs and outputs,
    which are captured.
    """

    name: str
    ops: tuple[OpPattern, ...]
    tensors: tuple[TensorPattern, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captures: tuple[int | None, ...]
    """None for a tensor of an alternative that this variant has not."""
    names: dict[str, int | None]
    """Named tensors; None as above."""
    origin: SourceLocation
    nodes: tuple[EsNode, ...] = ()
    """The author's operators, by the index of their patterns."""
    variants: tuple[SourcePattern, ...] = ()
    """The same with other alternatives, to be tried in this order after this one."""

    @property
    def inner(self) -> tuple[int, ...]:
        """Tensors that only the match itself may read."""
        return tuple(
            t.index for t in self.tensors if t.producer is not None and t.index not in self.outputs
        )

    @property
    def needed(self) -> frozenset[int]:
        """Tensors that must be there: those that an operator reads, outputs and captures."""
        read = {
            tensor.index
            for op in self.ops
            for tensor in op.inputs
            if tensor is not None and tensor is not ANY
        }
        return frozenset(
            read.union(self.outputs, (index for index in self.captures if index is not None))
        )
