"""Fuses operations to a fixed point, from inputs to outputs."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from gehost_linalg.companions import COMPANIONS, Change, Surroundings, erase_copy, split_concat
from gehost_linalg.control import Control, MultiUse, asked, control_named, multi_use_named, unknown
from gehost_linalg.fusability import (
    OpOperand,
    Refusal,
    are_elementwise_ops_fusable,
    consumer_is_generic,
    results_are_complete,
)
from gehost_linalg.fuse import Fused, fuse_checked
from gehost_linalg.generic import Generic, Op, Opaque, Value, scalars_of
from gehost_linalg.reshape import (
    COLLAPSE,
    EXPAND,
    EXPANSION,
    MERGING,
    RESHAPE,
    UNITS,
    folded_reshape,
    moved_consumer,
    moved_producer,
    read_as_ins,
    through_reshape,
    undoes,
    without_units,
)

DEFAULT_COMPANIONS = tuple(COMPANIONS)
ALL_COMPANIONS = (*COMPANIONS, RESHAPE, EXPANSION, MERGING, UNITS)
MLIR_COMPANIONS = (*COMPANIONS, EXPANSION)
"""Those of MLIR's ``linalg-fuse-elementwise-ops``."""
MOST_SCALAR_OPS = 1024
"""Largest payload made by duplicating producers; each layer of a graph may double it."""


