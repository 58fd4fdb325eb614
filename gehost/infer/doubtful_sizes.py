"""Sizes in doubt by operator.

``make sizes`` measured them and writes this file.

Behind each: cases in doubt with a wrong size, cases in doubt whose sizes were right by both
witnesses, and by one that runs them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gehost.infer.doubts import Doubt

VERSIONS: Mapping[str, str] = MappingProxyType({"onnx": "1.23.2", "onnxruntime": "1.31.1"})
"""The versions that were measured."""

DOUBTS: Mapping[str, Sequence[Doubt]] = MappingProxyType(
    {
        "AffineGrid": (
            Doubt(
                20, None, ("the batch is not that of the size",), 0
            ),  # 2 wrong, 238 right, 59 by one
        ),
        "ArgMax": (
            Doubt(13, None, ("a flag is neither 0 nor 1",), -1),  # 5 wrong, 0 right
        ),
        "ArgMin": (
            Doubt(13, None, ("a flag is neither 0 nor 1",), -1),  # 2 wrong, 0 right
        ),
        "Attention": (
            Doubt(25, None, ("leading sizes may differ",), 0),  # 2 wrong, 107 right, 127 by one
        ),
        "AveragePool": (
            Doubt(7, None, ("the runtime ends elsewhere",), 2),  # 307 wrong, 2 right, 13 by one
            Doubt(19, None, ("VALID without dilations differs",), 2),  # 18 wrong, 1 right, 3 by one
            Doubt(19, None, ("a flag is neither 0 nor 1",), 2),  # 2 wrong, 0 right
            Doubt(
                19, None, ("auto_pad=SAME_UPPER", "dilated", "strided"), 2
            ),  # 12 wrong, 4 right, 9 by one
        ),
        "BatchNormalization": (
            Doubt(9, 13, ("a vector is longer than its axis",), 1),  # 2 wrong, 47 right, 2 by one
        ),
        "CausalConvWithState": (
            Doubt(
                27, None, ("the state is not as long as the kernel",), 2
            ),  # 3 wrong, 0 right, 4 by one
        ),
        "Conv": (
            Doubt(
                1, None, ("a window is wider than its axis", "strided"), 2
            ),  # 18 wrong, 0 right, 9 by one
            Doubt(1, None, ("SAME is not the axis over the stride",), 2),  # 3 wrong, 0 right
            Doubt(11, None, ("auto_pad=VALID", "pads beside auto_pad"), 2),  # 1 wrong, 0 right
        ),
        "ConvInteger": (
            Doubt(
                10, None, ("a window is wider than its axis", "strided"), 2
            ),  # 28 wrong, 0 right, 6 by one
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 3 wrong, 0 right
            Doubt(
                10, None, ("auto_pad=VALID", "pads beside auto_pad"), 2
            ),  # 2 wrong, 0 right, 1 by one
        ),
        "ConvTranspose": (
            Doubt(
                1, None, ("SAME is not the axis times the stride",), 2
            ),  # 115 wrong, 0 right, 24 by one
            Doubt(1, None, ("the rank is another",), -1),  # 68 wrong, 0 right
        ),
        "DFT": (
            Doubt(20, None, ("input 1 is computed",), 0),  # 3 wrong, 25 right, 8 by one
        ),
        "DequantizeLinear": (
            Doubt(19, 27, ("a vector is longer than its axis",), 1),  # 2 wrong, 40 right, 59 by one
        ),
        "Einsum": (
            Doubt(12, None, ("a later term may be wider",), 0),  # 12 wrong, 118 right, 18 by one
        ),
        "GRU": (
            Doubt(14, 21, ("a flag is neither 0 nor 1",), 2),  # 0 wrong, 0 right
            Doubt(
                7, None, ("hidden_size is not that of the weights",), 2
            ),  # 4 wrong, 160 right, 105 by one
            Doubt(
                14, 21, ("the initial state has another batch",), 2
            ),  # 1 wrong, 16 right, 17 by one
        ),
        "GlobalMaxPool": (
            Doubt(1, None, ("the rank is not 4",), -1),  # 738 wrong, 0 right
        ),
        "GridSample": (
            Doubt(16, 19, ("leading sizes may differ", "mode=bilinear"), 0),  # 1 wrong, 74 right
        ),
        "InstanceNormalization": (
            Doubt(
                6, None, ("a vector is longer than its axis",), 1
            ),  # 6 wrong, 199 right, 16 by one
        ),
        "LSTM": (
            Doubt(14, 21, ("a flag is neither 0 nor 1",), 2),  # 0 wrong, 0 right
            Doubt(
                7, None, ("hidden_size is not that of the weights",), 2
            ),  # 2 wrong, 163 right, 94 by one
            Doubt(
                14, 21, ("the initial state has another batch",), 2
            ),  # 0 wrong, 18 right, 24 by one
        ),
        "LayerNormalization": (
            Doubt(
                17, None, ("a parameter may be wider than the tensor",), 0
            ),  # 7 wrong, 171 right, 44 by one
        ),
        "LpPool": (
            Doubt(2, None, ("the runtime ends elsewhere",), 2),  # 231 wrong, 2 right, 8 by one
            Doubt(
                18, None, ("VALID without dilations differs", "ceil_mode=0"), 2
            ),  # 12 wrong, 0 right, 3 by one
        ),
        "MaxPool": (
            Doubt(1, None, ("the runtime ends elsewhere",), 2),  # 375 wrong, 2 right, 14 by one
            Doubt(1, None, ("SAME_LOWER rounds down",), 2),  # 160 wrong, 0 right
            Doubt(
                10, None, ("ceil_mode=1", "the reference pads otherwise"), 2
            ),  # 85 wrong, 14 right, 24 by one
            Doubt(
                10, None, ("auto_pad=VALID", "rounding up changes a size"), 2
            ),  # 31 wrong, 5 right, 1 by one
            Doubt(1, None, ("SAME is not the axis over the stride",), 2),  # 36 wrong, 0 right
            Doubt(
                10, None, ("ceil_mode=0", "not strides", "the reference pads otherwise"), 2
            ),  # 29 wrong, 2 right, 61 by one
            Doubt(
                12, None, ("dilations", "strides", "the reference pads otherwise"), 2
            ),  # 6 wrong, 1 right, 1 by one
            Doubt(
                1, None, ("not dilations", "strides", "the reference pads otherwise"), 2
            ),  # 24 wrong, 4 right, 35 by one
            Doubt(
                1, None, ("not dilations", "not strides", "the reference pads otherwise"), 2
            ),  # 96 wrong, 14 right, 104 by one
        ),
        "MaxUnpool": (
            Doubt(
                22, None, ("not strides", "padded", "the indices have other sizes"), 1
            ),  # 2 wrong, 3 right, 2 by one
            Doubt(
                11, None, ("not strides", "pads", "the indices have other sizes"), 1
            ),  # 3 wrong, 23 right, 3 by one
            Doubt(
                11, None, ("not pads", "strides", "the indices have other sizes"), 1
            ),  # 3 wrong, 77 right, 14 by one
            Doubt(
                11, 21, ("padded", "strides", "the indices have other sizes"), 1
            ),  # 1 wrong, 26 right, 1 by one
        ),
        "Min": (
            Doubt(6, 7, ("a size is not known",), 2),  # 1 wrong, 0 right
        ),
        "NegativeLogLikelihoodLoss": (
            Doubt(22, None, ("the targets have other sizes",), 1),  # 1 wrong, 98 right, 42 by one
        ),
        "NonZero": (
            Doubt(9, None, ("the tensor is a scalar",), 0),  # 14 wrong, 0 right, 4 by one
        ),
        "PRelu": (
            Doubt(
                7, None, ("a parameter may be wider than the tensor",), -1
            ),  # 31 wrong, 43 right, 5 by one
        ),
        "QLinearConv": (
            Doubt(
                10, None, ("a window is wider than its axis", "strided"), 2
            ),  # 28 wrong, 0 right, 12 by one
            Doubt(10, None, ("SAME is not the axis over the stride",), 2),  # 2 wrong, 0 right
            Doubt(
                10, None, ("auto_pad=VALID", "pads beside auto_pad"), 2
            ),  # 2 wrong, 0 right, 2 by one
        ),
        "QuantizeLinear": (
            Doubt(
                19, 27, ("a vector is longer than its axis", "axis"), 0
            ),  # 2 wrong, 35 right, 47 by one
        ),
        "RMSNormalization": (
            Doubt(
                23, None, ("a parameter may be wider than the tensor",), 0
            ),  # 13 wrong, 139 right, 61 by one
        ),
        "RNN": (
            Doubt(14, 21, ("a flag is neither 0 nor 1",), 2),  # 1 wrong, 0 right
            Doubt(
                7, None, ("hidden_size is not that of the weights",), 2
            ),  # 9 wrong, 193 right, 68 by one
            Doubt(
                14, 21, ("the initial state has another batch",), 2
            ),  # 0 wrong, 25 right, 17 by one
        ),
        "Range": (
            Doubt(11, None, ("double precision counts otherwise",), 0),  # 73 wrong, 0 right
        ),
        "ReduceL1": (
            Doubt(
                18, None, ("a reduced axis may be empty", "an input is empty"), 2
            ),  # 1 wrong, 2 right, 1 by one
        ),
        "ReduceL2": (
            Doubt(18, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
            Doubt(11, 12, ("an input is empty", "axes"), 0),  # 1 wrong, 0 right
            Doubt(18, None, ("an input is empty", "not axes"), 2),  # 1 wrong, 45 right, 16 by one
            Doubt(11, 17, ("a reduced axis may be empty", "axes"), 0),  # 2 wrong, 53 right
        ),
        "ReduceLogSum": (
            Doubt(13, 17, ("an input is empty", "axes"), 1),  # 1 wrong, 1 right
        ),
        "ReduceLogSumExp": (
            Doubt(18, 27, ("a flag is neither 0 nor 1",), -1),  # 2 wrong, 0 right
            Doubt(
                18, 27, ("a reduced axis may be empty", "an input is empty", "not axes"), 1
            ),  # 1 wrong, 5 right, 1 by one
        ),
        "ReduceMax": (
            Doubt(20, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
            Doubt(
                18,
                19,
                ("a reduced axis may be empty", "a size is not known", "an input is empty"),
                3,
            ),  # 1 wrong, 0 right
            Doubt(
                18, 19, ("a reduced axis may be empty", "a size is not known", "not axes"), 1
            ),  # 2 wrong, 17 right
        ),
        "ReduceMean": (
            Doubt(
                18, None, ("a reduced axis may be empty", "an input is empty"), -1
            ),  # 1 wrong, 4 right, 2 by one
        ),
        "ReduceMin": (
            Doubt(20, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
            Doubt(
                18, 19, ("a reduced axis may be empty", "an input is empty"), -1
            ),  # 2 wrong, 0 right
        ),
        "ReduceProd": (
            Doubt(1, None, ("a flag is neither 0 nor 1",), -1),  # 4 wrong, 0 right
            Doubt(
                18, None, ("a reduced axis may be empty", "not axes"), -1
            ),  # 2 wrong, 62 right, 19 by one
        ),
        "ReduceSum": (
            Doubt(13, None, ("a flag is neither 0 nor 1",), -1),  # 2 wrong, 0 right
        ),
        "ReduceSumSquare": (
            Doubt(18, None, ("a flag is neither 0 nor 1",), -1),  # 1 wrong, 0 right
            Doubt(
                18, None, ("a reduced axis may be empty", "an input is empty"), 0
            ),  # 2 wrong, 2 right, 1 by one
        ),
        "Resize": (
            Doubt(
                10, None, ("single precision scales to another size",), 1
            ),  # 170 wrong, 0 right, 38 by one
        ),
        "RoiAlign": (
            Doubt(
                10, 21, ("mode=avg", "the regions are not as many as their batches"), 0
            ),  # 2 wrong, 105 right, 1 by one
        ),
        "Shape": (
            Doubt(
                15, None, ("a bound is before the first axis",), 0
            ),  # 21 wrong, 3 right, 2 by one
        ),
        "Slice": (
            Doubt(10, None, ("a slice back begins before the axis",), 0),  # 62 wrong, 0 right
            Doubt(10, 10, ("a sliced axis keeps its name",), 0),  # 18 wrong, 4 right
            Doubt(
                10, None, ("a slice back ends at the largest number",), 0
            ),  # 20 wrong, 4 right, 5 by one
        ),
        "Split": (
            Doubt(18, None, ("a part is empty",), 0),  # 14 wrong, 0 right, 25 by one
        ),
        "Squeeze": (
            Doubt(1, 10, ("axes", "axes are out of order"), -1),  # 23 wrong, 0 right
            Doubt(1, None, ("there are no axes",), -1),  # 15 wrong, 5 right, 2 by one
        ),
        "Unique": (
            Doubt(
                11, 27, ("sorted=0", "the axis is not the first", "the rank is over 2"), 0
            ),  # 9 wrong, 9 right, 8 by one
            Doubt(
                11, None, ("sorted=0", "the axis is not the first"), 0
            ),  # 13 wrong, 18 right, 14 by one
        ),
        "Unsqueeze": (
            Doubt(11, 12, ("an input is empty", "axes are out of order"), 0),  # 1 wrong, 0 right
            Doubt(1, 12, ("axes", "axes are out of order"), 0),  # 9 wrong, 13 right, 24 by one
        ),
        "Upsample": (
            Doubt(7, 9, ("single precision scales to another size",), 0),  # 234 wrong, 0 right
        ),
        "ai.onnx.ml::LinearClassifier": (
            Doubt(
                1, None, ("a size is not known", "there is one class"), 1
            ),  # 1 wrong, 0 right, 14 by one
        ),
    }
)
