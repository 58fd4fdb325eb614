"""Defaults that the specification gives in prose, and values of attributes at each opset: what a node means, and what engines accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
import pytest

from gehost.ir.effective import LIMITED, RENAMED, has_value, spelling_at
from gehost.ir.model import Model
from gehost.ir.schemas import history, operator_names

IMAGE = "float[1, 2, 5, 6] x, float[3, 2, 2, 3] w, float[4, 1, 2, 3] t"
PADDED = "kernel_shape = [2, 3], pads = [0, 1, 0, 1]"


def value_of(body: str, name: str, inputs: str = IMAGE, opset: int = 22) -> Any:
    text = f'<ir_version: 10, opset_import: ["": {opset}, "f": 1]> g ({inputs}) => (float[A] y) {{ {body} }}'
    return Model(onnx.parser.parse_model(text)).graph.nodes[0].attr(name)


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ("y = Conv(x, w)", "group", 1),
        ("y = Conv<group = 2>(x, t)", "group", 2),
        ("y = Conv(x, w)", "auto_pad", "NOTSET"),
        ("y = Conv(x, w)", "strides", [1, 1]),
        ("y = Conv<strides = [2, 1]>(x, w)", "strides", [2, 1]),
        ("y = Conv(x, w)", "dilations", [1, 1]),
        ("y = Conv(x, w)", "pads", [0, 0, 0, 0]),
        ("y = Conv(x, w)", "kernel_shape", [2, 3]),
        ('y = Conv<auto_pad = "VALID">(x, w)', "pads", [0, 0, 0, 0]),
        ('y = Conv<auto_pad = "SAME_UPPER">(x, w)', "pads", None),
        ("y = ConvTranspose(x, w)", "output_padding", [0, 0]),
        ("y = ConvTranspose(x, w)", "pads", [0, 0, 0, 0]),
        ("y = ConvTranspose<output_shape = [9, 9]>(x, w)", "pads", None),
        ("y = ConvTranspose(x, w)", "output_shape", None),
        (f"y = MaxPool<{PADDED}>(x)", "strides", [1, 1]),
        (f"y = MaxPool<{PADDED}>(x)", "dilations", [1, 1]),
        ("y = AveragePool<kernel_shape = [2, 2]>(x)", "pads", [0, 0, 0, 0]),
        ("y = LpPool<kernel_shape = [2, 2]>(x)", "p", 2),
        ("y = Transpose(x)", "perm", [3, 2, 1, 0]),
        ("y = Transpose(q)", "perm", None),
        ("y = Softmax(x)", "axis", -1),
        ("y = f.F(x)", "anything", None),
        ("y = f.F<a = 1>(x)", "a", 1),
    ],
)  # fmt: skip
def test_attributes_that_count(body: str, name: str, expected: Any) -> None:
    if "(q)" in body:
        body = f"q = f.Unknown(x) {body}"
        text = f'<ir_version: 10, opset_import: ["": 22, "f": 1]> g ({IMAGE}) => (float[A] y) {{ {body} }}'
        assert Model(onnx.parser.parse_model(text)).graph.nodes[1].attr(name) == expected
    else:
        assert value_of(body, name) == expected


def test_others_of_the_specification() -> None:
    cells = "float[2, 2, 4] x, float[2, 3, 4] w, float[2, 3, 3] r"
    assert value_of("y = RNN(x, w, r)", "hidden_size", cells) == 3
    bidirectional = 'y = RNN<direction = "bidirectional">(x, w, r)'
    assert value_of(bidirectional, "activations", cells) == ["Tanh", "Tanh"]
    assert value_of("y = Slice<starts = [0, 1], ends = [1, 2]>(x)", "axes", opset=9) == [0, 1]
    heads = "float[1, 2, 3, 16] q"
    assert value_of("y = Attention(q, q, q)", "scale", heads, 23) == 0.25
    assert value_of("y = GridSample(x, w)", "mode", opset=16) == "linear"
    assert value_of('y = GridSample<mode = "bicubic">(x, w)', "mode", opset=16) == "cubic"
    assert (
        value_of("y = RoiAlign(x, w, t)", "coordinate_transformation_mode", opset=10)
        == "output_half_pixel"
    )
    assert (
        value_of("y = RoiAlign(x, w, t)", "coordinate_transformation_mode", opset=16)
        == "half_pixel"
    )
    assert value_of("y = Relu(x)", "none") is None
    text = '<ir_version: 10, opset_import: ["": 22]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    assert Model(onnx.parser.parse_model(text)).graph.nodes[0].attr("none", 3) == 3


def test_defaults_of_functions() -> None:
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[2] x) => (float[2] y) { y = f.F(x) }
    <domain: "f", opset_import: ["": 17]> F <a: float = 0.5> (p) => (q) { q = Elu<alpha: float = @a>(p) }"""
    assert Model(onnx.parser.parse_model(text)).graph.nodes[0].attr("a") == 0.5


