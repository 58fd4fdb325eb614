"""DRR's spelling of ``gehost.expressions``: Python's operators over tensors and attributes.

``pat.x.dtype == pat.y.dtype`` builds an expression; a match gives it a value later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, cast

from gehost import DataType, PatternError, Value, es, expressions

HERE = __file__.rpartition("/")[0] + "/"


class Matched(Protocol):
    """Values that an expression reads from a match."""

    def value(self, name: str) -> Value: ...

    def Attr(self, name: str) -> Any: ...


class _Bound:
    """A match as ``gehost.expressions`` reads it."""

    def __init__(self, match: Matched) -> None:
        self._match = match

    def tensor(self, key: str, /) -> Value:
        return self._match.value(key)

    def attribute(self, _op: None, name: str, /) -> Any:
        result = self._match.Attr(name)
        if result is None:
            raise expressions.Unknown(f"there is no attribute {name}")
        return expressions.stored(result, "float32")


class Expression:
    """A value that a match will have.

    Python's operators build larger ones; ``&``, ``|`` and ``~`` stand for and, or, not.
    """

    __slots__ = ("binary", "node", "text")
    __hash__: ClassVar[None]  # pyright: ignore[reportIncompatibleMethodOverride] - == builds an expression
    __iter__: ClassVar[None] = None
    """Indices are not known to end: ``for dim in pat.x.shape`` would not either."""

    def __init__(self, node: expressions.Expression, text: str, *, binary: bool = False) -> None:
        """Wrap an expression with its text; ``binary`` if an operand needs parentheses."""
        self.node = node
        self.text = text
        self.binary = binary

    @property
    def is_condition(self) -> bool:
        """Whether the value is true or false, where it is known."""
        match self.node:
            case expressions.Condition() | expressions.Not() | expressions.Logical():
                return True
            case expressions.TensorAttr(_, name):
                return name == "is_constant"
            case expressions.Constant(value):
                return isinstance(value, bool)
            case _:
                return False

    def at(self, match: Matched) -> Any:
        """The value in a match; raises ``gehost.expressions.Unknown`` with the reason."""
        return self.node.at(_Bound(match))

    def evaluate(self, match: Matched) -> Any:
        """The value in a match; None where it is not known."""
        try:
            return self.at(match)
        except expressions.Unknown:
            return None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"expression {self}"

    def __bool__(self) -> bool:
        raise PatternError(
            f"{self} has no value before a match",
            where=es.author_origin(HERE),
            hint="write &, | and ~ for and, or, not",
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

    def __truediv__(self, other: object) -> Expression:
        return _joined("/", self, other)

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
        return Compound(expressions.Not(as_condition(self).node), f"~({self})")

    def __getitem__(self, index: object) -> Expression:
        """Return an entry, also by an expression, or a slice of numbers."""
        if isinstance(index, slice):
            which = cast("slice[Any, Any, Any]", index)
            if all(
                bound is None or isinstance(bound, int)
                for bound in (which.start, which.stop, which.step)
            ):
                bounds = (
                    which.start,
                    which.stop,
                    *([which.step] if which.step is not None else []),
                )
                text = ":".join("" if bound is None else str(bound) for bound in bounds)
                part = expressions.Part(self.node, which.start, which.stop, which.step)
                return Compound(part, f"{self}[{text}]")
        elif isinstance(index, Expression | int):
            result = as_expression(index)
            number = index if isinstance(index, int) else result.node
            return Compound(expressions.Item(self.node, number), f"{self}[{result}]")
        raise PatternError(
            f"{self} takes a number, an expression or a slice of numbers",
            where=es.author_origin(HERE),
        )

    def one_of(self, *values: object) -> Expression:
        """Whether it is one of these values."""
        items = [as_expression(value) for value in values]
        for value in items:
            _check_comparable(self, value)
        equal = tuple(expressions.Condition(self.node, "==", value.node) for value in items)
        text = f"{self} in ({', '.join(map(str, items))})"
        return Compound(expressions.Logical("|", equal), text)


class Compound(Expression):
    """An expression over others.

    No such class derives from another, since Python would then swap comparisons.
    """

    __slots__ = ()


class Variable(Expression):
    """An attribute variable: an attribute's value in the source pattern's operator."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(expressions.OpAttr(None, name), name)
        self.name = name


class Field(Expression):
    """A property of a tensor: one of ``FIELDS``."""

    __slots__ = ("field", "tensor")

    def __init__(self, tensor: str, field: str) -> None:
        super().__init__(expressions.TensorAttr(tensor, field), f"{tensor}.{field}")
        self.tensor = tensor
        self.field = field


_COMPARED: MappingProxyType[str, tuple[type, ...]] = MappingProxyType(
    {
        "dtype": (DataType, int),
        "shape": (list, tuple),
        "rank": (int,),
        "is_constant": (bool,),
        "op_type": (str,),
    }
)
"""The Python types that a field can be compared with."""
FIELDS = tuple(_COMPARED)


def parts(of: Expression) -> Iterator[expressions.TensorAttr | expressions.OpAttr]:
    """Yield the tensors and attribute variables that an expression reads."""
    for part in expressions.parts_of(of.node):
        if isinstance(part, expressions.TensorAttr | expressions.OpAttr):
            yield part


def as_expression(argument: object) -> Expression:
    """Convert an author's operand to an expression.

    Raises:
        PatternError: it is neither an expression, a number, a text, nor a list of them.
    """
    if isinstance(argument, Expression):
        return argument
    entries = (
        cast("Sequence[object]", argument) if isinstance(argument, list | tuple) else [argument]
    )
    if not all(isinstance(entry, int | float | str) for entry in entries):
        expected = "an expression over tensors (x.dtype, x.shape, …) and attributes, or a value"
        raise PatternError(f"wanted {expected}, got {argument!r}", where=es.author_origin(HERE))
    value = cast("Any", argument)
    text = value.name if isinstance(value, DataType) else repr(value)
    return Compound(expressions.Constant(value), text)


def _joined(operator: str, left: object, right: object) -> Expression:
    """Join two sides by an operator.

    Raises:
        PatternError: they cannot be compared, or are no conditions that could be joined.
    """
    one, other = as_expression(left), as_expression(right)
    if operator in "&|":
        one, other = as_condition(one), as_condition(other)
    elif operator in ("==", "!="):
        _check_comparable(one, other)
    sides = one.node, other.node
    if operator in "&|":
        node = expressions.Logical(operator, sides)
    elif operator in expressions.RELATIONS:
        node = expressions.Condition(sides[0], operator, sides[1])
    else:
        node = expressions.Binary(operator, *sides)
    return Compound(node, f"{_operand(one)} {operator} {_operand(other)}", binary=True)


def as_condition(argument: Expression) -> Expression:
    """An expression that is true or false.

    Raises:
        PatternError: its value is something else.
    """
    if not argument.is_condition:
        raise PatternError(
            f"{argument} is neither true nor false",
            where=es.author_origin(HERE),
            hint="compare it with something",
        )
    return argument


def _check_comparable(left: Expression, right: Expression) -> None:
    """A comparison that cannot hold would make its opposite hold always."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Field) and isinstance(other.node, expressions.Constant):
            expected = _COMPARED[one.field]
            if not isinstance(other.node.value, expected):
                names = " or ".join(kind.__name__ for kind in expected)
                raise PatternError(
                    f"{one} is compared with {names}, got {other}", where=es.author_origin(HERE)
                )


def _operand(of: Expression) -> str:
    return f"({of})" if of.binary else str(of)
