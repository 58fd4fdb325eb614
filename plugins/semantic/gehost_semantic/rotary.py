"""Rotary embeddings: pairs of elements turned by angles, found by what two elements are.

``y[p] = x0·cos − s·x1`` and ``y[p'] = x1·cos + s·x0``, where ``p'`` is ``p + D/2`` or the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import cast

import numpy as np

from gehost import Node, Refused, Value
from gehost_semantic.elements import ZERO, Linear
from gehost_semantic.extents import Extent
from gehost_semantic.layout_rules import LAYOUTS
from gehost_semantic.layouts import way_up
from gehost_semantic.polynomials import Factor, Function, Part, Polynomial, Polynomials
from gehost_semantic.view import only_reader
from gehost_semantic.views import Views


@dataclass(frozen=True, slots=True)
class Table:
    """Cosines or sines: the elements of a tensor for the first of each pair."""

    tensor: Value
    place: tuple[Linear, ...]
    """The index in it; the atom of an axis of the result is the number of the axis."""
    factor: float
    """What the rotation multiplies it by."""

    @property
    def axes(self) -> frozenset[int]:
        """The axes of the result on which it depends."""
        return frozenset(
            digit for form in self.place for digit, _ in form.strides if isinstance(digit, int)
        )


@dataclass(frozen=True, slots=True)
class Rotary:
    """Pairs of elements of the last axis, turned by angles."""

    node: Node
    """What computes ``result``."""
    result: Value
    shape: tuple[Extent, ...]
    """The sizes of the result."""
    x: Value
    spreads: bool
    """Whether x may have one element along an axis where the result has more."""
    start: int
    """Where the rotated part of the last axis begins; the other elements are those of x."""
    rotary_size: int
    interleaved: bool
    """Whether a pair is ``2p, 2p + 1``, or ``p, p + rotary_size / 2``, in the result."""
    x_interleaved: bool
    """The same in x."""
    cos: Table
    sin: Table

    @property
    def head_size(self) -> int:
        size = self.shape[-1]
        assert isinstance(size, int)
        return size

    @property
    def is_partial(self) -> bool:
        return self.rotary_size < self.head_size

    @property
    def positions(self) -> tuple[int, ...]:
        """The axes along which the angles vary."""
        return tuple(sorted((self.cos.axes | self.sin.axes) - {len(self.shape) - 1}))

    def summary(self) -> str:
        """Return one line: x, what is rotated, how pairs lie, and where angles vary."""
        end = self.start + self.rotary_size
        part = f"[{self.start}:{end}] of " if self.is_partial else ""
        pairs = "interleaved" if self.x_interleaved else "halves"
        if self.x_interleaved != self.interleaved:
            pairs += " to interleaved" if self.interleaved else " to halves"
        axes = ", ".join(map(str, self.positions)) or "none"
        return (
            f'{self.node.label}: {part}"{self.x.name}" {list(map(str, self.shape))}, {pairs}, '
            f'cos "{self.cos.tensor.name}", sin "{self.sin.tensor.name}", angles along {axes}'
        )


def rotations(views: Views) -> list[tuple[Node, Rotary | Refused]]:
    """Return each rotation, and each node that nearly is one with the step that fails."""
    cached = views.answers.get("rotary")
    if cached is None:
        cached = views.answers["rotary"] = list(_rotations(views))
    return cast("list[tuple[Node, Rotary | Refused]]", cached)


def _rotations(views: Views) -> Iterator[tuple[Node, Rotary | Refused]]:
    inside: set[Value] = set()
    for value in _candidates(views):
        if value in inside:
            continue
        node, view = value.producer, views.of(value)
        assert node is not None
        try:
            rotary = _find(views, value)
        except Refused as refusal:
            yield node, refusal
            continue
        if rotary is not None:
            rotary = _widened(views, rotary)
            inside.add(rotary.result)
            if view is not None:
                inside.add(view.base)
            yield rotary.node, rotary


def _candidates(views: Views) -> Iterator[Value]:
    """Yield sums of products, and joined pieces, whose last axis may hold pairs."""
    for node in views.graph.nodes:
        if node.op not in ("Add", "Sub", "Concat") or len(node.outputs) != 1:
            continue
        value = node.outputs[0]
        if value is None or not value.dtype or not value.dtype.is_float or (value.rank or 0) < 2:
            continue
        if node.op != "Concat":
            if all(_may_be_product(views, operand) for operand in node.inputs):
                yield value
            continue
        if sum(_is_sum(views, operand) for operand in node.inputs) < 2:
            continue
        # the last two axes of stacked pairs become one
        for reader in value.readers:
            if isinstance(reader, Node) and reader.op == "Reshape" and reader.graph is value.graph:
                behind = reader.outputs[0]
                view = views.of(behind)
                if behind is not None and view is not None and view.base is value:
                    yield behind
        if node.attrs["axis"] % (value.rank or 1) == (value.rank or 0) - 1:
            yield value


def _may_be_product(views: Views, value: Value | None) -> bool:
    node = None if value is None else value.producer
    if node is not None and node.op in LAYOUTS and node.op != "Mul":
        view = views.of(value)
        node = None if view is None else view.base.producer
    return node is not None and node.op in ("Mul", "Neg")


def _is_sum(views: Views, value: Value | None) -> bool:
    view = views.of(value)
    return (
        view is not None
        and view.base.producer is not None
        and view.base.producer.op in ("Add", "Sub")
    )


def _find(views: Views, value: Value) -> Rotary | None:
    shape = views.shape(value)
    if shape is None or not isinstance(shape[-1], int):
        return None
    for start, size in _windows(views, value, shape[-1]):
        if size % 2 or size == 0:
            continue
        for interleaved in (False, True):
            rotary = _Search(views, value, shape, start, size, interleaved=interleaved).run()
            if rotary is not None:
                return rotary
    return None


def _windows(views: Views, value: Value, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of the last axis that may be rotated: all of it, or two pieces."""
    yield 0, size
    node = value.producer
    if node is None or node.op != "Concat" or len(node.inputs) < 3:
        return
    start = 0
    sizes = [shape[-1] if (shape := views.shape(operand)) else None for operand in node.inputs]
    for own, following in pairwise(sizes):
        if not isinstance(own, int):
            return
        if own == following:
            yield start, 2 * own
        start += own


