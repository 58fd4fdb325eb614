"""What a pass sees of its run, and what the run notes down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gehost.errors import PassError
from gehost.es.graph import EsGraph
from gehost.infer import Inferrer
from gehost.ir.graph import Graph, Node
from gehost.ir.model import Model
from gehost.ir.region import Region, Rejection, SubgraphBoundary
from gehost.ops import OpRegistry
from gehost.pattern.match import MatchResult
from gehost.pattern.source import SourcePattern
from gehost.rewrite.lower import Refused
from gehost.rewrite.provenance import Author
from gehost.rewrite.replace import Replaced, replace_region
from gehost.rewrite.session import RewriteSession
from gehost.settings import NO_OPTIONS
from gehost.stages import CustomPassStage

if TYPE_CHECKING:
    from gehost.passes.snapshots import Refusals, RewriteGroup


@dataclass
class PassRecord:
    """What one pass did in one compile."""

    name: str
    stage: str
    origin: str
    kind: str
    vendor: str = ""
    status: str = "done"
    """``done``, ``not changed``, ``not applicable``, ``failed``, ``disabled``."""
    matched: int = 0
    replaced: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    message: str = ""
    """Why the pass failed, or which of its patterns do not apply and why."""
    rewrites: list[RewriteGroup] = field(default_factory=list)
    """What was replaced by what, also where the pass then failed and was undone. Recorded for a
    report, else empty.
    """
    refusals: list[Refusals] = field(default_factory=list)
    """The whole reasons behind ``rejected``, with the nodes. Recorded for a report, else empty."""

    def reject(self, reason: str) -> None:
        """Count a refusal under the text before the first colon."""
        self.rejected[reason.partition(":")[0].strip() or "unspecified"] += 1


@dataclass
class RewriteLimit:
    """How many rewrites this compile has done, and may do at most; None for any number."""

    most: int | None = None
    done: int = 0

    @property
    def reached(self) -> bool:
        return self.most is not None and self.done >= self.most

    def count(self) -> None:
        self.done += 1


class LimitReached(Exception):  # noqa: N818 - it ends a pass and is no error
    """Ends a pass that asks for one more rewrite than the compile may do; what it did so far
    stays.
    """


@dataclass(frozen=True)
class Rewrite:
    """One rewrite: what a pass replaces, and by what."""

    number: int
    """Of those of this compile, from 1."""
    record: PassRecord
    region: Region
    """The matched nodes in topological order, what they take and what they give, as they are
    before the rewrite.
    """
    made: Sequence[Node] = ()
    """The new nodes; none before it, or where an input was forwarded."""


class RewriteObserver(Protocol):
    """Looks at the rewrites of a pass while they happen."""

    @property
    def watches_rules(self) -> bool:
        """Whether ``before_rule`` is of use; its ``source`` is made for it."""
        ...

    def before_rule(self, record: PassRecord, source: SourcePattern, graph: Graph) -> None: ...

    def before_rewrite(self, rewrite: Rewrite) -> None: ...

    def after_rewrite(self, rewrite: Rewrite) -> None: ...

    def match_refused(self, record: PassRecord, node: Node, reason: str) -> None: ...


def _nobody_objects(node: Any) -> tuple[bool, str]:
    del node
    return True, ""


class CustomPassContext:
    """Given to ``Run``: the pass's name, options and the way to report an error, under GE's
    names.
    """

    def __init__(
        self,
        model: Model,
        registry: OpRegistry,
        inferrer: Inferrer,
        stage: CustomPassStage,
        record: PassRecord,
        *,
        limit: RewriteLimit | None = None,
        node_support: Callable[[Any], tuple[bool, str]] | None = None,
        observer: RewriteObserver | None = None,
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> None:
        self.model = model
        self.registry = registry
        self.stage = stage
        self.record = record
        self.limit = limit or RewriteLimit()
        self.session = RewriteSession(model, registry, Author(record.name, record.vendor), inferrer)
        self.shape_proven = False
        """The pass's author vouches for output sizes that cannot be compared."""
        self.node_support = node_support or _nobody_objects
        self.observer = observer
        self.options = options
        """The pass's options by name, each of its declared type."""
        self.matched: MatchResult | Node | None = None
        """The match or node that the author's hooks are asked about."""
        self._made: list[Node] = []
        self._error = ""

    @property
    def pass_name(self) -> str:
        return self.record.name

    def GetPassName(self) -> str:
        return self.record.name

    def replace(
        self, region: Region, graph: EsGraph, *, keep_shared: bool = False
    ) -> list[Node] | Rejection:
        """Replace a region, as a ``Run`` does it; a refusal is counted and the graph left as is.

        Args:
            region: what goes, as ``Region.of_nodes`` gives it.
            graph: what comes; its inputs are the region's by index (it may use fewer), its
                outputs the region's.
            keep_shared: keep the nodes whose tensors others read besides the region. The graph
                then gives ``region.results`` alone: the outputs that no node of the region reads.

        Returns:
            The new nodes (none where inputs are forwarded), or why the rewrite is refused: types
            that disagree or cannot be proven, an operator that the opset lacks, ….

        Raises:
            PassError: the region is out of date, or the graph has other numbers of inputs or
                outputs; nothing was changed.
            LimitReached: the compile has done as many rewrites as it may; a pass must not catch
                it.
        """
        if self.limit.reached:
            raise LimitReached
        problem = region.stale()
        if problem:
            raise PassError(problem, subject="context.replace", hint="make the region just before")
        if keep_shared:
            region = Region(region.graph, region.inputs, region.results, region.nodes)
        if len(graph.outputs) != len(region.outputs):
            raise PassError(
                f"the graph has {len(graph.outputs)} outputs, wanted {len(region.outputs)}, "
                f"{'region.results' if keep_shared else 'region.outputs'}",
                subject="context.replace",
            )
        if len(graph.inputs) > len(region.inputs):
            raise PassError(
                f"the graph has {len(graph.inputs)} inputs, the region has {len(region.inputs)}",
                subject="context.replace",
            )
        self.record.matched += 1
        anchor = region.outputs[0].producer
        assert anchor is not None
        try:
            if region.closes_cycle():
                raise Refused("cycle: the replacement would make one")
            return self.rewrite(region, graph).nodes
        except Refused as refused:
            self.refuse(anchor, str(refused))
            return Rejection(str(refused))

    def rewrite(self, region: Region, replacement: EsGraph) -> Replaced:
        """Replace a region and record it; raises as ``replace_region`` does."""
        observer, number = self.observer, self.limit.done + 1
        if observer is not None:
            observer.before_rewrite(Rewrite(number, self.record, region))
        replaced = replace_region(self.session, region, replacement, shape_proven=self.shape_proven)
        self.record.replaced += 1
        self.limit.count()
        self._made.extend(replaced.nodes)
        if observer is not None:
            observer.after_rewrite(Rewrite(number, self.record, region, replaced.nodes))
        return replaced

    def refuse(self, node: Node, reason: str) -> None:
        """Count and report that nothing replaces ``node``, for a reason like ``key: text``."""
        self.record.reject(reason)
        if self.observer is not None:
            self.observer.match_refused(self.record, node, reason)

    def forget_generations(self) -> None:
        """Rewrites of the next pass start anew: only those that feed each other in one pass may
        go on without end.
        """
        for node in self._made:
            node.generation = 0
        self._made.clear()

    def SetErrorMessage(self, message: str) -> None:
        """What a ``Run`` that returns FAILED wants to say."""
        self._error = message

    def GetErrorMessage(self) -> str:
        return self._error


