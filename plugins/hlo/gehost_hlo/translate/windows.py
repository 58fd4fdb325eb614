"""reduce-window and select-and-scatter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from gehost import Refused
from gehost_hlo.attributes import DimensionWindow, window
from gehost_hlo.context import Context, Translator
from gehost_hlo.emit import Tensor, Value, leaves
from gehost_hlo.literals import is_float
from gehost_hlo.module import HloComputation, HloInstruction
from gehost_hlo.translate.elementwise import results, tensors
from gehost_hlo.translate.reduction import combine, is_neutral, neutral, opcode_of, reducer

_Row = tuple[int, int, int]
PLACES = 1024
"""Places of a window that select-and-scatter is written out for, at most."""


def _reduce_window(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Choose CumSum, MaxPool, or shifted slices.

    It is CumSum where the window is a whole axis and MaxPool where that fits; else slices of
    the padded operand are combined axis by axis.
    """
    count = len(args) // 2
    operands_ = tensors(args, 2 * count)
    operands, initials = operands_[:count], operands_[count:]
    rows = window(i)
    if (
        not count
        or len(rows) != operands[0].rank
        or any(item.dims != operands[0].dims for item in operands)
        or any(item.dims != () for item in initials)
    ):
        raise Refused("invalid", "its window or initial values do not fit its operands")
    computation = reducer(c, i)
    opcode = opcode_of(computation)
    least = neutral(opcode, operands[0].type) if count == 1 else None
    if isinstance(computation, str):
        raise Refused(
            "unsupported", f"a window of {computation} is not translated without its computation"
        )
    if least is None:
        parts = _masked(c, computation, operands, initials, rows)
    else:
        x, least_tensor = operands[0], c.number(least, operands[0].type)
        single = _cumulative_sum(c, opcode, x, rows) or _max_pool(c, opcode, x, rows)
        parts = (
            [single]
            if single is not None
            else _windows(c, _plain(c, computation), [x], [least_tensor], rows)
        )
        if not is_neutral(opcode, initials[0]):
            parts = combine(
                c, computation, [c.broadcast(initials[0], parts[0].dims, [])], parts, parts[0].dims
            )
    return results(i, parts)


_Merge = Callable[[list[Tensor], list[Tensor]], list[Tensor]]
"""Combines two lists of operands of one shape."""


def _plain(c: Context, computation: HloComputation) -> _Merge:
    return lambda left, right: combine(c, computation, left, right, left[0].dims)


