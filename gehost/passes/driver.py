"""Run rules on the live graph: visit candidates, ask authors, replace.

A candidate has at most one match, and the number of rewrites is bounded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from gehost.errors import PassError, PatternError
from gehost.es import schemas
from gehost.es.graph import EsGraph, EsTensor
from gehost.es.opset import resolve_op
from gehost.ir.graph import Graph, Node, Value, op_name, split_op
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.ops import OpRegistry
from gehost.passes.author_errors import author_errors, blamed_on, direct_edit
from gehost.passes.context import CustomPassContext
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.match import MatchResult
from gehost.pattern.matcher import CompiledPattern
from gehost.pattern.pattern import Pattern, PatternMatcherConfig, VariadicPattern
from gehost.refusal import Refusal, Refused
from gehost.rewrite.replace import Replaced

_Matched = TypeVar("_Matched", MatchResult, Node)


class _Author(Protocol):
    """A pass as its author wrote it: it accepts a match or node, and replaces it."""

    shape_proven: ClassVar[bool]

    def MeetRequirements(self, offered: Any, /) -> Any: ...

    def Replacement(self, offered: Any, /) -> Any: ...


class _PatternAuthor(_Author, Protocol):
    """A ``PatternFusionPass``."""

    bottom_up: ClassVar[bool]

    def Patterns(self) -> Any: ...


_MOST_RETURNED = 10_000
"""Largest number of patterns of one pass, and of tensors of one replacement."""

_MOST_OPSETS = 16
"""Opsets for which a pass object keeps its lowered patterns."""


class _Rule:
    """A pattern at some opsets, compiled on first use."""

    def __init__(
        self, pattern: Pattern, lowered: LoweredPattern, all_names: frozenset[str]
    ) -> None:
        self.pattern = pattern
        self.lowered = lowered
        self.all_names = all_names
        """Names of tensors of all patterns of the pass."""
        self._compiled: CompiledPattern | None = None

    def compiled(self) -> CompiledPattern:
        if self._compiled is None:
            self._compiled = CompiledPattern(self.lowered.source)
        return self._compiled


class _VariadicRule:
    """A variadic pattern at some opsets: a rule for each number that occurs in a graph."""

    def __init__(
        self,
        pattern: VariadicPattern,
        config: PatternMatcherConfig,
        model: Model,
        registry: OpRegistry,
        all_names: frozenset[str],
    ) -> None:
        """Lower the smallest one; raises as ``LoweredPattern`` does."""
        self.pattern = pattern
        self.all_names = all_names
        self._config = config
        self._registry = registry
        self._rules: dict[int, _Rule] = {}
        self.lowered = self.of(pattern.least, model).lowered

    def of(self, number: int, model: Model) -> _Rule:
        """Return the rule for a number."""
        cached = self._rules.get(number)
        if cached is None:
            pattern = self.pattern.of(number)
            lowered = LoweredPattern(pattern, self._config, model, self._registry)
            cached = self._rules[number] = _Rule(pattern, lowered, self.all_names)
        return cached

    def nodes(self, graph: Graph) -> list[Node]:
        """Return the nodes of a graph that have any number of inputs or outputs."""
        name = self.pattern.op
        names = [
            operator
            for node, op in zip(self.lowered.source.nodes, self.lowered.source.ops, strict=True)
            if name in node.ops
            for operator in op.ops
        ]
        return graph.nodes_of(*dict.fromkeys(names))

    def numbers(self, node: Node) -> set[int]:
        """Return the numbers for which a node may be in a match."""
        count = len(node.outputs if self.pattern.counts_outputs else node.inputs)
        results = {count - extra for extra in self.pattern.extra}
        return {number for number in results if number >= self.pattern.least}


class LoweredRules(NamedTuple):
    """The patterns of a pass at some opsets."""

    rules: list[_Rule | _VariadicRule]
    """The patterns that the opsets can express."""
    reasons: list[str]
    """Why the others are not applicable."""


class PassPatterns:
    """The patterns of a pass, lowered to the opsets of the last models.

    They do not depend on a graph, so that a pass object that serves several compiles keeps them.
    """

    def __init__(self, owner: _PatternAuthor) -> None:
        """Call ``Patterns``; raises ``PatternError`` if it returns nonsense."""
        returned = owner.Patterns()
        self._patterns = listed_patterns(returned)
        self._lowered: dict[frozenset[tuple[str, int]], LoweredRules] = {}
        """By opsets, the last used at the end."""

    def lower(
        self, config: PatternMatcherConfig, model: Model, registry: OpRegistry
    ) -> LoweredRules:
        """Lower the patterns to a model's opsets, unless one of the last models had these."""
        opsets = frozenset(model.opsets.items())
        lowered = self._lowered.pop(opsets, None)
        if lowered is None or not all(rule.lowered.holds_for(model) for rule in lowered.rules):
            rules: list[_Rule | _VariadicRule] = []
            smallest = [
                pattern.of(pattern.least) if isinstance(pattern, VariadicPattern) else pattern
                for pattern in self._patterns
            ]
            names = frozenset(name for pattern in smallest for name in pattern.names)
            reasons: dict[str, None] = {}
            for pattern in self._patterns:
                try:
                    if isinstance(pattern, VariadicPattern):
                        rules.append(_VariadicRule(pattern, config, model, registry, names))
                        continue
                    lowered_pattern = LoweredPattern(pattern, config, model, registry)
                    rules.append(_Rule(pattern, lowered_pattern, names))
                except Refused as error:
                    reasons[error.message] = None
            lowered = LoweredRules(rules, list(reasons))
        self._lowered[opsets] = lowered
        if len(self._lowered) > _MOST_OPSETS:
            del self._lowered[next(iter(self._lowered))]
        return lowered


