"""Paddle's builder of operations, for passes that edit a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gehost import CustomPassContext, Node, PassError
from gehost_drr.operation import Block, Operation, OpResult, operator_name


class Builder:
    """Adds operations to a block, one after the other; at its end unless a point is set.

    Args:
        context: of the pass that runs: ``self.context``.
        block: the block of the operations.
    """

    def __init__(self, context: CustomPassContext, block: Block) -> None:
        self._context = context
        self._graph = block.graph
        self._after: Node | None = block.graph.nodes[-1] if block.graph.nodes else None

    def set_insertion_point(self, op: Operation) -> None:
        """Add the next operations before ``op``."""
        self._graph, self._after = op.node.graph, op.node.prev

    def SetInsertionPointAfter(self, op: Operation) -> None:
        """Add the next operations after ``op``."""
        self._graph, self._after = op.node.graph, op.node

    def Build(
        self,
        op: Any,
        operands: Sequence[OpResult | None] = (),
        attributes: Mapping[str, Any] | None = None,
        num_results: int = 1,
    ) -> Operation:
        """Add an operation; its results have the dtype and shape that inference knows.

        Args:
            op: the name of an operator, or a function of ``es``, as the model's opset has it.
            operands: None leaves an input absent.
            attributes: by name.
            num_results: the number of outputs.

        Raises:
            PassError: an operand is no result, the operator does not accept its inputs, or the
                model does not import its domain.
        """
        for operand in operands:
            if not isinstance(operand, OpResult | None):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise PassError(f"wanted the result of an operation, got {operand!r}")
        name, model = operator_name(op), self._graph.model
        domain, _, stem = name.rpartition("::")
        if domain and domain not in model.opsets:
            raise PassError(
                f"{name}: the model does not import {domain}",
                hint="context.replace also brings the operators of vendors",
            )
        node = self._graph.add_node(
            name,
            [None if operand is None else operand.value for operand in operands],
            [model.fresh_name(stem) for _ in range(num_results)],
            attributes or {},
            after=self._after,
        )
        self._after = node
        self._context.infer(node)
        return Operation(node)
