"""ONNX's schemas for authors, over all versions and at one opset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import onnx

from gehost.ir.attributes import attribute_value
from gehost.ir.effective import IN_PROSE
from gehost.ir.schemas import first_version, history, operator_names, schema_at
from gehost.ir.types import DataType

__all__ = [
    "BROADCASTS_SINCE",
    "FLATTENING_SOFTMAX",
    "Operator",
    "Parameter",
    "Signature",
    "axes_rank",
    "custom_signature",
    "first_version",
    "newest_default",
    "operator",
    "operator_names",
    "schema_at",
    "signature",
]

_KINDS = {
    getattr(onnx.defs.OpSchema.AttrType, name): cast("onnx.AttributeProto.AttributeType", number)
    for name, number in onnx.AttributeProto.AttributeType.items()
    if name != "UNDEFINED"
}
_VECTORS = frozenset({onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS})
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic
_RENAMED = {"Pad": {"value": "constant_value", "paddings": "pads"}, "TopK": {"k": "K"}}
"""Attributes that became an input of another name: operator → old name → the name for authors."""
_TYPES = {f"tensor({dtype.name.lower()})": dtype for dtype in DataType}

FLATTENING_SOFTMAX = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Operators that below opset 13 work on all axes from ``axis`` on at once, with default 1; since
then on one axis, with the last as default.
"""

_FROM_7 = "Add And Div Equal Gemm Greater Less Mul Or PRelu Pow Sub Xor"
_FROM_8 = "Max Mean Min Sum"
BROADCASTS_SINCE = MappingProxyType(
    {**dict.fromkeys(_FROM_7.split(), 7), **dict.fromkeys(_FROM_8.split(), 8)}
)
"""Operators that broadcast as numpy does from an opset on. Before it, their inputs have one shape,
or attributes state how one is repeated. Source: ONNX's schemas of all versions.
"""


class Parameter(NamedTuple):
    """An input at one version: position, type name and element types."""

    slot: int
    type_name: str
    dtypes: frozenset[DataType]


class Signature(NamedTuple):
    """An operator at one opset."""

    inputs: tuple[str, ...]
    required: int
    variadic: bool
    variadic_outputs: bool
    parameters: dict[str, Parameter]
    migrating: frozenset[str]
    """Inputs that are attributes in other versions."""
    attributes: dict[str, Any]
    """The default of every attribute (None: no default)."""
    kinds: dict[str, onnx.AttributeProto.AttributeType]
    """The ``AttributeProto.type`` of every attribute."""
    needed: frozenset[str]
    """Attributes that a node must have."""
    old_names: dict[str, str]
    """Author's name → attribute name of this version, where they differ."""
    flattens: bool
    """Whether it is a softmax that works on all axes from ``axis`` on."""
    broadcasts_since: int
    """The opset from which on it broadcasts, if that is a later one; otherwise 0."""

    def parameter_at(self, slot: int) -> Parameter | None:
        """Return the input at a position; a variadic operator's last input repeats."""
        if slot >= len(self.inputs) and not self.variadic:
            return None
        return self.parameters[self.inputs[min(slot, len(self.inputs) - 1)]]

    def attribute_of(self, name: str) -> str | None:
        """Return the attribute of an author's parameter.

        Returns None if it is an input, or unknown.
        """
        old = self.old_names.get(name, name)
        return old if old in self.attributes else None


class Operator(NamedTuple):
    """An operator over all versions, with every name authors may write."""

    inputs: tuple[str, ...]
    """Input names by position, as the newest version has them."""
    max_inputs: int
    min_inputs: int
    max_outputs: int
    attributes: frozenset[str]
    migrating: frozenset[str]
    """Names that are an attribute in one version and an input in another."""
    vectors: frozenset[str]
    """Those in ``migrating`` that are one-dimensional as an input; the others are scalars."""
    outputs: tuple[str, ...]
    default_outputs: int
    variadic_outputs: bool


