"""Validate a loaded model file; all later code relies on these checks."""

from __future__ import annotations

from collections import Counter

import onnx
import onnx.checker

from gehost.errors import ModelError
from gehost.ir.calls import check_arity, check_calls
from gehost.ir.files.external import (
    all_tensors,
    check_external,
    element_bits,
    external_tensors,
    is_external,
)
from gehost.ir.files.skeleton import skeleton
from gehost.ir.files.utf8 import check_utf8
from gehost.ir.graph import Graph, split_op
from gehost.ir.model import Model
from gehost.ir.schemas import declared_schema_at
from gehost.ir.tensors import check_data
from gehost.ir.types import DataType, TensorType

# The newest opset of each ONNX domain that the installed onnx knows.
_KNOWN_OPSETS = onnx.defs.C.schema_version_map()

_DEPRECATED = "is deprecated in domain_version"
_UNKNOWN_DOMAIN = "gehost.deprecated"

_SMALL = 1 << 26
"""Largest model in bytes that is checked as it is; from larger ones the weights are removed first.

For smaller ones, removing them costs more than checking them.
"""


def validate(model: Model) -> None:
    """Check that a model is valid ONNX, with tensors of declared sizes.

    Costs as much as a pass over the nodes and the weights in the file; of external weights only the
    files' sizes are read.

    Raises:
        ModelError: an error, with its place.
    """
    try:
        proto = model.flush()
        content = _content(model, proto)
        check_utf8(proto, content or _without_weights(proto).SerializeToString())
        _check_versions(proto)
        _check_tensors(model)
        _check_functions(model)
        for graph in model.graphs:
            _check_defaults(graph)
        _check_initializers(proto)
        finding = _finding(proto, content)
        if finding:
            raise ModelError(f"onnx.checker: {finding}", hint="export the model again")
    except ModelError as error:
        raise ModelError(str(error), where=str(model)) from error


def checker_finding(model: Model) -> str:
    """Return the message of ``onnx.checker`` and its node, run without large weights, or ""."""
    proto = model.flush()
    finding = _finding(proto, _content(model, proto))
    node = _refused_node(model) if finding else ""
    return f"{node}: {finding}" if node else finding


def _refused_node(model: Model) -> str:
    """Return the operator and label of the first node that ``onnx.checker`` refuses, or ""."""
    context = onnx.checker.DEFAULT_CONTEXT.__class__()
    context.ir_version = model.proto.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in model.proto.opset_import}
    for graph in [model.graph, *model.graph.subgraphs()]:
        for node in graph.nodes:
            if not node.bodies:  # their names are defined outside
                try:
                    onnx.checker.check_node(node.proto, context)
                except onnx.checker.ValidationError:
                    return f'{node.op} "{node.label}"'
    return ""


def _content(model: Model, proto: onnx.ModelProto) -> bytes:
    """Return a small model's bytes; nothing for a large one.

    They are written once: protobuf's ``ByteSize`` writes them, too, to count them.
    """
    if model.size > _SMALL:
        return b""
    content = proto.SerializeToString()
    return content if len(content) <= _SMALL else b""


def _check_versions(proto: onnx.ModelProto) -> None:
    if not 1 <= proto.ir_version <= onnx.IR_VERSION:
        raise ModelError(
            f"it has IR version {proto.ir_version}, the installed onnx {onnx.__version__} "
            f"knows 1 to {onnx.IR_VERSION}",
            hint="export the model again, or upgrade onnx",
        )
    imported: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if imported.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"it imports two opsets of domain {domain!r}, {imported[domain]} and "
                f"{entry.version}",
                hint="remove one",
            )
        first, newest = _KNOWN_OPSETS.get(domain, (entry.version, entry.version))
        if not first <= entry.version <= newest:
            raise ModelError(
                f"it imports opset {entry.version} of domain {domain!r}, of which the "
                f"installed onnx {onnx.__version__} knows {first} to {newest}",
                hint="convert the model, or upgrade onnx",
            )


def _check_tensors(model: Model) -> None:
    external: list[onnx.TensorProto] = []
    nodes = (
        node.proto
        for op in sorted(model.ops_with_tensors)
        for node in model.graph.by_op.get(op, ())
    )
    for tensor in all_tensors(model.proto, nodes):
        check_data(tensor)
        if is_external(tensor):
            external.append(tensor)
        elif tensor.data_type != onnx.TensorProto.STRING and element_bits(tensor.data_type) < 8:
            try:  # the unused bits of packed elements have to be zero
                onnx.checker.check_tensor(tensor)
            except onnx.checker.ValidationError as error:
                raise ModelError(
                    f"onnx.checker: {' '.join(str(error).split())}", hint="export the model again"
                ) from error
    check_external(external, model.base_dir)


