"""A node's history over all compiles, as far back as the notes in the file go.

A node without a note is as in the original, or a hook made it, which leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gehost.diagnose.nodes import check_name, near_names, nodes_named
from gehost.errors import UsageError
from gehost.host.model_files import read_model
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.rewrite.provenance import Source, steps_of


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A node that once was in the model, or is.

    Attributes:
        op: "" where it was not noted down.
        pass_name: the pass that made it; "" for a node without a note.
        vendor: of the pass.
        sources: the nodes it was made from, by position among the ancestors.
        cut: there were too many steps in between to be kept; ``sources`` are nodes without a note.
    """

    node: str
    op: str
    pass_name: str = ""
    vendor: str = ""
    sources: tuple[int, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Ancestry:
    """A node and all that it comes from.

    Attributes:
        graph: the name of the nested body that holds it; "" for the root graph.
        stands_for: the custom operator that its own stands for, where the body needed another
            name; else "".
        ancestors: the node itself first, each before its sources.
    """

    graph: str
    stands_for: str
    ancestors: tuple[Ancestor, ...]

    @property
    def origins(self) -> list[str]:
        """The nodes without a note: original ones, or direct edits."""
        return [ancestor.node for ancestor in self.ancestors if not ancestor.pass_name]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "origins": self.origins}


def blame(
    model: str | os.PathLike[str], name: str, settings: Mapping[str, Any] | None = None
) -> list[Ancestry]:
    """The histories of the nodes of a name, which several graphs may have.

    Args:
        model: a file.
        name: of a node, or of a tensor that it makes.
        settings: options of importers, by ``NAME.option``.

    Raises:
        UsageError: there is no such node or setting, or the name is empty.
        ModelError: the model cannot be read.
    """
    check_name(name)
    loaded = read_model(model, settings)
    try:
        found = nodes_named(loaded, name)
        if not found:
            raise UsageError(_what_it_is(loaded, name), where=model)
        return [_ancestry(node) for node in found]
    finally:
        loaded.close()


def _ancestry(node: Node) -> Ancestry:
    graph = "" if node.graph.owner is None else node.graph.name
    steps = steps_of(node, node.metadata)
    if not steps:
        return Ancestry(graph, "", (Ancestor(node.label, node.op),))
    positions: dict[Source, int] = {len(steps) - 1 - back: back for back in range(len(steps))}
    for step in steps:
        for source in step.sources:
            positions.setdefault(source, len(positions))
    made = [
        Ancestor(
            s.node,
            s.op,
            s.pass_name,
            s.vendor,
            tuple(positions[source] for source in s.sources),
            s.cut,
        )
        for s in reversed(steps)
    ]
    original = [Ancestor(*source) for source in positions if not isinstance(source, int)]
    return Ancestry(graph, node.metadata.get("gehost.op", ""), (*made, *original))


def _what_it_is(model: Model, name: str) -> str:
    """Describe a name that no node has, or list the nearest names."""
    for graph in model.graphs:
        value = graph.values.get(name)
        if value is not None and value.initializer is not None:
            return (
                f'"{name}" is a constant; constants do not carry where they come from (also '
                "those that the clean-up computed)"
            )
        if value is not None:
            return f'"{name}" is an input of graph "{graph.name}"; no node makes it'
    holder = next((f for f in model.proto.functions if name in _names(f.node)), None)
    if holder is not None:
        return (
            f'"{name}" is in the body of function {holder.domain}::{holder.name}; ask for a '
            "node that calls it"
        )
    return f'there is no node "{name}"; {near_names(model, name)}'


def _names(nodes: Sequence[Any]) -> set[str]:
    return {name for node in nodes for name in (node.name, *node.output) if name}
