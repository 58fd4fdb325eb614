"""Fusion through a reshape.

It splits axes (``tensor.expand_shape``) or merges neighbours (``tensor.collapse_shape``): producer
or consumer is computed over the axes at its other side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from gehost_linalg.affine import AffineMap, Const, Dim, Expr, binary, dims_of, substitute
from gehost_linalg.companions import Change
from gehost_linalg.fusability import OpOperand, Refusal
from gehost_linalg.generic import (
    INDEX,
    Generic,
    Literal,
    Named,
    Op,
    Opaque,
    Payload,
    Ref,
    ScalarOp,
    Size,
    Value,
    expr_of,
    is_known,
)

EXPAND, COLLAPSE = "tensor.expand_shape", "tensor.collapse_shape"

RESHAPE = "reshape"
"""The name of this companion; off by default."""
EXPANSION = "expand-reshapes"
"""The companion of MLIR's pass: split axes move up, merged ones down."""
MERGING = "collapse-reshapes"
"""MLIR's other way, off by default: merged axes move up, split ones down."""


class KeepsLoops(Exception):  # noqa: N818 - it ends an attempt and is no error
    """Why an operation keeps its loops."""


def axes_of(reshape: Opaque) -> list[list[int]]:
    """For each axis of the smaller side, those of the other."""
    return json.loads(str(reshape.attribute))


def undoes(second: Opaque, first: Opaque) -> bool:
    """Whether two reshapes in a row give back the first one's operand.

    Merging what was split always does; otherwise equal sizes do, since elements keep their order.
    """
    if {first.name, second.name} != {EXPAND, COLLAPSE}:
        return False
    source, result = first.operands[0].shape, second.results[0].shape
    if second.name == COLLAPSE and axes_of(first) == axes_of(second):
        return True
    if source is None or None in source or source != result:
        return False
    return all(map(is_known, source)) or axes_of(first) == axes_of(second)


def undone(second: Opaque, operand: OpOperand) -> Value | None:
    """The source of a reshape that undoes the one before it, as fusion leaves them."""
    first = operand.producer
    return first.operands[0] if isinstance(first, Opaque) and undoes(second, first) else None


@dataclass(frozen=True)
class Moved:
    """An operation over other axes.

    Attributes:
        before: reshapes of its operands.
        generic: the operation; the tensors at the reshape are those of its other side.
        after: reshapes of its other results.
    """

    before: tuple[Opaque, ...]
    generic: Generic
    after: tuple[Opaque, ...]


def through_reshape(
    reshape: Opaque, producer: Generic, consumer: Generic, index: int
) -> Iterator[tuple[OpOperand, Moved] | Refusal]:
    """The two ways to bring a producer and a consumer together.

    The producer is computed over the axes behind the reshape, which leaves the consumer as it is;
    else the consumer over those before it. A refusal says why one is not open. The producer has one
    result, and ``reshape`` is its only reader.
    """
    before, after = reshape.operands[0], reshape.results[0]
    groups, splits = axes_of(reshape), reshape.name == EXPAND
    if not groups:
        yield Refusal(RESHAPE, "a tensor of rank 0 has no axis to split or merge")
        return
    origins = tuple(reshape.origins)
    few, many = (before, after) if splits else (after, before)
    try:
        axes = _axes(producer, len(producer.ins), groups, few, many, splits=splits)
        moved = axes.moved({before: after}, (*producer.origins, *origins))
        yield OpOperand(moved.generic, consumer, index), moved
    except KeepsLoops as kept:
        yield Refusal(RESHAPE, f"the producer stays: {kept}")
    try:
        axes = _axes(consumer, index, groups, few, many, splits=not splits)
        moved = axes.moved({after: before}, (*origins, *consumer.origins))
        yield OpOperand(producer, moved.generic, index), moved
    except KeepsLoops as kept:
        yield Refusal(RESHAPE, f"the consumer stays: {kept}")


