"""Find the outputs of a model that are quantized: they differ by nothing or by whole steps."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper

_MOVES = frozenset(("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"))


def quantization_steps(model: onnx.ModelProto) -> dict[str, float]:
    """Return the step of each output that a quantization gives, with a constant scale."""
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
    steps: dict[str, float] = {}
    for output in model.graph.output:
        node = makers.get(output.name)
        while node is not None and node.op_type in _MOVES:
            node = makers.get(node.input[0])
        if node is None:
            continue
        if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
            steps[output.name] = 1.0
        elif node.op_type == "DequantizeLinear":
            scale = constants.get(node.input[1])
            if scale is not None and scale.data_location != onnx.TensorProto.EXTERNAL:
                array = onnx.numpy_helper.to_array(scale).astype(np.float64)
                steps[output.name] = float(np.abs(array).max(initial=0.0)) * (1 + 2**-20)
    return steps
