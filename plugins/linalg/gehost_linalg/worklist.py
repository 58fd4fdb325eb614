"""Which operations are visited next, in the order of MLIR's driver."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from gehost_linalg.block import Block
from gehost_linalg.companions import Change
from gehost_linalg.generic import Op, Value


class Worklist:
    """Operations that are due, and what happens to them when a block changes.

    Attributes:
        due: taken from its end, as in MLIR; an operation that is added again keeps its place.
        changed: what has changed since its last visit, for the next round.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.due: dict[Op, None] = {}
        self.changed: dict[Op, None] = dict.fromkeys(block.ops)
        self._furthest = 0
        """The last place that was visited in this round; the readers of what is there are due."""

    def operations(self) -> Iterator[Op]:
        """What has changed, from inputs to outputs, round after round until nothing does."""
        block = self.block
        while present := [op for op in self.changed if op in block.place]:
            ordered = sorted(present, key=block.place.__getitem__, reverse=True)
            self.due, self.changed, self._furthest = dict.fromkeys(ordered), {}, 0
            while self.due:
                op, _ = self.due.popitem()
                if op in block.place:
                    self.changed.pop(op, None)
                    self._furthest = max(self._furthest, block.place[op])
                    yield op

    def swap(self, op: Op, change: Change, *, readers: bool = True) -> None:
        """Do a change; the producers that it releases are visited next."""
        block = self.block
        for value in change.replaced:
            self.note_readers(value)
        self.visit_next(op, change.ops, readers=readers)
        block.replace(op, change.ops, change.replaced)
        for value in change.replaced.values():
            self.note_readers(value)
        read = {value for result in change.ops for value in (*result.operands, *result.scalars)}
        self.release((*op.operands, *op.scalars), read)

    def visit_next(self, old: Op, ops: tuple[Op, ...], *, readers: bool = True) -> None:
        """Visit the readers of ``old`` and then ``ops``, which replace it, unless they are due."""
        self.due.update(dict.fromkeys(reversed(ops)))
        is_passed = self.block.place[old] < self._furthest
        for value in old.results if readers else ():
            if not is_passed:
                self.note_readers(value)  # a later round may have no other reason to visit them
                continue
            for reader in reversed(self.block.readers[value]):
                self.due.setdefault(reader)

    def note_readers(self, value: Value) -> None:
        self.changed.update(dict.fromkeys(self.block.readers.get(value, ())))

    def release(self, values: Iterable[Value], read: Container[Value] = ()) -> None:
        """Note the producers of values that an operation reads no longer, unless in ``read``.

        A producer may be dead, or have one use now. As in MLIR, one that has changed and has at
        most one reader left is visited next.
        """
        for value in dict.fromkeys(values):
            maker = self.block.made_by.get(value)
            if maker is None:
                if value.kind == "fill":  # a reshape may be its only reader now
                    self.note_readers(value)
                continue
            if value not in read:
                self.changed[maker] = None
                for result in maker.results:
                    self.note_readers(result)
            if maker in self.changed and len(self.block.readers[value]) < 2:
                self.due.setdefault(maker)
