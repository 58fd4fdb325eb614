"""Sizes of a graph's tensors as polynomials, rewritten by what its operators prove."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from gehost import Value, sizes

Extent: TypeAlias = int | sizes.Size
"""A number, or a polynomial of named sizes: ``a == b`` proves equality, ``a != b`` nothing."""

_TOKEN = re.compile(r"\s*(?:(\d+)|([^\s\d*+\-/%(),][^\s*+\-/%(),]*)|(//|[*+\-%(),]))")
_MOST_REWRITES = 8


class Extents:
    """Reads the sizes of a model's tensors, and rewrites them by facts.

    A fact is an equality without which the model fails.
    """

    def __init__(self) -> None:
        self.scope = sizes.Scope()
        self._texts: dict[str, Extent] = {}
        self._facts: dict[int, Extent] = {}
        """The size that an atom, by its number, is equal to."""
        self.sources: dict[str, tuple[Value, int]] = {}
        """A tensor and an axis that have the size of a name."""

    # reading

    def of_shape(self, value: Value) -> tuple[Extent, ...] | None:
        """Return the sizes of a tensor; None without a known rank."""
        shape = value.shape
        if shape is None:
            return None
        found: list[Extent] = []
        for axis, dim in enumerate(shape):
            if not isinstance(dim, int):
                text = f"?{value.name}.{axis}" if dim is None else dim
                self.sources.setdefault(text, (value, axis))
                dim = self.read(text)
            found.append(dim)
        return tuple(found)

    def of_elements(self, value: Value | None) -> list[Extent | None] | None:
        """Return the elements of an integer vector or scalar; None where one is unknown."""
        elements = None if value is None else value.elements
        if elements is None:
            return None
        return [self.read(dim) if isinstance(dim, str) else dim for dim in elements]

    def read(self, text: str) -> Extent:
        """Return the size that a text of a shape stands for."""
        found = self._texts.get(text)
        if found is None:
            try:
                found = _Reader(text, self.scope).whole()
            except ValueError:
                found = self.scope.symbol(text)
            found = self._texts[text] = self.rewritten(found)
        return found

    # facts

    def learn(self, first: Extent, second: Extent) -> bool:
        """Note that two sizes are equal; return whether that is new."""
        difference = self.rewritten(first) - self.rewritten(second)
        if isinstance(difference, int):
            return False
        linear = [
            (monomial[0], factor)
            for monomial, factor in difference.terms
            if len(monomial) == 1 and factor in (1, -1)
        ]
        for atom, factor in sorted(linear, key=lambda pair: self._rank(pair[0])):
            inside = sum(atom in self._within(monomial) for monomial, _ in difference.terms)
            if inside == 1:
                rest = _alone(self.scope, atom) - difference * factor
                self._facts[atom] = rest
                self._texts.clear()
                return True
        return False

    def learn_product(self, first: Extent, second: Extent) -> bool:
        """Note the equality of the one factor in which two equal products differ.

        It holds for the runs in which no other factor is 0.
        """
        first, second = self.rewritten(first), self.rewritten(second)
        if first == second:
            return False
        one_side, other_side = _one_term(first), _one_term(second)
        if one_side is None or other_side is None:
            return False
        (monomial, a), (other_monomial, b) = one_side, other_side
        left, right = list(monomial), list(other_monomial)
        for atom in monomial:
            if atom in right:
                left.remove(atom)
                right.remove(atom)
        if len(left) + len(right) > 2 or a == 0 or b == 0:
            return False
        whole = [
            total([factor, *[_alone(self.scope, atom) for atom in side]])
            for side, factor in ((left, a), (right, b))
        ]
        for one, other in (whole, whole[::-1]):
            if isinstance(other, int) and isinstance(one, sizes.Size) and len(one.terms) == 1:
                ((_, factor),) = one.terms
                if other % factor == 0:
                    return self.learn(exact(self.scope, one, factor) or one, other // factor)
        return self.learn(whole[0], whole[1]) if a == b else False

    def _rank(self, number: int) -> tuple[bool, bool, bool, str]:
        """Sort the atoms to replace: computed ones, then names that inference invented."""
        atom = self.scope.atoms[number]
        text = atom.name
        return atom.kind != "broadcast", atom.kind == "symbol", not text.startswith("?"), text

    def _within(self, monomial: Iterable[int]) -> Iterator[int]:
        for number in monomial:
            yield number
            atom = self.scope.atoms[number]
            for arg in () if atom.kind == "symbol" else atom.args:
                if isinstance(arg, sizes.Size):
                    for inner, _ in arg.terms:
                        yield from self._within(inner)

    def rewritten(self, size: Extent) -> Extent:
        """Return a size with each atom that a fact defines replaced."""
        for _ in range(_MOST_REWRITES):
            if isinstance(size, int) or not self._facts:
                break
            if not any(n in self._facts for m, _ in size.terms for n in self._within(m)):
                break
            found: Extent = 0
            for monomial, factor in size.terms:
                found = found + total([factor, *map(self._of_atom, monomial)])
            size = found
        return size

    def _of_atom(self, number: int) -> Extent:
        if number in self._facts:
            return self._facts[number]
        atom, scope = self.scope.atoms[number], self.scope
        if not any(inner in self._facts for inner in self._within([number])):
            return _alone(scope, number)
        args = [self.rewritten(arg) for arg in atom.args]
        if atom.kind == "min":
            return scope.min(*args)
        if atom.kind == "broadcast":
            return scope.broadcast(*args)
        return scope.either(*args) if atom.kind == "either" else scope.floordiv(*args)

    # questions

    def exact(self, whole: Extent, part: Extent) -> Extent | None:
        """Return ``whole / part`` if that is a polynomial, else None."""
        return exact(self.scope, whole, part)

    def at_least(self, size: Extent, least: Extent) -> bool | None:
        """Whether a size is at least another one in all runs (True), in none (False)."""
        if size == least:
            return True
        answer = self.scope.nonnegative(size - least)
        return None if answer is sizes.Answer.UNKNOWN else answer is sizes.Answer.YES

    def differ(self, first: Extent, second: Extent) -> bool:
        """Whether two sizes are different in every run."""
        return first != second and self.scope.equal(first, second) is sizes.Answer.NO

    def broadcast(self, *operands: Extent) -> Extent:
        """Return the size of an axis to which operands of these sizes broadcast."""
        return self.rewritten(self.scope.broadcast(*operands))


def _alone(scope: sizes.Scope, number: int) -> Extent:
    """Return an atom as a size."""
    return scope.of({(number,): 1}, ("atom", number))


def exact(scope: sizes.Scope, whole: Extent, part: Extent) -> Extent | None:
    """Return ``whole / part`` if that is a polynomial, else None."""
    if part == 1:
        return whole
    if whole == part:
        return 1
    if part == 0:
        return None
    quotient = scope.floordiv(whole, part)
    return quotient if quotient * part == whole else None


def total(factors: Iterable[Extent]) -> Extent:
    """Return the product of sizes."""
    found: Extent = 1
    for factor in factors:
        found = found * factor
    return found


def _one_term(size: Extent) -> tuple[Sequence[int], int] | None:
    if isinstance(size, int):
        return (), size
    return size.terms[0] if len(size.terms) == 1 else None


class _Reader:
    """Reads a text of a shape: sums, products, quotients and functions of names."""

    def __init__(self, text: str, scope: sizes.Scope) -> None:
        self._scope = scope
        self._tokens: list[str] = []
        place = 0
        text = text.strip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise ValueError(text)
            self._tokens.append(found[0].strip())
            place = found.end()

    def whole(self) -> Extent:
        found = self._sum()
        if self._tokens:
            raise ValueError(self._tokens[0])
        return found

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _sum(self) -> Extent:
        found = self._product()
        while self._next() in ("+", "-"):
            sign = self._tokens.pop(0)
            part = self._product()
            found = found + part if sign == "+" else found - part
        return found

    def _product(self) -> Extent:
        found = self._factor()
        while self._next() in ("*", "//", "%"):
            sign = self._tokens.pop(0)
            part = self._factor()
            if sign == "*":
                found = found * part
            else:
                divide = self._scope.mod if sign == "%" else self._scope.floordiv
                found = divide(found, part)
        return found

    def _factor(self) -> Extent:
        if not self._tokens:
            raise ValueError("a size is missing")
        word = self._tokens.pop(0)
        if word == "-":
            return -self._factor()
        if word.isdigit():
            return int(word)
        if word == "(":
            return self._closed(self._sum())
        if self._next() != "(":
            if word in "*+,%)//":
                raise ValueError(word)
            return self._scope.symbol(word)
        self._tokens.pop(0)
        args = [self._sum()]
        while self._next() == ",":
            self._tokens.pop(0)
            args.append(self._sum())
        self._closed(0)
        scope = self._scope
        if word == "min":
            return scope.min(*args)
        if word == "max":
            return scope.max(*args)
        if word == "broadcast":
            return scope.broadcast(*args)
        if len(args) != 2 or word not in ("ceildiv", "div", "either", "or"):
            raise ValueError(word)
        if word == "ceildiv":
            return scope.ceildiv(*args)
        # `either(a, b)` is b where a is 0, and the tensor empty: no element tells them apart
        return scope.floordiv(*args) if word == "div" else args[0]

    def _closed(self, found: Extent) -> Extent:
        if not self._tokens or self._tokens.pop(0) != ")":
            raise ValueError("a parenthesis is open")
        return found


def evaluate(scope: sizes.Scope, size: Extent, names: Mapping[str, int]) -> int:
    """Return the value of a size in a run.

    Raises:
        KeyError: the value of a name is not given.
    """
    if isinstance(size, int):
        return size
    return sum(
        factor * prod(_of_run(scope, atom, names) for atom in monomial)
        for monomial, factor in size.terms
    )


def _of_run(scope: sizes.Scope, number: int, names: Mapping[str, int]) -> int:
    atom = scope.atoms[number]
    if atom.kind == "symbol":
        return names[atom.name]
    args = [evaluate(scope, arg, names) for arg in atom.args]
    match atom.kind:
        case "min":
            return min(args)
        case "broadcast":
            return next((arg for arg in args if arg != 1), 1)
        case "either":
            return args[0] or args[1]
        case _:
            return args[0] // args[1]


def exact_int(size: Extent) -> int | None:
    """Return a size that is a number, else None."""
    return size if isinstance(size, int) else None
