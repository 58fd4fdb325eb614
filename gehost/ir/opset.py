"""Raising a model's opset with ONNX's version converter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator

import onnx
import onnx.defs
import onnx.version_converter
from onnx.onnx_cpp2py_export.version_converter import ConvertError
from onnx.shape_inference import InferenceError

from gehost.errors import ModelError, UsageError
from gehost.ir.files.skeleton import skeleton

_SMALL = 1024
"""Elements of an initializer that an adapter may read, such as axes, pads and scales."""


def raise_opset(proto: onnx.ModelProto, version: int) -> None:
    """Raise a model's opset, and its IR version as required, in place.

    Inputs, outputs, weights, types and all that the file keeps beside nodes stay; operators that
    did not change are the same nodes. A converted operator has the name and the annotations of the
    node that made its first output. Operators of other domains stay as they are.

    Args:
        proto: the model; inputs that are initializers become plain initializers where its IR
            version was below 4, in which no caller can override them.
        version: of ONNX's own operators.

    Raises:
        UsageError: the model has a newer opset, or the installed onnx does not know this one.
        ModelError: the model calls functions, an operator cannot be converted, one of another
            domain has a body, a Hardmax would change, or annotations would be lost. The model may
            be half converted then.
    """
    imports = [entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    current = max((entry.version for entry in imports), default=None)
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise UsageError(f"the installed onnx knows opsets up to {newest}")
    if current is None:
        raise UsageError("the model imports no operators of ONNX's own")
    if version < current:
        raise UsageError(f"the model has opset {current}, and an opset can only be raised")
    if version == current:
        return
    _refuse_calls(proto)
    _refuse_bodies(proto, current)
    _refuse_hardmax(proto, current, version)
    lean = skeleton(proto, lambda tensor: math.prod(tensor.dims) <= _SMALL)
    try:
        converted = onnx.version_converter.convert_version(lean, version)
    except (ConvertError, InferenceError, RuntimeError) as error:
        raise _refusal(lean, version, str(error)) from error
    _take_nodes(proto.graph, converted.graph)
    if current <= 10 < version:
        _keep_resizes(proto.graph)
    for entry in imports:
        entry.version = version
    least = onnx.helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    raised = max(proto.ir_version, least)
    if proto.ir_version < 4 <= raised:  # IR 3 wants initializers among the inputs
        constants = {tensor.name for tensor in proto.graph.initializer}
        kept = [entry for entry in proto.graph.input if entry.name not in constants]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
    proto.ir_version = raised


def _refuse_calls(proto: onnx.ModelProto) -> None:
    """Refuse a function call, since its body has its own opset."""
    functions = {(entry.domain, entry.name, entry.overload) for entry in proto.functions}
    for node in _nodes(proto.graph) if functions else ():
        if (node.domain, node.op_type, node.overload) in functions:
            raise ModelError(
                f"node {_label(node)} calls the function {node.domain}.{node.op_type}, whose "
                "body cannot be converted",
                hint="inline functions (--inline-functions)",
            )


def _refuse_bodies(proto: onnx.ModelProto, opset: int) -> None:
    """Refuse a body of another domain's operator, which the converter keeps."""
    for node in _nodes(proto.graph):
        own = node.domain in ("", "ai.onnx")
        bodies = (body for entry in node.attribute for body in (entry.g, *entry.graphs))
        if not own and any(body.node for body in bodies):
            raise ModelError(
                f"node {_label(node)} ({node.domain}::{node.op_type}) has a body of opset {opset}, "
                "which ONNX's version converter does not convert"
            )


def _refuse_hardmax(proto: onnx.ModelProto, current: int, version: int) -> None:
    """Refuse a Hardmax from below 13, which the converter gives another meaning.

    It looked at all axes from ``axis`` on as one; since 13 it looks at one axis.
    """
    for node in _nodes(proto.graph) if current < 13 <= version else ():
        if node.op_type == "Hardmax" and node.domain in ("", "ai.onnx"):
            raise ModelError(
                f"ONNX's version converter cannot convert node {_label(node)} (Hardmax): its "
                "result changes at opset 13"
            )


