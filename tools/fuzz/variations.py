"""Changes to a model that change no match: other names, another legal order, an Identity elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import onnx

from tools.fuzz.oracle import captured


def renamed(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Callable[[str], str]]:
    """Every tensor under another name; also, how to get the old one."""
    copy = _copy(model)
    _rename(copy.graph)
    return copy, lambda name: name.removeprefix("other/")


def _rename(graph: onnx.GraphProto) -> None:
    for entry in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        entry.name = f"other/{entry.name}"
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [f"other/{name}" if name else "" for name in names]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g)


def reordered(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """The nodes in another topological order."""
    copy = _copy(model)
    waiting = list(copy.graph.node)
    results = {name for node in waiting for name in node.output if name}
    ordered: list[onnx.NodeProto] = []
    outcome: set[str] = set()
    while waiting:
        ready = [
            node for node in waiting if ((set(node.input) | captured(node)) & results) <= outcome
        ]
        node = rng.choice(ready)
        waiting.remove(node)
        ordered.append(node)
        outcome.update(node.output)
    del copy.graph.node[:]
    copy.graph.node.extend(ordered)
    return copy


def detoured(model: onnx.ModelProto, apart: Collection[str], rng: random.Random) -> onnx.ModelProto:
    """An Identity before one input of a node that is neither one of these operators nor reads in a body."""
    copy = _copy(model)
    places = [
        (at, slot)
        for at, node in enumerate(copy.graph.node)
        for slot, name in enumerate(node.input)
        if name and node.op_type not in apart
    ]
    if places:
        at, slot = rng.choice(places)
        node = copy.graph.node[at]
        result = onnx.helper.make_node("Identity", [node.input[slot]], ["detour"])
        node.input[slot] = "detour"
        copy.graph.node.insert(at, result)
    return copy


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
