"""The compiled matcher: a pattern as closures over the index.

A match begins at the producer of output 0 and goes up. Steps without a choice are done at once
(``_Op.straight``); operators with operands in any order, and choices between sub-patterns, wait on
an agenda and are tried one after another. Each attempt begins with the saved binding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.native import mypyc_attr
from gehost.pattern.fits import (
    counted_ops,
    cyclic_region,
    equal_operands,
    has_other_attributes,
    is_constrained,
    is_output,
    no_more_inputs,
    operand_fits,
    output_fits,
    outside_readers,
    parameter_holds,
    required_operands,
    slots_to_try,
)
from gehost.pattern.roots import Roots
from gehost.pattern.source import (
    ANY,
    Chosen,
    Constraint,
    Kind,
    Link,
    OpPattern,
    SourcePattern,
    TensorPattern,
)

Inputs: TypeAlias = Sequence[Value | None]

Agenda: TypeAlias = tuple[TensorPattern, Any] | None
"""Bound tensors whose operators are not bound yet: the first one, and the agenda of the others
(``Any``, since mypyc cannot compile a recursive alias).
"""


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


BindNode: TypeAlias = Callable[[Binding, Node, Inputs], bool]


class CompiledPattern:
    """A source pattern as closures over the index."""

    def __init__(self, source: SourcePattern) -> None:
        self.source = source
        self._has_choices = source.has_choices
        first = source.tensors[source.outputs[0]]
        self._anchors = source.leaves(first)
        anchors = {tensor.producer for tensor in self._anchors}
        needed = _needed(source) if self._has_choices else source.needed
        rivals = rivals_of(source)
        binds = [
            Bind(
                op,
                source,
                needed,
                rivals[frozenset(op.ops)],
                is_linked=op.index in anchors or len(source.outputs) > 1,
            )
            for op in source.ops
        ]
        self._ops = [_Op(bind, source, binds) for bind in binds]
        self.anchor_ops: tuple[str, ...] = tuple(
            dict.fromkeys(
                [
                    op
                    for tensor in self._anchors
                    if tensor.producer is not None
                    for op in source.ops[tensor.producer].ops
                ]
            )
        )
        """The possible operators of the producer of output 0."""
        self._anchor = None if first.options else source.ops[first.producer or 0]
        self._roots = None if self._anchor is None else Roots(source, self._anchor)
        self._slots = list(dict.fromkeys([tensor.slot for tensor in self._anchors]))
        self._first = first
        self._must_compare = len(self._slots) > 1 or len(source.outputs) > 1
        self._must_compare |= any(op.commutative for op in source.ops)
        """Whether a search may find a match with later options before one with earlier options."""
        self._inner = () if self._has_choices else _inner(source)
        self._choices = {
            choice.index: [
                _Option(number, source.tensors[option], source)
                for number, option in enumerate(choice.options)
            ]
            for choice in source.tensors
            if choice.options
        }
        self._fitting: dict[tuple[int, str, int], list[_Option]] = {}
        """Options by choice, and by operator and slot of the tensor's producer."""
        outputs = {
            leaf.index for index in source.outputs for leaf in source.leaves(source.tensors[index])
        }
        self._op_outputs = [
            (tensor.index, op.index, tensor.index in outputs)
            for op in source.ops
            for tensor in op.outputs
        ]
        """Outputs of operators: tensor, operator, whether it may be an output of the pattern."""
        self._plans: dict[tuple[tuple[int, int], ...], list[tuple[_Op, Link]]] = {}
        self._blocked: list[Value] = []
        self._best: _State | None = None

    def candidates(self, graph: Graph) -> tuple[list[Node], bool]:
        """Return nodes that may now produce output 0, in topological order.

        The second result is whether these are all nodes of the operator; if not, a rewrite
        may add more, see ``reached_from``.
        """
        if self._has_choices or self._roots is None:
            return graph.nodes_of(*self.anchor_ops), True
        return self._roots.of(graph)

    def reached_from(self, node: Node) -> list[Node]:
        """Return the roots of matches in which ``node``, just added, is the newest node.

        A root produces output 0.
        """
        return [] if self._roots is None else self._roots.reached_from(node)

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        """Match with ``node`` as the producer of output 0.

        Returns:
            The first self-contained binding, or None; and the tensors because of which complete
            bindings failed: inner tensors with other users. If several variants match, the binding
            is of the one whose options come first.
        """
        self._blocked = []
        if self._anchor is not None:
            if node.op not in self._anchor.ops:
                return None, []
            if self._has_choices and self._roots is not None and not self._roots.is_fed(node):
                return None, []
            binding = Binding(node.graph, self.source)
            found = self._bind(self._ops[self._anchor.index], binding, node, None)
        else:
            binding, found = self._match_option(node)
        if self._best is not None:
            best, self._best = self._best, None
            best.restore(binding)
            found = True
        blocked, self._blocked = self._blocked, []  # a pattern outlives its graphs
        return (binding, []) if found else (None, blocked)

    def _match_option(self, node: Node) -> tuple[Binding, bool]:
        """Match if output 0 is a choice."""
        binding = Binding(node.graph, self.source)
        start = _State(binding)
        for slot in self._slots:
            value = node.outputs[slot] if slot < len(node.outputs) else None
            if value is not None:
                binding.values[self._first.index] = value
                if self._bind_agenda(binding, (self._first, None)):
                    return binding, True
                start.restore(binding)
        return binding, False

    # going up

    def _bind(self, op: _Op, binding: Binding, node: Node, agenda: Agenda) -> bool:
        """Bind ``node`` so that everything on the agenda fits, too."""
        if not op.bind.op.commutative:
            return op.bind.node(binding, node, node.inputs) and self._bind_above(
                op, binding, agenda
            )
        orders = op.bind.orders(binding, node)
        if isinstance(orders, tuple) and len(orders) == 1:
            return op.bind.node(binding, node, orders[0]) and self._bind_above(op, binding, agenda)
        state = _State(binding)
        for order in orders:
            if op.bind.node(binding, node, order) and self._bind_above(op, binding, agenda):
                return True
            state.restore(binding)
        return False

    def _bind_above(self, op: _Op, binding: Binding, agenda: Agenda) -> bool:
        """Continue after ``op`` is bound."""
        if not op.straight_holds(binding):
            return False
        for tensor in op.open:
            agenda = (tensor, agenda)
        return self._bind_agenda(binding, agenda)

    def _bind_agenda(self, binding: Binding, agenda: Agenda) -> bool:
        nodes, values = binding.nodes, binding.values
        while agenda is not None:
            tensor, agenda = agenda
            if tensor.options:
                value = values[tensor.index]
                assert value is not None
                options = self._options(binding, tensor, value)
                if len(options) != 1:
                    return self._choose(binding, tensor, value, options, agenda)
                option = options[0]
                binding.chosen[tensor.index] = option.number
                if not holds(option.operand, value, binding):
                    return False
                agenda = (option.tensor, agenda)
                continue
            index = tensor.producer
            if index is None or nodes[index] is not None:
                continue
            op = self._ops[index]
            value = values[tensor.index]
            if value is None or not is_output(value, op.bind.op.ops, tensor.slot):
                return False
            node = value.producer
            assert node is not None
            if op.bind.op.commutative:
                return self._bind(op, binding, node, agenda)
            if not op.bind.node(binding, node, node.inputs) or not op.straight_holds(binding):
                return False
            for following in op.open:
                agenda = (following, agenda)
        return (
            self._finish(binding)
            if len(self.source.outputs) == 1
            else self._bind_other_outputs(binding)
        )

    def _choose(
        self,
        binding: Binding,
        choice: TensorPattern,
        value: Value,
        options: Sequence[_Option],
        agenda: Agenda,
    ) -> bool:
        """Try options for the tensor of a choice, in order."""
        state = _State(binding)
        for option in options:
            binding.chosen[choice.index] = option.number
            if holds(option.operand, value, binding) and self._bind_agenda(
                binding, (option.tensor, agenda)
            ):
                return True
            state.restore(binding)
        return False

    def _options(self, binding: Binding, choice: TensorPattern, value: Value) -> Sequence[_Option]:
        """Return the options of a choice that fit the producer of ``value``."""
        node = value.producer
        known = binding.chosen.get(choice.index)
        if known is not None:
            return self._choices[choice.index][known : known + 1]
        op = "" if node is None else node.op
        key = choice.index, op, value.index
        found = self._fitting.get(key)
        if found is None:
            found = self._fitting[key] = [
                option
                for option in self._choices[choice.index]
                if option.ops is None or (op in option.ops and value.index == option.tensor.slot)
            ]
        if self._best is not None:
            most = self._most_options(binding, choice)
            return [option for option in found if option.number < most]
        return found

    def _most_options(self, binding: Binding, choice: TensorPattern) -> int:
        """Return the number of options worth trying, fewer after an earlier match."""
        if self._best is None:
            return len(choice.options)
        taken, best = list(binding.chosen.values()), self._best.taken
        place = len(taken)
        if taken < best[:place]:
            return len(choice.options)
        return best[place] + 1 if taken == best[:place] and place < len(best) else 0

    # further outputs

    def _bind_other_outputs(self, binding: Binding) -> bool:
        """Bind the parts of the other outputs: open choices, then users."""
        if self._has_choices:
            _, choice = self.source.reached(binding.chosen)
            if choice is not None:
                return self._decide_choice(binding, choice)
        key = tuple(binding.chosen.items())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._readers_of(binding.chosen)
        for op, link in plan:
            if binding.nodes[op.bind.op.index] is None:
                return self._bind_one_of(op, link, binding)
        return self._finish(binding)

    def _decide_choice(self, binding: Binding, choice: TensorPattern) -> bool:
        state = _State(binding)
        for number in range(self._most_options(binding, choice)):
            binding.chosen[choice.index] = number
            if self._bind_other_outputs(binding):
                return True
            state.restore(binding)
        return False

    def _readers_of(self, chosen: Chosen) -> list[tuple[_Op, Link]]:
        """Return operators found as readers, each with the tensor it reads."""
        order = self.source.order(chosen)[1:]
        return [
            (self._ops[op.index], link)
            for op, link in order
            if link is None or link.producer != op.index
        ]

    def _bind_one_of(self, op: _Op, link: Link, binding: Binding) -> bool:
        """Bind one of several nodes with which everything else fits, too."""
        ops = op.bind.op.ops
        nodes: Iterable[Node] = ()
        if link is None:
            nodes = binding.graph.nodes_of(*ops)
        elif (value := binding.values[link.index]) is not None:
            readers = [
                reader
                for reader in value.readers
                if isinstance(reader, Node) and reader.op in ops and reader.graph is binding.graph
            ]
            nodes = sorted(readers, key=by_order)
        state = _State(binding)
        for node in nodes:
            if self._bind(op, binding, node, None):
                return True
            state.restore(binding)
        return False

    # the end

    def _finish(self, binding: Binding) -> bool:
        """Check that inner tensors have no outside users, nor the match cycles.

        A match that may not be of the first variant is saved, and the search continues.
        """
        if not self._has_choices:
            return self._is_closed(binding) and not _would_cycle(binding)
        source, values = self.source, binding.values
        for index in binding.chosen:
            values[index] = values[source.resolved(source.tensors[index], binding.chosen).index]
        if any(values[index] is None for index in source.outputs):
            return False
        if not self._is_closed(binding) or _would_cycle(binding):
            return False
        if not self._must_compare or not any(binding.chosen.values()):
            self._best = None
            return True
        taken = list(binding.chosen.values())
        if self._best is None or taken < self._best.taken:
            self._best = _State(binding)
        return False

    def _is_closed(self, binding: Binding) -> bool:
        """Whether inner tensors have users inside the match only."""
        nodes, values = binding.nodes, binding.values
        if self._has_choices:
            return self._is_closed_by_choice(binding)
        for index, readers in self._inner:
            value = values[index]
            if value is None or (readers == 1 and isinstance(value.read_by, Node)):
                continue
            # this number of operators of the pattern read it, and all of them are bound
            if len(value.readers) != readers and outside_readers(value, nodes):
                self._blocked.append(value)
                return False
        return True

    def _is_closed_by_choice(self, binding: Binding) -> bool:
        """Do the same if the inner tensors depend on the options taken."""
        nodes, values = binding.nodes, binding.values
        inside: set[Node | Graph | None] = {*nodes}
        outputs = [values[index] for index in self.source.outputs]
        for index, op, may_be_output in self._op_outputs:
            value = values[index]
            if nodes[op] is None or value is None or (may_be_output and value in outputs):
                continue
            found = value.read_by
            if isinstance(found, Node):
                if found in inside:
                    continue
            elif not outside_readers(value, inside):
                continue
            self._blocked.append(value)
            return False
        return True


