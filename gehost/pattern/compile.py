"""Patterns compiled to closures over the index.

A fixed order of steps from the operator that makes output 0, with backtracking only where operands may swap or another
output is looked for among readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gehost.es.schemas import Signature
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.region import Region
from gehost.pattern.candidates import Candidates
from gehost.pattern.conditions import parameter_holds, tensor_holds
from gehost.pattern.rule import ANY, OpPattern, SourcePattern, TensorPattern


class Binding:
    """What a match has bound so far: nodes by op pattern, values by tensor pattern, attribute variables."""

    __slots__ = ("attributes", "graph", "nodes", "source", "values")

    def __init__(self, graph: Graph, source: SourcePattern) -> None:
        self.graph = graph
        self.source = source
        self.nodes: list[Node | None] = [None] * len(source.ops)
        self.values: list[Value | None] = [None] * len(source.tensors)
        self.attributes: dict[str, Any] = {}


_Step: TypeAlias = Callable[[Binding], bool]
_Bind: TypeAlias = Callable[[Binding, Node, _Step], bool]


class CompiledPattern:
    """A source pattern and its variants as closures over the index."""

    def __init__(self, source: SourcePattern) -> None:
        self.source = source
        self._variants = [_Variant(variant) for variant in (source, *source.variants)]

    @property
    def anchor_ops(self) -> tuple[str, ...]:
        """The operators that make output 0."""
        return tuple(dict.fromkeys(op for variant in self._variants for op in variant.anchor.ops))

    def candidates(self, graph: Graph) -> tuple[list[Node], bool]:
        """The nodes that may make output 0 of a match in the graph as it is, in topological order.

        Also whether these are all nodes of the operator; else a rewrite may bring more, see ``reached_from``.
        """
        if len(self._variants) > 1:
            return graph.nodes_of(*self.anchor_ops), True
        return self._variants[0].candidates.of(graph)

    def reached_from(self, node: Node) -> list[Node]:
        """The nodes that may make output 0 of a match in which ``node`` is the newest."""
        return [found for variant in self._variants for found in variant.candidates.reached_from(node)]

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        """Match with ``node`` making output 0.

        Returns:
            The first self-contained binding, or None; and, where complete bindings failed only because a tensor inside
            has other readers, these tensors.
        """
        blocked: list[Value] = []
        for variant in self._variants:
            if node.op in variant.anchor.ops:
                binding, blocking = variant.match_at(node)
                if binding is not None:
                    return binding, []
                blocked += blocking
        return None, blocked


class _Variant:
    def __init__(self, source: SourcePattern) -> None:
        self._source = source
        self._blocked: list[Value] = []
        self._inner = source.inner
        plan = plan_of(source)
        needed = source.needed
        step: _Step = self._finish
        for position in range(len(plan) - 1, 0, -1):
            op, link = plan[position]
            earlier = [earlier_op.index for earlier_op, _ in plan[:position]]
            bind = _bind_op(op, earlier, _bound_by(plan[:position]), needed)
            step = _reach(op, link, bind, step)
        self.anchor, _ = plan[0]
        self._bind_anchor = _bind_op(self.anchor, [], set(), needed)
        self._after_anchor = step
        self.candidates = Candidates(source, self.anchor)

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        self._blocked = []
        binding = Binding(node.graph, self._source)
        if self._bind_anchor(binding, node, self._after_anchor):
            return binding, []
        return None, self._blocked

    def _finish(self, binding: Binding) -> bool:
        """Every reader of every inner tensor is inside the match, and joining the match closes no cycle."""
        nodes = binding.nodes
        for index in self._inner:
            value = binding.values[index]
            if value is not None:
                for reader, _ in value.uses:
                    if reader not in nodes:
                        self._blocked.append(value)
                        return False
        return not _would_cycle(binding)


def _would_cycle(binding: Binding) -> bool:
    """Whether a complete match's outputs feed it through nodes outside; with a single output they cannot."""
    source, values = binding.source, binding.values
    if len(source.outputs) == 1:
        return False
    outputs = [value for index in source.outputs if (value := values[index]) is not None]
    nodes = [node for node in binding.nodes if node is not None]
    return Region(binding.graph, [values[index] for index in source.inputs], outputs, nodes).closes_cycle()


