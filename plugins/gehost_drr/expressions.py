"""Conditions as expressions over what a rule matched: printable, and true only where they are known
to hold.

``pat.x.dtype == pat.y.dtype`` builds a tree; the match gives it a value later. What is not known
makes the whole unknown (None): an unknown dimension equals nothing, and two different symbols may
or may not be the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, cast

from msgspec import Struct

from gehost import DataType, PatternError, Value, es
from gehost_drr.known import OPERATORS, Symbol, any_of, equal

HERE = __file__.rpartition("/")[0] + "/"


class Matched(Protocol):
    """What an expression asks of a match."""

    def value(self, name: str) -> Value: ...

    def Attr(self, name: str) -> Any: ...


class Expression:
    """A value that a match will have. Python's operators build larger ones; ``&``, ``|`` and
    ``~`` stand for and, or, not.
    """

    __slots__ = ()
    __hash__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride] - == builds an expression
    __iter__: ClassVar[None] = None
    """Indices are not known to end: ``for dim in pat.x.shape`` would not either."""

    @property
    def is_condition(self) -> bool:
        """Whether the value is true or false, where it is known."""
        return False

    def evaluate(self, match: Matched) -> Any:
        """The value in a match; None where it is not known."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"expression {self}"

    def __bool__(self) -> bool:
        raise PatternError(
            f"{es.author_origin(HERE)}: {self} has no value before a match; write &, | and "
            "~ for and, or, not"
        )

    def __eq__(self, other: object) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride] - it builds one
        return _joined("==", self, other)

    def __ne__(self, other: object) -> Expression:  # pyright: ignore[reportIncompatibleMethodOverride] - it builds one
        return _joined("!=", self, other)

    def __lt__(self, other: object) -> Expression:
        return _joined("<", self, other)

    def __le__(self, other: object) -> Expression:
        return _joined("<=", self, other)

    def __gt__(self, other: object) -> Expression:
        return _joined(">", self, other)

    def __ge__(self, other: object) -> Expression:
        return _joined(">=", self, other)

    def __add__(self, other: object) -> Expression:
        return _joined("+", self, other)

    def __sub__(self, other: object) -> Expression:
        return _joined("-", self, other)

    def __mul__(self, other: object) -> Expression:
        return _joined("*", self, other)

    def __floordiv__(self, other: object) -> Expression:
        return _joined("//", self, other)

    def __mod__(self, other: object) -> Expression:
        return _joined("%", self, other)

    def __radd__(self, other: object) -> Expression:
        return _joined("+", other, self)

    def __rsub__(self, other: object) -> Expression:
        return _joined("-", other, self)

    def __rmul__(self, other: object) -> Expression:
        return _joined("*", other, self)

    def __and__(self, other: object) -> Expression:
        return _joined("&", self, other)

    def __or__(self, other: object) -> Expression:
        return _joined("|", self, other)

    def __invert__(self) -> Expression:
        return Not(as_condition(self))

    def __getitem__(self, index: object) -> Expression:
        """An entry, also by an expression; or a part, by a slice of numbers."""
        if isinstance(index, slice):
            which = cast("slice[Any, Any, Any]", index)
            if all(
                bound is None or isinstance(bound, int)
                for bound in (which.start, which.stop, which.step)
            ):
                return Part(self, which)
        elif isinstance(index, Expression | int):
            return Item(self, as_expression(index))
        raise PatternError(
            f"{es.author_origin(HERE)}: {self} takes a number, an expression or a slice of numbers"
        )

    def one_of(self, *values: object) -> Expression:
        """Whether it is one of these values."""
        listed = tuple(as_expression(value) for value in values)
        for value in listed:
            _check_comparable(self, value)
        return OneOf(self, listed)


class Known(Expression, Struct, frozen=True, eq=False):
    """A Python value."""

    known: Any

    def __str__(self) -> str:
        return self.known.name if isinstance(self.known, DataType) else repr(self.known)

    @property
    def is_condition(self) -> bool:
        return isinstance(self.known, bool)

    def evaluate(self, match: Matched) -> Any:
        del match
        return self.known


class Variable(Expression, Struct, frozen=True, eq=False):
    """An attribute variable: the value that an operator of the source pattern has there."""

    name: str

    def __str__(self) -> str:
        return self.name

    def evaluate(self, match: Matched) -> Any:
        return match.Attr(self.name)


class Field(Expression, Struct, frozen=True, eq=False):
    """Something that is known of a tensor: ``dtype``, ``shape``, ``rank``, ``is_constant`` or
    ``op_type``.
    """

    tensor: str
    field: str

    def __str__(self) -> str:
        return f"{self.tensor}.{self.field}"

    @property
    def is_condition(self) -> bool:
        return self.field == "is_constant"

    def evaluate(self, match: Matched) -> Any:
        return FIELDS[self.field](match.value(self.tensor))


def _shape(value: Value) -> tuple[Any, ...] | None:
    return None if value.shape is None else tuple(map(_size, value.shape))


def _size(dim: Any) -> Any:
    return Symbol(dim) if isinstance(dim, str) else dim


