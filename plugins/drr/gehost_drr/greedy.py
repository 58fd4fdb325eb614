"""The greedy driver: rules by benefit, over and over, until none applies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from gehost import CustomPassContext, Graph, PassError, PatternError, UsageError, es
from gehost_drr.expressions import HERE
from gehost_drr.operation import GraphOperation, Region, graph_of
from gehost_drr.rule import DrrPass, DrrPatternBase, DrrRule

RuleLike: TypeAlias = "DrrRule | DrrPatternBase | type[DrrPatternBase]"


class IrContext:
    """The context that published code passes around.

    gehost keeps its state in the host.
    """

    @classmethod
    def Instance(cls) -> IrContext:
        return cls()


Context: TypeAlias = CustomPassContext | IrContext


class RewritePatternSet:
    """Rules that run together.

    Published code also passes its context, which is not needed.
    """

    def __init__(self, *rules: RuleLike | Context) -> None:
        self.rules: list[DrrRule] = []
        self.Add(*rules)

    def Add(self, *rules: RuleLike | Context) -> RewritePatternSet:
        """Add rules, whichever way they are written; returns the set."""
        self.rules.extend(
            as_rule(rule) for rule in rules if not isinstance(rule, CustomPassContext | IrContext)
        )
        return self


def is_rule(argument: Any) -> bool:
    """Whether it is a decorated function, rule class, or rule object."""
    return isinstance(argument, DrrRule | DrrPatternBase) or (
        isinstance(argument, type) and issubclass(argument, DrrPatternBase)
    )


def as_rule(argument: RuleLike) -> DrrRule:
    """Return the rule that a class or function defines.

    The class may be given as an object; the function is decorated.

    Raises:
        PatternError: it is none of these, or not well-formed.
    """
    if isinstance(argument, DrrRule):
        return argument
    if not is_rule(argument):
        raise PatternError(f"wanted a rule, got {argument!r}", where=es.author_origin(HERE))
    return (argument() if isinstance(argument, type) else argument).rule()


class FrozenRewritePatternSet:
    """The rules of a set that may run, most beneficial first.

    Equally beneficial ones are in the order in which they were added.

    Args:
        patterns: the set.
        disabled_pattern_labels: rules with one of these labels, or of one of these names, are
            left out.
        enabled_pattern_labels: where there are any, rules with none of them are left out.
    """

    def __init__(
        self,
        patterns: RewritePatternSet,
        disabled_pattern_labels: Iterable[str] = (),
        enabled_pattern_labels: Iterable[str] = (),
    ) -> None:
        disabled, enabled = frozenset(disabled_pattern_labels), frozenset(enabled_pattern_labels)
        chosen = [
            rule
            for rule in patterns.rules
            if disabled.isdisjoint((*rule.labels, rule.name))
            and (not enabled or not enabled.isdisjoint((*rule.labels, rule.name)))
        ]
        self.rules: tuple[DrrRule, ...] = tuple(sorted(chosen, key=lambda rule: -rule.benefit))
        self._context: CustomPassContext | None = None
        self._passes: dict[bool, tuple[DrrPass, ...]] = {}
        """By ``bottom_up``."""

    def passes(self, context: CustomPassContext, *, bottom_up: bool) -> tuple[DrrPass, ...]:
        """Return the rules as passes of a compile.

        They keep their lowered patterns for the next compile.
        """
        if self._context is not context:
            self.end_compile()
            self._context = context
        if bottom_up not in self._passes:
            self._passes[bottom_up] = tuple(
                DrrPass(rule, bottom_up=bottom_up) for rule in self.rules
            )
        return self._passes[bottom_up]

    def end_compile(self) -> None:
        """Forget the compile."""
        self._context = None
        for passes in self._passes.values():
            for pass_ in passes:
                pass_.end_compile()


@dataclass
class GreedyRewriteConfig:
    """How the driver works; fields may be assigned until it is used.

    Attributes:
        use_top_down_traversal: whether a rule is tried from inputs to outputs, or from outputs
            to inputs.
        max_iterations: how often all rules are tried again while one of them still applies.
    """

    use_top_down_traversal: bool = True
    max_iterations: int = 10

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raises ``UsageError`` where no iteration would run."""
        if type(self.max_iterations) is not int or self.max_iterations < 1:
            raise UsageError(f"max_iterations must be 1 or more, got {self.max_iterations!r}")


class GreedyResult(NamedTuple):
    """Outcome of the driver: fixed point or not, and rewrites."""

    converged: bool
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - the published name hides tuple.count


@dataclass
class Driven:
    """Results of the drivers in one pass."""

    context: CustomPassContext
    rewrites: Counter[str] = field(default_factory=Counter[str])
    """By rule."""
    converged: bool = True
    notes: dict[str, None] = field(default_factory=dict[str, None])
    """Rules that do not apply to the opset, and drivers that came to no end."""


_current: ContextVar[Driven | None] = ContextVar("gehost_drr_driven", default=None)


@contextmanager
def driving(driven: Driven) -> Generator[None]:
    """Let drivers work for a pass that runs."""
    token = _current.set(driven)
    try:
        yield
    finally:
        _current.reset(token)


def ApplyPatternsGreedily(
    region: Graph | Region | GraphOperation,
    patterns: FrozenRewritePatternSet | RewritePatternSet,
    config: GreedyRewriteConfig | None = None,
) -> GreedyResult:
    """Apply rules to a graph until none applies.

    The configuration may set a limit. Call it from a pass's ``Run``.

    Raises:
        PassError: no pass is running; a rule failed; rewrites feed each other without end.
    """
    driven, config = _current.get(), config or GreedyRewriteConfig()
    config.check()
    if driven is None:
        raise PassError("ApplyPatternsGreedily works inside the Run of a gehost_drr.Pass")
    if isinstance(patterns, RewritePatternSet):
        patterns = FrozenRewritePatternSet(patterns)
    if not isinstance(patterns, FrozenRewritePatternSet):  # pyright: ignore[reportUnnecessaryIsInstance] - a list is given easily
        raise PassError(
            "ApplyPatternsGreedily wants a FrozenRewritePatternSet or RewritePatternSet, "
            f"got {patterns!r}"
        )
    graph = graph_of(region)
    count, record = 0, driven.context.record
    opset = driven.context.model.opset() or 0
    for _ in range(config.max_iterations):
        before = record.replaced
        for pass_ in patterns.passes(driven.context, bottom_up=not config.use_top_down_traversal):
            outcome = record.replaced
            unfit = pass_.rule.unfit_for(opset) or _run(pass_, graph, driven.context)
            driven.rewrites[pass_.rule.name] += record.replaced - outcome
            if unfit:
                driven.notes[f"{pass_.rule.name}: {unfit}"] = None
        count += record.replaced - before
        if record.replaced == before:
            return GreedyResult(converged=True, count=count)
    driven.converged = False
    driven.notes[f"not converged after {config.max_iterations} iterations"] = None
    return GreedyResult(converged=False, count=count)


def _run(pass_: DrrPass, graph: Graph, context: CustomPassContext) -> str:
    """Run one rule; an error names the rule's own line.

    Returns why the opset cannot express it, else "".
    """
    record = context.record
    status, message, origin = record.status, record.message, record.origin
    record.message, record.origin = "", str(pass_.rule.origin)
    try:
        pass_.Run(graph, context)
        return record.message
    finally:
        record.status, record.message, record.origin = status, message, origin