class Block:
    """Operations in topological order, with the readers of every value.

    Attributes:
        outputs: values that are read outside, in order.
        refusals: for each operation that was visited, the operands that were not fused and why.
    """

    def __init__(self, ops: Iterable[Op], outputs: Iterable[Value] | None = None) -> None:
        """Without ``outputs``, every result that nothing reads is one.

        Raises:
            ValueError: an operation reads a result of a later one, or a value is made twice.
        """
        self.at: list[Op | None] = list(ops)
        self.place: dict[Op, int] = {
            op: place for place, op in enumerate(self.at) if op is not None
        }
        self.made_by: dict[Value, Op] = {}
        self.readers: dict[Value, dict[Op, int]] = {}
        """How often an operation reads a value; a scalar also as a size, a fill or in a payload."""
        self.refusals: dict[Op, list[tuple[OpOperand, Refusal]]] = {}
        read: set[Value] = set()
        for op in self.place:
            read.update(op.operands, op.scalars)
            for result in op.results:
                if result in self.made_by or result in read:
                    raise ValueError(f"%{result.name} is made twice, or read before it is made")
                self.made_by[result] = op
                self.readers[result] = {}
        for op in self.place:
            self._read(op)
        if outputs is None:
            outputs = [result for result, readers in self.readers.items() if not readers]
        self.outputs = list(outputs)
        self._kept = {*self.outputs, *scalars_of(self.outputs)}

    @property
    def ops(self) -> list[Op]:
        return [op for op in self.at if op is not None]

    def is_dead(self, value: Value) -> bool:
        return value not in self._kept and not self.readers.get(value)

    def has_one_reader(self, value: Value) -> bool:
        return value not in self._kept and len(self.readers.get(value, ())) == 1

    def operand(self, consumer: Op, index: int) -> OpOperand:
        """An operand with its producer and the uses of that."""
        value = consumer.operands[index]
        producer = self.made_by.get(value)
        if producer is None:
            count = sum(self.readers[value].values()) + (value in self._kept)
            return OpOperand(None, consumer, index, count)
        uses, shared = 0, set[int]()
        for result, value in enumerate(producer.results):
            readers, is_kept = self.readers[value], value in self._kept
            uses += sum(readers.values()) + is_kept
            if is_kept or len(readers) > (consumer in readers):
                shared.add(result)
        return OpOperand(producer, consumer, index, uses, frozenset(shared))

    def replace(self, old: Op, new: tuple[Op, ...], replaced: Mapping[Value, Value]) -> None:
        """Put operations in the place of one.

        Readers of its results read ``replaced``.
        """
        place = self.place.pop(old)
        self._unread(old)
        self.refusals.pop(old, None)
        for result in old.results:
            if self.made_by.get(result) is old:
                del self.made_by[result]
        self.at[place] = new[0] if new else None
        if len(new) > 1:  # rare: an operation was split
            self.at[place : place + 1] = new
            self.place = {op: at for at, op in enumerate(self.at) if op is not None}
        for op in new:
            if len(new) == 1:
                self.place[op] = place
            for result in op.results:
                self.made_by[result] = op
                self.readers.setdefault(result, {})
            self._read(op)
        for value, other in replaced.items():
            if value is not other:
                self.redirect(value, other)

    def redirect(self, value: Value, other: Value) -> None:
        """Make every reader of ``value`` read ``other``."""
        for reader in list(self.readers.get(value, ())):
            operands = [other if each is value else each for each in reader.operands]
            if isinstance(reader, Generic):
                count = len(reader.ins)
                moved: Op = replace(
                    reader, ins=tuple(operands[:count]), outs=tuple(operands[count:])
                )
            else:
                moved = replace(reader, operands=tuple(operands))
            self.replace(reader, (moved,), {})
        if value in self._kept:
            self._kept.remove(value)
            self._kept.add(other)
            self.outputs = [other if each is value else each for each in self.outputs]

    def region(self, op: Opaque) -> list[Op]:
        """All operations of one with regions, of which ``op`` is the first or the last."""
        step, place, depth = (1 if op.part == "open" else -1), self.place[op], 0
        inside: list[Op] = []
        while not inside or depth:
            each = self.at[place]
            place += step
            if each is not None:
                inside.append(each)
            if isinstance(each, Opaque):
                depth += (each.part == "open") - (each.part == "close")
        return inside[::step]

    def remove(self, op: Op) -> None:
        """Remove an operation that nothing reads."""
        self.at[self.place.pop(op)] = None
        self._unread(op)
        self.refusals.pop(op, None)
        for result in op.results:
            del self.made_by[result]

    def _read(self, op: Op) -> None:
        for value in (*op.operands, *op.scalars):
            readers = self.readers.setdefault(value, {})
            readers[op] = readers.get(op, 0) + 1

    def _unread(self, op: Op) -> None:
        for value in (*op.operands, *op.scalars):
            self.readers.get(value, {}).pop(op, None)

    def path_back(self, producer: Op, consumer: Op) -> list[Op] | None:
        """The operations on a path from ``producer`` to ``consumer``, without the two."""
        last = self.place[consumer]
        came: dict[Op, Op] = {}
        stack = [producer]
        while stack:
            op = stack.pop()
            for reader in dict.fromkeys(
                each for value in op.results for each in self.readers[value]
            ):
                if reader is consumer and op is not producer:
                    path = [op]
                    while (before := came[path[-1]]) is not producer:
                        path.append(before)
                    return path[::-1]
                if reader is not consumer and reader not in came and self.place[reader] < last:
                    came[reader] = op
                    stack.append(reader)
        return None

    def is_region_between(self, producer: Op, consumer: Op) -> bool:
        """Whether other readers of the one may stand in a region that does not have the other."""
        between = self.at[self.place[producer] : self.place[consumer]]
        return any(isinstance(op, Opaque) and op.part for op in between)

    def move_readers_behind(self, producer: Op, consumer: Op) -> None:
        """Move the operations between the two that depend on ``producer`` behind ``consumer``."""
        first, last = self.place[producer], self.place[consumer]
        behind: set[Op] = set()
        for place in range(first + 1, last):
            op = self.at[place]
            if op is not None and any(
                (made := self.made_by.get(each)) is producer or made in behind
                for each in (*op.operands, *op.scalars)
            ):
                behind.add(op)
        if behind:
            window = [op for op in self.at[first : last + 1] if op not in behind]
            window += [op for op in self.at[first : last + 1] if op in behind]
            self.at[first : last + 1] = window
            self.place.update(
                {op: first + offset for offset, op in enumerate(window) if op is not None}
            )


