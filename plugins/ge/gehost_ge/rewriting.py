"""``PassContext`` and rewriting by boundaries with GE's Python names.

Source: the documented Python interface of GE (Passes), its newer guides and examples.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import gehost
from gehost import CustomPassContext, Fusibility, GehostError, GraphFuseInspectorUtils
from gehost_ge.errors import GeError, checked, ge_errors
from gehost_ge.graph import Graph, Node, NodeIo


class PassContext:
    """A running pass: its name, its options, its error message."""

    def __init__(self, context: CustomPassContext) -> None:
        self.host_context = context
        self._message = ""

    def get_pass_name(self) -> str:
        return self.host_context.GetPassName()

    def set_pass_name(self, name: str) -> None:
        self.host_context.SetPassName(checked(name, str, "a name as text"))

    def get_error_message(self) -> str:
        return self._message

    def set_error_message(self, message: str) -> None:
        """Set the reason that reports show if the pass refuses a match, or fails."""
        self._message = checked(message, str, "a message as text")

    def get_option_value(self, key: str) -> str:
        """Return the value of ``--set PASS.key=…``; of a key ``ge.…``, that of ``--set key=…``.

        Raises:
            RuntimeError: no such option is set.
        """
        checked(key, str, "the name of an option")
        with ge_errors():
            return self.host_context.GetOptionValue(key)


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
        with ge_errors():
            self.host_boundary.AddInput(index, subgraph_input.host_input)
        return self

    def add_output(self, index: int, subgraph_output: SubgraphOutput) -> SubgraphBoundary:
        checked(subgraph_output, SubgraphOutput, "a SubgraphOutput")
        with ge_errors():
            self.host_boundary.AddOutput(index, subgraph_output.host_output)
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


def can_fuse(nodes: Sequence[Node]) -> Fusibility:
    """Whether one node could take the place of ``nodes``: no path leaves them and comes back."""
    return GraphFuseInspectorUtils.CanFuse(_host_nodes(nodes))


def report_match(nodes: Sequence[Node], context: PassContext) -> None:
    """Count a match that the pass found by itself.

    Raises:
        RuntimeError: there is no node, or one is not in the graph.
    """
    checked(context, PassContext, "a PassContext")
    with _noted_in(context):
        GraphFuseInspectorUtils.ReportMatch(_host_nodes(nodes), context.host_context)


def report_fuse(before: Sequence[Node], after: Sequence[Node], context: PassContext) -> None:
    """Count a rewrite that the pass made by editing the graph; call it after the edit.

    Raises:
        RuntimeError: nothing was edited, a node of ``before`` is still in use, or one of ``after``
            is not in the graph.
    """
    checked(context, PassContext, "a PassContext")
    with _noted_in(context):
        GraphFuseInspectorUtils.ReportFuse(
            _host_nodes(before), _host_nodes(after), context.host_context
        )


def _host_nodes(nodes: Sequence[Node]) -> list[Any]:
    return [checked(node, Node, "a list of nodes").inner for node in nodes]


@contextmanager
def _noted_in(context: PassContext) -> Generator[None]:
    """Turn the host's errors into ``GeError``, also the context's message."""
    try:
        with ge_errors():
            yield
    except GeError as error:
        context.set_error_message(str(error))
        raise
