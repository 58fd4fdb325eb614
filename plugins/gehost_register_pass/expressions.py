"""What a rule computes from a match: sizes, attributes and arithmetic on them, as data that
compares, prints and serialises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, cast

import numpy as np
from msgspec import Struct

from gehost import DataType, Value


class Ref(Struct, frozen=True):
    """A tensor of a program: input ``index``, or output ``index`` of operator ``op``."""

    op: int | None
    index: int

    def __post_init__(self) -> None:
        if self.index < 0 or (self.op is not None and self.op < 0):
            raise ValueError(f"there is no tensor {self.index} of operator {self.op}")


class Constant(Struct, frozen=True):
    """A number, a text, or (nested) tuples of them."""

    value: Any

    def at(self, _matched: Matched) -> Any:
        return self.value


class TensorAttr(Struct, frozen=True):
    """What is known of a matched tensor: one of ``TENSOR_ATTRIBUTES``; ``dtype`` is numpy's
    name, ``value`` flat.
    """

    tensor: Ref
    name: str

    def __post_init__(self) -> None:
        _one_of(self.name, TENSOR_ATTRIBUTES, "attribute of a tensor")

    def at(self, matched: Matched) -> Any:
        return _tensor_attribute(matched.tensor(self.tensor), self.name)


class OpAttr(Struct, frozen=True):
    """An attribute of the node that operator ``op`` of the pattern matched."""

    op: int
    name: str

    def at(self, matched: Matched) -> Any:
        return matched.attribute(self.op, self.name)


class Item(Struct, frozen=True):
    """One element of a list."""

    of: Expression
    index: int

    def at(self, matched: Matched) -> Any:
        of = self.of
        if isinstance(of, TensorAttr) and of.name == "shape":  # one size; the others need no names
            return _size(_item(_dims(matched.tensor(of.tensor)), self.index))
        return _item(of.at(matched), self.index)


class Size(Struct, frozen=True):
    """How many elements a list has."""

    of: Expression

    def at(self, matched: Matched) -> Any:
        of = self.of
        if isinstance(of, TensorAttr) and of.name == "shape":
            return len(_dims(matched.tensor(of.tensor)))
        return len(_as_list(of.at(matched)))


class Binary(Struct, frozen=True):
    """Arithmetic with Python's meaning: ``sign`` is one of ``ARITHMETIC``."""

    sign: str
    left: Expression
    right: Expression

    def __post_init__(self) -> None:
        _one_of(self.sign, ARITHMETIC, "arithmetic")

    def at(self, matched: Matched) -> Any:
        return _arithmetic(self.sign, self.left.at(matched), self.right.at(matched))


class Listed(Struct, frozen=True):
    """A list of which not every element is a constant."""

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


Expression: TypeAlias = Constant | TensorAttr | OpAttr | Item | Size | Binary | Listed | Native
"""``at`` gives the value at a match, or raises ``Unknown``."""


class Condition(Struct, frozen=True):
    """A comparison that must hold; ``relation`` is one of ``RELATIONS``."""

    left: Expression
    relation: str
    right: Expression

    def __post_init__(self) -> None:
        _one_of(self.relation, RELATIONS, "relation")

    def holds(self, left: Any, right: Any) -> bool:
        """Whether two values are as the condition wants them.

        Raises:
            Unknown: sizes that are not known, or names of them that may be equal or not.
        """
        if self.relation in ("==", "!="):
            return _equal(left, right) is (self.relation == "==")
        if isinstance(left, DimName) and left == right:
            return self.relation in ("<=", ">=")
        return RELATIONS[self.relation](*_alike(_number(left), _number(right)))


def _one_of(given: str, known: Container[str], what: str) -> None:
    if given not in known:
        raise ValueError(f"there is no {what} {given!r}")


TENSOR_ATTRIBUTES: Final = ("shape", "dtype", "value")
DTYPES: Final = {dtype.numpy.name: dtype for dtype in DataType if dtype}
"""Element types by numpy's names."""
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


class Unknown(Exception):  # noqa: N818 - no error: the match is refused
    """An expression has no value here; the text says why."""


class DimName(str):
    """The name of a dimension: equal to itself, and nothing else is known of it."""

    __slots__ = ()


class DtypeName(str):
    """An element type by numpy's name; where ONNX has a number for it (``Cast``'s ``to``), equal
    to that.
    """

    __slots__ = ()


