"""The rows that an operation walks along, and which operations share them."""

from __future__ import annotations

from typing import NamedTuple

from gehost_linalg.affine import Const, Dim
from gehost_linalg.fusability import Refusal
from gehost_linalg.generic import PARALLEL, Op, Opaque, Size, is_known


class Rows(NamedTuple):
    """The domain of an operation: sizes of outer loops, and the row.

    A row of 1 is one number per row.
    """

    outer: tuple[Size, ...]
    row: Size


def rows_of(op: Op) -> Rows | Refusal:
    """The outer loops and the row of an operation, or a refusal."""
    if isinstance(op, Opaque):
        if op.name not in {"tensor.extract_slice", "tensor.concat"}:
            return Refusal("not-lowered", op.name)
        shape = op.results[0].shape
        if not shape:
            return Refusal("domain", "a scalar")
        offsets = (
            [int(part) for part in str(op.attribute).split(",")]
            if op.name == "tensor.extract_slice"
            else []
        )
        if any(offsets[:-1]) or (op.name == "tensor.concat" and op.attribute != len(shape) - 1):
            return Refusal("strided", f"{op.name} along another axis than the last")
        return Rows(shape[:-1], shape[-1])
    sizes = op.extents()
    reduced = [loop for loop, kind in enumerate(op.iterators) if kind != PARALLEL]
    if reduced and reduced != [op.loops - 1]:
        return Refusal("strided", f"it reduces along d{reduced[0]}, which is not the row")
    if not sizes:
        return Rows((), 1)
    return Rows(tuple(sizes[:-1]), sizes[-1])


def joined(first: Rows, second: Rows, *, parts: bool) -> Rows | Refusal:
    """The domain of two groups together, or a refusal.

    ``parts`` allows rows of two sizes, where one is a part of the other.
    """
    if len(first.outer) != len(second.outer):
        short, long = sorted((first, second), key=lambda item: len(item.outer))
        if (*short.outer, short.row) == long.outer:  # numbers per row, without the axis of the row
            return long
        return Refusal("domain", f"{_shown(first)} against {_shown(second)}")
    outer: list[Size] = []
    for a, b in zip(first.outer, second.outer, strict=True):
        if a != b and is_known(a) and is_known(b):
            return Refusal("domain", f"{_shown(first)} against {_shown(second)}")
        outer.append(a if is_known(a) else b)
    if first.row == 1 or second.row == 1:
        return Rows(tuple(outer), second.row if first.row == 1 else first.row)
    if first.row != second.row and not parts and is_known(first.row) and is_known(second.row):
        return Refusal("domain", f"{_shown(first)} against {_shown(second)}")
    return Rows(tuple(outer), first.row if is_known(first.row) else second.row)


def _shown(rows: Rows) -> str:
    sizes = (*rows.outer, rows.row)
    shown = ["?" if size is None or str(size).startswith("?") else str(size) for size in sizes]
    return f"[{', '.join(shown)}]"


def reads_rows(consumer: Op, index: int) -> Refusal | None:
    """Refuse an operand that is not read row by row.

    Its last axis is along the row, with stride 0 or 1, and the others are in order.
    """
    if isinstance(consumer, Opaque):
        return None
    map_, loops = consumer.maps[index], consumer.loops
    results = map_.results
    for axis, result in enumerate(results):
        if isinstance(result, Const):
            continue
        if not isinstance(result, Dim):
            return Refusal("strided", f"{consumer.operands[index].name} is read by {map_.body()}")
        last = axis == len(results) - 1
        if result.index == loops - 1 and not last:
            return Refusal("strided", f"{consumer.operands[index].name} is read by {map_.body()}")
    bare = [result.index for result in results if isinstance(result, Dim)]
    if bare != sorted(bare):
        return Refusal("strided", f"{consumer.operands[index].name} is read by {map_.body()}")
    return None


def is_boundary(op: Op) -> bool:
    """An operation that no group may contain."""
    return isinstance(op, Opaque) and op.name not in {"tensor.extract_slice", "tensor.concat"}
