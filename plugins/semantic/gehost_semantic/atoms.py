"""Axes that several tensors share, as atoms: split where one tensor splits, joined where equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from gehost import Refused, Value
from gehost_semantic.extents import Extent, Extents, total
from gehost_semantic.view import View

Atom: TypeAlias = int
"""The number of an indivisible axis."""


class Index(NamedTuple):
    """The part of an index that one atom makes: ``stride`` steps in an axis of the base."""

    atom: Atom
    axis: int | None
    stride: Extent


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as a part of a base tensor, indexed by atoms."""

    value: Value
    base: Value
    dims: tuple[tuple[Index, ...], ...]
    """The atoms of each axis of ``value``, outermost first."""
    offsets: tuple[Extent, ...]
    factor: float
    view: View

    @property
    def atoms(self) -> list[Atom]:
        return [index.atom for dim in self.dims for index in dim]

    @property
    def stored(self) -> set[Atom]:
        """The atoms along which it is not repeated."""
        return {index.atom for dim in self.dims for index in dim if index.axis is not None}


@dataclass(frozen=True, slots=True)
class Joined:
    """A view whose terms have atoms; its splits are not final."""

    view: View
    dims: list[list[Index]]
    value: Value


class Atoms:
    """The atoms of one search."""

    def __init__(self, extents: Extents) -> None:
        self.extents = extents
        self.sizes: list[Extent] = []
        self._parts: dict[Atom, tuple[Atom, Atom]] = {}
        self._joined: dict[Atom, Atom] = {}
        self.assumed: list[tuple[Extent, Extent]] = []
        """Sizes that are equal in every run that does not fail."""

    def new(self, size: Extent) -> Atom:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def axes(self, shape: Sequence[Extent]) -> list[list[Atom]]:
        """Return an atom for each axis, none for an axis of size 1."""
        return [[] if size == 1 else [self.new(size)] for size in shape]

    def leaves(self, atoms: Iterable[Atom]) -> list[Atom]:
        """Return the atoms after all joins and splits."""
        joined, parts, results = self._joined, self._parts, list[Atom]()
        for first in atoms:
            atom = first
            while atom in joined:
                atom = joined[atom]
            if atom in parts:
                results += self.leaves(parts[atom])
            else:
                results.append(atom)
        return results

    def of_view(self, view: View) -> list[list[Index]]:
        """Return fresh atoms for the terms of a view."""
        return [
            [Index(self.new(term.size), term.axis, term.stride) for term in dim]
            for dim in view.dims
        ]

    def size(self, atoms: Iterable[Atom]) -> Extent:
        return total(self.sizes[atom] for atom in self.leaves(atoms))

    def unify(
        self, first: Sequence[Atom], second: Sequence[Atom], what: str, *, is_fact: bool = False
    ) -> None:
        """Make two lists of atoms one; split where one size is a multiple of the other.

        ``is_fact``: the operator fails where the sizes differ.

        Raises:
            Refused: the sizes are not known to be equal.
        """
        a, b = self.leaves(first), self.leaves(second)
        while a and b:
            x, y = a[0], b[0]
            if x == y:
                a, b = a[1:], b[1:]
                continue
            size, other = self.sizes[x], self.sizes[y]
            if size == other or (is_fact and len(a) == len(b) == 1):
                if size != other:
                    self.assumed.append((size, other))
                if x in b[1:] or y in a[1:]:
                    raise Refused(what, "an axis meets itself, as in a diagonal")
                self._joined[y] = x
                a, b = a[1:], b[1:]
                continue
            if not (self._split(x, other) or self._split(y, size)):
                raise Refused(what, f"{self.size(a)} is not known to equal {self.size(b)}")
            a, b = self.leaves(a), self.leaves(b)
        if a or b:
            raise Refused(what, f"the sizes differ by a factor of {self.size(a or b)}")

    def _split(self, atom: Atom, outer: Extent) -> bool:
        inner = self.extents.exact(self.sizes[atom], outer)
        if inner is None:
            return False
        self._parts[atom] = self.new(outer), self.new(inner)
        return True

    def same(self, atom: Atom, other: Atom) -> None:
        """Join two atoms without a proof: a size that may be 1 spreads over the other's."""
        self.assumed.append((self.sizes[atom], self.sizes[other]))
        self._joined[atom] = other

    def final(self, dims: Sequence[Sequence[Index]]) -> tuple[tuple[Index, ...], ...]:
        """Return the terms after all splits."""
        results: list[tuple[Index, ...]] = []
        for dim in dims:
            terms: list[Index] = []
            for index in dim:
                leaves = self.leaves([index.atom])
                if len(leaves) == 1:
                    terms.append(Index(leaves[0], index.axis, index.stride))
                    continue
                inner: Extent = 1
                split: list[Index] = []
                for leaf in reversed(leaves):
                    split.append(Index(leaf, index.axis, index.stride * inner))
                    inner = inner * self.sizes[leaf]
                terms.extend(reversed(split))
            results.append(tuple(terms))
        return tuple(results)

    def operand(self, joined: Joined) -> Operand:
        view = joined.view
        return Operand(
            joined.value, view.base, self.final(joined.dims), view.offsets, view.factor, view
        )

    def of_base(self, joined: Joined, shape: Sequence[Extent], what: str) -> list[list[Atom]]:
        """Return the atoms of each axis of the base, which the view reads once and whole.

        Raises:
            Refused: it reads a part, or an element twice.
        """
        view = joined.view
        terms = [index for dim in self.final(joined.dims) for index in dim]
        name = view.base.name
        if any(index.axis is None for index in terms):
            raise Refused(what, f'"{name}" is repeated')
        results: list[list[Atom]] = []
        for axis, size in enumerate(shape):
            own = [index for index in terms if index.axis == axis]
            inner: Extent = 1
            order: list[Atom] = []
            while own:
                index = next((index for index in own if index.stride == inner), None)
                if index is None:
                    raise Refused(what, f'only a part of "{name}" is read')
                own.remove(index)
                order.append(index.atom)
                inner = inner * self.sizes[index.atom]
            if inner != size:
                raise Refused(what, f'only a part of "{name}" is read')
            results.append(order[::-1])
        return results


def flat(dim: Iterable[Index]) -> list[Atom]:
    return [index.atom for index in dim]