@dataclass(frozen=True)
class Rules:
    """Which fusions are legal and wanted; see ``Driver``."""

    block: Block
    control: Control
    multi_use: MultiUse
    coverage: str
    limit: int | None

    def fused(self, operand: OpOperand) -> Fused | Refusal:
        refusal = are_elementwise_ops_fusable(operand, self.coverage) or self._forbidden(operand)
        return refusal or fuse_checked(operand)

    def _forbidden(self, operand: OpOperand) -> Refusal | None:
        """Conditions 10 (control) and 12 (no cycle)."""
        producer, consumer = operand.generics()
        if self.limit is not None and len(producer.origins) + len(consumer.origins) > self.limit:
            return Refusal("too-large", f"more than {self.limit} nodes")
        reason = asked(self.control, operand)
        if reason is not None:
            return Refusal("control", reason)
        if operand.uses == 1:
            return None
        if self.multi_use == "refuse":
            return Refusal(
                "control", f"the producer has {operand.uses} uses, and multi-use is refuse"
            )
        scalar_ops = len(producer.payload.ops) + len(consumer.payload.ops)
        if self.multi_use == "duplicate" and scalar_ops > MOST_SCALAR_OPS:
            return Refusal("too-large", f"more than {MOST_SCALAR_OPS} scalar operations")
        if self.multi_use == "share":
            incomplete = results_are_complete(operand) if operand.shared else None
            if incomplete is not None:
                return incomplete
            if any(
                value in producer.results
                for index, value in enumerate(consumer.operands)
                if index != operand.index
            ):
                return Refusal("cycle", f"another operand of {consumer.name} reads the producer")
            if self.block.is_region_between(producer, consumer):
                return Refusal("region", "a region begins or ends between the two")
            path = self.block.path_back(producer, consumer)
            if path is not None:
                return Refusal("cycle", f"through {', '.join(op.label or op.name for op in path)}")
        return None


