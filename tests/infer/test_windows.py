"""Lengths of convolutions, poolings, pads and resizes of axes that have names."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from gehost.infer import infer_model
from gehost.ir.model import Model
from tools.shapes.claims import wrong

_FAILURES = (Fail, InvalidArgument, RuntimeException)


def load(nodes: str, inputs: str = "float[N, 4, H, W] x", opset: int = 18) -> Model:
    text = f'<ir_version: 9, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) {{ {nodes} y = Relu(x) }}'
    return Model(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("v = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)", "N,4,?1,?2"),
        ("v = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[2,2,1,1]>(x)", "N,4,(H + 2) // 2,(W + 2) // 2"),
        ("v = LpPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)", "N,4,H,W"),
        # an axis of two elements has one window of three in ONNX Runtime, none in the reference
        ("v = AveragePool<kernel_shape=[3,3], strides=[2,2]>(x)", "N,4,?1,?2"),
        ("a = AveragePool<kernel_shape=[3,3], strides=[2,2]>(x) v = Concat<axis=0>(a, a)", "2*N,4,?1,?2"),
        ("v = AveragePool<kernel_shape=[3,3]>(x)", "N,4,max(0, H - 2),max(0, W - 2)"),
        ("v = AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)", "N,4,?1,?2"),
        ('v = MaxPool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">(x)', "N,4,ceildiv(H, 2),ceildiv(W, 2)"),
        ("w = Constant<value = float[1,4,3,3] {}>() v = Conv<strides=[2,2]>(x, w)".replace("{}", "{" + ",".join("0" * 36) + "}"),
         "N,1,max((H - 1) // 2, 0),max((W - 1) // 2, 0)"),
        ("w = Constant<value = float[4,1,2,2] {}>() v = ConvTranspose<strides=[2,2]>(x, w)".replace("{}", "{" + ",".join("0" * 16) + "}"),
         "N,1,2*H,2*W"),
        ("p = Constant<value_ints=[0,0,0,0,0,0,3,0]>() v = Pad(x, p)", "N,4,H + 3,W"),
        # as torch writes it: pairs from the last axis on, turned around
        ("p = Constant<value_ints=[0,3,1,2,0,0,0,0]>() n = Constant<value_ints=[-1,2]>() m = Reshape(p, n)"
         " s = Constant<value_ints=[-1]>() e = Constant<value_ints=[-9223372036854775807]>() a = Constant<value_ints=[0]>()"
         " r = Slice(m, s, e, a, s) t = Transpose<perm=[1,0]>(r) f = Reshape(t, s) v = Pad(x, f)", "N,4,H + 3,W + 3"),
        ("p = Constant<value_ints=[-1,0]>() a = Constant<value_ints=[2]>() v = Pad(x, p, , a)", "N,4,?1,W"),
        ("p = Constant<value_ints=[1,2]>() a = Constant<value_ints=[-1]>() v = Pad(x, p, , a)", "N,4,H,W + 3"),
        ('c = Constant<value_floats=[1.0,1.0,2.0,0.5]>() v = Resize<mode="nearest">(x, , c)', "N,4,2*H,?1"),
        ("s = Shape<start=1, end=2>(x) o = Constant<value_ints=[3]>() a = Sub(s, o) v = ReduceSum<keepdims=0>(x, a)", "N,H,W"),
        ("s = Shape<start=1, end=2>(x) v = Unsqueeze(x, s)", "N,4,H,W,1"),
        # windows of seven, as vision models cut them
        ("h = Shape<start=2, end=3>(x) k = Constant<value_ints=[7]>() m = Mod(h, k) d = Sub(k, m) r = Mod(d, k)"
         " z = Constant<value_ints=[0,0,0,0,0,0]>() z1 = Constant<value_ints=[0]>() p = Concat<axis=0>(z, r, z1) v = Pad(x, p)",
         "N,4,7*ceildiv(H, 7),W"),
    ],
)  # fmt: skip
def test_lengths_are_known_in_the_names_of_inputs(nodes: str, expected: str) -> None:
    model = load(nodes)
    infer_model(model)
    shape = model.graph.values["v"].shape
    assert shape is not None
    assert ",".join(map(str, shape)) == expected


def test_a_range_of_floats_is_counted_where_they_are_exact() -> None:
    model = load("a = Constant<value_float=0.5>() s = Constant<value_int=8>() n = Shape<start=1,end=2>(x) q = Squeeze(n) "
                 "f = Cast<to=1>(q) d = Constant<value_float=1.0>() v = Range(a, f, d) i = Constant<value_float=0.1>() u = Range(a, f, i)")  # fmt: skip
    infer_model(model)
    assert model.graph.values["v"].shape == (4,)
    assert model.graph.values["u"].shape == ("?1",)


def _drawn(r: random.Random) -> tuple[onnx.ModelProto, Model]:
    op = r.choice(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
    kernel, step = r.randint(1, 5), r.randint(1, 3)
    attributes: dict[str, Any] = {"kernel_shape": [kernel], "strides": [step]}
    auto = r.choice(["", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if auto:
        attributes["auto_pad"] = auto
    elif r.random() < 0.7:
        attributes["pads"] = [r.randrange(min(kernel, 3)) for _ in range(2)]
    if r.random() < 0.3:
        attributes["dilations"] = [2]
    if "Conv" not in op and r.random() < 0.2:
        attributes["ceil_mode"] = 1
    if op == "ConvTranspose" and r.random() < 0.3:
        attributes["output_padding"] = [r.randrange(step)]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1, 1, kernel], [1.0] * kernel)
    inputs = ["x", "w"] if "Conv" in op else ["x"]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 1, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights] if "Conv" in op else [],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 19)])
    model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(model)
    return proto, model


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.filterwarnings("ignore:invalid value")
def test_windows_are_as_onnx_runtime_and_the_reference_count_them() -> None:
    r, named, runs = random.Random(3), 0, 0
    for _ in range(150):
        proto, model = _drawn(r)
        (output,) = model.graph.outputs
        assert output.shape is not None
        named += not str(output.shape[2]).startswith("?")
        try:
            session = onnxruntime.InferenceSession(proto.SerializeToString())
        except _FAILURES:
            continue
        reference = onnx.reference.ReferenceEvaluator(proto)
        for b, n in itertools.product((0, 1), (0, 1, 2, 3, 5)):
            feed = {"x": np.zeros((b, 1, n), np.float32)}
            for run in (session.run, reference.run):
                try:
                    result = run(None, feed)[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                except (
                    *_FAILURES,
                    ArithmeticError,
                    AssertionError,
                    IndexError,
                    RuntimeError,
                    TypeError,
                    ValueError,
                ):
                    continue  # a window that does not fit
                runs += 1
                assert not wrong(model, {"b": b, "n": n}, feed | {"y": result}), (
                    onnx.printer.to_text(proto)
                )
    assert named >= 40
    assert runs >= 800


CONFORMER = """
    zero = Constant<value_ints=[0]>() one = Constant<value_ints=[1]>() two = Constant<value_ints=[2]>()
    less = Constant<value_ints=[-1]>() cut = Constant<value_ints=[-2]>() last = Constant<value_ints=[3]>()
    ends = Constant<value_ints=[9223372036854775807]>()
    a = Conv<strides=[2], kernel_shape=[3]>(x, w) frames = Conv<strides=[2], kernel_shape=[3]>(a, w)
    m = Slice(mask, zero, cut, one, two) kept = Slice(m, zero, cut, one, two)
    t = Shape<start=2>(frames) past = Sub(t, one) reach = Add(t, past)
    b = Shape<start=0, end=1>(frames)
    wide = Concat<axis=0>(b, two, t, reach) scores = ConstantOfShape(wide)
    pads = Constant<value_ints=[0,0,0,1,0,0,0,0]>() padded = Pad(scores, pads)
    turned = Concat<axis=0>(b, two, less, t) tall = Reshape(padded, turned)
    shifted = Slice(tall, one, ends, two) back = Reshape(shifted, wide)
    bias = Slice(back, zero, t, last)
    content = MatMul(keys, keysT) sum = Add(content, bias)
    f = Transpose<perm=[0, 2, 1]>(frames)
    k = Concat<axis=0>(b, t, two, two) split = Reshape(f, k) keys = Transpose<perm=[0,2,1,3]>(split)
    keysT = Transpose<perm=[0,2,3,1]>(split)
