"""The context of a running pass, and the record of its run."""

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
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.ir.region import Region, SubgraphBoundary
from gehost.kernels import NO_TARGET, Target
from gehost.ops import OpRegistry, declared_in
from gehost.pattern.match import MatchResult
from gehost.pattern.source import SourcePattern
from gehost.refusal import Refusal, Refused
from gehost.rewrite.provenance import Author
from gehost.rewrite.replace import Replaced, replace_region
from gehost.rewrite.rounding import note_constant, note_weight
from gehost.rewrite.session import RewriteSession
from gehost.settings import GE_PREFIX, NO_OPTIONS
from gehost.stages import CustomPassStage

if TYPE_CHECKING:
    from gehost.passes.snapshots import Refusals, RewriteGroup


@dataclass
class PassRecord:
    """The record of one pass in one compile."""

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
    """The rewrites, even if the pass then failed and was undone. Only filled for reports."""
    refusals: list[Refusals] = field(default_factory=list)
    """The full reasons behind ``rejected``, with the nodes. Only filled for reports."""


@dataclass
class RewriteLimit:
    """The number of this compile's rewrites, and its limit (None: none)."""

    most: int | None = None
    done: int = 0

    @property
    def reached(self) -> bool:
        return self.most is not None and self.done >= self.most

    def count(self) -> None:
        self.done += 1


class LimitReached(Exception):  # noqa: N818 - it ends a pass and is no error
    """Ends a pass that exceeds the limit of rewrites; earlier ones stay."""


@dataclass(frozen=True)
class Rewrite:
    """One rewrite: the matched region, and the nodes that replace it."""

    number: int
    """Its number in this compile, from 1."""
    record: PassRecord
    region: Region
    """The matched nodes in topological order, their inputs and outputs, before the rewrite."""
    made: Sequence[Node] = ()
    """The new nodes; none before the rewrite, or if an input was forwarded."""


class RewriteObserver(Protocol):
    """Receives the rewrites of a pass while they happen."""

    @property
    def watches_rules(self) -> bool:
        """Whether ``before_rule`` is of use; its ``source`` is made for it."""
        ...

    def before_rule(self, record: PassRecord, source: SourcePattern, graph: Graph) -> None: ...

    def before_rewrite(self, rewrite: Rewrite) -> None: ...

    def after_rewrite(self, rewrite: Rewrite) -> None: ...

    def match_refused(self, record: PassRecord, node: Node, refusal: Refusal) -> None: ...


