"""Arithmetic on the elements of integer tensors: numbers, sizes, or None for unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

from gehost.sizes.lengths import is_positive, is_size
from gehost.sizes.size import Algebra, Answer, Dim, Known, Size

_Operation: TypeAlias = Callable[[Algebra, Known, Known], Dim]

_MOST_POWER = 8


def elementwise(scope: Algebra, op: str, row: Sequence[Dim], *, bits: int) -> Dim:
    """Return one element of a result of an operator in ``ELEMENTWISE``.

    Args:
        scope: that of the operands.
        op: the operator.
        row: the operands' elements.
        bits: of the result; what may not fit is unknown, but sizes fit 64 bits.
    """
    if op == "Where":
        return _where(scope, row)
    if op in ("And", "Or"):
        decisive = int(op == "Or")
        return decisive if decisive in row else None if None in row else 1 - decisive
    entries = [element for element in row if element is not None]
    if len(entries) < len(row):
        return None
    if len(entries) == 1:
        result = _UNARY[op](scope, entries[0]) if op in _UNARY else entries[0]
    else:
        result: Dim = entries[0]
        for other in entries[1:]:
            result = None if result is None else _BINARY[op](scope, result, other)
    return result if result is None or _fits(scope, result, entries, bits) else None


def _fits(scope: Algebra, result: Known, operands: Sequence[Known], bits: int) -> bool:
    if isinstance(result, Size) and (bits == 64 or any(result is one for one in operands)):
        return True
    low, high = scope.bounds(result)
    limit = 1 << (bits - 1)
    return -limit <= low and high < limit


def _where(scope: Algebra, row: Sequence[Dim]) -> Dim:
    test, first, second = row
    if test is None or isinstance(test, Size):
        if first is None or second is None or scope.equal(first, second) is not Answer.YES:
            return None
        return first
    return first if test else second


def _quotient(scope: Algebra, one: Known, other: Known) -> Dim:
    """Div rounds toward zero, so that both must be proven not negative."""
    if other == 1:
        return one
    is_known = other != 0 and is_size(scope, one) and is_size(scope, other)
    return scope.floordiv(one, other) if is_known else None


def _rest(scope: Algebra, one: Known, other: Known) -> Dim:
    return None if other == 0 else scope.mod(one, other)


def _power(scope: Algebra, one: Known, other: Known) -> Dim:
    if not isinstance(other, int) or not 0 <= other <= _MOST_POWER:
        return None
    return reduce(scope.mul, [one] * other, 1)


def _decided(answer: Answer) -> Dim:
    return None if answer is Answer.UNKNOWN else int(answer is Answer.YES)


def _equal(scope: Algebra, one: Known, other: Known) -> Dim:
    return _decided(scope.equal(one, other))


def _less(scope: Algebra, one: Known, other: Known) -> Dim:
    return _decided(scope.nonnegative(scope.sub(scope.sub(other, one), 1)))


def _less_or_equal(scope: Algebra, one: Known, other: Known) -> Dim:
    return _decided(scope.nonnegative(scope.sub(other, one)))


def _absolute(scope: Algebra, one: Known) -> Dim:
    return scope.max(one, scope.mul(one, -1))


def _sign(scope: Algebra, one: Known) -> Dim:
    if one == 0:
        return 0
    return 1 if is_positive(scope, one) else -1 if is_positive(scope, scope.mul(one, -1)) else None


_UNARY: Mapping[str, Callable[[Algebra, Known], Dim]] = MappingProxyType(
    {
        "Abs": _absolute,
        "Neg": lambda scope, one: scope.mul(one, -1),
        "Not": lambda _, one: 1 - one,
        "Sign": _sign,
    }
)
_BINARY: Mapping[str, _Operation] = MappingProxyType(
    {
        "Add": lambda scope, one, other: scope.add(one, other),
        "Div": _quotient,
        "Equal": _equal,
        "Greater": lambda scope, one, other: _less(scope, other, one),
        "GreaterOrEqual": lambda scope, one, other: _less_or_equal(scope, other, one),
        "Less": _less,
        "LessOrEqual": _less_or_equal,
        "Max": lambda scope, one, other: scope.max(one, other),
        "Min": lambda scope, one, other: scope.min(one, other),
        "Mod": _rest,
        "Mul": lambda scope, one, other: scope.mul(one, other),
        "Pow": _power,
        "Sub": lambda scope, one, other: scope.sub(one, other),
    }
)
ELEMENTWISE = frozenset({*_UNARY, *_BINARY, "And", "Or", "Where"})
"""Operators of integers that ``elementwise`` computes."""
