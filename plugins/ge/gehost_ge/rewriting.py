"""``PassContext`` and rewriting by boundaries with GE's Python names.

Source: the documented Python interface of GE (Passes), its newer guides and examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gehost
from gehost import CustomPassContext, GehostError
from gehost_ge.errors import GeError, checked
from gehost_ge.graph import Graph, Node, NodeIo


class PassContext:
    """A running pass: its name, its options, its error message."""

    def __init__(self, context: CustomPassContext) -> None:
        self.host_context = context
        self._name = context.pass_name
        self._message = ""

    def get_pass_name(self) -> str:
        return self._name

    def set_pass_name(self, name: str) -> None:
        self._name = checked(name, str, "a name as text")

    def get_error_message(self) -> str:
        return self._message

    def set_error_message(self, message: str) -> None:
        """Set the reason that reports show if the pass refuses a match, or fails."""
        self._message = checked(message, str, "a message as text")

    def get_option_value(self, key: str) -> str:
        """Return the value of ``--set PASS.key=…``.

        Raises:
            RuntimeError: no such option is set.
        """
        checked(key, str, "the name of an option")
        options = self.host_context.options
        if key not in options:
            raise GeError(f'option "{key}" is unknown; set it with --set {self._name}.{key}=VALUE')
        return str(options[key])


class SubgraphInput:
    """The users inside a part of a graph of one tensor from outside."""

    def __init__(self, node_inputs: Sequence[tuple[Node, int]] = ()) -> None:
        self.host_input = gehost.SubgraphInput()
        for node, index in node_inputs:
            self.add_input(node, index)

    def add_input(self, node: Node | NodeIo, index: int = 0) -> SubgraphInput:
        """Add a user and the number of its input."""
        self.host_input.AddInput(_host_io(node, index))
        return self


class SubgraphOutput:
    """A tensor that leaves a part of a graph."""

    def __init__(self, node: Node | NodeIo | None = None, index: int = 0) -> None:
        self.host_output = gehost.SubgraphOutput()
        if node is not None:
            self.set_output(node, index)

    def set_output(self, node: Node | NodeIo, index: int = 0) -> SubgraphOutput:
        """Set the producer and the number of its output."""
        self.host_output.SetOutput(_host_io(node, index))
        return self


def _host_io(node: Any, index: int) -> gehost.NodeIo:
    if isinstance(node, NodeIo):
        node, index = node.node, node.index
    checked(node, Node, "a Node")
    return gehost.NodeIo(node.inner, checked(index, int, "the number of a port"))


class SubgraphBoundary:
    """Ordered inputs and outputs that enclose a part of a graph."""

    def __init__(self) -> None:
        self.host_boundary = gehost.SubgraphBoundary()

    def add_input(self, index: int, subgraph_input: SubgraphInput) -> SubgraphBoundary:
        checked(subgraph_input, SubgraphInput, "a SubgraphInput")
        try:
            self.host_boundary.AddInput(index, subgraph_input.host_input)
        except GehostError as error:
            raise GeError(str(error)) from error
        return self

    def add_output(self, index: int, subgraph_output: SubgraphOutput) -> SubgraphBoundary:
        checked(subgraph_output, SubgraphOutput, "a SubgraphOutput")
        try:
            self.host_boundary.AddOutput(index, subgraph_output.host_output)
        except GehostError as error:
            raise GeError(str(error)) from error
        return self


class SubgraphRewriter:
    """Replaces a part of the graph that a pass delimits itself."""

    @staticmethod
    def replace(
        boundary: SubgraphBoundary, graph: Graph, context: PassContext | None = None
    ) -> int:
        """Replace the nodes inside ``boundary``; return 0, or 1 where it is refused.

        Raises:
            RuntimeError: with ``context``: the boundary is not closed, or the rewrite is refused.
            TypeError: an argument is of another type.
        """
        checked(boundary, SubgraphBoundary, "a SubgraphBoundary")
        built = checked(graph, Graph, "the result of build_and_reset").built
        try:
            gehost.SubgraphRewriter.Replace(boundary.host_boundary, built)
        except GehostError as error:
            if context is not None:
                raise GeError(str(error)) from error
            return 1
        return 0


class Fusibility(NamedTuple):
    """Whether nodes may become one, and why not."""

    ok: bool
    reason: str


def can_fuse(nodes: Sequence[Node]) -> Fusibility:
    """Whether one node could take the place of ``nodes``: no path leaves them and comes back."""
    listed = [checked(node, Node, "a list of nodes").inner for node in nodes]
    region = gehost.Region.of_nodes(listed)
    if isinstance(region, gehost.Rejection):
        return Fusibility(ok=False, reason=region.reason)
    return Fusibility(ok=True, reason="")


def report_match(nodes: Sequence[Node], context: PassContext) -> None:
    """Count a match that the pass found by itself."""
    checked(context, PassContext, "a PassContext")
    for node in nodes:
        checked(node, Node, "a list of nodes")
    context.host_context.record.matched += 1


def report_fuse(before: Sequence[Node], after: Sequence[Node], context: PassContext) -> None:
    """Count a rewrite that the pass made by editing the graph."""
    checked(context, PassContext, "a PassContext")
    for node in [*before, *after]:
        checked(node, Node, "a list of nodes")
    context.host_context.record.replaced += 1
