"""Layouts of tensors in atoms: find the tensor that has one, or make it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import TypeAlias

from gehost import EsTensor, Node, PassError, Refused, Value, es
from gehost_semantic.atoms import Atom
from gehost_semantic.extents import Extent, exact_int, total
from gehost_semantic.views import Views

Layout: TypeAlias = Sequence[Sequence[Atom]]
"""The atoms of each axis, outermost first."""


def layout_of(text: str, axes: Mapping[str, Sequence[Atom]]) -> Layout:
    """Return the atoms of each axis of a layout, as ``b s (h d)``.

    Raises:
        PassError: it does not name each axis once.
    """
    words = words_of(text)
    if sorted(chain.from_iterable(words)) != sorted(axes):
        raise PassError(
            f"layout: {text!r} must name each of {', '.join(axes)} once",
            hint="as in {}".format(" ".join(axes)),
        )
    return [[atom for name in word for atom in axes[name]] for word in words]


@cache
def words_of(text: str) -> Sequence[Sequence[str]]:
    """Return the names of each axis of a layout."""
    return [word.strip("()").split() for word in re.findall(r"\([^()]*\)|\w+", text)]


def way_up(views: Views, value: Value, base: Value) -> list[Value]:
    """Return a tensor and those that layout operators make it of, up to its base."""
    results = [value]
    while results[-1] is not base:
        node = results[-1].producer
        source = None if node is None else next(iter(_data_inputs(views, node, base)), None)
        if source is None:
            break
        results.append(source)
    return results


def _data_inputs(views: Views, node: Node, base: Value) -> list[Value]:
    results: list[Value] = []
    for value in node.inputs:
        view = views.of(value)
        if value is not None and view is not None and view.base is base:
            results.append(value)
    return results


def relaid(
    tensor: EsTensor,
    source: Layout,
    target: Layout,
    sizes: Mapping[Atom, Extent],
    *,
    allowzero: bool,
) -> EsTensor:
    """Return a tensor with its axes in another order and grouping.

    ``allowzero``: Reshape has the attribute, without which a computed size 0 copies another one.

    Raises:
        Refused: a size can be computed neither from numbers nor from the tensor's sizes.
    """
    source, target = [list(axis) for axis in source], [list(axis) for axis in target]
    if source == target:
        return tensor
    order = [atom for axis in source for atom in axis]
    expected = [atom for axis in target for atom in axis]
    if sorted(order) != sorted(expected):
        raise Refused("layout", "the tensor lacks an axis, or repeats one")
    if [axis for axis in source if axis] == [axis for axis in target if axis]:
        return _with_ones(tensor, source, target)
    sizes = dict(sizes)
    for first, second in _neighbours(source) & _neighbours(target):
        # what stays together is one atom
        whole = -len(sizes)
        sizes[whole] = sizes[first] * sizes[second]
        source, target = (
            [_with_pair(axis, first, second, whole) for axis in axes] for axes in (source, target)
        )
        return relaid(tensor, source, target, sizes, allowzero=allowzero)
    if order == expected:
        return _reshaped(tensor, source, target, sizes, allowzero=allowzero)
    single = [[atom] for atom in order]
    if source != single:
        tensor = _reshaped(tensor, source, single, sizes, allowzero=allowzero)
    places = [order.index(atom) for atom in expected]
    tensor = es.Transpose(tensor, perm=places)
    moved = [[atom] for atom in expected]
    if moved == target:
        return tensor
    return _reshaped(tensor, moved, target, sizes, allowzero=allowzero)


def _with_ones(tensor: EsTensor, source: Layout, target: Layout) -> EsTensor:
    """Move the axes of size 1."""
    dropped: list[int] = []
    added: list[int] = []
    before, after = 0, 0
    while before < len(source) or after < len(target):
        if source[before : before + 1] == target[after : after + 1]:
            before, after = before + 1, after + 1
        elif before < len(source) and not source[before]:
            dropped.append(before)
            before += 1
        else:
            added.append(after)
            after += 1
    if dropped:
        tensor = es.Squeeze(tensor, axes=dropped)
    return es.Unsqueeze(tensor, axes=added) if added else tensor


def _neighbours(layout: Layout) -> set[tuple[Atom, Atom]]:
    return {pair for axis in layout for pair in pairwise(axis)}


def _with_pair(axis: Sequence[Atom], first: Atom, second: Atom, whole: Atom) -> list[Atom]:
    return [whole if atom == first else atom for atom in axis if atom != second]


def _reshaped(
    tensor: EsTensor,
    source: Sequence[Sequence[Atom]],
    target: Sequence[Sequence[Atom]],
    sizes: Mapping[Atom, Extent],
    *,
    allowzero: bool,
) -> EsTensor:
    """Reshape to axes whose atoms come in the same order."""
    entries: list[int | EsTensor] = []
    left_over = 0
    for place, axis in enumerate(target):
        size = total(sizes[atom] for atom in axis)
        if isinstance(size, int):
            entries.append(size)
        elif place < len(source) and list(source[place]) == list(axis):
            entries.append(0)
        else:
            entries.append(-1)
            left_over += 1
    if left_over > 1 or (left_over and 0 in entries):
        # -1 fails beside a copied size that is 0
        entries = [
            size_of(tensor, source, target[place], sizes) if entry in (0, -1) else entry
            for place, entry in enumerate(entries)
        ]
    if all(isinstance(entry, int) for entry in entries):
        return es.Reshape(tensor, [entry for entry in entries if isinstance(entry, int)])
    parts = [[entry] if isinstance(entry, int) else entry for entry in entries]
    shape = es.Concat(*parts, axis=0)
    return es.Reshape(tensor, shape, allowzero=1) if allowzero else es.Reshape(tensor, shape)


def is_readable(axis: Sequence[Atom], source: Layout, sizes: Mapping[Atom, Extent]) -> bool:
    """Whether the size of an axis is a number, or follows from those of a tensor."""
    if isinstance(total(sizes[atom] for atom in axis), int):
        return True
    for own in source:
        rest = [sizes[atom] for atom in own if atom not in axis]
        if set(axis) <= set(own) and isinstance(total(rest), int):
            return True
    return len(axis) > 1 and all(is_readable([atom], source, sizes) for atom in axis)


def size_of(
    tensor: EsTensor,
    source: Sequence[Sequence[Atom]],
    axis: Sequence[Atom],
    sizes: Mapping[Atom, Extent],
) -> EsTensor:
    """Return the size of an axis as a vector, from those of the tensor's axes."""
    for place, own in enumerate(source):
        if list(own) == list(axis):
            return es.Slice(es.Shape(tensor), starts=[place], ends=[place + 1], axes=[0])
    for place, own in enumerate(source):
        if set(axis) <= set(own):
            rest = exact_int(total(sizes[atom] for atom in own if atom not in axis))
            if rest is not None:
                whole = es.Slice(es.Shape(tensor), starts=[place], ends=[place + 1], axes=[0])
                return es.Div(whole, [rest])
    product: EsTensor | None = None
    for atom in axis:
        size = exact_int(sizes[atom])
        if size is None and len(axis) == 1:
            raise Refused("layout", "a size of it cannot be read from the tensor")
        part: EsTensor | list[int] = (
            [size] if size is not None else size_of(tensor, source, [atom], sizes)
        )
        product = es.Mul(part, product) if product is not None else _vector(tensor, part)
    assert product is not None
    return product


def _vector(tensor: EsTensor, part: EsTensor | list[int]) -> EsTensor:
    if isinstance(part, EsTensor):
        return part
    return tensor.graph.add_node(("Identity",), [part], {})[0]
