"""Decoder layers of any width, as a model without weight data, to plan with."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper


def decoder(
    layers: int,
    *,
    batch: int,
    length: int,
    width: int = 4096,
    heads: int = 32,
    elem_type: int = TensorProto.FLOAT16,
) -> onnx.ModelProto:
    """Pre-norm decoder layers with a feed-forward part of four times the width.

    Weights are external data that does not exist; only their shapes are read.
    """
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    integers = {
        "heads": [batch, length, heads, width // heads],
        "joined": [batch, length, width],
    }

    def weight(name: str, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=elem_type, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.data")
        weights.append(tensor)
        return name

    def add(op: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def norm(x: str, name: str) -> str:
        scale, bias = weight(f"{name}.scale", width), weight(f"{name}.bias", width)
        return add("LayerNormalization", [x, scale, bias], name, axis=-1)

    def split_heads(x: str, name: str, perm: list[int]) -> str:
        return add("Transpose", [add("Reshape", [x, "heads"], f"{name}.r")], name, perm=perm)

    x = "x"
    for n in range(layers):
        a = norm(x, f"l{n}.norm1")
        q, k, v = (
            add("MatMul", [a, weight(f"l{n}.w{letter}", width, width)], f"l{n}.{letter}")
            for letter in "qkv"
        )
        scaled = add("Mul", [q, "scale"], f"l{n}.scaled")
        scores = add(
            "MatMul",
            [
                split_heads(scaled, f"l{n}.qh", [0, 2, 1, 3]),
                split_heads(k, f"l{n}.kh", [0, 2, 3, 1]),
            ],
            f"l{n}.scores",
        )
        weighted = add("Softmax", [scores], f"l{n}.softmax", axis=-1)
        context = add(
            "MatMul", [weighted, split_heads(v, f"l{n}.vh", [0, 2, 1, 3])], f"l{n}.context"
        )
        moved = add("Transpose", [context], f"l{n}.moved", perm=[0, 2, 1, 3])
        joined = add("Reshape", [moved, "joined"], f"l{n}.joined")
        projected = add("MatMul", [joined, weight(f"l{n}.wo", width, width)], f"l{n}.o")
        x = add("Add", [x, projected], f"l{n}.x1")
        b = norm(x, f"l{n}.norm2")
        up = add("MatMul", [b, weight(f"l{n}.w1", width, 4 * width)], f"l{n}.up")
        active = add("Gelu", [up], f"l{n}.gelu")
        down = add("MatMul", [active, weight(f"l{n}.w2", 4 * width, width)], f"l{n}.down")
        x = add("Add", [x, down], f"l{n}.x2")
    for name, values in integers.items():
        weights.append(
            helper.make_tensor(name, TensorProto.INT64, [4 if name == "heads" else 3], values)
        )
    weights.append(helper.make_tensor("scale", elem_type, [], [0.125]))
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info("x", elem_type, [batch, length, width])],
        [helper.make_tensor_value_info(x, elem_type, [batch, length, width])],
        weights,
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
