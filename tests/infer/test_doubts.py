"""Sizes in doubt: ONNX Runtime's numbers with and without a compile, for the models that were wrong."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from gehost import Host, HostOptions

MAKES = {
    "sum": "shape = Shape(y) ones = ConstantOfShape<value = float[1] {1.0}>(shape) r = ReduceSum<keepdims = 0>(ones)",
    "size": "size = Size(y) r = Cast<to = 1>(size)",
}


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def compiled(model: onnx.ModelProto) -> onnx.ModelProto:
    return Host(HostOptions(vendors=[], plugins=False)).run(model)[0]


NODES = {
    "MaxPool, ceil_mode, the last window in the padding": (13, "float[1, 1, 7] x", "y = MaxPool<kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1>(x)"),
    "MaxPool, ceil_mode, kernel 1 and stride 3": (13, "float[1, 1, 6] x", "y = MaxPool<kernel_shape = [1], strides = [3], ceil_mode = 1>(x)"),
    "MaxPool, ceil_mode, kernel 2 and stride 4": (13, "float[1, 1, 7] x", "y = MaxPool<kernel_shape = [2], strides = [4], ceil_mode = 1>(x)"),
    "AveragePool, ceil_mode, two axes": (13, "float[1, 1, 7, 7] x", "y = AveragePool<kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1>(x)"),
    "LpPool, ceil_mode": (18, "float[1, 1, 7] x", "y = LpPool<kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1>(x)"),
    "MaxPool, auto_pad VALID, ceil_mode": (13, "float[1, 1, 7] x", 'y = MaxPool<kernel_shape = [4], strides = [2], auto_pad = "VALID", ceil_mode = 1>(x)'),
    "MaxPool, SAME with dilations": (13, "float[1, 1, 10] x", 'y = MaxPool<kernel_shape = [3], strides = [2], dilations = [2], auto_pad = "SAME_UPPER">(x)'),
    "ConvTranspose, SAME with output_padding": (13, "float[1, 1, 5] x, float[1, 1, 3] w", 'y = ConvTranspose<strides = [2], auto_pad = "SAME_UPPER", output_padding = [1]>(x, w)'),
    "Range in float": (13, "float[1] x", "a = Constant<value = float {-0.1}>() b = Constant<value = float {0.3}>() c = Constant<value = float {0.1}>() y = Range(a, b, c)"),
    "Resize with scales": (13, "float[1, 1, 10] x", 'k = Constant<value = float[3] {1.0, 1.0, 0.7}>() y = Resize(x, "", k)'),
    "Upsample with scales": (9, "float[1, 1, 10, 10] x", "k = Constant<value = float[4] {1.0, 1.0, 1.1, 1.1}>() y = Upsample(x, k)"),
    "Slice back from beyond the end": (13, "float[6] x", "a = Constant<value = int64[1] {9}>() b = Constant<value = int64[1] {7}>() c = Constant<value = int64[1] {0}>() d = Constant<value = int64[1] {-1}>() y = Slice(x, a, b, c, d)"),
}  # fmt: skip


@pytest.mark.parametrize("tail", MAKES)
@pytest.mark.parametrize("name", NODES)
def test_a_size_that_inference_gets_wrong_is_not_folded(name: str, tail: str) -> None:
    opset, inputs, node = NODES[name]
    text = f"g ({inputs}) => (float r) {{ {node} {MAKES[tail]} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    feeds = {
        entry.name: np.zeros(
            [dim.dim_value for dim in entry.type.tensor_type.shape.dim], np.float32
        )
        for entry in model.graph.input
    }
    wanted = run(model, feeds)
    np.testing.assert_array_equal(run(compiled(model), feeds), wanted)
