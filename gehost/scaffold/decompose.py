"""Scaffold a DecomposePass from parts that ONNX or the model defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import onnx
import onnx.inliner

from gehost.infer import infer_model
from gehost.ir.graph import Node, split_op
from gehost.ir.model import Model
from gehost.ir.schemas import history, schema_at
from gehost.scaffold.place import Place, alone, place_of
from gehost.scaffold.styles import Replaced


def decomposed(model: Model, node: Node) -> tuple[Place, Replaced, list[str]]:
    """Describe a node and its body's nodes, with notes for the author.

    Raises:
        UsageError: the node holds nested graphs, or nothing reads its outputs.
    """
    inputs = list(dict.fromkeys(value for value in node.inputs if value is not None))
    place = place_of(model, [node], inputs)
    names = dict(zip(inputs, place.inputs, strict=True))
    slots = {value: slot for slot, value in reversed(list(enumerate(node.inputs)))}
    replaced = Replaced(
        operator=place.operators[0],
        slots=[(slots[value], names[value]) for value in inputs],
        present=[value is not None for value in node.inputs] if _has_optional(model, node) else [],
        parts=False,
    )
    whole = alone(model, [value for value in node.outputs if value is not None], inputs)
    parts = _inlined(whole, node)
    if parts is None:
        return place, replaced, [_no_parts(model, node)]
    made = Model(parts)
    infer_model(made)
    inside = place_of(made, list(made.graph.nodes), made.graph.inputs)
    in_order = {value.name: names[value] for value in inputs}
    assert [value.name for value in made.graph.inputs] == list(in_order)
    slots_by_name = zip(inside.inputs, replaced.slots, strict=True)
    renamed = [(slot, name) for name, (slot, _) in slots_by_name]
    notes: list[str] = []
    if any(each.op == "Exp" for each in inside.operators):
        notes.append(
            f"Exp overflows for large inputs (float32: above 88.7), where {split_op(node.op)[1]} "
            "may not: compile with --verify --special-values."
        )
    place = replace(inside, model=place.model, alone=place.alone)
    return place, replace(replaced, slots=renamed, parts=True), notes


def _has_optional(model: Model, node: Node) -> bool:
    domain, op_type = split_op(node.op)
    schema = schema_at(domain, op_type, model.opset(domain) or 1)
    return schema is None or schema.min_input != schema.max_input


def _no_parts(model: Model, node: Node) -> str:
    """State that nothing defines a node's parts, or since which opset."""
    domain, op_type = split_op(node.op)
    opset = model.opset(domain) or 1
    schemas = cast("Sequence[Any]", history(domain, op_type))  # onnx's stubs lack the two lists
    later: list[int] = [
        version
        for each in schemas
        for version in (
            *each.function_opset_versions,
            *each.context_dependent_function_opset_versions,
        )
        if version > opset
    ]
    hint = ""
    if later:
        hint = f", but from opset {min(later)} on (gehost compile --opset {min(later)} raises it)"
    return (
        f"No parts of {op_type} are defined at opset {opset}{hint}: `body` only wraps it. "
        "Write the parts there."
    )


def _inlined(whole: onnx.ModelProto, node: Node) -> onnx.ModelProto | None:
    """Return one node's model with its function inlined, None without one."""
    domain, op_type = split_op(node.op)
    inlined = onnx.inliner.inline_selected_functions(
        whole, [(domain, op_type)], exclude=False, inline_schema_functions=True
    )
    return None if any(each.op_type == op_type for each in inlined.graph.node) else inlined
