"""One-node models of every operator whose form changed, over the opsets and element types that take them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import onnx

FLOATS = ("float", "float16", "double")
NUMBERS = (*FLOATS, "int32", "int64")


class Case(NamedTuple):
    """A node's text; ``T`` stands for each of ``types``, tried at opsets ``first`` to ``last``."""

    body: str
    inputs: str
    outputs: str
    first: int
    last: int
    types: tuple[str, ...] = FLOATS
    weights: str = ""

    def models(self, opsets: range = range(1, 99)) -> Iterator[tuple[str, int, onnx.ModelProto]]:
        for dtype in self.types:
            for opset in opsets:
                if not self.first <= opset <= min(self.last, onnx.defs.onnx_opset_version()):
                    continue
                ir = 3 if not self.weights and opset < 9 else 8
                text = f'<ir_version: {ir}, opset_import: ["": {opset}]> g ({self.inputs}) => ({self.outputs}) {self.weights} {{ {self.body} }}'
                words = re.sub(r"\bT\b(?=[\[ ])", dtype, text)
                yield f"{self.body} | {dtype}", opset, onnx.parser.parse_model(words)


def _unary(op: str, first: int, types: tuple[str, ...] = FLOATS) -> Case:
    return Case(f"y = {op}(x)", "T[2, 3, 4] x", "T[2, 3, 4] y", first, 99, types)


