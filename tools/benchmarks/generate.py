"""Graphs of any size to measure on: decoder-like blocks of raw ONNX operators, each with its own weights.

``decoder``, a block of 17 nodes, of which 16 are fusion sites::

    x → ReduceMean → Sub → Pow → ReduceMean → Add → Sqrt → Div → Mul → Add    LayerNorm, 9 nodes
      → MatMul → Add                                                          projection, 2 nodes
      → Div → Erf → Add → Mul → Mul                                           Gelu, 5 nodes
      → Add x → x                                                             residual

``siblings``, a group of 2 · 64 + 1 nodes: 64 projections of one tensor, and their sum. In ``mirrored``, each second projection
has the operands of its Add swapped, so that no matcher can take one node for both halves of a pair.

``styles``, a block of 18 nodes with one site for each of the five rules that are said in three styles::

    x → Transpose → Transpose → Add 0 → Cast → Cast → MatMul → Add → Relu → LayerNorm, 9 nodes → Add x → x

``wide_concat``, ``wide_split``, ``wide_equal``: one node with as many inputs, or outputs, as is asked for.

``external``: a chain of large projections whose weights lie in a file of their own. The file is sparse: it has its full size,
reads as zeros, and takes disk space only in copies of it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.benchmarks.figures import STYLED

OPSET, IR_VERSION = 20, 9
WIDTH = 8
BLOCK = 17
STYLES_BLOCK = 18
FAN_OUT = 64
GROUP = 2 * FAN_OUT + 1


class _Writer:
    """Nodes and weights of a graph from ``x`` on."""

    def __init__(self, width: int = WIDTH) -> None:
        self.width = width
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def constant(self, name: str, value: Any, dtype: type = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def random(self, *shape: int) -> str:
        return self.constant(f"weight_{len(self.weights)}", self._random.normal(0, 0.3, shape))

    def project(self, x: str, *, mirrored: bool = False) -> str:
        product, bias = (
            self.add("MatMul", x, self.random(self.width, self.width)),
            self.random(self.width),
        )
        return self.add("Add", bias, product) if mirrored else self.add("Add", product, bias)

    def normalize(self, x: str, axes: str, two: str, epsilon: str) -> str:
        """The nine nodes of a LayerNormalization over the last axis."""
        add = self.add
        centred = add("Sub", x, add("ReduceMean", x, axes, keepdims=1))
        variance = add("ReduceMean", add("Pow", centred, two), axes, keepdims=1)
        normal = add("Div", centred, add("Sqrt", add("Add", variance, epsilon)))
        return add("Add", add("Mul", normal, self.random(self.width)), self.random(self.width))

    def model(self, result: str, *, grows: bool = False) -> onnx.ModelProto:
        """From ``x`` to ``result``; ``grows``: its first size is another one than the batch."""
        rows = {"x": "batch", result: "rows" if grows else "batch"}
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, self.width])]
            for name, size in rows.items()
        ]
        graph = helper.make_graph(self.nodes, "benchmark", *ends, self.weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )


def decoder(nodes: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A model of about ``nodes`` nodes, and how often each rule finds something in it."""
    writer, blocks = _Writer(), max(1, round(nodes / BLOCK))
    add = writer.add
    axes = writer.constant("axes", [-1], np.int64)
    two, epsilon, root, one, half = (
        writer.constant(name, value)
        for name, value in {
            "two": 2,
            "epsilon": 1e-5,
            "root_two": 2**0.5,
            "one": 1,
            "half": 0.5,
        }.items()
    )
    x = "x"
    for _ in range(blocks):
        y = writer.project(writer.normalize(x, axes, two, epsilon))
        y = add("Mul", add("Mul", y, add("Add", add("Erf", add("Div", y, root)), one)), half)
        x = add("Add", y, x)
    return writer.model(x), {"matmul_add": blocks, "layer_norm": blocks, "gelu": blocks}


