"""A node's history over all compiles.

It goes as far back as the notes in the file.

A node without a note is an original node, or was added by a hook, which leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    """A node that is or was in the model.

    Attributes:
        op: "" if it was not recorded.
        pass_name: the pass that made it; "" for a node without a note.
        vendor: of the pass.
        sources: the nodes it was made from, by position among the ancestors.
        cut: steps in between are not recorded, as there were too many; ``sources`` have no note.
    """

    node: str
    op: str
    pass_name: str = ""
    vendor: str = ""
    sources: tuple[int, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Ancestry:
    """A node and its ancestors.

    Attributes:
        graph: the name of the nested body that holds it; "" for the root graph.
        stands_for: the custom operator that this node calls under another name, as the body
            needed one; "" if its name is its own.
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
    """Return the histories of the nodes of a name.

    Several graphs may have nodes of this name.

    Args:
        model: a file.
        name: of a node, or of a tensor that it produces.
        settings: options of importers, by ``NAME.option``.

    Raises:
        UsageError: there is no such node or setting, or the name is empty.
        ModelError: the model cannot be read.
    """
    check_name(name)
    loaded = read_model(model, settings)
    try:
        nodes = nodes_named(loaded, name)
        if not nodes:
            raise UsageError(_why_no_node(loaded, name), where=model)
        return [_ancestry(node) for node in nodes]
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
    ancestors = [
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
    return Ancestry(graph, node.metadata.get("gehost.op", ""), (*ancestors, *original))


def _why_no_node(model: Model, name: str) -> str:
    """Describe a name that no node has, or list the nearest names."""
    for graph in model.graphs:
        value = graph.values.get(name)
        if value is not None and value.initializer is not None:
            return (
                f'"{name}" is a constant; the origin of constants is not recorded (nor of '
                "those that the clean-up computed)"
            )
        if value is not None:
            return f'"{name}" is an input of graph "{graph.name}"; no node makes it'
    for function in model.proto.functions:
        if any(name in (node.name, *node.output) for node in function.node):
            return (
                f'"{name}" is in the body of function {function.domain}::{function.name}; ask for '
                "a node that calls it"
            )
    return f'there is no node "{name}"; {near_names(model, name)}'
