"""Bind a pattern's operator to a node, with inputs and parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from gehost.ir.graph import Graph, Node, Value
from gehost.native import mypyc_attr
from gehost.pattern.fits import (
    counted_ops,
    equal_operands,
    has_other_attributes,
    is_constrained,
    is_output,
    no_more_inputs,
    operand_fits,
    output_fits,
    parameter_holds,
    required_operands,
    slots_to_try,
)
from gehost.pattern.source import ANY, Constraint, Kind, OpPattern, SourcePattern, TensorPattern


@mypyc_attr(serializable=True, allow_interpreted_subclasses=True)
class Binding:
    """The bindings of a match so far.

    They are nodes by op pattern, values by tensor pattern, attribute variables, and the options
    taken of choices, in order.
    """

    __slots__ = ("attributes", "chosen", "graph", "nodes", "source", "values")

    def __init__(self, graph: Graph, source: SourcePattern) -> None:
        self.graph = graph
        self.source = source
        self.nodes: list[Node | None] = [None] * len(source.ops)
        self.values: list[Value | None] = [None] * len(source.tensors)
        self.attributes: dict[str, Any] = {}
        self.chosen: dict[int, int] = {}


Inputs: TypeAlias = Sequence[Value | None]


class Bind:
    """Binds one operator of the pattern with its outputs and inputs.

    Args:
        op: the operator.
        source: the pattern.
        needed: outputs of operators that must be present.
        rivals: the operators that fit the same nodes, including this one.
        is_linked: whether it may be reached in another way than through its output.
    """

    def __init__(
        self,
        op: OpPattern,
        source: SourcePattern,
        needed: frozenset[int],
        rivals: Sequence[int],
        *,
        is_linked: bool,
    ) -> None:
        self.op = op
        self._bind_node = _bind_node(op, needed, rivals, is_linked=is_linked)
        self._checks = (
            [_operand_check(tensor, source) for tensor in op.inputs] if op.commutative else []
        )
        self._required = required_operands(op)
        self._equals = equal_operands(op, source) if op.commutative else []
        operands = [operand_of(tensor, source) for tensor in op.inputs]
        if op.commutative:  # ``orders`` checks them
            operands = [
                (index, producer, tensor, index < 0) for index, producer, tensor, _ in operands
            ]
        self._operands = operands
        self._no_more = no_more_inputs(op)
        self.node = self._bind()

    def _bind(self) -> Callable[[Binding, Node, Inputs], bool]:
        """Return the closure that binds a node, inputs in the operands' order."""
        bind_node, operands, no_more = self._bind_node, self._operands, self._no_more
        count = len(operands)

        def bind(binding: Binding, node: Node, inputs: Inputs) -> bool:
            size = len(inputs)
            if size > count and not no_more(node):
                return False
            if size == count and isinstance(inputs, tuple):
                exact = inputs
            else:  # a wide node is not copied
                exact = tuple([inputs[slot] if slot < size else None for slot in range(count)])
            values = binding.values
            for operand, value in zip(operands, exact):  # noqa: B905 - mypyc makes a loop of this form
                index, producer, _, constrained = operand
                if not constrained and producer < 0 and value is not None and values[index] is None:
                    values[index] = value  # as ``holds`` does, without the call
                elif not holds(operand, value, binding):
                    return False
            return bind_node(binding, node)

        return bind

    def orders(self, binding: Binding, node: Node) -> Sequence[Inputs] | Iterator[Inputs]:
        """Return the orders of inputs that may fit unordered operands.

        Each input is checked by itself: it must fit its operand's constraints and producer.
        Two operands give a sequence; more may have too many orders to list.
        """
        inputs, checks = node.inputs, self._checks
        count = len(checks)
        if len(inputs) < self._required or (len(inputs) > count and not self._no_more(node)):
            return ()
        if len(inputs) < count:
            inputs = (*inputs, *[None] * (count - len(inputs)))
        if count != 2:
            return self._permutations(binding, inputs, ())
        first, second = inputs[0], inputs[1]
        straight = checks[0](first) and checks[1](second)
        if not (checks[0](second) and checks[1](first)):
            return ((first, second),) if straight else ()
        return ((first, second), (second, first)) if straight else ((second, first),)

    def _permutations(
        self, binding: Binding, inputs: Inputs, taken: tuple[int, ...]
    ) -> Iterator[Inputs]:
        """Yield the orders of ``orders`` that begin with the inputs ``taken``."""
        position = len(taken)
        if position == len(self._checks):
            yield [inputs[slot] for slot in taken]
            return
        index, fits = self._operands[position][0], self._checks[position]
        known = binding.values[index] if index >= 0 else None
        for slot in slots_to_try(self._equals, taken, inputs):
            value = inputs[slot]
            if (known is None or known is value) and fits(value):
                yield from self._permutations(binding, inputs, (*taken, slot))


