"""Companion patterns: rewrites of one operation that enable further fusion, or follow it.

MLIR's pass of element-wise fusion applies the like beside its fusion pattern. Each is switched on
and off by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gehost_linalg.affine import AffineMap, Const, Dim
from gehost_linalg.generic import (
    Arg,
    Generic,
    Op,
    Opaque,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Size,
    Value,
)
from gehost_linalg.scalar_folding import fold_scalars


@dataclass(frozen=True)
class Surroundings:
    """Queries of a companion about the other operations.

    Attributes:
        producer: the operation that makes a value, None for an input or a constant.
        is_dead: whether nothing reads a value.
        has_one_use: whether one operand alone reads it.
    """

    producer: Callable[[Value], Op | None]
    is_dead: Callable[[Value], bool]
    has_one_use: Callable[[Value], bool]


@dataclass(frozen=True, eq=False)
class Change:
    """The operations that replace one, and the values that replace its results."""

    ops: tuple[Op, ...]
    replaced: Mapping[Value, Value]


Companion = Callable[[Generic, Surroundings], "Generic | Change | None"]
"""Returns the Generic as it is changed in place, what replaces it, or None."""


def _without(
    op: Generic, dropped: set[int], args: dict[int, Ref], payload: Payload | None = None
) -> Generic:
    """``op`` without some operands and the results of dropped outs.

    ``args`` replaces dropped arguments.
    """
    count = len(op.ins)
    places = [index for index in range(len(op.operands)) if index not in dropped]
    moved: dict[int, Ref] = {old: Arg(new) for new, old in enumerate(places)}
    moved.update(
        {old: moved[ref.index] if isinstance(ref, Arg) else ref for old, ref in args.items()}
    )
    outs = [index - count for index in places if index >= count]
    retained = payload or op.payload
    retained = Payload(retained.ops, tuple([retained.yields[out] for out in outs]))
    return replace(
        op,
        ins=tuple([op.ins[index] for index in places if index < count]),
        outs=tuple([op.outs[out] for out in outs]),
        maps=tuple([op.maps[index] for index in places]),
        payload=retained.live().renumbered(moved),
        results=tuple([op.results[out] for out in outs]),
        maybe_broadcast=tuple([op.maybe_broadcast_axes[index] for index in places])
        if op.maybe_broadcast
        else (),
    )


def bounds_remain(op: Generic, dropped: set[int]) -> bool:
    """Whether every loop has its size from an operand that stays.

    An axis whose size may be 1 does not give it: a dropped operand needs a sure axis elsewhere.
    """
    sure: set[int] = set()
    unsure: set[int] = set()
    gone: set[int] = set()
    for position, _, _, result, maybe_broadcast in op.axes():
        if isinstance(result, Dim):
            (gone if position in dropped else unsure if maybe_broadcast else sure).add(result.index)
    return sure | (unsure - gone) >= set(range(op.loops))


def fold_fill(op: Generic, around: Surroundings) -> Generic | None:
    """Read the scalar instead of an in that is filled with it.

    The in then only gives sizes.
    """
    del around
    args: dict[int, Ref] = {
        index: value.fill
        for index, value in enumerate(op.ins)
        if value.fill is not None and index in op.payload.reads
    }
    return replace(op, payload=op.payload.renumbered(args)) if args else None


def fold_splat(op: Generic, around: Surroundings) -> Change | None:
    """Put the first in that has one value throughout into the payload.

    It stays where a loop would lose its size.
    """
    del around
    for index, value in enumerate(op.ins):
        literal = value.splat if value.kind != "fill" else None
        if literal is not None and bounds_remain(op, {index}):
            return Change((_without(op, {index}, {index: literal}),), {})
    return None


def remove_outs_dependency(op: Generic, around: Surroundings) -> Generic | None:
    """Give outs that only provide a shape an empty tensor.

    Nothing has to be computed before them then.
    """
    del around
    outs = tuple(
        out
        if out.kind == "empty" or op.reads_out(place)
        else Value(f"{out.name}_shape", out.dtype, out.shape, kind="empty")
        for place, out in enumerate(op.outs)
    )
    return None if outs == op.outs else replace(op, outs=outs)


def dedup(op: Generic, around: Surroundings) -> Change | None:
    """Merge equal ins and outs; drop what nothing reads.

    Ins are equal by value and map. Unread ins and dead results go where bounds stay known.
    Operations of the payload that nothing uses go first.
    """
    live = op.payload.live()
    if live is not op.payload:
        return Change((replace(op, payload=live),), {})
    dropped: set[int] = set()
    args: dict[int, Ref] = {}
    maybe_broadcast = list(op.maybe_broadcast_axes)
    first: dict[tuple[Value, AffineMap], int] = {}
    for index, value in enumerate(op.ins):
        if index not in op.payload.reads:
            if bounds_remain(op, dropped | {index}):
                dropped.add(index)
            continue
        place = first.setdefault((value, op.maps[index]), index)
        if place != index:
            dropped.add(index)
            args[index] = Arg(place)
            maybe_broadcast[place] &= maybe_broadcast[
                index
            ]  # one of the two reads is sure of the size
    outs: dict[tuple[Value, AffineMap, Ref], int] = {}
    merged: dict[Value, Value] = {}
    for out, value in enumerate(op.outs):
        index = len(op.ins) + out
        if op.reads_out(out):
            if (
                around.is_dead(op.results[out])
                and _only_carried(op, out)
                and bounds_remain(op, dropped | {index})
            ):
                dropped.add(index)
            continue
        if around.is_dead(op.results[out]) and bounds_remain(op, dropped | {index}):
            dropped.add(index)
            continue
        place = outs.setdefault((value, op.maps[index], op.payload.yields[out]), out)
        if place != out:
            dropped.add(index)
            merged[op.results[out]] = op.results[place]
    if not dropped:
        return None
    retained = replace(op, maybe_broadcast=tuple(maybe_broadcast)) if op.maybe_broadcast else op
    return Change((_without(retained, dropped, args),), merged)


def _only_carried(op: Generic, out: int) -> bool:
    """Whether an out's initial value is read by its own yield alone."""
    index = len(op.ins) + out
    return op.payload.yields[out] == Arg(index) and op.payload.refs.count(Arg(index)) == 1