"""
"""Convolutions with strides, a mask cut beside them, and scores shifted by relative positions."""


@pytest.mark.parametrize("least", [0, 7])
def test_lengths_of_an_encoder_with_relative_positions(least: int) -> None:
    model = load(CONFORMER, "float[batch, 4, time] x, float[4, 4, 3] w, bool[batch, time] mask")
    model.assume([f"time >= {least}"])
    infer_model(model)
    frames, retained, bias, total = (
        model.graph.values[n].shape for n in ("frames", "kept", "bias", "sum")
    )
    length = "(time - 3) // 4" if least else "max((time - 3) // 4, 0)"
    assert frames == ("batch", 4, length)
    assert retained == ("batch", length)
    if least:  # else a Reshape may copy a size in place of 0
        assert bias == total == ("batch", 2, length, length)


@pytest.mark.parametrize(
    "node",
    [
        "MaxPool<kernel_shape=[2,2], strides=[0,1]>(x)",
        "MaxPool<kernel_shape=[2,2], strides=[-1,1]>(x)",
        "MaxPool<kernel_shape=[2]>(x)",
        "MaxPool<kernel_shape=2>(x)",
        "MaxPool<kernel_shape=[2,2], pads=[1]>(x)",
        "MaxPool<kernel_shape=[2,2], strides=1>(x)",
        "MaxPool(x)",
        "Conv<strides=[0,0]>(x, x)",
        "Pad(x, x)",
        "Pad<pads=3>(x)",
        "Resize(x, , x)",
        "Resize(x)",
    ],
)
def test_what_no_runtime_takes_has_no_length(node: str) -> None:
    for opset in (10, 18):
        model = load(f"v = {node}", opset=opset)
        infer_model(model)
        shape = model.graph.values["v"].shape
        assert shape is None or "?" in f"{shape}"
