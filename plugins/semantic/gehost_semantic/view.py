"""A tensor as a view: a base tensor, and for each axis the terms of its index.

The index in axis ``a`` of the base is ``offsets[a]`` plus ``stride * i`` for each term of ``a``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from gehost import DataType, Node, Value
from gehost_semantic.extents import Extent, Extents, total


class Term(NamedTuple):
    """A part of an axis: ``size`` steps of ``stride`` in an axis of the base.

    ``size`` is never the number 1; ``axis`` is None for a repeated element.
    """

    size: Extent
    axis: int | None
    stride: Extent


Dims: TypeAlias = tuple[tuple[Term, ...], ...]


@dataclass(frozen=True, slots=True)
class View:
    """The elements of a base tensor that a tensor consists of."""

    base: Value
    dims: Dims
    """The terms of each axis, outermost first; none for an axis of size 1."""
    offsets: tuple[Extent, ...]
    factor: float = 1.0
    casts: tuple[DataType, ...] = ()
    """The element types passed on the way, from the base's on."""

    @property
    def shape(self) -> tuple[Extent, ...]:
        return tuple(total(term.size for term in dim) for dim in self.dims)

    @property
    def is_repeated(self) -> bool:
        """Whether an element of the base occurs more than once."""
        return any(term.axis is None for dim in self.dims for term in dim)


def coalesced(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Join neighbours that form one run, and drop those of size 1."""
    results: list[Term] = []
    for term in terms:
        if term.size == 1:
            continue
        if results:
            last = results[-1]
            if last.axis == term.axis and (
                term.axis is None or last.stride == term.stride * term.size
            ):
                results[-1] = Term(last.size * term.size, term.axis, term.stride)
                continue
        results.append(term)
    return tuple(results)


def regroup(extents: Extents, view: View, target: Sequence[Extent | None]) -> View | None:
    """Return a view reshaped to sizes (None: the one that is left over).

    None if an axis would cut a term at no whole number of steps.
    """
    terms = [term for dim in view.dims for term in dim]
    dims: list[Sequence[Term]] = [()] * len(target)
    first, last = 0, len(target)
    while first < last and (size := target[first]) is not None:
        selected = _take(extents, terms, size)
        if selected is None:
            break
        dims[first], terms = selected
        first += 1
    while last > first and (size := target[last - 1]) is not None:
        selected = _take(extents, terms, size, from_right=True)
        if selected is None:
            break
        dims[last - 1], terms = selected
        last -= 1
    if last - first == 1:
        dims[first] = terms
    elif first != last or terms:
        return None
    return replace(view, dims=tuple(coalesced(dim) for dim in dims))


def _take(
    extents: Extents, terms: Sequence[Term], size: Extent, *, from_right: bool = False
) -> tuple[list[Term], list[Term]] | None:
    """Take terms whose product is ``size`` from one end: those, and the others."""
    rest, selected = list(terms), list[Term]()
    while size != 1:
        if not rest:
            return None
        term = rest.pop() if from_right else rest.pop(0)
        remaining = extents.exact(size, term.size)
        if remaining is not None:
            selected.append(term)
            size = remaining
            continue
        parts = extents.exact(term.size, size)
        if parts is None:
            return None
        if from_right:
            selected.append(Term(size, term.axis, term.stride))
            rest.append(Term(parts, term.axis, term.stride * size))
        else:
            selected.append(Term(size, term.axis, term.stride * parts))
            rest.insert(0, Term(parts, term.axis, term.stride))
        size = 1
    return (selected[::-1] if from_right else selected), rest


def cut(extents: Extents, view: View, axis: int, start: Extent, size: Extent) -> View | None:
    """Return ``view[start : start + size]`` of an axis, None if no term can be cut there."""
    terms = view.dims[axis]
    if size == view.shape[axis]:
        return view
    inner: Extent = 1
    for place in range(len(terms) - 1, -1, -1):
        term = terms[place]
        if place == 0 or extents.at_least(inner * term.size, start + size):
            steps, count = extents.exact(start, inner), extents.exact(size, inner)
            if steps is not None and count is not None:
                offsets = list(view.offsets)
                if term.axis is not None:
                    offsets[term.axis] = offsets[term.axis] + steps * term.stride
                part = coalesced([Term(count, term.axis, term.stride), *terms[place + 1 :]])
                dims = (*view.dims[:axis], part, *view.dims[axis + 1 :])
                return replace(view, dims=dims, offsets=tuple(offsets))
        inner = inner * term.size
    return None


def only_reader(value: Value) -> Node | None:
    """Return the only user of a tensor, if it is a node of the same graph."""
    readers = list(value.readers)
    reader = readers[0] if len(readers) == 1 else None
    return reader if isinstance(reader, Node) and reader.graph is value.graph else None


def is_whole(view: View, base: View | None) -> bool:
    """Whether a view has all elements of its base in their places, but for factor and casts."""
    return base is not None and (view.dims, view.offsets) == (base.dims, base.offsets)


class Unknown(Exception):  # noqa: N818 - it ends the rule for one operator
    """A size or an element that a layout needs is not known."""