class Driver:
    """Visits consumers in order and fuses the first operand that qualifies.

    The same consumer is tried again afterwards.
    """

    def __init__(
        self,
        block: Block,
        control: Control,
        multi_use: MultiUse = "refuse",
        companions: Collection[str] = DEFAULT_COMPANIONS,
        coverage: str = "preserved",
        *,
        limit: int | None = None,
    ) -> None:
        """``limit``: how many origins a fused operation may have; any number unless given."""
        unknown_names = [name for name in companions if name not in ALL_COMPANIONS]
        if unknown_names:
            raise ValueError(unknown("companion", unknown_names[0], ALL_COMPANIONS))
        self.block = block
        self.multi_use = multi_use
        self.companions = [COMPANIONS[name] for name in COMPANIONS if name in companions]
        self.merges = "dedup" in companions
        self.reshapes = RESHAPE in companions
        self.splits = EXPANSION in companions
        self.moves = self.splits or MERGING in companions
        if self.splits and MERGING in companions:
            raise ValueError(f"companions {EXPANSION} and {MERGING} undo each other: choose one")
        self.drops_units = UNITS in companions
        if coverage not in {"preserved", "upstream"}:
            raise ValueError(f"coverage {coverage!r}: wanted preserved or upstream")
        self.coverage = coverage
        self.rules = Rules(block, control, multi_use, coverage, limit)
        self.around = Surroundings(block.made_by.get, block.is_dead, block.has_one_reader)
        self._work: dict[Op, None] = {}
        """Taken from its end, as in MLIR; an operation that is added again keeps its place."""
        self._furthest = 0
        """The last place that was visited in this round; the readers of what is there are due."""
        self._changed: dict[Op, None] = {}
        """What has changed since its last visit, for the next round."""

    def run(self) -> None:
        """Fuse until nothing qualifies; then through reshapes and without unit loops, if on."""
        self._changed = dict.fromkeys(self.block.ops)
        self._settle()
        while self.reshapes and any(map(self._fuse_through_reshape, self.block.ops)):
            self._settle()
        if self.drops_units:
            self._drop_units()

    def _drop_units(self) -> None:
        """Drop loops of size 1, and the reshapes that cancel each other afterwards."""
        for op in self.block.ops:
            if not isinstance(op, Generic):
                continue
            read = read_as_ins(op)
            moved = without_units(read)
            if moved is not None:
                parts = (*moved.before, read_as_ins(moved.generic), *moved.after)
                self._swap(op, Change(parts, {}))
            elif read is not op:
                self._swap(op, Change((read,), {}))
        while sum(map(self._fold_reshape, self.block.ops)):
            pass

    def _fold_reshape(self, op: Op) -> bool:
        """Fold a reshape with its operand, or remove it where nothing reads it."""
        block = self.block
        if not isinstance(op, Opaque) or op.name not in {EXPAND, COLLAPSE} or op.part:
            return False
        if all(map(block.is_dead, op.results)):
            block.remove(op)
            return True
        source = _undone(block, op)
        folded = folded_reshape(op, block.operand(op, 0)) if source is None else None
        if source is not None:
            folded = Change((), {op.results[0]: source})
        if folded is not None:
            block.replace(op, folded.ops, folded.replaced)
        return folded is not None

    def _settle(self) -> None:
        """Visit what has changed from inputs to outputs, round after round."""
        block = self.block
        while present := [op for op in self._changed if op in block.place]:
            ordered = sorted(present, key=block.place.__getitem__, reverse=True)
            self._work, self._changed, self._furthest = dict.fromkeys(ordered), {}, 0
            while self._work:
                op, _ = self._work.popitem()
                if op in block.place:
                    self._visit(op)

    def _visit(self, op: Op) -> None:
        """Remove, fuse or change an operation."""
        block = self.block
        self._changed.pop(op, None)
        self._furthest = max(self._furthest, block.place[op])
        dead = self._dead(op)
        for each in reversed(dead):
            block.remove(each)
            self._released((*each.operands, *each.scalars))
        if dead:
            pass
        elif isinstance(op, Opaque):
            self._visit_opaque(op)
        elif (op.named is None and self._fuse_first(op)) or self._change(op):
            pass
        elif self.moves:
            moved = moved_consumer(op, block.operand, splits=self.splits)
            if moved is not None:
                for value in op.results:  # other operations make them now
                    self._note_readers(value)
                self._swap(op, Change((*moved.before, moved.generic, *moved.after), {}))

    def _dead(self, op: Op) -> list[Op]:
        """The operation with all in its regions, if it only makes results that nothing reads."""
        block = self.block
        part = op.part if isinstance(op, Opaque) else ""
        ops = block.region(op) if isinstance(op, Opaque) and part in {"open", "close"} else [op]
        is_dead = all(map(block.is_dead, ops[-1].results)) and all(map(_is_pure, ops))
        return ops if is_dead and part != "next" and (part or op.results) else []

    def _visit_opaque(self, op: Opaque) -> None:
        """Fold a reshape, or compute its operand over the axes behind it."""
        block = self.block
        source = _undone(block, op) if self.reshapes or self.moves else None
        if source is None and _is_whole(op):
            source = op.operands[0]
        if source is not None:
            self._swap(op, Change((), {op.results[0]: source}))
            return
        if op.name == "tensor.concat" and split_concat in self.companions:
            readers = list(
                block.readers[op.results[0]]
            )  # MLIR splits it before its reader is fused
            reader = readers[0] if len(readers) == 1 else None
            if isinstance(reader, Generic) and reader.named is None:
                made = split_concat(reader, self.around)
                if made is not None:
                    self._swap(reader, made)
                    return
        if self.moves and op.name in {EXPAND, COLLAPSE}:
            operand = block.operand(op, 0)
            folded = folded_reshape(op, operand, splits=self.splits)
            if folded is not None:
                self._swap(op, folded)
                return
            moved = moved_producer(op, operand, splits=self.splits)
            if moved is not None and isinstance(operand.producer, Generic):
                producer = operand.producer
                readers = list(block.readers[op.results[0]])
                self._changed.update(dict.fromkeys(readers))
                for reader in reversed(readers):  # what they read is made by another operation
                    self._work.setdefault(reader)
                block.remove(op)
                self._swap(producer, Change((*moved.before, moved.generic, *moved.after), {}))
                return
        _note_boundary(block, op)

    def _change(self, op: Generic) -> bool:
        """Apply the first companion that changes ``op``; returns whether one does."""
        for companion in self.companions:
            if op.named is not None and not (companion is erase_copy and _is_transpose(op)):
                continue  # MLIR folds a transposition that changes nothing, and no other name
            made = companion(op, self.around)
            if made is not None:
                if isinstance(made, Change):
                    self._swap(op, made)
                else:  # MLIR changes it in place, and does not visit its readers
                    self._swap(op, Change((made,), {}), readers=False)
                return True
        return False

    def _swap(self, op: Op, change: Change, *, readers: bool = True) -> None:
        """Do a change; the producers that it releases are visited next."""
        block = self.block
        for value in change.replaced:
            self._note_readers(value)
        self._visit_next(op, change.ops, readers=readers)
        block.replace(op, change.ops, change.replaced)
        for value in change.replaced.values():
            self._note_readers(value)
        read = {value for made in change.ops for value in (*made.operands, *made.scalars)}
        self._released((*op.operands, *op.scalars), read)

    def _visit_next(self, old: Op, ops: tuple[Op, ...], *, readers: bool = True) -> None:
        """Visit the readers of ``old`` and then ``ops``, which replace it, unless they are due."""
        self._work.update(dict.fromkeys(reversed(ops)))
        is_passed = self.block.place[old] < self._furthest
        for value in old.results if readers else ():
            if not is_passed:
                self._note_readers(value)  # a later round may have no other reason to visit them
                continue
            for reader in reversed(self.block.readers[value]):
                self._work.setdefault(reader)

    def _note_readers(self, value: Value) -> None:
        self._changed.update(dict.fromkeys(self.block.readers.get(value, ())))

    def _released(self, values: Iterable[Value], read: Container[Value] = ()) -> None:
        """Note the producers of values that an operation reads no longer, unless in ``read``.

        A producer may be dead, or have one use now. As in MLIR, one that has changed and has at
        most one reader left is visited next.
        """
        for value in dict.fromkeys(values):
            maker = self.block.made_by.get(value)
            if maker is None:
                if value.kind == "fill":  # a reshape may be its only reader now
                    self._note_readers(value)
                continue
            if value not in read:
                self._changed[maker] = None
                for result in maker.results:
                    self._note_readers(result)
            if maker in self._changed and len(self.block.readers[value]) < 2:
                self._work.setdefault(maker)

    def _fuse_first(self, consumer: Generic) -> bool:
        """Fuse the first operand that qualifies; returns whether one does."""
        block = self.block
        refusals: list[tuple[OpOperand, Refusal]] = []
        for index, value in enumerate(consumer.operands):
            if value not in block.made_by:
                continue
            if self.merges and _is_repeated(consumer, index):
                continue  # one operand, once companions have merged them
            operand = block.operand(consumer, index)
            fused = self.rules.fused(operand)
            if not isinstance(fused, Refusal):
                self._commit(operand, fused.generic, fused.replaced)
                return True
            refusals.append((operand, fused))
            if fused.key == "bounds-lost" and self.coverage == "upstream":
                break  # MLIR tries no further operand once a fusion has failed
        block.refusals[consumer] = refusals
        return False

    def _fuse_through_reshape(self, consumer: Op) -> bool:
        """Fuse the first producer behind a reshape that only ``consumer`` reads."""
        block = self.block
        if not isinstance(consumer, Generic) or consumer not in block.place:
            return False
        for index, value in enumerate(consumer.ins):
            reshape = block.made_by.get(value)
            if not isinstance(reshape, Opaque) or reshape.name not in {EXPAND, COLLAPSE}:
                continue
            source = block.operand(reshape, 0)
            producer = source.producer
            if not isinstance(producer, Generic) or len(producer.results) > 1:
                continue
            reasons: list[Refusal] = []
            if source.uses > 1 or block.operand(consumer, index).uses > 1:
                reasons.append(Refusal(RESHAPE, "something else reads it, or its operand"))
            else:
                for attempt in through_reshape(reshape, producer, consumer, index):
                    if isinstance(attempt, Refusal):
                        reasons.append(attempt)
                        continue
                    operand, moved = attempt
                    fused = self.rules.fused(operand)
                    if not isinstance(fused, Refusal):
                        ops = (*moved.before, fused.generic, *moved.after)
                        self._swap(consumer, Change(ops, {}))
                        self._changed.update(self._work)
                        return True
                    reasons.append(Refusal(RESHAPE, str(fused)))
            noted = block.refusals.setdefault(consumer, [])
            noted[:] = [each for each in noted if each[0].index != index]
            noted += [(block.operand(consumer, index), reason) for reason in reasons]
        return False

    def _commit(self, operand: OpOperand, fused: Generic, replaced: Mapping[Value, Value]) -> None:
        block, producer, consumer = self.block, operand.producer, operand.consumer
        assert isinstance(producer, Generic)
        share = self.multi_use == "share" and bool(operand.shared)
        if share:
            block.move_readers_behind(producer, consumer)
        self._visit_next(consumer, (fused,))
        block.replace(consumer, (fused,), {})
        if share:
            moved = {old: new for old, new in replaced.items() if old is not new}
            for value in moved:
                self._note_readers(value)
            for old, new in moved.items():
                block.redirect(old, new)
                self._note_readers(new)
        if producer not in self._work and all(map(block.is_dead, producer.results)):
            block.remove(producer)
            self._released((*producer.ins, *producer.scalars), fused.ins)
        else:
            for result in producer.results:
                self._note_readers(result)


