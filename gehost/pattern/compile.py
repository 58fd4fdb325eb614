"""Patterns compiled to closures over the index.

A fixed order of steps from the operator that makes output 0, with backtracking only where operands may swap or another
output is looked for among readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import onnx

from gehost.es.schemas import Signature
from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.ir.region import Region
from gehost.pattern.candidates import Candidates
from gehost.pattern.conditions import parameter_holds, tensor_holds
from gehost.pattern.rule import ANY, Constraint, Kind, OpPattern, SourcePattern, TensorPattern

_serialized = onnx.AttributeProto.SerializeToString


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
        reads = Counter(tensor.index for op in source.ops for tensor in op.inputs if tensor is not None)
        self._inner = [(index, reads[index]) for index in source.inner]
        plan, needed = plan_of(source), source.needed
        binds_attributes = any(constraint.kind is Kind.BIND for op in source.ops for constraint in op.constraints)
        self.anchor, _ = plan[0]
        then: _Step = self._finish
        straight: list[_Step] = []
        """What leaves no choice, the last step first."""
        for position in range(len(plan) - 1, 0, -1):
            op, link = plan[position]
            bind = _Bind(op, plan[:position], needed, binds_attributes=binds_attributes)
            if link is not None and link.producer == op.index and not op.commutative:
                straight.append(_from_below(bind, link))
            else:
                then, straight = _one_of(bind, link, _in_turn(straight, then)), []
        self._bind_anchor = _Bind(self.anchor, [], needed, binds_attributes=binds_attributes)
        self._after_anchor = _in_turn(straight, then)
        self.candidates = Candidates(source, self.anchor)

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        self._blocked = []
        binding = Binding(node.graph, self._source)
        if self._bind_anchor.then(binding, node, self._after_anchor):
            return binding, []
        return None, self._blocked

    def _finish(self, binding: Binding) -> bool:
        """Every reader of every inner tensor is inside the match, and joining the match closes no cycle."""
        nodes = binding.nodes
        for index, reads in self._inner:
            value = binding.values[index]
            if value is not None and len(value.uses) != reads:  # else they are those of the pattern
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
    nodes = sorted((node for node in binding.nodes if node is not None), key=by_order)
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


# -- steps ----------------------------------------------------------------------------------------------------------


def _in_turn(last_first: Sequence[_Step], then: _Step) -> _Step:
    """Some steps, none of which leaves a choice, and what comes after them."""
    if not last_first:
        return then
    steps = tuple(reversed(last_first))

    def in_turn(binding: Binding) -> bool:
        for step in steps:
            if not step(binding):
                return False
        return then(binding)

    return in_turn


def _from_below(bind: _Bind, link: TensorPattern) -> _Step:
    """To the node that makes a tensor."""
    ops, index, slot, bind_node = bind.op.ops, link.index, link.slot, bind.node

    def from_below(binding: Binding) -> bool:
        value = binding.values[index]
        assert value is not None
        node = value.producer
        return node is not None and node.op in ops and value.index == slot and bind_node(binding, node)

    return from_below


def _one_of(bind: _Bind, link: Link, then: _Step) -> _Step:
    """To a node of which there may be several, or whose operands may swap, until everything after it fits too."""
    ops = bind.op.ops

    def nodes(binding: Binding) -> Iterable[Node]:
        if link is None:
            return binding.graph.nodes_of(*ops)
        value = binding.values[link.index]
        if value is None:
            return ()
        if link.producer != bind.op.index:
            readers = {reader for reader, _ in value.uses if isinstance(reader, Node) and reader.op in ops}
            return sorted((reader for reader in readers if reader.graph is binding.graph), key=by_order)
        made = value.producer
        return (made,) if made is not None and made.op in ops and value.index == link.slot else ()

    def one_of(binding: Binding) -> bool:
        return any(bind.then(binding, node, then) for node in nodes(binding))

    return one_of


# -- binding a node -------------------------------------------------------------------------------------------------


class _Bind:
    """Binds one operator of the pattern to a node, its outputs and its inputs.

    Args:
        op: the operator.
        before: those that are bound before it.
        needed: the tensors that must be there.
        binds_attributes: whether the pattern has variables for attributes.
    """

    def __init__(
        self, op: OpPattern, before: Sequence[tuple[OpPattern, Link]], needed: frozenset[int], *, binds_attributes: bool
    ) -> None:
        known = _bound_by(before)
        self.op = op
        self._claim = _claim(op, [earlier for earlier, _ in before], known, needed)
        self._operands = _operands(op, known | {tensor.index for tensor in op.outputs})
        self._no_more = no_more_inputs(op, len(op.inputs))
        self._binds_attributes = binds_attributes
        self.node = self._by_position()

    def then(self, binding: Binding, node: Node, then: _Step) -> bool:
        """Bind ``node`` in any way after which ``then`` holds."""
        saved = dict(binding.attributes) if self._binds_attributes else None
        if self.op.commutative:
            holds = self._claim(binding, node) and self._in_any_order(binding, node, then)
        else:
            holds = self.node(binding, node) and then(binding)
        if not holds and saved is not None:
            binding.attributes = saved
        return holds

    def _by_position(self) -> Callable[[Binding, Node], bool]:
        """The closure that binds a node with its operands as they stand."""
        claim, operands, no_more = self._claim, self._operands, self._no_more
        count = len(operands)

        def bind(binding: Binding, node: Node) -> bool:
            inputs, values = node.inputs, binding.values
            if len(inputs) != count:
                if len(inputs) > count and not no_more(node):
                    return False
                inputs = [*inputs, *[None] * (count - len(inputs))]
            for (tensor, index, bound, asks), value in zip(operands, inputs):  # noqa: B905 - further inputs may be there
                if tensor is None:
                    if value is not None:
                        return False
                elif tensor is not ANY:
                    if value is None or (bound and values[index] is not value) or (asks and not tensor_holds(tensor, value)):
                        return False
                    values[index] = value
            return claim(binding, node)

        return bind

    def _in_any_order(self, binding: Binding, node: Node, then: _Step) -> bool:
        """Each operand takes any input that is left, until everything fits."""
        inputs, values, operands = node.inputs, binding.values, self._operands
        count = len(operands)
        if len(inputs) < count or not self._no_more(node):
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


def _claim(
    op: OpPattern, earlier: Sequence[OpPattern], known: set[int], needed: frozenset[int]
) -> Callable[[Binding, Node], bool]:
    """The closure that binds a node itself and its outputs, where no other operator has it and its parameters are right."""
    index, parameters_hold = op.index, _parameters(op)
    rivals = tuple(other.index for other in earlier if not other.ops.keys().isdisjoint(op.ops))
    outputs = [(tensor.slot, tensor.index, tensor.index in known, tensor.index in needed) for tensor in op.outputs]
    count = len(op.outputs)
    counted = frozenset(name for name, signature in op.ops.items() if signature is not None and signature.variadic_outputs)
    if [bound for _, _, bound, _ in outputs] == [True] and not rivals and not counted:

        def claim_its_maker(binding: Binding, node: Node) -> bool:
            """The only output is bound, and led here."""
            binding.nodes[index] = node
            return node.graph is binding.graph and (parameters_hold is None or parameters_hold(binding, node))

        return claim_its_maker

    def claim(binding: Binding, node: Node) -> bool:
        nodes, values, given = binding.nodes, binding.values, node.outputs
        if node.graph is not binding.graph or (node.op in counted and len(given) != count):
            return False
        for rival in rivals:
            if nodes[rival] is node:
                return False
        nodes[index] = node
        for slot, tensor, bound, wanted in outputs:
            value = given[slot] if slot < len(given) else None
            if bound:
                if values[tensor] is not value:
                    return False
            elif value is None and wanted:
                return False
            else:
                values[tensor] = value
        return parameters_hold is None or parameters_hold(binding, node)

    return claim


def _parameters(op: OpPattern) -> Callable[[Binding, Node], bool] | None:
    """The closure that tells whether a node's parameters are right; None where nothing is asked of them."""
    signatures, exact = op.ops, op.exact_attributes
    of_attributes = [constraint for constraint in op.constraints if _asks_attributes_alone(constraint, op)]
    others = [constraint for constraint in op.constraints if constraint not in of_attributes]
    known: dict[Hashable, bool] = {}

    def attributes_hold(node: Node) -> bool:
        """The answer depends on the attributes, and the rank from which axes are counted: most nodes are like others."""
        first = node.inputs[0] if node.inputs else None
        key = node.op, None if first is None else first.rank, *map(_serialized, node.proto.attribute)
        answer = known.get(key)
        if answer is None:
            signature = signatures[node.op]
            answer = known[key] = all(parameter_holds(constraint, node, signature, {}) for constraint in of_attributes)
        return answer

    def hold(binding: Binding, node: Node) -> bool:
        if (exact is not None and not exact.issuperset(node.attrs)) or (of_attributes and not attributes_hold(node)):
            return False
        return all(parameter_holds(constraint, node, signatures[node.op], binding.attributes) for constraint in others)

    return hold if op.constraints or exact is not None else None


