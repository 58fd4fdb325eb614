"""Dead-code elimination, an example of a pass on the graph itself."""

from __future__ import annotations

from gehost import CustomPassContext, Graph, Node
from gehost_drr.operation import GraphOperation, erase
from gehost_drr.passes import Pass


class DeadCodeEliminationPass(Pass):
    """Remove operations without readers, and weights that only they read.

    Goes from readers to producers, so one walk finds all.

    Keeps: an operation that may do more than compute its results: one of another domain, unless a
    vendor file registered it without traits; one with nested bodies that hold such a one; one for
    which the model brings a body of its own. Nothing is removed from a graph with quantization
    annotations, which name tensors.
    """

    name = "dead_code_elimination_pass"

    def Run(self, op: GraphOperation) -> None:
        self.AddStatistics(self._sweep(op.graph))

    def _sweep(self, graph: Graph) -> int:
        """Remove dead nodes of a graph; return their number.

        Bodies come before the values they capture.
        """
        if graph.proto.quantization_annotation:
            return 0
        dead = 0
        for node in reversed(list(graph.nodes)):
            if _is_unread(node) and not has_side_effect(node, self.context):
                erase(node)
                dead += 1
            else:
                dead += sum(map(self._sweep, node.bodies))
        return dead


def _is_unread(node: Node) -> bool:
    return not any(value is not None and value.readers for value in node.outputs)


def has_side_effect(node: Node, context: CustomPassContext) -> bool:
    """Whether an operation may, as far as known, have side effects."""
    op = node.metadata.get("gehost.op", node.op)
    if node.domain:
        definition = context.registry.get(op)
        return definition is None or definition.impure
    if node.op in context.model.functions:
        return True
    return any(has_side_effect(inner, context) for body in node.bodies for inner in body.nodes)
