"""Operators that move elements: transposition, inserted and dropped axes, parts, concatenation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gehost import Refused
from gehost_linalg.affine import Const, Dim, Expr, binary
from gehost_linalg.generic import Arg, Opaque, Size, Value, is_known
from gehost_linalg.interpret import Part
from gehost_linalg.lower.nodes import Lowering, OnnxOp, Scalars
from gehost_linalg.reshape import COLLAPSE, EXPAND

_COPY = Scalars().payload(Arg(0))


def _moved(
    op: OnnxOp,
    shape: Sequence[Size],
    read: Sequence[Expr],
    maybe_broadcast: frozenset[int] = frozenset(),
) -> None:
    """One Generic that copies, with a loop for each axis of the result."""
    x, out = op.input(0), op.single_output()
    op.assign_type(out, shape, x.dtype)
    identity: list[Expr] = [Dim(loop) for loop in range(len(shape))]
    op.generic(
        [(x, read)],
        out,
        identity,
        len(shape),
        _COPY,
        maybe_broadcast={0: maybe_broadcast} if maybe_broadcast else None,
    )


def _transpose(op: OnnxOp) -> None:
    shape = op.shape()
    perm = op.axes(
        [int(axis) for axis in op.attributes.get("perm", range(len(shape))[::-1])], len(shape)
    )
    if len(perm) != len(shape):
        raise Refused("not-lowered", f"Transpose of rank {len(shape)} by {perm}")
    read: list[Expr] = [Dim(perm.index(axis)) for axis in range(len(shape))]
    _moved(op, [shape[axis] for axis in perm], read)


def _unsqueeze(op: OnnxOp) -> None:
    shape, argument = op.shape(), op.parameter(1, "axes") or []
    rank = len(shape) + len(argument)
    inserted = set(op.axes(argument, rank))
    retained = [axis for axis in range(rank) if axis not in inserted]
    sizes: list[Size] = [1] * rank
    for axis, size in zip(retained, shape, strict=True):
        sizes[axis] = size
    _moved(op, sizes, [Dim(axis) for axis in retained])


def _squeeze(op: OnnxOp) -> None:
    shape, argument = op.shape(), op.parameter(1, "axes")
    if argument is None:
        raise Refused("not-lowered", "Squeeze of every axis of size 1, where sizes are unknown")
    dropped = set(op.axes(argument, len(shape)))
    if not all(shape[axis] == 1 or _is_one_place(op, shape[axis]) for axis in dropped):
        raise Refused("not-lowered", f"Squeeze of axes {sorted(dropped)} of {list(shape)}")
    retained = [axis for axis in range(len(shape)) if axis not in dropped]
    read: list[Expr] = [
        Const(0) if axis in dropped else Dim(retained.index(axis)) for axis in range(len(shape))
    ]
    _moved(op, [shape[axis] for axis in retained], read)


def _is_one_place(op: OnnxOp, size: Size) -> bool:
    """Whether it is the size of a slice ``[n:n + 1]``, of which a kernel checks the place."""
    part = op.names.rules.get(size) if isinstance(size, str) else None
    return isinstance(part, Part) and part.start >= 0 and part.end == part.start + 1


def _expand(op: OnnxOp) -> None:
    """To constant sizes; an axis of unknown size may be 1."""
    shape = op.shape()
    if 1 not in op.constants:
        raise Refused("not-lowered", "Expand to a shape that is computed")
    arguments = [int(size) for size in op.constants[1].reshape(-1)]
    rank = max(len(arguments), len(shape))
    expected = [1] * (rank - len(arguments)) + arguments
    own: list[Size] = [1] * (rank - len(shape)) + list(shape)
    target: list[Size] = [
        mine if size == 1 else _named(size) for size, mine in zip(expected, own, strict=True)
    ]
    read: list[Expr] = []
    maybe_broadcast: set[int] = set()
    for axis, size in enumerate(shape):
        loop = rank - len(shape) + axis
        read.append(Const(0) if size == 1 and target[loop] != 1 else Dim(loop))
        if size not in {1, target[loop]}:
            maybe_broadcast.add(axis)
    _moved(op, target, read, frozenset(maybe_broadcast))


def _ranges(op: OnnxOp) -> dict[int, tuple[int, int, int]]:
    """Start, end and step of a Slice by axis.

    ``Refused`` if they are computed or go backwards.
    """
    shape = op.shape()
    starts, ends = op.parameter(1, "starts"), op.parameter(2, "ends")
    if starts is None or ends is None:
        raise Refused("not-lowered", "Slice without starts and ends")
    axes = op.parameter(3, "axes")
    steps = op.parameter(4, "steps") or [1] * len(starts)
    argument = op.axes(axes if axes is not None else list(range(len(starts))), len(shape))
    if not len(starts) == len(ends) == len(steps) == len(argument):
        raise Refused("not-lowered", "Slice with lists of several lengths")
    return {axis: (starts[at], ends[at], steps[at]) for at, axis in enumerate(argument)}


def _slice(op: OnnxOp) -> None:
    """``d * step + start``, or ``tensor.extract_slice`` where it begins at 0.

    There a bare loop would mean the whole axis.
    """
    shape, out = op.shape(), op.single_output()
    sizes: list[Size] = list(shape)
    read: list[Expr] = [Dim(axis) for axis in range(len(shape))]
    begins: list[int] = [0] * len(shape)
    strided = prefix = False
    for axis, (start, end, step) in _ranges(op).items():
        size = shape[axis]
        if step < 1:
            raise Refused("not-lowered", f"Slice with step {step}")
        whole = end >= 2**31 - 1 and (not is_known(size) or end >= int(size or 0))
        if start == 0 and step == 1 and whole:
            continue
        if start < 0:
            raise Refused("not-lowered", "Slice that begins at a place counted from the end")
        first = start
        sizes[axis] = _length(op, size, start, end, step)
        if sizes[axis] == 0:
            raise Refused("not-lowered", "Slice that is empty")
        if (first, step) == (0, 1) and size == sizes[axis] is not None:
            continue
        begins[axis] = first
        strided |= step > 1
        prefix |= first == 0 and step == 1
        read[axis] = binary("+", binary("*", Dim(axis), Const(step)), Const(first))
    if not prefix:
        _moved(op, sizes, read)
        return
    if strided:
        raise Refused("not-lowered", "Slice of a first part and with steps")
    _part(op, out, begins, sizes)


def _length(op: OnnxOp, size: Size, start: int, end: int, step: int) -> Size:
    """How many elements a slice has, as a number or a name."""
    if not is_known(size):
        return op.names.part(size, start, end, step)
    first, last, _ = slice(start, end, step).indices(int(size or 0))
    length = max(0, -(-(last - first) // step))
    return 0 if length == 0 else _named(length)


def _part(op: OnnxOp, out: Value, begins: Sequence[int], sizes: Sequence[Size]) -> None:
    x = op.input(0)
    op.assign_type(out, sizes, x.dtype)
    attribute = ",".join(map(str, begins))
    op.made.append(Opaque("tensor.extract_slice", (x,), (out,), attribute, op.label, (op.origin,)))


def _gather(op: OnnxOp) -> None:
    """One place of an axis, which disappears.

    Where the size is unknown, the kernel checks the place when it runs.
    """
    shape, at = op.shape(), op.constants.get(1)
    if at is None or at.ndim != 0:
        raise Refused("not-lowered", "Gather, but for one constant index")
    axis, place = op.axes([int(op.attributes.get("axis", 0))], len(shape))[0], int(at)
    size = shape[axis]
    if place < 0 or (is_known(size) and place >= int(size or 0)):
        raise Refused("not-lowered", f"Gather of {place} from an axis of {size}")
    if axis == len(shape) - 1:
        raise Refused("strided", "Gather along the last axis")
    read: list[Expr] = [Dim(item - (item > axis)) for item in range(len(shape))]
    read[axis] = Const(place)
    _moved(op, [*shape[:axis], *shape[axis + 1 :]], read)


def _named(size: int) -> Size:
    return size if size == 1 else str(size)


def _split(op: OnnxOp) -> None:
    """Parts along one axis, of known sizes."""
    shape, outs = op.shape(), op.outputs
    axis = op.axes([int(op.attributes.get("axis", 0))], len(shape))[0]
    argument = op.parameter(1, "split")
    if argument is None:
        raise Refused("not-lowered", "Split without sizes")
    if len(argument) != len(outs) or min(argument, default=0) < 1:
        raise Refused("not-lowered", f"Split into {argument}")
    begin = 0
    for out, part in zip(outs, argument, strict=True):
        if out is not None:
            begins = [begin if at == axis else 0 for at in range(len(shape))]
            _part(
                op,
                out,
                begins,
                [_named(part) if at == axis else item for at, item in enumerate(shape)],
            )
        begin += part


def _concat(op: OnnxOp) -> None:
    values = [op.input(index) for index in range(len(op.inputs))]
    out, shapes = op.single_output(), [value.shape or () for value in values]
    if any(len(shape) != len(shapes[0]) for shape in shapes) or "axis" not in op.attributes:
        raise Refused("not-lowered", "Concat of several ranks")
    axis = op.axes([int(op.attributes["axis"])], len(shapes[0]))[0]
    parts = [shape[axis] for shape in shapes]
    sizes: list[Size] = [
        next((shape[at] for shape in shapes if is_known(shape[at])), shapes[0][at])
        for at in range(len(shapes[0]))
    ]
    sizes[axis] = (
        _named(sum(int(part or 0) for part in parts)) if all(map(is_known, parts)) else None
    )
    op.assign_type(out, sizes, values[0].dtype)
    op.made.append(Opaque("tensor.concat", tuple(values), (out,), axis, op.label, (op.origin,)))


def _split_last_axis(op: OnnxOp) -> None:
    """A Reshape to ``[0, …, n, c, …]``, which copies all sizes but the last and splits that.

    The target alone shows it. Element ``i, j`` of the parts ``n, c`` is at ``i * c + j``; n may be
    -1.
    """
    shape, target = op.shape(), op.parameter(1, "shape") or []
    retained = len(shape) - 1
    parts = target[retained:]
    is_split = len(parts) > 1 and min(parts[1:]) > 0 and (parts[0] > 0 or parts[0] == -1)
    if (
        retained < 0
        or not is_split
        or any(target[:retained])
        or (retained and op.attributes.get("allowzero"))
    ):
        raise Refused("not-lowered", "Reshape, but for a last axis that is split by constants")
    inner = math.prod(parts[1:])
    if is_known(shape[-1]):
        number, rest = divmod(int(shape[-1] or 0), inner)
        if rest or not number or parts[0] not in {-1, number}:
            raise Refused("not-lowered", f"Reshape of {list(shape)} to {target}")
        first = _named(number)
    else:
        name = op.names.split(shape[-1], inner, parts[0] if parts[0] > 0 else None)
        first = _named(parts[0]) if parts[0] > 0 else name
    index: Expr = Dim(retained)
    for place, size in enumerate(parts[1:], 1):
        index = binary("+", binary("*", index, Const(size)), Dim(retained + place))
    _moved(
        op,
        [*shape[:-1], first, *map(_named, parts[1:])],
        [*[Dim(axis) for axis in range(retained)], index],
    )


def reshape(op: OnnxOp) -> None:
    """One axis that is split, or neighbours that are merged, as one operation.

    Sizes are compared from both ends.
    """
    before, (x, out) = op.shape(), (op.input(0), op.single_output())
    after = out.shape
    if after is None or None in after:
        raise Refused("reshape", "the sizes of the result are unknown")
    front = back = 0
    most = min(len(before), len(after)) - 1
    while front < most and before[front] == after[front]:
        front += 1
    while back < most - front and before[-1 - back] == after[-1 - back]:
        back += 1
    inner = len(before) - front - back, len(after) - front - back
    if min(inner) != 1 or max(inner) < 2:
        raise Refused(
            "reshape", f"{list(before)} to {list(after)} neither splits one axis nor merges"
        )
    groups = [[axis] for axis in range(front)]
    groups.append(list(range(front, front + max(inner))))
    groups += [[front + max(inner) + axis] for axis in range(back)]
    op.assign_type(out, after, x.dtype)
    name = EXPAND if inner[0] == 1 else COLLAPSE
    op.made.append(Opaque(name, (x,), (out,), str(groups), op.label, (op.origin,)))


LOWERINGS: Mapping[str, Lowering] = {
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Expand": _expand,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Gather": _gather,
    "Reshape": _split_last_axis,
}
