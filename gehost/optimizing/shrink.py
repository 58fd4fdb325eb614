"""Remove what no runtime reads: notes of exporters, types of weights, equal weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx

from gehost.ir.node import op_name

_LARGE = 1 << 10
"""Bytes of a weight from which sharing it pays; a runtime may fuse a small one of its own."""


_LENGTHS = 2
"""Bytes, at most, by which the lengths of a name and its node grow, in any usual file."""
_WEIGHTS_ALONE = 4
"""The first IR version in which a weight need not be an input."""


def shrink(model: onnx.ModelProto) -> None:
    """Remove metadata and texts of graphs, nodes, values and weights; let equal weights be one.

    What describes the model stays: its own metadata, its text, names of inputs and outputs.
    ``Constant`` nodes of the main graph become weights, which take fewer bytes, and what an
    ``Identity`` copies into an output has the output's name from the start. Convolutions without
    groups and dilations leave these out.
    """
    own = {op_name(function.domain, function.name) for function in model.functions}
    for graph in _graphs(model.graph):
        _remove_notes(graph)
        for node in graph.node:
            if op_name(node.domain, node.op_type) == "Conv" and "Conv" not in own:
                _remove_ones(node)
    if model.ir_version >= _WEIGHTS_ALONE:
        _constants_to_weights(model.graph)
    for function in model.functions:
        function.ClearField("doc_string")
        function.ClearField("metadata_props")
        for node in function.node:
            _remove_notes_of_node(node)
    _share_weights(model.graph)
    _remove_copies(model.graph)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node:
                    yield from _graphs(body)


def _remove_notes(graph: onnx.GraphProto) -> None:
    graph.ClearField("metadata_props")
    weights = {tensor.name for tensor in graph.initializer}
    types = [value for value in graph.value_info if value.name not in weights]
    if len(types) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(types)
    for node in graph.node:
        _remove_notes_of_node(node)
    for value in (*graph.value_info, *graph.input, *graph.output):
        value.ClearField("doc_string")
        value.ClearField("metadata_props")
    for tensor in graph.initializer:
        tensor.ClearField("doc_string")
        tensor.ClearField("metadata_props")


def _remove_notes_of_node(node: onnx.NodeProto) -> None:
    node.ClearField("doc_string")
    node.ClearField("metadata_props")
    for attribute in node.attribute:
        attribute.ClearField("doc_string")


def _remove_ones(node: onnx.NodeProto) -> None:
    """Remove the attributes that say of a convolution what it does without them."""
    rest = [
        attribute
        for attribute in node.attribute
        if not (attribute.name == "group" and attribute.i == 1)
        and not (attribute.name == "dilations" and {*attribute.ints} == {1})
    ]
    if len(rest) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(rest)


def _constants_to_weights(graph: onnx.GraphProto) -> None:
    outputs = {value.name for value in graph.output}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        tensor = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        if node.op_type != "Constant" or node.domain or tensor is None or node.output[0] in outputs:
            nodes.append(node)
            continue
        weight = graph.initializer.add()
        weight.CopyFrom(tensor)
        weight.name = node.output[0]
    if len(nodes) < len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _share_weights(graph: onnx.GraphProto) -> None:
    """Keep one of several equal large weights, unless it is an input or output of the graph.

    OpenVINO fuses no bias into a convolution that another one reads, too.
    """
    visible = {value.name for value in (*graph.input, *graph.output)}
    for body in _graphs(graph):
        for node in body.node:
            if node.op_type in ("Conv", "ConvTranspose"):
                visible.update(node.input[2:])
    visible |= {name for body in _graphs(graph) if body is not graph for name in _defined_in(body)}
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    for tensor in graph.initializer:
        if tensor.name in visible or not _is_large(tensor):
            continue
        other = first.setdefault(_contents(tensor), tensor.name)
        if other != tensor.name:
            same[tensor.name] = other
    if not same:
        return
    for item in _graphs(graph):
        for node in item.node:
            if any(name in same for name in node.input):
                node.input[:] = [same.get(name, name) for name in node.input]
    retained = [tensor for tensor in graph.initializer if tensor.name not in same]
    del graph.initializer[:]
    graph.initializer.extend(retained)


def _remove_copies(graph: onnx.GraphProto) -> None:
    """Remove each ``Identity`` that only gives the result of another node an output's name.

    It stays where a body gives a tensor that name, or where a longer name takes more bytes.
    """
    if graph.quantization_annotation or any(node.device_configurations for node in graph.node):
        return  # they refer to tensors by name
    visible, local = {value.name for value in (*graph.input, *graph.output)}, set[str]()
    for body in _graphs(graph):
        if body is not graph:
            local.update(_defined_in(body))
            visible.update(name for node in body.node for name in node.input)
            visible.update(value.name for value in body.output)
    uses = Counter(name for node in graph.node for name in (*node.input, *node.output))
    results = {name for node in graph.node for name in node.output}
    outputs = {value.name for value in graph.output}
    names: dict[str, str] = {}
    for place, node in reversed([*enumerate(graph.node)]):
        if node.op_type != "Identity" or node.domain:
            continue
        (source,), (output,) = node.input, node.output
        longer = max(len(output.encode()) - len(source.encode()), 0)
        cost = (longer + _LENGTHS) * (uses[source] - 1) if longer else 0
        if (
            output in outputs - local
            and source in results - visible
            and source not in names
            and cost <= node.ByteSize()
        ):
            names[source] = output
            del graph.node[place]
    if not names:
        return
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    types = [value for value in graph.value_info if value.name not in names]
    del graph.value_info[:]
    graph.value_info.extend(types)


def _defined_in(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a body gives, which may hide a weight."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output)


def _is_large(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.raw_data) >= _LARGE


def _contents(tensor: onnx.TensorProto) -> object:
    kind = (tensor.data_type, tuple(tensor.dims))
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return kind, tuple(sorted((entry.key, entry.value) for entry in tensor.external_data))
    import hashlib  # `from gehost import *` comes by here

    return kind, hashlib.sha256(tensor.raw_data).digest()
