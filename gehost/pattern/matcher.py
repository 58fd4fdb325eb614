"""Patterns compiled to closures over the index.

A fixed order of steps from the operator that makes output 0, with backtracking only where operands
may swap or another output is looked for among readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.ir.region import Region
from gehost.pattern.bind_op import Bind, Binding, Step, bound_by
from gehost.pattern.roots import Roots
from gehost.pattern.source import Kind, OpPattern, SourcePattern, TensorPattern


class CompiledPattern:
    """A source pattern and its variants as closures over the index."""

    def __init__(self, source: SourcePattern) -> None:
        self.source = source
        self._variants = [_Variant(variant) for variant in (source, *source.variants)]

    @property
    def anchor_ops(self) -> tuple[str, ...]:
        """The operators that make output 0."""
        return tuple(dict.fromkeys([op for variant in self._variants for op in variant.anchor.ops]))

    def candidates(self, graph: Graph) -> tuple[list[Node], bool]:
        """The nodes that may make output 0 of a match in the graph as it is, in topological order.

        Also whether these are all nodes of the operator; else a rewrite may bring more, see
        ``reached_from``.
        """
        if len(self._variants) > 1:
            return graph.nodes_of(*self.anchor_ops), True
        return self._variants[0].candidates.of(graph)

    def reached_from(self, node: Node) -> list[Node]:
        """The nodes that may make output 0 of a match in which ``node`` is the newest."""
        return [
            found for variant in self._variants for found in variant.candidates.reached_from(node)
        ]

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        """Match with ``node`` making output 0.

        Returns:
            The first self-contained binding, or None; and, where complete bindings failed only
            because a tensor inside has other readers, these tensors.
        """
        blocked: list[Value] = []
        for variant in self._variants:
            if node.op in variant.anchor.ops:
                binding, blocking = variant.match_at(node)
                if binding is not None:
                    return binding, []
                blocked += blocking
        return None, blocked


class _Variant:
    def __init__(self, source: SourcePattern) -> None:
        self._source = source
        self._blocked: list[Value] = []
        readers = Counter(
            [index for op in source.ops for index in {t.index for t in op.inputs if t is not None}]
        )
        self._inner = [(index, readers[index]) for index in source.inner]
        plan, needed = plan_of(source), source.needed
        binds_attributes = any(
            constraint.kind is Kind.BIND for op in source.ops for constraint in op.constraints
        )
        ops = [op for op, _ in plan]
        self.anchor = ops[0]
        then: Step = self._finish
        straight: list[_Straight] = []
        """What leaves no choice, the last step first."""
        for position in range(len(plan) - 1, 0, -1):
            op, link = plan[position]
            bind = Bind(op, ops[:position], needed, binds_attributes=binds_attributes)
            if link is not None and link.producer == op.index and not op.commutative:
                straight.append((link.index, link.slot, frozenset(op.ops), bind.node))
            else:
                then, straight = _one_of(bind, link, _in_turn(straight, then)), []
        self._bind_anchor = Bind(self.anchor, [], needed, binds_attributes=binds_attributes)
        self._after_anchor = _in_turn(straight, then)
        self.candidates = Roots(source, self.anchor)

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        self._blocked = []
        binding = Binding(node.graph, self._source)
        if self._bind_anchor.then(binding, node, self._after_anchor):
            return binding, []
        return None, self._blocked

    def _finish(self, binding: Binding) -> bool:
        """Every reader of every inner tensor is inside the match, and joining the match closes
        no cycle.
        """
        nodes = binding.nodes
        # so many operators of the pattern read it, which are all bound
        for index, readers in self._inner:
            value = binding.values[index]
            if value is None or (readers == 1 and isinstance(value.read_by, Node)):
                continue
            if len(value.readers) != readers:  # else they are those of the pattern
                for reader in value.readers:
                    if reader not in nodes:
                        self._blocked.append(value)
                        return False
        return not _would_cycle(binding)


def _would_cycle(binding: Binding) -> bool:
    """Whether a complete match's outputs feed it through nodes outside; with a single output
    they cannot.
    """
    source, values = binding.source, binding.values
    if len(source.outputs) == 1:
        return False
    outputs = [value for index in source.outputs if (value := values[index]) is not None]
    nodes = sorted((node for node in binding.nodes if node is not None), key=by_order)
    return Region(
        binding.graph, [values[index] for index in source.inputs], outputs, nodes
    ).closes_cycle()


# -- the order of steps
# ---------------------------------------------------------------------------------------------

Link: TypeAlias = TensorPattern | None
"""How a step reaches its operator: the tensor that it makes, or one that it reads; None: any
node of the graph.
"""


def plan_of(source: SourcePattern) -> list[tuple[OpPattern, Link]]:
    """All operators, the anchor first, each after a tensor that leads to it."""
    producer = source.tensors[source.outputs[0]].producer
    assert producer is not None
    plan: list[tuple[OpPattern, Link]] = []
    placed: set[int] = set()

    def place(op: OpPattern, link: Link) -> None:
        placed.add(op.index)
        plan.append((op, link))
        for tensor in op.inputs:
            if tensor is not None and tensor.producer is not None and tensor.producer not in placed:
                place(source.ops[tensor.producer], tensor)

    place(source.ops[producer], None)
    while len(plan) < len(source.ops):
        known = bound_by([op for op, _ in plan])
        waiting = [op for op in source.ops if op.index not in placed]
        reading = [
            (op, t)
            for op in waiting
            for t in op.inputs
            if t is not None and t.constant is None and t.index in known
        ]
        place(*(reading[0] if reading else (waiting[0], None)))
    return plan


# -- steps
# ----------------------------------------------------------------------------------------------------------


_Straight: TypeAlias = tuple[int, int, frozenset[str], Callable[[Binding, Node], bool]]
"""A step to the node that makes a tensor: the tensor, which output it is, of which operators,
and what binds the node.
"""


def _in_turn(last_first: Sequence[_Straight], then: Step) -> Step:
    """Some steps, none of which leaves a choice, and what comes after them."""
    if not last_first:
        return then
    steps = tuple(reversed(last_first))

    def in_turn(binding: Binding) -> bool:
        values = binding.values
        for index, slot, ops, bind_node in steps:
            value = values[index]
            assert value is not None
            node = value.producer
            if (
                node is None
                or node.op not in ops
                or value.index != slot
                or not bind_node(binding, node)
            ):
                return False
        return then(binding)

    return in_turn


def _one_of(bind: Bind, link: Link, then: Step) -> Step:
    """To a node of which there may be several, or whose operands may swap, until everything
    after it fits too.
    """
    ops = bind.op.ops

    def nodes(binding: Binding) -> Iterable[Node]:
        if link is None:
            return binding.graph.nodes_of(*ops)
        value = binding.values[link.index]
        if value is None:
            return ()
        if link.producer != bind.op.index:
            readers = [
                reader for reader in value.readers if isinstance(reader, Node) and reader.op in ops
            ]
            return sorted(
                (reader for reader in readers if reader.graph is binding.graph), key=by_order
            )
        made = value.producer
        return (made,) if made is not None and made.op in ops and value.index == link.slot else ()

    def one_of(binding: Binding) -> bool:
        return any(bind.then(binding, node, then) for node in nodes(binding))

    return one_of
