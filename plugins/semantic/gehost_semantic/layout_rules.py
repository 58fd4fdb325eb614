"""What layout operators do to views: each rule returns a result's view.

None is a base of its own, as the result of any other operator is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from gehost import DataType, Node, Value
from gehost_semantic.extents import Extent, Extents, total
from gehost_semantic.reader import Reader
from gehost_semantic.view import Term, View, coalesced, cut, regroup

_END = (1 << 31) - 1
"""From here on, an end is the end of the axis; no axis is longer."""


def _same(views: Reader, node: Node, _: Value) -> View | None:
    return views.of(node.input(0))


def _dropout(views: Reader, node: Node, value: Value) -> View | None:
    """Its first result in inference mode; before opset 7 that is the attribute ``is_test``."""
    mode = node.input(2)
    if mode is None:
        drops = (node.graph.model.opset() or 0) < 7 and not node.attrs.get("is_test", 0)
    else:
        drops = views.numbers.fill(mode, views) != 0
    return None if drops or value.index else views.of(node.input(0))


CASTS = ("Cast", "CastLike")


def _cast(views: Reader, node: Node, value: Value) -> View | None:
    source = views.of(node.input(0))
    argument = node.inputs[0]
    before = None if argument is None else argument.dtype
    after = value.dtype or DataType(node.attrs.get("to", 0))
    if source is None or before is None:
        return None
    keeps_value = before == after or (
        after.is_float and (before.is_float or before is DataType.BOOL)
    )
    widens = before is DataType.BOOL or (before, after) == (DataType.INT32, DataType.INT64)
    if not (keeps_value or (widens and after is not DataType.STRING)):
        return None
    return source if before == after else replace(source, casts=(*source.casts, before, after))


def _transpose(views: Reader, node: Node, _: Value) -> View | None:
    source = views.of(node.input(0))
    if source is None:
        return None
    order = node.attrs.get("perm") or range(len(source.dims))[::-1]
    return replace(source, dims=tuple(source.dims[axis] for axis in order))


def _unsqueeze(views: Reader, node: Node, _: Value) -> View | None:
    source, axes = views.of(node.input(0)), views.axes(node)
    if source is None or axes is None:
        return None
    rank = len(source.dims) + len(axes)
    new, old = {axis % rank for axis in axes}, iter(source.dims)
    return replace(source, dims=tuple(() if axis in new else next(old) for axis in range(rank)))


def _squeeze(views: Reader, node: Node, value: Value) -> View | None:
    source, axes = views.of(node.input(0)), views.axes(node)
    if source is None:
        return None
    rank = value.rank
    if axes is None:
        dims = tuple(dim for dim in source.dims if dim)
        return replace(source, dims=dims) if rank == len(dims) else None
    dropped = {axis % len(source.dims) for axis in axes}
    if any(source.dims[axis] for axis in dropped):
        return None
    dims = tuple(dim for axis, dim in enumerate(source.dims) if axis not in dropped)
    return replace(source, dims=dims)


def _flatten(views: Reader, node: Node, _: Value) -> View | None:
    source = views.of(node.input(0))
    if source is None:
        return None
    axis: int = node.attrs.get("axis", 1)
    axis += len(source.dims) if axis < 0 else 0
    parts = source.dims[:axis], source.dims[axis:]
    dims = tuple(coalesced(term for dim in part for term in dim) for part in parts)
    return replace(source, dims=dims)


def _reshape(views: Reader, node: Node, value: Value) -> View | None:
    source = views.of(node.input(0))
    if source is None:
        return None
    shape = source.shape
    target = views.elements(node.input(1))
    if target is None:
        inferred = views.extents.of_shape(value)
        if inferred is None:
            return None
        target = [size if isinstance(size, int) else None for size in inferred]
        return regroup(views.extents, source, target)
    copies = not node.attrs.get("allowzero", 0)
    sizes: list[Extent | None] = []
    for place, size in enumerate(target):
        if size == 0 and copies:
            if place >= len(shape):
                return None
            sizes.append(shape[place])
        else:
            sizes.append(None if size == -1 else size)
    return regroup(views.extents, source, sizes)


def _expand(views: Reader, node: Node, _: Value) -> View | None:
    source, target = views.of(node.input(0)), views.elements(node.input(1))
    if source is None or target is None:
        return None
    rank = max(len(target), len(source.dims))
    dims: list[tuple[Term, ...]] = [*[()] * (rank - len(source.dims)), *source.dims]
    target = [1] * (rank - len(target)) + target
    results: list[tuple[Term, ...]] = []
    for dim, size in zip(dims, target, strict=True):
        if not dim:
            if size is None:
                return None
            results.append(coalesced([Term(1 if size == -1 else size, None, 0)]))
            continue
        entry = total(term.size for term in dim)
        if size not in (1, -1) and entry != size and not views.extents.at_least(entry, 2):
            return None
        results.append(dim)
    return replace(source, dims=tuple(results))


def _tile(views: Reader, node: Node, _: Value) -> View | None:
    source, repeats = views.of(node.input(0)), views.elements(node.input(1))
    if source is None or repeats is None or None in repeats:
        return None
    dims = [
        coalesced([Term(count, None, 0), *dim]) if count is not None else dim
        for dim, count in zip(source.dims, repeats, strict=True)
    ]
    return replace(source, dims=tuple(dims))


def bound(extents: Extents, place: Extent | None, size: Extent) -> Extent | None:
    """Return a bound of a slice as a place from 0 to ``size``, None if unknown."""
    if place is None:
        return None
    if isinstance(place, int):
        if place >= _END:
            return size
        if place < -_END:
            return 0
        if place < 0:
            return size + place if extents.at_least(size + place, 0) else None
    if extents.at_least(size, place):
        return place if extents.at_least(place, 0) else None
    return size if extents.at_least(place, size) else None


def _slice(views: Reader, node: Node, _: Value) -> View | None:
    view = views.of(node.input(0))
    if view is None:
        return None
    if "starts" in node.attrs:
        starts, ends = list(node.attrs["starts"]), list(node.attrs["ends"])
        axes = list(node.attrs.get("axes", range(len(starts))))
        steps = [1] * len(starts)
    else:
        read = [views.elements(node.input(slot)) for slot in range(1, 5)]
        starts, ends = read[0], read[1]
        if starts is None or ends is None:
            return None
        axes = list(range(len(starts))) if node.input(3) is None else read[2]
        steps = [1] * len(starts) if node.input(4) is None else read[3]
        if axes is None or steps is None:
            return None
    extents = views.extents
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not isinstance(axis, int) or not isinstance(step, int) or step < 1:
            return None
        axis %= len(view.dims)
        size = view.shape[axis]
        first, last = bound(extents, start, size), bound(extents, end, size)
        if first is None or last is None or not extents.at_least(last, first):
            return None
        if step == 1:
            result = cut(extents, view, axis, first, last - first)
            if result is None:
                return None
            view = result
            continue
        if len(view.dims[axis]) != 1:
            return None
        (term,) = view.dims[axis]
        offsets = list(view.offsets)
        if term.axis is not None:
            offsets[term.axis] = offsets[term.axis] + first * term.stride
        count = extents.scope.floordiv(last - first + step - 1, step)
        part = coalesced([Term(count, term.axis, term.stride * step)])
        dims = (*view.dims[:axis], part, *view.dims[axis + 1 :])
        view = replace(view, dims=dims, offsets=tuple(offsets))
    return view


def _split(views: Reader, node: Node, value: Value) -> View | None:
    source = views.of(node.input(0))
    if source is None:
        return None
    axis: int = node.attrs.get("axis", 0) % len(source.dims)
    size = source.shape[axis]
    sizes: list[Extent | None] | None
    if node.input(1) is not None:
        sizes = views.elements(node.input(1))
    elif "split" in node.attrs:
        sizes = list(node.attrs["split"])
    else:
        part = views.extents.exact(size, len(node.outputs))
        sizes = None
        if part is not None:
            sizes = [*[part] * len(node.outputs)]
    if sizes is None or None in sizes[: value.index + 1]:
        return None
    start: Extent = 0
    for before in sizes[: value.index]:
        start = start + (before or 0)
    own = sizes[value.index]
    return None if own is None else cut(views.extents, source, axis, start, own)


def _gather(views: Reader, node: Node, _: Value) -> View | None:
    view, indices = views.of(node.input(0)), node.input(1)
    if view is None or indices is None or indices.rank is None or indices.rank > 1:
        return None
    axis: int = node.attrs.get("axis", 0) % len(view.dims)
    elements = views.elements(indices)
    size = view.shape[axis]
    if not elements:
        return None
    places: list[int] = []
    for element in elements:
        if not isinstance(element, int) or (element < 0 and not isinstance(size, int)):
            return None
        places.append(element + size if element < 0 and isinstance(size, int) else element)
    first, count = places[0], len(places)
    if indices.rank == 0:
        result = cut(views.extents, view, axis, first, 1)
        return result and replace(result, dims=(*result.dims[:axis], *result.dims[axis + 1 :]))
    if places == list(range(first, first + count)):
        return cut(views.extents, view, axis, first, count)
    times = places.count(first)
    if count % times or places != [first + place // times for place in range(count)]:
        return None
    result = cut(views.extents, view, axis, first, count // times)
    if result is None:
        return None
    repeated = coalesced([*result.dims[axis], Term(times, None, 0)])
    return replace(result, dims=(*result.dims[:axis], repeated, *result.dims[axis + 1 :]))


def _scaled(views: Reader, node: Node, value: Value) -> View | None:
    """Mul or Div by a number: recorded."""
    if value.dtype is not None and not value.dtype.is_float:
        return None
    divides = node.op == "Div"
    for slot in (0,) if divides else (0, 1):
        source = views.of(node.input(slot))
        other = node.input(1 - slot)
        if source is None or other is None:
            continue
        if views.numbers.fill(node.input(slot), views) is not None:
            continue
        number = views.numbers.scalar(other, views)
        if number is None or (other.rank or 0) > len(source.dims) or (divides and number == 0):
            continue
        return replace(source, factor=source.factor / number if divides else source.factor * number)
    return None


def _if(views: Reader, node: Node, value: Value) -> View | None:
    branch = views.branch(node)
    if branch is None:
        return None
    view = views.of(branch.outputs[value.index])
    if view is None or (view.base.graph is branch and view.base.producer is not None):
        return None
    return view


Rule: TypeAlias = "Callable[[Reader, Node, Value], View | None]"

LAYOUTS: Mapping[str, Rule] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Div": _scaled,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _same,
    "If": _if,
    "Mul": _scaled,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