CHANGED = [
    *(
        Case(f"y = {op}{axis}(x)", "T[2, 3, 4] x", "T[2, 3, 4] y", 1, 12)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in ("", "<axis = 0>", "<axis = 1>", "<axis = 2>", "<axis = -1>", "<axis = -2>")
    ),
    *(
        Case(f"y = {op}(x)", "T[N, 3, M] x", "T[N, 3, M] y", 1, 12)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
    ),
    *(
        Case(f"y = Clip{bounds}(x)", "T[2, 3] x", "T[2, 3] y", 1, 10)
        for bounds in ("", "<min = -0.25>", "<max = 0.5>", "<min = -0.1, max = 0.3>", "<max = 70000.0>")
    ),
    *(
        Case(f"y = Pad<pads = [0, 1, 2, 1]{more}>(x)", "T[3, 4] x", "T[5, 6] y", 2, 10)
        for more in (
            "", ", value = 1.5", ', mode = "reflect"', ', mode = "edge"', ', mode = "reflect", value = 2.0',
            ', mode = "edge", value = 2.0', ', mode = "constant", value = -3.0',
        )
    ),
    Case("y = Pad<pads = [0, -1, 2, -1], value = 0.1>(x)", "T[3, 4] x", "T[5, 2] y", 2, 10),
    Case("y = Pad<paddings = [0, 1, 2, 1]>(x)", "T[3, 4] x", "T[5, 6] y", 1, 1),
    *(
        Case(f"y = {op}{axes}(x)", "T[2, 3, 4] x", f"T[{shape}] y", first, 17, NUMBERS)
        for op in (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
            "ReduceProd", "ReduceSumSquare", "ReduceSum",
        )
        for axes, shape, first in (
            ("", "1, 1, 1", 1), ("<axes = [1]>", "2, 1, 4", 1), ("<axes = [-1, 0], keepdims = 0>", "3", 11),
        )
        if not (op == "ReduceSum" and first > 12)
    ),
    Case("y = Squeeze(x)", "T[2, 1, 4] x", "T[2, 4] y", 1, 12, NUMBERS),
    Case("y = Squeeze<axes = [1]>(x)", "T[2, 1, 4] x", "T[2, 4] y", 1, 12, NUMBERS),
    Case("y = Unsqueeze<axes = [0, 2]>(x)", "T[2, 4] x", "T[1, 2, 1, 4] y", 1, 12, NUMBERS),
    Case("y = Unsqueeze<axes = [-1]>(x)", "T[2, 4] x", "T[2, 4, 1] y", 11, 12, NUMBERS),
    Case("y, z = Split(x)", "T[4, 3] x", "T[2, 3] y, T[2, 3] z", 2, 17, NUMBERS),
    Case("y, z = Split(x, )", "T[4, 3] x", "T[2, 3] y, T[2, 3] z", 13, 17, NUMBERS),
    Case("y, z = Split<axis = 1, split = [1, 2]>(x)", "T[4, 3] x", "T[4, 1] y, T[4, 2] z", 2, 12, NUMBERS),
    Case("y, z = Split<axis = 1>(x, s)", "T[4, 3] x", "T[4, 1] y, T[4, 2] z", 13, 99, NUMBERS, "<int64[2] s = {1, 2}>"),
    Case("y = Slice<starts = [1, -3], ends = [3, 9], axes = [0, 1]>(x)", "T[4, 5] x", "T[2, 3] y", 1, 9, NUMBERS),
    Case("y = Slice<starts = [1], ends = [3]>(x)", "T[4, 5] x", "T[2, 5] y", 1, 9, NUMBERS),
    Case("y, i = TopK<k = 2>(x)", "T[3, 4] x", "T[3, 2] y, int64[3, 2] i", 1, 9),
    Case("y, i = TopK<axis = 0>(x, k)", "T[3, 4] x", "T[2, 4] y, int64[2, 4] i", 10, 99, NUMBERS, "<int64[1] k = {2}>"),
    *(
        Case(f'y = Upsample<mode = "{mode}", scales = [1.0, 1.0, 2.0, 1.5]>(x)', "T[1, 2, 3, 4] x", "T[1, 2, 6, 6] y", 7, 8)
        for mode in ("nearest", "linear")
    ),
    Case("y = Upsample<height_scale = 2.0, width_scale = 1.5>(x)", "T[1, 2, 3, 4] x", "T[1, 2, 6, 6] y", 1, 6),
    *(
        Case(f'y = {op}<mode = "{mode}">(x, s)', "T[1, 2, 3, 4] x", "T[1, 2, 6, 6] y", first, last, FLOATS, "<float[4] s = {1, 1, 2, 1.5}>")
        for op, first, last in (("Upsample", 9, 9), ("Resize", 10, 10))
        for mode in ("nearest", "linear")
    ),
    *(
        Case(f'y = Resize<mode = "{mode}">(x, s)', "T[1, 2, 6, 7] x", "T[1, 2, 3, 4] y", 10, 10, FLOATS, f"<float[4] s = {{1, 1, {scales}}}>")
        for mode in ("nearest", "linear")
        for scales in ("0.5, 0.6", "0.6, 0.7")
    ),
    *(
        Case(f'y = Resize<mode = "{mode}", coordinate_transformation_mode = "{place}"{more}>(x, r, {scales})', "T[1, 2, 4, 5] x", f"T[1, 2, {size}] y",
             11, 17, ("float", "double", "int32"), f"<float[{8 if 'crop' in place else 0}] r = {{{roi if 'crop' in place else ''}}}, float[4] s = {{1, 1, {scale}}}, float[0] e = {{}}, int64[4] z = {{1, 2, {size}}}>")
        for mode, more in (
            ("nearest", ""), ("nearest", ', nearest_mode = "floor"'), ("nearest", ', nearest_mode = "ceil"'),
            ("nearest", ', nearest_mode = "round_prefer_ceil"'), ("linear", ""), ("cubic", ""), ("cubic", ", exclude_outside = 1"),
        )
        for place in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize")
        for scale, size in (("1.5, 2.0", "6, 10"), ("0.5, 0.6", "2, 3"))
        for scales in ("s", "e, z")
        for roi in ("0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9",)
        if not (place == "tf_half_pixel_for_nn" and mode != "nearest")
    ),
    *(
        Case(f"y = BatchNormalization{more}(x, s, b, m, v)", "T[2, 3, 4, 4] x, T[3] s, T[3] b, T[3] m, T[3] v", "T[2, 3, 4, 4] y", 7, 99)
        for more in ("", "<epsilon = 0.1>")
    ),
    Case("y = BatchNormalization<spatial = 1>(x, s, b, m, v)", "T[2, 3, 4, 4] x, T[3] s, T[3] b, T[3] m, T[3] v", "T[2, 3, 4, 4] y", 7, 8),
    Case("y = BatchNormalization<is_test = 1>(x, s, b, m, v)", "T[2, 3, 4, 4] x, T[3] s, T[3] b, T[3] m, T[3] v", "T[2, 3, 4, 4] y", 6, 6),
    Case("y = BatchNormalization<spatial = 0>(x, s, b, m, v)", "T[2, 3, 4] x, T[3, 4] s, T[3, 4] b, T[3, 4] m, T[3, 4] v", "T[2, 3, 4] y", 7, 8),
    Case("y, m2, v2, a, c = BatchNormalization(x, s, b, m, v)", "T[2, 3, 4] x, T[3] s, T[3] b, T[3] m, T[3] v", "T[2, 3, 4] y, T[3] m2", 7, 13),
    Case("y = Dropout(x)", "T[2, 3] x", "T[2, 3] y", 7, 99),
    Case("y, m = Dropout<ratio = 0.25>(x)", "T[2, 3] x", "T[2, 3] y", 7, 11),
    Case("y, m = Dropout(x)", "T[2, 3] x", "T[2, 3] y, bool[2, 3] m", 10, 99),
    Case("y, m = Dropout(x)", "T[2, 3] x", "T[2, 3] y, T[2, 3] m", 7, 9),
    Case("y = DFT(x)", "T[2, 3, 8, 2] x", "T[2, 3, 8, 2] y", 17, 19, ("float", "double")),
    Case("y = DFT<axis = 2>(x)", "T[2, 3, 8, 1] x", "T[2, 3, 8, 2] y", 17, 19, ("float", "double")),
    Case("y = DFT<axis = -2, onesided = 1>(x)", "T[2, 3, 8, 1] x", "T[2, 3, 5, 2] y", 17, 19, ("float", "double")),
    *(
        Case(f"y = GridSample{mode}(x, g)", "T[1, 2, 4, 5] x, T[1, 3, 3, 2] g", "T[1, 2, 3, 3] y", 16, 19)
        for mode in ("", '<mode = "bilinear">', '<mode = "nearest">', '<mode = "bicubic">', '<padding_mode = "reflection">', '<align_corners = 1, padding_mode = "border">')
    ),
    *(
        Case("y = GroupNormalization<num_groups = 2>(x, s, b)", f"T[{shape}] x, T[2] s, T[2] b", f"T[{shape}] y", 18, 20)
        for shape in ("2, 4, 3, 3", "N, C, 3, 3", "N, 4, M")
    ),
    Case("y = ReduceSum<keepdims = 0>(x, a)", "T[2, 3] x", "T[2] y", 13, 99, NUMBERS, "<int64[1] a = {1}>"),
    Case("y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2>(x, r, i)", "T[2, 3, 6, 7] x, T[2, 4] r", "T[2, 3, 2, 3] y", 10, 15, FLOATS, "<int64[2] i = {0, 1}>"),
    Case("y = Scatter<axis = 1>(x, i, u)", "T[2, 5] x, T[2, 2] u", "T[2, 5] y", 9, 10, NUMBERS, "<int64[2, 2] i = {1, 3, 0, 2}>"),
    Case("y = ScatterElements<axis = 1>(x, i, u)", "T[2, 5] x, T[2, 2] u", "T[2, 5] y", 11, 99, NUMBERS, "<int64[2, 2] i = {1, 3, 0, 2}>"),
    Case("y = ScatterND(x, i, u)", "T[4, 3] x, T[2, 3] u", "T[4, 3] y", 11, 99, NUMBERS, "<int64[2, 1] i = {1, 3}>"),
    Case("y = Gemm(a, b, c)", "T[2, 3] a, T[3, 4] b, T[4] c", "T[2, 4] y", 7, 99),
    Case("y = Gemm<broadcast = 1, transB = 1>(a, b, c)", "T[2, 3] a, T[4, 3] b, T[4] c", "T[2, 4] y", 1, 6),
    *(
        Case(f"y = {op}<broadcast = 1{axis}>(a, b)", f"T[2, 3, 4, 5] a, T[{shape}] b", "T[2, 3, 4, 5] y", 1, 6)
        for op in ("Add", "Sub", "Mul", "Div", "Pow")
        for axis, shape in (("", "4, 5"), (", axis = 1", "3, 4"), (", axis = 0", "2"), (", axis = 1", "3"), (", axis = 3", "5"))
    ),
    Case("y = PRelu(x, s)", "T[2, 3, 4] x, T[3] s", "T[2, 3, 4] y", 1, 6),
    Case("y = PRelu(x, s)", "T[2, 3, 4] x, T[1] s", "T[2, 3, 4] y", 1, 99),
    Case("y = Reshape<shape = [3, -1]>(x)", "T[2, 3, 4] x", "T[3, 8] y", 1, 4),
    Case("y = Reshape(x, s)", "T[2, 3, 4] x", "T[2, 12] y", 5, 99, NUMBERS, "<int64[2] s = {0, -1}>"),
    Case('y = Cast<to = "INT64">(x)', "T[2, 3] x", "int64[2, 3] y", 1, 5),
    Case("y = Cast<to = 6>(x)", "T[2, 3] x", "int32[2, 3] y", 6, 99, NUMBERS),
    Case("y = Concat(x, z)", "T[2, 3] x, T[2, 1] z", "T[2, 4] y", 1, 3),
    Case("y = Selu(x)", "T[2, 3] x", "T[2, 3] y", 1, 99),
    Case("y = LpPool<kernel_shape = [2, 2], p = 2.0>(x)", "T[1, 1, 4, 4] x", "T[1, 1, 3, 3] y", 1, 1),
    Case("y = LpPool<kernel_shape = [2, 2]>(x)", "T[1, 1, 4, 4] x", "T[1, 1, 3, 3] y", 2, 99),
    *(
        Case(f"y = {op}<kernel_shape = [3, 3], strides = [2, 2]{more}>(x)", "T[1, 2, 7, 6] x", "T[1, 2, H, W] y", first, 99)
        for op in ("AveragePool", "MaxPool")
        for more, first in (("", 1), (", pads = [1, 1, 1, 1]", 1), (', auto_pad = "SAME_UPPER"', 1), (", ceil_mode = 1", 10), (", ceil_mode = 1, pads = [1, 1, 1, 1]", 10))
    ),
    Case("y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1, count_include_pad = 1, pads = [1, 1, 1, 1]>(x)", "T[1, 2, 6, 6] x", "T[1, 2, H, W] y", 10, 99),
    *(
        Case(f"y, h = {op}<hidden_size = 3{more}>(x, w, r, b)", f"T[2, 2, 4] x, T[{d}, {3 * g}, 4] w, T[{d}, {3 * g}, 3] r, T[{d}, {6 * g}] b", f"T[2, {d}, 2, 3] y, T[{d}, 2, 3] h", 7, 99)
        for op, g in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
        for more, d in (("", 1), (', direction = "bidirectional"', 2))
    ),
    Case("y = OneHot(i, d, v)", "T[2] v", "T[3, 5] y", 9, 99, ("float", "int64"), "<int64[3] i = {0, 4, -1}, int64 d = {5}>"),
    Case("y = Range(a, b, c)", "T a, T b, T c", "T[N] y", 11, 99, ("float", "double", "int64")),
    Case("y = DepthToSpace<blocksize = 2>(x)", "T[1, 8, 2, 3] x", "T[1, 2, 4, 6] y", 1, 99),
    Case("y = SpaceToDepth<blocksize = 2>(x)", "T[1, 2, 4, 6] x", "T[1, 8, 2, 3] y", 1, 99),
    Case("y = ArgMax<axis = 1>(x)", "T[2, 5] x", "int64[2, 1] y", 1, 99, NUMBERS),
    Case("y = QuantizeLinear(x, s, z)", "T[2, 5] x, float s", "uint8[2, 5] y", 10, 99, ("float", "int32"), "<uint8 z = {3}>"),
    Case("y = DequantizeLinear(q, s)", "T[2, 5] q, float s", "float[2, 5] y", 10, 99, ("uint8", "int8", "int32")),
    Case("y = Attention(q, k, v)", "T[1, 2, 3, 4] q, T[1, 2, 5, 4] k, T[1, 2, 5, 4] v", "T[1, 2, 3, 4] y", 23, 99),
    Case("y = MeanVarianceNormalization(x)", "T[2, 3, 4, 4] x", "T[2, 3, 4, 4] y", 9, 12, ("float",)),
    Case("y = Erf(x)", "T[2, 5] x", "T[2, 5] y", 9, 99, ("float", "int32")),
    Case("y = Max(x, z)", "T[2, 5] x, T[2, 5] z", "T[2, 5] y", 1, 99, NUMBERS),
    Case("y = Tile(x, t)", "T[2, 3] x", "T[2, 6] y", 6, 99, NUMBERS, "<int64[2] t = {1, 2}>"),
    Case("y = Flatten<axis = 2>(x)", "T[2, 3, 4] x", "T[6, 4] y", 1, 99, NUMBERS),
    Case("y = Shape(x)", "T[2, 3, 4] x", "int64[3] y", 1, 99, NUMBERS),
    Case("y = GatherND(x, i)", "T[4, 3] x", "T[2, 3] y", 11, 99, NUMBERS, "<int64[2, 1] i = {1, 3}>"),
    Case("y = ConvTranspose<strides = [2, 2], output_shape = [8, 8]>(x, w)", "T[1, 2, 4, 4] x, T[2, 1, 3, 3] w", "T[1, 1, 8, 8] y", 1, 99),
    *(_unary(op, 6) for op in ("Abs", "Relu", "Tanh", "Sigmoid", "Exp", "Floor", "HardSigmoid", "Elu", "LeakyRelu", "Neg")),
]  # fmt: skip
