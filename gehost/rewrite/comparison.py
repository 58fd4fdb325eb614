"""Find replacements that equal the matched nodes and would change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gehost.ir.graph import Node, Value
from gehost.rewrite.shape_proof import NodeState


class Comparison:
    """Compares old and new nodes one by one, from the outputs up."""

    def __init__(self, old: Sequence[NodeState], new: Sequence[NodeState]) -> None:
        self._old = {
            value: (step, slot)
            for step in old
            for slot, value in enumerate(step.outputs)
            if value is not None
        }
        self._new = {
            value: (step, slot)
            for step in new
            for slot, value in enumerate(step.outputs)
            if value is not None
        }
        self._pairs: dict[Node, Node] = {}

    def covers(self, steps: Sequence[NodeState]) -> bool:
        """Whether every node of ``steps`` has a counterpart of its own."""
        return len(self._pairs) == len(steps) == len(set(self._pairs.values()))

    def equal(self, old: Value | None, new: Value | None) -> bool:
        if old is None or new is None:
            return old is new
        before, after = self._old.get(old), self._new.get(new)
        if before is None or after is None:
            return before is after and (old is new or _equal_constants(old, new))
        (ours, slot), (theirs, other_slot) = before, after
        if ours.node in self._pairs:
            return slot == other_slot and self._pairs[ours.node] is theirs.node
        if (
            slot != other_slot
            or ours.node.op != theirs.node.op
            or len(ours.outputs) != len(theirs.outputs)
        ):
            return False
        if (
            len(ours.inputs) != len(theirs.inputs)
            or ours.node.attrs.serialized() != theirs.node.attrs.serialized()
        ):
            return False
        self._pairs[ours.node] = theirs.node
        return all(self.equal(a, b) for a, b in zip(ours.inputs, theirs.inputs, strict=True))


def _equal_constants(left: Value, right: Value) -> bool:
    if not (left.is_constant and right.is_constant) or left.type != right.type:
        return False
    a, b = left.array, right.array
    return (
        a is not None
        and b is not None
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.tobytes() == b.tobytes()
    )