class PatternRules:
    """A ``PatternFusionPass`` as rules at one model's opset."""

    def __init__(
        self, owner: _PatternAuthor, lowered: LoweredRules, context: CustomPassContext
    ) -> None:
        self._runners = [
            _RuleRunner(owner, rule, context)
            if isinstance(rule, _Rule)
            else _VariadicRunner(owner, rule, context)
            for rule in lowered.rules
        ]
        message = "; ".join(lowered.reasons)
        context.record.message = (
            f"some of its patterns are not applicable: {message}"
            if message and self._runners
            else message
        )
        if not self._runners:
            context.record.status = "not applicable"

    def apply(self, graph: Graph) -> int:
        """Apply the rules in order to a graph; return the rewrites' number.

        Raises:
            PassError: a method of the pass failed, or the pass grew the graph more than 1000 times
                plus 10 per node.
        """
        limit = _GrowthLimit(10 * len(graph) + 1000)
        count = 0
        for runner in self._runners:
            count += runner.apply(graph, limit)
        return count


def listed_patterns(returned: Any) -> list[Pattern | VariadicPattern]:
    """Return what ``Patterns`` returned as a list; raises ``PatternError`` if it is no patterns."""
    if isinstance(returned, Pattern | VariadicPattern):
        return [returned]
    patterns = [] if isinstance(returned, EsTensor) else _listed(returned, "patterns")
    if not patterns or not all(
        isinstance(pattern, Pattern | VariadicPattern) for pattern in patterns
    ):
        raise PatternError(f"it must return a list of Pattern, got {returned!r}")
    return patterns


def _listed(returned: Any, kind: str) -> list[Any]:
    """Return the items that an author returned; a generator may be endless."""
    if not isinstance(returned, Iterable):
        return []
    items = list(islice(cast("Iterable[Any]", returned), _MOST_RETURNED + 1))
    if len(items) > _MOST_RETURNED:
        raise PatternError(f"it returned more than {_MOST_RETURNED} {kind}")
    return items


