"""Convolution in float64, which ONNX Runtime's kernel lacks: a sum over the kernel's positions.

At each position a strided Slice shifts the input, which the weights of that position multiply.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.ir.tensors import from_numpy, to_numpy

_FIRST_OPSET = 13
_MOST_POSITIONS = 300
_LAST = 2**62
"""An end of Slice beyond every axis."""


def decompose_convolutions(model: onnx.ModelProto, base_dir: str | None) -> None:
    """Replace each Conv with constant weights in the main graph of a model of float64."""
    opset = next((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), 0)
    if opset < _FIRST_OPSET or not any(node.op_type == "Conv" for node in model.graph.node):
        return
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        tensor = weights.get(node.input[1]) if node.op_type == "Conv" else None
        arguments = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if tensor is None or not _is_simple(arguments, tensor):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            nodes.append(copy)
        else:
            nodes.extend(_positions(node, arguments, to_numpy(tensor, base_dir), model.graph))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _is_simple(arguments: dict[str, Any], weights: onnx.TensorProto) -> bool:
    """Whether pads are stated and the kernel is small."""
    positions = int(np.prod(weights.dims[2:]))
    return arguments.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID") and (
        0 < positions <= _MOST_POSITIONS and len(weights.dims) > 2
    )


def _positions(
    node: onnx.NodeProto, arguments: dict[str, Any], weights: Any, graph: onnx.GraphProto
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of one convolution: weights [M, C/group, …], of any number of axes."""
    name, group = node.output[0], int(arguments.get("group", 1))
    outer, inner, *kernel = weights.shape
    axes = len(kernel)
    strides = arguments.get("strides", [1] * axes)
    dilations = arguments.get("dilations", [1] * axes)
    pads = arguments.get("pads", [0] * 2 * axes)

    def constant(label: str, values: Any, dtype: Any = np.int64) -> str:
        full = f"{name} ({label})"
        graph.initializer.append(from_numpy(np.asarray(values, dtype), full))
        return full

    def result(op: str, label: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
        return onnx.helper.make_node(op, list(inputs), [f"{name} ({label})"], **attributes)

    around = [0, 0, *pads[:axes], 0, 0, *pads[axes:]]
    yield result("Pad", "padded", node.input[0], constant("pads", around))
    spatial = constant("axes", range(2, 2 + axes))
    steps = constant("steps", strides)
    in_groups = constant("in groups", [0, group, inner, -1])
    products: list[str] = []
    for place in itertools.product(*map(range, kernel)):
        label = " ".join(map(str, place))
        starts = [at * dilation for at, dilation in zip(place, dilations, strict=True)]
        # the same number of elements is left out behind the last position as before the first
        behind = [
            (size - 1 - at) * dilation
            for at, size, dilation in zip(place, kernel, dilations, strict=True)
        ]
        ends = [-item if item else _LAST for item in behind]
        part = weights[(slice(None), slice(None), *place)].reshape(group, outer // group, inner)
        yield result(
            "Slice",
            f"shifted {label}",
            f"{name} (padded)",
            constant(f"starts {label}", starts),
            constant(f"ends {label}", ends),
            spatial,
            steps,
        )
        yield result("Reshape", f"flat {label}", f"{name} (shifted {label})", in_groups)
        yield result(
            "Einsum",
            f"product {label}",
            f"{name} (flat {label})",
            constant(f"weights {label}", part, np.float64),
            equation="ngcl,gmc->ngml",
        )
        products.append(f"{name} (product {label})")
    yield result("Sum", "sum", *products)
    first = f"{name} (shifted {' '.join(['0'] * axes)})"
    yield result("Shape", "shape", first)
    yield result(
        "Slice",
        "sizes",
        f"{name} (shape)",
        constant("two", [2]),
        constant("end", [_LAST]),
        constant("zero", [0]),
    )
    yield result("Concat", "full", constant("outer", [0, outer]), f"{name} (sizes)", axis=0)
    biased = len(node.input) > 2 and node.input[2]
    whole = f"{name} (whole)" if biased else name
    yield onnx.helper.make_node("Reshape", [f"{name} (sum)", f"{name} (full)"], [whole])
    if biased:
        column = constant("column", [outer, *[1] * axes])
        yield result("Reshape", "bias", node.input[2], column)
        yield onnx.helper.make_node("Add", [whole, f"{name} (bias)"], [name])
