"""Sizes of a graph's tensors as polynomials, rewritten by what its operators prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from gehost import Graph, Value, sizes

Extent: TypeAlias = int | sizes.Size
"""A number, or a polynomial of named sizes: ``a == b`` proves equality, ``a != b`` nothing."""

_MOST_REWRITES = 8


class Extents:
    """Reads the sizes of a model's tensors, and rewrites them by facts.

    A fact is an equality without which the model fails.
    """

    def __init__(self, graph: Graph) -> None:
        self.scope = graph.model.sizes
        self._integers = graph.model.integers
        self._shapes: dict[tuple[sizes.Dim | str, ...], tuple[Extent, ...]] = {}
        """The sizes of each shape that inference wrote."""
        self._elements: dict[Value, list[Extent | None] | None] = {}
        self._facts: dict[int, Extent] = {}
        """The size that an atom, by its number, is equal to."""

    # reading

    def of_shape(self, value: Value) -> tuple[Extent, ...] | None:
        """Return the sizes of a tensor; None without a known rank."""
        shape = value.shape
        if shape is None:
            return None
        cached = self._shapes.get(shape)
        if cached is None:
            cached = tuple(
                dim if isinstance(dim, int) else self.read(dim or f"?{value.name}.{axis}")
                for axis, dim in enumerate(shape)
            )
            if None not in shape:
                self._shapes[shape] = cached
        return cached

    def of_elements(self, value: Value | None) -> list[Extent | None] | None:
        """Return the elements of an integer vector or scalar; None where one is unknown."""
        if value is None:
            return None
        if value not in self._elements:
            elements = self._integers.vector(value)
            self._elements[value] = (
                None
                if elements is None
                else [None if item is None else self.rewritten(item) for item in elements]
            )
        return self._elements[value]

    def read(self, text: str) -> Extent:
        """Return the size that a text of a shape stands for."""
        return self.rewritten(self.scope.parse(text))

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
                self._shapes.clear()
                self._elements.clear()
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
            if isinstance(size, int) or not self._is_rewritten(size):
                break
            result: Extent = 0
            for monomial, factor in size.terms:
                result = result + total([factor, *map(self._of_atom, monomial)])
            size = result
        return size

    def _is_rewritten(self, size: sizes.Size) -> bool:
        """Whether an atom in a size has another normal form here."""
        atoms, facts = self.scope.atoms, self._facts
        return any(
            number in facts or atoms[number].kind == "either"
            for monomial, _ in size.terms
            for number in self._within(monomial)
        )

    def _of_atom(self, number: int) -> Extent:
        if number in self._facts:
            return self._facts[number]
        atom, scope = self.scope.atoms[number], self.scope
        if atom.kind == "either":
            # it is the second size where the first is 0, and the tensor empty
            return self.rewritten(atom.args[0])
        alone = _alone(scope, number)
        if isinstance(alone, int) or not self._is_rewritten(alone):
            return alone
        args = [self.rewritten(arg) for arg in atom.args]
        if atom.kind == "min":
            return scope.min(*args)
        return scope.broadcast(*args) if atom.kind == "broadcast" else scope.floordiv(*args)

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
    result: Extent = 1
    for factor in factors:
        result = factor if isinstance(result, int) and result == 1 else result * factor
    return result


def _one_term(size: Extent) -> tuple[Sequence[int], int] | None:
    if isinstance(size, int):
        return (), size
    return size.terms[0] if len(size.terms) == 1 else None


def exact_int(size: Extent) -> int | None:
    """Return a size that is a number, else None."""
    return size if isinstance(size, int) else None