def _check_functions(model: Model) -> None:
    if not model.functions:
        return
    nodes: Counter[str] = Counter()
    for graph in model.graphs:
        nodes.update({op: len(nodes_of_op) for op, nodes_of_op in graph.by_op.items()})
        for op in graph.by_op.keys() & model.functions.keys():
            for node in graph.by_op[op]:
                check_arity(model.functions[op], node.proto)
    check_calls(model.functions, nodes)


def _check_defaults(graph: Graph) -> None:
    """Check that initializers of graph inputs have the inputs' types."""
    for value in graph.inputs:
        tensor = value.initializer
        if not isinstance(tensor, onnx.TensorProto) or value.type is None:
            continue
        declared, dims = value.type, list(tensor.dims)
        fits = (
            isinstance(declared, TensorType)
            and declared.dtype in (DataType.UNDEFINED, tensor.data_type)
            and (
                declared.shape is None
                or (
                    len(declared.shape) == len(dims)
                    and all(
                        not isinstance(size, int) or size == dim
                        for size, dim in zip(declared.shape, dims, strict=True)
                    )
                )
            )
        )
        if not fits:
            raise ModelError(
                f'graph input "{value.name}" is {declared}, but its initializer is of '
                f"element type {tensor.data_type} and shape {dims}",
                hint="export the model again",
            )


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return skeleton(proto, lambda _: False)
    except (
        UnicodeDecodeError
    ):  # copying sets each field of the model and of the graph, which must be UTF-8
        check_utf8(proto)
        raise


def _check_initializers(proto: onnx.ModelProto) -> None:
    if proto.ir_version >= 4:
        return
    inputs = {info.name for info in proto.graph.input}
    missing = next(
        (tensor.name for tensor in proto.graph.initializer if tensor.name not in inputs), None
    )
    if missing is not None:
        raise ModelError(
            f'initializer "{missing}" is not among the graph\'s inputs, where IR version '
            f"{proto.ir_version} wants it",
            hint="set ir_version to 4",
        )


def _finding(proto: onnx.ModelProto, content: bytes) -> str:
    """Return the message of ``onnx.checker`` on a model of these bytes.

    A large model, and one with a finding or external data, is checked as a copy without weights,
    whose initializers become inputs.
    """
    # the checker looks for external data in the wrong directory
    if content and b"location" not in content and not _ask_checker(content):
        return ""
    copy = _without_weights(proto)
    inputs = {info.name for info in copy.graph.input}
    for tensor in copy.graph.initializer:  # an initializer without data would be an error
        if tensor.name not in inputs:
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    del copy.graph.initializer[:]
    # the checker looks for external data in the working directory
    for tensor in list(external_tensors(copy)):
        tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    # The checker requires a rank for inputs and outputs; an undeclared rank is valid, just unknown.
    for info in (*copy.graph.input, *copy.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    finding = _ask_checker(copy)
    if _DEPRECATED in finding:  # ONNX Runtime runs them
        _rename_deprecated(copy)
        finding = _ask_checker(copy)
    if finding and _spell_domains_out(copy.graph):
        return _ask_checker(copy)
    return finding


def deprecated_operators(model: Model) -> list[str]:
    """Return the deprecated operators of a model's nodes, each with its opset."""
    return sorted(
        f"{op} (opset {version})"
        for op in {op for graph in model.graphs for op, nodes in graph.by_op.items() if nodes}
        if (version := model.opset(split_op(op)[0])) is not None
        and model.function(op) is None
        and _is_deprecated(*split_op(op), version)
    )


def _is_deprecated(domain: str, op_type: str, version: int) -> bool:
    schema = declared_schema_at("" if domain == "ai.onnx" else domain, op_type, version)
    return schema is not None and schema.deprecated


def _rename_deprecated(model: onnx.ModelProto) -> None:
    """Move deprecated operators to a domain that the checker does not know."""
    for owner, nodes in (
        (model, model.graph.node),
        *((function, function.node) for function in model.functions),
    ):
        opsets = {entry.domain: entry.version for entry in owner.opset_import}
        owner.opset_import.add(domain=_UNKNOWN_DOMAIN, version=1)
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            version = opsets.get(node.domain, opsets.get("", 1))
            if _is_deprecated(node.domain, node.op_type, version):
                node.domain = _UNKNOWN_DOMAIN
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    waiting.extend(body.node)


def _ask_checker(model: onnx.ModelProto | bytes) -> str:
    try:
        onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType] - onnx leaves PathLike's parameter open
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        return " ".join(str(error).split())
    return ""


def _spell_domains_out(graph: onnx.GraphProto) -> bool:
    """Replace "ai.onnx" by ""; return whether there was one.

    The checker treats the two as different domains.
    """
    changed = False
    for node in graph.node:
        if node.domain == "ai.onnx":
            node.domain, changed = "", True
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                changed |= _spell_domains_out(body)
    return changed
