"""Groups of operations over the same rows, which become one kernel each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gehost import Node
from gehost_linalg.affine import dims_of
from gehost_linalg.block import Block
from gehost_linalg.control import TRANSCENDENTAL, Control, MultiUse
from gehost_linalg.driver import DEFAULT_COMPANIONS, Driver
from gehost_linalg.fusability import OpOperand, Refusal
from gehost_linalg.generic import REDUCTION, Generic, Op, Opaque
from gehost_linalg.groups.lowered import MOVEMENT, Lowered
from gehost_linalg.groups.row_space import Rows, is_boundary, joined, reads_rows, rows_of

MOST_NODES = 256
"""Nodes of one group; a larger kernel gains nothing."""

MOST_STEPS = 1000
"""Operations that are looked at for a path out of a group and back; where there are more, the
groups stay apart.
"""

GROUP_COMPANIONS = tuple(
    [
        each
        for each in DEFAULT_COMPANIONS
        if each not in {"split-concat", "erase-copy", "fold-scalars"}
    ]
)
"""A node is replaced as a whole: it must not be split, nor vanish, nor compute something else."""

_EXPENSIVE = TRANSCENDENTAL - {"math.sqrt", "math.rsqrt"}


@dataclass(eq=False)
class Group:
    """Operations that become one kernel.

    Attributes:
        ops: in order.
        rows: the domain, None where the group is one operation that has none.
        nodes: the ONNX nodes.
    """

    ops: list[Op]
    rows: Rows | Refusal
    nodes: dict[Node, None] = field(default_factory=dict[Node, None])

    @property
    def computes(self) -> int:
        """How many of its nodes compute something."""
        return sum(node.op not in MOVEMENT for node in self.nodes)

    @property
    def is_worth_a_kernel(self) -> bool:
        """Whether it saves a pass over its elements.

        It computes twice, or once on the way to another order of axes.
        """
        return self.computes > 1 or (self.computes == 1 and any(map(reorders_axes, self.nodes)))

    def expensive_scalar_op(self) -> str | None:
        """Return an operation on one number that costs more than a kernel's call, or None.

        None, too, if a row is reduced before it: the numbers then come from this kernel.
        """
        result: str | None = None
        for op in self.ops:
            if isinstance(op, Opaque) or REDUCTION in op.iterators:
                return None
            result = next((item.name for item in op.payload.ops if item.name in _EXPENSIVE), result)
        return result


def reorders_axes(node: Node) -> bool:
    """Whether a node is a Transpose to another order of axes."""
    if node.op != "Transpose":
        return False
    perm = node.attrs.get("perm")
    return perm is None or list(perm) != sorted(perm)


class Grouping:
    """Joins operations into groups.

    Attributes:
        refusals: for each operand that connects two groups, why they stay apart.
    """

    def __init__(self, block: Block, counts: Mapping[Node, int], *, rows: bool = True) -> None:
        self.block = block
        self.counts = counts
        self.refusals: dict[Op, list[tuple[OpOperand, Refusal]]] = {}
        self._group: dict[Op, Group] = {}
        self._at = {op: place for place, op in enumerate(block.ops)}
        self._rows = {op: rows_of(op) for op in self._at}
        whole: dict[Node, Group] = {}
        for op, own in self._rows.items():
            group = self._group[op] = Group([op], own, dict.fromkeys(op.origins))
            for node in op.origins:
                if counts.get(node, 1) > 1:  # a node is replaced as a whole
                    other = whole.setdefault(node, group)
                    group = self._merge(
                        other, group, other.rows if not isinstance(group.rows, Rows) else group.rows
                    )
                    whole[node] = group
        for group in set(whole.values()):
            self._whole_domain(group)
        if rows:
            for op in self._at:
                self._join(op)

    def groups(self) -> list[Group]:
        """The groups with a lowered operation, ordered by their last one."""
        result = dict.fromkeys(self._group[op] for op in self.block.ops)
        items = [group for group in result if not any(is_boundary(op) for op in group.ops)]
        for group in items:
            group.ops.sort(key=self._at.__getitem__)
            group.nodes = dict.fromkeys(node for op in group.ops for node in op.origins)
        return sorted(items, key=lambda group: self._at[group.ops[-1]])

    def group_of(self, op: Op) -> Group:
        return self._group[op]

    def _whole_domain(self, group: Group) -> None:
        """Give a node of several operations the domain of all together."""
        result = self._rows[group.ops[0]]
        for op in group.ops[1:]:
            own = self._rows[op]
            if isinstance(result, Refusal) or isinstance(own, Refusal):
                result = result if isinstance(result, Refusal) else own
                break
            result = joined(result, own, parts=True)
        group.rows = result

    def _merge(self, first: Group, second: Group, rows: Rows | Refusal) -> Group:
        if first is second:
            return first
        big, small = (first, second) if len(first.ops) >= len(second.ops) else (second, first)
        big.ops += small.ops
        big.nodes.update(small.nodes)
        big.rows = rows
        for op in small.ops:
            self._group[op] = big
        return big

    def _join(self, consumer: Op) -> None:
        """Join a consumer's group with its producers' over the same rows."""
        if is_boundary(consumer):
            return
        refused: list[tuple[OpOperand, Refusal]] = []
        for index, value in enumerate(consumer.operands):
            producer = self.block.made_by.get(value)
            if producer is None or is_boundary(producer):
                continue
            first, second = self._group[producer], self._group[consumer]
            if first is second:
                continue
            refusal = self._join_pair(first, second, producer, consumer, index)
            if refusal is not None:
                refused.append((self.block.operand(consumer, index), refusal))
        if refused:
            self.refusals[consumer] = refused

    def _join_pair(
        self, first: Group, second: Group, producer: Op, consumer: Op, index: int
    ) -> Refusal | None:
        """Join two groups, or return the refusal."""
        for rows in (first.rows, second.rows):
            if isinstance(rows, Refusal):
                return rows
        assert isinstance(first.rows, Rows)
        assert isinstance(second.rows, Rows)
        refusal = reads_rows(consumer, index)
        if refusal is not None:
            return refusal
        parts = (
            isinstance(producer, Opaque)
            or isinstance(consumer, Opaque)
            or self._has_parts(first, second)
        )
        rows = joined(first.rows, second.rows, parts=parts)
        if isinstance(rows, Refusal):
            return rows
        expensive = first.expensive_scalar_op() if first.rows.row == 1 != rows.row else None
        if expensive is not None:
            return Refusal("per-row", f"{expensive} of one number per row is vectorized by itself")
        if len(first.nodes) + len(second.nodes) > MOST_NODES:
            return Refusal("too-large", f"more than {MOST_NODES} nodes")
        between = self._path_back(first, second)
        if between is not None:
            return Refusal("cycle", between)
        self._merge(first, second, rows)
        return None

    def _has_parts(self, first: Group, second: Group) -> bool:
        return any(
            isinstance(op, Opaque) for group in (first, second) for op in group.ops if op.operands
        )

    def _path_back(self, first: Group, second: Group) -> str | None:
        """Find an operation on a path out of two groups and back."""
        inside = {first, second}
        last = max(self._at[op] for group in inside for op in group.ops)
        visited: set[Op] = set()
        stack: list[Op] = []
        for group in (first, second):
            stack += [
                reader
                for op in group.ops
                for reader in self._readers(op)
                if self._group[reader] not in inside
            ]
        while stack:
            op = stack.pop()
            if op in visited or self._at[op] > last:
                continue
            visited.add(op)
            if len(visited) > MOST_STEPS:
                return f"not looked for any further than {MOST_STEPS} operations"
            for member in self._group[op].ops:  # another group is left by any of its operations
                for reader in self._readers(member):
                    if self._group[reader] in inside:
                        return f"through {op.label or op.name}"
                    stack.append(reader)
        return None

    def _readers(self, op: Op) -> Iterable[Op]:
        return [reader for value in op.results for reader in self.block.readers.get(value, ())]


def fused_block(
    lowered: Lowered, control: Control, multi_use: MultiUse, companions: Sequence[str]
) -> Block:
    """The operations of a graph after companions and fusion."""
    reducing = {
        node
        for op in lowered.ops
        if isinstance(op, Generic) and REDUCTION in op.iterators
        for node in op.origins
    }

    def keeps_rows(operand: OpOperand) -> bool | str:
        """A node that reduces is replaced as a whole: none of it moves to rows of a split axis."""
        producer, consumer = operand.generics()
        read = consumer.maps[operand.index].results
        if any(len(dims_of(item)) > 1 for item in read) and not reducing.isdisjoint(
            producer.origins
        ):
            return "the rest of its node reduces whole rows, which are split here"
        return control(operand)

    block = Block(lowered.ops, lowered.outputs)
    Driver(block, keeps_rows, multi_use, companions, limit=MOST_NODES).run()
    return block