def _axes(
    op: Generic,
    position: int,
    groups: Sequence[Sequence[int]],
    few: Value,
    many: Value,
    *,
    splits: bool,
) -> Axes:
    """The loops along an operand's axes, split or merged as ``groups``.

    ``few`` and ``many`` are the sides of the reshape with fewer and with more axes.
    """
    results = op.maps[position].results
    changed = [(axis, group) for axis, group in enumerate(groups) if len(group) > 1]
    if splits:
        sizes = many.shape or ()
        parts = {
            _bare(results[axis]): tuple([sizes[item] for item in group]) for axis, group in changed
        }
        return _Split(op, parts)
    sizes = few.shape or ()
    merged = {
        tuple([_bare(results[item]) for item in group]): sizes[axis] for axis, group in changed
    }
    return _Merge(op, merged)


def _bare(result: Expr) -> int:
    if not isinstance(result, Dim):
        raise KeepsLoops(f"the axis is read at {result}, not by a loop")
    return result.index


def moved_consumer(
    op: Generic, operand_of: Callable[[Op, int], OpOperand], *, splits: bool
) -> Moved | None:
    """The operation over the axes before a reshape that it alone reads, as MLIR moves that down.

    With ``splits`` its loops are split, and the reshape is a merge; else the reverse.
    """
    for index in range(len(op.ins)):
        operand = operand_of(op, index)
        reshape = operand.producer
        if isinstance(reshape, Opaque) and reshape.name == (COLLAPSE if splits else EXPAND):
            before, after = reshape.operands[0], reshape.results[0]
            moved = _moved(op, index, reshape, (after, before)) if operand.uses == 1 else None
            if moved is not None:
                return moved
    return None


def moved_producer(reshape: Opaque, operand: OpOperand, *, splits: bool) -> Moved | None:
    """The operation over the axes behind a reshape, its only reader, as MLIR moves that up."""
    producer = operand.producer
    if reshape.name != (EXPAND if splits else COLLAPSE):
        return None
    if not isinstance(producer, Generic) or operand.uses != 1:
        return None
    position = len(producer.ins) + operand.result
    return _moved(producer, position, reshape, (operand.value, reshape.results[0]))


def _moved(op: Generic, position: int, reshape: Opaque, sides: tuple[Value, Value]) -> Moved | None:
    """The operation with the axes of the second of two tensors in place of those of the first.

    MLIR asks that all maps are projected permutations, and that the tensor is no scalar.
    """
    groups = axes_of(reshape)
    old, new = sides
    few, many = sorted(sides, key=lambda side: side.rank or 0)
    if not groups or not all(map_.is_projected_permutation for map_ in op.maps):
        return None
    if old is not few:
        return _merged_in_part(op, position, reshape, few, many)
    try:
        axes = _axes(op, position, groups, few, many, splits=True)
        moved = axes.moved({old: new}, op.origins)
    except KeepsLoops:
        return None
    spelling = _spelled_again(op.named, moved.generic)
    return replace(moved, generic=replace(moved.generic, named=spelling))


def _merged_in_part(
    op: Generic, position: int, reshape: Opaque, few: Value, many: Value
) -> Moved | None:
    """A Generic over the merged axes whose loops are neighbours everywhere; a reshape has the rest.

    MLIR merges loops of a Generic alone.
    """
    results, few_sizes, many_sizes = op.maps[position].results, few.shape or (), many.shape or ()
    merged: dict[tuple[int, ...], Size] = {}
    rest: list[list[int]] = []
    shape: list[Size] = []
    for axis, group in enumerate(axes_of(reshape)):
        loops = tuple([_bare(results[item]) for item in group])
        is_merged = len(group) > 1 and _can_merge(op, loops, few_sizes[axis])
        if is_merged:
            merged[loops] = few_sizes[axis]
        sizes = [few_sizes[axis]] if is_merged else [many_sizes[item] for item in group]
        rest.append(list(range(len(shape), len(shape) + len(sizes))))
        shape += sizes
    if not merged or op.named is not None:
        return None
    if len(shape) == len(few_sizes):
        return _Merge(op, merged).moved({many: few}, op.origins)
    middle = Value(f"{many.name}_reshaped", many.dtype, shape)
    moved = _Merge(op, merged).moved({many: middle}, op.origins)
    sides = (few, middle) if reshape.name == EXPAND else (middle, few)
    other = Opaque(reshape.name, sides[:1], sides[1:], json.dumps(rest), reshape.label)
    if reshape.name == EXPAND:
        return replace(moved, before=(other, *moved.before))
    return replace(moved, after=(*moved.after, other))


