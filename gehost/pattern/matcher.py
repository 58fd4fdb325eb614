"""The compiled matcher: a pattern prepared for many nodes.

A match begins at the root, the producer of output 0, and goes up to the producers of its inputs.
Producers that leave no choice are bound at once (``_Op.forced``); operators with operands in any
order, and choices between sub-patterns, wait on an agenda and are tried one after another. Each
attempt begins with the saved binding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from gehost.ir.effective import OF_SHAPES
from gehost.ir.graph import Graph, Node, Value, by_order
from gehost.pattern.fits import (
    Operand,
    counted_ops,
    cyclic_region,
    equal_operands,
    has_other_attributes,
    is_output,
    no_more_inputs,
    operand_fits,
    operand_of,
    output_fits,
    outside_readers,
    parameter_holds,
    required_operands,
    rivals_of,
    slots_to_try,
)
from gehost.pattern.roots import Roots
from gehost.pattern.source import (
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


class CompiledPattern:
    """A source pattern, prepared to be matched at many nodes."""

    def __init__(self, source: SourcePattern) -> None:
        self.source = source
        self._has_choices = source.has_choices
        first = source.tensors[source.outputs[0]]
        self._root_tensors = source.leaves(first)
        roots = {tensor.producer for tensor in self._root_tensors}
        # a variant with the operators of captured tensors must bind them
        captured = frozenset([index for index in source.captures if index is not None])
        needed = captured if self._has_choices else source.needed
        rivals = rivals_of(source)
        self._ops = [
            _Op(
                op,
                source,
                needed,
                rivals[frozenset(op.ops)],
                is_linked=op.index in roots or len(source.outputs) > 1,
            )
            for op in source.ops
        ]
        for op in self._ops:
            op.find_steps_above(self._ops)
        self.root_ops: tuple[str, ...] = tuple(
            dict.fromkeys(
                [
                    op
                    for tensor in self._root_tensors
                    if tensor.producer is not None
                    for op in source.ops[tensor.producer].ops
                ]
            )
        )
        """The possible operators of the root."""
        self._root = None if first.options else self._ops[first.producer or 0]
        self._roots = None if self._root is None else Roots(source, self._root.pattern)
        self._slots = list(dict.fromkeys([tensor.slot for tensor in self._root_tensors]))
        self._first = first
        self._must_compare = len(self._slots) > 1 or len(source.outputs) > 1
        self._must_compare |= any(op.commutative for op in source.ops)
        """Whether a search may find a match with later options before one with earlier options."""
        readers = Counter(
            [
                index
                for op in source.ops
                for index in {tensor.index for tensor in op.inputs if tensor is not None}
            ]
        )
        self._inner = (
            [] if self._has_choices else [(tensor, readers[tensor]) for tensor in source.inner]
        )
        """Inner tensors, each with its number of reading operators."""
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
        """Return candidates for the root, in topological order.

        The second result is whether these are all nodes of the root's operators; if not, a
        rewrite may make candidates of others, see ``reached_from``.
        """
        if self._has_choices or self._roots is None:
            return graph.nodes_of(*self.root_ops), True
        return self._roots.of(graph)

    def reached_from(self, node: Node) -> list[Node]:
        """Return candidates of matches in which ``node``, just added, may take part."""
        return [] if self._roots is None else self._roots.reached_from(node)

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        """Match with ``node`` as the root.

        Returns:
            The first self-contained binding, or None; and the tensors because of which complete
            bindings failed: inner tensors with other users. If several variants match, the binding
            is of the one whose options come first.
        """
        self._blocked = []
        root, roots = self._root, self._roots
        if root is not None and node.op not in root.names:
            return None, []
        if self._has_choices and roots is not None and not roots.inputs_fit(node):
            return None, []
        binding, matches = Binding(node.graph, self.source), False
        if root is not None:
            matches = self._bind(root, binding, node, None)
        else:  # output 0 is a choice
            start = _State(binding)
            for slot in self._slots:
                value = node.outputs[slot] if slot < len(node.outputs) else None
                if value is not None:
                    binding.values[self._first.index] = value
                    matches = self._bind_agenda(binding, (self._first, None))
                    if matches:
                        break
                    start.restore(binding)
        if self._best is not None:
            best, self._best = self._best, None
            best.restore(binding)
            matches = True
        blocked, self._blocked = self._blocked, []  # a pattern outlives its graphs
        return (binding, []) if matches else (None, blocked)

    # going up

    def _bind(self, op: _Op, binding: Binding, node: Node, agenda: Agenda) -> bool:
        """Bind ``node`` so that everything on the agenda fits, too."""
        if not op.pattern.commutative:
            return op.bind(binding, node, node.inputs) and self._bind_above(op, binding, agenda)
        orders = op.orders(binding, node)
        if isinstance(orders, tuple) and len(orders) == 1:
            return op.bind(binding, node, orders[0]) and self._bind_above(op, binding, agenda)
        state = _State(binding)
        for order in orders:
            if op.bind(binding, node, order) and self._bind_above(op, binding, agenda):
                return True
            state.restore(binding)
        return False

    def _bind_above(self, op: _Op, binding: Binding, agenda: Agenda) -> bool:
        """Continue after ``op`` is bound."""
        if not op.bind_forced(binding):
            return False
        for tensor in op.undecided:
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
                if not bind_operand(option.operand, value, binding):
                    return False
                agenda = (option.tensor, agenda)
                continue
            index = tensor.producer
            if index is None or nodes[index] is not None:
                continue
            op = self._ops[index]
            value = values[tensor.index]
            if value is None or not is_output(value, op.names, tensor.slot):
                return False
            node = value.producer
            assert node is not None
            if op.pattern.commutative:
                return self._bind(op, binding, node, agenda)
            if not op.bind(binding, node, node.inputs) or not op.bind_forced(binding):
                return False
            for following in op.undecided:
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
            if bind_operand(option.operand, value, binding) and self._bind_agenda(
                binding, (option.tensor, agenda)
            ):
                return True
            state.restore(binding)
        return False

    def _options(self, binding: Binding, choice: TensorPattern, value: Value) -> Sequence[_Option]:
        """Return the options of a choice that fit the producer of ``value``."""
        node = value.producer
        chosen = binding.chosen.get(choice.index)
        if chosen is not None:
            return self._choices[choice.index][chosen : chosen + 1]
        op = "" if node is None else node.op
        key = choice.index, op, value.index
        fitting = self._fitting.get(key)
        if fitting is None:
            fitting = self._fitting[key] = [
                option
                for option in self._choices[choice.index]
                if option.ops is None or (op in option.ops and value.index == option.tensor.slot)
            ]
        if self._best is not None:
            most = self._most_options(binding, choice)
            return [option for option in fitting if option.number < most]
        return fitting

    def _most_options(self, binding: Binding, choice: TensorPattern) -> int:
        """Return the number of options worth trying, fewer after an earlier match.

        Variants come in the order of their lists of options, compared from the first choice on: a
        search that has taken later options than the best match cannot find an earlier variant.
        """
        if self._best is None:
            return len(choice.options)
        options, best = list(binding.chosen.values()), self._best.taken
        place = len(options)
        if options < best[:place]:
            return len(choice.options)
        return best[place] + 1 if options == best[:place] and place < len(best) else 0

    # further outputs

    def _bind_other_outputs(self, binding: Binding) -> bool:
        """Bind the parts of the other outputs: open choices, then users."""
        if self._has_choices:
            _, choice = self.source.reached(binding.chosen)
            if choice is not None:
                state = _State(binding)
                for number in range(self._most_options(binding, choice)):
                    binding.chosen[choice.index] = number
                    if self._bind_other_outputs(binding):
                        return True
                    state.restore(binding)
                return False
        key = tuple(binding.chosen.items())
        plan = self._plans.get(key)
        if plan is None:  # the operators that are found as users, each with the tensor it reads
            plan = self._plans[key] = [
                (self._ops[op.index], link)
                for op, link in self.source.order(binding.chosen)[1:]
                if link is None or link.producer != op.index
            ]
        for op, link in plan:
            if binding.nodes[op.pattern.index] is None:
                return self._bind_one_of(op, link, binding)
        return self._finish(binding)

    def _bind_one_of(self, op: _Op, link: Link, binding: Binding) -> bool:
        """Bind one of several nodes with which everything else fits, too."""
        ops = op.pattern.ops
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

        A match that may not be of the first variant is saved as the best so far; it returns False
        then, so that the search continues, and ``match_at`` takes the best at the end.
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
        options = list(binding.chosen.values())
        if self._best is None or options < self._best.taken:
            self._best = _State(binding)
        return False

    def _is_closed(self, binding: Binding) -> bool:
        """Whether inner tensors have users inside the match only."""
        nodes, values = binding.nodes, binding.values
        for index, readers in self._inner:
            value = values[index]
            if value is None or (readers == 1 and isinstance(value.read_by, Node)):
                continue
            # this number of operators of the pattern read it, and all of them are bound
            if len(value.readers) != readers and outside_readers(value, nodes):
                self._blocked.append(value)
                return False
        if not self._has_choices:
            return True
        # the inner tensors depend on the options taken
        inside: set[Node | Graph | None] = {*nodes}
        outputs = [values[index] for index in self.source.outputs]
        for index, op, may_be_output in self._op_outputs:
            value = values[index]
            if nodes[op] is None or value is None or (may_be_output and value in outputs):
                continue
            reader = value.read_by
            if isinstance(reader, Node):
                if reader in inside:
                    continue
            elif not outside_readers(value, inside):
                continue
            self._blocked.append(value)
            return False
        return True


class _Op:
    """An operator of a compiled pattern.

    Args:
        op: the operator.
        source: the pattern.
        needed: outputs of operators that must be present.
        rivals: the operators that fit the same nodes, including this one.
        is_linked: whether it may be reached in another way than through its output.

    Attributes:
        forced: the operators above it that leave no choice, each with the tensor and the output
            slot through which it is reached.
        undecided: the tensors above it that leave a choice, the last one first.
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
        self.pattern = op
        self.index = op.index
        self.names = frozenset(op.ops)
        self.forced: tuple[tuple[int, int, _Op], ...] = ()
        self.undecided: tuple[TensorPattern, ...] = ()
        operands = [operand_of(tensor, source) for tensor in op.inputs]
        if op.commutative:  # ``orders`` checks them
            operands = [
                (index, producer, tensor, index < 0) for index, producer, tensor, _ in operands
            ]
        self._operands = operands
        self._no_more = no_more_inputs(op)
        self._required = required_operands(op)
        self._equals = equal_operands(op, source) if op.commutative else []
        self._producers = [
            None
            if tensor is None or tensor.producer is None
            else (frozenset(source.ops[tensor.producer].ops), tensor.slot)
            for tensor in op.inputs
        ]
        """The operators and the output slot that each operand must come from."""
        self._rivals = [rival for rival in rivals if rival != op.index]
        self._counted = counted_ops(op)
        self._outputs = [
            (tensor.slot, tensor.index, tensor.index in needed) for tensor in op.outputs
        ]
        if len(op.outputs) == 1 and not is_linked and not self._counted:
            self._outputs = []  # a node is found through this output, which is bound then
        self._of_attributes = [
            constraint
            for constraint in op.constraints
            if constraint.kind in (Kind.EQUALS, Kind.ABSENT, Kind.AS_ABSENT)
            and constraint.name not in OF_SHAPES
            and all(
                signature is not None and signature.attribute_of(constraint.name) is not None
                for signature in op.ops.values()
            )
        ]
        """Constraints on values of attributes at this opset."""
        self._others = [
            constraint for constraint in op.constraints if constraint not in self._of_attributes
        ]
        self._is_checked = bool(op.constraints) or op.exact_attributes is not None
        self._known: dict[Hashable, bool] = {}

    def find_steps_above(self, ops: Sequence[_Op]) -> None:
        """Find the forced and undecided steps above this operator, depth first."""
        forced: list[tuple[int, int, _Op]] = []
        choices: list[TensorPattern] = []
        visited = {self.index}
        stack = [*reversed(self.pattern.inputs)]
        while stack:
            tensor = stack.pop()
            if tensor is None:
                continue
            if tensor.options:
                choices.append(tensor)
            elif tensor.producer is not None and tensor.producer not in visited:
                above = ops[tensor.producer]
                if above.pattern.commutative:
                    choices.append(tensor)
                    continue
                visited.add(above.index)
                forced.append((tensor.index, tensor.slot, above))
                stack.extend(reversed(above.pattern.inputs))
        self.forced, self.undecided = tuple(forced), tuple(reversed(choices))

    def bind(self, binding: Binding, node: Node, inputs: Inputs) -> bool:
        """Bind a node with its outputs, and with inputs in the operands' order.

        It fails if another operator has the node, or its parameters do not fit.
        """
        operands = self._operands
        count, size = len(operands), len(inputs)
        if size > count and not self._no_more(node):
            return False
        if size == count and isinstance(inputs, tuple):
            exact = inputs
        else:  # a wide node is not copied
            exact = tuple([inputs[slot] if slot < size else None for slot in range(count)])
        nodes, values = binding.nodes, binding.values
        for operand, value in zip(operands, exact):  # noqa: B905 - mypyc makes a loop of this form
            index, producer, _, constrained = operand
            if not constrained and producer < 0 and value is not None and values[index] is None:
                values[index] = value  # as ``bind_operand`` does, without the call
            elif not bind_operand(operand, value, binding):
                return False
        results = node.outputs
        if node.graph is not binding.graph or (
            node.op in self._counted and len(results) != len(self._outputs)
        ):
            return False
        for other in self._rivals:
            if nodes[other] is node:
                return False
        nodes[self.index] = node
        for slot, tensor, needed in self._outputs:
            value = results[slot] if slot < len(results) else None
            if not output_fits(value, values[tensor], needed=needed):
                return False
            values[tensor] = value
        return not self._is_checked or self._parameters_hold(binding, node)

    def _parameters_hold(self, binding: Binding, node: Node) -> bool:
        """Whether a node's parameters fit.

        Results for attributes are cached, as most nodes have equal ones. They depend only on the
        attributes and the rank to which axes refer.
        """
        signature = self.pattern.ops[node.op]
        if has_other_attributes(self.pattern, node):
            return False
        if self._of_attributes:
            first = node.inputs[0] if node.inputs else None
            key = node.op, None if first is None else first.rank, node.encoded_attrs
            answer = self._known.get(key)
            if answer is None:
                answer = self._known[key] = all(
                    parameter_holds(constraint, node, signature, {})
                    for constraint in self._of_attributes
                )
            if not answer:
                return False
        for constraint in self._others:
            if not parameter_holds(constraint, node, signature, binding.attributes):
                return False
        return True

    def bind_forced(self, binding: Binding) -> bool:
        """Bind the operators above that leave no choice; return whether they fit."""
        values, nodes = binding.values, binding.nodes
        for index, slot, op in self.forced:
            if nodes[op.index] is not None:
                continue
            value = values[index]
            node = None if value is None else value.producer
            if (
                node is None
                or value is None
                or node.op not in op.names
                or value.index != slot
                or not op.bind(binding, node, node.inputs)
            ):
                return False
        return True

    def orders(self, binding: Binding, node: Node) -> Sequence[Inputs] | Iterator[Inputs]:
        """Return the orders of inputs that may fit unordered operands.

        Each input is checked by itself: it must fit its operand's constraints and producer.
        Two operands give a sequence; more may have too many orders to list.
        """
        inputs, count = node.inputs, len(self._operands)
        if len(inputs) < self._required or (len(inputs) > count and not self._no_more(node)):
            return ()
        if len(inputs) < count:
            inputs = (*inputs, *[None] * (count - len(inputs)))
        if count != 2:
            return self._permutations(binding, inputs, ())
        first, second = inputs[0], inputs[1]
        in_order = self._accepts(0, first) and self._accepts(1, second)
        if not (self._accepts(0, second) and self._accepts(1, first)):
            return ((first, second),) if in_order else ()
        return ((first, second), (second, first)) if in_order else ((second, first),)

    def _permutations(
        self, binding: Binding, inputs: Inputs, slots: tuple[int, ...]
    ) -> Iterator[Inputs]:
        """Yield the orders of ``orders`` that begin with the inputs ``slots``."""
        position = len(slots)
        if position == len(self._operands):
            yield [inputs[slot] for slot in slots]
            return
        index = self._operands[position][0]
        bound = binding.values[index] if index >= 0 else None
        for slot in slots_to_try(self._equals, slots, inputs):
            value = inputs[slot]
            if (bound is None or bound is value) and self._accepts(position, value):
                yield from self._permutations(binding, inputs, (*slots, slot))

    def _accepts(self, position: int, value: Value | None) -> bool:
        """Whether a value fits an operand's constraints and producer."""
        producer = self._producers[position]
        if producer is None:
            return operand_fits(self.pattern.inputs[position], value)
        ops, slot = producer
        return value is not None and is_output(value, ops, slot)


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


def _would_cycle(binding: Binding) -> bool:
    """Whether a complete match's outputs feed it through outside nodes.

    A match with a single output cannot feed itself.
    """
    source = binding.source
    if len(source.outputs) == 1:
        return False
    nodes = [node for node in binding.nodes if node is not None]
    return cyclic_region(source, binding.graph, nodes, binding.values) is not None


def bind_operand(operand: Operand, value: Value | None, binding: Binding) -> bool:
    """Bind ``value`` to an operand; return whether it fits."""
    index, producer, tensor, constrained = operand
    bound = binding.values[index] if index >= 0 else None
    if bound is not None:
        return bound is value
    if ((constrained or value is None) and not operand_fits(tensor, value)) or (
        producer >= 0 and binding.nodes[producer] is not None
    ):
        return False
    if index >= 0:
        binding.values[index] = value
    return True
