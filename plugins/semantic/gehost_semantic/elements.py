"""One element of a tensor as an expression of its index.

An index is a linear form over atoms. Views map forms to forms; arithmetic on ranges, Concat, Gather
and comparisons keep them linear; all else is opaque.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gehost import DataType, Node, Value
from gehost_semantic.constants import computed
from gehost_semantic.extents import Extent, total
from gehost_semantic.view import View
from gehost_semantic.views import Views

Digit: TypeAlias = int | tuple["Digit", str, Extent]
"""An atom, or the quotient (``//``) or rest (``%``) of one by a size."""


@dataclass(frozen=True, slots=True)
class Linear:
    """``constant`` plus each digit times its stride."""

    constant: Extent
    strides: tuple[tuple[Digit, Extent], ...] = ()

    @classmethod
    def of(cls, constant: Extent, strides: Mapping[Digit, Extent]) -> Linear:
        items = [(digit, stride) for digit, stride in strides.items() if stride != 0]
        return cls(constant, tuple(sorted(items, key=lambda entry: str(entry[0]))))

    def plus(self, other: Linear, times: int = 1) -> Linear:
        strides = dict(self.strides)
        for digit, stride in other.strides:
            strides[digit] = strides.get(digit, 0) + stride * times
        return Linear.of(self.constant + other.constant * times, strides)

    def times(self, number: int) -> Linear:
        strides = {digit: stride * number for digit, stride in self.strides}
        return Linear.of(self.constant * number, strides)

    @property
    def number(self) -> int | None:
        return self.constant if isinstance(self.constant, int) and not self.strides else None


@dataclass(frozen=True, slots=True)
class Number:
    number: float


@dataclass(frozen=True, slots=True)
class Opaque:
    """An element that is not an expression of the index."""

    value: Value
    digits: frozenset[Digit]


@dataclass(frozen=True, slots=True)
class NotAbove:
    """Whether a linear form is at most 0."""

    form: Linear


@dataclass(frozen=True, slots=True)
class Apply:
    """``And``, ``Or``, ``Not``, ``Where``, ``Add``, ``Sub`` or ``Mul`` of elements."""

    op: str
    args: tuple[Element, ...]


Element: TypeAlias = Linear | Number | Opaque | NotAbove | Apply
Place: TypeAlias = Sequence[Linear]
"""The index of an element: a form for each axis."""

ZERO = Linear(0)
_COMPARISONS = {
    # sign and strictness of `left - right`, so that the form is at most 0
    "LessOrEqual": (1, 0),
    "Less": (1, 1),
    "GreaterOrEqual": (-1, 0),
    "Greater": (-1, 1),
}
_COUNTING = frozenset((DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE))
"""Types that hold the positions of a tensor."""
_DEPTH = 40
_MOST_STEPS = 4096
"""Operators that one evaluation reads: a tensor that reads another twice doubles them."""


class Elements:
    """Evaluates elements; ``sizes`` are those of the atoms."""

    def __init__(self, views: Views, sizes: Mapping[Digit, Extent]) -> None:
        self.views = views
        self.sizes = dict(sizes)
        self._steps = 0

    def of(self, value: Value | None, place: Place, depth: int = 0) -> Element:
        """Return the element of a tensor at a place, which may have further axes before."""
        view = self.views.of(value)
        assert value is not None
        if view is None or len(place) < len(view.dims):
            return Opaque(value, frozenset())
        fill = self.views.numbers.fill(value, self.views)
        if fill is not None:
            return Number(fill)
        place = place[len(place) - len(view.dims) :]
        place = [form if dim else ZERO for dim, form in zip(view.dims, place, strict=True)]
        base = self.through(view, place)
        if base is None:
            return _opaque(value, place)
        return scaled(self.of_base(view.base, base, depth), view.factor)

    # indices

    def through(self, view: View, place: Place) -> list[Linear] | None:
        """Return the index in the base; None if an axis cannot be read apart into its terms."""
        results = [(offset, dict[Digit, Extent]()) for offset in view.offsets]
        for dim, form in zip(view.dims, place, strict=True):
            digits = self._digits([term.size for term in dim], form)
            if digits is None:
                return None
            for term, digit in zip(dim, digits, strict=True):
                if term.axis is None:
                    continue
                constant, strides = results[term.axis]
                for atom, stride in digit.strides:
                    strides[atom] = strides.get(atom, 0) + stride * term.stride
                results[term.axis] = constant + digit.constant * term.stride, strides
        return [Linear.of(constant, strides) for constant, strides in results]

    def _digits(self, sizes: Sequence[Extent], form: Linear) -> list[Linear] | None:
        """Write a number with digits of these sizes, outermost first; no digit may carry."""
        if len(sizes) == 1:
            return [form]
        extents = self.views.extents
        inner = [total(sizes[place + 1 :]) for place in range(len(sizes))]
        strides: list[dict[Digit, Extent]] = [{} for _ in sizes]
        constants: list[Extent] = [0] * len(sizes)
        todo = list(form.strides)
        while todo:
            atom, stride = todo.pop()
            place = next(
                (n for n, step in enumerate(inner) if extents.exact(stride, step) is not None), None
            )
            if place is None:
                return None
            steps = extents.exact(stride, inner[place])
            size = self.sizes.get(atom)
            assert steps is not None
            if place == 0 or (
                size is not None and extents.at_least(sizes[place] - 1, steps * (size - 1))
            ):
                strides[place][atom] = strides[place].get(atom, 0) + steps
                continue
            outer = None if size is None or steps != 1 else extents.exact(size, sizes[place])
            if outer is None:
                return None
            low: Digit = (atom, "%", sizes[place])
            high: Digit = (atom, "//", sizes[place])
            self.sizes.setdefault(low, sizes[place])
            self.sizes.setdefault(high, outer)
            strides[place][low] = 1
            todo.append((high, inner[place] * sizes[place]))
        if form.constant != 0 and not self._constants(form.constant, inner, constants):
            return None
        results = [Linear.of(c, s) for c, s in zip(constants, strides, strict=True)]
        for place, digit in enumerate(results):
            if place and (digit.constant != 0 or len(digit.strides) > 1):
                highest = digit.constant
                for atom, stride in digit.strides:
                    highest = highest + stride * (self.sizes[atom] - 1)
                if not extents.at_least(sizes[place] - 1, highest):
                    return None
                if not extents.at_least(digit.constant, 0):
                    return None
        return results

    def _constants(
        self, constant: Extent, inner: Sequence[Extent], constants: list[Extent]
    ) -> bool:
        """Take a constant apart into digits."""
        if isinstance(constant, int) and all(isinstance(step, int) for step in inner):
            rest = constant
            for place, step in enumerate(inner):
                assert isinstance(step, int)
                constants[place], rest = (rest // step, rest % step) if step else (0, rest)
            return True
        extents = self.views.extents
        for place, step in enumerate(inner):
            steps = extents.exact(constant, step)
            if steps is not None:
                constants[place] = steps
                return True
        return not inner

    # operators

    def of_base(self, value: Value, place: Place, depth: int = 0) -> Element:
        """Return the element of a tensor that is no view of another one."""
        fill = self.views.numbers.fill(value, self.views)
        if fill is not None:
            return Number(fill)
        if value.is_constant:
            return self._constant(value, place)
        node = value.producer
        self._steps += 1
        if node is None or depth > _DEPTH or self._steps > _MOST_STEPS:
            return _opaque(value, place)
        if value.dtype is DataType.INT64 and value.rank in (0, 1):
            elements = self.views.elements(value)
            if elements is not None and len(elements) == 1 and elements[0] is not None:
                return Linear(elements[0])
        result = self._computed(node, place, depth)
        return _opaque(value, place) if result is None else result

    def _computed(self, node: Node, place: Place, depth: int) -> Element | None:
        def operand(slot: int) -> Element:
            return self.of(node.inputs[slot], place, depth + 1)

        match node.op:
            case "Range":
                start, step = (self.views.elements(node.inputs[slot]) for slot in (0, 2))
                if start and step == [1] and start[0] is not None:
                    return place[0].plus(Linear(start[0]))
            case "LessOrEqual" | "Less" | "GreaterOrEqual" | "Greater" | "Equal":
                return _compared(node, operand(0), operand(1))
            case "And" | "Or":
                return Apply(node.op, (operand(0), operand(1)))
            case "Not":
                inner = operand(0)
                if isinstance(inner, Number):
                    return Number(not inner.number)
                return Apply("Not", (inner,))
            case "Cast":
                return _cast(operand(0), node.outputs[0])
            case "CumSum":
                return Number(0) if operand(0) == Number(0) else None
            case "Where":
                condition = operand(0)
                if isinstance(condition, Number):
                    return operand(1 if condition.number else 2)
                return Apply("Where", (condition, operand(1), operand(2)))
            case "Add" | "Sub" | "Mul":
                return _arithmetic(node, operand(0), operand(1))
            case "Max":
                left, right = (operand(slot) for slot in (0, 1))
                if len(node.inputs) == 2 and right == Number(0) and self._is_natural(left):
                    return left
            case "Trilu":
                return self._triangle(node, place, operand(0))
            case "Gather":
                return self._gathered(node, place, depth)
            case "GatherND":
                return self._gathered_by_tuples(node, place, depth)
            case "Concat":
                return self._joined(node, place, depth)
            case _:
                return None
        return None

    def _is_natural(self, element: Element) -> bool:
        if not isinstance(element, Linear):
            return False
        lowest = element.constant
        for digit, stride in element.strides:
            if not self.views.extents.at_least(stride, 0):
                size = self.sizes.get(digit)
                if size is None:
                    return False
                lowest = lowest + stride * (size - 1)
        return bool(self.views.extents.at_least(lowest, 0))

    def _constant(self, value: Value, place: Place) -> Element:
        """A ramp, a triangle, or one element of a constant."""
        shape, array = value.shape, value.array
        if shape is None or array is None or array.dtype.kind not in "iufb" or not array.size:
            return _opaque(value, place)
        moving = [axis for axis, form in enumerate(place) if form.strides]
        if not moving:
            numbers = [form.number for form in place]
            sized = zip(numbers, array.shape, strict=True)
            if all(number is not None and 0 <= number < size for number, size in sized):
                return Number(array[tuple(numbers)].item())  # pyright: ignore[reportArgumentType]
            return _opaque(value, place)
        still = [axis for axis in range(array.ndim) if axis not in moving]
        if any(place[axis].number != 0 or array.shape[axis] != 1 for axis in still):
            return _opaque(value, place)
        if len(moving) == 1 and array.dtype.kind in "iu" and array.size > 1:
            ramp = array.reshape(-1)
            step = int(ramp[1]) - int(ramp[0])
            if bool((np.diff(ramp) == step).all()):
                return place[moving[0]].times(step).plus(Linear(int(ramp[0])))
        if len(moving) == 2 and array.size > 1:
            square = array.reshape([array.shape[axis] for axis in moving])
            return _triangular(square, *(place[axis] for axis in moving)) or _opaque(value, place)
        return _opaque(value, place)

    def _triangle(self, node: Node, place: Place, retained: Element) -> Element | None:
        shift = [0] if node.input(1) is None else self.views.elements(node.input(1))
        if shift is None or shift[0] is None:
            return None
        above = place[-1].plus(place[-2], -1)
        if node.attrs.get("upper", 1):
            inside = NotAbove(above.times(-1).plus(Linear(shift[0])))
        else:
            inside = NotAbove(above.plus(Linear(shift[0]), -1))
        return Apply("Where", (inside, retained, Number(0.0)))

    def _gathered(self, node: Node, place: Place, depth: int) -> Element | None:
        source, indices = (self.views.of(node.inputs[slot]) for slot in (0, 1))
        if source is None or indices is None:
            return None
        axis: int = node.attrs.get("axis", 0) % len(source.dims)
        rank = len(indices.dims)
        index = _linear(self.of(node.inputs[1], place[axis : axis + rank], depth + 1))
        if index is None or not self._is_natural(index):
            return None
        whole = [*place[:axis], index, *place[axis + rank :]]
        return self.of(node.inputs[0], whole, depth + 1)

    def _gathered_by_tuples(self, node: Node, place: Place, depth: int) -> Element | None:
        view = self.views.of(node.inputs[1])
        if view is None or view.base is not node.inputs[1] or node.attrs.get("batch_dims", 0):
            return None
        join = view.base.producer
        rank = len(view.dims)
        if join is None or join.op != "Concat" or join.attrs["axis"] not in (-1, rank - 1):
            return None
        outer = place[: rank - 1]
        parts = [_linear(self.of(part, [*outer, ZERO], depth + 1)) for part in join.inputs]
        for part in join.inputs:
            shape = self.views.shape(part)
            if shape is None or shape[-1] != 1:
                return None
        indices = [part for part in parts if part is not None and self._is_natural(part)]
        if len(indices) < len(parts):
            return None
        return self.of(node.inputs[0], [*indices, *place[rank - 1 :]], depth + 1)

    def _joined(self, node: Node, place: Place, depth: int) -> Element | None:
        """One linear form for all pieces of a Concat."""
        axis: int = node.attrs["axis"] % len(place)
        start: Extent = 0
        whole: Linear | None = None
        points: list[tuple[Extent, Linear]] = []
        for part in node.inputs:
            shape = self.views.shape(part)
            if shape is None:
                return None
            is_point = shape[axis] == 1
            inner = ZERO if is_point else place[axis].plus(Linear(start), -1)
            own = [*place[:axis], inner, *place[axis + 1 :]]
            element = _linear(self.of(part, own, depth + 1))
            if element is None:
                return None
            if is_point:
                points.append((start, element))
            elif whole is None:
                whole = element
            elif whole != element:
                return None
            start = start + shape[axis]
        if whole is None:
            return None
        # a piece of one element: the form's value at its index
        slope = [term for term in whole.strides if term in place[axis].strides]
        for at, element in points:
            if not slope or whole.plus(place[axis], -1).plus(Linear(at)) != element:
                return None
        return whole


def _compared(node: Node, left: Element, right: Element) -> Element | None:
    difference = _sum(left, right, -1)
    if difference is None:
        return _chosen(node, left, right)
    if node.op == "Equal":
        return None if difference.number is None else Number(difference.number == 0)
    sign, strict = _COMPARISONS[node.op]
    return NotAbove(difference.times(sign).plus(Linear(strict)))


def _arithmetic(node: Node, left: Element, right: Element) -> Element:
    result = _chosen(node, left, right)
    if result is None and node.op != "Mul":
        result = _sum(left, right, 1 if node.op == "Add" else -1)
    if isinstance(left, Number) and node.op == "Mul":
        left, right = right, left
    return result or Apply(node.op, (left, right))


def scaled(element: Element, factor: float) -> Element:
    """Return an element times a number."""
    if factor == 1:
        return element
    choice = _choice(element)
    if choice is not None:
        condition, numbers = choice
        with np.errstate(all="ignore"):
            return _either(condition, [float(np.float64(number) * factor) for number in numbers])
    if isinstance(element, Apply) and element.op in ("Add", "Where"):
        first = 1 if element.op == "Where" else 0
        args = [scaled(arg, factor) for arg in element.args[first:]]
        return Apply(element.op, (*element.args[:first], *args))
    return Apply("Mul", (element, Number(factor)))


def _choice(element: Element) -> tuple[Element | None, list[float]] | None:
    """Return the numbers of an element where a condition holds, and elsewhere."""
    if isinstance(element, Number):
        return None, [element.number] * 2
    if isinstance(element, Apply) and element.op == "Where":
        condition, *rest = element.args
        numbers = [item.number for item in rest if isinstance(item, Number)]
        return (condition, numbers) if len(numbers) == 2 else None
    is_truth = isinstance(element, NotAbove) or (
        isinstance(element, Apply) and element.op in ("And", "Not", "Or")
    )
    if is_truth or (isinstance(element, Opaque) and element.value.dtype is DataType.BOOL):
        return element, [1, 0]
    return None


def _either(condition: Element | None, numbers: Sequence[float]) -> Element:
    first, second = numbers
    if condition is None or first == second:
        return Number(first)
    return Apply("Where", (condition, Number(first), Number(second)))


def _chosen(node: Node, left: Element, right: Element) -> Element | None:
    """Compute with numbers that one condition chooses, in the type of the operator."""
    first, second = _choice(left), _choice(right)
    if first is None or second is None:
        return None
    conditions = [item for item in (first[0], second[0]) if item is not None]
    if len(conditions) == 2 and conditions[0] != conditions[1]:
        return None
    numbers = [computed(node, pair) for pair in zip(first[1], second[1], strict=True)]
    if any(number is None or math.isnan(number) for number in numbers):
        return None
    condition = conditions[0] if conditions else None
    return _either(condition, [number for number in numbers if number is not None])


def _cast(element: Element, result: Value | None) -> Element | None:
    """Return an element in another type, None where that may change it otherwise."""
    dtype = None if result is None else result.dtype
    if dtype is None:
        return None
    if isinstance(element, Linear):
        return element if dtype in _COUNTING else None
    if dtype.is_float or isinstance(element, Opaque):
        return element
    choice = _choice(element)
    if choice is None:
        return None
    if dtype is DataType.BOOL:
        return _either(choice[0], [float(number != 0) for number in choice[1]])
    most = 1 if dtype not in _COUNTING else 2**31
    is_kept = all(abs(number) <= most and number == int(number) for number in choice[1])
    return element if is_kept else None


def _opaque(value: Value, place: Place) -> Opaque:
    return Opaque(value, frozenset(digit for form in place for digit, _ in form.strides))


def _linear(element: Element) -> Linear | None:
    if isinstance(element, Linear):
        return element
    if isinstance(element, Number) and float(element.number).is_integer():
        return Linear(int(element.number))
    return None


def _sum(left: Element, right: Element, times: int) -> Linear | None:
    a, b = _linear(left), _linear(right)
    return None if a is None or b is None else a.plus(b, times)


def _triangular(
    square: np.ndarray[tuple[int, ...], np.dtype[np.generic]], row: Linear, column: Linear
) -> Element | None:
    """A constant with one number on and below the diagonal, and another one above."""
    rows, columns = np.indices(square.shape)
    below = square[columns <= rows]
    above = square[columns > rows]
    if not below.size or not above.size:
        return None
    if not (bool((below == below[0]).all()) and bool((above == above[0]).all())):
        return None
    inside = NotAbove(column.plus(row, -1))
    low, high = Number(below[0].item()), Number(above[0].item())
    return Apply("Where", (inside, low, high))
