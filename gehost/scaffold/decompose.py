"""Scaffold a DecomposePass from parts that ONNX or the model defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import onnx
import onnx.inliner

from gehost.infer import infer_model
from gehost.ir.graph import Node, split_op
from gehost.ir.inline import state_defaults, with_function_defaults
from gehost.ir.model import Model
from gehost.ir.schemas import history, schema_at
from gehost.scaffold.place import Place, alone, place_of
from gehost.scaffold.styles import Replaced


def decomposed(model: Model, node: Node) -> tuple[Place, Replaced, list[str]]:
    """Describe a node and its body's nodes, with notes for the author.

    Raises:
        UsageError: the node holds nested graphs, or nothing reads its outputs.
    """
    domain, op_type = split_op(node.op)
    inputs = list(dict.fromkeys(value for value in node.inputs if value is not None))
    outputs = [value for value in node.outputs if value is not None]
    place = place_of(model, [node], inputs, outputs)
    names = dict(zip(inputs, place.inputs, strict=True))
    slots = {value: slot for slot, value in reversed(list(enumerate(node.inputs)))}
    replaced = Replaced(
        operator=place.operators[0],
        slots=_without_gaps([(slots[value], names[value]) for value in inputs]),
        same=[
            (slots[value], slot)
            for slot, value in enumerate(node.inputs)
            if value is not None and slots[value] != slot
        ],
        present=[value is not None for value in node.inputs] if _has_optional(node.op) else [],
        parts=False,
    )
    whole = alone(model, outputs, inputs)
    inlined = _taken_apart(whole, node.op, model.opset(domain) or 1)
    if isinstance(inlined, str):
        return place, replaced, [inlined]
    parts = Model(inlined)
    infer_model(parts)
    inside = place_of(parts, list(parts.graph.nodes), parts.graph.inputs, parts.graph.outputs)
    in_order = {value.name: names[value] for value in inputs}
    assert [value.name for value in parts.graph.inputs] == list(in_order)
    renamed = _without_gaps(
        [(slots[value], name) for value, name in zip(inputs, inside.inputs, strict=True)]
    )
    notes: list[str] = []
    if any(operator.op == "Exp" for operator in inside.operators):
        notes.append(
            f"Exp overflows for large inputs (float32: above 88.7), where {op_type} "
            "may not: compile with --verify --special-values."
        )
    place = replace(inside, model=place.model, alone=place.alone)
    return place, replace(replaced, slots=renamed, parts=True), notes


def _taken_apart(whole: onnx.ModelProto, op: str, opset: int) -> onnx.ModelProto | str:
    """Return the model of a node with its parts in its place, or why there are none."""
    domain, op_type = split_op(op)
    explicit = with_function_defaults(whole)
    schema = schema_at(domain, op_type, opset)
    if schema is not None:
        state_defaults(explicit, {op: _defaults(schema)})
    try:
        inlined = onnx.inliner.inline_selected_functions(
            explicit, [(domain, op_type)], exclude=False, inline_schema_functions=True
        )
    except RuntimeError:  # of bodies that depend on types, where an input is absent
        return _no_parts(op_type, "for these inputs")
    if any(node.op_type == op_type for node in inlined.graph.node):
        return _no_parts(op_type, _since(domain, op_type, opset))
    return inlined


def _defaults(schema: onnx.defs.OpSchema) -> list[onnx.AttributeProto]:
    """Return the attributes that a node may leave out, with their values."""
    return [
        attribute.default_value
        for attribute in schema.attributes.values()
        if attribute.default_value.type
    ]


def _has_optional(op: str) -> bool:
    """Whether inputs of an operator may be absent, at any opset."""
    counts = {n for schema in history(*split_op(op)) for n in (schema.min_input, schema.max_input)}
    return len(counts) != 1


def _without_gaps(slots: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return named inputs and, with the name "", those between them."""
    named = dict(slots)
    return [(slot, named.get(slot, "")) for slot in range(max(named, default=-1) + 1)]


def _no_parts(op_type: str, where: str) -> str:
    return (
        f"No parts of {op_type} are defined {where}: `body` only wraps it. Write the parts there."
    )


def _since(domain: str, op_type: str, opset: int) -> str:
    """State where the parts of an operator are not defined, and from which opset they are."""
    schemas = cast("Sequence[Any]", history(domain, op_type))  # onnx's stubs lack the two lists
    later: list[int] = [
        version
        for schema in schemas
        for version in (
            *schema.function_opset_versions,
            *schema.context_dependent_function_opset_versions,
        )
        if version > opset
    ]
    hint = ""
    if later:
        hint = f", but from opset {min(later)} on (gehost compile --opset {min(later)} raises it)"
    return f"at opset {opset}{hint}"