@dataclass(frozen=True, slots=True)
class _Way:
    """``y0 = a·x0·cos + b·x1·sin`` and ``y1 = c·x1·cos1 + d·x0·sin1``."""

    first: Part
    second: Part
    cos: tuple[Factor, Factor]
    sin: tuple[Factor, Factor]
    numbers: tuple[float, float, float, float]


class _Search:
    """One tensor, one part of its last axis, and one order of the elements of a pair."""

    def __init__(
        self,
        views: Views,
        value: Value,
        shape: tuple[Extent, ...],
        start: int,
        size: int,
        *,
        interleaved: bool,
    ) -> None:
        self._views, self._value, self._shape = views, value, shape
        self._start, self._size, self._interleaved = start, size, interleaved
        self._half = size // 2
        self._polynomials = Polynomials(views, _sizes(shape, self._half))

    def _places(self, *, interleaved: bool) -> list[list[Linear]]:
        """Return the places of both elements of a pair."""
        step, shift = (2, 1) if interleaved else (1, self._half)
        return [
            _place(self._shape, self._start + second * shift, step, self._half) for second in (0, 1)
        ]

    def run(self) -> Rotary | None:
        places = self._places(interleaved=self._interleaved)
        first, second = (self._polynomials.of(self._value, place) for place in places)
        if first is None or second is None:
            return None
        # of two tensors whose elements are pairs, x has more axes than a table
        ways = sorted(_ways(first, second), key=lambda way: -len(_atoms(way.first)))
        refusal: Refused | None = None
        for way in ways:
            try:
                return self._described(way)
            except Refused as reason:
                refusal = refusal or reason
        if refusal is not None:
            raise refusal
        return None

    def _described(self, way: _Way) -> Rotary:
        for name, (one, other) in (("cos", way.cos), ("sin", way.sin)):
            if not _is_same(one, other, len(self._shape) - 1, self._half):
                raise Refused(
                    "halves",
                    f'"{one.source.name}" is not known to have the same {name} for both '
                    "elements of a pair",
                )
        a, b, c, d = way.numbers
        if not (_is_near(a, c) and _is_near(b, -d)):
            raise Refused("signs", "the elements of a pair are not turned by one angle")
        x, factor, x_interleaved = self._x(way)
        node = self._value.producer
        assert node is not None
        return Rotary(
            node,
            self._value,
            self._shape,
            x,
            self._views.shape(x) != self._shape,
            self._start,
            self._size,
            self._interleaved,
            x_interleaved,
            self._table(way.cos[0], a / factor),
            self._table(way.sin[0], -b / factor),
        )

    def _table(self, factor: Factor, coefficient: float) -> Table:
        own = self._polynomials.factor(factor.source, factor.at)
        assert own is not None
        return Table(factor.source, factor.at, coefficient / own[1])

    def _x(self, way: _Way) -> tuple[Value, float, bool]:
        """Return the tensor that has both elements of each pair, what multiplies it, and its order.

        The order is that of the result, or else the other one.
        """
        for interleaved in (self._interleaved, not self._interleaved):
            places = self._places(interleaved=interleaved)
            for part in (way.first, way.second):
                for value in way_up(self._views, part.source, part.base):
                    if value.dtype != part.source.dtype:
                        break
                    factor = self._factor(value, way, places)
                    if factor is None:
                        continue
                    if not _keeps(self._views, self._value, value, self._start, self._size):
                        raise Refused(
                            "x", "the elements beside the rotated ones are not those of x"
                        )
                    return value, factor, interleaved
        raise Refused("x", "no tensor has the elements in the places of the result")

    def _factor(self, value: Value, way: _Way, places: Sequence[list[Linear]]) -> float | None:
        """Return what multiplies a tensor that has both elements of each pair in their places."""
        if not self._may_be_whole(value):
            return None
        first, second = (self._polynomials.factor(value, place) for place in places)
        if first is None or first[0] != way.first or second != (way.second, first[1]):
            return None
        return first[1]

    def _may_be_whole(self, value: Value) -> bool:
        """Whether a tensor may have the result's sizes, and has so in the last axis."""
        shape, extents = self._views.shape(value), self._views.extents
        if shape is None or len(shape) != len(self._shape) or shape[-1] != self._shape[-1]:
            return False
        return all(
            own == size or (own != 1 and not extents.differ(own, size))
            for own, size in zip(shape, self._shape, strict=True)
        )