class CustomPassContext:
    """Passed to ``Run`` with GE's names: pass name, options, rewrites, errors."""

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
        before_author_code: Callable[[], None] = lambda: None,
        options: Mapping[str, Any] = NO_OPTIONS,
        settings: Mapping[str, Any] = NO_OPTIONS,
        method_names: Mapping[str, str] = NO_OPTIONS,
        target: Target = NO_TARGET,
    ) -> None:
        self.model = model
        self.registry = registry
        self.stage = stage
        self.record = record
        self.limit = limit or RewriteLimit()
        self.session = RewriteSession(model, registry, Author(record.name, record.vendor), inferrer)
        self.shape_proven = False
        """Whether ``Run`` itself vouches for output sizes that cannot be compared."""
        self.node_support: Callable[[Any], tuple[bool, str]] = node_support or (
            lambda _: (True, "")
        )
        self.observer = observer
        self.before_author_code = before_author_code
        """Called before a match is looked for, at the latest."""
        self.options = options
        """The pass's options by name, each of its declared type."""
        self.method_names = method_names
        """The author's names of the host's methods, for messages, where they differ."""
        self.author: type | None = None
        """The class that the pass's author wrote, for lines in messages."""
        self._settings = settings
        self._name = record.name
        self._reported = model.mark()
        self.target = target
        """What the compiled file is for: ``find`` of ``gehost.kernels`` has its kernels."""
        self.matched: MatchResult | Node | None = None
        """The match or node for which ``MeetRequirements`` or ``Replacement`` runs."""
        self._made: list[Node] = []
        self._error = ""

    @property
    def pass_name(self) -> str:
        return self.record.name

    def GetPassName(self) -> str:
        return self._name

    def SetPassName(self, name: str) -> None:
        """Set the name that ``GetPassName`` returns; reports keep the registered one."""
        self._name = name

    def GetOptionValue(self, key: str) -> str:
        """Return an option as text: one of the pass, or one of GE (``ge.…``) set by ``--set``.

        Raises:
            PassError: it has no value.
        """
        value = self.options.get(key)
        if value is None and key.startswith(GE_PREFIX):
            value = self._settings.get(key)
        if value is None:
            name = key if key.startswith(GE_PREFIX) else f"{self.record.name}.{key}"
            raise PassError(f'option "{key}" has no value', hint=f"set it: --set {name}=VALUE")
        return str(value).lower() if isinstance(value, bool) else str(value)

    def report_match(self) -> None:
        """Count a match that the pass found by itself."""
        self.record.matched += 1

    def report_edit(self, new_nodes: Sequence[Node]) -> None:
        """Count a rewrite that the pass made by editing the graph.

        A rewrite by ``replace`` or ``SubgraphRewriter`` counts once.

        Raises:
            PassError: nothing was edited since the last one.
        """
        if new_nodes and all(node in self._made for node in new_nodes):
            return
        mark = self.model.mark()
        if mark == self._reported:
            raise PassError("nothing was edited since the last report or the pass's start")
        self._reported = mark
        self.record.replaced += 1
        self.record.matched = max(self.record.matched, self.record.replaced)

    # Any: as for refuse
    def replace(
        self, region: Region | Any, graph: EsGraph | Any, *, keep_shared: bool = False
    ) -> list[Node] | Refusal:
        """Replace a region, for use in ``Run``.

        A refusal is counted and leaves the graph unchanged.

        Args:
            region: the nodes to replace, from ``Region.of_nodes``.
            graph: the replacement; its inputs are the region's by index (it may use fewer), its
                outputs the region's.
            keep_shared: keep the nodes whose tensors have users outside the region. The graph then
                gives only ``region.results``: the outputs that no node of the region uses.

        Returns:
            The new nodes (none if inputs are forwarded), or why the rewrite is refused: types
            that disagree or cannot be proven, an operator that the opset lacks, ….

        Raises:
            PassError: the region is out of date, or the graph has other numbers of inputs or
                outputs; nothing was changed.
            LimitReached: the compile has reached its limit of rewrites; a pass must not catch it.
        """
        if self.limit.reached:
            raise LimitReached
        for argument, expected, source in (
            (region, Region, "Region.of_nodes"),
            (graph, EsGraph, "BuildAndReset"),
        ):
            if not isinstance(argument, expected):
                result = (
                    f"a refusal, {argument}"
                    if isinstance(argument, Refusal)
                    else type(argument).__name__
                )
                raise PassError(
                    f"wanted the result of {source}, got {result}", subject="context.replace"
                )
        problem = region.stale()
        if problem:
            raise PassError(
                problem, subject="context.replace", hint="create the region just before the call"
            )
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
        root = region.outputs[0].producer
        assert root is not None
        try:
            return self.rewrite(region, graph, shape_proven=self.shape_proven).nodes
        except Refused as refused:
            self.refuse(root, refused.refusal)
            return refused.refusal

    def rewrite(self, region: Region, replacement: EsGraph, *, shape_proven: bool) -> Replaced:
        """Replace a region and record it; raises as ``replace_region`` does."""
        observer, number = self.observer, self.limit.done + 1
        if observer is not None:
            observer.before_rewrite(Rewrite(number, self.record, region))
        replaced = replace_region(self.session, region, replacement, shape_proven=shape_proven)
        self.record.replaced += 1
        self.limit.count()
        self._made.extend(replaced.nodes)
        if observer is not None:
            observer.after_rewrite(Rewrite(number, self.record, region, replaced.nodes))
        return replaced

    def infer(self, node: Node) -> None:
        """Set the types of the outputs of a node that ``Run`` added, as inference has them.

        Raises:
            PassError: the operator does not accept its inputs.
        """
        try:
            types = self.session.inferrer.node(node)
        except Refused as failure:
            raise PassError(str(failure), subject=f"context.infer: {node.label}") from failure
        for value, type_ in zip(node.outputs, types, strict=True):
            if value is not None:
                node.graph.set_type(value, self.session.inferrer.named(type_))

    def replaces_constant(self, value: Value, exact: float) -> None:
        """Note that a rewrite put ``exact`` in place of a constant that its type had rounded.

        ``gehost verify`` then judges the numbers as equal within rounding.
        """
        note_constant(self.model, value, exact)

    def folds_weight(self, value: Value) -> None:
        """Note that a rewrite computed new weights from ``value``, rounded to its type."""
        note_weight(self.model, value)

    # Any: the types are checked below, with errors of ours; mypyc would check a declared type first
    def refuse(self, node: Node | Any, reason: str | Refusal | Any) -> None:
        """Count and report a refused match at ``node``.

        Args:
            node: where the pass looked.
            reason: a refusal, or its text, ``key: message``.

        Raises:
            PassError: ``node`` is not a node, or ``reason`` neither.
        """
        if not isinstance(node, Node) or not isinstance(reason, (str, Refusal)):
            raise PassError(
                f'wanted a node and a reason, "key: text", got {node!r} and {reason!r}',
                subject="context.refuse",
            )
        refusal = Refusal.of(reason) if isinstance(reason, str) else reason
        self.record.rejected[refusal.key] += 1
        if self.observer is not None:
            self.observer.match_refused(self.record, node, refusal)

    def forget_generations(self) -> None:
        """Reset the generations of new nodes, for the next pass.

        Only rewrites that feed each other within one pass may be endless.
        """
        for node in self._made:
            node.generation = 0
        self._made.clear()

    def SetErrorMessage(self, message: str) -> None:
        """Set the message for a ``Run`` that returns FAILED."""
        self._error = message

    def GetErrorMessage(self) -> str:
        return self._error