def _asks_attributes_alone(constraint: Constraint, op: OpPattern) -> bool:
    """Whether a constraint is for a value, and on what is an attribute at this opset."""
    return constraint.kind in (Kind.EQUALS, Kind.ABSENT) and all(
        signature is not None and signature.attribute_of(constraint.name) is not None for signature in op.ops.values()
    )


_Operand: TypeAlias = tuple[TensorPattern | None, int, bool, bool]
"""What an input must be, its place among the values, whether that is bound before, and whether more is asked of it."""


def _operands(op: OpPattern, known: set[int]) -> list[_Operand]:
    operands: list[_Operand] = []
    for tensor in op.inputs:
        if tensor is None or tensor is ANY:
            operands.append((tensor, -1, False, False))
            continue
        asks = any(part is not None for part in (tensor.constant, tensor.dtype, tensor.rank, tensor.shape))
        operands.append((tensor, tensor.index, tensor.index in known, asks))
        known.add(tensor.index)
    return operands


def _holds(operand: _Operand, value: Value | None, values: list[Value | None]) -> bool:
    """Whether ``value`` can stand for an operand; binds it."""
    tensor, index, bound, asks = operand
    if tensor is None:
        return value is None
    if tensor is ANY:
        return True
    if value is None or (bound and values[index] is not value) or (asks and not tensor_holds(tensor, value)):
        return False
    values[index] = value
    return True


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
