"""``GeUtils``: inference and target support inside a running pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gehost
from gehost import TensorType
from gehost_ge.drafts import current_inputs
from gehost_ge.errors import GeError, checked, ge_errors
from gehost_ge.graph import Graph, Node
from gehost_ge.types import Shape, to_onnx


class GeUtils:
    """Questions about a graph under construction and about a target."""

    @staticmethod
    def infer_shape(graph: Graph, shapes: Sequence[Any]) -> None:
        """Infer a graph for input shapes; its nodes then have descriptions.

        Of a match or node, the types of its own tensors count; elsewhere those of
        ``create_input``, in the shapes.

        Raises:
            GeError: no pass is running, the number of shapes is not that of the inputs, or an
                operator does not accept its inputs.
        """
        draft = checked(graph, Graph, "the result of build_and_reset").draft
        items = [shape if isinstance(shape, Shape) else Shape(shape) for shape in shapes]
        placeholders, matched = draft.graph.inputs, current_inputs.get()
        if len(items) != len(placeholders) and not (matched and len(items) == len(matched)):
            raise GeError(
                f"infer_shape got {len(items)} shapes, the graph has {len(placeholders)} inputs"
            )
        draft.inputs = matched or [
            TensorType(to_onnx(draft.data_types[tensor.producer]), shape.sizes)
            for tensor, shape in zip(placeholders, items, strict=True)
        ]
        with ge_errors():
            gehost.GeUtils.InferShape(draft.graph, draft.inputs)

    @staticmethod
    def check_node_support_on_aicore(node: Node) -> tuple[bool, str]:
        """Ask the plugins whether the target runs a node; return also why not."""
        checked(node, Node, "a Node")
        answer = gehost.GeUtils.CheckNodeSupport(node.inner)
        return answer.supported, answer.reason
