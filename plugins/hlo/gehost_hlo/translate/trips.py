"""How often a loop runs, where the text tells: scalars of its condition and body, computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from gehost import Refused
from gehost_hlo.attributes import integer
from gehost_hlo.context import Context
from gehost_hlo.emit import Tensor, Value
from gehost_hlo.literals import NUMPY, array_of
from gehost_hlo.module import HloComputation, HloInstruction
from gehost_hlo.translate.elementwise import COMPARE, FOLD

Scalar: TypeAlias = Any
"""A number, None for what is not a known scalar, or those of a tuple."""

_SAME = frozenset({"copy", "reshape", "bitcast", "broadcast", "opt-barrier", "transpose"})


def trip_count(
    c: Context, condition: HloComputation, body: HloComputation, state: Value, most: int
) -> int | None:
    """The number of iterations; None if it is not in the text, or above ``most``."""
    values = _numbers(state)
    for count in range(most + 1):
        going = _evaluate(c, condition, [values])
        if going is None or isinstance(going, tuple):
            return None
        if not going:
            return count
        values = _evaluate(c, body, [values])
    return None


def _numbers(value: Value) -> Scalar:
    if isinstance(value, Tensor):
        return value.number if value.dims == () else None
    return tuple(map(_numbers, value))


def _evaluate(c: Context, computation: HloComputation, arguments: Sequence[Scalar]) -> Scalar:
    """The known scalars of a computation's result."""
    values: dict[str, Scalar] = {}
    with np.errstate(all="ignore"):
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                values[instruction.name] = arguments[int(instruction.literal)]
            else:
                values[instruction.name] = _result(c, instruction, values)
    return values[computation.root.name]


def _result(c: Context, i: HloInstruction, values: Mapping[str, Scalar]) -> Scalar:
    operands = [values.get(operand.name) for operand in i.operands]
    if i.opcode == "tuple":
        return tuple(operands)
    if i.opcode == "get-tuple-element":
        (whole,) = operands
        return None if whole is None else whole[integer(i, "index")]
    if i.opcode in {"call", "fusion"}:
        name = i.attributes.get("calls", i.attributes.get("to_apply", ""))
        return _evaluate(c, c.find(name), operands)
    shape = i.shape
    if shape is None or shape.elements is not None or shape.dimensions or shape.type not in NUMPY:
        return None
    if i.opcode == "constant":
        try:
            return array_of(i.literal, shape)[()]
        except ValueError as error:
            raise Refused("invalid", f"its literal is no {shape.type}: {error}") from error
    if not operands or any(operand is None or isinstance(operand, tuple) for operand in operands):
        return None
    return _computed(i, shape.type, operands)


def _computed(i: HloInstruction, kind: str, operands: Sequence[Any]) -> Any:
    if i.opcode in _SAME and len(operands) == 1:
        return operands[0]
    if i.opcode == "convert" and len(operands) == 1:
        return np.asarray(operands[0]).astype(NUMPY[kind])[()]
    if i.opcode == "not" and kind == "pred":
        return not operands[0]
    if len(operands) != 2:
        return None
    if i.opcode in FOLD:
        return np.asarray(FOLD[i.opcode](*operands)).astype(NUMPY[kind])[()]
    if i.opcode == "compare":
        op, function = COMPARE.get(i.attributes.get("direction", ""), ("", None))
        return function(*operands) if op and function is not None else None
    return None