FIELDS: MappingProxyType[str, Callable[[Value], Any]] = MappingProxyType(
    {
        "dtype": lambda value: value.dtype,
        "shape": _shape,
        "rank": lambda value: value.rank,
        "is_constant": lambda value: value.is_constant,
        "op_type": lambda value: None if value.producer is None else value.producer.op,
    }
)


_COMPARED: MappingProxyType[str, tuple[type, ...]] = MappingProxyType(
    {
        "dtype": (DataType, int),
        "shape": (list, tuple),
        "rank": (int,),
        "is_constant": (bool,),
        "op_type": (str,),
    }
)
"""With which values a field can be compared."""


class Item(Expression, Struct, frozen=True, eq=False):
    """An entry of a list or shape."""

    of: Expression
    index: Expression

    def __str__(self) -> str:
        return f"{self.of}[{self.index}]"

    def evaluate(self, match: Matched) -> Any:
        of, index = self.of, self.index.evaluate(match)
        if isinstance(of, Field) and of.field == "shape":  # one size; the others need no symbols
            return _size(_entry(match.value(of.tensor).shape, index))
        return _entry(of.evaluate(match), index)


def _entry(found: Any, index: Any) -> Any:
    if found is None or not isinstance(index, int) or not -len(found) <= index < len(found):
        return None
    return found[index]


class Part(Expression, Struct, frozen=True, eq=False):
    """Some entries of a list or shape."""

    of: Expression
    which: slice[Any, Any, Any]

    def __str__(self) -> str:
        bounds = (
            self.which.start,
            self.which.stop,
            *([self.which.step] if self.which.step is not None else []),
        )
        return f"{self.of}[{':'.join('' if bound is None else str(bound) for bound in bounds)}]"

    def evaluate(self, match: Matched) -> Any:
        found = self.of.evaluate(match)
        return None if found is None else found[self.which]


class Not(Expression, Struct, frozen=True, eq=False):
    of: Expression

    def __str__(self) -> str:
        return f"~({self.of})"

    @property
    def is_condition(self) -> bool:
        return True

    def evaluate(self, match: Matched) -> Any:
        found = self.of.evaluate(match)
        return None if found is None else not found


class OneOf(Expression, Struct, frozen=True, eq=False):
    of: Expression
    values: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.of} in ({', '.join(map(str, self.values))})"

    @property
    def is_condition(self) -> bool:
        return True

    def evaluate(self, match: Matched) -> Any:
        found = self.of.evaluate(match)
        return any_of(equal(found, value.evaluate(match)) for value in self.values)


class Binary(Expression, Struct, frozen=True, eq=False):
    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{_operand(self.left)} {self.operator} {_operand(self.right)}"

    @property
    def is_condition(self) -> bool:
        return self.operator not in ("+", "-", "*", "//", "%")

    def evaluate(self, match: Matched) -> Any:
        return OPERATORS[self.operator](self.left.evaluate(match), self.right.evaluate(match))


def parts(of: Expression) -> Iterator[Field | Variable]:
    """The tensors and attribute variables that an expression asks about."""
    if isinstance(of, Field | Variable):
        yield of
    elif isinstance(of, Not | Part):
        yield from parts(of.of)
    elif isinstance(of, Item):
        yield from parts(of.of)
        yield from parts(of.index)
    elif isinstance(of, OneOf):
        for each in (of.of, *of.values):
            yield from parts(each)
    elif isinstance(of, Binary):
        yield from parts(of.left)
        yield from parts(of.right)


def as_expression(given: object) -> Expression:
    """What an author wrote in an expression, as one.

    Raises:
        PatternError: it is neither an expression, a number, a text, nor a list of them.
    """
    if isinstance(given, Expression):
        return given
    entries = cast("Sequence[object]", given) if isinstance(given, list | tuple) else [given]
    if not all(isinstance(entry, int | float | str) for entry in entries):
        wanted = "an expression over tensors (x.dtype, x.shape, …) and attributes, or a value"
        raise PatternError(f"{es.author_origin(HERE)}: wanted {wanted}, got {given!r}")
    return Known(given)


def _joined(operator: str, left: object, right: object) -> Expression:
    """Two sides under an operator; not in ``Binary`` itself, whose lines have no file.

    Raises:
        PatternError: they cannot be compared, or are no conditions that could be joined.
    """
    one, other = as_expression(left), as_expression(right)
    if operator in "&|":
        one, other = as_condition(one), as_condition(other)
    elif operator in ("==", "!="):
        _check_comparable(one, other)
    return Binary(operator, one, other)


def as_condition(given: Expression) -> Expression:
    """An expression that is true or false.

    Raises:
        PatternError: its value is something else.
    """
    if not given.is_condition:
        raise PatternError(
            f"{es.author_origin(HERE)}: {given} is neither true nor false; compare it with "
            "something"
        )
    return given


def _check_comparable(left: Expression, right: Expression) -> None:
    """A comparison that cannot hold would make its opposite hold always."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Field) and isinstance(other, Known):
            wanted = _COMPARED[one.field]
            if not isinstance(other.known, wanted):
                names = " or ".join(kind.__name__ for kind in wanted)
                raise PatternError(
                    f"{es.author_origin(HERE)}: {one} is compared with {names}, got {other}"
                )


def _operand(of: Expression) -> str:
    return f"({of})" if isinstance(of, Binary) else str(of)
