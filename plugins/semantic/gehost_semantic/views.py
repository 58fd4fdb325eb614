"""The views of all tensors of a graph, computed on demand."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

from gehost import Graph, Node, Value
from gehost_semantic import facts
from gehost_semantic.constants import Numbers
from gehost_semantic.extents import Extent, Extents
from gehost_semantic.layout_rules import LAYOUTS
from gehost_semantic.view import Dims, Term, Unknown, View, coalesced

_MOST_ROUNDS = 4
"""Rounds of facts: each may make sizes equal that prove further ones."""


class Views:
    """The views of a graph's tensors, computed on demand.

    ``facts`` are found first: equalities of sizes that the graph's operators prove.
    """

    def __init__(self, graph: Graph, extents: Extents | None = None) -> None:
        """``extents``: of the graph before a change, whose facts still hold."""
        self.graph = graph
        self.extents = extents or Extents(graph)
        self.numbers = Numbers()
        self.answers: dict[Hashable, object] = {}
        """What recognisers found, by what they asked."""
        self._views: dict[Value, View | None] = {}
        self._shapes: dict[Value, tuple[Extent, ...] | None] = {}
        self._bases: dict[tuple[Extent, ...], tuple[Dims, tuple[Extent, ...]]] = {}
        """The axes of a base tensor by its sizes, and its offsets."""
        for _ in range(_MOST_ROUNDS):
            self._views.clear()
            self._shapes.clear()
            if not facts.learn(self):
                break

    @classmethod
    def shared(cls, graph: Graph) -> Views:
        """Return the views of a graph as it is, which all passes share until it changes."""
        answers, edit = graph.model.answers, graph.model.journal.last
        cached = answers.get(("views", graph))
        if isinstance(cached, tuple) and cached[0] == edit[0] and cached[1] is edit[1]:
            views = cast("Views", cached[2])
        else:
            before = cast("Views", cached[2]).extents if isinstance(cached, tuple) else None
            views = cls(graph, before)
            answers["views", graph] = *graph.model.journal.last, views
        return views

    # reading

    def of(self, value: Value | None) -> View | None:
        """Return a tensor's view; None without a known rank."""
        if value is None:
            return None
        if value not in self._views:
            # iterative: chains of layout operators may be long
            chain = [value]
            while chain:
                last = chain[-1]
                waiting = [v for v in self._sources(last) if v not in self._views]
                if waiting and len(chain) < 10_000:
                    chain.extend(waiting)
                else:
                    chain.pop()
                    self._views[last] = self._find(last)
        return self._views[value]

    def shape(self, value: Value | None) -> tuple[Extent, ...] | None:
        if value is None:
            return None
        if value not in self._shapes:
            view = self.of(value)
            self._shapes[value] = (
                self.extents.of_shape(value) if view is None or view.base is value else view.shape
            )
        return self._shapes[value]

    def axes(self, node: Node, slot: int = 1) -> list[int] | None:
        """Return the axes of an operator, an attribute or an input; None if it has none.

        Raises:
            Unknown: the input is no constant.
        """
        if "axes" in node.attrs:
            return list(node.attrs["axes"])
        if node.input(slot) is None:
            return None
        elements = self.elements(node.input(slot))
        axes = [axis for axis in elements or () if isinstance(axis, int)]
        if elements is None or len(axes) < len(elements):
            raise Unknown
        return axes

    def elements(self, value: Value | None) -> list[Extent | None] | None:
        """Return the elements of an integer vector or scalar; None where one is unknown."""
        return self.extents.of_elements(value)

    def _sources(self, value: Value) -> Sequence[Value]:
        """Return the tensors whose views a tensor's view is made of."""
        node = value.producer
        if node is None or node.op not in LAYOUTS:
            return ()
        if node.op == "If":
            branch = self.branch(node)
            return () if branch is None else [branch.outputs[value.index]]
        slots = (0, 1) if node.op in ("Mul", "Div") else (0,)
        return [v for slot in slots if (v := node.input(slot)) is not None]

    def _find(self, value: Value) -> View | None:
        node = value.producer
        if node is not None and not value.is_constant:
            rule = LAYOUTS.get(node.op)
            if rule is not None:
                try:
                    view = rule(self, node, value)
                except Unknown:
                    view = None
                if view is not None:
                    return view
        return self._base(value)

    def _base(self, value: Value) -> View | None:
        sizes = self.extents.of_shape(value)
        if sizes is None:
            return None
        if sizes not in self._bases:
            dims = tuple(coalesced([Term(size, axis, 1)]) for axis, size in enumerate(sizes))
            self._bases[sizes] = dims, (0,) * len(sizes)
        return View(value, *self._bases[sizes])

    def branch(self, node: Node) -> Graph | None:
        """Return the branch that an If takes, where sizes decide."""
        condition = self.numbers.fill(node.input(0), self)
        if condition is None or len(node.bodies) != 2:
            return None
        name = "then_branch" if condition else "else_branch"
        order = [entry.name for entry in node.proto.attribute if entry.name.endswith("_branch")]
        return node.bodies[order.index(name)] if name in order else None