# -- the order of steps ---------------------------------------------------------------------------------------------

Link: TypeAlias = TensorPattern | None
"""How a step reaches its operator: the tensor that it makes, or one that it reads; None: any node of the graph."""


def plan_of(source: SourcePattern) -> list[tuple[OpPattern, Link]]:
    """All operators, the anchor first, each after a tensor that leads to it."""
    producer = source.tensors[source.outputs[0]].producer
    assert producer is not None
    plan: list[tuple[OpPattern, Link]] = []
    placed: set[int] = set()

    def place(op: OpPattern, link: Link) -> None:
        placed.add(op.index)
        plan.append((op, link))
        for tensor in op.inputs:
            if tensor is not None and tensor.producer is not None and tensor.producer not in placed:
                place(source.ops[tensor.producer], tensor)

    place(source.ops[producer], None)
    while len(plan) < len(source.ops):
        known = _bound_by(plan)
        waiting = [op for op in source.ops if op.index not in placed]
        reading = [(op, t) for op in waiting for t in op.inputs if t is not None and t.constant is None and t.index in known]
        place(*(reading[0] if reading else (waiting[0], None)))
    return plan


def _bound_by(plan: Sequence[tuple[OpPattern, Link]]) -> set[int]:
    """The tensors that these steps bind."""
    return {tensor.index for op, _ in plan for tensor in (*op.inputs, *op.outputs) if tensor is not None and tensor is not ANY}


# -- reaching a node ------------------------------------------------------------------------------------------------


def _reach(op: OpPattern, link: Link, bind: _Bind, then: _Step) -> _Step:
    ops = op.ops
    if link is None:

        def from_anywhere(binding: Binding) -> bool:
            return any(bind(binding, node, then) for node in binding.graph.nodes_of(*ops))

        return from_anywhere
    index, slot = link.index, link.slot
    if link.producer == op.index:

        def from_below(binding: Binding) -> bool:
            value = binding.values[index]
            node = value.producer if value is not None else None
            return node is not None and node.op in ops and value is not None and value.index == slot and bind(binding, node, then)

        return from_below

    def from_above(binding: Binding) -> bool:
        value = binding.values[index]
        if value is None:
            return False
        tried: dict[Node, None] = dict.fromkeys(node for node, _ in value.consumers() if node.op in ops)
        return any(bind(binding, node, then) for node in tried)

    return from_above


# -- binding a node -------------------------------------------------------------------------------------------------


def _bind_op(op: OpPattern, earlier: Sequence[int], bound: set[int], needed: frozenset[int]) -> _Bind:
    """The closure that binds ``op`` to a node, its outputs and its inputs, and goes on."""
    index = op.index
    known = set(bound)
    bind_outputs = _bind_outputs(op, known, needed)
    bind_inputs = _bind_inputs_in_any_order(op, known) if op.commutative else _bind_inputs(op, known)
    parameters_hold = _parameters(op) if op.constraints or op.exact_attributes is not None else None

    def bind(binding: Binding, node: Node, then: _Step) -> bool:
        if node.graph is not binding.graph:
            return False
        nodes = binding.nodes
        for other in earlier:
            if nodes[other] is node:
                return False
        nodes[index] = node
        if parameters_hold is None:
            return bind_outputs(binding, node) and bind_inputs(binding, node, then)
        saved = binding.attributes
        binding.attributes = dict(saved)
        if parameters_hold(binding, node) and bind_outputs(binding, node) and bind_inputs(binding, node, then):
            return True
        binding.attributes = saved
        return False

    return bind


def _parameters(op: OpPattern) -> Callable[[Binding, Node], bool]:
    signatures, constraints, exact = op.ops, op.constraints, op.exact_attributes

    def check(binding: Binding, node: Node) -> bool:
        if exact is not None and not exact.issuperset(node.attrs):
            return False
        signature = signatures[node.op]
        return all(parameter_holds(constraint, node, signature, binding.attributes) for constraint in constraints)

    return check