def _can_merge(op: Generic, loops: tuple[int, ...], size: Size) -> bool:
    """Whether loops are neighbours in each map, in this order, and of one kind."""
    try:
        merge = _Merge(op, {loops: size})
        for position in range(len(op.operands)):
            merge.axes(position)
    except KeepsLoops:
        return False
    return True


def _spelled_again(named: Named | None, moved: Generic) -> Named | None:
    """A copy and a transposition keep their names over other axes; products become Generics."""
    if named is not None and named.name == "linalg.copy":
        return named
    if named is None or named.name != "linalg.transpose":
        return None
    read = moved.maps[0].results
    permutation = [read.index(result) for result in moved.maps[1].results]
    return named._replace(after=f" permutation = {permutation}")


def folded_reshape(op: Opaque, operand: OpOperand, *, splits: bool = True) -> Change | None:
    """A reshape of a constant, a split of a fill that it alone reads, or two reshapes, as one.

    ``splits``: whether a split moves before a merge where the two are not one reshape.
    """
    source, result = operand.value, op.results[0]
    is_fill = source.kind == "fill" and op.name == EXPAND and operand.uses == 1
    if (source.constant is not None or is_fill) and all(map(is_known, result.shape or ())):
        return Change((), {result: _other(source, result.shape or ())})
    first = operand.producer
    if not isinstance(first, Opaque) or first.name not in {EXPAND, COLLAPSE}:
        return None
    if not (axes_of(first) and axes_of(op)):  # of rank 0
        return None
    joined = _joined(first, op)
    if joined is None:
        return _exchanged(first, op) if splits and op.name == EXPAND else None
    name, groups = joined
    output = Opaque(name, first.operands, op.results, json.dumps(groups), op.label, op.origins)
    return Change((output,), {})


def _joined(first: Opaque, second: Opaque) -> tuple[str, list[list[int]]] | None:
    """The one reshape that does what two in a row do."""
    before, after = axes_of(first), axes_of(second)
    if first.name == second.name:
        few, many = (before, after) if second.name == EXPAND else (after, before)
        return second.name, [[axis for item in group for axis in many[item]] for group in few]
    if first.name == EXPAND:  # then merged: whole groups of one side are in a group of the other
        for name, few, many in ((COLLAPSE, after, before), (EXPAND, before, after)):
            groups = [[at for at, part in enumerate(many) if set(part) <= set(g)] for g in few]
            if all(
                sorted(axis for at in part for axis in many[at]) == group
                for group, part in zip(few, groups, strict=True)
            ):
                return name, groups
        return None
    source, result = first.operands[0].shape or (), second.results[0].shape or ()
    for name in (COLLAPSE, EXPAND):
        groups = list[list[int]]()
        for old, new in zip(before, after, strict=True):
            few, many = (new, old) if name == COLLAPSE else (old, new)
            sizes = (result, source) if name == COLLAPSE else (source, result)
            parts = _merged([sizes[1][axis] for axis in many], [sizes[0][axis] for axis in few])
            if parts is None:
                break
            groups += [[many[place] for place in part] for part in parts]
        else:
            return name, groups
    return None


