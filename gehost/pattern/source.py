"""A pattern at the opset of one model: the matchers' input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from gehost.es.graph import EsChoice, EsConst, EsInput, EsNode, in_dtype
from gehost.es.schemas import Signature
from gehost.ir.types import DataType, Dim
from gehost.location import SourceLocation

Chosen: TypeAlias = Mapping[int, int]
"""The number of the option that was chosen, by the index of the choice's tensor."""


class Kind(Enum):
    """The kinds of constraints on an operator's parameter."""

    EQUALS = "equals"
    PREDICATE = "predicate"
    BIND = "bind"
    AS_ABSENT = "as if absent"
    ABSENT = "absent"


class Constraint(Struct, frozen=True):
    """One condition on an attribute, or a constant input at this opset.

    AS_ABSENT holds for an absent attribute, and for what the specification says of one.
    ``wanted`` is the value (EQUALS), the function (PREDICATE) or the variable's name (BIND: equal
    at every use).
    """

    name: str
    kind: Kind
    wanted: Any = None

    def __str__(self) -> str:
        if self.kind is Kind.EQUALS:
            return f"{self.name}={self.wanted!r}"
        suffix = f" {self.wanted}" if self.kind is Kind.BIND else ""
        return f"{self.name}: {self.kind.value}{suffix}"


