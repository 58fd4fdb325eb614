"""Expressions over a match: sizes, dtypes, attributes, arithmetic and conditions.

Plugins define the spelling; this module defines the meaning. An expression is data: it can be
compared, printed and serialised. ``at`` returns its value at a match or raises ``Unknown`` with the
reason: an unknown size equals nothing, two names of sizes may or may not be equal, and a division
by zero has no value. A condition with an unknown part holds only if the other parts decide it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np
import onnx
from msgspec import Struct

from gehost import sizes
from gehost.ir.graph import Value
from gehost.ir.types import DataType
from gehost.sizes.values import elementwise

_T = TypeVar("_T")


class Unknown(Exception):  # noqa: N818 - no error: the match is refused
    """An expression has no value here; the text is the reason."""


class Matched(Protocol):
    """The bindings of a match, by plugins' keys of tensors and operators."""

    def tensor(self, key: Any, /) -> Value: ...

    def attribute(self, op: Any, name: str, /) -> Any:
        """Raise ``Unknown`` if the node lacks the attribute, without a default."""
        ...


# expressions


class Constant(Struct, frozen=True):
    """A number, a text, or (nested) tuples of them."""

    value: Any

    def at(self, _matched: Matched) -> Any:
        return self.value


class TensorAttr(Struct, frozen=True):
    """A property of a matched tensor: one of ``TENSOR_ATTRIBUTES``."""

    tensor: Any
    name: str

    def __post_init__(self) -> None:
        _one_of(self.name, TENSOR_ATTRIBUTES, "attribute of a tensor")

    def at(self, matched: Matched) -> Any:
        return TENSOR_ATTRIBUTES[self.name](matched.tensor(self.tensor))


class OpAttr(Struct, frozen=True):
    """An attribute of a matched node.

    ``op`` is None if the name alone identifies it.
    """

    op: Any
    name: str

    def at(self, matched: Matched) -> Any:
        return matched.attribute(self.op, self.name)


class Item(Struct, frozen=True):
    """One element of a list; a negative index counts from the end."""

    of: Expression
    index: Expression | int

    def at(self, matched: Matched) -> Any:
        index = self.index if isinstance(self.index, int) else known(self.index.at(matched))
        if not isinstance(index, int):
            raise Unknown(f"{index!r} is no index")
        if isinstance(self.of, TensorAttr) and self.of.name == "shape":  # one size, not all
            value = matched.tensor(self.of.tensor)
            return _size(value, _item(_dims(value), index))
        return _item(self.of.at(matched), index)


class Part(Struct, frozen=True):
    """Some elements of a list, as a slice of Python's."""

    of: Expression
    start: int | None
    stop: int | None
    step: int | None

    def at(self, matched: Matched) -> Any:
        return _as_list(self.of.at(matched))[self.start : self.stop : self.step]


class Size(Struct, frozen=True):
    """The number of elements of a list."""

    of: Expression

    def at(self, matched: Matched) -> Any:
        if isinstance(self.of, TensorAttr) and self.of.name == "shape":
            return len(_dims(matched.tensor(self.of.tensor)))
        return len(_as_list(self.of.at(matched)))


class Binary(Struct, frozen=True):
    """Arithmetic with Python's meaning: ``sign`` is one of ``ARITHMETIC``."""

    sign: str
    left: Expression
    right: Expression

    def __post_init__(self) -> None:
        _one_of(self.sign, ARITHMETIC, "arithmetic")

    def at(self, matched: Matched) -> Any:
        left, right = self.left.at(matched), self.right.at(matched)
        if _are_sizes(left, right):
            return _of_sizes(self.sign, left, right)
        left, right = _number(left), _number(right)
        if self.sign in ("/", "//", "%") and right == 0:
            raise Unknown(f"{left} {self.sign} 0 has no value")
        return ARITHMETIC[self.sign](left, right)


class Listed(Struct, frozen=True):
    """A list with at least one element that is not constant."""

    items: tuple[Expression, ...]

    def at(self, matched: Matched) -> Any:
        return [item.at(matched) for item in self.items]


class Native(Struct, frozen=True):
    """A call of a Python function, known by its import path ``module:function``."""

    path: str
    arguments: tuple[Expression, ...]
    function: Callable[..., Any]

    def at(self, matched: Matched) -> Any:
        result = self.function(*[known(argument.at(matched)) for argument in self.arguments])
        if result is None:
            raise Unknown(f"{self.function.__name__} returned None")
        return result


class Condition(Struct, frozen=True):
    """A comparison; ``relation`` is one of ``RELATIONS``."""

    left: Expression
    relation: str
    right: Expression

    def __post_init__(self) -> None:
        _one_of(self.relation, RELATIONS, "relation")

    def at(self, matched: Matched) -> bool:
        return self.holds(self.left.at(matched), self.right.at(matched))

    def holds(self, left: Any, right: Any) -> bool:
        """Whether two values are in the relation.

        Raises:
            Unknown: sizes that are not known, or names that may or may not be equal.
        """
        if self.relation in ("==", "!="):
            return equal(left, right) is (self.relation == "==")
        if _are_sizes(left, right):
            return _in_relation(self.relation, left, right)
        return RELATIONS[self.relation](*_as_stored(_number(left), _number(right)))


