"""Names the inputs of custom operators for Netron.

Netron knows ONNX's own operators; of any other it shows inputs as numbers, unless the node's
metadata names them. This plugin writes ``input_names`` on the nodes that passes made of operators
that a vendor file registered. Other nodes keep the bytes that they came with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gehost import hookimpl

if TYPE_CHECKING:  # the command line loads plugins before it knows whether it needs graphs at all
    from gehost import CompileContext, Graph, Node


@hookimpl
def gehost_after_origin_graph_optimize(graph: Graph, context: CompileContext) -> None:
    for definition in context.ops:
        names = "[" + ", ".join(f"'{name}'" for name in definition.inputs) + "]"
        for node in _made_by_passes(graph, definition.name):
            if node.metadata.get("input_names") != names:
                node.graph.set_metadata(node, "input_names", names)


def _made_by_passes(root: Graph, op: str) -> Iterator[Node]:
    """Yield the nodes of an operator that passes made.

    An operator may also have the names of its further bodies, which carry the marks of a pass.
    """
    for graph in (root, *root.subgraphs()):
        names = [name for name in graph.by_op if name == op or name.startswith(f"{op}__")]
        for node in graph.nodes_of(*names):
            if "gehost.pass" in node.metadata and node.metadata.get("gehost.op", node.op) == op:
                yield node
