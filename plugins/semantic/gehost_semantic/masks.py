"""What masks mean: index comparisons (causal, window), and predicates on some axes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping

from gehost_semantic.atoms import Operand
from gehost_semantic.attention import Add, Attention, Floor, Limit, MaskMeaning, Role
from gehost_semantic.elements import (
    Apply,
    Digit,
    Element,
    Elements,
    Linear,
    NotAbove,
    Number,
    Opaque,
    scaled,
)
from gehost_semantic.extents import Extent
from gehost_semantic.views import Views

_LOWEST_OF_FLOAT16 = -65504.0
MOST_OF_A_MASK = _LOWEST_OF_FLOAT16 / 2
"""A fill is a mask if it is at most half the lowest number of the narrowest type."""


def meaning(views: Views, attention: Attention) -> MaskMeaning:
    """Return what the addends and masks of a description mean."""
    # layers share masks
    key = "mask", _key(attention)
    cached = views.answers.get(key)
    if not isinstance(cached, MaskMeaning):
        cached = views.answers[key] = _meaning(views, attention)
    return cached


def _key(attention: Attention) -> Hashable:
    """Return the masks with the place of each atom in its role instead of the atom."""
    names = {
        atom: (role, number) for role in Role for number, atom in enumerate(attention.atoms(role))
    }
    steps = [
        step
        if isinstance(step, Floor)
        else (
            step.operand.base,
            step.operand.offsets,
            frozenset(
                (names.get(index.atom), index.axis, index.stride)
                for dim in step.operand.dims
                for index in dim
            ),
            step.factor if isinstance(step, Add) else (step.keeps, step.fill),
        )
        for step in attention.after
    ]
    return tuple(steps), frozenset((names[a], size) for a, size in attention.sizes.items())


def _meaning(views: Views, attention: Attention) -> MaskMeaning:
    sizes: dict[Digit, Extent] = dict(attention.sizes.items())
    elements = Elements(views, sizes)
    query, key = attention.atoms(Role.QUERY), attention.atoms(Role.KEY)
    limits: list[Limit] = []
    rest: list[tuple[str, frozenset[Role]]] = []
    fill = -math.inf

    def note(kind: str, element: Element) -> None:
        roles = [attention.roles.get(_atom(digit)) for digit in _digits(element)]
        rest.append((kind, frozenset(role for role in roles if role is not None)))

    for step in attention.after:
        if isinstance(step, Floor):
            continue
        element = elements.of_base(step.operand.base, _place(step.operand))
        conditions: list[Element] = []
        if isinstance(step, Add):
            element = scaled(element, step.factor * step.operand.factor)
            for part in _addends(element):
                retained = _kept(part)
                if retained is None:
                    note("bias", part)
                else:
                    conditions += retained
                    fill = max(fill, *_lows(part), -math.inf)
        elif step.fill > MOST_OF_A_MASK:
            note("bias", element)
        else:
            conditions = _conditions(element if step.keeps else Apply("Not", (element,)))
            fill = max(fill, step.fill)
        for condition in conditions:
            if _is_certain(views, condition, attention.sizes):
                continue
            limit = _limit(condition, query, key)
            if limit is None:
                note("keep" if _is_opaque(condition) else "pattern", condition)
            else:
                limits.append(limit)
    return MaskMeaning(tuple(dict.fromkeys(limits)), tuple(dict.fromkeys(rest)), fill)


def _place(operand: Operand) -> list[Linear]:
    """Return the index in an operand's base."""
    results = [Linear(offset) for offset in operand.offsets]
    for dim in operand.dims:
        for index in dim:
            if index.axis is not None:
                form = Linear(0, ((index.atom, index.stride),))
                results[index.axis] = results[index.axis].plus(form)
    return results


def _is_certain(views: Views, condition: Element, sizes: Mapping[int, Extent]) -> bool:
    """Whether a condition holds at each position."""
    if not isinstance(condition, NotAbove):
        return False
    highest = condition.form.constant
    for digit, stride in condition.form.strides:
        size = sizes.get(digit) if isinstance(digit, int) else None
        if size is None or not isinstance(stride, int):
            return False
        highest = highest + (stride * (size - 1) if stride > 0 else 0)
    return bool(views.extents.at_least(0, highest))