def _operand_check(
    tensor: TensorPattern | None, source: SourcePattern
) -> Callable[[Value | None], bool]:
    """Return the check of one operand's constraints and producer."""
    if tensor is None or tensor.producer is None:
        return lambda value: operand_fits(tensor, value)
    ops, slot = frozenset(source.ops[tensor.producer].ops), tensor.slot
    return lambda value: value is not None and is_output(value, ops, slot)


def rivals_of(source: SourcePattern) -> dict[frozenset[str], Sequence[int]]:
    """Return operators that may fit the same nodes, by operators' names."""
    by_name: dict[str, list[int]] = {}
    for op in source.ops:
        for name in op.ops:
            by_name.setdefault(name, []).append(op.index)
    return {
        names: sorted({index for name in names for index in by_name[name]})
        for names in {frozenset(op.ops) for op in source.ops}
    }


def _bind_node(
    op: OpPattern, needed: frozenset[int], rivals: Sequence[int], *, is_linked: bool
) -> Callable[[Binding, Node], bool]:
    """Return a function that binds a node and its outputs.

    It fails if another operator has the node, or its parameters do not fit.
    """
    index, parameters_hold = op.index, _parameters(op)
    outputs = [(tensor.slot, tensor.index, tensor.index in needed) for tensor in op.outputs]
    count, counted = len(op.outputs), counted_ops(op)
    others = [rival for rival in rivals if rival != index]
    if count == 1 and not is_linked and not counted:

        def bind_only_output(binding: Binding, node: Node) -> bool:
            """Bind a node that was reached through its only output."""
            nodes = binding.nodes
            for other in others:
                if nodes[other] is node:
                    return False
            nodes[index] = node
            return node.graph is binding.graph and (
                parameters_hold is None or parameters_hold(binding, node)
            )

        return bind_only_output

    def bind_node(binding: Binding, node: Node) -> bool:
        nodes, values, given = binding.nodes, binding.values, node.outputs
        if node.graph is not binding.graph or (node.op in counted and len(given) != count):
            return False
        for other in others:
            if nodes[other] is node:
                return False
        nodes[index] = node
        for slot, tensor, wanted in outputs:
            value = given[slot] if slot < len(given) else None
            if not output_fits(value, values[tensor], needed=wanted):
                return False
            values[tensor] = value
        return parameters_hold is None or parameters_hold(binding, node)

    return bind_node


def _parameters(op: OpPattern) -> Callable[[Binding, Node], bool] | None:
    """Return a check of a node's parameters, None without constraints."""
    signatures, is_exact = op.ops, op.exact_attributes is not None
    of_attributes = [
        constraint for constraint in op.constraints if _is_on_attribute(constraint, op)
    ]
    others = [constraint for constraint in op.constraints if constraint not in of_attributes]
    known: dict[Hashable, bool] = {}

    def attributes_hold(node: Node) -> bool:
        """Check parameters that are attributes.

        Results are cached, as most nodes have equal attributes.

        The result depends only on the attributes and the rank to which axes refer.
        """
        first = node.inputs[0] if node.inputs else None
        rank = None if first is None else first.rank
        key = node.op, rank, node.encoded_attrs
        answer = known.get(key)
        if answer is None:
            signature = signatures[node.op]
            answer = known[key] = all(
                parameter_holds(constraint, node, signature, {}) for constraint in of_attributes
            )
        return answer

    def hold(binding: Binding, node: Node) -> bool:
        if (is_exact and has_other_attributes(op, node)) or (
            of_attributes and not attributes_hold(node)
        ):
            return False
        for constraint in others:
            if not parameter_holds(constraint, node, signatures[node.op], binding.attributes):
                return False
        return True

    return hold if op.constraints or is_exact else None


def _is_on_attribute(constraint: Constraint, op: OpPattern) -> bool:
    """Whether a constraint wants a value of an attribute at this opset."""
    return constraint.kind in (Kind.EQUALS, Kind.ABSENT) and all(
        signature is not None and signature.attribute_of(constraint.name) is not None
        for signature in op.ops.values()
    )


Operand: TypeAlias = tuple[int, int, TensorPattern | None, bool]
"""An operand: its index among the values, or -1; its producer if that must not be bound yet, or -1;
its tensor; whether a value is checked against it. A tuple, which machine code unpacks fast.
"""


def operand_of(tensor: TensorPattern | None, source: SourcePattern) -> Operand:
    """Return the constraints of a tensor as an operand."""
    if tensor is None or tensor is ANY:
        return -1, -1, tensor, True
    # with choices, an output that was absent when its producer was bound fits no operand
    producer = tensor.producer if source.has_choices and tensor.producer is not None else -1
    return tensor.index, producer, tensor, is_constrained(tensor)


def holds(operand: Operand, value: Value | None, binding: Binding) -> bool:
    """Whether ``value`` fits an operand; binds it."""
    index, producer, tensor, constrained = operand
    known = binding.values[index] if index >= 0 else None
    if known is not None:
        return known is value
    if ((constrained or value is None) and not operand_fits(tensor, value)) or (
        producer >= 0 and binding.nodes[producer] is not None
    ):
        return False
    if index >= 0:
        binding.values[index] = value
    return True
