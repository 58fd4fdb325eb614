"""Elements of computed tensors as sums of products of other tensors' elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gehost import Node, Value
from gehost_semantic.elements import ZERO, Elements, Linear, Place
from gehost_semantic.extents import Extent
from gehost_semantic.views import Views

_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Part:
    """An element of a base tensor; ``source`` has it at ``at``, and is what the product reads."""

    base: Value
    place: tuple[Linear, ...]
    source: Value = field(compare=False)
    at: tuple[Linear, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Function:
    """``Cos`` or ``Sin`` of an element; ``source`` has it at ``at``, and is what is read."""

    op: str
    argument: Part
    factor: float
    source: Value = field(compare=False)
    at: tuple[Linear, ...] = field(compare=False)


Factor: TypeAlias = Part | Function
Polynomial: TypeAlias = dict[tuple[Factor, ...], float]
"""Coefficients of products; the factors of a product are sorted."""


class Polynomials:
    """Evaluates elements; ``sizes`` are those of the atoms."""

    def __init__(self, views: Views, sizes: Mapping[int, Extent]) -> None:
        self._views = views
        self._elements = Elements(views, {**sizes})
        self._rows: dict[tuple[Value, tuple[Linear, ...]], int] = {}
        """A digit for each element that a Gather takes as an index."""

    def of(self, value: Value | None, place: Place, depth: int = 0) -> Polynomial | None:
        """Return an element as a sum of products; None if it is none of two factors each."""
        result = self._of_base(value, place)
        if result is None or depth > _DEPTH:
            return None
        base, inner, factor = result
        node = base.producer
        if node is None:
            return None
        match node.op:
            case "Add" | "Sub":
                left, right = (self.of(operand, inner, depth + 1) for operand in node.inputs)
                if left is None or right is None:
                    return None
                sign = 1.0 if node.op == "Add" else -1.0
                for product, number in right.items():
                    left[product] = left.get(product, 0.0) + sign * number
            case "Neg":
                left = self.of(node.inputs[0], inner, depth + 1)
                factor = -factor
            case "Concat":
                piece = self._piece(node, inner)
                left = None if piece is None else self.of(*piece, depth + 1)
            case "Mul":
                factors = [self.factor(operand, inner) for operand in node.inputs]
                a, b = factors
                if a is None or b is None:
                    return None
                product = tuple(sorted((a[0], b[0]), key=hash))
                left = {product: a[1] * b[1]}
            case _:
                return None
        return None if left is None else {key: number * factor for key, number in left.items()}

    def factor(self, value: Value | None, place: Place) -> tuple[Factor, float] | None:
        """Return an element of one tensor, behind Concat, Neg, Cos and Sin, and its coefficient."""
        number = 1.0
        read: tuple[Value, tuple[Linear, ...]] | None = None
        while True:
            result = self._of_base(value, place)
            if result is None:
                return None
            assert value is not None
            base, inner, factor = result
            number *= factor
            source, at = read or (value, self._aligned(value, place))
            node = base.producer
            if node is not None and not base.is_constant:
                if node.op == "Neg":
                    number, value, place = -number, node.inputs[0], inner
                    continue
                if node.op == "Concat" and (piece := self._piece(node, inner)) is not None:
                    value, place = piece
                    continue
                if node.op in ("Cos", "Sin"):
                    angle = self.factor(node.inputs[0], inner)
                    if angle is not None and isinstance(part := angle[0], Part):
                        return Function(node.op, part, angle[1], source, at), number
                if node.op == "Gather" and (row := self._row(node, inner)) is not None:
                    read, value, place = (source, at), node.inputs[0], row
                    continue
            return Part(base, tuple(inner), source, at), number

    def _of_base(
        self, value: Value | None, place: Place
    ) -> tuple[Value, Sequence[Linear], float] | None:
        view = self._views.of(value)
        if value is None or view is None or len(place) < len(view.dims):
            return None
        inner: Sequence[Linear] | None = self._aligned(value, place)
        if view.base is not value:
            inner = self._elements.through(view, inner)
        return None if inner is None else (view.base, inner, view.factor)

    def _aligned(self, value: Value, place: Place) -> tuple[Linear, ...]:
        """Return the place in a tensor that spreads over the axes of one."""
        view = self._views.of(value)
        assert view is not None
        last = place[len(place) - len(view.dims) :]
        return tuple(form if dim else ZERO for dim, form in zip(view.dims, last, strict=True))

    def _row(self, node: Node, place: Sequence[Linear]) -> list[Linear] | None:
        """Return the place in what a Gather reads: its index is a digit of its own."""
        data, indices = (self._views.shape(node.inputs[slot]) for slot in (0, 1))
        index = node.inputs[1]
        if data is None or indices is None or index is None:
            return None
        axis: int = node.attrs.get("axis", 0) % len(data)
        rank = len(indices)
        key = index, tuple(place[axis : axis + rank])
        digit = self._rows.setdefault(key, -1 - len(self._rows))
        self._elements.sizes[digit] = data[axis]
        return [*place[:axis], Linear(0, ((digit, 1),)), *place[axis + rank :]]

    def _piece(self, node: Node, place: Place) -> tuple[Value, list[Linear]] | None:
        """Return the operand of a Concat that holds an element, and the place in it."""
        axis: int = node.attrs["axis"] % len(place)
        extents, sizes = self._views.extents, self._elements.sizes
        first = last = place[axis].constant
        for digit, stride in place[axis].strides:
            last = last + stride * (sizes[digit] - 1)
        start: Extent = 0
        for operand in node.inputs:
            shape = self._views.shape(operand)
            if shape is None or operand is None:
                return None
            end = start + shape[axis]
            if extents.at_least(first, start) and extents.at_least(end - 1, last):
                inner = place[axis].plus(Linear(start), -1)
                return operand, [*place[:axis], inner, *place[axis + 1 :]]
            start = end
        return None
