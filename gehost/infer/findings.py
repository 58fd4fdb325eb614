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
    findings: list[str] = []
    for graph in model.graphs:
        for info in (*graph.proto.input, *graph.proto.output, *graph.proto.value_info):
            sizes = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            if sizes and (smallest := min(sizes)) < 0:
                findings.append(f'types: "{info.name}" has the negative size {smallest}')
        for info in (*graph.proto.output, *graph.proto.value_info):
            value = graph.values.get(info.name)
            value_type = None if value is None else value.type
            if isinstance(value_type, TensorType) and contradicts(info.type, value_type):
                declared = decode_type(info.type)
                findings.append(
                    f'types: "{info.name}" is stated as {declared}, and inferred as {value_type}'
                )
    refused = dict(inferrer.failures)
    for graph in model.graphs:
        for op in _WITH_BODIES:
            for node in graph.by_op.get(op, ()):
                if node not in refused and (why := _refusal(model, node)):
                    refused[node] = why
    findings += [f"types of {node.label} ({node.op}): {why}" for node, why in refused.items()]
    findings = list(dict.fromkeys(findings))
    if len(findings) > _MOST:
        findings[_MOST:] = [f"types: {len(findings) - _MOST} more findings of this kind"]
    return findings


def unloadable(model: Model, inferrer: Inferrer) -> tuple[str, str]:
    """Return at which node types meet that no runtime loads, and the way out.

    Both are empty where there is no such node.
    """
    clash = type_clash(model, inferrer)
    hint = "export or convert the model again, all in one type there, or put a Cast before the node"
    if not clash:
        clash, hint = untaken_half(model, inferrer)
    return (f"{clash}; no runtime loads that", hint) if clash else ("", "")


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
                declared, inferred = decode_type(info.type), value.type
                if not isinstance(declared, TensorType) or not isinstance(inferred, TensorType):
                    continue
                if declared.dtype and inferred.dtype and declared.dtype != inferred.dtype:
                    return (
                        f'{node.op} "{node.label}": "{info.name}" is declared {declared.dtype}, '
                        f"and the node makes {inferred.dtype}"
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
                version.since_version
                for version in history(domain, op_type)
                if version.since_version > schema.since_version and _takes(version, kind, dtype)
            ]
            label = f'{node.op} "{node.label}": input {slot} is {dtype}'
            if not since:
                return f"{label}, which it does not take", "put a Cast before the node"
            way = f"raise the model (--opset {since[0]})"
            way += "" if dtype == DataType.FLOAT16 else ", or export it in float16"
            return f"{label}, which it takes from opset {since[0]} on", way
    return "", ""


def _takes(schema: onnx.defs.OpSchema, kind: str, dtype: DataType) -> bool:
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }
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
    kinds = {constraint.type_param_str for constraint in schema.type_constraints}
    for slot, (value, parameter) in enumerate(zip(node.inputs, parameters, strict=False)):
        value_type = None if value is None else value.type
        shared = parameter.type_str in kinds and parameter.is_homogeneous
        if shared and isinstance(value_type, TensorType) and value_type.dtype:
            yield slot, parameter.type_str, value_type.dtype


def contradicts(declared: onnx.TypeProto, value_type: TensorType) -> bool:
    """Whether a declared type excludes an inferred one; names of sizes are labels."""
    tensor = declared.tensor_type
    if tensor.elem_type and value_type.dtype and tensor.elem_type != value_type.dtype:
        return True
    if value_type.shape is None or not tensor.HasField("shape"):
        return False
    sizes = tensor.shape.dim
    if len(sizes) != len(value_type.shape):
        return True
    for dim, size in zip(sizes, value_type.shape, strict=True):
        if isinstance(size, int) and dim.dim_value != size and dim.HasField("dim_value"):
            return True
    return False


def _refusal(model: Model, node: Node) -> str:
    """Return why ONNX's operator refuses a node's input types, or ""."""
    schema = schema_of(model, node)
    if schema is None:
        return ""
    version = model.opset(split_op(node.op)[0])
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }
    parameters = list(schema.inputs)
    if parameters and parameters[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
        parameters += parameters[-1:] * len(node.inputs)
    bound: dict[str, str] = {}
    for slot, (value, parameter) in enumerate(zip(node.inputs, parameters, strict=False)):
        if value is None or not isinstance(value.type, TensorType):
            continue
        if not value.type.dtype:
            continue
        spelled = f"tensor({value.type.dtype.name.lower()})"
        kind = parameter.type_str
        if spelled not in allowed.get(kind, [kind]):
            return f"input {slot} is {spelled}, which opset {version} does not take"
        if (
            kind in allowed
            and parameter.is_homogeneous
            and bound.setdefault(kind, spelled) != spelled
        ):
            return f"input {slot} is {spelled}, and another one {bound[kind]}"
    return ""
