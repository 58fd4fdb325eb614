"""Edits that can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gehost.errors import GehostError


class Journal:
    """What takes back each edit, last first. Marks stay valid until a commit goes past them.

    An entry is written before its edit, so that an error or interrupt at any point of the edit
    leaves nothing that cannot be taken back: an undo must do for an edit that was done by half, or
    not at all, and for one that it took back already.
    """

    def __init__(self) -> None:
        self._entries: list[Any] = []
        """What to call, what with, what to call, …: flat, as there are many, and a pair takes as
        much as what it holds.
        """
        self._committed = 0

    def record(self, undo: Callable[..., None], *arguments: Any) -> None:
        """Note that ``undo(*arguments)`` takes back what is going to be done now."""
        self._entries.extend((undo, arguments))

    def mark(self) -> int:
        """The present point; it grows with every edit."""
        return self._committed + len(self._entries) // 2

    @property
    def last(self) -> tuple[int, object]:
        """The present point, and its edit if that can be undone: both are the same only where
        nothing was edited meanwhile.
        """
        return self.mark(), self._entries[-1] if self._entries else None

    @property
    def is_pending(self) -> bool:
        """Whether there are edits that can be undone."""
        return bool(self._entries)

    def since(self, mark: int) -> list[tuple[Callable[..., None], tuple[Any, ...]]]:
        """What takes back the edits since ``mark``, oldest first; those that were committed are
        not among them.
        """
        first = 2 * max(mark - self._committed, 0)
        return list(zip(self._entries[first::2], self._entries[first + 1 :: 2], strict=True))

    def undo(self, mark: int) -> None:
        """Take back every edit since ``mark``.

        Raises:
            GehostError: some of them were committed meanwhile; nothing is taken back.
        """
        if mark < self._committed:
            raise GehostError(
                f"{self._committed - mark} edits cannot be undone any more: the graph was "
                "written in between"
            )
        while self.mark() > mark:
            undo, arguments = self._entries[-2:]
            undo(*arguments)
            del self._entries[-2:]

    def commit(self) -> None:
        """Keep every edit so far."""
        self._committed += len(self._entries) // 2
        self._entries.clear()
