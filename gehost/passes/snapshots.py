"""Snapshots of rewrites: a ``Picture`` of the match and of its replacement.

``gehost.diagnose.report.recorder`` creates them. They are plain data: names and types but no
objects of the graph, so that they outlive it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["matched", "new", "kept", "around"]
"""``kept``: matched, but it stays because of other users. ``around``: outside, one step away."""

Source = Literal["node", "input", "constant", "outer"]
"""Origin of a tensor: a node, the graph's caller, a constant, or an enclosing graph."""


@dataclass(frozen=True, slots=True)
class PictureTensor:
    """A tensor of a picture."""

    name: str
    type: str
    """As in ``float[2,N,?]``; "" if unknown."""
    source: Source = "node"
    value: str = ""
    """The elements of a small constant."""
    is_output: bool = False
    """Whether it is an output of the graph."""
    other_uses: int = 0
    """Number of users outside the picture, for tensors that leave it."""


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A node of a picture; tensors are positions in ``Picture.tensors``."""

    name: str
    op: str
    role: Role
    inputs: tuple[int | None, ...]
    """Inputs by position (None: absent), then the tensors that its bodies capture. A node of role
    ``around`` has only its inputs within the picture.
    """
    outputs: tuple[int | None, ...]
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    more_inputs: int = 0
    """Number of inputs that are not listed."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A part of a graph.

    It has nodes in topological order, their neighbours, and the tensors between them.
    """

    nodes: tuple[PictureNode, ...]
    tensors: tuple[PictureTensor, ...]
    left_out: int = 0
    """Number of nodes that were too many to show."""


@dataclass(frozen=True, slots=True)
class RewriteNames:
    """One rewrite by names: its number from 1, matched and new nodes.

    The number counts the rewrites of the compile.
    """

    number: int
    nodes: tuple[str, ...]
    made: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Rewrites of one pass with equal operators and wiring; the first's snapshots."""

    before: Picture
    after: Picture
    matches: list[RewriteNames] = field(default_factory=list[RewriteNames])


@dataclass(frozen=True, slots=True)
class Refusals:
    """Matches refused for one reason, by the nodes that matched."""

    reason: str
    nodes: list[str] = field(default_factory=list[str])
