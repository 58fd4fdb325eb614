"""Scalar operations that are constants or one of their operands, as MLIR folds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gehost_linalg.generic import Generic, Literal, Payload, Ref, Res, ScalarOp
from gehost_linalg.operations import NUMPY, OPERATIONS, bits_of, compute, is_float

_SAME_RIGHT: Mapping[str, float] = {
    "arith.addi": 0, "arith.subi": 0, "arith.muli": 1, "arith.andi": -1, "arith.ori": 0,
    "arith.xori": 0, "arith.shli": 0, "arith.shrsi": 0, "arith.shrui": 0, "arith.divsi": 1,
    "arith.divui": 1, "arith.floordivsi": 1, "arith.ceildivsi": 1, "arith.ceildivui": 1,
    "arith.addf": -0.0, "arith.subf": 0.0, "arith.mulf": 1.0, "arith.divf": 1.0,
    "arith.maximumf": -math.inf, "arith.minimumf": math.inf,
}  # fmt: skip
"""The second operand that leaves the first as it is."""
_ABSORBING: Mapping[str, int] = {"arith.muli": 0, "arith.andi": 0, "arith.ori": -1}
"""The operand that is the result."""
_COMMUTATIVE = frozenset(
    [
        "arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori", "arith.addf",
        "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
        "arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui",
    ]
)  # fmt: skip
_OF_ITSELF: Mapping[str, int | None] = {
    "arith.subi": 0, "arith.xori": 0, "arith.andi": None, "arith.ori": None, "arith.maxsi": None,
    "arith.maxui": None, "arith.minsi": None, "arith.minui": None, "arith.maximumf": None,
    "arith.minimumf": None, "arith.maxnumf": None, "arith.minnumf": None,
    "arith.divsi": 1, "arith.divui": 1, "arith.floordivsi": 1, "arith.ceildivsi": 1,
    "arith.ceildivui": 1, "arith.remsi": 0, "arith.remui": 0,
    "arith.shrsi": 0, "arith.shrui": 0,
}  # fmt: skip
"""The result for twice the same operand; None is this operand."""
_REFLEXIVE = frozenset(["eq", "sle", "sge", "ule", "uge"])
"""Comparisons of integers that hold for twice the same operand."""
_EXTREMES = frozenset(["arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui"])
_DIVISIONS = frozenset(
    [
        "arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi", "arith.ceildivui",
        "arith.remsi", "arith.remui",
    ]
)  # fmt: skip
_SHIFTS = frozenset(["arith.shli", "arith.shrsi", "arith.shrui"])
_OF_BITS = frozenset(
    ["arith.cmpi", "arith.cmpf", "arith.andi", "arith.ori", "arith.xori", "arith.select"]
)
"""Operations that may have a result of one bit."""


def fold_scalars(op: Generic, around: object) -> Generic | None:
    """Replace operations of the payload whose result is known without computing them."""
    del around
    payload = op.payload
    for place in range(len(payload.ops)):
        item = _constant_last(payload.ops[place])
        if item is not payload.ops[place]:
            ops = (*payload.ops[:place], item, *payload.ops[place + 1 :])
            payload = Payload(ops, payload.yields)
        value = _folded(item, payload)
        if value is not None:
            payload = payload.renumbered({}, {place: value})
    return None if payload == op.payload else replace(op, payload=payload.live())


def _constant_last(item: ScalarOp) -> ScalarOp:
    """The same with a constant as the second operand, where operands may change places."""
    if len(item.operands) != 2:
        return item
    first, second = item.operands
    if not isinstance(first, Literal) or isinstance(second, Literal):
        return item
    if item.name == "arith.cmpi":
        predicate = str(item.attribute)
        swapped = predicate.replace("l", "g") if "l" in predicate else predicate.replace("g", "l")
        return item._replace(operands=(second, first), attribute=swapped)
    return item._replace(operands=(second, first)) if item.name in _COMMUTATIVE else item


def _folded(item: ScalarOp, payload: Payload) -> Ref | None:
    """The constant or operand that an operation is; None if it has to be computed."""
    row = OPERATIONS.get(item.name)
    if row is None or row.results != 1:
        return None
    operands = item.operands
    first = operands[0]
    if item.name in _DIVISIONS | _SHIFTS and isinstance(first, Literal) and _is(first, 0):
        return first  # before x / x is 1, as MLIR does
    if item.name in _OF_ITSELF and operands[0] == operands[1]:
        number = _OF_ITSELF[item.name]
        return operands[0] if number is None else _literal(number, item.dtype)
    if item.name == "arith.shrsi" and isinstance(first, Literal) and _is(first, -1):
        return first
    literals = [ref for ref in operands if isinstance(ref, Literal)]
    if len(literals) == len(operands):
        return _constant(item, literals)
    if item.name == "arith.select":
        return _selected(item, payload)
    if item.name in {"arith.negf", "arith.xori"}:  # twice is not at all
        inner = payload.ops[operands[0].index] if isinstance(operands[0], Res) else None
        if inner is not None and inner.name == item.name and inner.operands[1:] == operands[1:]:
            return inner.operands[0]
    if len(operands) != 2:
        return None
    first, second = operands
    if item.name == "arith.cmpi":
        return _compared(item, first, second)
    if not isinstance(second, Literal):
        return None
    if item.name in _EXTREMES:
        return _extreme(item, first, second)
    if item.name in _SAME_RIGHT and _is(second, _SAME_RIGHT[item.name]):
        return first
    if item.name in _ABSORBING and _is(second, _ABSORBING[item.name]):
        return second
    if item.name in {"arith.remsi", "arith.remui"} and _is(second, 1):
        return _literal(0, item.dtype)
    return None


def _compared(item: ScalarOp, first: Ref, second: Ref) -> Ref | None:
    """A comparison of a value with itself; and of a truth value with the one that leaves it."""
    predicate = str(item.attribute)
    if first == second:
        return Literal(predicate in _REFLEXIVE, "i1")
    if not isinstance(second, Literal) or second.dtype != "i1":
        return None
    return first if predicate == ("eq" if second.value else "ne") else None


def _extreme(item: ScalarOp, first: Ref, second: Literal) -> Ref | None:
    """The larger or smaller of a value and a number at an end of the type."""
    half = 1 << (bits_of(item.dtype) - 1)
    low, high = (-half, half - 1) if item.name.endswith("si") else (0, -1)
    neutral, result = (low, high) if "max" in item.name else (high, low)
    return first if _is(second, neutral) else second if _is(second, result) else None


def _literal(number: int, dtype: str) -> Literal:
    return Literal(bool(number) if dtype == "i1" else number, dtype)


def _is(literal: Literal, number: float) -> bool:
    """Whether a literal is a number; -1 has all bits set, 0.0 and -0.0 differ."""
    if is_float(literal.dtype):
        value = float(literal.value)
        return value == number and math.copysign(1, value) == math.copysign(1, number)
    mask = (1 << bits_of(literal.dtype)) - 1
    return int(literal.value) & mask == int(number) & mask


def _selected(item: ScalarOp, payload: Payload) -> Ref | None:
    condition, true, false = item.operands
    if true == false:
        return true
    if isinstance(condition, Literal):
        return true if condition.value else false
    if item.dtype == "i1" and isinstance(true, Literal) and isinstance(false, Literal):
        return condition if true.value and not false.value else None
    compared = payload.ops[condition.index] if isinstance(condition, Res) else None
    if compared is None or compared.name != "arith.cmpi" or {true, false} != {*compared.operands}:
        return None
    return {"eq": false, "ne": true}.get(str(compared.attribute))


def _constant(item: ScalarOp, operands: list[Literal]) -> Literal | None:
    """The number that an operation of numbers computes, if it is sure to have one."""
    if item.name in _DIVISIONS and (
        not operands[1].value
        or (int(operands[1].value) == -1 and _is(operands[0], 1 << (bits_of(item.dtype) - 1)))
    ):
        return None  # no result, or one that does not fit
    if item.name in _SHIFTS and not 0 <= int(operands[1].value) < bits_of(item.dtype):
        return None
    if item.dtype == "i1" and item.name == "arith.trunci":
        return Literal(bool(int(operands[0].value) & 1), "i1")
    if item.dtype == "i1" and item.name not in _OF_BITS:
        return None
    try:
        numbers = [NUMPY[literal.dtype](literal.value) for literal in operands]
        with np.errstate(all="ignore"):
            value = compute(item.name, numbers, item.dtype, item.attribute, item.flags)
    except (KeyError, ValueError, OverflowError):
        return None
    return Literal(value.item() if hasattr(value, "item") else value, item.dtype)
