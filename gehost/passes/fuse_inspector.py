"""GE's checks and reports for passes that edit the graph themselves.

Source: GE's documentation of ``GraphFuseInspectorUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gehost.errors import PassError
from gehost.ir.graph import Node
from gehost.ir.region import Region
from gehost.passes.context import CustomPassContext
from gehost.refusal import Refusal
from gehost.status import SUCCESS, Status


class Fusibility(NamedTuple):
    """Whether nodes may become one, and why not; the tuple is true if ``ok``."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


class GraphFuseInspectorUtils:
    """Asks whether nodes may be fused, and counts what a pass did by itself."""

    @staticmethod
    def CanFuse(nodes: Iterable[Node]) -> Fusibility:
        """Whether one node could take the place of ``nodes``: no path leaves and comes back.

        Raises:
            PassError: ``nodes`` is no list of nodes.
        """
        region = Region.of_nodes(_nodes(nodes, "CanFuse"))
        if isinstance(region, Refusal):
            return Fusibility(ok=False, reason=region.reason)
        return Fusibility(ok=True, reason="")

    @staticmethod
    def ReportMatch(nodes: Iterable[Node], context: CustomPassContext) -> Status:
        """Count a match that the pass found by itself.

        Raises:
            PassError: there is no node, or one is not in the graph.
        """
        items = _nodes(nodes, "ReportMatch")
        if not items:
            raise PassError("ReportMatch: a match has a node")
        _check_in_graph(items, "ReportMatch")
        _context(context, "ReportMatch").report_match()
        return SUCCESS

    @staticmethod
    def ReportFuse(
        before: Iterable[Node], after: Iterable[Node], context: CustomPassContext
    ) -> Status:
        """Count a rewrite that the pass made by editing the graph.

        Call it after the edit. A rewrite by ``SubgraphRewriter`` is counted already, and stays one.

        Args:
            before: the replaced nodes, which nothing else reads any more.
            after: the nodes in their place; none if they were only removed.
            context: of the running pass.

        Raises:
            PassError: nothing was edited, a node of ``before`` is still in use, or one of
                ``after`` is not in the graph; nothing is counted.
        """
        old, new = _nodes(before, "ReportFuse"), _nodes(after, "ReportFuse")
        if not old:
            raise PassError("ReportFuse: name the nodes before the rewrite")
        _check_in_graph(new, "ReportFuse")
        replaced = {node for node in old if node.in_graph} - set(new)
        for node in old:
            if node in replaced and _is_read_outside(node, replaced):
                raise PassError(
                    f'ReportFuse: {node.op} "{node.label}" is still in use',
                    hint="let its users read the new nodes, then report, then remove it",
                )
        _context(context, "ReportFuse").report_edit(new)
        return SUCCESS


def _nodes(argument: Any, method: str) -> list[Node]:
    items: Sequence[Any] = list(argument) if isinstance(argument, Iterable) else [None]  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(node, Node) for node in items):
        raise PassError(f"{method}: wanted a list of nodes, got {argument!r}")
    return list(items)


def _context(argument: Any, method: str) -> CustomPassContext:
    if not isinstance(argument, CustomPassContext):
        raise PassError(f"{method}: wanted the context of the pass, got {argument!r}")
    return argument


def _check_in_graph(nodes: Sequence[Node], method: str) -> None:
    gone = next((node for node in nodes if not node.in_graph), None)
    if gone is not None:
        raise PassError(f'{method}: {gone.op} "{gone.label}" is not in the graph')


def _is_read_outside(node: Node, nodes: set[Node]) -> bool:
    return any(
        node.graph.reading_node(reader) not in nodes
        for value in node.outputs
        if value is not None
        for reader in value.readers
    )
