"""A traced rule as data, for print, JSON form and lowering."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final, TypeAlias

import onnx
from msgspec import Struct

from gehost import CustomPassStage, es
from gehost import expressions as ex

from .reference import Ref

_MOST_OUTPUTS: Final = 1024

Operand: TypeAlias = Ref | ex.Expression | None
"""A tensor, a number (or a list of them) that takes its partner's dtype, or an absent input."""


class Input(Struct, frozen=True):
    """An argument of the pattern function, and its requirements.

    They are on the tensor; a None in ``shape`` is any size.
    """

    name: str
    constant: bool = False
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"an argument cannot be called {self.name!r}")
        if self.dtype is not None and self.dtype not in ex.DTYPES:
            raise ValueError(f"there is no dtype {self.dtype!r}")


class Op(Struct, frozen=True):
    """One operator: inputs by position, inputs by name, attributes.

    Attributes that a pattern gives are required of the node; all others may have any value.
    """

    type: str
    inputs: tuple[Operand, ...]
    named: tuple[tuple[str, Operand], ...]
    attributes: tuple[tuple[str, ex.Expression], ...]
    outputs: int | None
    commutative: bool
    origin: es.Origin

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Those by position, then those by name."""
        return (*self.inputs, *(operand for _, operand in self.named))

    def __post_init__(self) -> None:
        if problem := operator_problem(self.type, self.outputs):
            raise ValueError(problem)


def operator_problem(type_: str, outputs: int | None = None) -> str:
    """Why there is no such operator, "" when there may be one."""
    if "::" not in type_ and es.first_version("", type_) is None:
        near = difflib.get_close_matches(type_, es.operator_names(), 1)
        hint = (
            f"; did you mean {near[0]}?"
            if near
            else f'; one of another domain is op("domain::{type_}")'
        )
        return f"ONNX has no operator {type_}{hint}"
    if outputs is not None and (type(outputs) is not int or not 0 < outputs <= _MOST_OUTPUTS):
        return f"num_outputs of {type_} is a number from 1 to {_MOST_OUTPUTS}, got {outputs!r}"
    return ""


def schema_of(type_: str) -> onnx.defs.OpSchema | None:
    """Return ONNX's newest schema of an operator, None if not ONNX's."""
    domain, _, name = type_.rpartition("::")
    try:
        return onnx.defs.get_schema(name, domain)
    except onnx.defs.SchemaError:
        return None


def count_outputs(type_: str, count: int | None) -> int:
    """Return the number of outputs: ``num_outputs``, else those required."""
    schema = schema_of(type_)
    return count or (1 if schema is None else max(1, schema.min_output))


class Program(Struct, frozen=True):
    """The trace of a function: operators called, in order, and tensors returned."""

    ops: tuple[Op, ...]
    outputs: tuple[Ref, ...]
    origin: es.Origin

    def outputs_read(self, op: int) -> int:
        """Return up to which of an operator's outputs the program uses them, at least 1."""
        operands = [operand for call in self.ops for operand in call.operands]
        used = [
            ref.index for ref in (*operands, *self.outputs) if isinstance(ref, Ref) and ref.op == op
        ]
        return max(used, default=0) + 1

    @property
    def expressions(self) -> Iterator[ex.Expression]:
        """Yield attributes and nontensor operands as expressions, with all parts."""
        for op in self.ops:
            for value_ in (*op.operands, *(value for _, value in op.attributes)):
                if value_ is not None and not isinstance(value_, Ref):
                    yield from ex.parts_of(value_)


class Pair(Struct, frozen=True):
    """A pattern function and a replace function.

    Inputs of both programs are numbered as ``inputs``.
    """

    inputs: tuple[Input, ...]
    pattern: Program
    conditions: tuple[ex.Condition, ...]
    replace: Program

    def __post_init__(self) -> None:
        names = [input_.name for input_ in self.inputs]
        if len(set(names)) < len(names):
            raise ValueError(f"arguments of one name: {', '.join(names)}")
        for program in (self.pattern, self.replace):
            for number, op in enumerate(program.ops):
                for operand in op.operands:
                    self._check(operand, number)
            for output in program.outputs:
                self._check(output, len(program.ops))
        for expression in self.expressions:
            if isinstance(expression, ex.TensorAttr):
                self._check(expression.tensor, len(self.pattern.ops))
            elif isinstance(expression, ex.OpAttr) and not 0 <= expression.op < len(
                self.pattern.ops
            ):
                raise ValueError(f"the pattern has no operator {expression.op}")

    def _check(self, operand: Operand, ops: int) -> None:
        """Raise ``ValueError`` for a tensor from elsewhere.

        It is neither an input nor of one of the first ``ops`` operators.
        """
        if isinstance(operand, Ref) and (
            operand.index >= len(self.inputs) if operand.op is None else operand.op >= ops
        ):
            raise ValueError(f"there is no tensor {operand.index} of operator {operand.op}")

    @property
    def expressions(self) -> Iterator[ex.Expression]:
        """All expressions that are computed from a match, and their parts."""
        for condition in self.conditions:
            yield from ex.parts_of(condition.left)
            yield from ex.parts_of(condition.right)
        yield from self.replace.expressions


class Rule(Struct, frozen=True):
    """A registered function: its pairs are tried in order."""

    name: str
    stage: CustomPassStage
    origin: es.Origin
    pairs: tuple[Pair, ...]
    min_opset: int | None = None
    max_opset: int | None = None
    shape_proven: bool = False
    """The construction proves output sizes that the host cannot compare."""
    default: bool = True
    """Whether the pass runs without a switch."""

    @property
    def is_native(self) -> bool:
        """Whether it calls Python functions, which JSON can only name."""
        return any(
            isinstance(expression, ex.Native)
            for pair in self.pairs
            for expression in pair.expressions
        )
