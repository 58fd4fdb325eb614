"""Operator functions: ``es.MatMul(a, b)``, ``es.op("ge::GEMM")(…)``; choices and constraints.

``Alternatives``, ``Optional``, ``Name``, ``Commutative`` and ``constrain`` are for patterns.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, SupportsIndex

from gehost.errors import PatternError
from gehost.es import schemas
from gehost.es.graph import EsChoice, EsGraph, EsGraphBuilder, EsNode, EsTensor, Operand
from gehost.es.outputs import EsOutputs
from gehost.ir.graph import op_name, split_op
from gehost.location import author_origin
from gehost.spelling import hint

COMMUTATIVE = frozenset(
    [
        "Add",
        "Mul",
        "And",
        "Or",
        "Xor",
        "Equal",
        "Max",
        "Min",
        "Sum",
        "Mean",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
    ]
)
"""ONNX operators whose result does not depend on the order of their operands."""


@dataclass(frozen=True, slots=True, init=False)
class Bind:
    """A variable for a parameter, equal at every use in a pattern.

    ``match.attributes[name]`` holds the value.

    Raises:
        PatternError: the name is no text.
    """

    name: str

    # Any: so that machine code takes it here, and the error is ours
    def __init__(self, name: str | Any) -> None:
        if not isinstance(name, str):
            raise PatternError(
                f'es.Bind wants the name of a variable, as in "axis", got {name!r}',
                where=author_origin(),
            )
        object.__setattr__(self, "name", name)

    def __reduce__(self) -> Any:
        return Bind, (self.name,)


class OpFunction:
    """Adds one operator to the graph of its operands.

    Positional arguments are inputs (None: absent). Keywords are parameters. A parameter that is an
    attribute in some opsets and an input in others (``axes``) is given by keyword; lowering turns
    it into the form of the model's opset.
    """

    def __init__(self, *ops: str, bare: bool = False) -> None:
        """Take one operator, or several of which a pattern accepts any.

        Args:
            ops: ``domain::Type`` outside ONNX's domain.
            bare: written ``es.Name``, which may also mean a registered operator of any domain.
        """
        self._bare = bare
        self.ops = tuple(op_name(*split_op(op)) for op in ops)
        self._known = [
            (op, result)
            for op in self.ops
            if (result := schemas.operator(*split_op(op))) is not None
        ]
        self._plain = range(0)
        """Numbers of inputs that need no check in a call without keywords and with one output."""
        self._checked: set[tuple[object, ...]] = set()
        """Calls that passed the checks, whose result depends on no value: (number of inputs,
        *names of attributes).
        """
        if len(self._known) == len(self.ops) == 1:
            entry = self._known[0][1]
            if entry.default_outputs == 1 and not entry.variadic_outputs:
                self._plain = range(entry.min_inputs, entry.max_inputs + 1)

    def __repr__(self) -> str:
        return f"es.{'|'.join(self.ops)}"

    @property
    def __signature__(self) -> inspect.Signature:
        """Inputs and attributes over all opsets, for ``help`` and editors."""
        kind = inspect.Parameter
        if len(self._known) != 1:  # a domain that ONNX does not define, or several operators
            return inspect.Signature(
                [kind("inputs", kind.VAR_POSITIONAL), kind("params", kind.VAR_KEYWORD)]
            )
        entry = self._known[0][1]
        wide = entry.max_inputs > len(entry.inputs)
        named = entry.inputs[:-1] if wide else entry.inputs
        results = [
            kind(
                name,
                kind.POSITIONAL_OR_KEYWORD,
                default=kind.empty if slot < entry.min_inputs else None,
            )
            for slot, name in enumerate(named)
        ]
        results += [kind(entry.inputs[-1], kind.VAR_POSITIONAL)] if wide else []
        by_name = sorted({"num_outputs", *entry.attributes}.difference(named))
        results += [kind(name, kind.KEYWORD_ONLY, default=None) for name in by_name]
        return inspect.Signature(results)

    def __call__(
        self, *inputs: Operand | None, num_outputs: SupportsIndex | None = None, **params: Any
    ) -> Any:
        """Add the operator; return its output, or a named tuple of several.

        Args:
            inputs: the operands by position.
            num_outputs: number of outputs, for operators with optional outputs or any number of
                them.
            params: attributes, and inputs by name.

        Raises:
            PatternError: no version of the operator has this input or parameter.
        """
        if (len(inputs) in self._plain and not params and num_outputs in (None, 1)) or (
            num_outputs is None and (len(inputs), *params) in self._checked
        ):
            graph = _graph_of(inputs, self.ops[0])
            return graph.add_node(self.ops, inputs, params, bare=self._bare)[0]
        return self._add(None, inputs, num_outputs, params)

    def on(
        self, builder: EsGraphBuilder, num_outputs: SupportsIndex | None = None, **params: Any
    ) -> Any:
        """Add the operator without inputs: ``es.op("acme::Source").on(builder)``.

        Raises:
            PatternError: it needs inputs, or no version of it has this parameter.
        """
        return self._add(builder.graph, (), num_outputs, params)

    def _add(
        self,
        graph: EsGraph | None,
        inputs: Sequence[Operand | None],
        num_outputs: SupportsIndex | None,
        params: dict[str, Any],
    ) -> Any:
        expected = None if num_outputs is None else operator.index(num_outputs)
        names_given = list(params)
        call = _Call(list(inputs), params)
        count = 1
        names: Sequence[str] = ()
        for op, entry in self._known:
            call.place_keywords(op, entry)
            count, names = entry.default_outputs, () if entry.variadic_outputs else entry.outputs
            if op == "Split":
                count = call.split_count(expected)
            if expected is not None and not 0 < expected <= entry.max_outputs:
                raise PatternError(
                    f"{op} has at most {entry.max_outputs} outputs, not {expected}",
                    where=author_origin(),
                )
        if expected is not None:
            count = expected
        graph = graph or _graph_of(call.operands, self.ops[0])
        outputs = graph.add_node(
            self.ops, call.operands, params, count, frozenset(call.open_slots), bare=self._bare
        )
        if len(outputs) == 1:
            if self._plain and expected is None:
                # of a parameter that is an attribute at every opset only the name is checked
                schema = self._known[0][1]
                inputs_at_some = schema.migrating.union(schema.inputs)
                if inputs_at_some.isdisjoint(names_given) and schema.attributes.issuperset(
                    names_given
                ):
                    self._checked.add((len(inputs), *names_given))
            return outputs[0]
        return EsOutputs.of(outputs, names or [f"output{index}" for index in range(count)])


class _Call:
    """The arguments of one call, separated into operands and parameters."""

    def __init__(self, operands: list[Operand | None], params: dict[str, Any]) -> None:
        self.operands = operands
        self.params = params
        self.open_slots: set[int] = set()
        self._given = len(operands)

    def place_keywords(self, op: str, entry: schemas.Operator) -> None:
        """Move input keywords to position; check names and number of inputs.

        A parameter that is an attribute at some opset stays a parameter unless it is a tensor.
        """
        for name in list(self.params):
            if name in entry.attributes and not (
                name in entry.migrating and isinstance(self.params[name], EsTensor)
            ):
                self._refuse_twice(op, entry, name)
                continue
            if name not in entry.inputs:
                near = hint(name, {*entry.inputs, *entry.attributes}) or (
                    f"; it has {', '.join(sorted(entry.attributes)) or 'none'}"
                )
                raise PatternError(f'{op} has no parameter "{name}"{near}', where=author_origin())
            self._refuse_twice(op, entry, name)
            slot = entry.inputs.index(name)
            self.open_slots.update(range(len(self.operands), slot))
            self.operands.extend([None] * (slot + 1 - len(self.operands)))
            self.operands[slot] = self.params.pop(name)
            self.open_slots.discard(slot)
        if len(self.operands) > entry.max_inputs:
            raise PatternError(
                f"{op} takes at most {entry.max_inputs} inputs, got {len(self.operands)}",
                where=author_origin(),
            )
        count = len(self.operands) + sum(name in entry.migrating for name in self.params)
        if count < entry.min_inputs:
            raise PatternError(
                f"{op} takes at least {entry.min_inputs} inputs, got {count}",
                where=author_origin(),
            )

    def _refuse_twice(self, op: str, entry: schemas.Operator, name: str) -> None:
        if (
            name in entry.inputs[: self._given]
            and self.operands[entry.inputs.index(name)] is not None
        ):
            raise PatternError(
                f'{op} is given "{name}" twice, by position and by name', where=author_origin()
            )

    def split_count(self, num_outputs: int | None) -> int:
        """Return the number of outputs of a ``Split``.

        The number is also stored in its parameters.
        """
        split = self.params.get("split")
        if num_outputs is None and split is None:
            raise PatternError("Split needs num_outputs= or split=", where=author_origin())
        if num_outputs is None:
            return 0 if split is None else len(split)
        if split is not None and len(split) != num_outputs:
            raise PatternError(
                f"Split into {len(split)} sizes has no {num_outputs} outputs", where=author_origin()
            )
        self.params["num_outputs"] = num_outputs
        return num_outputs


def _graph_of(operands: Sequence[Operand | None], op: str) -> EsGraph:
    for operand in operands:
        if isinstance(operand, EsTensor):
            return operand.graph
        if isinstance(operand, list | tuple) and any(
            isinstance(element, EsTensor) for element in operand
        ):
            sequence = type(operand).__name__
            raise PatternError(
                f"{op} takes its inputs one by one, not in a {sequence}: {op}(a, b)",
                where=author_origin(),
            )
    raise PatternError(
        f"{op} needs at least one tensor among its inputs",
        where=author_origin(),
        hint="use CreateConst for constants, es.op(…).on(builder) for operators without inputs",
    )


@cache
def op(name: str | Any) -> OpFunction:  # Any: see Alternatives
    """Return the function of any operator: ``op("ge::GEMM")``, ``op("MatMul")``.

    Raises:
        PatternError: the name is not a text.
    """
    if not isinstance(name, str):
        raise PatternError(
            f'es.op wants the name of an operator, as in "acme::Op", got {name!r}',
            where=author_origin(),
        )
    return OpFunction(name)


@cache
def AnyOf(*names: str | Any) -> OpFunction:
    """Match one of several operators with the same inputs: ``AnyOf("Relu", "Gelu")(x)``.

    Raises:
        PatternError: no names are given.
    """
    if not names or not all(isinstance(name, str) for name in names):
        raise PatternError("AnyOf wants names of operators", where=author_origin())
    return OpFunction(*names)


# Any: the type is checked below, with an error of ours; mypyc would check a declared type first
def Alternatives(*tensors: EsTensor | Any) -> EsTensor:
    """Match one of several sub-patterns, tried in this order.

    A placeholder among them makes the others optional.

    Raises:
        PatternError: a value is not a tensor, or belongs to another graph.
    """
    for tensor in tensors:
        if not isinstance(tensor, EsTensor):
            raise PatternError(
                f"Alternatives wants tensors, got {type(tensor).__name__}", where=author_origin()
            )
        if tensor.producer.draft is not tensors[0].producer.draft:
            raise PatternError("Alternatives of tensors of two builders", where=author_origin())
    if not tensors:
        raise PatternError("Alternatives wants at least one tensor", where=author_origin())
    return EsTensor(EsChoice(tensors[0].producer.draft, tensors, author_origin()))


# Any: see Alternatives
def Optional(part: Callable[[EsTensor], EsTensor] | Any, tensor: EsTensor | Any) -> EsTensor:
    """Match ``part(tensor)``, or ``tensor`` itself where the part is absent.

    Example:
        ``es.Optional(lambda x: es.Add(x, mask), scores)``

    Raises:
        PatternError: ``part`` is not a function of a tensor, or ``tensor`` is not a tensor.
    """
    if not isinstance(tensor, EsTensor) or not callable(part):
        raise PatternError(
            "Optional wants a function and a tensor: Optional(lambda x: es.Add(x, mask), scores)",
            where=author_origin(),
        )
    result = part(tensor)
    if not isinstance(result, EsTensor) or result.producer.draft is not tensor.producer.draft:
        raise PatternError("the function of Optional must return a tensor", where=author_origin())
    if result.producer is tensor.producer:
        raise PatternError("the function of Optional adds no operator", where=author_origin())
    return EsTensor(
        EsChoice(tensor.producer.draft, (result, tensor), author_origin(), kind="Optional")
    )


# Any: see Alternatives
def Name(name: str | Any, tensor: EsTensor | Any) -> EsTensor:
    """Name a tensor of a pattern and return it.

    ``match[name]`` is the matched tensor.

    Raises:
        PatternError: the name or tensor is missing, or another tensor of this graph has the name.
    """
    if not isinstance(name, str) or not name or not isinstance(tensor, EsTensor):
        raise PatternError(
            'Name wants a name and a tensor: Name("scale", t)', where=author_origin()
        )
    if name in tensor.graph.captures:
        raise PatternError(f'another tensor is named "{name}"', where=author_origin())
    tensor.graph.captures[name] = tensor
    return tensor


def Commutative(tensor: EsTensor | Any) -> EsTensor:
    """Let ``tensor``'s producer match operands in any order; return ``tensor``.

    A custom operator commutes if it is registered with the trait ``commutative``, which is checked
    when the pattern meets a model.

    Raises:
        PatternError: the operator is not known to commute.
    """
    node = _op_node(tensor, "Commutative")
    if any(
        name not in COMMUTATIVE and schemas.operator(*split_op(name)) is not None
        for name in node.ops
    ):
        raise PatternError(f"{'|'.join(node.ops)} is not known to commute", where=author_origin())
    node.commutative = True
    return tensor


def constrain(tensor: EsTensor | Any, **attributes: Any | Callable[[Any], bool] | Bind) -> EsTensor:
    """Require attributes of the producer of ``tensor``; return ``tensor``.

    Required values: equal to a value (an absent attribute counts as its default, one that the
    opset lacks as what the operator does there); absent, for None; accepted by a function of the
    attribute's value, which fails where there is no value; any value that ``Bind("p")`` then names
    (None where it has no default). They hold for every configuration of the matcher.

    Raises:
        PatternError: no version of the operator has this parameter.
    """
    node = _op_node(tensor, "constrain")
    for name in attributes:
        for candidate in node.ops:
            schema = schemas.operator(*split_op(candidate))
            if schema is not None and name not in schema.attributes:
                raise PatternError(
                    f'{candidate} has no parameter "{name}" in any '
                    f"opset{hint(name, schema.attributes)}",
                    where=author_origin(),
                )
    node.constraints.update(attributes)
    return tensor


def _op_node(tensor: EsTensor | Any, what: str) -> EsNode:
    if not isinstance(tensor, EsTensor) or not isinstance(tensor.producer, EsNode):
        raise PatternError(f"{what} wants the output of an operator", where=author_origin())
    return tensor.producer
