"""The reference matcher: tries one variant after the other, step by step.

It records the mismatch where it fails; the compiled matcher is free of this cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from gehost.ir.graph import Graph, Node, Value
from gehost.pattern.explain.messages import (
    Mismatch,
    count_problem,
    join_mismatches,
    leak_problem,
    name_of,
    node_problem,
    operand_problem,
    operator_problem,
    parameter_problem,
    producer_problem,
    reader_problem,
)
from gehost.pattern.explain.near_miss import (
    CONDITION,
    NOTHING,
    OTHER,
    MatchFailure,
    wrong_producer,
)
from gehost.pattern.explain.plan import Plan, Step, parts_of, steps_from
from gehost.pattern.fits import (
    cyclic_region,
    operand_fits,
    output_fits,
    outside_readers,
    slots_to_try,
)
from gehost.pattern.matcher import Binding, CompiledPattern
from gehost.pattern.source import ANY, Chosen, OpPattern, SourcePattern, TensorPattern

Look: TypeAlias = tuple[Node, list[Node] | MatchFailure]
"""The result at a node: the nodes of a match, output 0's first, or its nearest miss."""


_MOST_VARIANTS = 64
"""Largest number of variants tried for a node that may match any operator."""


def why_not(source: SourcePattern, node: Node) -> MatchFailure | None:
    """Return the nearest miss at ``node``, None if it produces output 0."""
    match = ReferenceMatcher(source).at(node)
    return match if isinstance(match, MatchFailure) else None


class ReferenceMatcher:
    """Matches one variant after the other and keeps the nearest misses.

    Options are tried in their order. While choices are open, any tensor fits them: if that does not
    match, no variant with the options taken so far does.
    """

    def __init__(self, source: SourcePattern) -> None:
        self._source = source
        self._plans: dict[tuple[tuple[int, int], ...], Plan | TensorPattern] = {}
        self._around: dict[str, list[Plan]] = {}
        """A node's operator → plans that begin with each operator of the pattern that it fits."""
        self._compiled: CompiledPattern | None = None

    def at_each(self, nodes: Sequence[Node]) -> list[Look]:
        """Return ``at`` for all nodes that may produce output 0."""
        if not nodes:
            return []
        matches = self.matches(nodes[0].graph)
        return [(node, matches.get(node) or self.at(node)) for node in nodes]

    def around_each(self, nodes: Sequence[Node]) -> list[Look]:
        """Return ``around`` for a graph's nodes, all of one pattern operator."""
        return [(node, match) for node in nodes if (match := self.around(node)) is not None]

    def matches(self, graph: Graph) -> dict[Node, list[Node]]:
        """Return each match's nodes, by the node that produces output 0.

        That node is also the first one of the list.
        Matches need no explanation, so the fast matcher finds them.
        """
        nodes_by_root: dict[Node, list[Node]] = {}
        if self._compiled is None:
            self._compiled = CompiledPattern(self._source)
        compiled = self._compiled
        for node in compiled.candidates(graph)[0]:
            binding, _ = compiled.match_at(node)
            if binding is not None:
                nodes_by_root[node] = _root_first(binding, node)
        return nodes_by_root

    def at(self, node: Node) -> list[Node] | MatchFailure:
        """Return a match with ``node`` producing output 0, or the nearest miss.

        ``node`` comes first.
        """
        search = _Search(node.graph)
        bound = self._match(search, node, {})
        if bound is None:
            return search.failure(node.label)
        return _root_first(bound, node)

    def match_at(self, node: Node) -> Binding | None:
        """Match with ``node`` as the producer of output 0."""
        return self._match(_Search(node.graph), node, {})

    def _match(self, search: _Search, node: Node, chosen: Chosen) -> Binding | None:
        plan = self._plan(chosen)
        if isinstance(plan, Plan):
            before = search.so_far
            binding = search.at(plan, node)
            if binding is None or plan.choice is None:
                return binding
            search.so_far = before
            choice = plan.choice
        else:
            choice = plan
        for option in range(len(choice.options)):
            binding = self._match(search, node, {**chosen, choice.index: option})
            if binding is not None:
                return binding
        return None

    def _plan(self, chosen: Chosen) -> Plan | TensorPattern:
        """Return the plan for these options, or output 0's open choice."""
        key = tuple(chosen.items())
        plan = self._plans.get(key)
        if plan is None:
            source = self._source
            first = source.resolved(source.tensors[source.outputs[0]], chosen)
            if first.options:
                plan = first
            else:
                variant = source.variant(chosen) if source.has_choices else source
                _, choice = source.reached(chosen)
                plan = Plan(variant, variant.order({}), choice, parts_of(source, chosen))
            self._plans[key] = plan
        return plan

    def around(self, node: Node) -> list[Node] | MatchFailure | None:
        """Match with ``node`` as any operator in one of the first variants.

        Returns None if it fits none. In a match the producer of output 0 comes first.
        """
        plans = self._around.get(node.op)
        if plans is None:
            variants = (
                list(islice(self._source.variants(), _MOST_VARIANTS))
                if self._source.has_choices
                else [self._source]
            )
            plans = self._around[node.op] = [
                Plan(variant, first if op is first[0][0] else steps_from(variant, op))
                for variant in variants
                for first in [variant.order({})]
                for op in variant.ops
                if node.op in op.ops
            ]
        if not plans:
            return None
        search = _Search(node.graph)
        for plan in plans:
            binding = search.at(plan, node)
            if binding is not None:
                first = binding.values[plan.source.outputs[0]]
                assert first is not None
                return _root_first(binding, first.producer)
        return search.failure(node.label)


