"""The greedy driver: rules by benefit, over and over, until none applies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from gehost import CustomPassContext, Graph, PassError
from gehost_drr.rule import DrrPass, DrrPatternBase, DrrRule


class RewritePatternSet:
    """Rules that are to run together."""

    def __init__(self, *rules: DrrRule | DrrPatternBase | type[DrrPatternBase]) -> None:
        self.rules: list[DrrRule] = []
        self.Add(*rules)

    def Add(self, *rules: DrrRule | DrrPatternBase | type[DrrPatternBase]) -> RewritePatternSet:
        """Add rules, whichever way they are written; returns the set."""
        self.rules.extend(as_rule(rule) for rule in rules)
        return self


def as_rule(given: DrrRule | DrrPatternBase | type[DrrPatternBase]) -> DrrRule:
    """The rule that a class, an object of it, or a decorated function defines."""
    if isinstance(given, DrrRule):
        return given
    return (given() if isinstance(given, type) else given).rule()


class FrozenRewritePatternSet:
    """The rules of a set that may run, the most beneficial first, as they were added among equals.

    Args:
        patterns: the set.
        disabled_pattern_labels: rules with one of these labels, or of one of these names, are left out.
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
        self._made_for: tuple[CustomPassContext, bool] | None = None
        self._passes: tuple[DrrPass, ...] = ()

    def passes(self, context: CustomPassContext, *, bottom_up: bool) -> tuple[DrrPass, ...]:
        """The rules as passes of one compile, which keep what was found out about its opset."""
        if self._made_for != (context, bottom_up):
            self._made_for = context, bottom_up
            self._passes = tuple(DrrPass(rule, bottom_up=bottom_up) for rule in self.rules)
        return self._passes


@dataclass(frozen=True)
class GreedyRewriteConfig:
    """How the driver works.

    Attributes:
        use_top_down_traversal: whether a rule is tried from inputs to outputs, or from outputs to inputs.
        max_iterations: how often all rules are tried again while one of them still applies.
    """

    use_top_down_traversal: bool = True
    max_iterations: int = 10


class GreedyResult(NamedTuple):
    """What the driver did: whether nothing was left to do, and the number of rewrites."""

    converged: bool
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - the published name hides tuple.count


@dataclass
class Driven:
    """What drivers did in one pass."""

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
    region: Graph, patterns: FrozenRewritePatternSet | RewritePatternSet, config: GreedyRewriteConfig | None = None
) -> GreedyResult:
    """Apply rules to a graph until none applies, or as often as the configuration says; call it from a pass's ``Run``.

    Raises:
        PassError: no pass is running; a rule failed; rewrites feed each other without end.
    """
    driven, config = _current.get(), config or GreedyRewriteConfig()
    if driven is None:
        raise PassError("ApplyPatternsGreedily works inside the Run of a gehost_drr.Pass")
    if isinstance(patterns, RewritePatternSet):
        patterns = FrozenRewritePatternSet(patterns)
    count, record = 0, driven.context.record
    status, message = record.status, record.message
    for _ in range(config.max_iterations):
        before = record.replaced
        for each in patterns.passes(driven.context, bottom_up=not config.use_top_down_traversal):
            done = record.replaced
            each.Run(region, driven.context)
            driven.rewrites[each.rule.name] += record.replaced - done
            if record.message != message:  # a rule says that the opset cannot express it
                driven.notes[f"{each.rule.name}: {record.message}" if record.message else ""] = None
            record.status, record.message = status, message
        count += record.replaced - before
        if record.replaced == before:
            return GreedyResult(converged=True, count=count)
    driven.converged = False
    driven.notes[f"not converged after {config.max_iterations} iterations"] = None
    return GreedyResult(converged=False, count=count)
