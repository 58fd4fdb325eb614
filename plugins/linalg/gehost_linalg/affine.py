"""Affine maps: from loop indices to the index of an operand, in MLIR's text form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TypeAlias

from gehost_mlir.scanner import DIGITS, Scanner


@dataclass(frozen=True, slots=True)
class Dim:
    """Loop index ``d<index>``."""

    index: int

    def __str__(self) -> str:
        return f"d{self.index}"


@dataclass(frozen=True, slots=True)
class Const:
    """A constant index."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Binary:
    """``lhs op rhs``, as ``binary`` builds and simplifies it.

    ``op`` is ``+``, ``*``, ``floordiv``, ``ceildiv`` or ``mod``.
    """

    op: str
    lhs: Expr
    rhs: Expr

    def __str__(self) -> str:
        if self.op != "+":
            if self.op == "*" and self.rhs == Const(-1):
                return f"-{_tight(self.lhs)}"
            return f"{_tight(self.lhs)} {self.op} {_tight(self.rhs)}"
        if isinstance(self.rhs, Const) and self.rhs.value < 0:
            return f"{self.lhs} - {-self.rhs.value}"
        if (
            isinstance(self.rhs, Binary)
            and self.rhs.op == "*"
            and isinstance(self.rhs.rhs, Const)
            and self.rhs.rhs.value < 0
        ):
            factor = -self.rhs.rhs.value
            return f"{self.lhs} - {_tight(self.rhs.lhs)}{f' * {factor}' if factor != 1 else ''}"
        return f"{self.lhs} + {self.rhs}"


Expr: TypeAlias = Dim | Const | Binary


def _tight(expr: Expr) -> str:
    return f"({expr})" if isinstance(expr, Binary) else str(expr)