def siblings(nodes: int, *, mirrored: bool = False) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A model of about ``nodes`` nodes in groups of 64 projections of one tensor: 32 pairs a group."""
    writer, groups = _Writer(), max(1, round(nodes / GROUP))
    x = "x"
    for _ in range(groups):
        x = writer.add(
            "Sum", *(writer.project(x, mirrored=mirrored and i % 2 == 1) for i in range(FAN_OUT))
        )
    return writer.model(x), {"siblings": groups * FAN_OUT // 2}


def styles(nodes: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A model of about ``nodes`` nodes, and how often each of the five rules finds something in it."""
    writer, blocks = _Writer(), max(1, round(nodes / STYLES_BLOCK))
    add = writer.add
    axes = writer.constant("axes", [-1], np.int64)
    two, epsilon, zero = (
        writer.constant(name, value)
        for name, value in {"two": 2, "epsilon": 1e-5, "zero": 0}.items()
    )
    x = "x"
    for _ in range(blocks):
        y = add("Transpose", add("Transpose", x, perm=[1, 0]), perm=[1, 0])
        y = add("Add", y, zero)
        y = add("Cast", add("Cast", y, to=TensorProto.FLOAT), to=TensorProto.FLOAT)
        y = add("Relu", writer.project(y))
        x = add("Add", writer.normalize(y, axes, two, epsilon), x)
    return writer.model(x), dict.fromkeys(STYLED, blocks)


def wide_concat(inputs: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A Concat of so many tensors and a Relu, which a pass of ``vendors/`` moves before it."""
    writer = _Writer()
    results = [writer.add("LeakyRelu", "x", alpha=0.1 + number) for number in range(inputs)]
    joined = writer.add("Concat", *results, axis=0)
    return writer.model(writer.add("Relu", joined), grows=True), {"wide_concat": 1}


def wide_split(outputs: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A Concat that reads one tensor so often, a Split into as many outputs, a Sum of a node for each."""
    writer = _Writer()
    joined = writer.add("Concat", *["x"] * outputs, axis=1)
    parts = [f"part_{number}" for number in range(outputs)]
    writer.nodes.append(
        helper.make_node("Split", [joined], parts, "Split", axis=1, num_outputs=outputs)
    )
    return writer.model(writer.add("Sum", *(writer.add("Relu", part) for part in parts))), {}


def wide_equal(nodes: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """So many equal nodes, of which one stays, and the Concat that reads them."""
    writer = _Writer()
    results = [writer.add("Neg", "x") for _ in range(nodes)]
    return writer.model(writer.add("Concat", *results, axis=0), grows=True), {}


_KINDS = {
    "wide_concat": wide_concat,
    "wide_split": wide_split,
    "wide_equal": wide_equal,
    "decoder": decoder,
    "siblings": siblings,
    "mirrored": partial(siblings, mirrored=True),
    "styles": styles,
}


def external(path: Path, gibibytes: float, layers: int = 12) -> dict[str, int]:
    """Write a model of ``layers`` projections with ``gibibytes`` of weights in ``<path>.data``, a sparse file."""
    width = int((gibibytes * 2**30 / layers / 4) ** 0.5)
    writer = _Writer(width)
    size, x = width * width * 4, "x"
    for layer in range(layers):
        weight = TensorProto(
            name=f"big_{layer}",
            data_type=TensorProto.FLOAT,
            dims=[width, width],
            data_location="EXTERNAL",
        )
        for key, value in {
            "location": f"{path.name}.data",
            "offset": layer * size,
            "length": size,
        }.items():
            weight.external_data.add(key=key, value=str(value))
        writer.weights.append(weight)
        x = writer.add("Add", writer.add("MatMul", x, weight.name), writer.random(width))
    with Path(f"{path}.data").open("wb") as file:
        os.truncate(file.fileno(), layers * size)
    path.write_bytes(writer.model(x).SerializeToString())
    return {"matmul_add": layers}


def write(kind: str, amount: float, path: Path) -> None:
    """Write a model of ``amount`` nodes, or gibibytes, and beside it ``<path>.json`` with its nodes and sites."""
    if kind == "external":
        sites = external(path, amount)
    else:
        model, sites = _KINDS[kind](int(amount))
        onnx.save(model, path)
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    Path(f"{path}.json").write_text(json.dumps({"nodes": nodes, "sites": sites}), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmarks.generate", description=write.__doc__
    )
    parser.add_argument("kind", choices=[*_KINDS, "external"])
    parser.add_argument("amount", type=float)
    parser.add_argument("path", type=Path)
    argument = parser.parse_args(arguments)
    write(argument.kind, argument.amount, argument.path)


if __name__ == "__main__":
    main()
