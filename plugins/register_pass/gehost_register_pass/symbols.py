"""Symbols that authors compute and compare with.

Their operators build expressions, and their comparisons state conditions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from gehost import DataType
from gehost import expressions as ex

from .scope import current, mistake

Number: TypeAlias = "Symbol | int | float"
Comparable: TypeAlias = "Symbol | int | float | str | DataType | list[Any] | tuple[Any, ...]"


class Untold:
    """A value that only a match has.

    It has no truth value while a function is traced.
    """

    __array_ufunc__: ClassVar[None] = None
    """NumPy's numbers and arrays leave operators to it."""
    _advice: ClassVar[str] = (
        "a symbol has no value while it is traced; compare it: the comparison is a "
        "condition on the graph"
    )

    def __bool__(self) -> bool:
        raise mistake(self._advice)


class Stated(Untold):
    """A condition that was stated."""

    _advice = (
        "a comparison is a condition on the graph, and is stated by writing it; it has no "
        "value while it is traced"
    )


class Symbol(Untold):
    """A value that only a match will have, as ``x.Attr("shape")[0]``.

    A comparison, as ``a.EQ(b)`` or as ``a == b``, is a condition of the pattern: write it as a
    statement of its own.
    """

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride] - equality is no question here
    __iter__: ClassVar[None] = None
    """The number of elements is unknown; ``Size`` gives it for a match."""
    __contains__: ClassVar[None] = None

    def __init__(self, expression: ex.Expression) -> None:
        self._expression = expression
        self._matched = current("a symbol").matched

    @property
    def expression(self) -> ex.Expression:
        """Raise ``PatternError`` in another pair of functions.

        A symbol belongs to the pair that it was made in.
        """
        if current("a symbol").matched is not self._matched:
            raise mistake("a match of another pattern is not known here")
        return self._expression

    def __getitem__(self, index: int) -> Symbol:
        """One element, counted from the end where ``index`` is negative."""
        if type(index) is not int:
            raise mistake(f"a symbol takes one integer as an index, got {index!r}")
        return Symbol(ex.Item(self.expression, index))

    def Size(self) -> Symbol:
        """How many elements the list has; of a shape, the rank."""
        return Symbol(ex.Size(self.expression))

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
        """State that both are equal.

        Lists are so element by element, and two unknown sizes are not.
        """
        return _state(self, "==", expression_of(other))

    def Holds(self) -> Stated:
        """State that it is true: ``native(is_even)(x.Attr("shape")[0]).Holds()``."""
        return _state(self, "==", ex.Constant(value=True))

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
    return Symbol(ex.Binary(sign, expression_of(left), expression_of(right)))


def _state(left: Symbol, relation: str, right: ex.Expression) -> Stated:
    scope = current("a condition")
    if scope.role == "replace":
        raise mistake("conditions are stated in the pattern function")
    expression = left.expression
    if (
        isinstance(expression, ex.TensorAttr)
        and expression.name == "dtype"
        and isinstance(right, ex.Constant)
    ):
        right = ex.Constant(dtype_name(right.value))
    scope.conditions.append(ex.Condition(expression, relation, right))
    return Stated()


def dtype_name(value: Any) -> str:
    """Return numpy's name of an author's element type.

    A name that does not exist would differ from every tensor's.
    """
    dtype_ = next((name for name, dtype in ex.DTYPES.items() if value in (name, dtype)), None)
    if dtype_ is None:
        raise mistake(
            f"there is no dtype {value!r}; give a DataType or numpy's name, as in float32"
        )
    return dtype_


def expression_of(value: Any) -> ex.Expression:
    """Convert an author's value to an expression; arrays and lists become tuples.

    Raises:
        PatternError: it is no symbol, number, text or list of these.
    """
    if isinstance(value, Symbol):
        return value.expression
    if isinstance(value, np.ndarray | np.generic):
        return ex.Constant(_tuples(value.tolist()))
    if isinstance(value, list | tuple):
        items: list[ex.Expression] = [expression_of(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        if all(isinstance(item, ex.Constant) for item in items):
            return ex.Constant(tuple(item.value for item in items if isinstance(item, ex.Constant)))
        return ex.Listed(tuple(items))
    if isinstance(value, bool | str):
        return ex.Constant(value)
    if isinstance(value, int | float):
        # of an IntEnum the number
        return ex.Constant(int(value) if isinstance(value, int) else float(value))
    raise mistake(
        f"wanted a number, a text, a list of them or a symbol, got {type(value).__name__}"
    )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def native(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a Python function be called with symbols.

    It then gives a symbol, else it is as before.

    Where it returns None, the match is refused. A rule that calls one is native: its JSON form
    holds the import path alone.

    Raises:
        PatternError: it has no name, as a ``functools.partial`` has none, or is no function.
    """
    if not callable(function) or not hasattr(function, "__qualname__"):
        raise mistake(f"native wants a function that has a name, got {function!r}")
    path = f"{function.__module__}:{function.__qualname__}"

    @functools.wraps(function)
    def symbolic(*arguments: Any, **keywords: Any) -> Any:
        if not _holds_untold([*arguments, *keywords.values()]):
            return function(*arguments, **keywords)
        if keywords:
            raise mistake(f"{function.__name__}: a native function takes its arguments by position")
        return Symbol(
            ex.Native(path, tuple(map(expression_of, arguments)), inspect.unwrap(function))
        )

    return symbolic


def _holds_untold(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_untold, cast("Sequence[Any]", value)))
    return isinstance(value, Untold)
