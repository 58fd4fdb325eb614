"""Paddle's view of a graph.

Operations with regions, blocks, results and operands by name.

A pass gets a ``GraphOperation``. It has Paddle's methods, and hands everything else on to gehost's
``Graph``, which is ``op.graph``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import onnx

from gehost import Graph, Model, Node, Value, ops

_View = TypeVar("_View")


def checked(argument: Any, kind: type[_View]) -> _View:
    """Return an argument of a raw pass; raises ``TypeError`` if it is no ``kind``."""
    if not isinstance(argument, kind):
        raise TypeError(f"wanted an {kind.__name__}, got {argument!r}")
    return argument


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

    def use_count(self) -> int:
        """The number of inputs and graph outputs that read the tensor."""
        return len(self.value.uses)

    def ReplaceAllUsesWith(self, other: OpResult) -> None:
        """Let all operations that read the tensor read ``other``; graph outputs keep theirs."""
        self.value.graph.redirect(self.value, checked(other, OpResult).value)

    def index(self) -> int:
        return self.value.index

    def type(self) -> str:
        """Return the type as text: ``tensor<2x-1xf32>``."""
        from gehost_drr.printing import type_text

        return type_text(self.value)

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

    def operand(self, index: int) -> OpOperand:
        """Input ``index`` as a place that reads a tensor."""
        if not 0 <= index < self.num_operands():
            raise IndexError(f"{self.name()} has {self.num_operands()} operands, not {index}")
        return OpOperand(self, index)

    def operands(self) -> list[OpOperand]:
        return [OpOperand(self, index) for index in range(self.num_operands())]

    def attribute(self, name: str) -> Any:
        """The attribute's Python value; ``KeyError`` where the node does not carry it."""
        return self.node.attrs[name]

    def attributes(self) -> dict[str, Any]:
        """The attributes that the node carries, by name."""
        return dict(self.node.attrs)

    def has_attribute(self, name: str) -> bool:
        return name in self.node.attrs

    def set_attribute(self, name: str, value: Any) -> None:
        self.node.graph.set_attribute(self.node, name, value)

    def isa(self, op: Any) -> bool:
        """Whether it is an operator: ``Relu``, ``acme::Gate``, or a function of ``es``."""
        return self.name() == operator_name(op)

    def dyn_cast(self, op: Any) -> Operation | None:
        """Return the operation if it is the operator, else None."""
        return self if self.isa(op) else None

    def HasTrait(self, trait: str) -> bool:
        """Whether its registration has the trait: ``commutative``, ``random`` or ``stateful``.

        Raises:
            ValueError: there is no such trait.
        """
        if trait not in ops.TRAITS:
            raise ValueError(
                f"there is no trait {trait!r}; there are {', '.join(sorted(ops.TRAITS))}"
            )
        declared = ops.declared(self.node.op)
        return declared is not None and trait in declared.traits

    def HasInterface(self, interface: Any) -> bool:
        """Not offered: operators have no interfaces; raises ``NotImplementedError``."""
        raise NotImplementedError(
            f"HasInterface({interface!r}): operators have no interfaces; ask HasTrait or isa"
        )

    def Verify(self) -> None:
        """Check the graph that holds the operation; raises where it is not valid."""
        self.node.graph.model.check()

    def GetParent(self) -> Block:
        return Block(self.node.graph)

    def block(self) -> Block:
        """The block that holds the operation."""
        return Block(self.node.graph)

    def GetParentProgram(self) -> Program:
        """The whole model."""
        return Program(self.node.graph.model)

    def ReplaceAllUsesWith(self, others: Sequence[OpResult]) -> None:
        """Let the readers of each result read the one at its place.

        Raises:
            ValueError: their numbers differ.
        """
        new_results = [checked(other, OpResult) for other in others]
        for old, new in zip(self.results, new_results, strict=True):
            old.ReplaceAllUsesWith(new)

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
        entry = ", ".join((*inputs, *outputs)) or "none"
        raise AttributeError(f"{self.node.op} declares no {name!r}; it declares {entry}")


class OpOperand:
    """An input of an operation: the place, and the tensor that it reads."""

    def __init__(self, owner: Operation, index: int) -> None:
        self._owner = owner
        self._index = index

    def __bool__(self) -> bool:
        return self.source() is not None

    def source(self) -> OpResult | None:
        """The tensor; None where the input is absent."""
        return self._owner.operand_source(self._index)

    def set_source(self, source: OpResult | None) -> None:
        node = self._owner.node
        value = None if source is None else checked(source, OpResult).value
        node.graph.set_input(node, self._index, value)

    def owner(self) -> Operation:
        return self._owner

    def index(self) -> int:
        return self._index


class Program:
    """The model as Paddle's program."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def block(self) -> Block:
        """The root graph."""
        return Block(self.model.graph)

    def module_op(self) -> GraphOperation:
        return GraphOperation(self.model.graph)

    def parameters(self) -> dict[str, OpResult]:
        """The weights of the root graph, by name."""
        values = self.model.graph.values.values()
        return {
            value.name: OpResult(value)
            for value in values
            if value.initializer is not None and not value.is_input
        }


def operator_name(argument: Any) -> str:
    """Return the name of an operator or of a function of ``es``."""
    named: Any = (argument,) if isinstance(argument, str) else getattr(argument, "ops", ())
    if len(named) != 1:
        raise TypeError(f"wanted the name of an operator, got {argument!r}")
    return named[0]


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
    return _small([operand.name for operand in schema.inputs]), _small(
        [operand.name for operand in schema.outputs]
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
        erase(checked(op, Operation).node)


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

    def block(self) -> Block:
        """The block of its one region."""
        return Block(self.graph)

    def GetParentProgram(self) -> Program:
        """The whole model."""
        return Program(self.graph.model)

    def Verify(self) -> None:
        """Check the graph; raises where it is not valid."""
        self.graph.model.check()

    def isa(self, op: Any) -> bool:
        """Whether it is ``builtin.module``, or the node of this operator."""
        return self.name() == operator_name(op)

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