def unused_cycle(op: Generic, around: Surroundings) -> Generic | None:
    """Yield the initial value of a dead result.

    It is a result that is computed from its out for its own yield alone.
    """
    for out, result in enumerate(op.results):
        index = len(op.ins) + out
        ref = op.payload.yields[out]
        if (
            not around.is_dead(result)
            or not isinstance(ref, Res)
            or Arg(index) not in op.payload.ops[ref.index].operands
        ):
            continue
        if op.payload.refs.count(Arg(index)) == 1 and op.payload.refs.count(ref) == 1:
            yields = (*op.payload.yields[:out], Arg(index), *op.payload.yields[out + 1 :])
            return replace(op, payload=Payload(op.payload.ops, yields).live())
    return None


_PARTS = {"complex.re": 0, "complex.im": 1}


def fold_complex(op: Generic, around: Surroundings) -> Generic | None:
    """Use the parts of a complex number that the payload has, and the number of its parts."""
    del around

    def maker(ref: Ref) -> ScalarOp | None:
        return op.payload.ops[ref.index] if isinstance(ref, Res) else None

    for place, item in enumerate(op.payload.ops):
        if "complex." not in item.name:
            continue
        results = [maker(ref) for ref in item.operands]
        names = [source.name.strip('"') if source is not None else "" for source in results]
        name, value = item.name.strip('"'), None
        first = results[0] if results else None
        if first is not None and name in _PARTS and names[0] == "complex.create":
            value = first.operands[_PARTS[name]]
        elif first is not None and name == "complex.create" and names == [*_PARTS]:
            parts = {ref for source in results if source is not None for ref in source.operands}
            value = first.operands[0] if len(parts) == 1 else None
        if value is not None:
            return replace(op, payload=op.payload.renumbered({}, {place: value}).live())
    return None


def fold_transpose(op: Generic, around: Surroundings) -> Change | None:
    """Transpose a constant now."""
    del around
    if len(op.ins) != 1 or len(op.outs) != 1 or op.payload.ops or op.payload.yields != (Arg(0),):
        return None
    source, array = op.ins[0], op.ins[0].constant
    if array is None or source.shape is None or array.shape != source.shape:
        return None
    if op.reduces or not (op.maps[0].is_permutation and op.maps[1].is_permutation):
        return None
    axes = {item: axis for axis, item in enumerate(op.maps[0].results)}
    output = np.ascontiguousarray(np.transpose(array, [axes[item] for item in op.maps[1].results]))
    result = op.results[0]
    folded = Value(result.name, result.dtype, output.shape, constant=output)
    return Change((), {result: folded})


def erase_copy(op: Generic, around: Surroundings) -> Change | None:
    """Read the in of an operation that copies it."""
    del around
    if (
        op.reduces
        or op.payload.ops
        or not all(map_.is_identity for map_ in op.maps)
        or any(op.maybe_broadcast_axes)
    ):
        return None
    replaced: dict[Value, Value] = {}
    for result, ref in zip(op.results, op.payload.yields, strict=True):
        source = op.operands[ref.index] if isinstance(ref, Arg) else None
        if source is None or source.kind not in {"tensor", "fill"}:
            return None
        if source.type_text != result.type_text:
            return None
        replaced[result] = source
    return Change((), replaced)


