"""Fuses operations to a fixed point, from inputs to outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gehost_linalg.block import Block
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
from gehost_linalg.generic import Generic, Op, Opaque, Value
from gehost_linalg.reshape import (
    COLLAPSE,
    EXPAND,
    EXPANSION,
    MERGING,
    RESHAPE,
    folded_reshape,
    moved_consumer,
    moved_producer,
    through_reshape,
    undone,
)
from gehost_linalg.units import UNITS, drop_units
from gehost_linalg.worklist import Worklist

DEFAULT_COMPANIONS = tuple(COMPANIONS)
ALL_COMPANIONS = (*COMPANIONS, RESHAPE, EXPANSION, MERGING, UNITS)
MLIR_COMPANIONS = (*COMPANIONS, EXPANSION)
"""Those of MLIR's ``linalg-fuse-elementwise-ops``."""
MOST_SCALAR_OPS = 1024
"""Largest payload made by duplicating producers; each layer of a graph may double it."""


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
        self.around = Surroundings(block.made_by.get, block.is_dead, block.has_one_use)
        self.worklist = Worklist(block)

    def run(self) -> None:
        """Fuse until nothing qualifies; then through reshapes and without unit loops, if on."""
        while True:
            for op in self.worklist.operations():
                self._visit(op)
            if not (self.reshapes and any(map(self._fuse_through_reshape, self.block.ops))):
                break
        if self.drops_units:
            drop_units(self.block)

    def _visit(self, op: Op) -> None:
        """Remove, fuse or change an operation."""
        block = self.block
        dead = block.dead(op)
        for item in reversed(dead):
            block.remove(item)
            self.worklist.release((*item.operands, *item.scalars))
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
                    self.worklist.note_readers(value)
                self.worklist.swap(op, Change((*moved.before, moved.generic, *moved.after), {}))

    def _visit_opaque(self, op: Opaque) -> None:
        """Fold an operation, or move it over what it reads or what reads it."""
        block = self.block
        reshapes = op.name in {EXPAND, COLLAPSE}
        operand = block.operand(op, 0) if op.operands else None
        source = operand.value if operand is not None and _is_whole(op) else None
        if operand is not None and reshapes and (self.reshapes or self.moves):
            source = undone(op, operand)
        if source is not None:
            self.worklist.swap(op, Change((), {op.results[0]: source}))
        elif op.name == "tensor.concat" and self._split_reader(op):
            pass
        elif operand is None or not (self.moves and reshapes and self._move(op, operand)):
            _note_boundary(block, op)

    def _split_reader(self, concat: Opaque) -> bool:
        """Split the one reader of a concatenation, which MLIR does before it fuses it."""
        readers = list(self.block.readers[concat.results[0]])
        reader = readers[0] if len(readers) == 1 else None
        if split_concat not in self.companions or not isinstance(reader, Generic):
            return False
        result = split_concat(reader, self.around) if reader.named is None else None
        if result is not None:
            self.worklist.swap(reader, result)
        return result is not None

    def _move(self, op: Opaque, operand: OpOperand) -> bool:
        """Fold a reshape, or compute its operand over the axes behind it."""
        folded = folded_reshape(op, operand, splits=self.splits)
        if folded is not None:
            self.worklist.swap(op, folded)
            return True
        moved, producer = moved_producer(op, operand, splits=self.splits), operand.producer
        if moved is None or producer is None:
            return False
        readers = list(self.block.readers[op.results[0]])
        self.worklist.changed.update(dict.fromkeys(readers))
        for reader in reversed(readers):  # what they read is made by another operation
            self.worklist.due.setdefault(reader)
        self.block.remove(op)
        self.worklist.swap(producer, Change((*moved.before, moved.generic, *moved.after), {}))
        return True

    def _change(self, op: Generic) -> bool:
        """Apply the first companion that changes ``op``; returns whether one does."""
        for companion in self.companions:
            if op.named is not None and not (companion is erase_copy and _is_transpose(op)):
                continue  # MLIR folds a transposition that changes nothing, and no other name
            result = companion(op, self.around)
            if result is not None:
                if isinstance(result, Change):
                    self.worklist.swap(op, result)
                else:  # MLIR changes it in place, and does not visit its readers
                    self.worklist.swap(op, Change((result,), {}), readers=False)
                return True
        return False

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
                        self.worklist.swap(consumer, Change(ops, {}))
                        self.worklist.changed.update(self.worklist.due)
                        return True
                    reasons.append(Refusal(RESHAPE, str(fused)))
            noted = block.refusals.setdefault(consumer, [])
            noted[:] = [item for item in noted if item[0].index != index]
            noted += [(block.operand(consumer, index), reason) for reason in reasons]
        return False

    def _commit(self, operand: OpOperand, fused: Generic, replaced: Mapping[Value, Value]) -> None:
        block, producer, consumer = self.block, operand.producer, operand.consumer
        assert isinstance(producer, Generic)
        share = self.multi_use == "share" and bool(operand.shared)
        if share:
            block.move_readers_behind(producer, consumer)
        self.worklist.visit_next(consumer, (fused,))
        block.replace(consumer, (fused,), {})
        if share:
            moved = {old: new for old, new in replaced.items() if old is not new}
            for value in moved:
                self.worklist.note_readers(value)
            for old, new in moved.items():
                block.redirect(old, new)
                self.worklist.note_readers(new)
        if producer not in self.worklist.due and all(map(block.is_dead, producer.results)):
            block.remove(producer)
            self.worklist.release((*producer.ins, *producer.scalars), fused.ins)
        else:
            for result in producer.results:
                self.worklist.note_readers(result)


def _is_transpose(op: Generic) -> bool:
    return op.named is not None and op.named.name == "linalg.transpose"


def _is_whole(op: Opaque) -> bool:
    """Whether it is a slice of the whole tensor, or a concatenation of one."""
    if op.name not in {"tensor.extract_slice", "tensor.concat"} or len(op.operands) != 1:
        return False
    return op.operands[0].shape == op.results[0].shape and None not in (op.results[0].shape or ())


def _note_boundary(block: Block, op: Op) -> None:
    """Note the Generics that are operands of another kind of operation."""
    read = [block.operand(op, index) for index in range(len(op.operands))]
    refusals = [
        (item, consumer_is_generic(item)) for item in read if isinstance(item.producer, Generic)
    ]
    block.refusals[op] = [(item, refusal) for item, refusal in refusals if refusal is not None]


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
