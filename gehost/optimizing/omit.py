"""Leave out of a file that is too large what its runtime does not read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx

from gehost.errors import GehostError
from gehost.infer import infer_model
from gehost.ir.model import Model
from gehost.ir.types import OtherType, TensorType, encode_type
from gehost.optimizing.facts import nodes_of


def omit(
    model: onnx.ModelProto,
    original: onnx.ModelProto,
    excess: int,
    domains: Collection[str],
    path: str,
) -> list[str]:
    """Remove function bodies, then notes, then names of new nodes, until enough bytes are gone.

    Args:
        model: to change.
        original: whose functions, notes and names stay.
        excess: bytes to remove.
        domains: whose operators the runtime has kernels for.
        path: the model's file.

    Returns:
        What was removed, as text.
    """
    before, results = model.ByteSize(), list[str]()
    steps = (
        lambda: _remove_bodies(model, original, domains, path),
        lambda: _remove_notes(model, original),
        lambda: _remove_names(model, original),
    )
    for step in steps:
        if before - model.ByteSize() >= excess:
            break
        removed = step()
        if removed:
            results.append(removed)
    return results


def _remove_bodies(
    model: onnx.ModelProto, original: onnx.ModelProto, domains: Collection[str], path: str
) -> str:
    """Declare the types that tools infer from the bodies, and remove these."""
    own = {(function.domain, function.name) for function in original.functions}
    functions = {
        (function.domain, function.name)
        for function in model.functions
        if function.domain in domains and (function.domain, function.name) not in own
    }
    if not functions:
        return ""
    types = _types(path)
    declared = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    for node in model.graph.node:
        if (node.domain, node.op_type) in functions:
            for name in node.output:
                if name in types and name not in declared:
                    model.graph.value_info.add(name=name, type=types[name])
    staying = [f for f in model.functions if (f.domain, f.name) not in functions]
    del model.functions[:]
    model.functions.extend(staying)
    return f"the function bodies of {', '.join(sorted(name for _, name in functions))}"


def _types(path: str) -> Mapping[str, onnx.TypeProto]:
    """Return the types of the tensors of a file's main graph."""
    model = Model.load(path)
    try:
        infer_model(model)
        return {
            name: encode_type(value.type)
            for name, value in model.graph.values.items()
            if isinstance(value.type, TensorType | OtherType)
        }
    except GehostError:
        return {}  # they help other tools only
    finally:
        model.close()


def _remove_notes(model: onnx.ModelProto, original: onnx.ModelProto) -> str:
    own = {entry.key for entry in original.metadata_props}
    notes = [entry for entry in model.metadata_props if entry.key in own]
    keys = [entry.key for entry in model.metadata_props if entry.key not in own]
    del model.metadata_props[:]
    model.metadata_props.extend(notes)
    return ", ".join(keys)


def _remove_names(model: onnx.ModelProto, original: onnx.ModelProto) -> str:
    own = {node.name for node in nodes_of(original)}
    removed = False
    for node in nodes_of(model):
        if node.name and node.name not in own:
            node.ClearField("name")
            removed = True
    return "names of new nodes" if removed else ""