_current: ContextVar[CustomPassContext | None] = ContextVar("gehost_current_pass", default=None)


@contextmanager
def running(context: CustomPassContext) -> Generator[None]:
    """Make ``context`` the one that GE's static functions use."""
    token = _current.set(context)
    try:
        with declared_in(context.registry):
            yield
    finally:
        _current.reset(token)
        context.forget_generations()


def current_context() -> CustomPassContext | None:
    return _current.get()


class SubgraphRewriter:
    """Replaces a part of the graph that a pass delimits itself."""

    @staticmethod
    def Replace(
        boundary: SubgraphBoundary,
        replacement: EsGraph,
        pass_context: CustomPassContext | None = None,
    ) -> list[Node]:
        """Replace the nodes inside ``boundary``; return the new nodes.

        The rewrite is checked and counted with and without ``pass_context``, which GE's newer form
        passes.

        Raises:
            PassError: no pass is running, the boundary is not closed, or the rewrite is refused
                (types that disagree or cannot be proven, a cycle); the graph is unchanged.
            LimitReached: the compile has reached its limit of rewrites; a pass must not catch it.
        """
        context = current_context()
        if context is None:
            raise PassError(
                "SubgraphRewriter.Replace works inside a pass; elsewhere use "
                "gehost.rewrite.replace.replace_region"
            )
        if pass_context is not None and pass_context is not context:
            raise PassError(
                f"wanted the context of the running pass, got {pass_context!r}",
                subject="SubgraphRewriter.Replace",
            )
        if context.limit.reached:
            raise LimitReached
        try:
            region = boundary.region()
            replaced = context.rewrite(region, replacement, shape_proven=context.shape_proven)
        except Refused as refusal:
            failure = PassError(f"SubgraphRewriter.Replace: {refusal}")
            # authors may use it, and machine code ignores "raise … from"
            failure.__cause__ = refusal
            raise failure from refusal
        context.record.matched += 1
        return replaced.nodes