def binary(op: str, lhs: Expr, rhs: Expr) -> Expr:
    """Combine two expressions, simplified where the operation does nothing.

    Two constants become one.

    Raises:
        ValueError: the result is not affine (a product of two loops, a divisor that is no positive
            constant).
    """
    if op == "+":
        return _add(lhs, rhs)
    if op == "*":
        return _times(lhs, rhs)
    if not isinstance(rhs, Const) or rhs.value <= 0:
        raise ValueError(f"{op} needs a positive constant on the right, got {rhs}")
    value = rhs.value
    if isinstance(lhs, Const):
        return Const(
            {
                "floordiv": lhs.value // value,
                "ceildiv": -(-lhs.value // value),
                "mod": lhs.value % value,
            }[op]
        )
    divisible = _divisor(lhs) % value == 0
    if op == "mod":
        if divisible:
            return Const(0)
        if isinstance(lhs, Binary) and lhs.op == "+":  # a term that is divisible adds nothing
            if _divisor(lhs.rhs) % value == 0:
                return binary("mod", lhs.lhs, rhs)
            if _divisor(lhs.lhs) % value == 0:
                return binary("mod", lhs.rhs, rhs)
        return Binary(op, lhs, rhs)
    if value == 1:
        return lhs
    if (
        isinstance(lhs, Binary)
        and lhs.op == "*"
        and isinstance(lhs.rhs, Const)
        and lhs.rhs.value % value == 0
    ):
        return _times(lhs.lhs, Const(lhs.rhs.value // value))
    if op == "floordiv" and isinstance(lhs, Binary) and lhs.op == "+":
        divisors = _divisor(lhs.lhs), _divisor(lhs.rhs)
        if any(divisor % value == 0 for divisor in divisors):
            return _add(binary(op, lhs.lhs, rhs), binary(op, lhs.rhs, rhs))
    return Binary(op, lhs, rhs)


def _divisor(expr: Expr) -> int:
    """The largest number that is known to divide ``expr``.

    0 divides by every number.
    """
    if isinstance(expr, Dim):
        return 1
    if isinstance(expr, Const):
        return abs(expr.value)
    if expr.op == "*":
        return _divisor(expr.lhs) * _divisor(expr.rhs)
    if expr.op in {"+", "mod"}:
        return gcd(_divisor(expr.lhs), _divisor(expr.rhs))
    return 1


def _add(lhs: Expr, rhs: Expr) -> Expr:
    if isinstance(lhs, Const):
        if isinstance(rhs, Const):
            return Const(lhs.value + rhs.value)
        lhs, rhs = rhs, lhs
    if isinstance(rhs, Const):
        if rhs.value == 0:
            return lhs
        if isinstance(lhs, Binary) and lhs.op == "+" and isinstance(lhs.rhs, Const):
            return _add(lhs.lhs, Const(lhs.rhs.value + rhs.value))
        return Binary("+", lhs, rhs)
    (left, factor), (right, other) = _factor(lhs), _factor(rhs)
    if left == right:
        return _times(left, Const(factor + other))
    if (
        isinstance(lhs, Binary) and lhs.op == "+" and isinstance(lhs.rhs, Const)
    ):  # constants stand last
        return _add(_add(lhs.lhs, rhs), lhs.rhs)
    if isinstance(rhs, Binary) and rhs.op == "+" and isinstance(rhs.rhs, Const):
        return _add(_add(lhs, rhs.lhs), rhs.rhs)
    return Binary("+", lhs, rhs)


def _factor(expr: Expr) -> tuple[Expr, int]:
    if isinstance(expr, Binary) and expr.op == "*" and isinstance(expr.rhs, Const):
        return expr.lhs, expr.rhs.value
    return expr, 1


def _times(lhs: Expr, rhs: Expr) -> Expr:
    if isinstance(lhs, Const):
        lhs, rhs = rhs, lhs
    if not isinstance(rhs, Const):
        raise ValueError(  # noqa: TRY004 - the expression is at fault, not a type
            f"({lhs}) * ({rhs}) is not affine: one side must be a constant"
        )
    if isinstance(lhs, Const):
        return Const(lhs.value * rhs.value)
    if rhs.value == 1:
        return lhs
    if rhs.value == 0:
        return rhs
    inner, factor = _factor(lhs)
    return Binary("*", inner, Const(factor * rhs.value)) if factor != 1 else Binary("*", lhs, rhs)


def evaluate(expr: Expr, point: Sequence[int]) -> int:
    """The value of ``expr`` where loop k stands at ``point[k]``."""
    if isinstance(expr, Dim):
        return point[expr.index]
    if isinstance(expr, Const):
        return expr.value
    left, right = evaluate(expr.lhs, point), evaluate(expr.rhs, point)
    if expr.op == "+":
        return left + right
    if expr.op == "*":
        return left * right
    if expr.op == "mod":
        return left % right
    return left // right if expr.op == "floordiv" else -(-left // right)


def substitute(expr: Expr, values: Sequence[Expr]) -> Expr:
    """``expr`` with loop k replaced by ``values[k]``."""
    if isinstance(expr, Dim):
        return values[expr.index]
    if isinstance(expr, Const):
        return expr
    return binary(expr.op, substitute(expr.lhs, values), substitute(expr.rhs, values))


def dims_of(expr: Expr) -> frozenset[int]:
    """The loops that ``expr`` depends on."""
    if isinstance(expr, Dim):
        return frozenset((expr.index,))
    return frozenset() if isinstance(expr, Const) else dims_of(expr.lhs) | dims_of(expr.rhs)


class AffineMap:
    """``affine_map<(d0, d1) -> (d1, 0)>``: an operand's index by the loops.

    Immutable and hashable. ``AffineMap.parse("affine_map<(d0, d1) -> (d1, d0)>")(2, 3) == (3, 2)``.
    """

    __slots__ = ("_hash", "dims", "is_permutation", "is_projected_permutation", "loops", "results")

    def __init__(self, dims: int, results: Iterable[Expr | int]) -> None:
        """An ``int`` among the results is the number of a loop.

        Raises:
            ValueError: a result uses a loop that the map does not have.
        """
        self.dims = dims
        self.results: tuple[Expr, ...] = tuple(
            Dim(result) if isinstance(result, int) else result for result in results
        )
        bare = [result.index for result in self.results if isinstance(result, Dim)]
        self.loops = frozenset(bare)
        """The loops that are a bare result; the size of such a loop is the size of that axis."""
        beyond = [
            result for result in self.results if any(not 0 <= dim < dims for dim in dims_of(result))
        ]
        if beyond:
            raise ValueError(
                f"result {beyond[0]} uses a loop that a map with {dims} dims does not have"
            )
        self.is_projected_permutation = len(bare) == len(self.results) == len(self.loops)
        """Whether the results are different bare loops."""
        self.is_permutation = self.is_projected_permutation and len(bare) == dims
        self._hash = hash((dims, self.results))

    @classmethod
    def identity(cls, dims: int) -> AffineMap:
        return _identity(dims)

    @classmethod
    def parse(cls, text: str) -> AffineMap:
        """Read ``affine_map<(d0) -> (d0 * 2)>`` (also without ``affine_map<>``).

        Raises:
            MlirError: the text is malformed; it names line and column.
        """
        scanner = Scanner(text)
        map_, _ = parse_map(scanner)
        if not scanner.at_end():
            raise scanner.error(f"expected the end of the map, found {scanner.shown()}")
        return map_

    @property
    def is_identity(self) -> bool:
        return self is _identity(self.dims) or self == _identity(self.dims)

    def compose(self, inner: AffineMap) -> AffineMap:
        """``self ∘ inner``: the map of x to ``self(inner(x))``.

        Raises:
            ValueError: ``inner`` has another number of results than this map has dims.
        """
        if self.dims != len(inner.results):
            raise ValueError(
                f"{self} takes {self.dims} indices, {inner} gives {len(inner.results)}"
            )
        if self.is_identity:
            return inner
        return AffineMap(inner.dims, [substitute(result, inner.results) for result in self.results])

    def inverse(self) -> AffineMap | None:
        """For each loop the position of its first bare result.

        None if a loop has none.
        """
        if len(self.loops) < self.dims:
            return None
        first: dict[int, int] = {}
        for position, result in enumerate(self.results):
            if isinstance(result, Dim):
                first.setdefault(result.index, position)
        return AffineMap(len(self.results), [first[dim] for dim in range(self.dims)])

    @staticmethod
    def concat(maps: Iterable[AffineMap]) -> AffineMap:
        """All results one after another, with the most dims of any map."""
        items = list(maps)
        return AffineMap(
            max((item.dims for item in items), default=0),
            [r for item in items for r in item.results],
        )

    def sub(self, position: int) -> AffineMap:
        """The map with result ``position`` alone."""
        return AffineMap(self.dims, [self.results[position]])

    def __call__(self, *point: int) -> tuple[int, ...]:
        if len(point) != self.dims:
            raise TypeError(f"{self} takes {self.dims} indices, got {len(point)}")
        return tuple(evaluate(result, point) for result in self.results)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, AffineMap)
            and self.dims == other.dims
            and self.results == other.results
        )

    def __hash__(self) -> int:
        return self._hash

    def body(self) -> str:
        """``(d0, d1) -> (d1)``."""
        dims = ", ".join(f"d{dim}" for dim in range(self.dims))
        return f"({dims}) -> ({', '.join(map(str, self.results))})"

    def __str__(self) -> str:
        return f"affine_map<{self.body()}>"

    def __repr__(self) -> str:
        return f"AffineMap.parse({str(self)!r})"


@lru_cache(maxsize=64)
def _identity(dims: int) -> AffineMap:
    return AffineMap(dims, range(dims))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEEPEST = 100
_LEVELS: tuple[tuple[str, ...], ...] = (("+", "-"), ("*", "floordiv", "ceildiv", "mod"))


def parse_map(scanner: Scanner, *, symbols: bool = False) -> tuple[AffineMap, int]:
    """Read a map, with or without ``affine_map<>``, and the number of its symbols.

    They are its last dims.
    """
    wrapped = scanner.accept("affine_map")
    if wrapped:
        scanner.expect("<")
    names: dict[str, int] = {}
    scanner.listed("(", ")", lambda: _parse_name(scanner, names))
    dims = len(names)
    if scanner.peek("["):
        if not symbols:
            raise scanner.error("symbols are not supported")
        scanner.listed("[", "]", lambda: _parse_name(scanner, names))
    scanner.expect("->")
    results = scanner.listed("(", ")", lambda: _parse_expr(scanner, names, 0))
    if wrapped:
        scanner.expect(">")
    return AffineMap(len(names), results), len(names) - dims


def _parse_name(scanner: Scanner, names: dict[str, int]) -> None:
    start = scanner.skip()
    name = scanner.take(_NAME, "the name of a loop")
    if name in names:
        raise scanner.error(f"loop '{name}' is named twice", start)
    names[name] = len(names)


def _parse_expr(scanner: Scanner, names: dict[str, int], level: int) -> Expr:
    """Sums of products of primaries, from left to right."""
    if level == len(_LEVELS):
        return _parse_primary(scanner, names)
    result = _parse_expr(scanner, names, level + 1)
    while True:
        start = scanner.skip()
        op = next(
            (op for op in _LEVELS[level] if scanner.peek(op) and not scanner.peek("->")), None
        )
        if op is None:
            return result
        scanner.accept(op)
        right = _parse_expr(scanner, names, level + 1)
        try:
            result = (
                _add(result, _times(right, Const(-1))) if op == "-" else binary(op, result, right)
            )
        except ValueError as error:
            raise scanner.error(str(error), start) from error
        last = result.rhs if isinstance(result, Binary) else result
        if isinstance(last, Const):
            scanner.bounded(str(abs(last.value)), start)


def _parse_primary(scanner: Scanner, names: dict[str, int]) -> Expr:
    if scanner.peek("(") or scanner.peek("-"):
        if scanner.depth == _DEEPEST:
            raise scanner.error(f"expressions are nested more than {_DEEPEST} deep")
        scanner.depth += 1
        if scanner.accept("("):
            inner = _parse_expr(scanner, names, 0)
            scanner.expect(")")
        else:
            scanner.expect("-")
            inner = _times(_parse_primary(scanner, names), Const(-1))
        scanner.depth -= 1
        return inner
    start = scanner.skip()
    number = scanner.match(DIGITS)
    if number is not None:
        return Const(scanner.bounded(number, start))
    name = scanner.take(_NAME, "a loop, a number or '('")
    if name not in names:
        raise scanner.error(
            f"'{name}' is not a loop of this map; it has {', '.join(names) or 'none'}", start
        )
    return Dim(names[name])
