"""Candidates for a match's root, found from its rarest operator's nodes."""

from __future__ import annotations

from collections.abc import Iterable

from gehost.es.schemas import Signature
from gehost.ir.graph import Graph, Node, by_order
from gehost.pattern.source import ANY, OpPattern, SourcePattern

_WALK_COST = 2
"""Cost of reaching a candidate, relative to checking one."""


class _UserEdge:
    """The edge of the pattern from an operator to the user that is nearer to the root."""

    __slots__ = ("end", "first", "output", "user")

    def __init__(self, output: int, user: OpPattern, first: int, end: int) -> None:
        self.output = output
        self.user = user
        self.first = first
        """The output is one of the user's inputs from ``first`` to before ``end``."""
        self.end = end


class Roots:
    """The nodes that may match the root, the operator that produces output 0."""

    def __init__(self, source: SourcePattern, root: OpPattern) -> None:
        self._source = source
        self._root = root
        self._edges: dict[int, _UserEdge] = {}
        """Operator → the first edge of a shortest path to the root."""
        waiting = [root]
        for user in waiting:  # grows during the loop
            for slot, tensor in enumerate(user.inputs):
                if tensor is None or tensor is ANY or tensor.producer is None:
                    continue
                if tensor.producer != root.index and tensor.producer not in self._edges:
                    first, end = (0, len(user.inputs)) if user.commutative else (slot, slot + 1)
                    self._edges[tensor.producer] = _UserEdge(tensor.slot, user, first, end)
                    waiting.append(source.ops[tensor.producer])
        self._connected: dict[str, list[OpPattern]] = {}
        """The root and the operators with a path to it, by name of the operator."""
        for op in source.ops:
            if op is root or op.index in self._edges:
                for name in op.ops:
                    self._connected.setdefault(name, []).append(op)
        self._computed_inputs: list[tuple[int, int, dict[str, Signature | None]]] = [
            (slot, tensor.slot, source.ops[tensor.producer].ops)
            for slot, tensor in enumerate(root.inputs)
            if not (root.commutative or tensor is None or tensor is ANY or tensor.producer is None)
        ]
        """Computed inputs of the root: slot, output slot of the producer, its operators."""

    def of(self, graph: Graph) -> tuple[list[Node], bool]:
        """Return the candidates in a graph now, in topological order.

        The second result is whether they are all nodes of the root's operators.
        """
        counts = [sum(len(graph.by_op.get(name, ())) for name in op.ops) for op in self._source.ops]
        if 0 in counts:
            return [], False
        rarest = min(
            (self._source.ops[index] for index in self._edges),
            key=lambda op: counts[op.index],
            default=self._root,
        )
        if counts[rarest.index] * _WALK_COST > counts[self._root.index]:
            rarest = self._root
        if rarest is self._root and not self._computed_inputs:
            return graph.nodes_of(*rarest.ops), True
        nodes = [node for name in rarest.ops for node in graph.by_op.get(name, ())]
        candidates = [node for node in self._walk(nodes, rarest) if self.inputs_fit(node)]
        return sorted(candidates, key=by_order), False

    def inputs_fit(self, node: Node) -> bool:
        """Whether a candidate's inputs come from the right operators.

        This quick check rejects most candidates.
        """
        inputs = node.inputs
        for slot, output, ops in self._computed_inputs:
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
        """Return the candidates of matches in which ``node`` may take part."""
        reached: dict[Node, None] = {}
        for op in self._connected.get(node.op, ()):
            reached.update(dict.fromkeys(self._walk([node], op)))
        return list(reached)

    def _walk(self, nodes: Iterable[Node], op: OpPattern) -> Iterable[Node]:
        """Return candidates for the root that nodes of ``op`` reach.

        Each step goes from nodes to users of theirs, along ``_edges``.
        """
        while op is not self._root:
            edge = self._edges[op.index]
            output, ops, first, end = edge.output, edge.user.ops, edge.first, edge.end
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
            nodes, op = reached, edge.user
        return nodes
