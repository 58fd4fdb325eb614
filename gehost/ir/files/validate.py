"""What a model file must be before anything is done with it: whatever comes later may rely on
that.
"""

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
from gehost.ir.graph import Graph
from gehost.ir.model import Model
from gehost.ir.tensors import check_data
from gehost.ir.types import DataType, TensorType, ValueType

# The newest opset of each of ONNX's domains; what a later one means, the installed onnx cannot
# know.
_KNOWN_OPSETS = onnx.defs.C.schema_version_map()

_SMALL = 1 << 26
"""Bytes of a model that is checked as it is; of a larger one the weights are left out first,
which costs more than they do.
"""


def validate(model: Model) -> None:
    """Prove that a model is one that ONNX allows, whose tensors hold what they state.

    Cost: that of the nodes, and of a look at the weights in the file; of external ones only the
    files' sizes are read.

    Raises:
        ModelError: what is wrong, and where.
    """
    try:
        proto = model.flush()
        content = _content(proto)
        check_utf8(proto, content or _without_weights(proto).SerializeToString())
        _check_versions(proto)
        _check_tensors(model)
        _check_functions(model)
        for graph in model.graphs:
            _check_defaults(graph)
        _check_initializers(proto)
        finding = _finding(proto, content)
        if finding:
            raise ModelError(f"onnx.checker says: {finding}", hint="export the model again")
    except ModelError as error:
        raise ModelError(str(error), where=str(model)) from error


def checker_finding(model: Model) -> str:
    """What ``onnx.checker`` says of a model, "" when it is content; large weights are not looked
    at.
    """
    proto = model.flush()
    return _finding(proto, _content(proto))


def _content(proto: onnx.ModelProto) -> bytes:
    """A small model's bytes; none of a large one."""
    return proto.SerializeToString() if proto.ByteSize() <= _SMALL else b""


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
                hint="take one away",
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
            _check_padding(tensor)
    check_external(external, model.base_dir)


def _check_padding(tensor: onnx.TensorProto) -> None:
    """Elements smaller than a byte leave bits over, which ONNX wants to be zero."""
    try:
        onnx.checker.check_tensor(tensor)
    except onnx.checker.ValidationError as error:
        raise ModelError(
            f"onnx.checker says: {' '.join(str(error).split())}", hint="export the model again"
        ) from error


def _check_functions(model: Model) -> None:
    if not model.functions:
        return
    nodes: Counter[str] = Counter()
    for graph in model.graphs:
        nodes.update({op: len(found) for op, found in graph.by_op.items()})
        for op in graph.by_op.keys() & model.functions.keys():
            for node in graph.by_op[op]:
                check_arity(model.functions[op], node.proto)
    check_calls(model.functions, nodes)


def _check_defaults(graph: Graph) -> None:
    """An initializer that is a graph input too is its default, and so of its type."""
    for value in graph.inputs:
        tensor = value.initializer
        if isinstance(tensor, onnx.TensorProto) and not _fits(value.type, tensor):
            raise ModelError(
                f'graph input "{value.name}" is {value.type}, but its initializer is of '
                f"element type {tensor.data_type} and shape {list(tensor.dims)}",
                hint="export the model again",
            )


def _fits(stated: ValueType | None, tensor: onnx.TensorProto) -> bool:
    if stated is None:
        return True
    if not isinstance(stated, TensorType) or stated.dtype not in (
        DataType.UNDEFINED,
        tensor.data_type,
    ):
        return False
    dims = list(tensor.dims)
    return stated.shape is None or (
        len(stated.shape) == len(dims)
        and all(
            not isinstance(known, int) or known == dim
            for known, dim in zip(stated.shape, dims, strict=True)
        )
    )


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return skeleton(proto, lambda _: False)
    except (
        UnicodeDecodeError
    ):  # it sets each field of the model and of the graph, which takes only UTF-8
        check_utf8(proto)
        raise


def _check_initializers(proto: onnx.ModelProto) -> None:
    if proto.ir_version >= 4:
        return
    stated = {info.name for info in proto.graph.input}
    missing = next(
        (tensor.name for tensor in proto.graph.initializer if tensor.name not in stated), None
    )
    if missing is not None:
        raise ModelError(
            f'initializer "{missing}" is not among the graph\'s inputs, where IR version '
            f"{proto.ir_version} wants it",
            hint="set ir_version to 4",
        )


def _finding(proto: onnx.ModelProto, content: bytes) -> str:
    """What ``onnx.checker`` says of a model with these bytes, if it is small."""
    # it looks for external data in the wrong directory
    if content and b"location" not in content and not _ask_checker(content):
        return ""
    return _finding_without_weights(_without_weights(proto))


def _finding_without_weights(copy: onnx.ModelProto) -> str:
    """The same of a copy whose weights were left out; its initializers become inputs."""
    stated = {info.name for info in copy.graph.input}
    for tensor in copy.graph.initializer:  # the checker would miss the weights
        if tensor.name not in stated:
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    del copy.graph.initializer[:]
    # it looks for external data in the working directory
    for tensor in list(external_tensors(copy)):
        tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    # A rank that is not stated is unknown, which does no harm; the checker wants one of what enters
    # and leaves.
    for info in (*copy.graph.input, *copy.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    said = _ask_checker(copy)
    if said and _spell_domains_out(copy.graph):
        return _ask_checker(copy)
    return said


def _ask_checker(model: onnx.ModelProto | bytes) -> str:
    try:
        onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType] - onnx leaves PathLike's parameter open
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        return " ".join(str(error).split())
    return ""


def _spell_domains_out(graph: onnx.GraphProto) -> bool:
    """Write "" for "ai.onnx", which means the same, but not to the checker; returns whether
    there was one.
    """
    found = False
    for node in graph.node:
        if node.domain == "ai.onnx":
            node.domain, found = "", True
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found |= _spell_domains_out(body)
    return found
