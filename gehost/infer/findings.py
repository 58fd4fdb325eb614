"""Type errors that inference found in a model.

A compile can go on despite them.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from gehost.infer.local import Inferrer
from gehost.ir.graph import Node, split_op
from gehost.ir.model import Model
from gehost.ir.schemas import history, schema_at
from gehost.ir.types import DataType, TensorType, decode_type

_MOST = 10
_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)
_WITH_BODIES = ("If", "Loop", "Scan")
"""Operators whose inputs inference does not check; of all others ONNX refuses a wrong type."""


def type_findings(model: Model, inferrer: Inferrer) -> list[str]:
    """Return refused nodes, impossible types, and types that inference contradicts.

    ``onnx.checker`` with full checks refuses such models. One line each, at most 10, then the
    number of the others.
    """
    found: list[str] = []
    for graph in model.graphs:
        for info in (*graph.proto.input, *graph.proto.output, *graph.proto.value_info):
            smallest = min((dim.dim_value for dim in info.type.tensor_type.shape.dim), default=0)
            if smallest < 0:
                found.append(f'types: "{info.name}" has the negative size {smallest}')
        for info in (*graph.proto.output, *graph.proto.value_info):
            value = graph.values.get(info.name)
            known = None if value is None else value.type
            if isinstance(known, TensorType) and contradicts(info.type, known):
                stated = decode_type(info.type)
                found.append(f'types: "{info.name}" is stated as {stated}, and inferred as {known}')
    refused = dict(inferrer.failures)
    for graph in model.graphs:
        for op in _WITH_BODIES:
            for node in graph.by_op.get(op, ()):
                if node not in refused and (why := _refusal(model, node)):
                    refused[node] = why
    found += [f"types of {node.label} ({node.op}): {why}" for node, why in refused.items()]
    found = list(dict.fromkeys(found))
    if len(found) > _MOST:
        found[_MOST:] = [f"types: {len(found) - _MOST} more findings of this kind"]
    return found


def type_clash(model: Model, inferrer: Inferrer) -> str:
    """Return where two element types meet that no operator takes together, or "".

    Converters to half leave such nodes; no runtime loads them.
    """
    for graph in model.graphs:
        infos = {info.name: info for info in (*graph.proto.value_info, *graph.proto.output)}
        for node in graph.nodes if infos else ():
            for value in node.outputs:
                info = None if value is None else infos.get(value.name)
                if value is None or info is None or schema_of(model, node) is None:
                    continue
                stated, made = decode_type(info.type), value.type
                if not isinstance(stated, TensorType) or not isinstance(made, TensorType):
                    continue
                if stated.dtype and made.dtype and stated.dtype != made.dtype:
                    return (
                        f'{node.op} "{node.label}": "{info.name}" is declared {stated.dtype}, '
                        f"and the node makes {made.dtype}"
                    )
    for node in inferrer.failures:
        first: dict[str, tuple[int, DataType]] = {}
        for slot, kind, dtype in _typed_inputs(model, node):
            place, other = first.setdefault(kind, (slot, dtype))
            if other != dtype:
                return (
                    f'{node.op} "{node.label}": input {place} is {other} and input {slot} {dtype}'
                )
    return ""


def untaken_half(model: Model, inferrer: Inferrer) -> tuple[str, str]:
    """Return where a half tensor meets an operator that does not take it, and the way out.

    Both are empty where there is no such node. ONNX's Conv takes bfloat16 from opset 22 on; an
    exporter that writes it earlier makes a file that no runtime loads.
    """
    for node in inferrer.failures:
        schema = schema_of(model, node)
        for slot, kind, dtype in _typed_inputs(model, node):
            if schema is None or dtype not in _HALVES or _takes(schema, kind, dtype):
                continue
            domain, op_type = split_op(node.op)
            since = [
                each.since_version
                for each in history(domain, op_type)
                if each.since_version > schema.since_version and _takes(each, kind, dtype)
            ]
            label = f'{node.op} "{node.label}": input {slot} is {dtype}'
            if not since:
                return f"{label}, which it does not take", "put a Cast before the node"
            way = f"raise the model (--opset {since[0]})"
            way += "" if dtype == DataType.FLOAT16 else ", or export it in float16"
            return f"{label}, which it takes from opset {since[0]} on", way
    return "", ""


def _takes(schema: onnx.defs.OpSchema, kind: str, dtype: DataType) -> bool:
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    return f"tensor({dtype.name.lower()})" in allowed.get(kind, ())


def schema_of(model: Model, node: Node) -> onnx.defs.OpSchema | None:
    """Return the schema of a node of ONNX's own operators, None for others."""
    domain, op_type = split_op(node.op)
    version = model.opset(domain)
    if version is None or model.function(node.op) is not None:
        return None
    return schema_at(domain, op_type, version)


def _typed_inputs(model: Model, node: Node) -> Iterator[tuple[int, str, DataType]]:
    """Yield slot, type parameter and element type of inputs that share a parameter."""
    schema = schema_of(model, node)
    if schema is None:
        return
    parameters = list(schema.inputs)
    if parameters and parameters[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
        parameters += parameters[-1:] * len(node.inputs)
    kinds = {each.type_param_str for each in schema.type_constraints}
    for slot, (value, parameter) in enumerate(zip(node.inputs, parameters, strict=False)):
        known = None if value is None else value.type
        shared = parameter.type_str in kinds and parameter.is_homogeneous
        if shared and isinstance(known, TensorType) and known.dtype:
            yield slot, parameter.type_str, known.dtype


def contradicts(stated: onnx.TypeProto, known: TensorType) -> bool:
    """Whether a declared type excludes an inferred one; names of sizes are labels."""
    tensor = stated.tensor_type
    if tensor.elem_type and known.dtype and tensor.elem_type != known.dtype:
        return True
    if known.shape is None or not tensor.HasField("shape"):
        return False
    sizes = tensor.shape.dim
    return len(sizes) != len(known.shape) or any(
        dim.HasField("dim_value") and isinstance(size, int) and dim.dim_value != size
        for dim, size in zip(sizes, known.shape, strict=True)
    )


def _refusal(model: Model, node: Node) -> str:
    """Return why ONNX's operator refuses a node's input types, or ""."""
    schema = schema_of(model, node)
    if schema is None:
        return ""
    version = model.opset(split_op(node.op)[0])
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    parameters = list(schema.inputs)
    if parameters and parameters[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
        parameters += parameters[-1:] * len(node.inputs)
    bound: dict[str, str] = {}
    for slot, (value, parameter) in enumerate(zip(node.inputs, parameters, strict=False)):
        if value is None or not isinstance(value.type, TensorType):
            continue
        if not value.type.dtype:
            continue
        given = f"tensor({value.type.dtype.name.lower()})"
        kind = parameter.type_str
        if given not in allowed.get(kind, [kind]):
            return f"input {slot} is {given}, which opset {version} does not take"
        if kind in allowed and parameter.is_homogeneous and bound.setdefault(kind, given) != given:
            return f"input {slot} is {given}, and another one {bound[kind]}"
    return ""