class _Op:
    """An operator of a compiled pattern, and the way up from it.

    Attributes:
        straight: the steps above it that leave no choice.
        open: the tensors above it that leave a choice, the last one first.
    """

    def __init__(self, bind: Bind, source: SourcePattern, binds: list[Bind]) -> None:
        self.bind = bind
        straight: list[tuple[int, int, int, frozenset[str], BindNode]] = []
        open_: list[TensorPattern] = []
        seen = {bind.op.index}

        def go_up(op: OpPattern) -> None:
            for tensor in op.inputs:
                if tensor is None:
                    continue
                if tensor.options:
                    open_.append(tensor)
                elif tensor.producer is not None and tensor.producer not in seen:
                    above = source.ops[tensor.producer]
                    if above.commutative:
                        open_.append(tensor)
                        continue
                    seen.add(above.index)
                    straight.append(
                        (
                            tensor.index,
                            tensor.slot,
                            above.index,
                            frozenset(above.ops),
                            binds[above.index].node,
                        )
                    )
                    go_up(above)

        go_up(bind.op)
        self.straight = tuple(straight)
        self.open = tuple(reversed(open_))

    def straight_holds(self, binding: Binding) -> bool:
        values, nodes = binding.values, binding.nodes
        for index, slot, op, ops, bind_node in self.straight:
            if nodes[op] is not None:
                continue
            value = values[index]
            node = None if value is None else value.producer
            if (
                node is None
                or value is None
                or node.op not in ops
                or value.index != slot
                or not bind_node(binding, node, node.inputs)
            ):
                return False
        return True


