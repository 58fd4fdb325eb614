"""What rewrites looked like: the matched part of a graph and what took its place, kept as plain
data.

``gehost.diagnose.report.recorder`` fills them in. They hold names and types, nothing of the graph, so that
they outlive it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["matched", "new", "kept", "around"]
"""``kept``: matched, but it stays, as somebody else reads it. ``around``: outside, one step
away.
"""

Source = Literal["node", "input", "constant", "outer"]
"""What makes a tensor: a node, the graph's caller, nothing (it is constant), or a graph around
this one.
"""


@dataclass(frozen=True, slots=True)
class PictureTensor:
    """A tensor of a picture."""

    name: str
    type: str
    """As in ``float[2,N,?]``; "" where nothing is known."""
    source: Source = "node"
    value: str = ""
    """The elements of a constant that has few of them."""
    is_output: bool = False
    """The graph gives it to its caller."""
    other_uses: int = 0
    """Nodes that read it and are not in the picture, counted for the tensors that leave."""


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A node of a picture; tensors are positions in ``Picture.tensors``."""

    name: str
    op: str
    role: Role
    inputs: tuple[int | None, ...]
    """By position, None where absent, then what its bodies capture; of a node around, what it
    reads of the picture.
    """
    outputs: tuple[int | None, ...]
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    more_inputs: int = 0
    """Inputs past the last one listed."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A neighbourhood in a graph: some nodes in topological order, those one step around, the
    tensors between them.
    """

    nodes: tuple[PictureNode, ...]
    tensors: tuple[PictureTensor, ...]
    left_out: int = 0
    """Nodes that belong to it and were too many to show."""


@dataclass(frozen=True, slots=True)
class RewriteNames:
    """One rewrite: its number in the compile, from 1, the matched nodes and the new ones."""

    number: int
    nodes: tuple[str, ...]
    made: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Rewrites of one pass that look alike: same operators, same wiring. The pictures are those
    of the first.
    """

    before: Picture
    after: Picture
    matches: list[RewriteNames] = field(default_factory=list[RewriteNames])


@dataclass(frozen=True, slots=True)
class Refusals:
    """Matches that were not replaced, for one reason: the nodes at which they were found."""

    reason: str
    nodes: list[str] = field(default_factory=list[str])
