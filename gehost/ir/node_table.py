"""The protobufs of a graph's nodes, by place."""

from __future__ import annotations

from typing import Any


class NodeTable:
    """What ``Node.place`` indexes. The protobuf of a removed node stays, so undo needs no copy."""

    __slots__ = ("protos",)

    def __init__(self, protos: Any) -> None:
        self.protos = protos
        """``GraphProto.node``; after a flush in another order, a list of the former entries, None
        where the node is still in the graph.
        """