def _exchanged(merge: Opaque, split: Opaque) -> Change | None:
    """A split of a merged tensor before the merge, where no axis is both split and merged."""
    source, result = merge.operands[0], split.results[0]
    old, new = source.shape or (), result.shape or ()
    shape: list[Size] = []
    before: list[list[int]] = []
    after: list[list[int]] = []

    def add(sizes: Sequence[Size]) -> list[int]:
        shape.extend(sizes)
        return list(range(len(shape) - len(sizes), len(shape)))

    for merged, parts in zip(axes_of(merge), axes_of(split), strict=True):
        olds, news = [old[axis] for axis in merged], [new[axis] for axis in parts]
        if len(merged) == len(parts) and olds != news:
            return None
        if len(merged) > 1 and len(parts) == 1:
            places = add(olds)
            before += [[place] for place in places]
            after.append(places)
        elif len(merged) == 1:
            places = add(news)
            before.append(places)
            after += [[place] for place in places]
        elif len(merged) == len(parts):
            places = add(olds)
            before += [[place] for place in places]
            after += [[place] for place in places]
        else:
            return None
    middle = Value(f"{source.name}_reshaped", source.dtype, shape)
    first = Opaque(EXPAND, (source,), (middle,), json.dumps(before), split.label, split.origins)
    second = Opaque(COLLAPSE, (middle,), (result,), json.dumps(after), merge.label, merge.origins)
    return Change((first, second), {})


def _merged(many: Sequence[Size], few: Sequence[Size]) -> list[list[int]] | None:
    """Which neighbours make each of ``few`` sizes; None where they do not, or one is unknown."""
    if not all(map(is_known, (*many, *few))):
        return None
    groups: list[list[int]] = []
    place = 0
    for size in few:
        group: list[int] = []
        while place < len(many) and (
            not group or prod([_number(many[item]) for item in group]) < _number(size)
        ):
            group.append(place)
            place += 1
        if prod([_number(many[item]) for item in group]) != _number(size) or not group:
            return None
        groups.append(group)
    rest = range(place, len(many))
    if any(_number(many[item]) != 1 for item in rest) or not groups:
        return None
    groups[-1] += rest
    return groups


class Axes:
    """Loops of an operation that are split or merged."""

    reshaping = ""
    """The operation that gives a tensor the new axes."""
    undoing = ""

    def __init__(self, op: Generic) -> None:
        self.op = op
        self.values: list[Expr] = []
        """Each old loop by the new ones."""
        self.iterators: list[str] = []

    def axes(self, position: int) -> tuple[list[Size], list[list[int]], list[Expr], set[int]]:
        """An operand over the new loops.

        Its sizes, the groups of axes, its map's results, and its axes whose stride is decided at
        run time.
        """
        raise NotImplementedError

    def moved(self, others: Mapping[Value, Value], origins: tuple[object, ...]) -> Moved:
        """The operation over the new loops.

        ``others`` are tensors that have the new axes.

        Raises:
            KeepsLoops: a map does not allow it.
        """
        op, before, after = self.op, list[Opaque](), list[Opaque]()
        reshaped: dict[tuple[Value, AffineMap], Value] = {}
        operands: list[Value] = []
        maps: list[AffineMap] = []
        maybe_broadcast: list[frozenset[int]] = []
        results: list[Value] = []
        for position, value in enumerate(op.operands):
            shape, groups, read, unsure = self.axes(position)
            maps.append(AffineMap(len(self.iterators), read))
            maybe_broadcast.append(frozenset(unsure))
            same = len(shape) == len(read) == len(op.maps[position].results)
            other = others.get(value) or (value if same else _other(value, shape))
            if other is not value and value not in others and _is_data(value):
                text = json.dumps(groups)
                same_read = value, op.maps[position]
                if same_read not in reshaped:
                    reshaped[same_read] = other
                    before.append(Opaque(self.reshaping, (value,), (other,), text, op.label))
                other = reshaped[same_read]
            operands.append(other)
            if position < len(op.ins):
                continue
            result = op.results[position - len(op.ins)]
            output = others.get(result) or (result if same else _other(result, shape))
            if output is not result and result not in others:
                text = json.dumps(groups)
                after.append(Opaque(self.undoing, (output,), (result,), text, op.label))
            results.append(output)
        count = len(op.ins)
        generic = replace(
            op,
            ins=tuple(operands[:count]),
            outs=tuple(operands[count:]),
            maps=tuple(maps),
            iterators=tuple(self.iterators),
            payload=self._payload(),
            results=tuple(results),
            maybe_broadcast=tuple(maybe_broadcast) if op.maybe_broadcast else (),
            origins=tuple(dict.fromkeys(origins)),
            named=None,
        )
        return Moved(tuple(before), generic, tuple(after))

    def _payload(self) -> Payload:
        ops: list[ScalarOp] = []
        constant: dict[int, Ref] = {}
        for place, op in enumerate(self.op.payload.ops):
            if op.name == INDEX:
                expr = substitute(expr_of(op), self.values)
                op = op._replace(attribute=expr)
                if isinstance(expr, Const):
                    constant[place] = Literal(expr.value, "index")
            ops.append(op)
        payload = Payload(tuple(ops), self.op.payload.yields)
        return payload.renumbered({}, constant).live() if constant else payload