class _Option:
    """An option of a choice.

    Attributes:
        number: its position.
        ops: the operators that produce it; None if any tensor fits.
    """

    __slots__ = ("number", "operand", "ops", "tensor")

    def __init__(self, number: int, tensor: TensorPattern, source: SourcePattern) -> None:
        self.number = number
        self.tensor = tensor
        self.operand = operand_of(tensor, source)
        self.ops = None if tensor.producer is None else frozenset(source.ops[tensor.producer].ops)


class _State:
    """A saved state of a binding."""

    __slots__ = ("attributes", "chosen", "nodes", "values")

    def __init__(self, binding: Binding) -> None:
        self.nodes = binding.nodes.copy()
        self.values = binding.values.copy()
        self.chosen = binding.chosen.copy()
        self.attributes = binding.attributes.copy()

    @property
    def taken(self) -> list[int]:
        """The options taken, in the order of their choices."""
        return list(self.chosen.values())

    def restore(self, binding: Binding) -> None:
        binding.nodes[:] = self.nodes
        binding.values[:] = self.values
        binding.chosen.clear()
        binding.chosen.update(self.chosen)
        binding.attributes.clear()
        binding.attributes.update(self.attributes)


def _needed(source: SourcePattern) -> frozenset[int]:
    """Return the captured tensors; a variant with their operators must bind them."""
    return frozenset([index for index in source.captures if index is not None])


def _inner(source: SourcePattern) -> tuple[tuple[int, int], ...]:
    """Return the inner tensors, each with its number of reading operators."""
    return tuple([(index, _readers(source, index, {})) for index in source.inner])


def _readers(source: SourcePattern, index: int, chosen: Chosen) -> int:
    ops = [source.ops[each] for each in source.reached(chosen)[0]]
    return sum(
        any(
            each is not None and each is not ANY and source.resolved(each, chosen).index == index
            for each in op.inputs
        )
        for op in ops
    )


def _would_cycle(binding: Binding) -> bool:
    """Whether a complete match's outputs feed it through outside nodes.

    A match with a single output cannot feed itself.
    """
    source = binding.source
    if len(source.outputs) == 1:
        return False
    nodes = [node for node in binding.nodes if node is not None]
    return cyclic_region(source, binding.graph, nodes, binding.values) is not None


# binding one operator, with its inputs and parameters


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