def _keep_resizes(graph: onnx.GraphProto) -> None:
    """Set what Resize did up to opset 10, later no default."""
    meant = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    for node in _nodes(graph):
        if node.op_type == "Resize" and node.domain in ("", "ai.onnx"):
            given = {entry.name for entry in node.attribute}
            node.attribute.extend(
                onnx.helper.make_attribute(name, value)
                for name, value in meant.items()
                if name not in given
            )


def _refusal(lean: onnx.ModelProto, version: int, message: str) -> ModelError:
    """Return the error that names the first node that cannot be converted."""
    nodes, what = list(lean.graph.node), "the model"
    del lean.graph.output[:], lean.graph.value_info[:]
    converted, failed = 0, len(nodes) + 1  # numbers of nodes from the beginning
    while failed - converted > 1:
        count = (converted + failed) // 2
        del lean.graph.node[:]
        lean.graph.node.extend(nodes[:count])
        try:
            onnx.version_converter.convert_version(lean, version)
            converted = count
        except (ConvertError, InferenceError, RuntimeError) as error:
            failed, message = count, str(error)
            what = f"node {_label(nodes[count - 1])} ({nodes[count - 1].op_type})"
    reason = " ".join(message.rpartition("` failed: ")[2].split())
    return ModelError(f"ONNX's version converter cannot convert {what}: {reason}")


def _take_nodes(graph: onnx.GraphProto, converted: onnx.GraphProto) -> None:
    """Give a graph its converted copy's nodes and the initializers they use.

    Raises:
        ModelError: annotations of a node would be lost.
    """
    before: dict[Hashable, list[onnx.NodeProto]] = {}
    for node in graph.node:
        before.setdefault(_identity(node), []).append(node)
    nodes: list[onnx.NodeProto] = []
    for node in converted.node:
        same = before.get(_identity(node))
        old = same.pop(0) if same else None
        if old is None:
            node.ClearField("name")  # the converter copies the name of the converted node
        else:
            _keep_annotations(old, node)
        nodes.append(node)
    for node in itertools.chain.from_iterable(before.values()):
        if node.doc_string or node.metadata_props or node.device_configurations:
            raise ModelError(
                f"node {_label(node)} ({node.op_type}) has annotations, and no converted node "
                "makes its first output",
                hint="remove its metadata_props, device_configurations and doc_string",
            )
    del graph.node[:]
    graph.node.extend(nodes)
    held = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend([each for each in converted.initializer if each.name not in held])


def _keep_annotations(old: onnx.NodeProto, new: onnx.NodeProto) -> None:
    """Restore a node's fields that the converter drops, in bodies too."""
    for field in ("name", "domain", "overload", "doc_string"):
        new.ClearField(field)
        if old.HasField(field):
            setattr(new, field, getattr(old, field))
    for field in ("metadata_props", "device_configurations"):
        new.ClearField(field)
        getattr(new, field).extend(getattr(old, field))
    attributes = {entry.name: entry for entry in old.attribute}
    for entry in new.attribute:
        given = attributes.get(entry.name)
        if given is None:
            continue
        if given.doc_string:
            entry.doc_string = given.doc_string
        bodies = [(given.g, entry.g)] if given.HasField("g") else []
        for mine, theirs in (*bodies, *zip(given.graphs, entry.graphs, strict=True)):
            body = onnx.GraphProto()
            body.CopyFrom(mine)
            _take_nodes(body, theirs)
            theirs.CopyFrom(body)


def _first_output(node: onnx.NodeProto) -> str:
    return next(iter(filter(None, node.output)), "")


def _identity(node: onnx.NodeProto) -> Hashable:
    """Return a key that a node and its converted copy share.

    The key is the first output, or else the operator and its inputs.
    """
    return _first_output(node) or (node.domain, node.op_type, *node.input)


def _label(node: onnx.NodeProto) -> str:
    return f'"{node.name or _first_output(node)}"'


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)