def split_concat(op: Generic, around: Surroundings) -> Change | None:
    """``ew(concat(a0, a1), concat(b0, b1))`` becomes ``concat(ew(a0, b0), ew(a1, b1))``.

    The segments are along one loop, of equal and known sizes, and nothing else reads them joined;
    an in that does not use that loop is read by each part.
    """
    out_maps = op.maps[len(op.ins) :]
    if op.reduces or op.payload.indices or not all(map_.is_permutation for map_ in out_maps):
        return None
    results: dict[int, Opaque] = {}
    loops: set[int] = set()
    for index, value in enumerate(op.ins):
        if not _picks_loops(op.maps[index]):
            return None
        output = around.producer(value)
        if (
            isinstance(output, Opaque)
            and output.name == "tensor.concat"
            and isinstance(output.attribute, int)
            and around.has_one_use(value)
        ):
            result = op.maps[index].results[output.attribute]
            # the loop that reads the joined axis; -1: the axis is read by no loop alone
            results[index] = output
            loops.add(result.index if isinstance(result, Dim) else -1)
    if len(loops) != 1 or -1 in loops:
        return None
    loop = loops.pop()
    # an in that is not joined, but read along that loop, would need slices of its own
    if any(loop in op.maps[index].loops for index in range(len(op.ins)) if index not in results):
        return None
    segments = {tuple(_sizes(item)) for item in results.values()}
    if len(segments) != 1 or not all(isinstance(size, int) for size in next(iter(segments))):
        return None
    # outs may be transposed: each is cut along its own axis of the loop
    axes = [map_.results.index(Dim(loop)) for map_ in out_maps]
    slices: list[Op] = []
    parts: list[Generic] = []
    begin = 0
    for place, size in enumerate(segments.pop()):
        ins = [
            results[index].operands[place] if index in results else value
            for index, value in enumerate(op.ins)
        ]
        parts.append(_part(op, ins, place, axes, size))
        slices += [
            Opaque("tensor.extract_slice", (whole,), (out,), _begins(out, axis, begin), op.label)
            for whole, out, axis in zip(op.outs, parts[-1].outs, axes, strict=True)
            if out.kind == "tensor"
        ]
        begin += size if isinstance(size, int) else 0
    origins = tuple(
        dict.fromkeys([*[node for item in results.values() for node in item.origins], *op.origins])
    )
    joined = [
        Opaque(
            "tensor.concat",
            tuple([part.results[place] for part in parts]),
            (result,),
            axis,
            op.label,
            origins,
        )
        for place, (result, axis) in enumerate(zip(op.results, axes, strict=True))
    ]
    return Change((*slices, *parts, *joined), {})


def _picks_loops(map_: AffineMap) -> bool:
    """Whether each axis is read by a loop of its own, or at 0, and there are enough loops.

    As MLIR asks here.
    """
    loops = [result for result in map_.results if result != Const(0)]
    are_bare = len(map_.loops) == len(loops) and all(isinstance(result, Dim) for result in loops)
    return are_bare and len(map_.results) <= map_.dims


def _sizes(concat: Opaque) -> list[Size]:
    axis = concat.attribute
    assert isinstance(axis, int)
    return [None if operand.shape is None else operand.shape[axis] for operand in concat.operands]


def _part(op: Generic, ins: list[Value], place: int, axes: list[int], size: Size) -> Generic:
    """The operation for one segment; an out that it reads is a part of the whole one."""
    outs: list[Value] = []
    results: list[Value] = []
    for out, (result, axis) in enumerate(zip(op.results, axes, strict=True)):
        shape = [size if at == axis else item for at, item in enumerate(result.shape or ())]
        kind = "tensor" if op.reads_out(out) else "empty"
        outs.append(Value(f"{result.name}_shape{place}", result.dtype, shape, kind=kind))
        results.append(Value(f"{result.name}_part{place}", result.dtype, shape))
    return replace(op, ins=tuple(ins), outs=tuple(outs), results=tuple(results))


def _begins(part: Value, axis: int, begin: int) -> str:
    """The offsets of a part along an axis."""
    return ",".join([str(begin) if at == axis else "0" for at in range(part.rank or 0)])


COMPANIONS: Mapping[str, Companion] = {
    "fold-fill": fold_fill,
    "fold-splat": fold_splat,
    "outs-dependency": remove_outs_dependency,
    "split-concat": split_concat,
    "dedup": dedup,
    "unused-cycle": unused_cycle,
    "fold-complex": fold_complex,
    "fold-scalars": fold_scalars,
    "fold-transpose": fold_transpose,
    "erase-copy": erase_copy,
}
"""By name, in the order in which they are tried."""
