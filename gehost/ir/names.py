"""Names of nodes and tensors, unique in a whole model, nested bodies included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gehost.ir.edits import Journal
from gehost.ir.node_table import NodeTable

if TYPE_CHECKING:
    from gehost.ir.model import Model

_MOST_STEMS = 100
"""Stems that are looked for in the text of all nodes' names; for more, it is taken apart."""


class Names:
    """The names that a model uses; read from its graphs before the first edit that needs one."""

    def __init__(self, model: Model, journal: Journal) -> None:
        self._model = model
        self._journal = journal
        self._used: set[str] | None = None
        """Those of tensors, and those given since, that end in a digit: no other name can be one
        that is asked for.
        """
        self._texts: list[str] = []
        """Names of nodes, each between two line feeds: a fraction of what they take one by one,
        and hardly one is asked for.
        """
        self._of_nodes: frozenset[str] = frozenset()
        """The same, taken apart once one of them may have been asked for."""
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """``<stem>_<k>`` with the first k that is free; it is used from now on."""
        used = self._known()
        if (
            self._texts
            and stem not in self._next
            and (len(self._next) >= _MOST_STEMS or self._is_in_texts(f"\n{stem}_"))
        ):
            self._of_nodes = frozenset([name for text in self._texts for name in text.split("\n")])
            self._texts.clear()
        count = first = self._next.get(stem, 0)
        while (name := f"{stem}_{count}") in used or name in self._of_nodes:
            count += 1
        self._journal.record(self._give_back, stem, first, name)
        self._next[stem] = count + 1
        used.add(name)
        return name

    def use(self, name: str) -> None:
        """Note a name that somebody else chose."""
        used = self._known()
        if name[-1:].isdigit() and name not in used:
            self._journal.record(used.discard, name)
            used.add(name)

    def put_back(self, names: Iterable[str]) -> None:
        """Note names of what comes back by an undo: they may have been read while it was away."""
        if self._used is not None:
            self._used.update([name for name in names if name[-1:].isdigit()])

    def _known(self) -> set[str]:
        if self._used is None:
            used = set[str]()
            texts: list[str] = []
            for graph in self._model.graphs:
                used.update([name for name in graph.values if name[-1:].isdigit()])
                # a leftover entry would give its type to a new tensor of that name
                used.update(
                    [info.name for info in graph.proto.value_info if info.name[-1:].isdigit()]
                )
                # names of nodes that were removed are free
                listing = (
                    NodeTable([node.proto for node in graph.nodes])
                    if graph.dirty
                    else graph.listing
                )
                texts.extend(listing.names())
                used.update(listing.folded)
            self._texts, self._used = texts, used
        return self._used

    def _is_in_texts(self, part: str) -> bool:
        return any(part in text for text in self._texts)

    def _give_back(self, stem: str, first: int, name: str) -> None:
        self._next[stem] = first
        self._known().discard(name)
