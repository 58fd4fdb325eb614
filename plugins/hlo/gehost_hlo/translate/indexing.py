"""gather, scatter, dynamic-slice and dynamic-update-slice: each element's index into the flat
operand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from gehost import Refused
from gehost_hlo.attributes import dimensions, integer
from gehost_hlo.context import Context, Translator
from gehost_hlo.emit import Nested, Tensor, Value, leaves
from gehost_hlo.literals import NUMPY, is_float, is_integer, is_unsigned
from gehost_hlo.module import HloComputation, HloInstruction
from gehost_hlo.translate.control import finish
from gehost_hlo.translate.elementwise import negate, results, tensors
from gehost_hlo.translate.reduction import expression


class _Numbers(NamedTuple):
    """Dimension numbers of a gather or scatter.

    They are seen from the array of windows (gather's result, scatter's updates).

    Attributes:
        window: dimensions of that array that lie within a window.
        dropped: dimensions of the operand that have size 1 in a window and are left out.
        batching: (dimension of the operand, of the indices) that go together.
        starts: dimension of the operand for each component of an index.
        vector: dimension of the indices that holds the components.
        sizes: of a window, in each dimension of the operand.
    """

    window: tuple[int, ...]
    dropped: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    vector: int
    sizes: tuple[int, ...]


def _strides(dims: Sequence[int]) -> list[int]:
    return [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]


def _line(c: Context, size: int, dims: Sequence[int], axis: int, stride: int = 1) -> Tensor:
    """Return 0, stride, 2·stride, … along one axis.

    The array has ``dims``.
    """
    return c.broadcast(c.line(size, "s64", stride), dims, [axis])


def _index(
    c: Context, operand: Tensor, indices: Tensor, result: tuple[int, ...], n: _Numbers
) -> tuple[Tensor, list[Tensor]]:
    """Return the batching offset and the starts as given.

    The offset is that of the batching dimensions in the flat operand, as s64.

    All have the shape of ``result``. Gather clamps the starts, scatter drops windows that do not
    fit.
    """
    if not is_integer(indices.type):
        raise Refused("invalid", f"its indices are {indices.type}, expected integers")
    _check(n, operand, indices, result)
    outer = [axis for axis in range(len(result)) if axis not in n.window]
    if n.vector == indices.rank:
        indices = c.reshape(indices, [*indices.dims, 1])
    batch_axes = [axis for axis in range(indices.rank) if axis != n.vector]
    if len(batch_axes) != len(outer) or [indices.dims[axis] for axis in batch_axes] != [
        result[axis] for axis in outer
    ]:
        raise Refused("invalid", "its indices do not fit its dimension numbers")
    if len(n.starts) != indices.dims[n.vector]:
        raise Refused(
            "invalid", "its indices have another number of components than its dimension numbers"
        )
    place = dict(zip(batch_axes, outer, strict=True))
    starts: list[Tensor] = []
    for component in range(len(n.starts)):
        cut = [
            (component, component + 1, 1) if axis == n.vector else (0, size, 1)
            for axis, size in enumerate(indices.dims)
        ]
        one = c.reshape(c.slice(indices, cut), [indices.dims[axis] for axis in batch_axes])
        starts.append(c.broadcast(one, result, outer))
    strides = _strides(operand.dims)
    base = c.number(0, "s64", result)
    for own, theirs in n.batching:
        base = c.apply(
            "Add", [base, _line(c, operand.dims[own], result, place[theirs], strides[own])]
        )
    return base, starts


def _check(n: _Numbers, operand: Tensor, indices: Tensor, result: tuple[int, ...]) -> None:
    """Refuse wrong dimension numbers.

    They are none of their array, or come twice.
    """
    own = [*n.dropped, *(axis for axis, _ in n.batching)]
    theirs = [axis for _, axis in n.batching]
    is_plain = (
        _axes(n.window, len(result))
        and _axes(own, operand.rank)
        and _axes(n.starts, operand.rank)
        and _axes(theirs, indices.rank)
        and n.vector not in theirs
        and 0 <= n.vector <= indices.rank
    )
    if not is_plain:
        raise Refused("invalid", "its dimension numbers do not fit its operands")


def _axes(axes: Sequence[int], rank: int) -> bool:
    return len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes)


def _pairs(i: HloInstruction, first: str, second: str) -> tuple[tuple[int, int], ...]:
    left, right = dimensions(i, first), dimensions(i, second)
    if len(left) != len(right):
        raise Refused("invalid", f"{first} and {second} have different lengths")
    return tuple(zip(left, right, strict=True))


def _within(
    c: Context, operand: Tensor, result: tuple[int, ...], n: _Numbers
) -> list[tuple[int, Tensor]]:
    """Return the place of each window dimension of ``result``.

    A place is (dimension of the operand, offset in the window).
    """
    batching = {own for own, _ in n.batching}
    axes = [axis for axis in range(operand.rank) if axis not in n.dropped and axis not in batching]
    if len(axes) != len(n.window):
        raise Refused("invalid", "its dimension numbers do not fit its operand")
    return [
        (axis, _line(c, result[place], result, place))
        for axis, place in zip(axes, n.window, strict=True)
    ]


def _gather(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    operand, indices = tensors(args, 2)
    result = c.dims(i)
    sizes = dimensions(i, "slice_sizes")
    n = _Numbers(
        dimensions(i, "offset_dims"),
        dimensions(i, "collapsed_slice_dims"),
        _pairs(i, "operand_batching_dims", "start_indices_batching_dims"),
        dimensions(i, "start_index_map"),
        integer(i, "index_vector_dim"),
        sizes,
    )
    if len(sizes) != operand.rank or any(
        size > whole for size, whole in zip(sizes, operand.dims, strict=True)
    ):
        raise Refused("invalid", f"its slice_sizes do not fit {list(operand.dims)}")
    rows = _rows(c, operand, indices, n, result)
    if rows is not None:
        return rows
    base, starts = _index(c, operand, indices, result, n)
    within = _within(c, operand, result, n)
    if any(result[place] != sizes[axis] for (axis, _), place in zip(within, n.window, strict=True)):
        raise Refused("invalid", "its slice_sizes are not those of its result")
    strides = _strides(operand.dims)
    for axis, start in zip(n.starts, starts, strict=True):
        clamped = _clamped(c, start, operand.dims[axis] - sizes[axis])
        base = c.apply(
            "Add", [base, c.apply("Mul", [clamped, c.number(strides[axis], "s64", result)])]
        )
    for axis, offset in within:
        base = c.apply(
            "Add", [base, c.apply("Mul", [offset, c.number(strides[axis], "s64", result)])]
        )
    flat = c.reshape(operand, [operand.size])
    return c.move("Gather", flat, [c.body.full(base)], result)


def _rows(
    c: Context, operand: Tensor, indices: Tensor, n: _Numbers, result: tuple[int, ...]
) -> Tensor | None:
    """A plain Gather along one axis; None where it is not one."""
    if len(n.starts) != 1 or n.batching or n.dropped != n.starts:
        return None
    (axis,) = n.starts
    if not 0 <= axis < operand.rank or not 0 <= n.vector <= indices.rank:
        return None
    whole = all(
        size == (1 if k == axis else full)
        for k, (size, full) in enumerate(zip(n.sizes, operand.dims, strict=True))
    )
    if n.vector < indices.rank and indices.dims[n.vector] != 1:
        return None
    plain = (
        indices
        if n.vector == indices.rank
        else c.reshape(indices, [s for k, s in enumerate(indices.dims) if k != n.vector])
    )
    window = tuple(k for k in range(len(result)) if not axis <= k < axis + plain.rank)
    if not whole or n.window != window or not is_integer(indices.type):
        return None
    clamped = _clamped(c, plain, operand.dims[axis] - 1)
    dims = [*operand.dims[:axis], *plain.dims, *operand.dims[axis + 1 :]]
    return c.move("Gather", operand, [c.body.full(clamped)], dims, axis=axis)


def _clamped(c: Context, start: Tensor, limit: int) -> Tensor:
    """Bring a start into 0 … limit and convert it to s64.

    It is compared in its own type.
    """
    kind = start.type
    if start.number is not None:
        return c.number(min(max(int(start.number), 0), limit), "s64", start.dims)
    if not is_unsigned(kind):
        start = c.apply("Max", [start, c.number(0, kind)])
    if limit < ml_dtypes.iinfo(NUMPY[kind]).max:
        start = c.apply("Min", [start, c.number(limit, kind)])
    return c.cast(start, "s64")


def _scatter(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """ScatterElements on the flat operand.

    It has one spare element at the end, where updates outside the operand go.
    """
    count = len(args) // 2
    all_args = tensors(args, 2 * count + 1)
    operands, indices, sources = all_args[:count], all_args[count], all_args[count + 1 :]
    if not count or any(
        source.dims != sources[0].dims or operand.dims != operands[0].dims
        for operand, source in zip(operands, sources, strict=True)
    ):
        raise Refused("invalid", "its operands or its updates have different shapes")
    operand, updates = operands[0], sources[0]
    n = _Numbers(
        dimensions(i, "update_window_dims"),
        dimensions(i, "inserted_window_dims"),
        _pairs(i, "input_batching_dims", "scatter_indices_batching_dims"),
        dimensions(i, "scatter_dims_to_operand_dims"),
        integer(i, "index_vector_dim"),
        (),
    )
    if updates.type != operand.type:
        raise Refused("invalid", f"its updates are {updates.type}, its operand is {operand.type}")
    opcode, reduction = _reduction(c, i) if count == 1 else ("", "")
    if opcode == "subtract":
        updates = negate(c, updates)
    result = updates.dims
    base, starts = _index(c, operand, indices, result, n)
    strides = _strides(operand.dims)
    inside = c.number(value=True, kind="pred", dims=result)
    within = _within(c, operand, result, n)
    sizes = {axis: result[place] for (axis, _), place in zip(within, n.window, strict=True)}
    for axis, start in zip(
        n.starts, starts, strict=True
    ):  # a window that does not fit is dropped as a whole
        limit = operand.dims[axis] - sizes.get(axis, 1)
        inside = c.apply("And", [inside, _fits(c, start, limit)])
        wide = c.apply("Mul", [c.cast(start, "s64"), c.number(strides[axis], "s64", result)])
        base = c.apply("Add", [base, wide])
    for axis, offset in within:
        base = c.apply(
            "Add", [base, c.apply("Mul", [offset, c.number(strides[axis], "s64", result)])]
        )
    place = c.where(inside, base, c.number(operand.size, "s64", result))
    if not reduction:
        return results(i, _scatter_by(c, i, operands, place, sources, n.window))
    put = scatter_flat(c, operand, place, updates, reduction)
    if reduction in {"max", "min"} and is_float(operand.type):  # ONNX Runtime's reductions drop nan
        odd, odd_updates = (_isnan(c, operand_) for operand_ in (operand, updates))
        any_odd = c.cast(scatter_flat(c, odd, place, odd_updates, "max"), "pred")
        put = c.where(any_odd, c.number(math.nan, operand.type), put)
    return put


def _scatter_by(
    c: Context,
    i: HloInstruction,
    operands: list[Tensor],
    place: Tensor,
    updates: list[Tensor],
    window: Sequence[int],
) -> list[Tensor]:
    """Combine by any computation: one window after the other in a Loop.

    All at once where the text says that no two windows meet.
    """
    computation = c.find(i.attributes.get("to_apply", ""))
    outer = [axis for axis in range(place.rank) if axis not in window]
    order = [*outer, *window]
    steps = math.prod(place.dims[axis] for axis in outer)
    width = math.prod(place.dims[axis] for axis in window)
    if i.attributes.get("unique_indices") == "true":
        steps, width = 1, steps * width
    rows = [c.reshape(c.transpose(item, order), [steps, width]) for item in (place, *updates)]
    flats = [
        c.concat([c.reshape(operand, [operand.size]), c.array(np.zeros(1), operand.type)], 0)
        for operand in operands
    ]
    if not steps * width:
        return operands
    if steps == 1:
        rows = [c.reshape(row, [width]) for row in rows]
        flats = _combined(c, computation, flats, rows[0], rows[1:])
    else:
        flats = _combined_in_loop(c, computation, flats, rows)
    return [
        c.reshape(c.slice(flat, [(0, operand.size, 1)]), operand.dims)
        for flat, operand in zip(flats, operands, strict=True)
    ]


def _combined(
    c: Context,
    computation: HloComputation,
    flats: list[Tensor],
    place: Tensor,
    updates: list[Tensor],
) -> list[Tensor]:
    """Put the old elements at ``place``, combined with the updates, into flat operands."""
    where = c.body.full(place)
    old = [c.move("Gather", flat, [where], place.dims) for flat in flats]
    new = leaves(c.call(c, computation, [*old, *updates], c.body.instruction, place.dims))
    if [item.type for item in new] != [flat.type for flat in flats]:
        raise Refused("invalid", f"its computation {computation.name} makes other types")
    return [
        c.move("ScatterElements", flat, [where, _carried(c, item)], flat.dims, axis=0)
        for flat, item in zip(flats, new, strict=True)
    ]


def _carried(c: Context, x: Tensor) -> str:
    return c.body.full(c.cast(x, c.carrier("ScatterElements", x.type)))


def _combined_in_loop(
    c: Context, computation: HloComputation, flats: list[Tensor], rows: list[Tensor]
) -> list[Tensor]:
    steps, width = rows[0].dims
    name = c.body.instruction
    initial = [c.body.full(flat) for flat in flats]
    sources = [c.expanded(row) for row in rows]  # outside of the body, which reads them
    inner = c.nested(f"{name}/step")
    number = inner.body.names.choose(f"{name}/number", "")
    going = inner.body.names.choose(f"{name}/going", "")
    carried = [
        Tensor(inner.body.names.choose(f"{name}/flat.{k}", ""), flat.type, flat.dims, flat.dims)
        for k, flat in enumerate(flats)
    ]
    inputs = [Tensor(number, "s64", (), ()), Tensor(going, "pred", (), ()), *carried]
    place, *updates = (inner.move("Gather", source, [number], [width]) for source in sources)
    after = _combined(inner, computation, carried, place, updates)
    again = inner.body.tensor("Identity", [going], "pred", [])
    body = Nested(f"{name}/step", inner.body, inputs, finish(inner, [again, *after], inputs))
    count = c.body.scalar(steps, "s64")
    names = c.body.op("Loop", [count, "", *initial], outputs=len(flats), body=body)
    return [
        Tensor(result, flat.type, flat.dims, flat.dims)
        for result, flat in zip(names, flats, strict=True)
    ]


def _isnan(c: Context, x: Tensor) -> Tensor:
    wide = x if x.type in {"f32", "f64"} else c.cast(x, "f32")
    return c.cast(c.apply("IsNaN", [wide], "pred"), "u8")


def _fits(c: Context, start: Tensor, limit: int) -> Tensor:
    """Whether a start lies in 0 … limit."""
    kind = start.type
    if limit < 0:
        return c.number(value=False, kind="pred", dims=start.dims)
    low = c.number(value=True, kind="pred", dims=start.dims)
    if not is_unsigned(kind):
        low = c.apply("GreaterOrEqual", [start, c.number(0, kind)], "pred")
    if limit >= ml_dtypes.iinfo(NUMPY[kind]).max:
        return low
    return c.apply("And", [low, c.apply("LessOrEqual", [start, c.number(limit, kind)], "pred")])


def scatter_flat(
    c: Context, operand: Tensor, place: Tensor, updates: Tensor, reduction: str
) -> Tensor:
    """Put ``updates`` at flat indices; the index ``operand.size`` is dropped."""
    kind = operand.type
    run = c.carrier("ScatterElements reduced" if reduction != "none" else "ScatterElements", kind)
    spare = c.array(np.zeros(1), run)
    flat = c.concat([c.reshape(c.cast(operand, run), [operand.size]), spare], 0)
    count = math.prod(updates.dims)
    where = c.body.full(c.reshape(place, [count]))
    what = c.body.full(c.reshape(c.cast(updates, run), [count]))
    attribute = None if reduction == "none" else reduction
    dims = [operand.size + 1]
    put = c.body.tensor(
        "ScatterElements", [c.body.full(flat), where, what], run, dims, axis=0, reduction=attribute
    )
    return c.reshape(c.cast(c.slice(put, [(0, operand.size, 1)]), kind), operand.dims)


def _reduction(c: Context, i: HloInstruction) -> tuple[str, str]:
    """Return the opcode of the update, and ONNX's name of it.

    Its computation gets the old and the new element. A difference is a sum with negated updates.
    """
    computation = c.find(i.attributes.get("to_apply", ""))
    opcode = _opcode(computation, c.find)
    names = {"add": "add", "subtract": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}
    if opcode in names:
        kind = i.shape.type if i.shape is not None else ""
        return ("", "") if kind == "pred" else (opcode, names[opcode])
    parameters = computation.parameters
    if len(parameters) == 2 and computation.root.name == parameters[1].name:
        return "", "none"
    return "", ""


def _opcode(computation: HloComputation, find: Callable[[str], HloComputation]) -> str:
    """Return the one opcode of a computation; "" of others.

    XLA's passes make 16-bit floats wider and round each result to 16 bits.
    """
    text = expression(computation, find)
    rounded = re.fullmatch(r"convert\(convert\((\w+\(p0,p1\))\)\)", text)
    if rounded is not None:
        narrow = [
            instruction.shape.type
            for instruction in computation.instructions
            if instruction.opcode == "convert"
            and instruction.shape is not None
            and instruction is not computation.root
        ]
        text = rounded[1] if narrow in (["bf16"], ["f16"]) else text
    if text == "subtract(p0,p1)":
        return "subtract"
    match = re.fullmatch(r"(add|multiply|maximum|minimum)\((?:p0,p1|p1,p0)\)", text)
    return "" if match is None else match[1]


def _dynamic_slice(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    x, *starts = tensors(args, max(1, len(args)))
    sizes = dimensions(i, "dynamic_slice_sizes")
    if len(sizes) != x.rank or any(size > whole for size, whole in zip(sizes, x.dims, strict=True)):
        raise Refused("invalid", f"its dynamic_slice_sizes do not fit {list(x.dims)}")
    positions = _starts(c, starts, x.dims, sizes)
    axes = [axis for axis, position in enumerate(positions) if position is not None]
    if not axes:
        return x
    vector = [c.reshape(position, [1]) for position in positions if position is not None]
    first = c.body.full(c.concat(vector, 0))
    (last,) = c.body.op("Add", [first, c.body.ints(sizes[axis] for axis in axes)])
    return c.move("Slice", x, [first, last, c.body.ints(axes)], sizes)


def _starts(
    c: Context, starts: list[Tensor], dims: Sequence[int], sizes: Sequence[int]
) -> list[Tensor | None]:
    """Return each start clamped, as a scalar of s64.

    Returns None where the whole dimension is taken.
    """
    if len(starts) == 1 and starts[0].rank == 1:  # one vector, as text before 2019 has it
        starts = [c.reshape(c.slice(starts[0], [(k, k + 1, 1)]), []) for k in range(len(dims))]
    if len(starts) != len(dims) or any(
        start.dims != () or not is_integer(start.type) for start in starts
    ):
        raise Refused(
            "invalid",
            f"it has {len(starts)} starts for {len(dims)} dimensions, or one is no scalar integer",
        )
    return [
        None if size == whole else _clamped(c, start, whole - size)
        for start, whole, size in zip(starts, dims, sizes, strict=True)
    ]


def _dynamic_update_slice(c: Context, _i: HloInstruction, args: list[Value]) -> Value:
    """Concatenate before, update and behind, along one axis.

    Along several axes it is a scatter.
    """
    x, update, *starts = tensors(args, max(2, len(args)))
    if (
        update.rank != x.rank
        or update.type != x.type
        or any(a > b for a, b in zip(update.dims, x.dims, strict=True))
    ):
        raise Refused(
            "invalid",
            f"an update of {update.type}{list(update.dims)} does not fit {x.type}{list(x.dims)}",
        )
    positions = _starts(c, starts, x.dims, update.dims)
    axes = [axis for axis, position in enumerate(positions) if position is not None]
    if not axes:
        return update
    if len(axes) == 1:
        return _spliced(c, x, update, axes[0], positions[axes[0]])
    strides = _strides(x.dims)
    place = c.number(0, "s64", update.dims)
    for axis, position in enumerate(positions):
        line = _line(c, update.dims[axis], update.dims, axis, strides[axis])
        place = c.apply("Add", [place, line])
        if position is not None:
            start = c.apply("Mul", [position, c.number(strides[axis], "s64")])
            place = c.apply("Add", [place, c.broadcast(start, update.dims, [])])
    return scatter_flat(c, x, place, update, "none")


def _spliced(c: Context, x: Tensor, update: Tensor, axis: int, position: Tensor | None) -> Tensor:
    assert position is not None
    kind = x.type
    run = c.carrier("Slice", kind)
    source, axes = c.body.full(c.cast(x, run)), c.body.ints([axis])
    first = c.body.full(c.reshape(position, [1]))
    (last,) = c.body.op("Add", [first, c.body.ints([update.dims[axis]])])
    (before,) = c.body.op("Slice", [source, c.body.ints([0]), first, axes])
    (behind,) = c.body.op("Slice", [source, last, c.body.ints([x.dims[axis]]), axes])
    middle = c.body.full(c.cast(update, run))
    return c.cast(c.body.tensor("Concat", [before, middle, behind], run, x.dims, axis=axis), kind)


TABLE: dict[str, Translator] = {
    "gather": _gather,
    "scatter": _scatter,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
}
