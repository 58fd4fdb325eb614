"""What can be said of values some of which are not known: true, false, or None for unknown."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from msgspec import Struct


class Symbol(Struct, frozen=True):
    """A dimension of which only the name is known."""

    name: str


def is_known(value: Any) -> bool:
    """Whether a value is known, with all its entries."""
    if _is_list(value):
        return all(map(is_known, value))
    return value is not None and not isinstance(value, Symbol)


def all_of(answers: Iterable[bool | None]) -> bool | None:
    listed = answers if isinstance(answers, tuple) else list(answers)
    return False if False in listed else None if None in listed else True


def any_of(answers: Iterable[bool | None]) -> bool | None:
    listed = list(answers)
    return True if True in listed else None if None in listed else False


def equal(left: Any, right: Any) -> bool | None:
    if type(left) is type(right) and isinstance(left, int):  # most are two sizes, ranks or dtypes
        return left == right
    left, right = (
        side.tolist() if isinstance(side, np.ndarray) else side for side in (left, right)
    )
    if left is None or right is None:
        return None
    if _is_list(left) != _is_list(right):  # one number is a list of it, as in a literal attribute
        left, right = (side if _is_list(side) else [side] for side in (left, right))
    if _is_list(left):
        a, b = cast("Sequence[Any]", left), cast("Sequence[Any]", right)
        return all_of(equal(x, y) for x, y in zip(a, b, strict=True)) if len(a) == len(b) else False
    if isinstance(left, Symbol) or isinstance(right, Symbol):
        return True if left == right else None
    left, right = _as_stored(left, right)
    return bool(left == right)


def _as_stored(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers as attributes hold them: 0.1 there is the float32 next to it."""
    if not isinstance(left, float) and not isinstance(right, float):
        return left, right
    if not all(isinstance(side, int | float) for side in (left, right)):
        return left, right
    with np.errstate(over="ignore"):
        return np.float32(left), np.float32(right)


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _unequal(left: Any, right: Any) -> bool | None:
    answer = equal(left, right)
    return None if answer is None else not answer


def _of_known(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if any(side is None or isinstance(side, Symbol) for side in (left, right)):
            return None
        return function(left, right)

    return apply


def _ordered(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return _of_known(lambda left, right: bool(function(*_as_stored(left, right))))


OPERATORS: MappingProxyType[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "==": equal,
        "!=": _unequal,
        "<": _ordered(operator.lt),
        "<=": _ordered(operator.le),
        ">": _ordered(operator.gt),
        ">=": _ordered(operator.ge),
        "+": _of_known(operator.add),
        "-": _of_known(operator.sub),
        "*": _of_known(operator.mul),
        "//": _of_known(lambda a, b: a // b if b else None),
        "%": _of_known(lambda a, b: a % b if b else None),
        "&": lambda a, b: all_of((a, b)),
        "|": lambda a, b: any_of((a, b)),
    }
)
