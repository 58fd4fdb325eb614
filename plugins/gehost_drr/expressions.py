"""Conditions as expressions over what a rule matched: printable, and true only where they are known to hold.

``pat.x.dtype == pat.y.dtype`` builds a tree; the match gives it a value later. What is not known makes the whole unknown
(None): an unknown dimension equals nothing, and two different symbols may or may not be the same number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, cast

from gehost import DataType, PatternError, Value, es

HERE = __file__.rpartition("/")[0] + "/"


class Matched(Protocol):
    """What an expression asks of a match."""

    def value(self, name: str) -> Value: ...

    def Attr(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dimension of which only the name is known."""

    name: str


class Expression:
    """A value that a match will have. Python's operators build larger ones; ``&``, ``|`` and ``~`` stand for and, or, not."""

    __slots__ = ()
    __hash__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride] - == builds an expression

    def evaluate(self, match: Matched) -> Any:
        """The value in a match; None where it is not known."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise PatternError(f"{es.author_origin(HERE)}: {self} has no value before a match; write &, | and ~ for and, or, not")

    def __eq__(self, other: object) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride] - it builds one
        return Binary("==", self, as_expression(other))

    def __ne__(self, other: object) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride] - it builds one
        return Binary("!=", self, as_expression(other))

    def __lt__(self, other: object) -> Expression:
        return Binary("<", self, as_expression(other))

    def __le__(self, other: object) -> Expression:
        return Binary("<=", self, as_expression(other))

    def __gt__(self, other: object) -> Expression:
        return Binary(">", self, as_expression(other))

    def __ge__(self, other: object) -> Expression:
        return Binary(">=", self, as_expression(other))

    def __add__(self, other: object) -> Expression:
        return Binary("+", self, as_expression(other))

    def __sub__(self, other: object) -> Expression:
        return Binary("-", self, as_expression(other))

    def __mul__(self, other: object) -> Expression:
        return Binary("*", self, as_expression(other))

    def __floordiv__(self, other: object) -> Expression:
        return Binary("//", self, as_expression(other))

    def __mod__(self, other: object) -> Expression:
        return Binary("%", self, as_expression(other))

    def __and__(self, other: object) -> Expression:
        return Binary("&", self, as_expression(other))

    def __or__(self, other: object) -> Expression:
        return Binary("|", self, as_expression(other))

    def __invert__(self) -> Expression:
        return Not(self)

    def __getitem__(self, index: int) -> Expression:
        return Item(self, index)

    def one_of(self, *values: object) -> Expression:
        """Whether it is one of these values."""
        return OneOf(self, tuple(as_expression(value) for value in values))


@dataclass(frozen=True, slots=True, eq=False)
class Known(Expression):
    """A Python value."""

    known: Any

    def __str__(self) -> str:
        return self.known.name if isinstance(self.known, DataType) else repr(self.known)

    def evaluate(self, match: Matched) -> Any:
        del match
        return self.known


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expression):
    """An attribute variable: the value that an operator of the source pattern has there."""

    name: str

    def __str__(self) -> str:
        return self.name

    def evaluate(self, match: Matched) -> Any:
        return match.Attr(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Field(Expression):
    """Something that is known of a tensor: ``dtype``, ``shape``, ``rank``, ``is_constant`` or ``op_type``."""

    tensor: str
    field: str

    def __str__(self) -> str:
        return f"{self.tensor}.{self.field}"

    def evaluate(self, match: Matched) -> Any:
        return FIELDS[self.field](match.value(self.tensor))


def _shape(value: Value) -> tuple[Any, ...] | None:
    return None if value.shape is None else tuple(Symbol(dim) if isinstance(dim, str) else dim for dim in value.shape)


FIELDS: MappingProxyType[str, Callable[[Value], Any]] = MappingProxyType(
    {
        "dtype": lambda value: value.dtype,
        "shape": _shape,
        "rank": lambda value: value.rank,
        "is_constant": lambda value: value.is_constant,
        "op_type": lambda value: None if value.producer is None else value.producer.op,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Item(Expression):
    """An entry of a list or shape."""

    of: Expression
    index: int

    def __str__(self) -> str:
        return f"{self.of}[{self.index}]"

    def evaluate(self, match: Matched) -> Any:
        found = self.of.evaluate(match)
        if found is None or not -len(found) <= self.index < len(found):
            return None
        return found[self.index]


@dataclass(frozen=True, slots=True, eq=False)
class Not(Expression):
    of: Expression

    def __str__(self) -> str:
        return f"~({self.of})"

    def evaluate(self, match: Matched) -> Any:
        found = self.of.evaluate(match)
        return None if found is None else not found


@dataclass(frozen=True, slots=True, eq=False)
class OneOf(Expression):
    of: Expression
    values: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.of} in ({', '.join(map(str, self.values))})"

    def evaluate(self, match: Matched) -> Any:
        found = self.of.evaluate(match)
        return _any(_equal(found, value.evaluate(match)) for value in self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expression):
    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{_operand(self.left)} {self.operator} {_operand(self.right)}"

    def evaluate(self, match: Matched) -> Any:
        return _OPERATORS[self.operator](self.left.evaluate(match), self.right.evaluate(match))


def parts(of: Expression) -> Iterator[Field | Variable]:
    """The tensors and attribute variables that an expression asks about."""
    if isinstance(of, Field | Variable):
        yield of
    elif isinstance(of, Item | Not):
        yield from parts(of.of)
    elif isinstance(of, OneOf):
        for each in (of.of, *of.values):
            yield from parts(each)
    elif isinstance(of, Binary):
        yield from parts(of.left)
        yield from parts(of.right)


def as_expression(given: object) -> Expression:
    return given if isinstance(given, Expression) else Known(given)


def _operand(of: Expression) -> str:
    return f"({of})" if isinstance(of, Binary) else str(of)


# -- three values: true, false, unknown -----------------------------------------------------------------------------


def _all(answers: Any) -> bool | None:
    listed = list(answers)
    return False if False in listed else None if None in listed else True


def _any(answers: Any) -> bool | None:
    listed = list(answers)
    return True if True in listed else None if None in listed else False


def _equal(left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if _is_list(left) and _is_list(right):
        a, b = cast("Sequence[Any]", left), cast("Sequence[Any]", right)
        return _all(_equal(x, y) for x, y in zip(a, b, strict=True)) if len(a) == len(b) else False
    if isinstance(left, Symbol) or isinstance(right, Symbol):
        return True if left == right else None
    return bool(left == right)


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _unequal(left: Any, right: Any) -> bool | None:
    equal = _equal(left, right)
    return None if equal is None else not equal


def _of_known(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if any(side is None or isinstance(side, Symbol) for side in (left, right)):
            return None
        return function(left, right)

    return apply


_OPERATORS: MappingProxyType[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "==": _equal,
        "!=": _unequal,
        "<": _of_known(operator.lt),
        "<=": _of_known(operator.le),
        ">": _of_known(operator.gt),
        ">=": _of_known(operator.ge),
        "+": _of_known(operator.add),
        "-": _of_known(operator.sub),
        "*": _of_known(operator.mul),
        "//": _of_known(lambda a, b: a // b if b else None),
        "%": _of_known(lambda a, b: a % b if b else None),
        "&": lambda a, b: _all((a, b)),
        "|": lambda a, b: _any((a, b)),
    }
)
