"""Sizes of results: what operators do with the sizes of their operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from gehost.sizes.minima import vanishes_with
from gehost.sizes.size import Algebra, Answer, Dim, Known, Size

if TYPE_CHECKING:
    from gehost.sizes.scope import Scope

END = (1 << 31) - 1
"""From here on, a bound of a slice is the end of the axis; no axis is longer."""


def product(scope: Scope, sizes: Iterable[Dim]) -> Dim:
    """Multiply any number of sizes, 1 for none; None if one is unknown."""
    total: Known = 1
    for size in sizes:
        if size is None:
            return None
        total = scope.mul(total, size)
    return total


def total(scope: Scope, sizes: Iterable[Dim]) -> Dim:
    """Add any number of sizes; None if one is unknown."""
    result: Known = 0
    for size in sizes:
        if size is None:
            return None
        result = scope.add(result, size)
    return result


def is_size(scope: Algebra, dim: Dim) -> bool:
    """Whether an element is proven to be no negative number."""
    if dim is None or isinstance(dim, int):
        return dim is not None and dim >= 0
    return scope.bounds(dim)[0] >= 0 or scope.nonnegative(dim) is Answer.YES


def is_positive(scope: Algebra, dim: Dim) -> bool:
    """Whether an element is proven to be at least 1."""
    if dim is None or isinstance(dim, int):
        return dim is not None and dim >= 1
    return scope.bounds(dim)[0] >= 1 or scope.nonnegative(scope.sub(dim, 1)) is Answer.YES


def size_or_none(scope: Algebra, dim: Dim) -> Dim:
    """Return an element as a size, None if it may be negative: then the node would fail."""
    return dim if is_size(scope, dim) else None


def broadcast(scope: Scope, shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """Return the shape to which some shapes broadcast."""
    columns = zip_longest(*map(reversed, shapes), fillvalue=1)
    return tuple([_broadcast(scope, column) for column in columns][::-1])


def _broadcast(scope: Scope, column: Iterable[Dim]) -> Dim:
    sizes = dict.fromkeys(column)
    if len(sizes) == 2:
        sizes.pop(1, None)
    if len(sizes) == 1:
        (result,) = sizes
        return result
    entries = [size for size in sizes if size is not None]
    if len(entries) == len(sizes):
        return scope.broadcast(*entries)
    result = scope.broadcast(*entries)
    return result if isinstance(result, int) and result != 1 else None


def part(scope: Scope, size: Dim, start: Dim, end: Dim, step: Dim = 1) -> Dim:
    """Return the length of ``x[start:end:step]`` of an axis.

    Where the sign of a bound is not known, equal cuts have one length.
    """
    if size is None or start is None or end is None or not isinstance(step, int) or step == 0:
        return None
    if step < 0:
        return _part_from_end(scope, size, start, end, step)
    bounds = [_clamped(scope, size, bound) for bound in (start, end)]
    if bounds[0] is None and bounds[1] is size and is_size(scope, scope.mul(start, -1)):
        # the last -start, or all from 0 on
        retained = scope.either(scope.min(size, scope.mul(start, -1)), size)
        return scope.ceildiv(retained, step)
    if bounds[0] is None or bounds[1] is None:
        return _cut(scope, size, start, end, step)
    length = scope.ceildiv(scope.sub(bounds[1], bounds[0]), step)
    return scope.max(0, length)


def _clamped(scope: Scope, size: Known, bound: Known) -> Dim:
    """Return a bound as a place on the axis; None if its sign is not known."""
    if isinstance(bound, int) and abs(bound) >= END:
        return size if bound > 0 else 0
    sign = scope.nonnegative(bound)
    if sign is Answer.UNKNOWN:
        return None
    return scope.min(bound, size) if sign is Answer.YES else scope.max(scope.add(bound, size), 0)


def _part_from_end(scope: Scope, size: Known, start: Known, end: Known, step: int) -> Known:
    """Return the length of a reversed part.

    ONNX Runtime clamps a start beyond the axis, the reference does not; neither is computed.
    """
    if start == -1 and isinstance(end, int) and end <= -END:
        return scope.ceildiv(size, -step)
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        open_end = end <= -END
        if -size <= start < size and (open_end or -size <= end <= size):
            return len(range(size)[start : None if open_end else end : step])
    return _cut(scope, size, start, end, step)


def windows(scope: Scope, size: Known, room: int, step: int, *, truncates: bool) -> Known:
    """Return the number of windows in an axis.

    Args:
        scope: of the sizes.
        size: of the axis.
        room: the padding less the extent of a window; 0 and less if the window is wider than it.
        step: from window to window.
        truncates: in an axis that is shorter than a window, a runtime rounds toward zero. Such a
            length is no formula: equal windows have one length.
    """
    rest = scope.add(size, room)
    if truncates and step > 1 and not is_size(scope, rest):
        return scope.keyed(("windows", size, room, step))
    return scope.max(0, scope.add(scope.floordiv(rest, step), 1))


def _cut(scope: Scope, size: Known, start: Known, end: Known, step: int) -> Size:
    return scope.keyed(("Slice", size, start, end, step), most=scope.bounds(size)[1])


def counted(scope: Scope, start: Dim, limit: Dim, delta: Dim) -> Dim:
    """Return the number of elements of a ``Range``; None if the sign of a step is not known."""
    if start is None or limit is None or delta is None:
        return None
    if not is_positive(scope, delta) and not is_positive(scope, scope.mul(delta, -1)):
        return None
    return scope.max(0, scope.ceildiv(scope.sub(limit, start), delta))


def reshaped(
    scope: Scope, target: Sequence[Dim], source: Sequence[Dim] | None, *, allow_zero: bool
) -> tuple[Dim, ...]:
    """Return the result of ``Reshape`` to a target, for every run in which it does not fail."""
    key = tuple(target), None if source is None else tuple(source), allow_zero
    dims = scope.reshapes.get(key)
    if dims is None:
        dims = scope.reshapes[key] = _reshaped(scope, target, source, allow_zero=allow_zero)
    return dims


def _reshaped(
    scope: Scope, target: Sequence[Dim], source: Sequence[Dim] | None, *, allow_zero: bool
) -> tuple[Dim, ...]:
    dims = list(target)
    if not allow_zero:
        dims = [_or_copied(scope, place, entry, source) for place, entry in enumerate(target)]
        dims = _without_copies(scope, dims, target, source)
    if dims.count(-1) == 1:
        place = dims.index(-1)
        rest = [*dims[:place], *dims[place + 1 :]]
        dims[place] = _left_over(scope, source, rest, allow_zero=allow_zero)
    elif source is not None:
        whole, parts = product(scope, source), product(scope, dims)
        if whole is not None and parts is not None:
            scope.learn(whole, parts)
    return tuple([size_or_none(scope, dim) for dim in dims])


def _or_copied(scope: Scope, place: int, entry: Dim, source: Sequence[Dim] | None) -> Dim:
    """Return the size for an entry: the copied one if it is 0."""
    if entry is None or entry == -1 or is_positive(scope, entry):
        return entry
    if source is None:
        return None
    if place >= len(source):  # there is none to copy: a 0 fails
        return entry or None
    copied = source[place]
    return None if copied is None else scope.either(entry, copied)


def _without_copies(
    scope: Scope, dims: list[Dim], target: Sequence[Dim], source: Sequence[Dim] | None
) -> list[Dim]:
    """Use the entry, not the copied size, if it cannot be 0.

    If it were 0, the tensor would be empty; but the result, whose other sizes are not 0, would not
    be empty, so the node would fail.
    """
    doubtful = [
        place
        for place, (dim, entry) in enumerate(zip(dims, target, strict=True))
        if entry not in (dim, 0)
    ]
    if len(doubtful) != 1 or source is None:
        return dims
    (place,) = doubtful
    entry = target[place]
    others = [*dims[:place], *dims[place + 1 :]]
    if (
        entry is not None
        and all(is_positive(scope, size) or size == -1 for size in others if size != -1)
        and -1 not in others
        and any(size is not None and vanishes_with(scope, size, entry) for size in source)
    ):
        return [*dims[:place], entry, *dims[place + 1 :]]
    return dims


def _left_over(
    scope: Scope, source: Sequence[Dim] | None, rest: Sequence[Dim], *, allow_zero: bool
) -> Dim:
    """Return the size of -1: the elements that the others leave.

    The divisor is not 0 if the node does not fail.

    With allowzero the other dimensions may have a 0: ONNX Runtime then leaves the zeros out of both
    products, so that ``[0, 0]`` by ``[-1, 0]`` is ``[1, 0]``.
    """
    if source is None or None in rest:
        return None
    remaining = list(source)
    over: list[Dim] = []
    for dim in rest:  # sizes that stay cancel out, even if unknown
        if isinstance(dim, Size) and dim in remaining:
            remaining.remove(dim)
        else:
            over.append(dim)
    whole, divisor = product(scope, remaining), product(scope, over)
    if whole is None or divisor is None or divisor == 0:
        return None
    if isinstance(whole, int) and isinstance(divisor, int) and whole % divisor:
        return None
    size = scope.floordiv(whole, divisor)
    if not allow_zero or all(is_positive(scope, dim) for dim in rest):
        return size
    if not is_positive(scope, divisor):
        return None
    if is_positive(scope, whole):
        return size
    return scope.either(size, scope.keyed(("Reshape", *source, "by", *rest)))
