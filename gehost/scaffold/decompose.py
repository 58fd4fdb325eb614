"""Scaffold a DecomposePass.

Finds the parts that ONNX or the model defines for a node.
"""

from __future__ import annotations

from dataclasses import replace

import onnx
import onnx.inliner

from gehost.infer import infer_model
from gehost.ir.graph import Node, split_op
from gehost.ir.model import Model
from gehost.scaffold.place import Place, alone, place_of
from gehost.scaffold.styles import Replaced


def decomposed(model: Model, node: Node) -> tuple[Place, Replaced]:
    """Describe a node and the nodes of its body.

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
        present=[value is not None for value in node.inputs],
        parts=False,
    )
    whole = alone(model, [value for value in node.outputs if value is not None], inputs)
    parts = _inlined(whole, node)
    if parts is None:
        return place, replaced
    made = Model(parts)
    infer_model(made)
    inside = place_of(made, list(made.graph.nodes), made.graph.inputs)
    in_order = {value.name: names[value] for value in inputs}
    assert [value.name for value in made.graph.inputs] == list(in_order)
    slots_by_name = zip(inside.inputs, replaced.slots, strict=True)
    renamed = [(slot, name) for name, (slot, _) in slots_by_name]
    return replace(inside, model=place.model), replace(replaced, slots=renamed, parts=True)


def _inlined(whole: onnx.ModelProto, node: Node) -> onnx.ModelProto | None:
    """Return the model of one node with its function inlined.

    None where it has none.
    """
    domain, op_type = split_op(node.op)
    inlined = onnx.inliner.inline_selected_functions(
        whole, [(domain, op_type)], exclude=False, inline_schema_functions=True
    )
    return None if any(each.op_type == op_type for each in inlined.graph.node) else inlined
