"""What a size consists of: polynomials with integer coefficients over atoms."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from math import inf
from typing import Literal, Protocol, TypeAlias

Monomial: TypeAlias = tuple[int, ...]
"""Numbers of atoms, sorted; one that occurs twice is squared. ``()`` is that of the constant."""
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]
"""Monomials and their coefficients, sorted by monomial; the constant is first."""
Known: TypeAlias = "int | Size"
Dim: TypeAlias = "int | Size | None"
"""A size; None is unknown, without a name."""
Kind: TypeAlias = Literal["symbol", "floor", "min", "broadcast", "either"]

ALL = "sizes"
"""The name of all sizes, in a fact."""


class Answer(Enum):
    """Whether something holds in every run that does not fail, in none, or is not known."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        """Refuse: unknown is neither true nor false."""
        raise TypeError("compare an Answer with Answer.YES or Answer.NO")


@dataclass(frozen=True)
class Origin:
    """Where a size without a name comes from, in the words of the model."""

    tensor: str
    axis: int | None = None
    node: str = ""
    """Operator and name, such as ``NonZero "nz_7"``."""
    reason: str = ""

    def __str__(self) -> str:
        """Such as ``the length of "mask" (axis 1, from NonZero "nz_7")``."""
        axis = f"axis {self.axis}" if self.axis is not None else ""
        node = f"from {self.node}" if self.node else ""
        places = ", ".join(filter(None, (axis, node, self.reason)))
        return f'the length of "{self.tensor}"' + (f" ({places})" if places else "")


@dataclass(eq=False)
class Atom:
    """A factor of a monomial: a symbol without ``args``, or a function of sizes."""

    number: int
    kind: Kind
    args: tuple[Known, ...]
    least: float
    most: float
    name: str = ""
    """Of a symbol; one that starts with ``?`` is not the model's."""
    origin: Origin | None = None
    size: Size = field(init=False)
    """The size that is this atom alone."""

    @cached_property
    def weight(self) -> int:
        """1 of a symbol, else with the weights of the arguments."""
        return 1 + sum(arg.weight for arg in self.args if isinstance(arg, Size))