def _is_opaque(element: Element) -> bool:
    """Whether nothing is known of an element, neither numbers nor positions."""
    if isinstance(element, Apply):
        return all(map(_is_opaque, element.args))
    return isinstance(element, Opaque) and not element.value.is_constant


def _limit(condition: Element, query: list[int], key: list[int]) -> Limit | None:
    if not isinstance(condition, NotAbove) or len(query) > 1 or len(key) != 1:
        return None
    strides, at_most = dict(condition.form.strides), -condition.form.constant
    if strides == {key[0]: 1, **dict.fromkeys(query, -1)}:
        return Limit(is_window=False, at_most=at_most)
    if strides == {key[0]: -1, **dict.fromkeys(query, 1)}:
        return Limit(is_window=True, at_most=at_most)
    return None


def _addends(element: Element) -> list[Element]:
    if isinstance(element, Apply) and element.op == "Add":
        return [part for arg in element.args for part in _addends(arg)]
    return [element]


def _lows(element: Element) -> Iterator[float]:
    """Yield the numbers in an addend that exclude a position."""
    if isinstance(element, Number) and _is_low(element):
        yield element.number
    if isinstance(element, Apply):
        for arg in element.args:
            yield from _lows(arg)


def _is_low(element: Element) -> bool:
    return isinstance(element, Number) and element.number <= MOST_OF_A_MASK


def _kept(element: Element) -> list[Element] | None:
    """Return the conditions under which an addend is 0, else it is a mask's; None for a bias."""
    if isinstance(element, Number):
        return [] if element.number == 0 else None
    if not isinstance(element, Apply):
        return None
    args = element.args
    if element.op == "Where":
        for low, other, negated in ((args[2], args[1], False), (args[1], args[2], True)):
            if _is_low(low):
                inner = _kept(other)
                if inner is None:
                    return None
                return _conditions(Apply("Not", (args[0],)) if negated else args[0]) + inner
        return None
    if element.op == "Add":
        left, right = _kept(args[0]), _kept(args[1])
        return None if left is None or right is None else left + right
    if element.op == "Mul" and _is_low(args[1]):
        masked = args[0]
        if isinstance(masked, Apply) and masked.op == "Sub" and masked.args[0] == Number(1):
            return _conditions(masked.args[1])
        return _conditions(Apply("Not", (masked,)))
    return None


def _conditions(element: Element) -> list[Element]:
    """Return the conjuncts of a condition."""
    if isinstance(element, Number):
        return [] if element.number else [element]
    if not isinstance(element, Apply):
        return [element]
    args = element.args
    if element.op == "And":
        return _conditions(args[0]) + _conditions(args[1])
    if element.op == "Where" and isinstance(args[1], Number) and isinstance(args[2], Number):
        if args[1].number and not args[2].number:
            return _conditions(args[0])
        if args[2].number and not args[1].number:
            return _conditions(Apply("Not", (args[0],)))
    if element.op == "Sub" and args[0] == Number(1):
        return _conditions(Apply("Not", (args[1],)))
    if element.op != "Not":
        return [element]
    inner = args[0]
    if isinstance(inner, Number):
        return _conditions(Number(not inner.number))
    if isinstance(inner, NotAbove):  # not (f <= 0) is 1 - f <= 0
        return [NotAbove(inner.form.times(-1).plus(Linear(1)))]
    if not isinstance(inner, Apply):
        return [element]
    if inner.op == "Not":
        return _conditions(inner.args[0])
    if inner.op == "Or":
        return [c for arg in inner.args for c in _conditions(Apply("Not", (arg,)))]
    if inner.op == "Sub" and inner.args[0] == Number(1):
        return _conditions(inner.args[1])
    if inner.op == "Where" and isinstance(inner.args[1], Number):
        flipped = Apply("Where", (inner.args[0], inner.args[2], inner.args[1]))
        return _conditions(flipped) if isinstance(inner.args[2], Number) else [element]
    return [element]


def _digits(element: Element) -> frozenset[Digit]:
    if isinstance(element, Opaque):
        return element.digits
    if isinstance(element, NotAbove):
        return frozenset(digit for digit, _ in element.form.strides)
    if isinstance(element, Linear):
        return frozenset(digit for digit, _ in element.strides)
    if isinstance(element, Apply):
        return frozenset(digit for arg in element.args for digit in _digits(arg))
    return frozenset()


def _atom(digit: Digit) -> int:
    while not isinstance(digit, int):
        digit = digit[0]
    return digit