_PURE = ("arith.", "complex.", "linalg.", "math.", "scf.", "tensor.")
"""Dialects of operations on values that have no other effects."""


def _is_pure(op: Op) -> bool:
    """Whether nothing happens but its results, and those of the operations in its regions."""
    return isinstance(op, Generic) or op.name.startswith(_PURE)


def _is_transpose(op: Generic) -> bool:
    return op.named is not None and op.named.name == "linalg.transpose"


def _is_whole(op: Opaque) -> bool:
    """Whether it is a slice of the whole tensor, or a concatenation of one."""
    if op.name not in {"tensor.extract_slice", "tensor.concat"} or len(op.operands) != 1:
        return False
    return op.operands[0].shape == op.results[0].shape and None not in (op.results[0].shape or ())


def _undone(block: Block, op: Opaque) -> Value | None:
    """The source of a reshape that undoes the one before it, as fusion leaves them."""
    first = block.made_by.get(op.operands[0]) if op.operands else None
    return first.operands[0] if isinstance(first, Opaque) and undoes(op, first) else None


def _note_boundary(block: Block, op: Op) -> None:
    """Note the Generics that are operands of another kind of operation."""
    read = [block.operand(op, index) for index in range(len(op.operands))]
    refusals = [
        (each, consumer_is_generic(each)) for each in read if isinstance(each.producer, Generic)
    ]
    block.refusals[op] = [(each, refusal) for each, refusal in refusals if refusal is not None]