class _Split(Axes):
    """Some loops become several, the last of them the innermost."""

    reshaping, undoing = EXPAND, COLLAPSE

    def __init__(self, op: Generic, parts: Mapping[int, tuple[Size, ...]]) -> None:
        super().__init__(op)
        self.parts = parts
        self.first: list[int] = []
        for loop, kind in enumerate(op.iterators):
            self.first.append(len(self.iterators))
            self.iterators += [kind] * len(parts.get(loop, (None,)))
        needed = {dim for expr in op.payload.indices for dim in dims_of(expr)}
        for loop, first in enumerate(self.first):
            expr: Expr = Dim(first)
            for place, size in enumerate(parts.get(loop, ())[1:], 1):
                if loop in needed and not is_known(size):
                    raise KeepsLoops(f"index d{loop} needs a size that is not known")
                expr = binary("+", binary("*", expr, Const(_number(size))), Dim(first + place))
            self.values.append(expr)

    def axes(self, position: int) -> tuple[list[Size], list[list[int]], list[Expr], set[int]]:
        op, map_ = self.op, self.op.maps[position]
        old = op.operands[position].shape or (None,) * len(map_.results)
        if len(map_.loops) < sum(isinstance(result, Dim) for result in map_.results):
            raise KeepsLoops(f"{map_.body()} is no projected permutation")
        shape: list[Size] = []
        groups: list[list[int]] = []
        read: list[Expr] = []
        unsure: set[int] = set()
        for axis, result in enumerate(map_.results):
            if not isinstance(result, Dim | Const):
                raise KeepsLoops(f"{map_.body()} is no projected permutation")
            parts = self.parts.get(result.index, ()) if isinstance(result, Dim) else ()
            is_unsure = axis in op.maybe_broadcast_axes[position]
            if parts and is_unsure:
                raise KeepsLoops(
                    f"the size of axis {axis} of {op.operands[position].name} may be 1"
                )
            if is_unsure:
                unsure.add(len(shape))
            groups.append(list(range(len(shape), len(shape) + max(1, len(parts)))))
            shape += parts or [old[axis]]
            if isinstance(result, Dim):
                read += [Dim(self.first[result.index] + k) for k in range(max(1, len(parts)))]
            else:
                read.append(result)
        return shape, groups, read, unsure


