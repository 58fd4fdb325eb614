"""dot and convolution."""

from __future__ import annotations

import itertools
import math
import string

from gehost import Refused
from gehost_hlo.attributes import DimensionWindow, dim_labels, dimensions, integer, window
from gehost_hlo.context import Context, Translator, array_shape
from gehost_hlo.emit import Tensor, Value
from gehost_hlo.literals import is_float
from gehost_hlo.module import HloInstruction
from gehost_hlo.translate.elementwise import tensors

_WIDTHS = {"f64": 3, "f32": 2, "bf16": 1, "f16": 1}
UNROLLED = 128
"""Places of a kernel that a convolution without a kernel in ONNX Runtime is split into, at most."""


def _dot(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Translate dot: the result has batch dimensions, then free ones.

    The free ones of the left operand come before those of the right.
    """
    a, b = tensors(args, 2)
    kind = array_shape(i.shape).type
    batch_a, batch_b = dimensions(i, "lhs_batch_dims"), dimensions(i, "rhs_batch_dims")
    sum_a, sum_b = dimensions(i, "lhs_contracting_dims"), dimensions(i, "rhs_contracting_dims")
    pairs = [*zip(batch_a, batch_b, strict=False), *zip(sum_a, sum_b, strict=False)]
    sides = [(batch_a, sum_a), (batch_b, sum_b)]
    if (
        len(batch_a) != len(batch_b)
        or len(sum_a) != len(sum_b)
        or any(len({*batch, *sums}) < len(batch) + len(sums) for batch, sums in sides)
        or any(
            not 0 <= p < a.rank or not 0 <= q < b.rank or a.dims[p] != b.dims[q] for p, q in pairs
        )
    ):
        raise Refused("invalid", f"its dimensions do not fit {list(a.dims)} and {list(b.dims)}")
    if any(is_float(operand.type) != is_float(kind) for operand in (a, b)):
        raise Refused("invalid", f"its result is {kind}, its operands are {a.type} and {b.type}")
    run = _type_of_sum(a.type, b.type, kind)
    a, b = c.cast(a, run), c.cast(b, run)
    product = _product(c, a, b, batch_a, batch_b, sum_a, sum_b)
    return c.cast(product, kind)


def _type_of_sum(a: str, b: str, result: str) -> str:
    """Type to multiply and add in: the widest of operands and result."""
    if a == b == result:
        return result
    if not is_float(result):
        return result
    kinds = [kind for kind in (result, a, b) if kind in _WIDTHS]
    return (
        max(kinds, key=lambda kind: _WIDTHS[kind]) if len({*kinds} & {"f16", "bf16"}) < 2 else "f32"
    )


def _product(
    c: Context,
    a: Tensor,
    b: Tensor,
    batch_a: tuple[int, ...],
    batch_b: tuple[int, ...],
    sum_a: tuple[int, ...],
    sum_b: tuple[int, ...],
) -> Tensor:
    free_a = [axis for axis in range(a.rank) if axis not in {*batch_a, *sum_a}]
    free_b = [axis for axis in range(b.rank) if axis not in {*batch_b, *sum_b}]
    dims = [a.dims[axis] for axis in (*batch_a, *free_a)] + [b.dims[axis] for axis in free_b]
    if 0 in {*a.dims, *b.dims}:  # ONNX Runtime's Einsum of no elements ends the process
        return c.number(0, a.type, tuple(dims))
    count = len(batch_a)
    leading = batch_a == batch_b == tuple(range(count))
    if (
        leading
        and len(sum_a) == 1
        and len(free_a) <= 1
        and len(free_b) == 1
        and a.rank - len(free_a) == count + 1
        and (free_a or not count)
    ):
        a = a if sum_a[0] == a.rank - 1 else c.transpose(a, [*batch_a, *free_a, sum_a[0]])
        b = b if sum_b[0] == count else c.transpose(b, [*batch_b, sum_b[0], *free_b])
        return _matmul(c, a, b, dims)
    if not count and len(sum_a) == 1 and sum_a[0] == a.rank - 1 and len(free_b) <= 1:
        b = b if sum_b[0] == 0 else c.transpose(b, [sum_b[0], *free_b])
        return _matmul(c, a, b, dims)
    if leading and len(sum_a) == 1 and len(free_a) == 1 and not free_b:
        a = a if sum_a[0] == a.rank - 1 else c.transpose(a, [*batch_a, *free_a, sum_a[0]])
        column = c.reshape(
            c.transpose(b, [*batch_b, sum_b[0]]),
            [*(b.dims[axis] for axis in batch_b), b.dims[sum_b[0]], 1],
        )
        return c.reshape(_matmul(c, a, column, [*dims, 1]), dims)
    letters = iter(string.ascii_letters)
    left = {axis: next(letters) for axis in range(a.rank)}
    right = {
        q: left[p]
        for p, q in [*zip(batch_a, batch_b, strict=True), *zip(sum_a, sum_b, strict=True)]
    }
    right |= {axis: next(letters) for axis in free_b}
    result = "".join(
        [left[axis] for axis in (*batch_a, *free_a)] + [right[axis] for axis in free_b]
    )
    lhs, rhs = (
        "".join(letters[k] for k in range(rank))
        for letters, rank in ((left, a.rank), (right, b.rank))
    )
    equation = f"{lhs},{rhs}->{result}"
    run = c.carrier("Einsum", a.type)
    names = [c.body.full(c.cast(operand, run)) for operand in (a, b)]
    return c.cast(c.body.tensor("Einsum", names, run, dims, equation=equation), a.type)


def _matmul(c: Context, a: Tensor, b: Tensor, dims: list[int]) -> Tensor:
    run = c.carrier("MatMul", a.type)
    names = [c.body.full(c.cast(operand, run)) for operand in (a, b)]
    return c.cast(c.body.tensor("MatMul", names, run, dims), a.type)


def _convolution(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Transpose to [batch, feature, …], Conv, transpose back.

    Base dilation and padding below 0 are written out; batch groups become feature groups; a
    reversed window reverses the kernel.
    """
    x, w = tensors(args, 2)
    shape = array_shape(i.shape)
    kind = shape.type
    labels = dim_labels(i)
    windows = window(i) or ()
    groups, batch_groups = integer(i, "feature_group_count", 1), integer(i, "batch_group_count", 1)
    sizes = [w.dims[axis] for axis in labels.kernel_spatial if axis < w.rank]
    if (
        x.rank != len(windows) + 2
        or w.rank != x.rank
        or [row.size for row in windows] != sizes
        or min(groups, batch_groups) != 1
    ):
        raise Refused(
            "invalid", f"its window and groups do not fit {list(x.dims)} and {list(w.dims)}"
        )
    run = _type_of_sum(x.type, w.type, kind)
    x = c.transpose(c.cast(x, run), [labels.batch, labels.feature, *labels.spatial])
    w = c.transpose(
        c.cast(w, run), [labels.kernel_output, labels.kernel_input, *labels.kernel_spatial]
    )
    w = c.reverse(w, [axis + 2 for axis, row in enumerate(windows) if row.reversed])
    if batch_groups > 1:
        x = _batch_to_features(c, x, batch_groups)
        groups = batch_groups
    if x.dims[0] and (x.dims[1] != w.dims[1] * groups or w.dims[0] % groups):
        raise Refused(
            "invalid",
            f"{x.dims[1]} features in {groups} groups do not fit a kernel of {list(w.dims)}",
        )
    rows = [(0, 0, 0), (0, 0, 0)]
    for row in windows:
        written_out = row.base_dilation > 1 or row.low < 0 or row.high < 0
        rows.append((row.low, row.high, row.base_dilation - 1) if written_out else (0, 0, 0))
    x = c.pad(x, c.number(0, run), rows)
    pads = [
        (0, 0) if any(widths) else (row.low, row.high)
        for row, widths in zip(windows, rows[2:], strict=True)
    ]
    spatial = [
        row.outputs(size)
        for row, size in zip(
            [
                r._replace(base_dilation=1, low=p[0], high=p[1])
                for r, p in zip(windows, pads, strict=True)
            ],
            x.dims[2:],
            strict=True,
        )
    ]
    result = _conv(c, x, w, windows, pads, groups, [x.dims[0], w.dims[0], *spatial])
    places = {labels.output_batch: 0, labels.output_feature: 1} | {
        axis: k + 2 for k, axis in enumerate(labels.output_spatial)
    }
    return c.cast(c.transpose(result, [places[axis] for axis in range(x.rank)]), kind)


def _batch_to_features(c: Context, x: Tensor, groups: int) -> Tensor:
    """[G·n, f, …] → [n, G·f, …].

    Each part of the batch meets its own part of the kernel.
    """
    batch, features, *spatial = x.dims
    if batch % groups:
        raise Refused("invalid", f"a batch of {batch} does not split into {groups} groups")
    split = c.reshape(x, [groups, batch // groups, features, *spatial])
    moved = c.transpose(split, [1, 0, 2, *range(3, x.rank + 1)])
    return c.reshape(moved, [batch // groups, groups * features, *spatial])


def _conv(
    c: Context,
    x: Tensor,
    w: Tensor,
    windows: tuple[DimensionWindow, ...],
    pads: list[tuple[int, int]],
    groups: int,
    dims: list[int],
) -> Tensor:
    if not windows:  # ONNX's Conv has at least one spatial dimension
        one = (DimensionWindow(1),)
        return c.reshape(
            _conv(
                c,
                c.reshape(x, [*x.dims, 1]),
                c.reshape(w, [*w.dims, 1]),
                one,
                [(0, 0)],
                groups,
                [*dims, 1],
            ),
            dims,
        )
    kind = x.type
    run = c.carrier("Conv", kind) if is_float(kind) and kind != "f64" else ""
    if not run:
        return _unrolled(c, x, w, windows, pads, groups, dims)
    names = [c.body.full(c.cast(operand, run)) for operand in (x, w)]
    result = c.body.tensor(
        "Conv",
        names,
        run,
        dims,
        kernel_shape=list(w.dims[2:]),
        strides=[row.stride for row in windows],
        dilations=[row.dilation for row in windows],
        pads=[low for low, _ in pads] + [high for _, high in pads],
        group=groups,
    )
    return c.cast(result, kind)


def _unrolled(
    c: Context,
    x: Tensor,
    w: Tensor,
    windows: tuple[DimensionWindow, ...],
    pads: list[tuple[int, int]],
    groups: int,
    dims: list[int],
) -> Tensor:
    """Add the products at each place of the kernel.

    It serves types that ONNX Runtime has no Conv for.
    """
    count = math.prod(row.size for row in windows)
    if count > UNROLLED:
        raise Refused(
            "unsupported",
            f"ONNX Runtime has no Conv for {x.type}, and a kernel of {count} places is too large "
            "to unroll",
        )
    x = c.pad(
        x, c.number(0, x.type), [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in pads)]
    )
    features, outputs = w.dims[1], w.dims[0] // groups
    total: Tensor | None = None
    for place in itertools.product(*(range(row.size) for row in windows)):
        rows = [(0, x.dims[0], 1), (0, x.dims[1], 1)]
        for k, row, size in zip(place, windows, dims[2:], strict=True):
            rows.append(
                (
                    k * row.dilation,
                    k * row.dilation + max(0, (size - 1) * row.stride + 1),
                    row.stride,
                )
            )
        part = c.reshape(c.slice(x, rows), [x.dims[0], groups, features, *dims[2:]])
        one = c.slice(w, [(0, w.dims[0], 1), (0, w.dims[1], 1), *((k, k + 1, 1) for k in place)])
        kernel = c.reshape(one, [groups, outputs, features])
        rank = part.rank
        product = _product(c, kernel, part, (0,), (1,), (2,), (2,))  # [groups, outputs, batch, …]
        moved = c.transpose(product, [2, 0, 1, *range(3, rank)])
        total = moved if total is None else c.apply("Add", [total, moved])
    if total is None:
        raise Refused("invalid", "its window is empty")
    return c.reshape(total, dims)


TABLE: dict[str, Translator] = {"dot": _dot, "convolution": _convolution}