def _is_repeated(consumer: Generic, index: int) -> bool:
    """Whether an in occurs twice with the same map."""
    value, map_ = consumer.operands[index], consumer.maps[index]
    if index >= len(consumer.ins) or consumer.ins.count(value) == 1:
        return False
    return list(zip(consumer.ins, consumer.maps, strict=False)).count((value, map_)) > 1


def fuse_block(
    generics: Iterable[Op],
    control: str | Control = "one-use",
    multi_use: str = "refuse",
    *,
    outputs: Iterable[Value] | None = None,
    companions: Collection[str] = DEFAULT_COMPANIONS,
    coverage: str = "preserved",
    controls: Mapping[str, Control] | None = None,
) -> Block:
    """As ``fuse_all``; the block has the values that replace the outputs."""
    block = Block(generics, outputs)
    chosen = control_named(control, controls) if isinstance(control, str) else control
    Driver(block, chosen, multi_use_named(multi_use), companions, coverage).run()
    return block


def fuse_all(
    generics: Iterable[Op],
    control: str | Control = "one-use",
    multi_use: str = "refuse",
    *,
    outputs: Iterable[Value] | None = None,
    companions: Collection[str] = DEFAULT_COMPANIONS,
    coverage: str = "preserved",
    controls: Mapping[str, Control] | None = None,
) -> list[Op]:
    """Fuse to a fixed point; returns the operations that remain, in order.

    Args:
        generics: the operations in topological order; an ``Opaque`` bounds fusion.
        control: which legal fusions are done, by name or as a function.
        multi_use: other readers of a producer: ``refuse``, ``duplicate`` or ``share``.
        outputs: values that are read outside; every result that nothing reads unless given.
        companions: the patterns that are applied to each consumer.
        coverage: see ``reductions_are_covered``.
        controls: further control functions by name.

    Raises:
        ControlError: no control function or multi-use has that name.
        ValueError: the order is wrong, a value is made twice, or a companion is unknown.
    """
    block = fuse_block(
        generics,
        control,
        multi_use,
        outputs=outputs,
        companions=companions,
        coverage=coverage,
        controls=controls,
    )
    return block.ops
