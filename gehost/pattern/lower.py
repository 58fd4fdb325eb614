"""Lower an author's ``EsGraph`` to a ``SourcePattern`` at the model's opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from gehost.errors import PatternError
from gehost.es import schemas
from gehost.es.functions import COMMUTATIVE, Bind
from gehost.es.graph import EsChoice, EsConst, EsInput, EsNode, EsTensor
from gehost.es.opset import arguments_at, refuse_lacking, resolve_op, signature_at, wrong_kind
from gehost.ir.effective import LACKING, newest_spelling
from gehost.ir.graph import Graph, split_op
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.pattern.source import (
    ANY,
    ConstantPattern,
    Constraint,
    Kind,
    OpPattern,
    SourcePattern,
    TensorPattern,
)
from gehost.refusal import Refused


class LoweredPattern:
    """A pattern at the model's opset; ``source`` is built on first use.

    Most graphs lack some operator of the pattern; that is checked without ``source``. Options
    that the opset lacks are left out.
    """

    def __init__(
        self,
        pattern: Pattern,
        config: PatternMatcherConfig,
        model: Model,
        registry: OpRegistry,
    ) -> None:
        """Choose the operators.

        Raises:
            Refused: the opset lacks an operator or parameter of every variant.
            PatternError: an operator is unknown.
        """
        self._pattern = pattern
        self._config = config
        self._registry = registry
        self._variants: dict[str, list[str]] = {}
        """Further names of the custom operators in the model."""
        self._tensors: list[TensorPattern] = []
        self._others: dict[EsInput | EsConst | EsChoice, int | None] = {}
        self._by_key: dict[tuple[int, int], TensorPattern] = {}
        self._fits_of: dict[EsNode, list[_Fit]] = {}
        reason: Refused | None = None
        graph = pattern.graph
        for node in graph.reachable():
            try:
                self._fits_of[node] = self._fits(node, model)
            except Refused as error:
                reason = reason or error
        self._options: dict[EsChoice, list[EsTensor]] | None = None
        """The options that the opset has, if it lacks some."""
        if reason is not None:
            usable = _Usable(self._fits_of.__contains__)
            if not all(map(usable, graph.outputs)):
                raise reason
            self._options = {}
            for choice in pattern.choices:
                self._options[choice] = [option for option in choice.options if usable(option)]
        self._nodes = graph.reachable(self._options)

    def holds_for(self, model: Model) -> bool:
        """Whether a model that imports the same opsets gets the same operators."""
        return all(model.variants_of(op) == names for op, names in self._variants.items())

    def has_its_operators(self, graph: Graph) -> bool:
        """Whether a graph has all operators of a variant (mostly not)."""
        fits_of, by_op = self._fits_of, graph.by_op

        def has(node: EsNode) -> bool:
            return any(by_op.get(fit.op) for fit in fits_of.get(node, ()))

        if not self._pattern.choices:
            return all(map(has, self._nodes))
        return all(map(_Usable(has), self._pattern.graph.outputs))

    @cached_property
    def source(self) -> SourcePattern:
        pattern, graph = self._pattern, self._pattern.graph
        inputs = tuple(self._tensor(tensor).index for tensor in graph.inputs)
        ops = tuple(
            self._op(node, self._fits_of[node], index) for index, node in enumerate(self._nodes)
        )
        outputs = tuple(self._tensor(tensor).index for tensor in graph.outputs)
        return SourcePattern(
            name=graph.name,
            ops=ops,
            tensors=tuple(self._tensors),
            inputs=inputs,
            outputs=outputs,
            captures=tuple(self._captured(tensor) for tensor in pattern.captures),
            names={name: self._captured(tensor) for name, tensor in pattern.names.items()},
            origin=graph.origin,
            nodes=tuple(self._nodes),
            others=self._others,
            has_choices=any(tensor.options for tensor in self._tensors),
        )

    def _captured(self, tensor: EsTensor) -> int | None:
        lowered = self._by_key.get((id(tensor.producer), tensor.index))
        return None if lowered is None else lowered.index

    def _tensor(self, tensor: EsTensor, node_index: int | None = None) -> TensorPattern:
        key = (id(tensor.producer), tensor.index)
        lowered = self._by_key.get(key)
        if lowered is None:
            options: tuple[int, ...] = ()
            choice = tensor.producer
            if isinstance(choice, EsChoice):
                usable = choice.options if self._options is None else self._options[choice]
                options = tuple([self._tensor(option).index for option in usable])
            lowered = self._by_key[key] = _tensor(
                tensor, len(self._tensors), node_index, self._config, options
            )
            self._tensors.append(lowered)
            if not isinstance(tensor.producer, EsNode):
                self._others[tensor.producer] = lowered.index
        return lowered

    def _op(self, node: EsNode, fits: Sequence[_Fit], index: int) -> OpPattern:
        outputs = tuple(self._tensor(tensor, index) for tensor in node.outputs)
        operands, params = fits[0].operands, fits[0].params
        inputs: list[TensorPattern | None] = []
        for slot, tensor in enumerate(operands):
            if tensor is not None:
                inputs.append(self._tensor(tensor))
            else:
                inputs.append(
                    ANY
                    if slot in node.open_slots and all(fit.holds_parameter(slot) for fit in fits)
                    else None
                )
        conditions = dict(node.constraints)
        for name, condition in node.params.items():  # no attribute has a function as its value
            if callable(condition) or isinstance(condition, Bind):
                conditions.setdefault(name, condition)
        op = fits[0].op
        constraints = [
            _constraint(name, newest_spelling(op, name, condition))
            for name, condition in conditions.items()
        ]
        # A number given by position is matched by value, even if it is an attribute at this opset.
        constraints.extend(
            Constraint(name, Kind.EQUALS, params[name])
            for name in params
            if name not in node.params
        )
        constraints.extend(_constraint(name, None) for name in _left_out(node, fits))
        exact: frozenset[str] | None = None
        if self._config.ir_attr_match:
            names = {constraint.name for constraint in constraints}
            wanted_params, exact = self._all_parameters(fits)
            constraints.extend(
                Constraint(name, Kind.AS_ABSENT)
                if condition is None and name not in params
                else _constraint(name, newest_spelling(op, name, condition))
                for name, condition in wanted_params.items()
                if name not in names
            )
        return OpPattern(
            index,
            {fit.op: fit.signature for fit in fits},
            tuple(inputs),
            outputs,
            tuple(constraints),
            exact,
            node.commutative
            or (self._config.commutative_match and all(self._commutes(fit.op) for fit in fits)),
            node.origin,
        )

    def _fits(self, node: EsNode, model: Model) -> list[_Fit]:
        """Return the accepted operators that the opset has; at least one."""
        fits: list[_Fit] = []
        reason: Refused | None = None
        for name in node.ops:
            op = resolve_op(name, self._registry, node.origin, bare=node.bare)
            if schemas.operator(*split_op(op)) is None:
                signature = self._custom(node, op)
                variants = self._variants[op] = model.variants_of(op)
                fits.extend(
                    _Fit(op_name, signature, node.inputs, node.params)
                    for op_name in (op, *variants)
                )
                continue
            version = model.opset(split_op(op)[0])
            try:
                signature = signature_at(op, version)
                operands, params = arguments_at(node, op, signature, version)
                for constrained, condition in node.constraints.items():
                    if (
                        constrained not in signature.parameters
                        and signature.attribute_of(constrained) is None
                    ):
                        refuse_lacking(op, constrained, condition, version, node.count)
            except Refused as error:
                reason = error
                continue
            for name, condition in {**params, **node.constraints}.items():
                is_value = not (
                    condition is None or callable(condition) or isinstance(condition, Bind)
                )
                if is_value and (problem := wrong_kind(op, name, condition, signature)):
                    raise PatternError(problem, where=node.origin)
            fits.append(_Fit(op, signature, operands, params))
        if not fits:
            assert reason is not None
            raise reason
        if any(
            fit.operands != fits[0].operands or fit.params.keys() != fits[0].params.keys()
            for fit in fits
        ):
            raise PatternError(
                f"the operators {'|'.join(node.ops)} take different inputs at this opset",
                where=node.origin,
            )
        return fits

    def _custom(self, node: EsNode, op: str) -> schemas.Signature | None:
        """Return a registered operator's signature, after checking its use in a pattern.

        Returns None if ``op`` is not registered.

        Raises:
            PatternError: the operator does not have an attribute, or not with this value; it is
                used with operands in any order and is not declared to commute.
        """
        if node.commutative and not self._commutes(op):
            raise PatternError(
                f"{op} is not known to commute",
                where=node.origin,
                hint='register it with traits=["commutative"]',
            )
        definition = self._registry.get(op)
        if definition is None:
            return None
        plain = {
            name: None if callable(value) or isinstance(value, Bind) else value
            for name, value in {**node.constraints, **node.params}.items()
        }
        problem = definition.problem(plain) or definition.output_problem(node.count)
        if problem:
            raise PatternError(problem, where=node.origin)
        return schemas.custom_signature(
            definition.inputs, {**dict.fromkeys(definition.attributes), **definition.defaults}
        )

    def _commutes(self, op: str) -> bool:
        definition = self._registry.get(op)
        return op in COMMUTATIVE or (definition is not None and "commutative" in definition.traits)

    def _all_parameters(self, fits: Sequence[_Fit]) -> tuple[dict[str, Any], frozenset[str] | None]:
        """Return each parameter's wanted value, None if it must be absent.

        The second result is the set of allowed attributes if the operator is unknown.
        """
        params = dict(fits[0].params)
        exact: frozenset[str] | None = None
        for fit in fits:
            signature = fit.signature
            if signature is not None:
                new_names = {old: new for new, old in signature.old_names.items()}
                is_own = schemas.operator(*split_op(fit.op)) is not None
                defaults: dict[str, Any] = {}
                for name, value in signature.attributes.items():
                    new = new_names.get(name, name)
                    plain = value is None or not is_own
                    defaults[new] = (
                        value if plain else schemas.newest_default(*split_op(fit.op), new)
                    )
                for name in signature.migrating:
                    if signature.parameters[name].slot >= len(fit.operands):
                        defaults[name] = schemas.newest_default(*split_op(fit.op), name)
                for op, name in LACKING:
                    if op == fit.op and signature.attribute_of(name) is None:
                        defaults[name] = schemas.newest_default("", op, name)
                if fit.op == "Split":
                    defaults.pop("num_outputs", None)  # given by the pattern's outputs
                if signature.flattens:
                    defaults["axis"] = -1
                for name, default in defaults.items():
                    params.setdefault(name, default)
            if schemas.operator(*split_op(fit.op)) is None:
                exact = frozenset(params)
        return params, exact


class _Usable:
    """Whether a variant whose operators fulfil ``has`` can compute a tensor."""

    def __init__(self, has: Callable[[EsNode], bool]) -> None:
        self._has = has
        self._known: dict[EsNode | EsChoice, bool] = {}

    def __call__(self, tensor: EsTensor) -> bool:
        producer = tensor.producer
        if not isinstance(producer, EsNode | EsChoice):
            return True
        usable = self._known.get(producer)
        if usable is None:
            if isinstance(producer, EsChoice):
                usable = any(map(self, producer.options))
            else:
                operands = [operand for operand in producer.inputs if operand is not None]
                usable = self._has(producer) and all(map(self, operands))
            self._known[producer] = usable
        return usable


class _Fit(NamedTuple):
    """A pattern's operator at the model's opset; ``signature`` None without a schema."""

    op: str
    signature: schemas.Signature | None
    operands: list[EsTensor | None]
    params: dict[str, Any]

    def holds_parameter(self, slot: int) -> bool:
        """Whether input ``slot`` is an attribute at other opsets."""
        signature = self.signature
        return (
            signature is not None
            and slot < len(signature.inputs)
            and signature.inputs[slot] in signature.migrating
        )


def _left_out(node: EsNode, fits: Sequence[_Fit]) -> list[str]:
    """Return the inputs that are given as None and that this opset has in attributes."""
    names: dict[str, None] = {}
    for slot, tensor in enumerate(node.inputs):
        if tensor is not None or slot in node.open_slots:
            continue
        for fit in fits:
            schema = schemas.operator(*split_op(fit.op))
            if schema is not None and slot < len(schema.inputs):
                name = schema.inputs[slot]
                if fit.signature is not None and fit.signature.attribute_of(name) is not None:
                    names[name] = None
    return list(names)


def _tensor(
    tensor: EsTensor,
    index: int,
    node_index: int | None,
    config: PatternMatcherConfig,
    options: tuple[int, ...],
) -> TensorPattern:
    producer = tensor.producer
    if isinstance(producer, EsChoice):
        return TensorPattern(index, options=options, origin=producer.origin, name=producer.kind)
    if isinstance(producer, EsInput):
        return TensorPattern(
            index,
            dtype=producer.dtype,
            rank=producer.rank,
            shape=producer.shape,
            name=producer.name,
        )
    if isinstance(producer, EsConst):
        if producer.literal:
            constant = ConstantPattern(producer.array, by_value=True)
        elif config.const_value_match or producer.rtol or producer.atol:
            constant = ConstantPattern(producer.array, rtol=producer.rtol, atol=producer.atol)
        else:
            constant = ConstantPattern()
        return TensorPattern(index, constant=constant)
    return TensorPattern(index, producer=node_index, slot=tensor.index)


def _constraint(name: str, condition: Any) -> Constraint:
    if condition is None:
        return Constraint(name, Kind.ABSENT)
    if isinstance(condition, Bind):
        return Constraint(name, Kind.BIND, condition.name)
    return Constraint(name, Kind.PREDICATE if callable(condition) else Kind.EQUALS, condition)