class _Merge(Axes):
    """Some neighbouring loops become one."""

    reshaping, undoing = COLLAPSE, EXPAND

    def __init__(self, op: Generic, merged: Mapping[tuple[int, ...], Size]) -> None:
        super().__init__(op)
        self.group = {group[0]: group for group in merged}
        self.size = {group[0]: size for group, size in merged.items()}
        self.new: dict[int, int] = {}
        for group in merged:
            if group != tuple(range(group[0], group[0] + len(group))):
                raise KeepsLoops(f"{_named(group)} are not neighbouring loops")
            if len({op.iterators[loop] for loop in group}) > 1:
                raise KeepsLoops(f"{_named(group)} are parallel and reduction")
        sizes = op.extents()
        needed = {dim for expr in op.payload.indices for dim in dims_of(expr)}
        inside = {loop for group in merged for loop in group[1:]}
        for loop, kind in enumerate(op.iterators):
            if loop in inside:
                continue
            self.new[loop] = len(self.iterators)
            self.iterators.append(kind)
            group = self.group.get(loop, (loop,))
            for place, item in enumerate(group):
                own, inner = sizes[item], [sizes[other] for other in group[place + 1 :]]
                if item in needed and not all(map(is_known, (*inner, own) if place else inner)):
                    raise KeepsLoops(f"index d{item} needs a size that is not known")
                steps = prod([max(1, _number(size)) for size in inner])
                expr = binary("floordiv", Dim(self.new[loop]), Const(steps))
                if place:
                    expr = binary("mod", expr, Const(max(1, _number(own))))
                self.values.append(expr)

    def axes(self, position: int) -> tuple[list[Size], list[list[int]], list[Expr], set[int]]:
        op, map_ = self.op, self.op.maps[position]
        old = op.operands[position].shape or (None,) * len(map_.results)
        inside = {loop for group in self.group.values() for loop in group}
        shape: list[Size] = []
        groups: list[list[int]] = []
        read: list[Expr] = []
        unsure: set[int] = set()
        axis = 0
        while axis < len(map_.results):
            item = map_.results[axis]
            group = self.group.get(item.index) if isinstance(item, Dim) else None
            axes = list(range(axis, axis + len(group or (0,))))
            if group is not None:
                results = list(map_.results[axis : axis + len(group)])
                if results != [Dim(loop) for loop in group]:
                    raise KeepsLoops(f"{_named(group)} are not neighbours in {map_.body()}")
                if op.maybe_broadcast_axes[position] & set(axes):
                    raise KeepsLoops(f"a size of {op.operands[position].name} may be 1")
                shape.append(_product([old[item] for item in axes], self.size[group[0]]))
                read.append(Dim(self.new[group[0]]))
            elif dims_of(item) & inside:
                raise KeepsLoops(f"{item} of {map_.body()} uses a merged loop")
            else:
                if axis in op.maybe_broadcast_axes[position]:
                    unsure.add(len(shape))
                shape.append(old[axis])
                read.append(substitute(item, self.values))
            groups.append(axes)
            axis += len(axes)
        return shape, groups, read, unsure


def _product(sizes: Sequence[Size], whole: Size) -> Size:
    """The size of merged axes, a number where all are known.

    Elsewhere it is the name of the whole.
    """
    if all(map(is_known, sizes)):
        result = prod(map(_number, sizes))
        return result if all(isinstance(size, int) for size in sizes) else str(result)
    return None if is_known(whole) else whole


def _number(size: Size) -> int:
    """A known size; 1 stands for one that is not used."""
    return int(size) if size is not None and is_known(size) else 1


def _named(loops: Sequence[int]) -> str:
    return ", ".join(f"d{loop}" for loop in loops)


def _is_data(value: Value) -> bool:
    return value.kind == "tensor" and value.constant is None


def _other(value: Value, shape: Sequence[Size]) -> Value:
    """A tensor with the same elements and other axes."""
    constant = value.constant
    if constant is not None:
        is_whole = constant.shape == value.shape
        constant = constant.reshape([_number(s) for s in shape] if is_whole else (1,) * len(shape))
    name = f"{value.name}_reshaped"
    return Value(name, value.dtype, shape, kind=value.kind, constant=constant, fill=value.fill)