def _sizes(shape: Sequence[Extent], last: int) -> dict[int, Extent]:
    """Return the sizes of the atoms: one for each axis, of which the last one is cut."""
    return dict(enumerate([*shape[:-1], last]))


def _place(shape: Sequence[Extent], start: int, step: int, count: int) -> list[Linear]:
    """Return the place of ``count`` elements of the last axis."""
    outer = [Linear(0, ((axis, 1),)) if size != 1 else ZERO for axis, size in enumerate(shape[:-1])]
    return [*outer, Linear(start, ((len(shape) - 1, step),) if count > 1 else ())]


def _ways(first: Polynomial, second: Polynomial) -> Iterator[_Way]:
    """Yield how both elements of a pair are sums of products of two common elements."""
    if len(first) != 2 or len(second) != 2:
        return
    if any(len(set(factors)) != 2 for factors in (*first, *second)):
        return
    for one, other in permutations(first):
        for x0, cos in permutations(one):
            for x1, sin in permutations(other):
                if not (isinstance(x0, Part) and isinstance(x1, Part)) or not _follows(x1, x0):
                    continue
                of_x0, of_x1 = ([factors for factors in second if x in factors] for x in (x0, x1))
                if len(of_x0) != 1 or len(of_x1) != 1 or of_x0 == of_x1:
                    continue
                (sin1,) = set(of_x0[0]) - {x0}
                (cos1,) = set(of_x1[0]) - {x1}
                numbers = first[one], first[other], second[of_x1[0]], second[of_x0[0]]
                yield _Way(x0, x1, (cos, cos1), (sin, sin1), numbers)