class Not(Struct, frozen=True):
    of: Expression

    def at(self, matched: Matched) -> bool:
        return not self.of.at(matched)


class Logical(Struct, frozen=True):
    """Conditions joined by ``&`` or ``|``.

    One false or true part can decide although others are unknown.
    """

    sign: str
    parts: tuple[Expression, ...]

    def __post_init__(self) -> None:
        _one_of(self.sign, ("&", "|"), "junction")

    def at(self, matched: Matched) -> bool:
        decisive, unknown = self.sign == "|", None
        for part in self.parts:
            try:
                if part.at(matched) is decisive:
                    return decisive
            except Unknown as reason:
                unknown = unknown or reason
        if unknown is not None:
            raise unknown
        return not decisive


Expression: TypeAlias = (
    Constant
    | TensorAttr
    | OpAttr
    | Item
    | Part
    | Size
    | Binary
    | Listed
    | Native
    | Condition
    | Not
    | Logical
)


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all expressions inside it."""
    yield expression
    inside: tuple[Expression | int, ...] = ()
    match expression:
        case Item(of, index):
            inside = (of, index)
        case Part(of, _, _, _) | Size(of) | Not(of):
            inside = (of,)
        case Binary(_, left, right) | Condition(left, _, right):
            inside = (left, right)
        case Listed(items) | Logical(_, items) | Native(_, items, _):
            inside = items
        case Constant() | TensorAttr() | OpAttr():
            pass
    for part in inside:
        if not isinstance(part, int):
            yield from parts_of(part)


def _one_of(argument: str, allowed: Container[str], what: str) -> None:
    if argument not in allowed:
        raise ValueError(f"there is no {what} {argument!r}")


# values


class DimName(str):
    """The text of a size that is no number; what is asked of it is asked of its scope."""

    __slots__ = ("size",)

    def __new__(cls, size: sizes.Size) -> Self:
        result = super().__new__(cls, size)
        result.size = size
        return result


class DtypeName(str):
    """An element type by numpy's name, equal to ONNX's number for it."""

    __slots__ = ()


class Stored(float):
    """A float as stored in a model.

    Comparing a Python number rounds it to the same dtype.

    0.1 as float32 is 0.10000000149. Results of arithmetic are ordinary numbers.
    """

    __slots__ = ("_dtype",)

    def __new__(cls, value: float, dtype: Any) -> Self:
        result = super().__new__(cls, value)
        result._dtype = np.dtype(dtype)
        return result

    def rounded(self, other: float) -> float:
        """Return ``other`` rounded to this dtype.

        A number that equals this one, or is too large, stays as it is.
        """
        if float(self) == other:
            return other
        try:
            with np.errstate(all="ignore"):
                result = float(np.asarray(float(other)).astype(self._dtype))
        except OverflowError:
            return other
        return other if math.isinf(result) else result


_OF_ONNX = frozenset(onnx.TensorProto.DataType.values())  # an older one lacks the latest
DTYPES: Final = {dtype.numpy.name: dtype for dtype in DataType if dtype and dtype in _OF_ONNX}
"""Element types by numpy's names."""
_DTYPE_NAMES: Final = {dtype: DtypeName(name) for name, dtype in DTYPES.items()}
ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right,
    "//": lambda left, right: left // right,
    "%": operator.mod,
}
RELATIONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PLAIN: Final[frozenset[type]] = frozenset({int, float})
"""Types of most list elements; such lists need no conversion."""


def known(value: Any) -> Any:
    """Return a value whose parts are all known, with tuples as lists.

    Raises:
        Unknown: a size is not known, also inside a list.
    """
    if isinstance(value, list | tuple):
        entries = cast("Sequence[Any]", value)
        return list(entries) if _PLAIN.issuperset(map(type, entries)) else list(map(known, entries))
    if value is None:
        raise Unknown("a size is not known")
    if isinstance(value, DimName):
        raise Unknown(f"the size {value} is not known")
    return value


def plain(value: Any) -> Any:
    """Return a known value as operators take it.

    The result has lists for sequences, and ONNX's number for an element type.
    """
    if isinstance(value, list | tuple):
        entries = cast("Sequence[Any]", value)
        return list(entries) if _PLAIN.issuperset(map(type, entries)) else list(map(plain, entries))
    return int(DTYPES[value]) if isinstance(value, DtypeName) else value