VALUES = {
    ("GridSample", "mode"): "nearest linear cubic",
    ("GridSample", "padding_mode"): "zeros border reflection",
    ("Pad", "mode"): "constant reflect edge wrap",
    ("Resize", "mode"): "nearest linear cubic",
    ("Resize", "coordinate_transformation_mode"): "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn tf_crop_and_resize",
    ("Resize", "nearest_mode"): "round_prefer_floor round_prefer_ceil floor ceil",
    ("Resize", "keep_aspect_ratio_policy"): "stretch not_larger not_smaller",
    ("ScatterElements", "reduction"): "none add mul max min",
    ("ScatterND", "reduction"): "none add mul max min",
    ("RoiAlign", "mode"): "avg max",
    ("RoiAlign", "coordinate_transformation_mode"): "half_pixel output_half_pixel",
    ("DepthToSpace", "mode"): "DCR CRD",
    ("Gelu", "approximate"): "none tanh",
    ("BitShift", "direction"): "LEFT RIGHT",
    ("TensorScatter", "mode"): "linear circular",
    **{(op, "auto_pad"): "NOTSET SAME_UPPER SAME_LOWER VALID" for op in ("AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool")},
    **{(op, "direction"): "forward reverse bidirectional" for op in ("GRU", "LSTM", "RNN")},
    **{(op, "reduction"): "none mean sum" for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
}  # fmt: skip
"""Values of the newest opset."""

NOT_RUN = {
    **{(op, "auto_pad"): "as Conv" for op in ("ConvInteger", "QLinearConv")},
    **{(op, "round_mode"): "of one element type" for op in ("Cast", "CastLike")},
    **dict.fromkeys((("Constant", "value_string"), ("Einsum", "equation"), ("RegexFullMatch", "pattern"), ("StringNormalizer", "locale"), ("StringSplit", "delimiter")), "any text"),
    ("CausalConvWithState", "activation"): "one opset", ("LinearAttention", "update_rule"): "one opset",
    ("ImageDecoder", "pixel_format"): "one opset", ("SpaceToDepth", "mode"): "one opset",
    ("StringNormalizer", "case_change_action"): "one opset", ("TfIdfVectorizer", "mode"): "one opset",
    ("Upsample", "mode"): "deprecated", ("MaxRoiPool", "mode"): "none",
}  # fmt: skip


def test_the_values_of_every_operator_with_a_text_are_listed() -> None:
    string = onnx.defs.OpSchema.AttrType.STRING
    actual = {
        (op, name)
        for op in operator_names()
        for name, attribute in history("", op)[-1].attributes.items()
        if attribute.type == string
    }
    assert actual - VALUES.keys() - NOT_RUN.keys() == set()
    assert {*RENAMED, *LIMITED} <= VALUES.keys()


BODIES = {
    "GridSample": ("float[1, 1, 4, 4] x, float[1, 3, 3, 2] g", "x, g", ""),
    "Pad": ("float[4] x", "x, p", ""),
    "Resize": ("float[1, 1, 4, 4] x", "x, r, s", ""),
    "ScatterElements": ("float[2, 5] x, float[2, 2] u", "x, i, u", "axis = 1, "),
    "ScatterND": ("float[4, 3] x, float[2, 3] u", "x, j, u", ""),
    "RoiAlign": ("float[1, 1, 6, 6] x", "x, b, n", ""),
    "DepthToSpace": ("float[1, 8, 2, 2] x", "x", "blocksize = 2, "),
    "Gelu": ("float[4] x", "x", ""),
    "BitShift": ("uint8[4] x", "x, x", ""),
    "TensorScatter": ("float[1, 4, 5] x, float[1, 1, 5] u", "x, u, n", "axis = 1, "),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), ("float[1, 1, 5, 5] x", "x", "kernel_shape = [2, 2], ")),
    **dict.fromkeys(("Conv", "ConvTranspose"), ("float[1, 1, 5, 5] x, float[1, 1, 2, 2] w", "x, w", "")),
    **{op: (f"float[2, 2, 4] x, float[D, {3 * gates}, 4] w, float[D, {3 * gates}, 3] k", "x, w, k", "hidden_size = 3, ") for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))},
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), ("float[2, 3] x", "x, h", "")),
}  # fmt: skip
WEIGHTS = """<int64[2] p = {1, 1}, float[4] s = {1, 1, 2, 2}, float[8] r = {0, 0, 0, 0, 1, 1, 1, 1}, int64[2, 2] i = {1, 1, 0, 2},
    int64[2, 1] j = {1, 2}, int64[1] n = {0}, int64[4] z = {1, 1, 6, 8}, int64[2] h = {0, 1}, float[1, 4] b = {0, 0, 4, 4}>"""


