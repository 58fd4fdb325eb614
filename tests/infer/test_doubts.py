"""Sizes in doubt: ONNX Runtime's numbers with and without a compile, for the models that were wrong."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from gehost import Host, HostOptions
from gehost.infer import Inferrer, infer_model
from gehost.infer.doubtful_sizes import DOUBTS
from gehost.infer.doubts import CONDITIONS, Doubt, Statement, believed
from gehost.ir.model import Model
from gehost.ir.types import DataType, TensorType
from gehost.ops import OpRegistry

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
    "LpPool, auto_pad VALID, ceil_mode": (20, "float[1, 1, 2] x", 'y = LpPool<kernel_shape = [1], strides = [2], auto_pad = "VALID", ceil_mode = 1>(x)'),
    "MaxPool, SAME with dilations": (13, "float[1, 1, 10] x", 'y = MaxPool<kernel_shape = [3], strides = [2], dilations = [2], auto_pad = "SAME_UPPER">(x)'),
    "ConvTranspose, SAME with output_padding": (13, "float[1, 1, 5] x, float[1, 1, 3] w", 'y = ConvTranspose<strides = [2], auto_pad = "SAME_UPPER", output_padding = [1]>(x, w)'),
    "Range in float": (13, "float[1] x", "a = Constant<value = float {-0.1}>() b = Constant<value = float {0.3}>() c = Constant<value = float {0.1}>() y = Range(a, b, c)"),
    "Resize with scales": (13, "float[1, 1, 10] x", 'k = Constant<value = float[3] {1.0, 1.0, 0.7}>() y = Resize(x, "", k)'),
    "Upsample with scales": (9, "float[1, 1, 10, 10] x", "k = Constant<value = float[4] {1.0, 1.0, 1.9, 1.9}>() y = Upsample(x, k)"),
    "Slice back from beyond the end": (13, "float[6] x", "a = Constant<value = int64[1] {6}>() b = Constant<value = int64[1] {9223372036854775807}>() c = Constant<value = int64[1] {0}>() d = Constant<value = int64[1] {-1}>() y = Slice(x, a, b, c, d)"),
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
    expected = run(model, feeds)
    np.testing.assert_array_equal(run(compiled(model), feeds), expected)


POOL = "y = MaxPool<kernel_shape = [2], strides = [2], pads = [1, 1], ceil_mode = 1>"
COUNT = "s = Shape(y) ones = ConstantOfShape<value = float[1] {1.0}>(s) r = ReduceSum<keepdims = 0>(ones)"
ONES = np.ones((2, 3), np.float32)

MODELS = {
    "a file that states the wrong size, as onnx infers it":
        (f"g (float[1, 1, 7] x) => (float r) <float[1, 1, 5] y> {{ {POOL}(x) {COUNT} }}", {"x": np.ones((1, 1, 7), np.float32)}),
    "a file that states a size that the input does not have":
        (f"g (float[N, 3] x) => (float r) <float[5, 3] y> {{ y = Relu(x) {COUNT} }}", {"x": ONES}),
    "the same of a graph output":
        (f"g (float[N, 3] x) => (float r, float[5, 3] y) {{ y = Relu(x) {COUNT} }}", {"x": ONES}),
    "the same of a rank":
        (f"g (float[N, 3] x, int64[K] k) => (float r) <float y> {{ y = Reshape(x, k) {COUNT} }}", {"x": ONES, "k": np.array([3, 2])}),
    "a body":
        (f"""g (bool b, float[1, 1, 7] x) => (float z) {{ z = If(b) <then_branch = t () => (float r) {{ {POOL}(x) {COUNT} }},
            else_branch = e () => (float q) {{ q = ReduceSum<keepdims = 0>(x) }}> }}""", {"b": np.array(True), "x": np.ones((1, 1, 7), np.float32)}),
    "a function of the model":
        (f"""g (float[1, 1, 7] x) => (float r) {{ y = f.F(x) {COUNT} }}
            <domain: "f", opset_import: ["": 17]> F (x) => (y) {{ {POOL}(x) }}""", {"x": np.ones((1, 1, 7), np.float32)}),
    "a Loop whose body states the size of a state that grows":
        (f"""g (float[2, 3] x, int64 n) => (float r) {{ y = Loop(n, "", x) <body = l (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] t)
            {{ d = Identity(c) t = Concat<axis = 0>(s, s) }}> {COUNT} }}""", {"x": ONES, "n": np.array(2)}),
    "a Loop without an iteration":
        (f"""g (float[2, 3] x, int64 n) => (float r) {{ v, w = Loop(n, "", x) <body = l (int64 i, bool c, float[?, ?] s) => (bool d, float[?, ?] t, float[?, ?] o)
            {{ d = Identity(c) t = Identity(s) o = Neg(s) }}> z = Shape(w) first = Constant<value = int64[1] {{1}}>() y = Gather(z, first) {COUNT.replace("Shape(y)", "Identity(y)")} }}""",
         {"x": ONES, "n": np.array(0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_size_that_is_only_stated_or_is_in_a_body_is_not_folded(name: str) -> None:
    text, feeds = MODELS[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "f": 1]> {text}')
    expected = run(model, feeds)
    for actual, before in zip(run(compiled(model), feeds), expected, strict=True):
        np.testing.assert_array_equal(actual, before)


def test_sizes_beside_a_doubt_are_known() -> None:
    """The doubt is about the axes of the window, and only where the runtime counts otherwise."""
    text = "g (float[2, 3, {size}] x) => (float[?, ?, ?] y) {{ {pool}(x) }}"
    shapes = []
    for size in (6, 7):
        source = text.format(size=size, pool=POOL)
        model = Model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {source}'))
        infer_model(model)
        shapes.append(model.graph.values["y"].shape)
    assert shapes == [(2, 3, 4), (2, 3, "?1")]


def test_a_doubt_reaches_the_proof() -> None:
    """A pool is not taken for one whose wrong size is the same number."""
    model = Model(
        onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 1, 7] x) => (float[?, ?, ?] y) {{ {POOL}(x) }}'
        )
    )
    node = next(iter(model.graph.nodes))
    inferrer = Inferrer(model, OpRegistry())
    assert inferrer.node(node) == (TensorType(DataType.FLOAT, (1, 1, None)),)
    assert inferrer.proto("MaxPool", node.proto, [node.inputs[0].type]) == inferrer.node(node)


def test_opsets_and_conditions() -> None:
    statement = Statement("F", {"mode": "a"}, [], [], [], [TensorType(DataType.FLOAT, (1, 2, 3))])
    for doubt, shape in [
        (Doubt(3, None, ("any_node",), 0), (None, None, None)),
        (Doubt(3, 4, ("any_node",), 1), (1, None, None)),
        (Doubt(3, 4, ("any_node", "mode=a"), -1), None),
        (Doubt(3, 4, ("any_node", "mode=b"), -1), (1, 2, 3)),
        (Doubt(3, 4, ("not mode=b",), 2), (1, 2, None)),
        (Doubt(3, 4, ("not mode",), 0), (1, 2, 3)),
        (Doubt(5, None, ("any_node",), 0), (1, 2, 3)),
        (Doubt(1, 3, ("any_node",), 0), (1, 2, 3)),
    ]:
        assert believed([doubt], 4, statement) == [TensorType(DataType.FLOAT, shape)], doubt


def test_rows_name_who_differs_and_conditions_that_exist() -> None:
    witnesses = {"onnxruntime", "onnx.reference"}
    for op, doubts in DOUBTS.items():
        for doubt in doubts:
            assert doubt.differs, op
            assert set(doubt.differs) <= witnesses, op
    assert [name for name in CONDITIONS if not name.isidentifier()] == []
