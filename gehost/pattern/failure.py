"""Why a pattern does not match at a node: a second matcher that notes what it wanted. The plain one pays nothing for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.ir.region import Region
from gehost.pattern.bind import no_more_inputs
from gehost.pattern.compile import Link, plan_of
from gehost.pattern.conditions import ABSENT, UNREADABLE, parameter, parameter_holds, tensor_holds
from gehost.pattern.rule import ANY, Kind, OpPattern, SourcePattern, TensorPattern

_SHOWN = 16
"""Elements of a constant that are written out."""


@dataclass(frozen=True, slots=True)
class MatchFailure:
    """The nearest miss of a pattern at one node.

    Attributes:
        reason: what was wanted, and what was there.
        pattern_node: the operator of the pattern that found no node, with its author's line in ``origin``.
        graph_node: the node that was not it; None where there was none to look at.
        depth: how many operators of the pattern had found their nodes.
    """

    reason: str
    pattern_node: OpPattern
    graph_node: Node | None
    depth: int

    def __str__(self) -> str:
        at = "" if self.graph_node is None else f' at "{self.graph_node.label}" ({self.graph_node.op})'
        return f"{self.pattern_node.origin}: {self.pattern_node.label}{at}: {self.reason}"


def why_not(source: SourcePattern, node: Node) -> MatchFailure | None:
    """Why ``node`` does not make output 0 of a match, by the deepest of all tries; None where it does."""
    deepest: MatchFailure | None = None
    for variant in (source, *source.variants):
        failure = _Search(variant, node.graph).at(node)
        if failure is None:
            return None
        if deepest is None or failure.depth > deepest.depth:
            deepest = failure
    return deepest


@dataclass(frozen=True, slots=True)
class _Found:
    """What is bound so far."""

    nodes: Mapping[int, Node]
    values: Mapping[int, Value | None]
    attributes: Mapping[str, Any]


class _Search:
    def __init__(self, source: SourcePattern, graph: Graph) -> None:
        self._source = source
        self._graph = graph
        self._plan = plan_of(source)
        self._deepest: MatchFailure | None = None

    def at(self, node: Node) -> MatchFailure | None:
        return None if self._place(0, node, _Found({}, {}, {})) else self._deepest

    def _fail(self, reason: str, op: OpPattern, node: Node | None, depth: int) -> bool:
        if self._deepest is None or depth > self._deepest.depth:
            self._deepest = MatchFailure(reason, op, node, depth)
        return False

    def _place(self, depth: int, node: Node, found: _Found) -> bool:
        """Let a node stand for the operator that comes next, and go on."""
        op, _ = self._plan[depth]
        attributes = dict(found.attributes)
        problem = _node_problem(op, node, found) or _parameter_problem(op, node, attributes)
        values = dict(found.values)
        problem = problem or self._output_problem(op, node, values)
        if problem:
            return self._fail(problem, op, node, depth)
        nodes = {**found.nodes, op.index: node}
        return any(
            self._go_on(depth + 1, replace(found, nodes=nodes, values=bound, attributes=attributes))
            for bound in self._operands(op, node, values, depth)
        )

    def _output_problem(self, op: OpPattern, node: Node, values: dict[int, Value | None]) -> str:
        signature = op.ops[node.op]
        if signature is not None and signature.variadic_outputs and len(node.outputs) != len(op.outputs):
            return f"wanted {len(op.outputs)} outputs, got {len(node.outputs)}"
        for tensor in op.outputs:
            value = node.outputs[tensor.slot] if tensor.slot < len(node.outputs) else None
            if tensor.index in values and values[tensor.index] is not value:
                return f'output {tensor.slot}: wanted "{_name(values[tensor.index])}", got "{_name(value)}"'
            if value is None and tensor.index in self._source.needed:
                return f"output {tensor.slot}: it is absent"
            values[tensor.index] = value
        return ""

    def _operands(
        self, op: OpPattern, node: Node, values: dict[int, Value | None], depth: int
    ) -> Iterator[dict[int, Value | None]]:
        """What the inputs bind, in each order in which they fit."""
        count = len(op.inputs)
        if not no_more_inputs(op, count)(node) or (op.commutative and len(node.inputs) < count):
            self._fail(f"wanted {count} inputs, got {sum(value is not None for value in node.inputs)}", op, node, depth)
            return
        waiting: list[tuple[dict[int, Value | None], tuple[int, ...]]] = [(values, ())]
        while waiting:
            bound, taken = waiting.pop()
            place = len(taken)
            if place == count:
                yield bound
                continue
            free = [slot for slot in range(count) if slot not in taken] if op.commutative else [place]
            for slot in reversed(free):
                value = node.inputs[slot] if slot < len(node.inputs) else None
                problem = _operand_problem(op.inputs[place], value, bound)
                if problem:
                    self._fail(f"input {slot}: {problem}", op, node, depth)
                    continue
                tensor = op.inputs[place]
                here = bound if tensor is None or tensor is ANY else {**bound, tensor.index: value}
                waiting.append((here, (*taken, slot)))

    def _go_on(self, depth: int, found: _Found) -> bool:
        if depth == len(self._plan):
            problem = self._match_problem(found)
            return self._fail(problem, self._plan[0][0], found.nodes[self._plan[0][0].index], depth) if problem else True
        op, link = self._plan[depth]
        candidates = list(self._candidates(op, link, found, depth))
        return any(self._place(depth, node, found) for node in candidates)

    def _candidates(self, op: OpPattern, link: Link, found: _Found, depth: int) -> Iterator[Node]:
        if link is None:
            yield from self._graph.nodes_of(*op.ops)
            if not any(self._graph.by_op.get(name) for name in op.ops):
                self._fail("the graph has none", op, None, depth)
            return
        value = found.values[link.index]
        if value is None:
            self._fail("the tensor that leads to it is absent", op, None, depth)
        elif link.producer == op.index:
            node = value.producer
            if node is None or node.op not in op.ops:
                self._fail(f'tensor "{value.name}": wanted {op.label}, got {_maker(value)}', op, node, depth)
            elif value.index != link.slot:
                self._fail(f'tensor "{value.name}": wanted output {link.slot}, got output {value.index}', op, node, depth)
            else:
                yield node
        else:
            readers = dict.fromkeys(node for node, _ in value.consumers() if node.op in op.ops)
            if not readers:
                self._fail(f'no {op.label} reads "{value.name}"', op, None, depth)
            yield from readers

    def _match_problem(self, found: _Found) -> str:
        inside = set(found.nodes.values())
        for index in self._source.inner:
            value = found.values[index]
            for reader, _ in value.uses if value is not None else ():
                if reader not in inside:
                    told = f'read by "{reader.label}"' if isinstance(reader, Node) else "an output of a graph"
                    return f'tensor "{_name(value)}" is also {told}'
        outputs = [value for index in self._source.outputs if (value := found.values[index]) is not None]
        nodes = sorted(inside, key=by_order)
        region = Region(self._graph, [found.values[index] for index in self._source.inputs], outputs, nodes)
        return "would make a cycle" if len(outputs) > 1 and region.closes_cycle() else ""


def _node_problem(op: OpPattern, node: Node, found: _Found) -> str:
    if node.op not in op.ops:
        return f"wanted {op.label}, got {node.op}"
    if node in found.nodes.values():
        return "the node stands for another operator of the pattern already"
    graph = next((other.graph for other in found.nodes.values()), node.graph)
    return "" if node.graph is graph else "the node is in another graph"


def _parameter_problem(op: OpPattern, node: Node, bound: dict[str, Any]) -> str:
    if op.exact_attributes is not None and not op.exact_attributes.issuperset(node.attrs):
        return f"attributes: wanted none but {sorted(op.exact_attributes)}, got {sorted(node.attrs)}"
    signature = op.ops[node.op]
    for constraint in op.constraints:
        before = bound.get(constraint.wanted) if constraint.kind is Kind.BIND else constraint.wanted
        if not parameter_holds(constraint, node, signature, bound):
            got = parameter(node, constraint.name, signature)
            told = "no constant" if got is UNREADABLE else "nothing" if got is ABSENT else repr(got)
            wanted = {Kind.ABSENT: "nothing", Kind.PREDICATE: "what its condition takes"}.get(constraint.kind, repr(before))
            return f"{constraint.name}: wanted {wanted}, got {told}"
    return ""


def _operand_problem(tensor: TensorPattern | None, value: Value | None, bound: Mapping[int, Value | None]) -> str:
    if tensor is ANY:
        return ""
    if tensor is None:
        return "" if value is None else f'wanted none, got "{value.name}"'
    if value is None:
        return "it is absent"
    if tensor.index in bound and bound[tensor.index] is not value:
        return f'wanted "{_name(bound[tensor.index])}" again, got "{value.name}"'
    if tensor_holds(tensor, value):
        return ""
    if tensor.constant is None:
        asked = {"dtype": tensor.dtype and tensor.dtype.name, "rank": tensor.rank, "shape": tensor.shape}
        told = ", ".join(f"{what} {wanted}" for what, wanted in asked.items() if wanted is not None)
        return f'wanted {told}, got "{value.name}", {value.type or "of which nothing is known"}'
    if not value.is_constant:
        return f'wanted a constant, got "{value.name}", {_maker(value)}'
    array = tensor.constant.array
    wanted = "a constant" if array is None else f"the constant {array.tolist()}" if array.size <= _SHOWN else "another constant"
    got = value.array
    told = "sparse" if got is None else got.tolist() if got.size <= _SHOWN else value.type
    return f'wanted {wanted}, got "{value.name}", {told}'


def _maker(value: Value) -> str:
    node = value.producer
    if node is None:
        return "a constant" if value.is_constant else "an input of the graph"
    by = node.metadata.get("gehost.pass")
    return f"{node.op} (made by {by})" if by else node.op


def _name(value: Value | None) -> str:
    return "" if value is None else value.name