def runs(op: str, name: str, value: str, opset: int) -> tuple[bool, bool]:
    """Whether ONNX Runtime and the reference run a node with a value."""
    inputs, operands, more = BODIES[op]
    operands = "x, , , z" if name == "keep_aspect_ratio_policy" else operands
    inputs = inputs.replace("D", "2" if value == "bidirectional" else "1")
    text = f'<ir_version: 9, opset_import: ["": {opset}]> g ({inputs}) => (float y) {WEIGHTS} {{ y = {op}<{more}{name} = "{value}">({operands}) }}'
    model = onnx.parser.parse_model(text)
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name="y"))
    weights = [node for node in model.graph.initializer if node.name in model.graph.node[0].input]
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)
    draw = np.random.default_rng(0)
    feeds = {
        entry.name: draw.uniform(
            0.1, 1, [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        ).astype(onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type))
        for entry in model.graph.input
    }
    answers: list[bool] = []
    for engine in (
        lambda: ort.InferenceSession(typed(model)).run(None, feeds),
        lambda: onnx.reference.ReferenceEvaluator(model).run(None, feeds),
    ):
        try:
            engine()
        except Exception:  # noqa: BLE001 - both raise several types
            answers.append(False)
        else:
            answers.append(True)
    return answers[0], answers[1]


def typed(model: onnx.ModelProto) -> bytes:
    inferred = onnx.shape_inference.infer_shapes(model)
    if not inferred.graph.output[0].type.tensor_type.elem_type:
        inferred.graph.output[0].type.tensor_type.elem_type = 1
    return inferred.SerializeToString()


@pytest.mark.parametrize(("op", "name"), VALUES)
@pytest.mark.filterwarnings("ignore")  # of numpy, in the reference
def test_engines_accept_each_value_that_the_table_writes(op: str, name: str) -> None:
    """The other way round they accept more: ONNX Runtime ``wrap`` at every opset, the reference ``linear`` alone."""
    ort.set_default_logger_severity(4)
    for value in VALUES[op, name].split():
        for opset in (*range(7, 24), 24, 26):
            versions = [item for item in history("", op) if item.since_version <= opset]
            if (
                not versions
                or name not in versions[-1].attributes
                or (op == "RoiAlign" and opset > 21)
            ):
                continue
            if opset < 11 and op in ("Pad", "Resize"):
                continue  # of other inputs
            if has_value(op, name, value, opset):
                by_runtime, by_reference = runs(
                    op, name, spelling_at(op, name, value, opset), opset
                )
                assert by_runtime or by_reference, (value, opset)
                assert by_runtime or (op == "Resize" and opset < 13), (value, opset)


def test_a_value_is_spelled_as_the_opset_does() -> None:
    for output in ("linear", "bilinear"):
        assert spelling_at("GridSample", "mode", output, 16) == "bilinear"
        assert spelling_at("GridSample", "mode", output, 20) == "linear"
