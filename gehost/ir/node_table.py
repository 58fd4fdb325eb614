"""The protobufs of a graph's nodes, by place."""

from __future__ import annotations

from typing import Any


class NodeTable:
    """List indexed by ``Node.place``.

    Protobufs of removed nodes stay, so undo needs no copy.
    """

    __slots__ = ("names", "protos")

    def __init__(self, protos: Any) -> None:
        self.protos = protos
        """``GraphProto.node``. After a flush in another order: a list of the former entries, with
        None for nodes that are still in the graph.
        """
        self.names: list[str] = []
        """Names of the first entries: of those that the index saw."""
