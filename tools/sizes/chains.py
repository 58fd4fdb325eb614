"""A node whose sizes are read behind it, compiled without vendors: the numbers must stay."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference

from gehost import Host, HostOptions
from gehost.ir.schemas import RANDOM
from gehost.ir.types import Dim
from tools.sizes.cases import Case
from tools.sizes.sweep import drawn
from tools.sizes.witnesses import onnx_shapes, session

RIGHT, WRONG, SAME, IDLE = "right", "wrong", "right, nothing folded", "does not run before"

_DRAWS_NUMBERS = RANDOM | {"Dropout"}


@dataclass
class Chain:
    """What became of a chain."""

    number: int
    op: str
    verdict: str
    about: str = ""
    model: onnx.ModelProto | None = None


@cache
def _host() -> Host:
    return Host(HostOptions(vendors=[], plugins=False))


def run(number: int) -> Chain:
    """Draw a chain, compile it, and run both in ONNX Runtime."""
    op, _, case = drawn(number)
    return Chain(number, op, "not drawn") if case is None else run_case(number, case)


def run_case(number: int, case: Case) -> Chain:
    """Read a size behind a case; ``number`` seeds the nodes that do."""
    op, opset, rng = case.op, case.opset, random.Random(f"chain {number}")
    model = None if case.node.domain else build(case, rng)
    if model is None:
        return Chain(number, op, "no tensor that is known")
    try:
        before = session(model).run(None, case.feeds())
    except Exception:  # noqa: BLE001 - the runtime raises whatever it likes
        return Chain(number, op, IDLE)
    try:
        compiled, report = _host().run(model)
    except Exception as error:  # noqa: BLE001 - whatever it is, the model ran before
        return Chain(number, op, WRONG, f"opset {opset}: is not compiled: {error!r}", model)
    changed = sum(report.cleanup.values()) > 0
    try:
        after = session(compiled).run(None, case.feeds())
    except Exception as error:  # noqa: BLE001 - as above
        return Chain(number, op, WRONG, f"opset {opset}: {error}", model)
    random_numbers = case.node.op_type in _DRAWS_NUMBERS
    if all(_equal(a, b, random_numbers) for a, b in zip(before, after, strict=True)):
        return Chain(number, op, RIGHT if changed else SAME)
    shapes = [(np.shape(a), np.shape(b)) for a, b in zip(before, after, strict=True)]
    return Chain(number, op, WRONG, f"opset {opset}: {before}, then {after}; {shapes}"[:500], model)


def _equal(a: Any, b: Any, random_numbers: bool) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if random_numbers or a.dtype == object or a.dtype.kind not in "fc":
        return random_numbers or np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)  # folded windows are rounded


def build(case: Case, rng: random.Random) -> onnx.ModelProto | None:
    """The case with nodes that read a size of one output; None where there is no such output."""
    model = case.model()
    try:
        declared = onnx_shapes(case, model)
    except onnx.shape_inference.InferenceError:
        declared = [None] * len(case.node.output)
    slots = [slot for slot, name in enumerate(case.node.output) if name]
    entries = [slot for slot in slots if declared[slot] is not None]
    if not slots:
        return None
    slot = rng.choice(entries or slots)
    name, shape = case.node.output[slot], declared[slot]
    graph = model.graph
    del graph.output[:]
    element = _element_type(model, name)
    nodes, outputs = _tail(name, shape if element else None, case.opset, rng)
    wrapped = rng.random()
    if wrapped < 0.12 and not case.before:
        _into_branch(model, nodes, outputs, element)
    elif wrapped < 0.24 and not case.before and not case.constant:
        _into_function(model, case, name)
        graph.node.extend(nodes)
    else:
        graph.node.extend(nodes)
        if shape is not None and rng.random() < 0.3:
            _declare(model, name, shape, rng)
    for tensor in _constants(shape, rng):
        graph.initializer.append(tensor)
    for output in outputs:
        kind = 1 if nodes[-1].op_type == "ReduceSum" else 7
        if nodes[0].op_type in ("Expand", "Reshape") and output == "r":
            kind = element
        graph.output.append(onnx.helper.make_tensor_value_info(output, kind, None))
    return model


def _constants(shape: tuple[Dim, ...] | None, rng: random.Random) -> list[onnx.TensorProto]:
    sizes = [dim if isinstance(dim, int) and rng.random() < 0.8 else 1 for dim in shape or ()]
    retained = [dim if isinstance(dim, int) else 0 for dim in shape or ()]
    return [
        onnx.numpy_helper.from_array(np.array(sizes, np.int64), "expand_to"),
        onnx.numpy_helper.from_array(np.array(retained, np.int64), "reshape_to"),
        onnx.numpy_helper.from_array(np.array(0, np.int64), "first"),
    ]


def _tail(
    name: str, shape: tuple[Dim, ...] | None, opset: int, rng: random.Random
) -> tuple[list[onnx.NodeProto], list[str]]:
    node = onnx.helper.make_node
    kinds = ["shape", "size", "sum", "gather"]
    if shape is not None and all(isinstance(dim, int) for dim in shape):
        kinds += ["expand", "expand", "reshape"]
    kind = rng.choice(kinds)
    if kind == "size":
        return [node("Size", [name], ["r"])], ["r"]
    if kind == "expand" and opset >= 8:
        return [node("Expand", [name, "expand_to"], ["r"]), node("Shape", ["r"], ["t"])], ["r", "t"]
    if kind == "reshape":
        return [node("Reshape", [name, "reshape_to"], ["q"]), node("Identity", ["q"], ["r"])], ["r"]
    read = node("Shape", [name], ["s"])
    if kind == "gather":
        return [read, node("Gather", ["s", "first"], ["r"])], ["r"]
    if kind == "sum" and opset >= 9:
        one = onnx.numpy_helper.from_array(np.ones(1, np.float32))
        fill = node("ConstantOfShape", ["s"], ["c"], value=one)
        return [read, fill, node("ReduceSum", ["c"], ["r"], keepdims=0)], ["r"]
    return [read, node("Identity", ["s"], ["r"])], ["r"]


def _declare(model: onnx.ModelProto, name: str, shape: tuple[Dim, ...], rng: random.Random) -> None:
    """State sizes of the tensor in the file, as an exporter would, or others."""
    dims = [
        dim + rng.choice([0, 0, 1]) if isinstance(dim, int) else rng.choice([dim, 1, 2])
        for dim in shape
    ]
    kind = _element_type(model, name)
    if kind:
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, dims))


def _element_type(model: onnx.ModelProto, name: str) -> int:
    """The element type that onnx infers of a tensor; 0 where it infers none."""
    entries = onnx.shape_inference.infer_shapes(model).graph.value_info
    return next((e.type.tensor_type.elem_type for e in entries if e.name == name), 0)


def _into_branch(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], outputs: list[str], element: int
) -> None:
    """Put the nodes into both bodies of an If."""
    graph = model.graph
    bodies: dict[str, onnx.GraphProto] = {}
    for place, key in enumerate(("then_branch", "else_branch")):
        body = onnx.GraphProto(name=key)
        names = {n: f"{n}__{place}" for part in (*graph.node, *nodes) for n in part.output if n}
        for part in (*graph.node, *nodes):
            copy = body.node.add()
            copy.CopyFrom(part)
            copy.input[:] = [names.get(entry, entry) for entry in part.input]
            copy.output[:] = [names.get(entry, entry) for entry in part.output]
        kinds = [1 if nodes[-1].op_type == "ReduceSum" else 7] * len(outputs)
        if nodes[0].op_type in ("Expand", "Reshape"):
            kinds[0] = element
        body.output.extend(
            onnx.helper.make_tensor_value_info(names[output], kind, None)
            for output, kind in zip(outputs, kinds, strict=True)
        )
        bodies[key] = body
    del graph.node[:]
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "condition"))
    graph.node.append(onnx.helper.make_node("If", ["condition"], outputs, **bodies))


def _into_function(model: onnx.ModelProto, case: Case, name: str) -> None:
    """Put the node into a function of the model."""
    graph = model.graph
    inputs = [entry for entry in dict.fromkeys(case.node.input) if entry]
    nodes = list(graph.node)
    function = onnx.helper.make_function("f", "F", inputs, [name], nodes, list(model.opset_import))
    model.functions.append(function)
    model.opset_import.append(onnx.helper.make_opsetid("f", 1))
    del graph.node[:]
    graph.node.append(onnx.helper.make_node("F", inputs, [name], domain="f"))
