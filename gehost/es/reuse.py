"""Graphs that are built again and again from values that are mostly the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final, cast

from gehost.es.graph import EsGraph
from gehost.es.literals import exact

_MOST: Final = 64
"""Graphs that one rule keeps."""
_LONGEST: Final = 256
"""Elements of a value of which they are kept; weights as a list cost more to tell apart than to
build anew.
"""


class Recipe:
    """Builds one kind of graph from values; for values that it was given before it returns the
    graph that it built then.

    For styles whose rules are data: what they put in place of a match differs by what is computed
    from the match alone. Whoever is given a graph leaves it as it is.
    """

    def __init__(self, build: Callable[[Sequence[Any]], EsGraph]) -> None:
        """``build`` makes the graph of some values, whatever it was given before."""
        self._build = build
        self._built: dict[tuple[str, ...], EsGraph] = {}

    def graph(self, values: Sequence[Any]) -> EsGraph:
        """The graph of ``values``, which are numbers, texts and short lists of them; others are
        built anew each time.
        """
        told: list[str] = []
        for value in values:
            is_long = (
                isinstance(value, list | tuple | str | bytes)
                and len(cast("Sized", value)) > _LONGEST
            )
            text = None if is_long else exact(value)
            if text is None:
                return self._build(values)
            told.append(text)
        key = tuple(told)
        found = self._built.get(key)
        if found is None:
            if len(self._built) == _MOST:
                self._built.clear()
            own = copy.deepcopy(values)  # an author may change his lists
            found = self._built[key] = self._build(own)
        return found
