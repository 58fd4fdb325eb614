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
    domain, op_type = split_op(node.op)
    opset = model.opset(domain) or 1
    schema = schema_at(domain, op_type, opset)
    has_optional = schema is None or schema.min_input != schema.max_input
    inputs = list(dict.fromkeys(value for value in node.inputs if value is not None))
    place = place_of(model, [node], inputs)
    names = dict(zip(inputs, place.inputs, strict=True))
    slots = {value: slot for slot, value in reversed(list(enumerate(node.inputs)))}
    replaced = Replaced(
        operator=place.operators[0],
        slots=[(slots[value], names[value]) for value in inputs],
        present=[value is not None for value in node.inputs] if has_optional else [],
        parts=False,
    )
    whole = alone(model, [value for value in node.outputs if value is not None], inputs)
    inlined = onnx.inliner.inline_selected_functions(
        whole, [(domain, op_type)], exclude=False, inline_schema_functions=True
    )
    if any(each.op_type == op_type for each in inlined.graph.node):
        return place, replaced, [_no_parts(domain, op_type, opset)]
    parts = Model(inlined)
    infer_model(parts)
    inside = place_of(parts, list(parts.graph.nodes), parts.graph.inputs)
    in_order = {value.name: names[value] for value in inputs}
    assert [value.name for value in parts.graph.inputs] == list(in_order)
    slots_by_name = zip(inside.inputs, replaced.slots, strict=True)
    renamed = [(slot, name) for name, (slot, _) in slots_by_name]
    notes: list[str] = []
    if any(each.op == "Exp" for each in inside.operators):
        notes.append(
            f"Exp overflows for large inputs (float32: above 88.7), where {op_type} "
            "may not: compile with --verify --special-values."
        )
    place = replace(inside, model=place.model, alone=place.alone)
    return place, replace(replaced, slots=renamed, parts=True), notes


def _no_parts(domain: str, op_type: str, opset: int) -> str:
    """State that nothing defines an operator's parts, or since which opset."""
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
