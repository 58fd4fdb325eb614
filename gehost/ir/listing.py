"""The protobufs of a graph's nodes as the file lists them, until the graph is written in another order."""

from __future__ import annotations

from array import array
from io import StringIO
from typing import Any


class Listing:
    """What a node's ``place`` counts in. A node that is removed stays listed, so that none need be held in Python."""

    __slots__ = ("_ends", "_names", "folded", "protos")

    def __init__(self, protos: Any) -> None:
        self.protos = protos
        """``GraphProto.node``; once that is put in another order, a list of what stood there."""
        self.folded: list[str] = []
        """Names that hold line feeds, as far as ``names`` was asked for."""
        self._names = ""
        self._ends = array("I")
        """Behind which character of ``_names`` each name ends, and that before the first one."""

    def name(self, place: int) -> str:
        """The name of the node at ``place``."""
        ends, name = self._ends, ""
        if place + 1 < len(ends):  # else it is not read, or of a node that is new
            name = self._names[ends[place] : ends[place + 1] - 1]
        if not name:
            name = self.protos[place].name
        return name

    def names(self) -> str:
        """The names of all nodes, each between two line feeds, but for those that hold such; a tenth of what a list takes."""
        if not self._names:
            text, ends = StringIO(), array("I")
            end = text.write("\n")
            ends.append(end)
            for proto in self.protos:
                name = proto.name
                if "\n" in name:
                    self.folded.append(name)
                else:
                    end += text.write(name)
                end += text.write("\n")
                ends.append(end)
            self._names, self._ends = text.getvalue(), ends
        return self._names
