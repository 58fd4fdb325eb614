"""Functions of a text, and a statement that is being read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gehost_linalg.generic import Op, Value
from gehost_linalg.interpret import Rule


@dataclass(eq=False)
class Function:
    """A ``func.func``: arguments, operations in order, and outputs."""

    name: str
    arguments: list[Value]
    ops: list[Op]
    outputs: list[Value]
    notes: dict[Op, list[str]] = field(default_factory=dict[Op, list[str]])
    """Comments above operations."""
    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    """Sizes that are computed from others, by name."""


class Statement(NamedTuple):
    """An operation that is being read.

    Attributes:
        name: of the operation.
        results: the names of its results, with ``%``.
        start: where the statement begins.
    """

    name: str
    results: Sequence[str]
    start: int

    def result(self, default: str) -> str:
        """The name of the first result."""
        return self.results[0][1:] if self.results else default