def _masked(
    c: Context,
    computation: HloComputation,
    operands: list[Tensor],
    initials: list[Tensor],
    rows: Sequence[DimensionWindow],
) -> list[Tensor]:
    """Combine only the elements of a window inside the operand.

    Each window starts with its initial value.

    The last operand marks these elements: of a body whose neutral element is not known,
    padding cannot be made.
    """

    def merge(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        *a, has_a = left
        *b, has_b = right
        both = combine(c, computation, a, b, has_a.dims)
        chosen = [
            c.where(has_a, c.where(has_b, new, x), y) for new, x, y in zip(both, a, b, strict=True)
        ]
        return [*map(c.expanded, chosen), c.expanded(c.apply("Or", [has_a, has_b]))]

    inside = c.expanded(c.number(value=True, kind="pred", dims=operands[0].dims))
    fillers = [*initials, c.number(value=False, kind="pred")]
    *parts, some = _windows(c, merge, [*operands, inside], fillers, rows)
    first = [
        c.broadcast(initial, part.dims, []) for initial, part in zip(initials, parts, strict=True)
    ]
    after = combine(c, computation, first, parts, some.dims)
    return [
        c.expanded(c.where(some, new, initial)) for new, initial in zip(after, first, strict=True)
    ]


def _windows(
    c: Context,
    merge: _Merge,
    operands: Sequence[Tensor],
    fillers: Sequence[Tensor],
    rows: Sequence[DimensionWindow],
) -> list[Tensor]:
    widths = [(row.low, row.high, row.base_dilation - 1) for row in rows]
    parts = [
        c.pad(operand, filler, widths) for operand, filler in zip(operands, fillers, strict=True)
    ]
    for axis, row in enumerate(rows):
        parts = _along(c, merge, parts, axis, row)
    return parts


def _trivial(row: DimensionWindow) -> bool:
    return row == DimensionWindow(1)


def _cumulative_sum(
    c: Context, opcode: str, x: Tensor, rows: Sequence[DimensionWindow]
) -> Tensor | None:
    axes = [axis for axis, row in enumerate(rows) if not _trivial(row)]
    if opcode != "add" or len(axes) != 1 or x.type == "pred":
        return None
    (axis,) = axes
    size, row = x.dims[axis], rows[axis]
    forward = row == DimensionWindow(size, low=size - 1)
    if not forward and row != DimensionWindow(size, high=size - 1):
        return None
    return c.move("CumSum", x, [c.body.scalar(axis, "s64")], x.dims, reverse=None if forward else 1)


def _max_pool(c: Context, opcode: str, x: Tensor, rows: Sequence[DimensionWindow]) -> Tensor | None:
    """MaxPool over at most three of the last axes.

    Floats have no padding or dilation, since it drops nan elsewhere too.

    ONNX Runtime's MaxPool ignores nan, so that a second one over isnan puts it back.
    """
    axes = [axis for axis, row in enumerate(rows) if not _trivial(row)]
    plain = all(
        row.base_dilation == 1 and not row.reversed and row.low >= 0 and row.high >= 0
        for row in rows
    )
    fits = all(row.low < row.size and row.high < row.size for row in rows if not _trivial(row))
    if (
        opcode != "maximum"
        or not 1 <= len(axes) <= 3
        or not plain
        or not fits
        or not is_float(x.type)
        or 0 in x.dims
    ):
        return None
    others = [axis for axis in range(x.rank) if axis not in axes]
    permutation = [*others, *axes]
    out = [row.outputs(size) for row, size in zip(rows, x.dims, strict=True)]
    if 0 in out:
        return None
    lead = math.prod(x.dims[axis] for axis in others)
    source = c.reshape(c.transpose(x, permutation), [1, lead, *(x.dims[axis] for axis in axes)])
    attributes = {
        "kernel_shape": [rows[axis].size for axis in axes],
        "strides": [rows[axis].stride for axis in axes],
        "dilations": [rows[axis].dilation for axis in axes],
        "pads": [rows[axis].low for axis in axes] + [rows[axis].high for axis in axes],
    }
    dims = [1, lead, *(out[axis] for axis in axes)]
    pooled = c.move("MaxPool", source, [], dims, **attributes)
    odd = c.apply("IsNaN", [source if source.type != "bf16" else c.cast(source, "f32")], "pred")
    any_odd = c.cast(c.move("MaxPool", c.cast(odd, "u8"), [], dims, **attributes), "pred")
    result = c.where(any_odd, c.number(math.nan, x.type), pooled)
    back = c.reshape(result, [*(out[axis] for axis in others), *(out[axis] for axis in axes)])
    return c.transpose(back, [permutation.index(axis) for axis in range(x.rank)])


def _along(
    c: Context, merge: _Merge, parts: list[Tensor], axis: int, row: DimensionWindow
) -> list[Tensor]:
    """Combine the elements of a window along one axis.

    The operands are padded.
    """
    length = parts[0].dims[axis]
    places = row._replace(low=0, high=0, base_dilation=1).outputs(length)
    if places == 0:
        return [_cut(c, part, axis, (0, 0, 1)) for part in parts]
    span = (places - 1) * row.stride + 1
    if row.size > 4:
        every = _doubling(c, merge, parts, axis, row, span)
        return [_cut(c, part, axis, (0, span, row.stride)) for part in every]
    result: list[Tensor] = []
    for k in range(row.size):
        step = [
            _cut(c, part, axis, (k * row.dilation, k * row.dilation + span, row.stride))
            for part in parts
        ]
        result = merge(result, step) if result else step
    return result


def _doubling(
    c: Context, merge: _Merge, parts: list[Tensor], axis: int, row: DimensionWindow, places: int
) -> list[Tensor]:
    """Combine windows of 1, 2, 4, … elements.

    The binary digits of the size choose some.
    """
    result: list[Tensor] = []
    offset, span = 0, 1
    while span <= row.size:
        if row.size & span:
            chosen = [_cut(c, part, axis, (offset, offset + places, 1)) for part in parts]
            result = merge(result, chosen) if result else chosen
            offset += span * row.dilation
        if 2 * span <= row.size:
            length, shift = parts[0].dims[axis], span * row.dilation
            left = [_cut(c, part, axis, (0, length - shift, 1)) for part in parts]
            right = [_cut(c, part, axis, (shift, length, 1)) for part in parts]
            parts = merge(left, right)
        span *= 2
    return result


def _cut(c: Context, tensor: Tensor, axis: int, row: _Row) -> Tensor:
    return c.slice(
        tensor, [row if k == axis else (0, size, 1) for k, size in enumerate(tensor.dims)]
    )


def _select_and_scatter(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Choose one element in each window, and add its source.

    Works on one place of the window at a time.

    ``select`` compares the element chosen so far with the next one; true keeps it.
    """
    x, source, initial = tensors(args, 3)
    rows = window(i)
    if not len(rows) == x.rank == source.rank or any(
        row.base_dilation > 1 or row.dilation > 1 for row in rows
    ):
        raise Refused("invalid", "its window does not fit its operand")
    select, scatter = (
        c.find(i.attributes.get("select", "")),
        c.find(i.attributes.get("scatter", "")),
    )
    count = math.prod(row.size for row in rows)
    if not 0 < count <= PLACES:
        raise Refused("unsupported", f"a window of {count} places is not written out")
    places = list(itertools.product(*(range(row.size) for row in rows)))
    if opcode_of(scatter) != "add":
        raise Refused("unsupported", "its scatter computation is not an addition")
    inside = c.pad(
        c.number(value=True, kind="pred", dims=x.dims),
        c.number(value=False, kind="pred"),
        [(row.low, row.high, 0) for row in rows],
    )
    padded = c.pad(x, c.number(0, x.type), [(row.low, row.high, 0) for row in rows])
    if any(
        row.outputs(size) != out for row, size, out in zip(rows, x.dims, source.dims, strict=True)
    ):
        raise Refused("invalid", "its source does not have one element for each window")

    def at(tensor: Tensor, place: Sequence[int]) -> Tensor:
        cut = [
            (k, k + max(0, (out - 1) * row.stride + 1), row.stride)
            for k, row, out in zip(place, rows, source.dims, strict=True)
        ]
        return c.slice(tensor, cut)

    best, has_best = at(padded, places[0]), at(inside, places[0])
    chosen = c.number(0, "s32", source.dims)
    for number, place in enumerate(places[1:], 1):
        here, valid = at(padded, place), at(inside, place)
        (keep,) = leaves(c.call(c, select, [best, here], c.body.instruction, source.dims)) or [x]
        if keep.type != "pred":
            raise Refused("invalid", f"its computation {select.name} does not make a pred[]")
        take = c.apply("And", [valid, c.apply("Not", [c.apply("And", [has_best, keep])])])
        best = c.where(take, here, best)
        chosen = c.where(take, c.number(number, "s32", source.dims), chosen)
        has_best = c.apply("Or", [has_best, valid])
    total = c.broadcast(initial, padded.dims, [])
    for number, place in enumerate(places):
        mine = c.apply("Equal", [chosen, c.number(number, "s32", source.dims)], "pred")
        part = c.where(mine, source, c.number(0, source.type))
        spread = [
            (k, size - k - ((out - 1) * row.stride + 1), row.stride - 1)
            for k, row, size, out in zip(place, rows, padded.dims, source.dims, strict=True)
        ]
        total = c.apply("Add", [total, c.pad(c.expanded(part), c.number(0, source.type), spread)])
    return c.slice(
        total, [(row.low, row.low + size, 1) for row, size in zip(rows, x.dims, strict=True)]
    )


TABLE: dict[str, Translator] = {
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
}