def _bind_outputs(op: OpPattern, known: set[int], needed: frozenset[int]) -> Callable[[Binding, Node], bool]:
    """The closure that binds a node's outputs; one that nobody asks for may be absent."""
    outputs = [(tensor.slot, tensor.index, tensor.index in known, tensor.index in needed) for tensor in op.outputs]
    count = len(op.outputs)
    counted = frozenset(name for name, signature in op.ops.items() if signature is not None and signature.variadic_outputs)

    def bind(binding: Binding, node: Node) -> bool:
        given = node.outputs
        if node.op in counted and len(given) != count:
            return False
        values = binding.values
        for slot, index, bound, wanted in outputs:
            value = given[slot] if slot < len(given) else None
            if bound:
                if values[index] is not value:
                    return False
            elif value is None and wanted:
                return False
            else:
                values[index] = value
        return True

    return bind


_Operand: TypeAlias = tuple[TensorPattern | None, bool, bool]
"""What an input must be, whether it is bound before, and whether more is asked of it than to be there."""


def _operands(op: OpPattern, known: set[int]) -> list[_Operand]:
    operands: list[_Operand] = []
    for tensor in op.inputs:
        if tensor is None or tensor is ANY:
            operands.append((tensor, False, False))
            continue
        asks = any(part is not None for part in (tensor.constant, tensor.dtype, tensor.rank, tensor.shape))
        operands.append((tensor, tensor.index in known, asks))
        known.add(tensor.index)
    return operands


def _holds(operand: _Operand, value: Value | None, values: list[Value | None]) -> bool:
    """Whether ``value`` can stand for an operand; binds it."""
    tensor, bound, asks = operand
    if tensor is None:
        return value is None
    if tensor is ANY:
        return True
    if value is None or (bound and values[tensor.index] is not value) or (asks and not tensor_holds(tensor, value)):
        return False
    values[tensor.index] = value
    return True


def _bind_inputs(op: OpPattern, known: set[int]) -> _Bind:
    """The closure that binds a node's inputs by position, and goes on."""
    operands = _operands(op, known)
    count = len(operands)
    no_more = no_more_inputs(op, count)

    def bind(binding: Binding, node: Node, then: _Step) -> bool:
        inputs, values = node.inputs, binding.values
        given = len(inputs)
        if given > count and not no_more(node):
            return False
        for slot, operand in enumerate(operands):
            if not _holds(operand, inputs[slot] if slot < given else None, values):
                return False
        return then(binding)

    return bind


def _bind_inputs_in_any_order(op: OpPattern, known: set[int]) -> _Bind:
    """The same for an operator whose operands may swap: each takes any input that is left, until everything fits."""
    operands = _operands(op, known)
    count = len(operands)
    no_more = no_more_inputs(op, count)

    def bind(binding: Binding, node: Node, then: _Step) -> bool:
        inputs, values = node.inputs, binding.values
        if len(inputs) < count or not no_more(node):
            return False
        free = [True] * count

        def place(position: int) -> bool:
            if position == count:
                return then(binding)
            for slot, is_free in enumerate(free):
                if is_free and _holds(operands[position], inputs[slot], values):
                    free[slot] = False
                    if place(position + 1):
                        return True
                    free[slot] = True
            return False

        return place(0)

    return bind


def no_more_inputs(op: OpPattern, count: int) -> Callable[[Node], bool]:
    """The closure that tells whether a node has no input past the pattern's own.

    Parameters in disguise do not count: of what other opsets hold in an attribute nothing is asked.
    """
    allowed = {name: _open_slots(signature, count) for name, signature in op.ops.items()}

    def check(node: Node) -> bool:
        inputs = node.inputs
        return all(inputs[slot] is None or slot in allowed[node.op] for slot in range(count, len(inputs)))

    return check


def _open_slots(signature: Signature | None, count: int) -> frozenset[int]:
    if signature is None:
        return frozenset()
    return frozenset(p.slot for name, p in signature.parameters.items() if p.slot >= count and name in signature.migrating)