class ConstantPattern(Struct, frozen=True, eq=False):
    """A wanted constant: any (``array`` None), exactly this, or equal by value.

    Equal by value means in any dtype.
    """

    array: np.ndarray[Any, Any] | None = None
    by_value: bool = False
    rtol: float = 0.0
    atol: float = 0.0
    _in_dtypes: dict[np.dtype[Any], np.ndarray[Any, Any] | None] = field(default_factory=dict)

    def in_dtype(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
        """Return the wanted numbers in a dtype that holds them, or None."""
        assert self.array is not None
        if dtype not in self._in_dtypes:
            self._in_dtypes[dtype] = in_dtype(self.array, dtype)
        return self._in_dtypes[dtype]


class TensorPattern(Struct, frozen=True, eq=False):
    """A tensor of a source pattern.

    It is a placeholder, a constant, output ``slot`` of op pattern ``producer``, or a choice between
    the tensors ``options``.
    """

    index: int
    producer: int | None = None
    slot: int = 0
    constant: ConstantPattern | None = None
    dtype: DataType | None = None
    rank: int | None = None
    shape: tuple[Dim, ...] | None = None
    name: str = ""
    options: tuple[int, ...] = ()
    origin: SourceLocation | None = None
    """The author's line, for a choice."""

    @property
    def is_input(self) -> bool:
        return self.producer is None and self.constant is None and not self.options

    @property
    def constraints(self) -> tuple[object, ...]:
        """What a value has to fit, apart from elements; all None: any value."""
        return self.dtype, self.rank, self.shape


Link: TypeAlias = TensorPattern | None
"""The tensor through which an operator is found; None: any node of the graph."""

ANY: Final = TensorPattern(-1, name="any")
"""An operand without constraints, which may be absent."""


class OpPattern(Struct, frozen=True, eq=False):
    """An operator of a source pattern.

    ``inputs`` are matched by position: a tensor, None (must be absent) or ``ANY``; further inputs
    must be absent, unless the operator's signature has a parameter there that is an attribute at
    other opsets.
    """

    index: int
    ops: dict[str, Signature | None]
    inputs: tuple[TensorPattern | None, ...]
    outputs: tuple[TensorPattern, ...]
    constraints: tuple[Constraint, ...]
    exact_attributes: frozenset[str] | None
    """If set, the node must not have other attributes (operators without a schema)."""
    commutative: bool
    origin: SourceLocation

    @property
    def label(self) -> str:
        return "|".join(self.ops)


class SourcePattern(Struct, frozen=True, eq=False):
    """A pattern at one opset: operators, tensors, inputs, outputs and captures.

    It holds the operators of all options of its choices; ``variant`` selects some of them.
    """

    name: str
    ops: tuple[OpPattern, ...]
    tensors: tuple[TensorPattern, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captures: tuple[int | None, ...]
    """None for a tensor of an option that this variant does not have."""
    names: dict[str, int | None]
    """Named tensors; None as above."""
    origin: SourceLocation
    nodes: tuple[EsNode, ...] = ()
    """The author's operators, by the index of their op patterns."""
    others: dict[EsInput | EsConst | EsChoice, int | None] = {}
    """The author's placeholders, constants and choices; None as for captures."""
    has_choices: bool = False
    """Whether a tensor has options; a variant has none."""

    def leaves(self, tensor: TensorPattern) -> list[TensorPattern]:
        """Return the tensors that ``tensor`` may be.

        They are the tensor itself or, of a choice, those of its options, in order.
        """
        if not tensor.options:
            return [tensor]
        return [leaf for option in tensor.options for leaf in self.leaves(self.tensors[option])]

    def resolved(self, tensor: TensorPattern, chosen: Chosen) -> TensorPattern:
        """Return the tensor chosen for ``tensor``; a choice if that is open."""
        while tensor.index in chosen:
            tensor = self.tensors[tensor.options[chosen[tensor.index]]]
        return tensor

    def reached(self, chosen: Chosen) -> tuple[list[int], TensorPattern | None]:
        """Return the operators that outputs depend on, and the first open choice.

        It walks from the outputs to their producers.
        """
        results: dict[int, None] = {}
        open_choice: TensorPattern | None = None
        stack = [self.tensors[index] for index in reversed(self.outputs)]
        while stack:
            tensor = self.resolved(stack.pop(), chosen)
            if tensor.options:
                open_choice = open_choice or tensor
            elif tensor.producer is not None and tensor.producer not in results:
                results[tensor.producer] = None
                inputs = self.ops[tensor.producer].inputs
                stack.extend(operand for operand in reversed(inputs) if operand is not None)
        return sorted(results), open_choice

    def order(self, chosen: Chosen) -> list[tuple[OpPattern, Link]]:
        """Return needed operators, each after a tensor that leads to it.

        That of output 0 is first, with the operators above it; then one that reads a tensor of
        these, with the operators above it; and so on. Output 0 must not be an open choice.
        """
        needed, _ = self.reached(chosen)
        plan: list[tuple[OpPattern, Link]] = []
        placed: set[int] = set()
        bound: set[int] = set()

        def operands(op: OpPattern) -> list[TensorPattern]:
            return [
                self.resolved(operand, chosen)
                for operand in op.inputs
                if operand is not None and operand is not ANY
            ]

        def place(op: OpPattern, link: Link) -> None:
            placed.add(op.index)
            bound.update([tensor.index for tensor in op.outputs])
            plan.append((op, link))
            for tensor in operands(op):
                bound.add(tensor.index)
                if tensor.producer is not None and tensor.producer not in placed:
                    place(self.ops[tensor.producer], tensor)

        first = self.resolved(self.tensors[self.outputs[0]], chosen).producer
        assert first is not None
        place(self.ops[first], None)
        while len(placed) < len(needed):
            waiting = [self.ops[index] for index in needed if index not in placed]
            reading = [
                (op, tensor)
                for op in waiting
                for tensor in operands(op)
                if tensor.constant is None and tensor.index in bound
            ]
            place(*(reading[0] if reading else (waiting[0], None)))
        return plan

    def variant(self, chosen: Chosen) -> SourcePattern:
        """Return the pattern with these options taken; open choices accept any tensor.

        Inputs keep their positions, also those that no operator reads.
        """
        reached, _ = self.reached(chosen)
        ops = {old: new for new, old in enumerate(reached)}
        tensors: list[TensorPattern] = []
        places: dict[int, TensorPattern] = {}

        def place(tensor: TensorPattern) -> TensorPattern:
            tensor = self.resolved(tensor, chosen)
            index_here = places.get(tensor.index)
            if index_here is None:
                producer = None if tensor.producer is None else ops[tensor.producer]
                index_here = replace(tensor, index=len(tensors), producer=producer, options=())
                places[tensor.index] = index_here
                tensors.append(index_here)
            return index_here

        def place_of(index: int | None) -> int | None:
            index_here = None if index is None else self.resolved(self.tensors[index], chosen)
            return (
                None
                if index_here is None or index_here.index not in places
                else places[index_here.index].index
            )

        inputs = tuple([place(self.tensors[index]).index for index in self.inputs])
        outputs = tuple([place(self.tensors[index]).index for index in self.outputs])
        lowered = tuple(
            [
                replace(
                    op,
                    index=ops[op.index],
                    outputs=tuple([place(tensor) for tensor in op.outputs]),
                    inputs=tuple(
                        [
                            tensor if tensor is None or tensor is ANY else place(tensor)
                            for tensor in op.inputs
                        ]
                    ),
                )
                for op in (self.ops[index] for index in reached)
            ]
        )
        return SourcePattern(
            name=self.name,
            ops=lowered,
            tensors=tuple(tensors),
            inputs=inputs,
            outputs=outputs,
            captures=tuple([place_of(index) for index in self.captures]),
            names={name: place_of(index) for name, index in self.names.items()},
            origin=self.origin,
            nodes=tuple([self.nodes[index] for index in reached]),
            others={other: place_of(index) for other, index in self.others.items()},
        )

    def variants(self) -> Iterator[SourcePattern]:
        """Yield the pattern for each combination of options, earlier options first."""
        waiting: list[Chosen] = [{}]
        while waiting:
            chosen = waiting.pop()
            _, choice = self.reached(chosen)
            if choice is None:
                yield self.variant(chosen)
            else:
                choice_options = reversed(range(len(choice.options)))
                waiting.extend({**chosen, choice.index: option} for option in choice_options)

    @property
    def inner(self) -> tuple[int, ...]:
        """Tensors that only the match itself may use."""
        return tuple(
            t.index for t in self.tensors if t.producer is not None and t.index not in self.outputs
        )

    @property
    def needed(self) -> frozenset[int]:
        """Tensors that must be present: operands, outputs and captures."""
        read = {
            tensor.index
            for op in self.ops
            for tensor in op.inputs
            if tensor is not None and tensor is not ANY
        }
        return frozenset(
            read.union(self.outputs, (index for index in self.captures if index is not None))
        )
