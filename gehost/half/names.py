"""Names of values in a graph and in the bodies of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import onnx

from gehost.ir.bodies import bodies_of, lists_of

NAMED = 6
"""Nodes or weights that a note names."""


def first_of(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def has_body(node: onnx.NodeProto) -> bool:
    """Whether a node runs graphs of its own."""
    return any(entry.HasField("g") for entry in node.attribute)


def handed_out(node: onnx.NodeProto) -> list[tuple[str, list[str]]]:
    """Return each result of a node with bodies, and the outputs of its bodies that make it."""
    skip = 1 if node.op_type == "Loop" else 0  # its condition
    return [
        (result, [info.name for body in bodies_of(node) for info in body.output[place : place + 1]])
        for place, result in enumerate(node.output, skip)
    ]


class State(NamedTuple):
    """What a Loop or Scan hands from step to step."""

    first: str
    inner: str
    """The input of its body."""
    made: str
    """The output of its body."""
    last: str


def states_of(node: onnx.NodeProto) -> list[State]:
    """Return the states of a Loop or Scan; none of other nodes."""
    if node.op_type not in ("Loop", "Scan"):
        return []
    (body,) = bodies_of(node)
    before = max(0, len(node.input) - len(body.input))  # of a Scan of opset 8
    scanned = sum(entry.i for entry in node.attribute if entry.name == "num_scan_inputs")
    inner, first = [info.name for info in body.input], node.input[before:]
    ends = len(inner) - scanned
    begins = 2 if node.op_type == "Loop" else 0  # its count and its condition
    return [
        State(*operands, made, last)
        for operands, (last, (made,)) in zip(
            zip(first[begins:ends], inner[begins:ends], strict=True), handed_out(node), strict=False
        )
    ]


def body_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes in the bodies of a node, and in theirs."""
    for body in bodies_of(node):
        for nodes in lists_of(body.node):
            yield from nodes


def read_names(graph: Any) -> Counter[str]:
    """Return how often each name is read in a graph or function, also by its bodies."""
    read = Counter(name for nodes in lists_of(graph.node) for node in nodes for name in node.input)
    outputs = [*graph.output]
    outputs += [
        info
        for nodes in lists_of(graph.node)
        for node in nodes
        for entry in node.attribute
        for info in entry.g.output
    ]
    read.update(info if isinstance(info, str) else info.name for info in outputs)
    return read


def name_as_before(graph: Any, constants: Mapping[str, str]) -> None:
    """Drop constants that nothing reads in float32; their half form takes the name."""
    read = read_names(graph)
    unread = {name for name in constants.values() if not read[name]}
    names = {form: name for form, name in constants.items() if name in unread}
    selected: set[str] = set()
    for nodes in [*lists_of(graph.node)]:
        dropped: list[int] = []
        for place, node in enumerate(nodes):
            if node.op_type != "Constant":
                continue
            # bodies beside each other may hold a form each
            new = names.get(node.output[0], "")
            if node.output[0] in unread:
                dropped.append(place)
            elif new and new not in selected:
                selected.add(new)
            elif new:
                names.pop(node.output[0])
        for place in reversed(dropped):  # in place: the lists of bodies are those of these nodes
            del nodes[place]
    for nodes in lists_of(graph.node):
        for node in nodes:
            for body in (node.input, node.output):
                for slot, name in enumerate(body):
                    if name in names:
                        body[slot] = names[name]
    bodies = [
        entry.g for nodes in lists_of(graph.node) for node in nodes for entry in node.attribute
    ]
    for body in (graph, *bodies):
        for tensor in getattr(body, "initializer", ()):
            tensor.name = names.get(tensor.name, tensor.name)
        _declare_constants(body)


def _declare_constants(graph: Any) -> None:
    """Let a graph declare its constants as they are, and none that it lost."""
    infos: list[tuple[int, Any]] = [*enumerate(graph.value_info)]
    kinds = {tensor.name: tensor.data_type for tensor in getattr(graph, "initializer", ())}
    for node in graph.node:
        for entry in node.attribute if node.op_type == "Constant" else ():
            if entry.HasField("t"):
                kinds[node.output[0]] = entry.t.data_type
    results = {name for node in graph.node for name in node.output}.union(kinds)
    for place, info in reversed(infos):
        if info.name not in results:
            del graph.value_info[place]
        elif info.name in kinds and info.type.HasField("tensor_type"):
            info.type.tensor_type.elem_type = kinds[info.name]


def rename(nodes: list[onnx.NodeProto], name: str, other: str) -> None:
    """Give a value another name, in bodies, too."""
    for item in lists_of(nodes):
        for node in item:
            for names in (node.input, node.output):
                for slot, current in enumerate(names):
                    if current == name:
                        names[slot] = other
    for node in nodes:
        for entry in node.attribute:
            for info in entry.g.output if entry.HasField("g") else ():
                if info.name == name:
                    info.name = other


def rename_captured(node: onnx.NodeProto, name: str, other: str) -> None:
    """Let the bodies of a node read another value in place of one around them."""
    for item in body_nodes(node):
        for slot, current in enumerate(item.input):
            if current == name:
                item.input[slot] = other
