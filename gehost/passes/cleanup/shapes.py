"""Simplify computed shapes with known sizes.

1. ``Reshape(x, s)`` with a computed s: s becomes a constant if each entry is a number, the size of
   x at its place (0, which copies it), or the only other one beside positive numbers (-1). A -1
   becomes the number or the copy that the sizes of x leave for it: beside copies only a -1 that s
   has.
2. ``Gather(Shape(x), i)`` of a computed tensor x: the size is read from an input of the model that
   has it.
Keeps: the shape of every result, in every run in which the model does not fail. Sizes may be 0:
-1 is written only beside numbers from 1 on, as it fails beside a 0, or where s has it. (Beside a 0
of ``allowzero``, which ONNX forbids, the size of x is taken.)
Refused: Reshapes with ``allowzero`` and a 0 in s, or below opset 5; a ``Shape`` with users other
than ``Gather``, and nodes of nested bodies (2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gehost.ir.graph import Node, Value
from gehost.passes.cleanup.dead import reap
from gehost.passes.cleanup.state import State
from gehost.sizes import Dim, Known, Scope, Size, lengths


class KnownShapes:
    """Simplifies the computed shapes of one model."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._origins: dict[Known, tuple[Value, int]] = {}
        """A size → an input of the model, and the axis that has it."""
        self._shapes: dict[Value, Value] = {}
        """Input → its ``Shape``, once one is needed."""
        for value in state.model.graph.inputs:
            for axis, dim in enumerate(value.shape or ()):
                if isinstance(dim, str):
                    self._origins.setdefault(state.model.sizes.parse(dim), (value, axis))

    def use(self, node: Node) -> bool:
        """Simplify the shape that a node reads; returns False for operators that read none."""
        if node.op == "Reshape" and self._state.purity.is_builtin(node.op):
            self._with_constant(node)
        elif node.op == "Gather" and self._state.purity.is_builtin(node.op):
            self._read_from_input(node)
        else:
            return False
        return True

    def _with_constant(self, node: Node) -> None:
        state, source, target = self._state, node.input(0), node.input(1)
        if (
            source is None
            or target is None
            or target.is_constant
            or state.opset < 5
            or not node.graph.takes_constant(np.dtype(np.int64))
        ):
            return
        elements, scope = state.model.integers.vector(target), state.model.sizes
        if elements is None:
            return
        allow_zero = bool(node.attrs.get("allowzero", 0))
        source_sizes = None if source.shape is None else scope.parse_all(source.shape)
        sizes = entries(scope, elements, source_sizes, allow_zero=allow_zero)
        if sizes is None:
            return
        constant = state.add_integers(node.graph, sizes, "shape")
        if allow_zero and 0 in sizes:
            node.graph.set_attribute(node, "allowzero", 0)
        node.graph.set_input(node, 1, constant)
        state.counts.folded += 1
        state.stale.add(node)
        state.push(node)
        reap(state, [target])

    def _read_from_input(self, node: Node) -> None:
        graph, read, indices = node.graph, node.input(0), node.input(1)
        shape = None if read is None else read.producer
        if (
            graph is not self._state.model.graph
            or read is None
            or shape is None
            or shape.op != "Shape"
            or shape.graph is not graph
            or not self._state.purity.is_builtin("Shape")
            or node.attrs.get("axis", 0) != 0
            or indices is None
            or indices.rank not in (0, 1)
            or node.outputs[0] is None
            or not all(
                isinstance(reader, Node) and reader.op == "Gather" for reader in read.readers
            )
        ):
            return
        source = shape.input(0)
        elements = self._state.model.integers.vector(node.outputs[0])
        if source is None or source.is_input or elements is None or len(elements) != 1:
            return
        size = elements[0]
        origin = self._origins.get(size) if isinstance(size, Size) else None
        if origin is None or not graph.takes_constant(np.dtype(np.int64)):
            return
        value, axis = origin
        place = self._state.add_integers(graph, [axis], "axis", rank=indices.rank or 0)
        graph.set_input(node, 0, self._shape_of(value))
        graph.set_input(node, 1, place)
        self._state.counts.merged += 1
        self._state.push(node)
        reap(self._state, [read, indices])

    def _shape_of(self, value: Value) -> Value:
        """Return the ``Shape`` of an input, the first node of the graph."""
        cached = self._shapes.get(value)
        producer = None if cached is None else cached.producer
        if cached is None or producer is None or not self._state.alive(producer):
            graph, name = value.graph, self._state.model.fresh_name("cleanup_Shape")
            node = graph.add_node("Shape", [value], [name], name=name)
            (cached,) = node.outputs
            assert cached is not None
            graph.set_type(cached, self._state.inferrer.node(node)[0])
            self._shapes[value] = cached
            self._state.push(node)
        return cached


def entries(
    scope: Scope, elements: Sequence[Dim], source: Sequence[Dim] | None, *, allow_zero: bool
) -> list[int] | None:
    """Return a constant target equivalent to computed entries, or None; its 0 copies a size.

    Args:
        scope: of the sizes.
        elements: the entries.
        allow_zero: whether a 0 in them is a size.
        source: the sizes of x; None where its rank is unknown.
    """
    if allow_zero and 0 in elements:
        return None
    sizes, results = source or (), list[int]()
    for place, entry in enumerate(elements):
        if isinstance(entry, int):
            results.append(entry)
        elif entry is not None and place < len(sizes) and sizes[place] == entry:
            results.append(0)
        else:
            results.append(-1)
    if results.count(-1) > 1 or any(entry < -1 for entry in results):
        return None
    if {-1, 0} <= {*results} and -1 not in elements:
        return None  # a copied size may be 0, and then the other one is any
    if -1 not in results or source is None:
        return results
    own, others = results.index(-1), math.prod([entry for entry in results if entry > 0])
    rest = [place for place in range(len(sizes)) if results[place : place + 1] != [0]]
    whole = lengths.product(scope, [sizes[place] for place in rest])
    if isinstance(whole, int) and whole and whole % others == 0:
        results[own] = whole // others
    elif own in rest and others == lengths.product(
        scope, [sizes[place] for place in rest if place != own]
    ):
        results[own] = 0
    elif 0 in results and allow_zero:
        return None
    return results