class Stored(float):
    """A number as a model holds it, exactly; a number of Python's is rounded as it was before they
    are compared.

    0.1 as float32 is 0.10000000149; what is computed from it is an ordinary number.
    """

    __slots__ = ("_dtype",)

    def __new__(cls, value: float, dtype: Any) -> Self:
        made = super().__new__(cls, value)
        made._dtype = np.dtype(dtype)
        return made

    def rounded(self, other: float) -> float:
        """Another number in the same element type, unless it is too large for it."""
        try:
            with np.errstate(all="ignore"):
                found = float(np.asarray(float(other)).astype(self._dtype))
        except OverflowError:
            return other
        return other if math.isinf(found) else found


class Matched(Protocol):
    """What a match bound."""

    def tensor(self, ref: Ref) -> Value: ...

    def attribute(self, op: int, name: str) -> Any:
        """Raises ``Unknown`` where the node has none, and no default."""
        ...


INTEGERS: frozenset[type] = frozenset({int})
NUMBERS: frozenset[type] = frozenset({int, float})
"""Types of most that is in lists, and plain as it is."""


def known(value: Any) -> Any:
    """A value of which everything is known, tuples as lists: what authors' functions and
    replacements are given.

    Raises:
        Unknown: sizes that are not known, in a list too.
    """
    if isinstance(value, list | tuple):
        entries = cast("Sequence[Any]", value)
        return (
            list(entries) if NUMBERS.issuperset(map(type, entries)) else list(map(known, entries))
        )
    if value is None:
        raise Unknown("a size is not known")
    if isinstance(value, DimName):
        raise Unknown(f"the size {value} is not known")
    return value


def _equal(left: Any, right: Any) -> bool:
    # most are two sizes, ranks or dtypes
    if type(left) is type(right) and type(left) in (int, DtypeName):
        return left == right
    if _is_list(left) or _is_list(right):
        return _equal_lists(_as_list(left), _as_list(right))
    if left is None or right is None:
        raise Unknown("a size is not known")
    if isinstance(left, DimName) or isinstance(right, DimName):
        if type(left) is type(right) and left == right:
            return True
        raise Unknown(f"whether {left} is {right} is not known")
    if isinstance(left, DtypeName) or isinstance(right, DtypeName):
        left, right = (
            DTYPES.get(side, side) if isinstance(side, str) else side for side in (left, right)
        )
    left, right = _alike(left, right)
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
            if not _equal(one, other):
                return False
        except Unknown as reason:
            unknown = unknown or reason
    if unknown is not None:
        raise unknown
    return True


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both as a model would hold them."""
    left, right = _python(left), _python(right)
    if isinstance(left, Stored) and type(right) in (int, float):
        return left, left.rounded(right)
    if isinstance(right, Stored) and type(left) in (int, float):
        return right.rounded(left), right
    return left, right


def _python(value: Any) -> Any:
    """An element of a constant as Python's number."""
    if not isinstance(value, np.generic):
        return value
    stored = cast("Any", value)
    found = stored.item()
    return Stored(found, stored.dtype) if type(found) is float else found


def _tensor_attribute(value: Value, name: str) -> Any:
    if name == "dtype":
        dtype = value.dtype
        if not dtype:
            raise Unknown(f'the dtype of "{value.name}" is not known')
        return _DTYPE_NAMES[dtype]
    if name == "value":
        array = value.array
        if array is None:
            raise Unknown(f'"{value.name}" is no constant')
        return array.reshape(-1)
    return [_size(dim) for dim in _dims(value)]


_DTYPE_NAMES: Final = {dtype: DtypeName(name) for name, dtype in DTYPES.items()}


def _dims(value: Value) -> tuple[Any, ...]:
    shape = value.shape
    if shape is None:
        raise Unknown(f'the rank of "{value.name}" is not known')
    return shape


def _size(dim: Any) -> Any:
    return DimName(dim) if isinstance(dim, str) else dim


def _item(of: Any, index: int) -> Any:
    listed = _as_list(of)
    if not -len(listed) <= index < len(listed):
        raise Unknown(f"there is no element {index} among {len(listed)}")
    return _python(listed[index])


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


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    one, other = _number(left), _number(right)
    if sign in ("/", "//", "%") and other == 0:
        raise Unknown(f"{one} {sign} 0 has no value")
    return ARITHMETIC[sign](one, other)