class _GrowthLimit:
    """Limit of a pass's rewrites that grow the graph from its own new nodes, per graph.

    Others end by themselves, or at ``MAX_GENERATIONS`` of ``rewrite/replace.py``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0

    def count(self, node: Node, new_nodes: Sequence[Node], growth: int) -> None:
        """Count a rewrite at ``node`` that added ``growth`` nodes.

        Rewrites of original nodes are not counted, as there are finitely many.

        Raises:
            PassError: there were too many.
        """
        if growth <= 0 or new_nodes[0].generation <= 1:
            return
        self._done += 1
        if self._done > self._most:
            raise PassError(
                f"stopped after {self._most} rewrites that grow the graph, at {node.label} "
                f"({node.op}): they feed each other without end"
            )


class Worklist:
    """Candidates in topological order; new ones may join, removed ones are skipped."""

    def __init__(self, graph: Graph, compiled: CompiledPattern) -> None:
        self._graph = graph
        self._compiled = compiled
        result, self._complete = compiled.candidates(graph)
        self._initial = iter(result)
        self._known = set(result)
        self._added: list[tuple[int, int, Node]] = []
        self._serial = 0
        self._renumbered = graph.model.renumbered

    def add(self, node: Node) -> None:
        self._known.add(node)
        self._serial += 1
        heapq.heappush(self._added, (node.order, self._serial, node))

    def extend(self, new_nodes: Sequence[Node], at: Node, *, rewired: bool) -> None:
        """Add candidates that a rewrite at ``at`` made possible.

        It created the nodes ``new_nodes``, and may have ``rewired`` existing ones.
        """
        if rewired and not self._complete:
            self._complete = True
            results = [
                node
                for node in self._graph.nodes_of(*self._compiled.root_ops)
                if node.order > at.order
            ]
        elif self._complete:
            results = [node for node in new_nodes if node.op in self._compiled.root_ops]
        else:
            results = [node for new in new_nodes for node in self._compiled.reached_from(new)]
        for node in results:
            if node not in self._known:
                self.add(node)

    def __iter__(self) -> Iterator[Node]:
        pending = next(self._initial, None)
        while pending is not None or self._added:
            if self._renumbered != self._graph.model.renumbered:
                self._added = [(node.order, serial, node) for _, serial, node in self._added]
                heapq.heapify(self._added)
                self._renumbered = self._graph.model.renumbered
            if pending is None or (self._added and self._added[0][0] < pending.order):
                node = heapq.heappop(self._added)[2]
            else:
                node, pending = pending, next(self._initial, None)
            if node.in_graph:
                yield node


class BottomUp:
    """The initial candidates in reverse topological order.

    New nodes are visited by another run.
    """

    def __init__(self, graph: Graph, compiled: CompiledPattern) -> None:
        self._found, _ = compiled.candidates(graph)

    def add(self, node: Node) -> None:
        del node

    def extend(self, new_nodes: Sequence[Node], at: Node, *, rewired: bool) -> None:
        del new_nodes, at, rewired

    def __iter__(self) -> Iterator[Node]:
        for node in reversed(self._found):
            if node.in_graph:
                yield node


class _RuleRunner:
    """One pattern of a pass: finds matches, asks the author, replaces."""

    def __init__(
        self,
        owner: _PatternAuthor,
        rule: _Rule,
        context: CustomPassContext,
    ) -> None:
        self._owner = owner
        self._rule = rule
        self._context = context

    def apply(self, graph: Graph, growth: _GrowthLimit) -> int:
        observer = self._context.observer
        if observer is not None and observer.watches_rules:
            with author_errors(self._context, "Patterns"):
                observer.before_rule(self._context.record, self._rule.lowered.source, graph)
        if not self._rule.lowered.has_its_operators(graph):
            return 0
        compiled, context, owner = self._rule.compiled(), self._context, self._owner
        context.before_author_code()
        worklist = (BottomUp if owner.bottom_up else Worklist)(graph, compiled)
        blocked: dict[Value, list[Node]] = {}
        count = 0
        for node in worklist:
            if context.limit.reached:
                break
            try:
                binding, blocking = compiled.match_at(node)
            except PassError as error:  # of an author's condition; it names the node
                raise blamed_on(context, "Patterns", None, error) from error
            if binding is None:
                # users outside the match kept it from being replaced: a later rewrite may
                # remove them
                for value in dict.fromkeys(blocking):
                    blocked.setdefault(value, []).append(node)
                continue
            match = MatchResult(binding, self._rule.pattern, self._rule.all_names)
            read: set[Value] = set()
            if blocked:
                read.update(
                    value
                    for matched in match.GetMatchedNodes()
                    for value in matched.inputs
                    if value is not None
                )
            size = len(graph)
            replaced = _offer(context, owner, match, node, _region_of_match)
            if replaced is None:
                continue
            count += 1
            growth.count(node, replaced.nodes, len(graph) - size)
            worklist.extend(replaced.nodes, node, rewired=replaced.rewired)
            if blocked:
                for value in read & blocked.keys():
                    for waiting in blocked.pop(value):
                        worklist.add(waiting)
        return count


class _VariadicRunner:
    """A variadic pattern of a pass: one number after the other, smaller ones first."""

    def __init__(
        self, owner: _PatternAuthor, rule: _VariadicRule, context: CustomPassContext
    ) -> None:
        self._owner = owner
        self._rule = rule
        self._context = context

    def apply(self, graph: Graph, growth: _GrowthLimit) -> int:
        context, count = self._context, 0
        visited: set[Node] = set()
        # the smallest also where no node has a number, so that observers see the pattern
        waiting = {self._rule.pattern.least}
        while True:
            # also the nodes that a rewrite has added since
            for node in self._rule.nodes(graph):
                if node not in visited:
                    visited.add(node)
                    waiting |= self._rule.numbers(node)
            if not waiting:
                return count
            number = min(waiting)
            waiting.remove(number)
            try:
                with author_errors(context, "Patterns"):
                    rule = self._rule.of(number, context.model)
            except Refused:  # the opset takes fewer
                continue
            count += _RuleRunner(self._owner, rule, context).apply(graph, growth)


def _region_of_match(match: MatchResult, replacement: EsGraph) -> tuple[Region, EsGraph]:
    """Return the matched region, and its replacement with its names checked."""
    match.check_names(replacement)
    return match.region(), replacement


def decompose(
    owner: _Author, op_types: Sequence[Any], graph: Graph, context: CustomPassContext
) -> int:
    """Replace each node of some operators once; new nodes are not visited.

    Returns the number of rewrites.

    Raises:
        PassError: a method of the pass failed, or the operators are missing or unknown.
    """
    items = [op_types] if isinstance(op_types, str) else list(op_types)
    with author_errors(context, "op_types"):
        if not items:
            raise PassError(
                "it names no operators",
                hint='register it as in REG_DECOMPOSE_PASS(["Conv"]) or give them to the '
                "constructor",
            )
        for op in items:
            if not isinstance(op, str):
                raise PassError(f'wanted names of operators, as in ["Conv"], got {op!r}')
        results = [
            resolve_op(op_name(*split_op(op)), context.registry, context.record.origin)
            for op in items
        ]
        names = [name for op in results for name in (op, *context.model.variants_of(op))]
    count = 0
    for node in graph.nodes_of(*names):
        if context.limit.reached:
            break
        if _offer(context, owner, node, node, _region_of_node) is not None:
            count += 1
    return count


def _region_of_node(node: Node, replacement: EsGraph) -> tuple[Region, EsGraph]:
    """Return the node as a region, and its replacement.

    The replacement loses the outputs that the node lacks.

    Inputs and outputs past the node's last count as absent, so the replacement may declare them.
    """
    inputs: list[Value | None] = [
        *node.inputs,
        *[None] * (len(replacement.inputs) - len(node.inputs)),
    ]
    outputs = [value for value in node.outputs if value is not None]
    schema = schemas.operator(node.domain, node.op_type)
    most = len(node.outputs) if schema is None else schema.max_outputs
    if (
        len(outputs) < len(replacement.outputs)
        and len(node.outputs) <= len(replacement.outputs) <= most
    ):
        delivered = zip(replacement.outputs, node.outputs, strict=False)
        replacement = replacement.delivering(
            [tensor for tensor, value in delivered if value is not None]
        )
    return Region(node.graph, inputs, outputs, [node]), replacement


# calling the methods of a pass


def _offer(
    context: CustomPassContext,
    owner: _Author,
    matched: _Matched,
    node: Node,
    region_of: Callable[[_Matched, EsGraph], tuple[Region, EsGraph]],
) -> Replaced | None:
    """Ask the pass about a match or node at ``node``, and replace it.

    ``region_of`` returns the region to replace, and the replacement fitted to it. Returns None if
    the match was refused.

    Raises:
        PassError: a method of the pass failed, or edited the graph itself.
    """
    context.record.matched += 1
    context.matched = matched
    journal = context.model.journal
    mark, method = journal.mark(), "MeetRequirements"
    try:
        refusal = _refusal(owner.MeetRequirements(matched))
        if journal.mark() != mark:
            raise direct_edit(context)
        if refusal is not None:
            context.refuse(node, refusal)
            return None
        method = "Replacement"
        returned = owner.Replacement(matched)
        if journal.mark() != mark:
            raise direct_edit(context)
        if isinstance(returned, Refusal):
            context.refuse(node, returned)
            return None
        region, replacement = region_of(matched, as_graph(returned))
        try:
            replaced = context.rewrite(region, replacement, shape_proven=owner.shape_proven)
        except Refused as refused:
            context.refuse(node, refused.refusal)
            return None
        if isinstance(matched, MatchResult):
            for value, exact in matched.constants:
                context.replaces_constant(value, exact)
            for value in matched.folded_weights:
                context.folds_weight(value)
        return replaced
    except BaseException as error:
        blamed = blamed_on(context, method, node, error)
        if blamed is error:
            raise
        raise blamed from blamed.__cause__


def _refusal(answer: Any) -> Refusal | None:
    """Return why a match is refused, None if it is not."""
    if isinstance(answer, Refusal):
        return answer
    if answer is None:
        return Refusal("MeetRequirements returned None")
    if not isinstance(answer, int | np.bool_):
        raise PassError(f"it must return True, False or match.reject(reason), got {answer!r}")
    return None if answer else Refusal("MeetRequirements")


def as_graph(result: Any) -> EsGraph:
    """Return ``Replacement``'s result as a graph, with tensors as its outputs.

    Raises:
        PatternError: it is something else.
    """
    if isinstance(result, EsGraph):
        return result
    items = [result] if isinstance(result, EsTensor) else _listed(result, "tensors")
    tensors = [tensor for tensor in items if isinstance(tensor, EsTensor)]
    if (
        not tensors
        or len(tensors) < len(items)
        or any(tensor.producer.draft is not tensors[0].producer.draft for tensor in tensors)
    ):
        raise PatternError(
            f"it must return the result of BuildAndReset, or tensors of one builder; got {result!r}"
        )
    graph = tensors[0].graph
    graph.outputs = tensors
    return graph
