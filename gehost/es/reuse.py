"""Reuse of graphs that are built repeatedly from mostly the same values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final, cast

from gehost.es.graph import EsGraph, exact

_MOST: Final = 64
"""Number of graphs that one rule keeps."""
_LONGEST: Final = 256
"""Largest number of elements of a cached value; for longer lists, building the graph is cheaper."""


class Recipe:
    """Builds graphs of one kind from values, and caches them by these.

    It serves styles whose rules are data: their replacements differ only by values computed
    from the match. Callers must not change a returned graph.
    """

    def __init__(self, build: Callable[[Sequence[Any]], EsGraph]) -> None:
        """Take the function that builds a graph from its values alone."""
        self._build = build
        self._built: dict[tuple[str, ...], EsGraph] = {}

    def graph(self, values: Sequence[Any]) -> EsGraph:
        """Return the graph of ``values``.

        Graphs of numbers, strings and short lists of them are cached.
        """
        texts: list[str] = []
        for value in values:
            is_long = (
                isinstance(value, list | tuple | str | bytes)
                and len(cast("Sized", value)) > _LONGEST
            )
            text = None if is_long else exact(value)
            if text is None:
                return self._build(values)
            texts.append(text)
        key = tuple(texts)
        cached = self._built.get(key)
        if cached is None:
            if len(self._built) == _MOST:
                self._built.clear()
            own = copy.deepcopy(values)  # an author may change these lists later
            cached = self._built[key] = self._build(own)
        return cached
