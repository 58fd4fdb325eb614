"""Why a pattern does not match at a node: a second matcher that notes what it wanted. The plain
one pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.ir.region import Region
from gehost.pattern.explain.messages import (
    Mismatch,
    count_problem,
    cycle_problem,
    join_mismatches,
    leak_problem,
    name_of,
    node_problem,
    operand_holds,
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
    FirstMisses,
    MatchFailure,
    first_miss,
    wrong_producer,
)
from gehost.pattern.explain.plan import Plan, Step, steps_from
from gehost.pattern.matcher import CompiledPattern, plan_of
from gehost.pattern.source import ANY, OpPattern, SourcePattern, TensorPattern

Look: TypeAlias = tuple[Node, list[Node] | MatchFailure]
"""What is found at a node: the nodes of a match, that of output 0 first, or its nearest miss."""


def why_not(source: SourcePattern, node: Node) -> MatchFailure | None:
    """Why ``node`` does not make output 0, by the deepest of all tries; None where it does."""
    found = Tracer(source).at(node)
    return found if isinstance(found, MatchFailure) else None


class Tracer:
    """The traced matcher of a pattern and its variants, made once for many nodes."""

    def __init__(self, source: SourcePattern) -> None:
        self.plans = [Plan(variant, plan_of(variant)) for variant in (source, *source.variants)]
        self._around: dict[str, list[Plan]] = {}
        """For a node's operator, the plans that begin with each operator of the pattern that the
        node may stand for.
        """
        self._source = source
        self._compiled: CompiledPattern | None = None

    def at_each(self, nodes: Sequence[Node], known: FirstMisses) -> list[Look]:
        """``at`` for all nodes of a graph that may make output 0."""
        return (
            self._try_each(nodes, self.plans, known, self.matches(nodes[0].graph)) if nodes else []
        )

    def around_each(self, nodes: Sequence[Node], known: FirstMisses) -> list[Look]:
        """``around`` for nodes of a graph, all of which are of one operator of the pattern."""
        return self._try_each(nodes, self._plans_around(nodes[0].op), known, {}) if nodes else []

    def matches(self, graph: Graph) -> dict[Node, list[Node]]:
        """The nodes of each match in a graph as it is, first and as the key the one that makes
        output 0.

        A match has nothing to be told of, so that it is left to the plain matcher, which is faster.
        """
        found: dict[Node, list[Node]] = {}
        if self._compiled is None:
            self._compiled = CompiledPattern(self._source)
        compiled = self._compiled
        orders = {plan.source: [step.op.index for step in plan.steps] for plan in self.plans}
        for node in compiled.candidates(graph)[0]:
            binding, _ = compiled.match_at(node)
            if binding is not None:
                bound = [binding.nodes[index] for index in orders[binding.source]]
                found[node] = [each for each in bound if each is not None]
        return found

    def at(self, node: Node) -> list[Node] | MatchFailure:
        """The nodes of a match in which ``node`` makes output 0, itself first, or its nearest
        miss.
        """
        return self._try(node, self.plans)

    def around(self, node: Node) -> list[Node] | MatchFailure | None:
        """The same where ``node`` may stand for any operator of the pattern; None where it can
        stand for none.

        Of a match the node that makes output 0 comes first.
        """
        plans = self._plans_around(node.op)
        return self._try(node, plans) if plans else None

    def _plans_around(self, node_op: str) -> list[Plan]:
        plans = self._around.get(node_op)
        if plans is None:
            plans = self._around[node_op] = [
                plan if op is plan.steps[0].op else Plan(plan.source, steps_from(plan.source, op))
                for plan in self.plans
                for op in plan.source.ops
                if node_op in op.ops
            ]
        return plans

    @classmethod
    def _try_each(
        cls,
        nodes: Sequence[Node],
        plans: Sequence[Plan],
        known: FirstMisses,
        matches: Mapping[Node, list[Node]],
    ) -> list[Look]:
        firsts: Mapping[Node, MatchFailure | None] = (
            known.of(plans[0], nodes) if len(plans) == 1 else {}
        )
        looks: list[Look] = []
        for node in nodes:
            miss = firsts.get(node)
            looks.append(
                (
                    node,
                    matches.get(node) or cls._try(node, plans)
                    if miss is None
                    else miss.of(plans[0]),
                )
            )
        return looks

    @staticmethod
    def _try(node: Node, plans: Sequence[Plan]) -> list[Node] | MatchFailure:
        if len(plans) == 1 and (miss := first_miss(plans[0], node)) is not None:
            return miss
        search = _Search(node.graph)
        for plan in plans:
            found = search.at(plan, node)
            if found is not None:
                return found
        return search.failure(node.label)


_Miss: TypeAlias = tuple[
    Callable[..., "str | Mismatch"], tuple[Any, ...], OpPattern, Node | None, int
]
"""What words the reason, and of what, when it is asked for; then what ``MatchFailure`` says of
it, and the pattern's size.
"""


class _Found:
    """What is bound so far."""

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
    """The tries at one node, and the nearest misses of them.

    Those are the first one, and the ones that are as near with another wish or at another place.
    """

    _plan: Plan

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._score = (-1, 0)
        self._misses: dict[tuple[Node | Value | None, int | None, OpPattern], _Miss] = {}
        """By whom the miss is about, at which input of it, and what was wanted."""

    def at(self, plan: Plan, node: Node) -> list[Node] | None:
        self._plan = plan
        return self._place(0, node, _START)

    def failure(self, label: str) -> MatchFailure:
        """The nearest miss, after all tries at the node of this label have failed."""
        misses = iter(self._misses.items())
        (about, slot, _), (word, of, op, node, size) = next(misses)
        reason = word(*of)
        if not isinstance(reason, str):
            tried = [(slot, reason)]
            for (other, slot, _), (word, of, *_) in misses:
                if other is about and not isinstance(told := word(*of), str):
                    tried.append((slot, told))
            reason = join_mismatches(about, tried)
        return MatchFailure(reason, label, op, node, self._score[0], size, self._score[1])

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
        """Note that no node was found for ``op``, if no miss was nearer.

        Args:
            node: what came.
            about: whom that is told of, and the input of it is ``slot``.
            word: makes the reason from ``of``, if it is asked for when all is done.
        """
        score = depth, closeness
        if score < self._score:
            return
        if score > self._score:
            self._score, self._misses = score, {}
        self._misses.setdefault((about, slot, op), (word, of, op, node, len(self._plan.steps)))

    def _place(self, depth: int, node: Node, found: _Found) -> list[Node] | None:
        """Let a node stand for the operator that comes next, and go on; the nodes of a whole
        match, or None.
        """
        step = self._plan.steps[depth]
        op = step.op
        if node.op not in op.ops:
            self._fail(depth, OTHER, op, node, node, None, operator_problem, op, node)
            return None
        attributes, values = found.attributes, dict(found.values)
        problem = self._standing_problem(node, found)
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
                depth + 1, _Found({**found.nodes, op.index: node}, bound, attributes)
            )
            if match is not None:
                return match
        return None

    def _standing_problem(self, node: Node, found: _Found) -> str:
        if node in found.nodes.values():
            return "stands for another operator of the pattern already"
        return "" if node.graph is self._graph else f'is in another graph, "{node.graph.name}"'

    def _output_problem(self, step: Step, node: Node, values: dict[int, Value | None]) -> str:
        outputs = node.outputs
        if len(outputs) != len(step.outputs):
            signature = step.op.ops[node.op]
            if signature is not None and signature.variadic_outputs:
                return f"outputs: wanted {len(step.outputs)}, got {len(outputs)}"
        for slot, tensor, is_needed in step.outputs:
            value = outputs[slot] if slot < len(outputs) else None
            if tensor in values and values[tensor] is not value:
                return f'output {slot}: wanted "{name_of(values[tensor])}", got "{name_of(value)}"'
            if value is None and is_needed:
                return f"output {slot}: it is absent"
            values[tensor] = value
        return ""

    def _in_order(
        self, step: Step, node: Node, values: dict[int, Value | None], depth: int
    ) -> Iterator[dict[int, Value | None]]:
        """What the inputs bind as they stand, if they fit."""
        op, inputs = step.op, node.inputs
        if len(inputs) > step.count and not step.no_more(node):
            self._fail(depth, CONDITION, op, node, node, None, count_problem, op, node)
            return
        for slot, tensor in enumerate(op.inputs):
            value = inputs[slot] if slot < len(inputs) else None
            if not operand_holds(tensor, value, values):
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
        """What the inputs bind in each order in which they fit."""
        op, inputs = step.op, node.inputs
        count = step.count
        if len(inputs) < count or (len(inputs) > count and not step.no_more(node)):
            self._fail(depth, CONDITION, op, node, node, None, count_problem, op, node)
            return
        waiting: list[tuple[dict[int, Value | None], tuple[int, ...]]] = [(values, ())]
        while waiting:
            bound, taken = waiting.pop()
            if len(taken) == count:
                yield bound
                continue
            tensor = op.inputs[len(taken)]
            for slot in range(count - 1, -1, -1):
                if slot in taken:
                    continue
                value = inputs[slot]
                if not operand_holds(tensor, value, bound):
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
                    # the next step would find it out for each order of the other operands
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
                waiting.append((here, (*taken, slot)))

    def _go_on(self, depth: int, found: _Found) -> list[Node] | None:
        if depth == len(self._plan.steps):
            problem = self._leak(found) or self._cycle(found)
            if problem is None:
                anchor = self._plan.source.tensors[self._plan.source.outputs[0]].producer
                return [
                    node
                    for _, node in sorted(found.nodes.items(), key=lambda bound: bound[0] != anchor)
                ]
            op, node, told = problem
            self._fail(depth, CONDITION, op, node, node, None, str, told)
            return None
        for node in self._candidates(self._plan.steps[depth], found, depth):
            match = self._place(depth, node, found)
            if match is not None:
                return match
        return None

    def _candidates(self, step: Step, found: _Found, depth: int) -> Sequence[Node]:
        op, link = step.op, step.link
        if link is None:
            nodes = self._graph.nodes_of(*op.ops)
            if not nodes:
                self._fail(
                    depth, NOTHING, op, None, None, None, str, f"the graph has no {op.label}"
                )
            return nodes
        value = found.values[link.index]
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
        reader = next(index for index in found.nodes if _reads(self._plan.source.ops[index], link))
        node = found.nodes[reader]
        slot = node.inputs.index(value)
        of = op, link.slot, value, node, slot, self._plan.source.ops[reader]
        self._fail(depth, closeness, op, value.producer, node, slot, producer_problem, *of)
        return ()

    def _leak(self, found: _Found) -> tuple[OpPattern, Node, str] | None:
        """A tensor inside that is read outside."""
        inside = set(found.nodes.values())
        for index in self._plan.source.inner:
            value = found.values[index]
            outside = (
                [reader for reader in value.readers if reader not in inside]
                if value is not None
                else []
            )
            if value is not None and outside:
                producer = self._plan.source.tensors[index].producer
                assert producer is not None
                return (
                    self._plan.source.ops[producer],
                    found.nodes[producer],
                    leak_problem(value, outside),
                )
        return None

    def _cycle(self, found: _Found) -> tuple[OpPattern, Node, str] | None:
        source = self._plan.source
        outputs = [value for index in source.outputs if (value := found.values[index]) is not None]
        if len(outputs) < 2:
            return None
        nodes = sorted(found.nodes.values(), key=by_order)
        region = Region(
            self._graph, [found.values[index] for index in source.inputs], outputs, nodes
        )
        problem = cycle_problem(region)
        op = self._plan.steps[0].op
        return (op, found.nodes[op.index], problem) if problem else None


def _reads(op: OpPattern, tensor: TensorPattern) -> bool:
    return any(operand is not None and operand.index == tensor.index for operand in op.inputs)
