"""Lower a traced rule to patterns over ``EsGraph``, conditions and replacements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, cast

import numpy as np
import onnx

from gehost import (
    EsGraph,
    EsGraphBuilder,
    EsTensor,
    MatchResult,
    Node,
    Pattern,
    PatternFusionPass,
    Refusal,
    Value,
    es,
)
from gehost import expressions as ex

from .program import Input, Op, Operand, Pair, Program, Rule, schema_of
from .readable import Names, text_of
from .reference import Ref
from .scope import mistake

_MOST_ORDERS: Final = 64
_MOST_SHOWN: Final = 8


class TracedPass(PatternFusionPass):
    """A rule as a pass: one pattern for each of its pairs."""

    def __init__(
        self, rule: Rule, instances: Callable[[], Iterable[onnx.ModelProto]] | None = None
    ) -> None:
        """Raises ``PatternError`` when a pattern is not well-formed."""
        super().__init__()
        self._instances = instances
        self.shape_proven = rule.shape_proven  # pyright: ignore[reportAttributeAccessIssue] - others write a class
        self._pairs = [LoweredPair(rule.name, pair) for pair in rule.pairs]

    def Patterns(self) -> list[Pattern]:
        return [pair.pattern for pair in self._pairs]

    def Instances(self) -> Iterable[onnx.ModelProto]:
        """The models that the rule offers to ``check-pass``."""
        return () if self._instances is None else self._instances()

    def MeetRequirements(self, match: MatchResult) -> bool | Refusal:
        problem = self._pair_of(match).problem(match)
        return match.reject(problem) if problem else True

    def Replacement(self, match: MatchResult) -> EsGraph:
        return self._pair_of(match).replacement(match)

    def end_compile(self) -> bool:
        """Keep the pairs for the next compile: they depend on the rule alone."""
        super().end_compile()
        for pair in self._pairs:
            pair.forget()
        return True

    def _pair_of(self, match: MatchResult) -> LoweredPair:
        if len(self._pairs) == 1:
            return self._pairs[0]
        return next(pair for pair in self._pairs if match.has(pair.pattern.graph.nodes[0]))


class LoweredPair:
    """One pair: its pattern, its conditions, and its replacement."""

    def __init__(self, name: str, pair: Pair) -> None:
        self._name = name
        self._pair = pair
        names = Names(pair)
        self._computed = [value for op in pair.replace.ops for value in _computed(op)]
        self._asked = [
            (entry, text_of(entry, names)) for entry in (*pair.conditions, *self._computed)
        ]
        with es.written_at(pair.pattern.origin):
            builder = EsGraphBuilder(name)
            inputs = [
                _placeholder(builder, index, input_) for index, input_ in enumerate(pair.inputs)
            ]
            tensors = self._made = _build(pair.pattern, inputs, _stand_in)
            graph = builder.BuildAndReset(
                [_tensor(ref, inputs, tensors) for ref in pair.pattern.outputs]
            )
            self.pattern = Pattern(graph)
        self._orders = _orders(pair)
        self.forget()
        self._constrain()
        # proves operators, inputs and names of attributes
        self._replaced(self._orders[0], [None] * len(self._computed))

    def forget(self) -> None:
        """Forget values and matches of a model."""
        self._recipes = [es.Recipe(partial(self._replaced, order)) for order in self._orders]
        self._accepted: tuple[_Matched, es.Recipe] | None = None

    def _constrain(self) -> None:
        """Constrain attributes that the pattern names; bind those in computations."""
        ops = self._pair.pattern.ops
        read = sorted(
            {
                (expression.op, expression.name)
                for expression in self._pair.expressions
                if isinstance(expression, ex.OpAttr)
            }
        )
        for number, (op, outputs) in enumerate(zip(ops, self._made, strict=True)):
            with es.written_at(op.origin):
                node = outputs[0].GetProducer()
                # without numbers that were inputs by name
                params = node.params if isinstance(node, es.EsNode) else {}
                literal = {
                    name: _stand_in(value) for name, value in op.attributes if name in params
                }
                variables = {
                    name: es.Bind(_variable(owner, name)) for owner, name in read if owner == number
                }
                es.constrain(outputs[0], **{**variables, **literal})
                if op.commutative:
                    es.Commutative(outputs[0])

    def problem(self, match: MatchResult) -> str:
        """Why a match is refused, "" when it is not."""
        problems: list[str] = []
        for order, recipe in zip(self._orders, self._recipes, strict=True):
            matched = _Matched(match, self._pair, order)
            problem = self._problem(matched)
            if not problem:
                self._accepted = matched, recipe
                return ""
            problems.append(problem)
        return problems[0]

    def _problem(self, matched: _Matched) -> str:
        for input_, value in zip(self._pair.inputs, matched.inputs, strict=True):
            if input_.constant and not value.is_constant:
                return f'weight: {input_.name} is "{value.name}", which is no constant'
        for condition, text in self._asked:
            try:
                if not isinstance(condition, ex.Condition):
                    matched.value(condition)
                    continue
                left, right = condition.left.at(matched), condition.right.at(matched)
                if not condition.holds(left, right):
                    return (
                        f"condition: {text} does not hold: {_shown(left)} {condition.relation} "
                        f"{_shown(right)}"
                    )
            except ex.Unknown as reason:
                return f"unknown: {text}: {reason}"
        return ""

    def replacement(self, match: MatchResult) -> EsGraph:
        """Build the graph of the replace function for a match.

        ``problem`` accepted the match.
        """
        assert self._accepted is not None
        matched, recipe = self._accepted
        assert matched.match is match
        return recipe.graph([matched.value(expression) for expression in self._computed])

    def _replaced(self, order: Sequence[int], values: Sequence[Any]) -> EsGraph:
        """The graph of the replace function; ``values`` are those of ``_computed``."""
        program = self._pair.replace
        computed = {
            id(expression): value for expression, value in zip(self._computed, values, strict=True)
        }
        with es.written_at(program.origin):
            builder = EsGraphBuilder(self._name)
            placeholders = builder.CreateInputs(len(order))
            inputs = [placeholders[index] for index in order]
            tensors = _build(
                program,
                inputs,
                lambda operand: (
                    computed[id(operand)] if id(operand) in computed else _stand_in(operand)
                ),
            )
            return builder.BuildAndReset([_tensor(ref, inputs, tensors) for ref in program.outputs])


class _Matched:
    """The bindings of a match, by the numbers of the pair.

    Its ``inputs`` are in an order of ``_orders``.
    """

    def __init__(self, match: MatchResult, pair: Pair, order: Sequence[int]) -> None:
        self.match = match
        self.order = order
        inputs = match.inputs
        self.inputs = [inputs[index] for index in order]
        self._values: dict[int, Any] = {}
        self._pair = pair

    def value(self, expression: ex.Expression) -> Any:
        """Return a value that the replacement reads from the match.

        It is computed once; raises ``Unknown`` where it is not known.
        """
        if id(expression) not in self._values:
            self._values[id(expression)] = ex.plain(ex.known(expression.at(self)))
        return self._values[id(expression)]

    def tensor(self, ref: Ref) -> Value:
        if ref.op is None:
            return self.inputs[ref.index]
        node = self.match.GetMatchedNode(ref.op)
        value = node.outputs[ref.index] if ref.index < len(node.outputs) else None
        if value is None:
            raise ex.Unknown(f"{node.op} has no output {ref.index} here")
        return value

    def attribute(self, op: int, name: str) -> Any:
        operator = self._pair.pattern.ops[op]
        said = dict(operator.attributes).get(name) if operator.attributes else None
        value = self.match.attributes[_variable(op, name)] if said is None else _stand_in(said)
        if value is None:
            raise ex.Unknown(
                f"{operator.type} has no attribute {name}, and the attribute no default"
            )
        entries = cast("list[Any]", value) if isinstance(value, list) else [value]
        if {int}.issuperset(map(type, entries)):  # floats alone are rounded
            return cast("Any", value)
        return ex.stored(value, _dtype_of(self.match.GetMatchedNode(op), name, value))


def _orders(pair: Pair) -> list[Sequence[int]]:
    """Return each argument's possible placeholders.

    They are its own, or the other operand's of an operator that commutes.

    The matcher distinguishes operands by their producers and readers. Two arguments that only this
    operator reads match in either order; the conditions decide between them.
    """
    reads = Counter(
        operand for op in pair.pattern.ops for operand in op.operands if isinstance(operand, Ref)
    )
    orders: list[Sequence[int]] = [range(len(pair.inputs))]
    for op in pair.pattern.ops:
        ends = [
            operand.index
            for operand in op.operands
            if isinstance(operand, Ref) and operand.op is None and reads[operand] == 1
        ]
        if (
            not op.commutative
            or len(ends) != 2
            or len(op.operands) != 2
            or len(orders) > _MOST_ORDERS // 2
        ):
            continue
        one, other = ends
        if (pair.inputs[one].dtype, pair.inputs[one].shape) == (
            pair.inputs[other].dtype,
            pair.inputs[other].shape,
        ):
            exchanged = {one: other, other: one}
            orders += [
                [order[exchanged.get(index, index)] for index in range(len(order))]
                for order in orders
            ]
    return orders


def _variable(op: int, name: str) -> str:
    return f"{op}.{name}"


def _computed(op: Op) -> list[ex.Expression]:
    """Return the expressions of an operator that only a match evaluates."""
    operands = (*op.operands, *(value for _, value in op.attributes))
    return [
        value
        for value in operands
        if value is not None and not isinstance(value, Ref | ex.Constant)
    ]


def _placeholder(builder: EsGraphBuilder, index: int, input_: Input) -> EsTensor:
    return builder.CreateInput(
        index, input_.name, None if input_.dtype is None else ex.DTYPES[input_.dtype], input_.shape
    )


def _build(
    program: Program,
    inputs: Sequence[EsTensor],
    value_of: Callable[[ex.Expression], Any],
) -> list[tuple[EsTensor, ...]]:
    """Add a program's operators to ``inputs``' graph; return each one's outputs.

    ``value_of`` computes attributes, and operands that are no tensors.
    """
    results: list[tuple[EsTensor, ...]] = []

    def operand(source: Operand) -> Any:
        if source is None:
            return None
        return _tensor(source, inputs, results) if isinstance(source, Ref) else value_of(source)

    for index, op in enumerate(program.ops):
        with es.written_at(op.origin):
            operands, named = (
                [operand(source) for source in op.inputs],
                {name: operand(source) for name, source in op.named},
            )
            if named and "::" in op.type:
                raise mistake(
                    f"ONNX does not know the inputs of {op.type} by name; give "
                    f"{', '.join(named)} by position"
                )
            attributes = {name: value_of(value) for name, value in op.attributes}
            outputs = op.outputs
            if outputs is None and schema_of(op.type) is None:
                outputs = program.outputs_read(index)
            result: Any = es.op(op.type)(*operands, num_outputs=outputs, **named, **attributes)
        results.append((result,) if isinstance(result, EsTensor) else tuple(result))
    return results


def _tensor(
    ref: Ref, inputs: Sequence[EsTensor], results: Sequence[tuple[EsTensor, ...]]
) -> EsTensor:
    if ref.op is None:
        return inputs[ref.index]
    outputs = results[ref.op]
    if ref.index >= len(outputs):
        raise mistake(
            f"output {ref.index} of an operator that has {len(outputs)} here; num_outputs= "
            "asks for more"
        )
    return outputs[ref.index]


def _stand_in(expression: ex.Expression) -> Any:
    """Return a constant's value.

    Returns None for values that only a match can compute.
    """
    return ex.plain(expression.value) if isinstance(expression, ex.Constant) else None


def _dtype_of(node: Node, name: str, attribute: Any) -> Any:
    """Return the element type in which a node holds numbers.

    It is that of its attribute, or of the constant at an input.
    """
    for value in () if name in node.attrs else node.inputs:
        array = value.array if value is not None else None
        if array is not None and array.size == np.size(attribute) and array.tolist() == attribute:
            return array.dtype
    return np.float32


def _shown(value: Any) -> str:
    """A value in a reason, on one line."""
    if value is None:
        return "?"
    if not isinstance(value, list | tuple | np.ndarray):
        return str(value)
    items = cast("Sequence[Any]", value)
    more = [f"… {len(items)} in all"] if len(items) > _MOST_SHOWN else []
    return f"[{', '.join([*map(_shown, items[:_MOST_SHOWN]), *more])}]"