@cache
def operator(domain: str, op_type: str) -> Operator | None:
    """Return the union of an operator's versions, None if not in ONNX."""
    versions = history(domain, op_type)
    if not versions:
        return None
    newest = versions[-1]
    renamed = _RENAMED.get(op_type, {})
    kinds = {
        renamed.get(name, name): _KINDS[entry.type]
        for schema in versions
        for name, entry in schema.attributes.items()
    }
    inputs = {parameter.name for schema in versions for parameter in schema.inputs}
    migrating = frozenset(kinds.keys() & inputs)
    return Operator(
        inputs=tuple(parameter.name for parameter in newest.inputs),
        max_inputs=max(schema.max_input for schema in versions),
        min_inputs=min(schema.min_input for schema in versions),
        max_outputs=max(schema.max_output for schema in versions),
        attributes=frozenset(kinds),
        migrating=migrating,
        vectors=frozenset(
            name
            for name in migrating
            if kinds[name] in _VECTORS or (op_type, name) == ("TopK", "K")
        ),
        outputs=tuple(parameter.name for parameter in newest.outputs),
        default_outputs=max(1, newest.min_output),
        variadic_outputs=_ends_variadic(newest.outputs),
    )


@cache
def signature(domain: str, op_type: str, version: int) -> Signature | None:
    """Return the signature at opset ``version``, None if ONNX lacks it there."""
    schema = schema_at(domain, op_type, version)
    entry = operator(domain, op_type)
    if schema is None or entry is None:
        return None
    since = BROADCASTS_SINCE.get(op_type, 0) if domain == "" else 0
    parameters = {
        parameter.name: Parameter(
            slot,
            parameter.type_str,
            frozenset(_TYPES[name] for name in parameter.types if name in _TYPES),
        )
        for slot, parameter in enumerate(schema.inputs)
    }
    return Signature(
        inputs=tuple(parameter.name for parameter in schema.inputs),
        required=schema.min_input,
        variadic=_ends_variadic(schema.inputs),
        variadic_outputs=_ends_variadic(schema.outputs),
        parameters=parameters,
        migrating=entry.migrating.intersection(parameters),
        attributes={name: _default(attribute) for name, attribute in schema.attributes.items()},
        kinds={name: _KINDS[attribute.type] for name, attribute in schema.attributes.items()},
        needed=frozenset(
            name for name, attribute in schema.attributes.items() if attribute.required
        ),
        old_names={
            new: old for old, new in _RENAMED.get(op_type, {}).items() if old in schema.attributes
        },
        flattens=domain == "" and op_type in FLATTENING_SOFTMAX and schema.since_version < 13,
        broadcasts_since=since if since > version else 0,
    )


def custom_signature(inputs: Sequence[str], attributes: Mapping[str, Any]) -> Signature:
    """Return a vendor operator's signature, knowing only its inputs' positions."""
    return Signature(
        inputs=tuple(inputs),
        required=0,
        variadic=False,
        variadic_outputs=False,
        parameters={},
        migrating=frozenset(),
        attributes=dict(attributes),
        kinds={},
        needed=frozenset(),
        old_names={},
        flattens=False,
        broadcasts_since=0,
    )


@cache
def newest_default(domain: str, op_type: str, name: str) -> Any:
    """Return a parameter's default, or None.

    It is what the newest version says of the input, or else that of the newest version that has
    the parameter as an attribute.
    """
    if domain == "" and (op_type, name) in IN_PROSE:
        return IN_PROSE[op_type, name]
    old = {new: old for old, new in _RENAMED.get(op_type, {}).items()}.get(name, name)
    for schema in reversed(history(domain, op_type)):
        for spelling in (name, old):
            if spelling in schema.attributes:
                return _default(schema.attributes[spelling])
    return None


def axes_rank(op: str, rank: int, axes: Any) -> int:
    """Return the rank to which negative ``axes`` refer.

    The argument ``rank`` is that of the first input.
    """
    if op == "Unsqueeze":
        return rank + np.size(axes)
    return rank + 1 if op == "OneHot" else rank


def _ends_variadic(parameters: Any) -> bool:
    return bool(parameters) and parameters[-1].option == _VARIADIC


def _default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    return attribute_value(proto) if proto.type else None
