"""Operations in order, with the readers of every value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gehost_linalg.fusability import OpOperand, Refusal
from gehost_linalg.generic import Generic, Op, Opaque, Value, scalars_of

_PURE = ("arith.", "complex.", "linalg.", "math.", "scf.", "tensor.")
"""Dialects of operations on values that have no other effects."""


def _is_pure(op: Op) -> bool:
    """Whether nothing happens but its results, and those of the operations in its regions."""
    return isinstance(op, Generic) or op.name.startswith(_PURE)


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

    def has_one_use(self, value: Value) -> bool:
        return value not in self._kept and sum(self.readers.get(value, {}).values()) == 1

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
            operands = [other if operand is value else operand for operand in reader.operands]
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
            self.outputs = [other if operand is value else operand for operand in self.outputs]

    def region(self, op: Opaque) -> list[Op]:
        """All operations of one with regions, of which ``op`` is the first or the last."""
        step, place, depth = (1 if op.part == "open" else -1), self.place[op], 0
        inside: list[Op] = []
        while not inside or depth:
            item = self.at[place]
            place += step
            if item is not None:
                inside.append(item)
            if isinstance(item, Opaque):
                depth += (item.part == "open") - (item.part == "close")
        return inside[::step]

    def dead(self, op: Op) -> list[Op]:
        """The operation with all in its regions, if it only makes results that nothing reads."""
        part = op.part if isinstance(op, Opaque) else ""
        ops = self.region(op) if isinstance(op, Opaque) and part in {"open", "close"} else [op]
        is_dead = all(map(self.is_dead, ops[-1].results)) and all(map(_is_pure, ops))
        return ops if is_dead and part != "next" and (part or op.results) else []

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
                item for value in op.results for item in self.readers[value]
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
                (result := self.made_by.get(operand)) is producer or result in behind
                for operand in (*op.operands, *op.scalars)
            ):
                behind.add(op)
        if behind:
            window = [op for op in self.at[first : last + 1] if op not in behind]
            window += [op for op in self.at[first : last + 1] if op in behind]
            self.at[first : last + 1] = window
            self.place.update(
                {op: first + offset for offset, op in enumerate(window) if op is not None}
            )