def stored(value: Any, dtype: Any) -> Any:
    """Return an attribute or constant for comparison.

    Its floats are ``Stored`` in an element type.
    """
    if isinstance(value, list):
        return [stored(entry, dtype) for entry in cast("list[Any]", value)]
    return Stored(value, dtype) if type(value) is float else value


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal; a number equals a list of one.

    Raises:
        Unknown: it cannot be decided.
    """
    if type(left) is type(right) and type(left) in (int, DtypeName):  # most sizes, ranks, dtypes
        return left == right
    if left is None or right is None:
        raise Unknown("a size is not known")
    if _is_list(left) or _is_list(right):
        return _equal_lists(*(side if _is_list(side) else [side] for side in (left, right)))
    if _are_sizes(left, right):
        return _in_relation("==", left, right)
    if isinstance(left, DimName) or isinstance(right, DimName):
        raise Unknown(f"whether {left} is {right} is not known")
    if isinstance(left, DtypeName) or isinstance(right, DtypeName):
        left, right = (
            DTYPES.get(side, side) if isinstance(side, str) else side for side in (left, right)
        )
    left, right = _as_stored(left, right)
    if isinstance(left, str) is not isinstance(right, str):
        raise Unknown(f"{left!r} is not of the kind of {right!r}")
    return bool(left == right)


def _equal_lists(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if len(left) != len(right):
        return False
    arrays = [cast("Any", side) for side in (left, right) if isinstance(side, np.ndarray)]
    if len(arrays) == 2 and arrays[0].dtype == arrays[1].dtype:
        return np.array_equal(*arrays)
    unknown: Unknown | None = None
    for one, other in zip(left, right, strict=True):
        try:
            if not equal(one, other):
                return False
        except Unknown as reason:
            unknown = unknown or reason
    if unknown is not None:
        raise unknown
    return True


def _as_stored(left: Any, right: Any) -> tuple[Any, Any]:
    """Return both as a model would store them."""
    left, right = _python(left), _python(right)
    if isinstance(left, Stored) and type(right) in (int, float):
        return left, left.rounded(right)
    if isinstance(right, Stored) and type(left) in (int, float):
        return right.rounded(left), right
    return left, right


def _python(value: Any) -> Any:
    """Return an element of a constant as a Python number."""
    if not isinstance(value, np.generic):
        return value
    element = cast("Any", value)
    result = element.item()
    return Stored(result, element.dtype) if type(result) is float else result


def _require(result: _T | None, value: Value, problem: str) -> _T:
    """Return ``result``; raise ``Unknown`` with the problem if it is None."""
    if result is None:
        raise Unknown(problem.format(f'"{value.name}"'))
    return result


def _dims(value: Value) -> tuple[Any, ...]:
    return _require(value.shape, value, "the rank of {} is not known")


TENSOR_ATTRIBUTES: Final[dict[str, Callable[[Value], Any]]] = {
    "shape": lambda value: [_size(value, dim) for dim in _dims(value)],
    "dtype": lambda value: _DTYPE_NAMES[
        _require(value.dtype, value, "the dtype of {} is not known")
    ],
    "value": lambda value: _require(value.array, value, "{} is no constant").reshape(-1),
    "rank": lambda value: len(_dims(value)),
    "is_constant": lambda value: value.is_constant,
    "op_type": lambda value: _require(value.producer, value, "no operator computes {}").op,
}
"""``dtype`` is a ``DtypeName``; ``value`` the elements of a constant, flat."""


def _size(value: Value, dim: Any) -> Any:
    return _named(value.graph.model.sizes.parse(dim)) if isinstance(dim, str) else dim


def _named(size: sizes.Known) -> int | DimName:
    return size if isinstance(size, int) else DimName(size)


def _are_sizes(left: Any, right: Any) -> bool:
    """Whether both are sizes, and one is no number."""
    return (isinstance(left, DimName) and isinstance(right, DimName | int)) or (
        isinstance(right, DimName) and isinstance(left, int)
    )


def _sized(left: Any, right: Any) -> tuple[sizes.Algebra, sizes.Known, sizes.Known]:
    one, other = (side.size if isinstance(side, DimName) else side for side in (left, right))
    return (one if isinstance(one, sizes.Size) else other).scope, one, other


def _of_sizes(sign: str, left: Any, right: Any) -> int | DimName:
    scope, one, other = _sized(left, right)
    is_division = sign in ("//", "%")
    if sign == "/" or (is_division and not sizes.lengths.is_positive(scope, other)):
        raise Unknown(f"{left} {sign} {right} is not known")
    return _named(ARITHMETIC[sign](one, other))


_COMPARISONS: Final = {
    "==": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual",
}  # fmt: skip
"""Operators of ONNX that compare sizes."""


def _in_relation(relation: str, left: Any, right: Any) -> bool:
    scope, one, other = _sized(left, right)
    holds = elementwise(scope, _COMPARISONS[relation], (one, other), bits=64)
    if holds is None:
        sign = "is" if relation == "==" else relation
        raise Unknown(f"whether {left} {sign} {right} is not known")
    return bool(holds)


def _item(of: Any, index: int) -> Any:
    items = _as_list(of)
    if not -len(items) <= index < len(items):
        raise Unknown(f"there is no element {index} among {len(items)}")
    return _python(items[index])


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _as_list(value: Any) -> Sequence[Any]:
    if not _is_list(value):
        raise Unknown(f"{value!r} is no list")
    return value


def _number(value: Any) -> Any:
    number = _python(known(value))
    if not isinstance(number, int | float):
        raise Unknown(f"{number!r} is no number")
    return number
