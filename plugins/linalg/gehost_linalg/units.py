"""Loops and axes of size 1 go, as in MLIR's ``linalg-fold-unit-extent-dims``."""

from __future__ import annotations

from dataclasses import replace

from gehost_linalg.affine import Const, Dim, Expr, substitute
from gehost_linalg.block import Block
from gehost_linalg.companions import Change
from gehost_linalg.generic import Arg, Generic, Op, Opaque, Ref, Size, Value
from gehost_linalg.reshape import (
    COLLAPSE,
    EXPAND,
    Axes,
    KeepsLoops,
    Moved,
    folded_reshape,
    undone,
)

UNITS = "fold-unit-dims"
"""The name of this companion, which follows all fusions; off by default."""


def drop_units(block: Block) -> None:
    """Drop loops of size 1, and the reshapes that cancel each other afterwards."""
    for op in block.ops:
        if not isinstance(op, Generic):
            continue
        read = read_as_ins(op)
        moved = without_units(read)
        if moved is not None:
            parts = (*moved.before, read_as_ins(moved.generic), *moved.after)
            block.replace(op, parts, {})
        elif read is not op:
            block.replace(op, (read,), {})
    while sum([_fold_reshape(block, op) for op in block.ops]):
        pass


def _fold_reshape(block: Block, op: Op) -> bool:
    """Fold a reshape with its operand, or remove it where nothing reads it."""
    if not isinstance(op, Opaque) or op.name not in {EXPAND, COLLAPSE} or op not in block.place:
        return False
    if all(map(block.is_dead, op.results)):
        block.remove(op)
        return True
    operand = block.operand(op, 0)
    source = undone(op, operand)
    folded = folded_reshape(op, operand) if source is None else None
    if source is not None:
        folded = Change((), {op.results[0]: source})
    if folded is not None:
        block.replace(op, folded.ops, folded.replaced)
    return folded is not None


class _Units(Axes):
    """The loops without those of size 1, and operands without the axes that only they walk."""

    reshaping, undoing = COLLAPSE, EXPAND

    def __init__(self, op: Generic) -> None:
        super().__init__(op)
        for kind, size in zip(op.iterators, op.extents(), strict=True):
            self.values.append(Const(0) if size == 1 else Dim(len(self.iterators)))
            self.iterators += [] if size == 1 else [kind]

    def axes(self, position: int) -> tuple[list[Size], list[list[int]], list[Expr], set[int]]:
        op = self.op
        old = op.operands[position].shape
        if old is None:
            raise KeepsLoops("an operand has no rank")
        shape: list[Size] = []
        groups: list[list[int]] = []
        read: list[Expr] = []
        units: list[int] = []
        for axis, result in enumerate(op.maps[position].results):
            expr = substitute(result, self.values)
            if old[axis] == 1 and expr == Const(0):
                (groups[-1] if groups else units).append(axis)
                continue
            groups.append([*units, axis])
            units = []
            shape.append(old[axis])
            read.append(expr)
        return shape, groups, read, set()


def read_as_ins(op: Generic) -> Generic:
    """Outs that a payload without reductions reads as ins, as MLIR has them before units go."""
    count = len(op.ins)
    moved = [place for place in range(len(op.outs)) if op.reads_out(place)]
    if op.named is not None or op.reduces or op.maybe_broadcast or not moved:
        return op
    args: dict[int, Ref] = {count + place: Arg(count + new) for new, place in enumerate(moved)}
    outs = [
        Value(f"{out.name}_shape", out.dtype, out.shape, kind="empty") if place in moved else out
        for place, out in enumerate(op.outs)
    ]
    return replace(
        op,
        ins=(*op.ins, *[op.outs[place] for place in moved]),
        outs=tuple(outs),
        maps=(*op.maps[:count], *map(op.out_map, moved), *op.maps[count:]),
        payload=op.payload.renumbered(args),
    )


def without_units(op: Generic) -> Moved | None:
    """The operation without loops and axes of size 1; None if it has none, or no loops."""
    if op.named is not None or op.maybe_broadcast or not op.loops:
        return None
    is_unit = any(
        isinstance(item, Const) and value.shape is not None and value.shape[axis] == 1
        for _, value, axis, item, _ in op.axes()
    )
    if not is_unit and 1 not in op.extents():
        return None
    try:
        return _Units(op).moved({}, op.origins)
    except KeepsLoops:
        return None
