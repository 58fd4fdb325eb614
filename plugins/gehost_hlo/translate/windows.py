"""reduce-window and select-and-scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gehost_hlo.attributes import DimensionWindow, window
from gehost_hlo.context import Context, Translator
from gehost_hlo.emit import Refusal, Tensor, Value, leaves
from gehost_hlo.literals import is_float
from gehost_hlo.module import HloComputation, HloInstruction
from gehost_hlo.translate.elementwise import checked, tensors
from gehost_hlo.translate.reduction import combine, is_neutral, opcode_of, reducer

_Row = tuple[int, int, int]
PLACES = 1024
"""Places of a window that select-and-scatter is written out for, at most."""


def _reduce_window(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """CumSum where the window is a whole axis, MaxPool where it is one, else pad, and combine shifted slices axis by axis."""
    count = len(args) // 2
    found = tensors(args, 2 * count)
    operands, initials = found[:count], found[count:]
    rows = window(i)
    if not count or len(rows) != operands[0].rank or any(each.dims != operands[0].dims for each in operands):
        raise Refusal("its window does not fit its operands")
    computation = reducer(c, i)
    opcode = opcode_of(computation)
    single = None
    if count == 1 and is_neutral(opcode, initials[0]):
        single = _cumulative_sum(c, opcode, operands[0], rows) or _max_pool(c, opcode, operands[0], rows)
    if single is not None:
        return checked(c, i, single)
    if isinstance(computation, str):
        raise Refusal(f"a window of {computation} is not translated without its computation")
    parts = [
        c.pad(operand, initial, [(row.low, row.high, row.base_dilation - 1) for row in rows])
        for operand, initial in zip(operands, initials, strict=True)
    ]
    for axis, row in enumerate(rows):
        parts = _along(c, computation, parts, axis, row)
    if not (count == 1 and is_neutral(opcode, initials[0])):
        first = [c.broadcast(initial, part.dims, []) for initial, part in zip(initials, parts, strict=True)]
        if any(row.low or row.high or row.base_dilation > 1 for row in rows) and not _absorbs(computation):
            raise Refusal("its initial value is not neutral, and the window is padded with it")
        parts = combine(c, computation, first, parts, parts[0].dims)
    if i.shape is not None and i.shape.is_tuple:
        if [(leaf.type, leaf.dimensions) for leaf in i.shape.leaves()] != [(part.type, part.dims) for part in parts]:
            raise Refusal(f"its operands do not make {i.shape}")
        return tuple(parts)
    return checked(c, i, parts[0])


def _absorbs(computation: HloComputation) -> bool:
    """Whether one number may enter a reduction several times: then padding may overlap."""
    opcodes = {instruction.opcode for instruction in computation.instructions}
    return opcodes <= {"parameter", "maximum", "minimum", "and", "or", "compare", "select", "tuple"}


def _trivial(row: DimensionWindow) -> bool:
    return row == DimensionWindow(1)


def _cumulative_sum(c: Context, opcode: str, x: Tensor, rows: Sequence[DimensionWindow]) -> Tensor | None:
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
    """MaxPool over at most three of the last axes; of floats without padding or dilation, since it drops nan elsewhere too.

    ONNX Runtime's MaxPool ignores nan, so that a second one over isnan puts it back.
    """
    axes = [axis for axis, row in enumerate(rows) if not _trivial(row)]
    plain = all(row.base_dilation == 1 and not row.reversed and row.low >= 0 and row.high >= 0 for row in rows)
    fits = all(row.low < row.size and row.high < row.size for row in rows if not _trivial(row))
    if opcode != "maximum" or not 1 <= len(axes) <= 3 or not plain or not fits or not is_float(x.type) or 0 in x.dims:
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


def _along(c: Context, computation: HloComputation, parts: list[Tensor], axis: int, row: DimensionWindow) -> list[Tensor]:
    """Combine the elements of a window along one axis; the operands are padded."""
    length = parts[0].dims[axis]
    places = row._replace(low=0, high=0, base_dilation=1).outputs(length)
    if row.size <= 4 or row.stride > 1 or places == 0:
        steps = [(k * row.dilation, k * row.dilation + max(0, (places - 1) * row.stride + 1), row.stride) for k in range(row.size)]
        if places == 0:
            steps = [(0, 0, 1)]
        result = [_cut(c, part, axis, steps[0]) for part in parts]
        for step in steps[1:]:
            nexts = [_cut(c, part, axis, step) for part in parts]
            result = combine(c, computation, result, nexts, result[0].dims)
        return result
    return _doubling(c, computation, parts, axis, row, places)


def _doubling(
    c: Context, computation: HloComputation, parts: list[Tensor], axis: int, row: DimensionWindow, places: int
) -> list[Tensor]:
    """Windows of 1, 2, 4, … elements, of which the binary digits of the size choose some."""
    result: list[Tensor] = []
    offset, span = 0, 1
    while span <= row.size:
        if row.size & span:
            chosen = [_cut(c, part, axis, (offset, offset + places, 1)) for part in parts]
            result = combine(c, computation, result, chosen, chosen[0].dims) if result else chosen
            offset += span * row.dilation
        if 2 * span <= row.size:
            length, shift = parts[0].dims[axis], span * row.dilation
            left = [_cut(c, part, axis, (0, length - shift, 1)) for part in parts]
            right = [_cut(c, part, axis, (shift, length, 1)) for part in parts]
            parts = combine(c, computation, left, right, left[0].dims)
        span *= 2
    return result


def _cut(c: Context, tensor: Tensor, axis: int, row: _Row) -> Tensor:
    return c.slice(tensor, [row if k == axis else (0, size, 1) for k, size in enumerate(tensor.dims)])


def _select_and_scatter(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Choose one element in each window, and add the window's source to it: one place of the window at a time.

    ``select`` compares the element chosen so far with the next one; true keeps it.
    """
    x, source, initial = tensors(args, 3)
    rows = window(i)
    if len(rows) != x.rank or any(row.base_dilation > 1 or row.dilation > 1 for row in rows):
        raise Refusal("its window does not fit its operand")
    select, scatter = c.find(i.attributes.get("select", "")), c.find(i.attributes.get("scatter", ""))
    places: list[tuple[int, ...]] = [()]
    for row in rows:
        places = [(*place, k) for place in places for k in range(row.size)]
    if len(places) > PLACES:
        raise Refusal(f"a window of {len(places)} places is too large to write out")
    if opcode_of(scatter) != "add":
        raise Refusal("its scatter computation is not an addition")
    inside = c.pad(c.number(True, "pred", x.dims), c.number(False, "pred"), [(row.low, row.high, 0) for row in rows])
    padded = c.pad(x, c.number(0, x.type), [(row.low, row.high, 0) for row in rows])
    if any(row.outputs(size) != out for row, size, out in zip(rows, x.dims, source.dims, strict=True)):
        raise Refusal("its source does not have one element for each window")

    def at(tensor: Tensor, place: Sequence[int]) -> Tensor:
        cut = [
            (k, k + max(0, (out - 1) * row.stride + 1), row.stride) for k, row, out in zip(place, rows, source.dims, strict=True)
        ]
        return c.slice(tensor, cut)

    best, known = at(padded, places[0]), at(inside, places[0])
    chosen = c.number(0, "s32", source.dims)
    for number, place in enumerate(places[1:], 1):
        here, valid = at(padded, place), at(inside, place)
        (keep,) = leaves(c.call(c, select, [best, here], c.body.instruction, source.dims))
        take = c.apply("And", [valid, c.apply("Not", [c.apply("And", [known, keep])])])
        best = c.where(take, here, best)
        chosen = c.where(take, c.number(number, "s32", source.dims), chosen)
        known = c.apply("Or", [known, valid])
    total = c.broadcast(initial, padded.dims, [])
    for number, place in enumerate(places):
        mine = c.apply("Equal", [chosen, c.number(number, "s32", source.dims)], "pred")
        part = c.where(mine, source, c.number(0, source.type))
        spread = [
            (k, size - k - ((out - 1) * row.stride + 1), row.stride - 1)
            for k, row, size, out in zip(place, rows, padded.dims, source.dims, strict=True)
        ]
        total = c.apply("Add", [total, c.pad(c.expanded(part), c.number(0, source.type), spread)])
    return checked(c, i, c.slice(total, [(row.low, row.low + size, 1) for row, size in zip(rows, x.dims, strict=True)]))


TABLE: dict[str, Translator] = {"reduce-window": _reduce_window, "select-and-scatter": _select_and_scatter}
