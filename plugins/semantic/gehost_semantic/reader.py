"""The part of ``Views`` that rules read."""

from __future__ import annotations

from typing import Protocol

from gehost import Graph, Node, Value
from gehost_semantic.constants import Elements, Numbers
from gehost_semantic.extents import Extent
from gehost_semantic.view import View


class Reader(Elements, Protocol):
    """What is known of a graph's tensors, computed on demand."""

    graph: Graph
    numbers: Numbers

    def of(self, value: Value | None) -> View | None: ...
    def shape(self, value: Value | None) -> tuple[Extent, ...] | None: ...
    def axes(self, node: Node, slot: int = 1) -> list[int] | None: ...
    def branch(self, node: Node) -> Graph | None: ...
