"""Attention as TorchScript exports of CLIP and Swin write it: views of sizes read from tensors.

Small copies of the two kinds of export that the corpus lacks, of a dynamic batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

HEADS, SIZE, WINDOW, SIDE = 4, 8, 4, 16
WIDTH = HEADS * SIZE


class Exporter:
    """Writes nodes one by one; tensors are named by number."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], **attributes))
        return output

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self._random.standard_normal(shape) / 5, np.float32)

    def size(self, x: str, axis: int) -> str:
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def view(self, x: str, *sizes: int | str) -> str:
        parts = [
            self.op("Unsqueeze", size, self.constant([0]))
            if isinstance(size, str)
            else self.constant([size])
            for size in sizes
        ]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def turned(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=perm)

    def linear(self, x: str) -> str:
        return self.op("Add", self.weight(WIDTH), self.op("MatMul", x, self.weight(WIDTH, WIDTH)))

    def model(self, result: str, *inputs: tuple[str, list[int | str]]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "like",
            [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs],
            [helper.make_tensor_value_info(result, 1, inputs[0][1])],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def clip() -> onnx.ModelProto:
    """Two layers of attention whose batch and heads are one axis."""
    g, x = Exporter(), "x"
    for _ in range(2):
        batch, length = g.size(x, 0), g.size(x, 1)
        rows = g.op("Mul", batch, g.constant(HEADS))
        q, k, v = (
            g.view(
                g.turned(g.view(g.linear(x), batch, size, HEADS, SIZE), 0, 2, 1, 3), rows, -1, SIZE
            )
            for size in (length, -1, -1)
        )
        scores = g.view(g.op("MatMul", q, g.turned(k, 0, 2, 1)), batch, HEADS, length, length)
        scores = g.view(g.op("Add", scores, "mask"), rows, length, length)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
        mixed = g.turned(g.view(mixed, batch, HEADS, length, SIZE), 0, 2, 1, 3)
        x = g.op("Add", x, g.linear(g.view(mixed, batch, length, WIDTH)))
    return g.model(x, ("x", ["batch", "seq", WIDTH]), ("mask", ["batch", 1, "seq", "seq"]))


def swin() -> onnx.ModelProto:
    """Two layers of attention in windows; those of the second are shifted and masked."""
    g, x = Exporter(), "x"
    count, area = (SIDE // WINDOW) ** 2, WINDOW * WINDOW
    for shifted in (False, True):
        batch, width = g.size(x, 0), g.size(x, 2)
        image = g.view(x, batch, SIDE, SIDE, width)
        if shifted:
            one, cut, end = g.constant([1]), g.constant([2]), g.constant([1 << 40])
            parts = (cut, end), (g.constant([0]), cut)
            image = g.op("Concat", *(g.op("Slice", image, *part, one) for part in parts), axis=1)
        sizes = [g.size(image, axis) for axis in range(4)]
        high, wide = (g.op("Div", size, g.constant(WINDOW)) for size in sizes[1:3])
        image = g.view(image, sizes[0], high, WINDOW, wide, WINDOW, sizes[3])
        image = g.view(g.turned(image, 0, 1, 3, 2, 4, 5), -1, WINDOW, WINDOW, sizes[3])
        windows = g.view(image, -1, area, width)
        rows = g.size(windows, 0)
        q, k, v = (
            g.turned(g.view(g.linear(windows), rows, -1, HEADS, SIZE), 0, 2, 1, 3) for _ in range(3)
        )
        scores = g.op("MatMul", q, g.turned(k, 0, 1, 3, 2))
        scores = g.op("Add", scores, g.weight(1, HEADS, area, area))
        if shifted:
            images = g.op("Div", g.size(scores, 0), g.constant(count))
            scores = g.view(scores, images, count, HEADS, area, area)
            scores = g.op("Add", scores, g.weight(1, count, 1, area, area))
            scores = g.view(scores, -1, HEADS, area, area)
        mixed = g.turned(g.op("MatMul", g.op("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        mixed = g.linear(g.view(mixed, g.size(mixed, 0), g.size(mixed, 1), WIDTH))
        mixed = g.view(mixed, -1, WINDOW, WINDOW, width)
        mixed = g.view(mixed, -1, SIDE // WINDOW, SIDE // WINDOW, WINDOW, WINDOW, g.size(mixed, 3))
        mixed = g.view(g.turned(mixed, 0, 1, 3, 2, 4, 5), -1, SIDE, SIDE, width)
        x = g.op("Add", x, g.view(mixed, batch, SIDE * SIDE, width))
    return g.model(x, ("x", ["batch", SIDE * SIDE, WIDTH]))
