"""``GeUtils``: inference and target support inside a running pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gehost
from gehost_ge.errors import GeError, checked
from gehost_ge.graph import Graph, Node


class GeUtils:
    """Questions about a graph under construction and about a target."""

    @staticmethod
    def infer_shape(graph: Graph, shapes: Sequence[Any]) -> None:
        """Infer a replacement for input shapes.

        Raises:
            GeError: no pass is running, or an operator does not accept its inputs.
        """
        from gehost_ge.adapter import input_values

        built = checked(graph, Graph, "the result of build_and_reset").built
        try:
            gehost.GeUtils.InferShape(built, input_values(len(shapes)))
        except gehost.GehostError as error:
            raise GeError(str(error)) from error

    @staticmethod
    def check_node_support_on_aicore(node: Node) -> tuple[bool, str]:
        """Ask the plugins whether the target runs a node; return also why not."""
        checked(node, Node, "a Node")
        answer = gehost.GeUtils.CheckNodeSupport(node.inner)
        return answer.supported, answer.reason
