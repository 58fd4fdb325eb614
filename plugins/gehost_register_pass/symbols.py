"""What authors compute and compare with: symbols, whose operators build expressions and whose comparisons state conditions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gehost import DataType

from .expressions import Binary, Condition, Constant, Expression, Item, Listed, Native, Size
from .scope import current, mistake, tracing

Number: TypeAlias = "Symbol | int | float"
Comparable: TypeAlias = "Symbol | int | float | str | DataType | list[Any] | tuple[Any, ...]"


class Stated:
    """A condition that was stated; it has no truth value yet."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition

    def __bool__(self) -> bool:
        raise mistake("a comparison is a condition on the graph, and is stated by writing it; it has no value while it is traced")


class Symbol:
    """A value that only a match will have: ``x.Attr("shape")[0]``, and what is computed from it.

    A comparison, as ``a.EQ(b)`` or as ``a == b``, is a condition of the pattern: write it as a statement of its own.
    """

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride] - equality is no question here
    __iter__: ClassVar[None] = None
    """Nobody knows how many elements there will be; ``Size`` tells a match."""
    __contains__: ClassVar[None] = None

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    @property
    def expression(self) -> Expression:
        return self._expression

    def __bool__(self) -> bool:
        raise mistake("a symbol has no value while it is traced; compare it: the comparison is a condition on the graph")

    def __getitem__(self, index: int) -> Symbol:
        """One element, counted from the end where ``index`` is negative."""
        if type(index) is not int:
            raise mistake(f"a symbol takes one integer as an index, got {index!r}")
        return Symbol(Item(self.expression, index))

    def Size(self) -> Symbol:
        """How many elements the list has; of a shape, the rank."""
        return Symbol(Size(self.expression))

    def __add__(self, other: Number) -> Symbol:
        return _binary("+", self, other)

    def __radd__(self, other: Number) -> Symbol:
        return _binary("+", other, self)

    def __sub__(self, other: Number) -> Symbol:
        return _binary("-", self, other)

    def __rsub__(self, other: Number) -> Symbol:
        return _binary("-", other, self)

    def __mul__(self, other: Number) -> Symbol:
        return _binary("*", self, other)

    def __rmul__(self, other: Number) -> Symbol:
        return _binary("*", other, self)

    def __truediv__(self, other: Number) -> Symbol:
        return _binary("/", self, other)

    def __rtruediv__(self, other: Number) -> Symbol:
        return _binary("/", other, self)

    def __floordiv__(self, other: Number) -> Symbol:
        return _binary("//", self, other)

    def __rfloordiv__(self, other: Number) -> Symbol:
        return _binary("//", other, self)

    def __mod__(self, other: Number) -> Symbol:
        return _binary("%", self, other)

    def __rmod__(self, other: Number) -> Symbol:
        return _binary("%", other, self)

    def __neg__(self) -> Symbol:
        return _binary("-", 0, self)

    Add, Sub, Mul, Div, Mod = __add__, __sub__, __mul__, __truediv__, __mod__

    def EQ(self, other: Comparable) -> Stated:
        """State that both are equal; lists are so element by element, and two unknown sizes are not."""
        return _state(self, "==", expression_of(other))

    def Holds(self) -> Stated:
        """State that it is true: ``native(is_even)(x.Attr("shape")[0]).Holds()``."""
        return _state(self, "==", Constant(value=True))

    def NE(self, other: Comparable) -> Stated:
        return _state(self, "!=", expression_of(other))

    def LT(self, other: Comparable) -> Stated:
        return _state(self, "<", expression_of(other))

    def LE(self, other: Comparable) -> Stated:
        return _state(self, "<=", expression_of(other))

    def GT(self, other: Comparable) -> Stated:
        return _state(self, ">", expression_of(other))

    def GE(self, other: Comparable) -> Stated:
        return _state(self, ">=", expression_of(other))

    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = EQ, NE, LT, LE, GT, GE  # pyright: ignore[reportAssignmentType]


def _binary(sign: str, left: Number, right: Number) -> Symbol:
    return Symbol(Binary(sign, expression_of(left), expression_of(right)))


def _state(left: Symbol, relation: str, right: Expression) -> Stated:
    scope = current("a condition")
    if scope.role == "replace":
        raise mistake("conditions are stated in the pattern function")
    condition = Condition(left.expression, relation, right)
    scope.conditions.append(condition)
    return Stated(condition)


def expression_of(value: Any) -> Expression:
    """What an author gave, as an expression; arrays and lists become tuples.

    Raises:
        PatternError: it is no symbol, number, text or list of these.
    """
    if isinstance(value, Symbol):
        return value.expression
    if isinstance(value, DataType):
        return Constant(value.numpy.name)
    if isinstance(value, np.ndarray | np.generic):
        return Constant(_tuples(value.tolist()))
    if isinstance(value, list | tuple):
        items: list[Expression] = [expression_of(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        if all(isinstance(item, Constant) for item in items):
            return Constant(tuple(item.value for item in items if isinstance(item, Constant)))
        return Listed(tuple(items))
    if isinstance(value, bool | int | float | str):
        return Constant(value)
    raise mistake(f"wanted a number, a text, a list of them or a symbol, got {type(value).__name__}")


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def native(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a Python function be called with what a match will have; on symbols it gives a symbol, else it is as before.

    A rule that calls one is native: its JSON form holds the import path alone.
    """
    path = f"{function.__module__}:{function.__qualname__}"

    @functools.wraps(function)
    def symbolic(*arguments: Any, **keywords: Any) -> Any:
        if tracing.get() is None:
            return function(*arguments, **keywords)
        if keywords:
            raise mistake(f"{function.__name__}: a native function takes its arguments by position")
        return Symbol(Native(path, tuple(map(expression_of, arguments)), inspect.unwrap(function)))

    return symbolic