_current: ContextVar[CustomPassContext | None] = ContextVar("gehost_current_pass", default=None)


@contextmanager
def running(context: CustomPassContext) -> Generator[None]:
    """Make ``context`` the one that GE's static functions work for."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
        context.forget_generations()


def current_context() -> CustomPassContext | None:
    return _current.get()


class SubgraphRewriter:
    """Replaces a part of the graph that a pass marked out by hand."""

    @staticmethod
    def Replace(boundary: SubgraphBoundary, replacement: EsGraph) -> list[Node]:
        """Replace what lies inside ``boundary``; returns the new nodes.

        Raises:
            PassError: no pass is running, the boundary is not closed, or the rewrite may not be
                done (types that disagree or cannot be proven, a cycle); the graph is as it was.
            LimitReached: the compile has done as many rewrites as it may; not to be caught by a
                pass.
        """
        context = current_context()
        if context is None:
            raise PassError(
                "SubgraphRewriter.Replace works inside a pass; elsewhere use "
                "gehost.rewrite.replace.replace_region"
            )
        if context.limit.reached:
            raise LimitReached
        try:
            region = boundary.region()
            if region.closes_cycle():
                raise Refused("cycle: the replacement would make one")
            replaced = context.rewrite(region, replacement)
        except Refused as refusal:
            failure = PassError(f"SubgraphRewriter.Replace: {refusal}")
            # authors may ask for it, and machine code leaves out what follows "from"
            failure.__cause__ = refusal
            raise failure from refusal
        context.record.matched += 1
        return replaced.nodes
