"""The protobufs of a graph's nodes as the file lists them, until the graph is written in another
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_AT_ONCE: Final = 8
"""Names that are kept as one text, which takes a fraction of the memory; nodes of a match are
mostly neighbours.
"""


class NodeTable:
    """What a node's ``place`` counts in. A node that is removed stays listed, so that none need
    be held in Python.
    """

    __slots__ = ("_names", "_number", "_opened", "folded", "protos")

    def __init__(self, protos: Any) -> None:
        self.protos = protos
        """``GraphProto.node``; once that is put in another order, a list of what stood there,
        None where a node stays.
        """
        self.folded: list[str] = []
        """Names that hold line feeds, as far as ``names`` was asked for."""
        self._names: list[str] = []
        self._opened: list[str] = []
        """What the text that was looked into last holds, "" before and behind the names."""
        self._number = -1
        """Which text that is."""

    def name(self, place: int) -> str:
        """The name of the node at ``place``: without a look at its protobuf, once ``names`` was
        asked for.
        """
        number = place // _AT_ONCE
        if number != self._number:
            if number >= len(self._names):  # not read, or of a node that is new
                return str(self.protos[place].name)
            self._opened = self._names[number].split("\n")
            self._number = number
        return self._opened[place % _AT_ONCE + 1] or str(self.protos[place].name)

    def names(self) -> Sequence[str]:
        """Texts with the names of all nodes, each between two line feeds, but for those that
        hold such.
        """
        if not self._names:
            names: list[str] = []
            folded: list[str] = []
            texts: list[str] = []
            for proto in self.protos:
                name: str = proto.name
                if "\n" in name:
                    folded.append(name)
                    name = ""
                names.append(name)
                if len(names) == _AT_ONCE:
                    texts.append(_text(names))
                    names.clear()
            self.folded, self._names = folded, [*texts, _text(names)]
        return self._names


def _text(names: Sequence[str]) -> str:
    """These names and as many empty ones as there is place for."""
    return "\n".join(["", *names, *[""] * (_AT_ONCE - len(names)), ""])
