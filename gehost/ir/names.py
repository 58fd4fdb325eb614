"""Names of nodes and tensors, unique over a model and its bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gehost.ir.edits import Journal

if TYPE_CHECKING:
    from gehost.ir.model import Model


class Names:
    """The names that a model uses.

    They are read from its graphs before the first edit that needs one.
    """

    def __init__(self, model: Model, journal: Journal) -> None:
        self._model = model
        self._journal = journal
        self._used: set[str] | None = None
        """Names that end in a digit; only these can collide with fresh ones."""
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """Return ``<stem>_<k>`` with the first free k, and mark it as used."""
        used = self._known()
        count = first = self._next.get(stem, 0)
        while (name := f"{stem}_{count}") in used:
            count += 1
        self._journal.record(self._give_back, stem, first, name)
        self._next[stem] = count + 1
        used.add(name)
        return name

    def use(self, name: str) -> None:
        """Register a name that a caller chose."""
        used = self._known()
        if name[-1:].isdigit() and name not in used:
            self._journal.record(used.discard, name)
            used.add(name)

    def put_back(self, names: Iterable[str]) -> None:
        """Register names that an undo restores.

        A scan while they were absent did not find them.
        """
        if self._used is not None:
            self._used.update([name for name in names if name[-1:].isdigit()])

    def _known(self) -> set[str]:
        if self._used is None:
            used = set[str]()
            for graph in self._model.graphs:
                used.update([name for name in graph.values if name[-1:].isdigit()])
                # a leftover entry would give its type to a new tensor of that name
                used.update(
                    [info.name for info in graph.proto.value_info if info.name[-1:].isdigit()]
                )
                # names of removed nodes are free
                names = graph.table.names
                if graph.dirty or len(names) < len(graph.protos):
                    names = [node.name for node in graph.nodes]
                used.update([name for name in names if name[-1:].isdigit()])
            self._used = used
        return self._used

    def _give_back(self, stem: str, first: int, name: str) -> None:
        self._next[stem] = first
        self._known().discard(name)
