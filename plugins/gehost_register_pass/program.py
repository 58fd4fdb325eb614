"""A traced rule as data: what the readable print, the JSON form and the lowering read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from gehost import CustomPassStage, es

from .expressions import Binary, Condition, Constant, Expression, Item, Listed, Native, OpAttr, Ref, Size, TensorAttr

Operand: TypeAlias = Ref | Expression | None
"""A tensor, a number (or a list of them) that takes its partner's dtype, or an absent input."""


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the pattern function, and what is asked of the tensor there; a None in ``shape`` is any size."""

    name: str
    constant: bool = False
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One operator: inputs by position, inputs by name, attributes.

    Attributes that a pattern gives are asked of the graph; what it leaves out is not.
    """

    type: str
    inputs: tuple[Operand, ...]
    named: tuple[tuple[str, Operand], ...]
    attributes: tuple[tuple[str, Expression], ...]
    outputs: int | None
    commutative: bool
    origin: es.Origin


@dataclass(frozen=True, slots=True)
class Program:
    """What a function traced: its operators in the order of their calls, and the tensors that it returned."""

    ops: tuple[Op, ...]
    outputs: tuple[Ref, ...]
    origin: es.Origin


@dataclass(frozen=True, slots=True)
class Pair:
    """A pattern function and a replace function. Inputs of both programs are numbered as ``inputs``."""

    inputs: tuple[Input, ...]
    pattern: Program
    conditions: tuple[Condition, ...]
    replace: Program

    @property
    def expressions(self) -> Iterator[Expression]:
        """Whatever is computed from a match, with all of which that consists."""
        waiting: list[Expression] = [side for condition in self.conditions for side in (condition.left, condition.right)]
        for op in self.replace.ops:
            waiting.extend(value for _, value in op.attributes)
            operands = (*op.inputs, *(operand for _, operand in op.named))
            waiting.extend(operand for operand in operands if operand is not None and not isinstance(operand, Ref))
        while waiting:
            expression = waiting.pop()
            yield expression
            match expression:
                case Item(of, _) | Size(of):
                    waiting.append(of)
                case Binary(_, left, right):
                    waiting += (left, right)
                case Listed(parts) | Native(_, parts, _):
                    waiting.extend(parts)
                case Constant() | TensorAttr() | OpAttr():
                    pass


@dataclass(frozen=True, slots=True)
class Rule:
    """A registered function: its pairs are tried in order."""

    name: str
    stage: CustomPassStage
    origin: es.Origin
    pairs: tuple[Pair, ...]
    min_opset: int | None = None
    max_opset: int | None = None
    shape_proven: bool = False
    """The construction proves output sizes that the host cannot compare."""

    @property
    def is_native(self) -> bool:
        """Whether it calls Python functions, which JSON can only name."""
        return any(isinstance(expression, Native) for pair in self.pairs for expression in pair.expressions)