def _follows(second: Part, first: Part) -> bool:
    """Whether two elements of one tensor differ by a positive number of steps."""
    if second.base is not first.base:
        return False
    steps = [one.plus(other, -1) for one, other in zip(second.place, first.place, strict=True)]
    numbers = [step.number for step in steps]
    return all(number is not None and number >= 0 for number in numbers) and any(numbers)


def _atoms(part: Part) -> set[object]:
    return {digit for form in part.place for digit, _ in form.strides}


def _is_near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * abs(a)


def _is_same(one: Factor, other: Factor, last: int, half: int) -> bool:
    """Whether two elements are equal for each pair: by form, or as numbers of a constant."""
    if one == other:
        return True
    if isinstance(one, Function) and isinstance(other, Function):
        return (one.op, one.factor) == (other.op, other.factor) and _is_same(
            one.argument, other.argument, last, half
        )
    if not isinstance(one, Part) or not isinstance(other, Part) or one.base is not other.base:
        return False
    array = one.base.array if one.base.is_constant else None
    apart = [axis for axis, form in enumerate(one.place) if form != other.place[axis]]
    if array is None or len(apart) != 1:
        return False
    rows: list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = []
    for part in (one, other):
        form = part.place[apart[0]]
        if not isinstance(form.constant, int) or any(
            digit != last or not isinstance(stride, int) for digit, stride in form.strides
        ):
            return False
        steps = sum(stride for _, stride in form.strides if isinstance(stride, int))
        places = form.constant + steps * np.arange(half if form.strides else 1)
        rows.append(array.take(places, axis=apart[0]))
    return np.array_equal(rows[0], rows[1])


def _keeps(views: Views, result: Value, x: Value, start: int, size: int) -> bool:
    """Whether the elements of the last axis beside a part are those of x."""
    shape = views.shape(result)
    assert shape is not None
    whole = shape[-1]
    assert isinstance(whole, int)
    ranges = [(0, start), (start + size, whole - start - size)]
    return all(_is_part(views, result, 0, x, begin, count) for begin, count in ranges if count)


def _is_part(views: Views, value: Value, shift: int, x: Value, start: int, count: int) -> bool:
    """Whether a range of x is a range of another tensor, which begins ``shift`` earlier."""
    shape = views.shape(value)
    assert shape is not None
    polynomials = Polynomials(views, _sizes(shape, count))
    one = polynomials.factor(value, _place(shape, start - shift, 1, count))
    other = polynomials.factor(x, _place(shape, start, 1, count))
    return one is not None and one == other


def _widened(views: Views, rotary: Rotary) -> Rotary:
    """Return a rotation of a part of x that a Concat joins with the rest of x, as one of x."""
    join = only_reader(rotary.result)
    if join is None or join.op != "Concat" or rotary.is_partial or rotary.spreads:
        return rotary
    value, start = join.outputs[0], 0
    shape, x = views.shape(value), views.of(rotary.x)
    if value is None or shape is None or x is None or len(shape) != len(rotary.shape):
        return rotary
    if join.attrs["axis"] % len(shape) != len(shape) - 1 or not isinstance(shape[-1], int):
        return rotary
    for operand in join.inputs:
        if operand is rotary.result:
            break
        own = views.shape(operand)
        if own is None or not isinstance(own[-1], int):
            return rotary
        start += own[-1]
    size = rotary.rotary_size
    for wide in way_up(views, rotary.x, x.base):
        if views.shape(wide) != shape or wide.dtype != rotary.x.dtype:
            continue
        if _is_part(views, rotary.x, start, wide, start, size) and _keeps(
            views, value, wide, start, size
        ):
            return replace(rotary, node=join, result=value, shape=shape, x=wide, start=start)
    return rotary
