"""Choose parameters of an instance's operators: the author's, constrained, others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import onnx

from gehost.diagnose.check_pass.candidates import INDEX_TYPES, attribute_values, one_of
from gehost.es import schemas
from gehost.es.graph import EsNode
from gehost.es.schemas import Signature
from gehost.ir.effective import as_lacking
from gehost.ir.graph import split_op
from gehost.ir.model import Model
from gehost.pattern.explain.messages import parameter_text
from gehost.pattern.source import Constraint, Kind, OpPattern

_OPTIONAL = 0.4
"""Probability that an optional attribute is present."""
_REMEMBERED = 0.8
"""Probability that a parameter of a reused instance stays the same."""
_KINDS = {
    (True, True): onnx.AttributeProto.INTS,
    (True, False): onnx.AttributeProto.INT,
    (False, True): onnx.AttributeProto.FLOATS,
    (False, False): onnx.AttributeProto.FLOAT,
}
"""The kind of a parameter that is an input: (integers, vector) → kind."""


class NoInstance(Exception):  # noqa: N818 - an outcome of a search, which counts them
    """A draw gave no instance.

    The text has the operator that could not be built, and why.
    """


class Parameters:
    """Chooses the parameters of the operators of one instance.

    Attributes:
        model: has the opset.
        rng: chooses.
        like: choices of another instance, by number of the operator and name; or None.
        chosen: the choices of this one.
        bound: values of attribute variables.
    """

    def __init__(
        self,
        model: Model,
        rng: np.random.Generator,
        like: Mapping[tuple[int, str], Any] | None,
    ) -> None:
        self._model, self._rng = model, rng
        self.like = like
        self.chosen: dict[tuple[int, str], Any] = {}
        self.bound: dict[str, Any] = {}

    def copy(self) -> Parameters:
        """Return the state so far, for backtracking; the generator is shared."""
        other = copy.copy(self)
        other.chosen, other.bound = dict(self.chosen), dict(self.bound)
        return other

    def agree(self, index: int, params: Mapping[str, Any], required: AbstractSet[str]) -> None:
        """Record the final parameters of operator ``index``, except those in ``required``."""
        self.chosen = {key: value for key, value in self.chosen.items() if key[0] != index}
        self.chosen |= {
            (index, name): value for name, value in params.items() if name not in required
        }

    def of(self, pattern: OpPattern, node: EsNode, op: str, rank: int | None) -> dict[str, Any]:
        """Return the parameters of one operator under the author's names.

        Args:
            pattern: the operator's pattern.
            node: the author's operator.
            op: the chosen one of the operators of ``pattern``.
            rank: of its first input.

        Raises:
            NoInstance: none of the tried values satisfies the pattern.
        """
        signature = pattern.ops[op]
        params = {key: value for key, value in node.params.items() if value is not None}
        operator = schemas.operator(*split_op(op))
        by_position = set(
            () if operator is None else operator.inputs[len(pattern.inputs) : len(node.inputs)]
        )
        for constraint in pattern.constraints:
            if constraint.name not in by_position:
                self._satisfy(constraint, params, op, signature, rank)
        if signature is None or pattern.exact_attributes is not None:
            return params
        required = (
            {constraint.name for constraint in pattern.constraints} | params.keys() | by_position
        )
        new_names = {old: new for new, old in signature.old_names.items()}
        once_attributes = (
            name
            for name in sorted(signature.migrating)
            if signature.parameters[name].slot >= len(pattern.inputs)
        )
        for name in (
            *(new_names.get(name, name) for name in signature.attributes),
            *once_attributes,
        ):
            if name not in required:
                values = self._candidates(pattern.index, name, op, signature, rank)
                if values:
                    params[name] = self.chosen[pattern.index, name] = one_of(self._rng, values)
        return params

    def _satisfy(
        self,
        constraint: Constraint,
        params: dict[str, Any],
        op: str,
        signature: Signature | None,
        rank: int | None,
    ) -> None:
        name = constraint.name
        if constraint.kind is Kind.EQUALS:
            if constraint.wanted is not None:
                params[name] = constraint.wanted
        elif constraint.kind in (Kind.ABSENT, Kind.AS_ABSENT):
            params.pop(name, None)
        elif constraint.kind is Kind.BIND and constraint.wanted in self.bound:
            params[name] = self.bound[constraint.wanted]
        else:
            values = self._values(name, op, signature, rank)
            good = [
                value
                for value in values
                if constraint.kind is Kind.BIND or constraint.wanted(value)
            ]
            if not good:
                listing = ", ".join(parameter_text(op, name, value) for value in values)
                raise NoInstance(f"{name}: its condition takes none of {listing}")
            params[name] = one_of(self._rng, good)
            if constraint.kind is Kind.BIND:
                self.bound[constraint.wanted] = params[name]

    def _candidates(
        self, index: int, name: str, op: str, signature: Signature, rank: int | None
    ) -> list[Any]:
        """Return values for an unconstrained parameter; none if it is left out."""
        if self.like is not None and self._rng.random() < _REMEMBERED:
            return [self.like[index, name]] if (index, name) in self.like else []
        new_names = {old: new for new, old in signature.old_names.items()}
        needed = {new_names.get(name_, name_) for name_ in signature.needed}.union(
            name_
            for name_ in signature.migrating
            if signature.parameters[name_].slot < signature.required
        )
        is_present = name in needed or self._rng.random() < _OPTIONAL
        return self._values(name, op, signature, rank) if is_present else []

    def _values(
        self, name: str, op: str, signature: Signature | None, rank: int | None
    ) -> list[Any]:
        """Return candidates for a parameter under the author's name."""
        if signature is None:
            return []
        attribute = signature.attribute_of(name)
        if attribute is not None:
            default = signature.attributes[attribute]
            kind = signature.kinds.get(attribute, onnx.AttributeProto.INT)
        elif name not in signature.parameters and schemas.operator(*split_op(op)) is not None:
            lacking = as_lacking(*split_op(op), name, self._model.opset(split_op(op)[0]) or 0)
            return [[1] * max((rank or 3) - 2, 1) if lacking is None else lacking]  # dilations
        else:
            operator = schemas.operator(*split_op(op))
            whole = (
                name in signature.parameters and signature.parameters[name].dtypes <= INDEX_TYPES
            )
            kind = _KINDS[whole, operator is not None and name in operator.vectors]
            default = schemas.newest_default(*split_op(op), name)
        return attribute_values(self._rng, name, kind, default, rank, op=split_op(op)[1])
