"""``GeUtils``: inference and target support inside a running pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gehost
from gehost import TensorType, Value
from gehost_ge.drafts import current_inputs
from gehost_ge.errors import GeError, checked, ge_errors
from gehost_ge.graph import Graph, Node
from gehost_ge.types import DataType, Shape, to_onnx


class GeUtils:
    """Questions about a graph under construction and about a target."""

    @staticmethod
    def infer_shape(graph: Graph, shapes: Sequence[Any]) -> None:
        """Infer a graph for input shapes; its nodes then have descriptions.

        Shapes that fit the tensors of a match or node add sizes to them; where one does not fit,
        and elsewhere, the types of ``create_input`` count, in the shapes.

        Raises:
            GeError: no pass is running, the number of shapes is not that of the inputs, or an
                operator does not accept its inputs.
        """
        draft = checked(graph, Graph, "the result of build_and_reset").draft
        items = [shape if isinstance(shape, Shape) else Shape(shape) for shape in shapes]
        placeholders, matched = draft.graph.inputs, current_inputs.get()
        types = {
            tensor.producer.index: draft.data_types[tensor.producer] for tensor in placeholders
        }
        if len(items) != len(placeholders) and not (matched and len(items) == len(matched)):
            raise GeError(
                f"infer_shape got {len(items)} shapes, the graph has {len(placeholders)} inputs"
            )
        declared = [
            TensorType(to_onnx(types.get(index, DataType.DT_FLOAT)), shape.sizes)
            for index, shape in enumerate(items)
        ]
        is_of_match = len(declared) <= len(matched) and all(map(_fits, matched, declared))
        draft.inputs = list(map(_with_sizes, matched, declared)) if is_of_match else declared
        with ge_errors():
            gehost.GeUtils.InferShape(draft.graph, draft.inputs)

    @staticmethod
    def check_node_support_on_aicore(node: Node) -> tuple[bool, str]:
        """Ask the plugins whether the target runs a node; return also why not."""
        checked(node, Node, "a Node")
        answer = gehost.GeUtils.CheckNodeSupport(node.inner)
        return answer.supported, answer.reason


def _fits(tensor: Value | None, declared: TensorType) -> bool:
    """Whether no size contradicts another."""
    if tensor is None or tensor.shape is None or declared.shape is None:
        return True
    return len(tensor.shape) == len(declared.shape) and all(
        size == other or not isinstance(size, int) or other is None
        for size, other in zip(tensor.shape, declared.shape, strict=True)
    )


def _with_sizes(tensor: Value | None, declared: TensorType) -> Value | TensorType | None:
    """Return a tensor, or its type with the sizes that only the author knows."""
    if tensor is None or declared.shape is None:
        return tensor
    own = tensor.shape or declared.shape
    shape = tuple(
        size if other is None else other for size, other in zip(own, declared.shape, strict=True)
    )
    is_tensor = tensor.type is None or isinstance(tensor.type, TensorType)
    if shape == tensor.shape or not is_tensor:
        return tensor
    return TensorType(tensor.dtype or declared.dtype, shape)
