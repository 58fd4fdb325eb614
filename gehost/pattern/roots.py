"""Candidates for a match's root, found from its rarest operator's nodes."""

from __future__ import annotations

from collections.abc import Iterable

from gehost.es.schemas import Signature
from gehost.ir.graph import Graph, Node, by_order
from gehost.pattern.source import ANY, OpPattern, SourcePattern

_WALK_COST = 2
"""Cost of reaching a candidate, relative to checking one."""


class _Way:
    """A step from an operator of the pattern to a user."""

    __slots__ = ("end", "first", "output", "reader")

    def __init__(self, output: int, reader: OpPattern, first: int, end: int) -> None:
        self.output = output
        self.reader = reader
        self.first = first
        """The output is one of the reader's inputs from ``first`` to before ``end``."""
        self.end = end


class Roots:
    """The nodes that may match ``anchor``, the operator that produces output 0."""

    def __init__(self, source: SourcePattern, anchor: OpPattern) -> None:
        self._source = source
        self._anchor = anchor
        self._ways: dict[int, _Way] = {}
        """Operator → the first step of a shortest way to the anchor."""
        waiting = [anchor]
        for reader in waiting:  # grows during the loop
            for slot, tensor in enumerate(reader.inputs):
                if tensor is None or tensor is ANY or tensor.producer is None:
                    continue
                if tensor.producer != anchor.index and tensor.producer not in self._ways:
                    first, end = (0, len(reader.inputs)) if reader.commutative else (slot, slot + 1)
                    self._ways[tensor.producer] = _Way(tensor.slot, reader, first, end)
                    waiting.append(source.ops[tensor.producer])
        self._starts: dict[str, list[OpPattern]] = {}
        """Operator → starting points of a walk to the anchor."""
        for op in source.ops:
            if op is anchor or op.index in self._ways:
                for name in op.ops:
                    self._starts.setdefault(name, []).append(op)
        self._feeders: list[tuple[int, int, dict[str, Signature | None]]] = [
            (slot, tensor.slot, source.ops[tensor.producer].ops)
            for slot, tensor in enumerate(anchor.inputs)
            if not (
                anchor.commutative or tensor is None or tensor is ANY or tensor.producer is None
            )
        ]

    def of(self, graph: Graph) -> tuple[list[Node], bool]:
        """Return the candidates in a graph now, in topological order.

        The second result is whether they are all nodes of the anchor's operators.
        """
        counts = [sum(len(graph.by_op.get(name, ())) for name in op.ops) for op in self._source.ops]
        if 0 in counts:
            return [], False
        rarest = min(
            (self._source.ops[index] for index in self._ways),
            key=lambda op: counts[op.index],
            default=self._anchor,
        )
        if counts[rarest.index] * _WALK_COST > counts[self._anchor.index]:
            rarest = self._anchor
        if rarest is self._anchor and not self._feeders:
            return graph.nodes_of(*rarest.ops), True
        nodes = [node for name in rarest.ops for node in graph.by_op.get(name, ())]
        found = [node for node in self._walk(nodes, rarest) if self.is_fed(node)]
        return sorted(found, key=by_order), False

    def is_fed(self, node: Node) -> bool:
        """Whether the anchor's operands come from the right operators.

        This quick check rejects most candidates.
        """
        inputs = node.inputs
        for slot, output, ops in self._feeders:
            value = inputs[slot] if slot < len(inputs) else None
            if (
                value is None
                or value.index != output
                or value.producer is None
                or value.producer.op not in ops
            ):
                return False
        return True

    def reached_from(self, node: Node) -> list[Node]:
        """Return the candidates of matches with ``node`` as the newest."""
        found: dict[Node, None] = {}
        for op in self._starts.get(node.op, ()):
            found.update(dict.fromkeys(self._walk([node], op)))
        return list(found)

    def _walk(self, nodes: Iterable[Node], op: OpPattern) -> Iterable[Node]:
        """Return the anchor's nodes that nodes of ``op`` reach.

        Each step goes from nodes to users of theirs, along ``_ways``.
        """
        while op is not self._anchor:
            way = self._ways[op.index]
            output, ops, first, end = way.output, way.reader.ops, way.first, way.end
            reached: dict[Node, None] = {}
            for node in nodes:
                value = node.outputs[output] if output < len(node.outputs) else None
                if value is None:
                    continue
                for reader in value.readers:
                    if (
                        not isinstance(reader, Node)
                        or reader.op not in ops
                        or reader.graph is not node.graph
                    ):
                        continue
                    if value in reader.inputs[first:end]:
                        reached[reader] = None
            nodes, op = reached, way.reader
        return nodes