def _root_first(binding: Binding, root: Node | None) -> list[Node]:
    nodes = [node for node in binding.nodes if node is not None]
    return sorted(nodes, key=lambda node: node is not root)


_Miss: TypeAlias = tuple[
    Callable[..., "str | Mismatch"], tuple[Any, ...], OpPattern, Node | None, int, str
]
"""Function and arguments that build the reason on demand; then arguments of ``MatchFailure``, the
pattern's size, and the optional part.
"""


class _Found:
    """The bindings so far."""

    __slots__ = ("attributes", "nodes", "values")

    def __init__(
        self,
        nodes: Mapping[int, Node],
        values: Mapping[int, Value | None],
        attributes: Mapping[str, Any],
    ) -> None:
        self.nodes = nodes
        self.values = values
        self.attributes = attributes


_START = _Found({}, {}, {})


class _Search:
    """The attempts at one node with their nearest misses.

    The nearest misses are the first one and others of equal closeness.
    """

    _plan: Plan

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._score = (-1, 0)
        self._misses: dict[tuple[Node | Value | None, int | None, OpPattern], _Miss] = {}
        """Misses by node or tensor, its input, and wanted operator."""

    @property
    def so_far(self) -> tuple[tuple[int, int], dict[Any, _Miss]]:
        """The misses so far, for backtracking."""
        return self._score, dict(self._misses)

    @so_far.setter
    def so_far(self, state: tuple[tuple[int, int], dict[Any, _Miss]]) -> None:
        self._score, self._misses = state

    def at(self, plan: Plan, node: Node) -> Binding | None:
        """Return a match of the plan with ``node`` as its first operator."""
        self._plan = plan
        match = self._place(0, node, _START)
        if match is None:
            return None
        binding = Binding(self._graph, plan.source)
        for index, bound in match.nodes.items():
            binding.nodes[index] = bound
        for index, value in match.values.items():
            binding.values[index] = value
        binding.attributes.update(match.attributes)
        return binding

    def failure(self, label: str) -> MatchFailure:
        """Return the nearest miss after all attempts at the labelled node failed."""
        misses = iter(self._misses.items())
        (about, slot, _), (word, of, op, node, size, part) = next(misses)
        reason = word(*of)
        if not isinstance(reason, str):
            tried = [(slot, reason)]
            for (other, slot, _), (word, of, _, _, _, other_part) in misses:
                if other is about and not isinstance(mismatch := word(*of), str):
                    tried.append((slot, mismatch))
                    part = part if part == other_part else ""
            reason = join_mismatches(about, tried)
        return MatchFailure(reason, label, op, node, self._score[0], size, self._score[1], part)

    def _fail(
        self,
        depth: int,
        closeness: int,
        op: OpPattern,
        node: Node | None,
        about: Node | Value | None,
        slot: int | None,
        word: Callable[..., str | Mismatch],
        *of: Any,
    ) -> None:
        """Record that no node fits ``op``, unless a miss is nearer.

        Args:
            node: the node found instead.
            about: the subject of the message; ``slot`` is its input.
            word: builds the reason from ``of`` on demand.
        """
        score = depth, closeness
        if score < self._score:
            return
        if score > self._score:
            self._score, self._misses = score, {}
        plan = self._plan
        miss = word, of, op, node, len(plan.steps), plan.parts.get(op.index, "")
        self._misses.setdefault((about, slot, op), miss)

    def _place(self, depth: int, node: Node, partial: _Found) -> _Found | None:
        """Bind a node to the next operator and continue to a match."""
        step = self._plan.steps[depth]
        op = step.op
        if node.op not in op.ops:
            self._fail(depth, OTHER, op, node, node, None, operator_problem, op, node)
            return None
        attributes, values = partial.attributes, dict(partial.values)
        problem = ""
        if node in partial.nodes.values():
            problem = "stands for another operator of the pattern already"
        elif node.graph is not self._graph:
            problem = f'is in another graph, "{node.graph.name}"'
        if step.asks and not problem:
            attributes = dict(attributes)
            problem = parameter_problem(op, node, attributes)
        problem = problem or self._output_problem(step, node, values)
        if problem:
            self._fail(depth, CONDITION, op, node, node, None, node_problem, node, problem)
            return None
        for bound in (self._in_any_order if op.commutative else self._in_order)(
            step, node, values, depth
        ):
            match = self._go_on(
                depth + 1, _Found({**partial.nodes, op.index: node}, bound, attributes)
            )
            if match is not None:
                return match
        return None

    def _output_problem(self, step: Step, node: Node, values: dict[int, Value | None]) -> str:
        outputs = node.outputs
        if node.op in step.counted and len(outputs) != len(step.outputs):
            return f"outputs: wanted {len(step.outputs)}, got {len(outputs)}"
        for slot, tensor, is_needed in step.outputs:
            value = outputs[slot] if slot < len(outputs) else None
            bound_value = values.get(tensor)
            if not output_fits(value, bound_value, needed=is_needed):
                if bound_value is None:
                    return f"output {slot}: it is absent"
                return f'output {slot}: wanted "{bound_value.name}", got "{name_of(value)}"'
            values[tensor] = value
        return ""

    def _in_order(
        self, step: Step, node: Node, values: dict[int, Value | None], depth: int
    ) -> Iterator[dict[int, Value | None]]:
        """Yield the bindings of the inputs in their order, if they fit."""
        op, inputs = step.op, node.inputs
        if len(inputs) > step.count and not step.no_more(node):
            self._fail(depth, CONDITION, op, node, node, None, count_problem, op, node)
            return
        for slot, tensor in enumerate(op.inputs):
            value = inputs[slot] if slot < len(inputs) else None
            if not _operand_holds(tensor, value, values):
                self._fail(
                    depth,
                    CONDITION,
                    op,
                    node,
                    node,
                    slot,
                    operand_problem,
                    node,
                    slot,
                    tensor,
                    value,
                    values,
                )
                return
            if tensor is not None and tensor is not ANY:
                values[tensor.index] = value
        yield values

    def _in_any_order(
        self, step: Step, node: Node, values: dict[int, Value | None], depth: int
    ) -> Iterator[dict[int, Value | None]]:
        """Yield the bindings of the inputs in each order that fits."""
        op, inputs = step.op, node.inputs
        count = step.count
        if len(inputs) < step.required or (len(inputs) > count and not step.no_more(node)):
            self._fail(depth, CONDITION, op, node, node, None, count_problem, op, node)
            return
        inputs = (*inputs, *[None] * (count - len(inputs)))
        waiting: list[tuple[dict[int, Value | None], tuple[int, ...]]] = [(values, ())]
        while waiting:
            bound, operands = waiting.pop()
            if len(operands) == count:
                yield bound
                continue
            tensor = op.inputs[len(operands)]
            # equal inputs are tried too, so that messages name each
            for slot in reversed(slots_to_try(step.equals, operands, range(count))):
                value = inputs[slot]
                if not _operand_holds(tensor, value, bound):
                    self._fail(
                        depth,
                        CONDITION,
                        op,
                        node,
                        node,
                        slot,
                        operand_problem,
                        node,
                        slot,
                        tensor,
                        value,
                        bound,
                    )
                    continue
                if tensor is step.made and tensor is not None and value is not None:
                    maker = step.maker
                    closeness = wrong_producer(maker, tensor, value)
                    # otherwise the next step would fail for each order of the other operands
                    if closeness is not None:
                        of = maker, tensor.slot, value, node, slot
                        self._fail(
                            depth + 1,
                            closeness,
                            maker,
                            value.producer,
                            node,
                            slot,
                            producer_problem,
                            *of,
                        )
                        continue
                here = bound if tensor is None or tensor is ANY else {**bound, tensor.index: value}
                waiting.append((here, (*operands, slot)))

    def _go_on(self, depth: int, partial: _Found) -> _Found | None:
        if depth == len(self._plan.steps):
            if self._plan.choice is not None:
                return partial
            problem = self._whole_problem(partial)
            if problem is None:
                return partial
            op, node, reason = problem
            self._fail(depth, CONDITION, op, node, node, None, str, reason)
            return None
        for node in self._candidates(self._plan.steps[depth], partial, depth):
            match = self._place(depth, node, partial)
            if match is not None:
                return match
        return None

    def _candidates(self, step: Step, partial: _Found, depth: int) -> Sequence[Node]:
        op, link = step.op, step.link
        if link is None:
            nodes = self._graph.nodes_of(*op.ops)
            if not nodes:
                self._fail(
                    depth, NOTHING, op, None, None, None, str, f"the graph has no {op.label}"
                )
            return nodes
        value = partial.values[link.index]
        if value is None:
            self._fail(
                depth,
                NOTHING,
                op,
                None,
                None,
                None,
                str,
                f"the tensor that leads to {op.label} is absent",
            )
            return ()
        if link.producer != op.index:
            readers = list(
                dict.fromkeys(node for node, _ in value.consumers() if node.op in op.ops)
            )
            if not readers:
                self._fail(
                    depth,
                    OTHER if value.consumers() else NOTHING,
                    op,
                    None,
                    value,
                    None,
                    reader_problem,
                    op,
                    value,
                )
            return readers
        closeness = wrong_producer(op, link, value)
        if closeness is None:
            return [value.producer] if value.producer is not None else ()
        ops = self._plan.source.ops
        reader = next(
            index
            for index in partial.nodes
            if any(
                operand is not None and operand.index == link.index for operand in ops[index].inputs
            )
        )
        node = partial.nodes[reader]
        slot = node.inputs.index(value)
        of = op, link.slot, value, node, slot, ops[reader]
        self._fail(depth, closeness, op, value.producer, node, slot, producer_problem, *of)
        return ()

    def _whole_problem(self, partial: _Found) -> tuple[OpPattern, Node, str] | None:
        """Return why a complete match is none: a user of an inner tensor outside, or a cycle."""
        source, inside = self._plan.source, set(partial.nodes.values())
        for index in source.inner:
            value = partial.values[index]
            if value is not None and (outside := outside_readers(value, inside)):
                producer = source.tensors[index].producer
                assert producer is not None
                return source.ops[producer], partial.nodes[producer], leak_problem(value, outside)
        region = cyclic_region(source, self._graph, partial.nodes.values(), partial.values)
        if region is None:
            return None
        op = self._plan.steps[0].op
        return op, partial.nodes[op.index], f"would make a cycle {region.cycle()}"


def _operand_holds(
    tensor: TensorPattern | None, value: Value | None, bound: Mapping[int, Value | None]
) -> bool:
    bound_value = None if tensor is None else bound.get(tensor.index)
    return operand_fits(tensor, value) if bound_value is None else bound_value is value