@dataclass
class Facts:
    """The range of each name, and a number that divides it."""

    least: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    step: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> tuple[float, float, int]:
        """Return the least and the largest value of a name, and its divisor."""
        least = max(0, self.least.get(name, 0), self.least.get(ALL, 0))
        most = min(self.most.get(name, inf), self.most.get(ALL, inf))
        step = self.step.get(name, 1)
        return (
            -(-int(least) // step) * step,
            most if most == inf else int(most) // step * step,
            step,
        )


class Algebra(Protocol):
    """The part of a ``Scope`` that sizes, facts, normal forms and texts use."""

    atoms: list[Atom]
    facts: Facts
    steps: int
    budget: int
    proofs: dict[tuple[Size, int], bool]
    chosen: dict[int, Known]
    multiples: dict[Monomial, tuple[str, int]]

    def symbol(self, name: str, origin: Origin | None = None) -> Known: ...
    def symbols(self) -> Mapping[str, Known]: ...
    def named(self, name: str) -> Known | None: ...
    def define(self, name: str, size: Known) -> None: ...
    def written(self, size: Size) -> str: ...
    def keyed(self, key: Hashable, *, least: float = 0, most: float = inf) -> Size: ...
    def call(self, kind: Kind, args: tuple[Known, ...], least: float, most: float) -> Size: ...
    def of(self, terms: Mapping[Monomial, int], key: Hashable) -> Known: ...
    def add(self, a: Known, b: Known) -> Known: ...
    def sub(self, a: Known, b: Known) -> Known: ...
    def mul(self, a: Known, b: Known) -> Known: ...
    def division(self, a: Known, b: Known) -> tuple[Known, Known]: ...
    def floordiv(self, a: Known, b: Known) -> Known: ...
    def ceildiv(self, a: Known, b: Known) -> Known: ...
    def mod(self, a: Known, b: Known) -> Known: ...
    def min(self, *sizes: Known) -> Known: ...
    def max(self, *sizes: Known) -> Known: ...
    def broadcast(self, *sizes: Known) -> Known: ...
    def either(self, a: Known, b: Known) -> Known: ...
    def bounds(self, size: Known) -> tuple[float, float]: ...
    def equal(self, a: Known, b: Known) -> Answer: ...
    def nonnegative(self, size: Known) -> Answer: ...
    def atom(
        self, kind: Kind, key: Hashable, least: float, most: float, name: str = ""
    ) -> Size: ...


class Size:
    """A size that is no number: immutable; equal terms of a scope are one object."""

    __slots__ = ("bounds", "scope", "terms", "text", "weight")

    def __init__(self, scope: Algebra, terms: Terms) -> None:
        """Use the operators, or ``Scope.symbol`` and ``Scope.parse``."""
        atoms = scope.atoms
        self.scope = scope
        self.terms = terms
        self.weight = sum([1 + sum([atoms[i].weight for i in m]) for m, _ in terms])
        self.bounds: tuple[float, float] | None = None
        self.text = ""

    def __add__(self, other: Known) -> Known:
        return self.scope.add(self, other)

    def __radd__(self, other: int) -> Known:
        return self.scope.add(self, other)

    def __sub__(self, other: Known) -> Known:
        return self.scope.sub(self, other)

    def __rsub__(self, other: int) -> Known:
        return self.scope.sub(other, self)

    def __mul__(self, other: Known) -> Known:
        return self.scope.mul(self, other)

    def __rmul__(self, other: int) -> Known:
        return self.scope.mul(self, other)

    def __floordiv__(self, other: Known) -> Known:
        return self.scope.floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Known:
        return self.scope.floordiv(other, self)

    def __mod__(self, other: Known) -> Known:
        return self.scope.mod(self, other)

    def __rmod__(self, other: int) -> Known:
        return self.scope.mod(other, self)

    def __neg__(self) -> Known:
        return self.scope.mul(self, -1)

    def __str__(self) -> str:
        """Text that ``Scope.parse`` reads as the same object."""
        return self.text or self.scope.written(self)

    __repr__ = __str__


def terms_of(size: Known) -> Terms:
    """Terms of a size; those of a number, 0 included, are one constant."""
    return size.terms if isinstance(size, Size) else (((), size),)


def constant_of(size: Known) -> int:
    """The constant among the terms."""
    monomial, factor = terms_of(size)[0]
    return 0 if monomial else factor


def mapped(scope: Algebra, size: Known, image: Callable[[Atom], Known]) -> Known:
    """Return ``size`` with another size for each atom of its terms."""
    total: Known = 0
    for monomial, factor in terms_of(size):
        part: Known = factor
        for number in monomial:
            part = scope.mul(part, image(scope.atoms[number]))
        total = scope.add(total, part)
    return total


def without(monomial: Monomial, part: Iterable[int]) -> Monomial | None:
    """Divide a monomial by another one; None if that is not exact."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def shared_by(monomials: Sequence[Monomial]) -> Monomial:
    """The largest monomial that divides all."""
    shared = monomials[0]
    for monomial in monomials[1:]:
        rest, common = list(monomial), list[int]()
        for atom in shared:
            if atom in rest:
                rest.remove(atom)
                common.append(atom)
        shared = tuple(common)
    return shared


def divided(terms: Mapping[Monomial, int], monomial: Monomial, by: int) -> dict[Monomial, int]:
    """Divide each term; both divide all of them."""
    return {without(m, monomial) or (): c // by for m, c in terms.items()}


def order(monomial: Monomial) -> tuple[int, tuple[int, ...]]:
    """Where a monomial is in the one order of divisions: the longest is the greatest."""
    return len(monomial), tuple([-i for i in monomial])


def leading(size: Size) -> tuple[Monomial, int]:
    """The greatest term."""
    return max(size.terms, key=lambda term: order(term[0]))


def rank(size: Known) -> tuple[int, int, int]:
    """Of two spellings, the lower one is chosen: few negative and small coefficients."""
    terms = terms_of(size)
    factors = [c for m, c in terms if m]
    return sum([c < 0 for c in factors]), sum(map(abs, factors)), constant_of(size)


def in_order(sizes: Iterable[Known]) -> list[Known]:
    """Sort sizes by rank; by texts only those of equal rank."""
    ranked = sorted([(rank(size), place, size) for place, size in enumerate(sizes)])
    if len({ranks for ranks, _, _ in ranked}) < len(ranked):
        ranked.sort(key=lambda item: (item[0], str(item[2])))
    return [size for _, _, size in ranked]


_FARTHEST = 1 << 256
"""Bounds beyond are infinite, so that they can be computed with."""


def lower(bound: float) -> float:
    """A least value that is no float overflow away."""
    return -inf if bound < -_FARTHEST else min(bound, _FARTHEST)


def upper(bound: float) -> float:
    """A largest value, as ``lower``."""
    return inf if bound > _FARTHEST else max(bound, -_FARTHEST)


def times(one: float, other: float) -> float:
    """Multiply two bounds: 0 times any size is 0."""
    return 0 if one == 0 or other == 0 else one * other
