"""Lower an author's operators to the model's opset.

Names and parameters become those of the opset, literals become arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from gehost.errors import PatternError
from gehost.es import schemas
from gehost.es.graph import EsConst, EsNode, EsTensor, in_dtype
from gehost.es.opset import arguments_at, resolve_op, same_parameter, signature_at
from gehost.es.schemas import Parameter, Signature
from gehost.infer.local import array_type
from gehost.ir.effective import LACKING, as_lacking, has_value, newest_spelling, spelling_at
from gehost.ir.graph import split_op
from gehost.ir.model import Model
from gehost.ir.types import DataType, TensorType, ValueType
from gehost.ops import OpRegistry
from gehost.refusal import Refused

__all__ = ["LoweredNode", "Operand", "TypeOf", "lower_node"]

_NEGATIVE_AXES_SINCE = 11
_INDEX_TYPES = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL})

Operand: TypeAlias = EsTensor | np.ndarray[Any, Any] | None
TypeOf: TypeAlias = Callable[[EsTensor], ValueType | None]


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """An operator in the form of the model's opset.

    Constants among the inputs are arrays.
    """

    op: str
    inputs: list[Operand]
    attributes: dict[str, Any]


def lower_node(node: EsNode, model: Model, registry: OpRegistry, type_of: TypeOf) -> LoweredNode:
    """Lower one operator.

    Args:
        node: of a replacement or a body.
        model: has the opset.
        registry: the custom operators.
        type_of: returns the known type of a tensor of the graph of ``node``.

    Raises:
        Refused: the opset lacks the operator or a parameter, or does not broadcast its inputs, or
            a literal's dtype is not known.
        PatternError: the operator is unknown, or it lacks an input or parameter that every opset
            requires.
    """
    if len(node.ops) != 1:
        raise PatternError(
            "only a pattern can accept several operators",
            where=node.origin,
            subject="|".join(node.ops),
        )
    op = resolve_op(node.ops[0], registry, node.origin, bare=node.bare)
    version = model.opset(split_op(op)[0])
    if schemas.operator(*split_op(op)) is None:
        return _lower_custom(node, op, registry, type_of)
    if op == "CastLike" and version is not None and version < 15:
        return _cast_like(node, type_of)
    return _Lowering(node, op, version, signature_at(op, version), type_of).lower()


def _lower_custom(node: EsNode, op: str, registry: OpRegistry, type_of: TypeOf) -> LoweredNode:
    """Lower a custom operator.

    Literals take the dtype of the first tensor beside them.
    """
    inputs: list[Operand] = []
    partner: EsTensor | None = None
    for tensor in node.inputs:
        if tensor is None or not isinstance(tensor.producer, EsConst):
            inputs.append(tensor)
        elif not tensor.producer.literal:
            inputs.append(tensor.producer.array)
        else:
            if partner is None:
                partner = next(
                    other for other in node.inputs if other is not None and not _is_literal(other)
                )
            dtypes = [_known_dtype(partner, op, type_of)]
            inputs.append(_cast(tensor.producer.array, dtypes, op, node))
    definition = registry.get(op)
    defaults: Mapping[str, Any] = {}
    if definition is not None:
        defaults = definition.defaults
        problem = definition.problem(node.params) or definition.output_problem(node.count)
        if problem:
            raise PatternError(problem, where=node.origin)
    attributes = {name: value for name, value in node.params.items() if value is not None}
    for name, value in attributes.items():
        if isinstance(value, int) and isinstance(defaults.get(name), float):
            attributes[name] = float(value)
    return LoweredNode(op, inputs, attributes)


def _cast_like(node: EsNode, type_of: TypeOf) -> LoweredNode:
    """Lower ``CastLike`` before opset 15: a ``Cast`` to the known dtype."""
    source, like = node.inputs[:2]
    target_type = type_of(like) if like is not None else None
    if not isinstance(target_type, TensorType) or not target_type.dtype:
        raise Refused("dtype", "CastLike below opset 15 needs a known dtype to cast to")
    operand = (
        source.producer.array
        if source is not None and isinstance(source.producer, EsConst)
        else source
    )
    return LoweredNode("Cast", [operand], {"to": int(target_type.dtype)})


class _Lowering:
    """Lowers one operator of ONNX at one opset."""

    def __init__(
        self, node: EsNode, op: str, version: int | None, signature: Signature, type_of: TypeOf
    ) -> None:
        self._node = node
        self._op = op
        self._version = version
        self._signature = signature
        self._type_of = type_of
        self._found: tuple[EsTensor | None, dict[str, EsTensor]] | None = None
        schema = schemas.operator(*split_op(op))
        assert schema is not None
        self._vectors = schema.vectors

    def lower(self) -> LoweredNode:
        node, signature = self._node, self._signature
        operands, params = arguments_at(node, self._op, signature, self._version)
        inputs: list[Operand] = []
        for slot, tensor in enumerate(operands):
            producer = None if tensor is None else tensor.producer
            if not isinstance(producer, EsConst):
                inputs.append(tensor)
            elif producer.literal:
                inputs.append(self._literal(producer.array, signature.parameter_at(slot)))
            else:
                inputs.append(producer.array)
        attributes: dict[str, Any] = {}
        for name, literal in self._parameters_of_opset(params, len(operands)).items():
            attribute = signature.attribute_of(name)
            if attribute is not None:
                if not has_value(self._op, name, literal, self._version or 0):
                    raise Refused(
                        "not applicable",
                        f"{self._op} of opset {self._version} has no {name} {literal!r}",
                    )
                spelled = spelling_at(self._op, name, literal, self._version or 0)
                attributes[attribute] = _as_attribute(
                    spelled, signature.kinds[attribute], f"{node.origin}: {self._op}: {name}"
                )
                continue
            parameter = signature.parameters[name]
            array = np.atleast_1d(literal) if name in self._vectors else np.reshape(literal, ())
            inputs.extend([None] * (parameter.slot + 1 - len(inputs)))
            inputs[parameter.slot] = self._literal(array, parameter)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if self._op == "Resize":
            self._fill_resize(inputs)
        self._refuse_missing(inputs, attributes)
        if signature.broadcasts_since and not attributes.get("broadcast"):
            self._refuse_broadcast(inputs)
        return LoweredNode(self._op, inputs, attributes)

    def _fill_resize(self, inputs: list[Operand]) -> None:
        """Write what opsets 11 and 12 want as an empty tensor where it is absent."""
        for name in ("roi", "scales") if len(inputs) > 3 else ("roi",):
            parameter = self._signature.parameters.get(name)
            if parameter is None or parameter.slot >= self._signature.required:
                continue
            inputs.extend([None] * (parameter.slot + 1 - len(inputs)))
            if inputs[parameter.slot] is None:
                inputs[parameter.slot] = np.zeros(0, np.float32)

    def _parameters_of_opset(self, passed: dict[str, Any], operands: int) -> dict[str, Any]:
        """Return the parameters, with those that this opset expresses differently converted."""
        signature = self._signature
        params = {name: value for name, value in passed.items() if value is not None}
        if (
            self._op == "Split"
            and "num_outputs" in signature.attributes
            and "split" not in params
            and operands < 2
        ):
            params["num_outputs"] = self._node.count
        for op, name in LACKING:
            if op != self._op or signature.attribute_of(name) is not None:
                continue
            before = as_lacking("", op, name, self._version or 0)
            is_default = same_parameter(before, schemas.newest_default("", op, name))
            if not is_default and passed.get(name, self._node.params.get(name)) is None:
                does = "something else" if before is None else f"what {before!r} means"
                raise Refused(
                    "not applicable",
                    f"{op} of opset {self._version} has no {name}, and does {does}",
                )
        if signature.flattens:
            rank = self._rank()
            if not rank or self._from_front(params.get("axis", -1), rank) != rank - 1:
                raise Refused(
                    "softmax",
                    f"{self._op} below opset 13 flattens; only the last axis of a "
                    "known rank is supported",
                )
            params["axis"] = rank - 1
        self._write_other_defaults(params)
        if (
            split_op(self._op)[0] == ""
            and self._version is not None
            and self._version < _NEGATIVE_AXES_SINCE
        ):
            for name in ("axis", "axes"):
                if name in params and not same_parameter(
                    params[name], signature.attributes.get(name)
                ):
                    params[name] = self._positive(params[name])
        return params

    def _write_other_defaults(self, params: dict[str, Any]) -> None:
        """Write what an author leaves out, where this opset has another default for it."""
        new_names = {old: new for new, old in self._signature.old_names.items()}
        for attribute, default in self._signature.attributes.items():
            name = new_names.get(attribute, attribute)
            newest = schemas.newest_default(*split_op(self._op), name)
            if name in params or default is None or newest is None:
                continue
            if not same_parameter(newest_spelling(self._op, name, default), newest):
                params[name] = newest

    def _positive(self, axes: Any) -> Any:
        numbers = np.atleast_1d(axes)
        rank = self._rank()
        if rank is None and (numbers >= 0).all():
            return axes
        if rank is None:
            raise Refused(
                "axes",
                f"{self._op} of opset {self._version} accepts no negative axes, and "
                "the rank is unknown",
            )
        rank = schemas.axes_rank(self._op, rank, axes)
        positive = [self._from_front(int(axis), rank) for axis in numbers]
        return positive[0] if np.ndim(axes) == 0 else positive

    def _from_front(self, axis: Any, rank: int) -> Any:  # numpy's integers, too, and 1.0
        if not -rank <= axis < rank:
            raise Refused("axes", f"{axis} of {self._op} is out of range for rank {rank}")
        return axis + rank if axis < 0 else axis

    def _rank(self) -> int | None:
        first = self._node.inputs[0] if self._node.inputs else None
        first_type = self._type_of(first) if first is not None else None
        return first_type.rank if isinstance(first_type, TensorType) else None

    def _refuse_missing(self, inputs: list[Operand], attributes: dict[str, Any]) -> None:
        signature, node = self._signature, self._node
        missing = [name for name in sorted(signature.needed) if name not in attributes]
        for slot in range(signature.required):
            if slot >= len(inputs) or inputs[slot] is None:
                missing.append(signature.inputs[min(slot, len(signature.inputs) - 1)])
        schema = schemas.schema_at(*split_op(self._op), self._version or 0)
        if schema is not None and node.count < schema.min_output:
            missing.append(f"{schema.min_output} outputs")
        if missing:
            raise PatternError(
                f"{self._op} of opset {self._version} needs {', '.join(missing)}", where=node.origin
            )

    def _refuse_broadcast(self, inputs: Sequence[Operand]) -> None:
        """Refuse inputs without one proven shape, which this opset demands."""
        types = [
            array_type(operand) if isinstance(operand, np.ndarray) else self._type_of(operand)
            for operand in inputs
            if operand is not None
        ]
        shapes = [
            operand_type.shape if isinstance(operand_type, TensorType) else None
            for operand_type in types
        ]
        first = shapes[0]
        proven = first is not None and None not in first and shapes.count(first) == len(shapes)
        if proven or len(shapes) == 1:
            return
        spelled = ", ".join(
            "unknown" if operand_type is None else str(operand_type) for operand_type in types
        )
        raise Refused(
            "broadcast",
            f"{self._op} of opset {self._version} takes inputs of one shape, got "
            f"{spelled}; it broadcasts from opset {self._signature.broadcasts_since} on (--opset)",
        )

    def _literal(
        self, literal: np.ndarray[Any, Any], parameter: Parameter | None
    ) -> np.ndarray[Any, Any]:
        """Return a literal in its partner's dtype, or its input's only one.

        The partner is a tensor of the same type parameter, or the first one.
        """
        assert parameter is not None
        allowed = parameter.dtypes
        if len(allowed) == 1:
            return _cast(literal, list(allowed), self._op, self._node)
        first, partners = self._partners()
        if parameter.type_name in partners:
            dtypes = [_known_dtype(partners[parameter.type_name], self._op, self._type_of)]
            return _cast(literal, dtypes, self._op, self._node)
        candidates = [DataType.INT64, DataType.INT32, DataType.BOOL]
        if not allowed <= _INDEX_TYPES:
            if first is not None:
                own = [_known_dtype(first, self._op, self._type_of)]
            else:  # Identity(2) is of int64, Identity(2.5) of float32
                own = {"i": [DataType.INT64], "b": [DataType.BOOL]}.get(literal.dtype.kind, [])
            candidates = [*own, DataType.FLOAT, *candidates]
        return _cast(
            literal, [dtype for dtype in candidates if dtype in allowed], self._op, self._node
        )

    def _partners(self) -> tuple[EsTensor | None, dict[str, EsTensor]]:
        """Return the first nonliteral of all inputs and of each type parameter."""
        if self._found is None:
            first: EsTensor | None = None
            by_type: dict[str, EsTensor] = {}
            for slot, tensor in enumerate(self._node.inputs):
                if tensor is None or _is_literal(tensor):
                    continue
                parameter = self._signature.parameter_at(slot)
                first = first or tensor
                if parameter is not None:
                    by_type.setdefault(parameter.type_name, tensor)
            self._found = first, by_type
        return self._found


def _is_literal(tensor: EsTensor) -> bool:
    return isinstance(tensor.producer, EsConst) and tensor.producer.literal


def _known_dtype(partner: EsTensor, op: str, type_of: TypeOf) -> DataType:
    partner_type = type_of(partner)
    if isinstance(partner_type, TensorType) and partner_type.dtype:
        return partner_type.dtype
    raise Refused(
        "literal",
        f"the dtype of the partner of a literal of {op} is unknown (before "
        "kAfterInferShape, only dtypes that the file states are known)",
    )


def _cast(
    literal: np.ndarray[Any, Any], dtypes: list[DataType], op: str, node: EsNode
) -> np.ndarray[Any, Any]:
    """Return a literal in the first dtype that can hold it.

    An integer type cannot hold 0.5.
    """
    for dtype in dtypes:
        array = None if dtype == DataType.STRING else in_dtype(literal, dtype.numpy)
        if array is not None:
            return array
    expected = " or ".join(dtype.name.lower() for dtype in dtypes) or "type that this input accepts"
    raise Refused("literal", f"{literal.tolist()} of {op} at {node.origin} is no {expected}")


_INTEGERS = frozenset({onnx.AttributeProto.INT, onnx.AttributeProto.INTS})
_LISTS = frozenset({onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS})
_NUMBERS = _INTEGERS | _LISTS | {onnx.AttributeProto.FLOAT}


def _as_attribute(setting: Any, kind: onnx.AttributeProto.AttributeType, where: str) -> Any:
    """Convert a parameter to its attribute's kind.

    ``1`` becomes a float, a tuple or array a list.
    """
    if kind not in _NUMBERS:
        return setting
    if kind == onnx.AttributeProto.INT and type(setting) is int:
        return setting
    if kind == onnx.AttributeProto.FLOAT and type(setting) in (int, float):
        return float(setting)
    wrong = PatternError(
        f"{where} must be {onnx.AttributeProto.AttributeType.Name(kind).lower()}, got {setting!r}"
    )
    try:
        array = np.asarray(setting)
    except ValueError as error:
        raise wrong from error
    if array.dtype.kind not in "biuf" or (kind not in _LISTS and array.size != 1):
        raise wrong
    converted = in_dtype(array, np.dtype(np.int64 if kind in _INTEGERS else np.float64))
    if converted is None:
        raise wrong
    entries = converted.ravel().tolist()
    if kind not in _LISTS:
        return entries[0]
    return entries or onnx.AttributeProto(type=kind)
