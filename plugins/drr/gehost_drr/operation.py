"""Paddle's view of a graph.

Operations with regions, blocks, results and operands by name.

A pass gets a ``GraphOperation``. It has Paddle's methods, and hands everything else on to gehost's
``Graph``, which is ``op.graph``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import onnx

from gehost import Graph, Node, Value, ops


class OpResult:
    """A tensor as the result or operand of an operation.

    ``value`` is gehost's own object.
    """

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpResult) and self.value is other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f'<OpResult "{self.value.name}">'

    def use_empty(self) -> bool:
        """True where no node, nested body or graph output reads the tensor."""
        return not self.value.readers

    def defining_op(self) -> Operation | None:
        """The producer; None for graph inputs and weights."""
        return None if self.value.producer is None else Operation(self.value.producer)

    def __getattr__(self, name: str) -> Any:
        if name == "value":  # not set yet, as while it is copied
            raise AttributeError(name)
        return getattr(self.value, name)


class Operation:
    """One node; ``node`` is gehost's own object."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self.node is other.node

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return f"<Operation {self.node.op} {self.node.label}>"

    def name(self) -> str:
        """The operator: ``Relu``, ``acme::Gate``."""
        return self.node.op

    @property
    def results(self) -> list[OpResult]:
        """The outputs that are present."""
        return [OpResult(value) for value in self.node.outputs if value is not None]

    def num_results(self) -> int:
        return len(self.results)

    def result(self, index: int) -> OpResult:
        return self.results[index]

    def num_operands(self) -> int:
        return len(self.node.inputs)

    def operand_source(self, index: int) -> OpResult | None:
        """The tensor at input ``index``; None where it is absent."""
        value = self.node.inputs[index]
        return None if value is None else OpResult(value)

    def attribute(self, name: str) -> Any:
        """The attribute's Python value; ``KeyError`` where the node does not carry it."""
        return self.node.attrs[name]

    def use_empty(self) -> bool:
        """True where nothing reads any result."""
        return all(result.use_empty() for result in self.results)

    def num_regions(self) -> int:
        return len(self.node.bodies)

    def region(self, index: int) -> Region:
        return Region(self.node.bodies[index])

    def __getattr__(self, name: str) -> Any:
        """``op.x()``: the input or output named ``x`` or ``X``.

        The operator's declaration names it.
        """
        if name.startswith("_") or name == "node":
            raise AttributeError(name)
        custom = ops.declared(self.node.op)
        if custom is not None:
            inputs, outputs = _small(custom.inputs), _small(custom.outputs)
        else:
            inputs, outputs = declared_names(self.node.domain, self.node.op_type)
        for names, values in ((inputs, self.node.inputs), (outputs, self.node.outputs)):
            if name.lower() in names:
                place = names.index(name.lower())
                value = values[place] if place < len(values) else None
                return lambda: None if value is None else OpResult(value)
        known = ", ".join((*inputs, *outputs)) or "none"
        raise AttributeError(f"{self.node.op} declares no {name!r}; it declares {known}")


def _small(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


@lru_cache(maxsize=1024)
def declared_names(domain: str, op_type: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return an operator's input and output names in small letters.

    Both are empty if the operator is unknown.
    """
    try:
        schema = onnx.defs.get_schema(op_type, domain)
    except onnx.defs.SchemaError:
        return (), ()
    return _small([each.name for each in schema.inputs]), _small(
        [each.name for each in schema.outputs]
    )


class Block:
    """The operations of a region, in topological order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __iter__(self) -> Iterator[Operation]:
        return iter([Operation(node) for node in self.graph.nodes])

    def __len__(self) -> int:
        return len(self.graph)

    def size(self) -> int:
        return len(self)

    def erase(self, op: Operation) -> None:
        """Remove an operation, and the weights that only it read.

        Raises:
            GehostError: something still reads a result.
        """
        erase(op.node)


class Region:
    """A graph or nested body: one block."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def front(self) -> Block:
        return Block(self.graph)

    def __iter__(self) -> Iterator[Block]:
        return iter([Block(self.graph)])


class GraphOperation:
    """The operation whose region a pass works on.

    It is ``builtin.module``, or the node of a nested body.

    Attributes:
        graph: the region's graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def name(self) -> str:
        owner = self.graph.owner
        return "builtin.module" if owner is None else owner.op

    def num_regions(self) -> int:
        return 1

    def region(self, index: int) -> Region:
        if index != 0:
            raise IndexError(f"region {index}: {self.name()} shows one, number 0")
        return Region(self.graph)

    def __getattr__(self, name: str) -> Any:
        if name == "graph":  # not set yet, as while it is copied
            raise AttributeError(name)
        return getattr(self.graph, name)


def graph_of(region: GraphOperation | Region | Block | Graph) -> Graph:
    """Gehost's graph behind any of the views."""
    return region if isinstance(region, Graph) else region.graph


def erase(node: Node) -> None:
    """Remove a node, and weights that only it read.

    The weights are those of its graph.
    """
    graph = node.graph
    read: Sequence[Value | None] = node.inputs
    graph.remove_node(node)
    for value in dict.fromkeys(read):
        if (
            value is not None
            and value.initializer is not None
            and not value.is_input
            and not value.readers
        ):
            value.graph.remove_initializer(value)
